//! A part of an array: on this core, or on another, to which verbs are submitted.
//!
//! Invariant: what was asked of another core is done to its end, also when nobody waits for the answer any more.
//!
//! Not here: threads; hosts' requests, which find their own way to a part.

use std::future::Future;

use rt::cross::Submitter;
use rt::{Drive, SentDrive};

use crate::engine::Array;
use crate::fault::{Fault, Refused, RefusedCode};

/// A part. Clones are handles on the same one.
#[derive(Clone)]
pub enum Part {
    /// On this core.
    Here(Array),
    /// On another.
    There(Submitter<Array>),
}

impl Part {
    /// What `verb` says of this part.
    ///
    /// # Errors
    /// [`Fault::Closed`] when its core has ended.
    pub async fn ask<T, F>(&self, verb: impl FnOnce(Array) -> F + Send + 'static) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        match self {
            Part::Here(array) => Ok(verb(array.clone()).await),
            Part::There(submitter) => submitter.submit(verb).await.ok_or(Fault::Closed),
        }
    }

    /// What `verb` says of this part and a slice of a drive, which is brought to its core.
    pub(super) async fn ask_with<T, F>(
        &self,
        slice: Drive,
        verb: impl FnOnce(Array, Drive) -> F + Send + 'static,
    ) -> Result<T, Refused>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refused>> + 'static,
    {
        if let Part::Here(array) = self {
            return verb(array.clone(), slice).await;
        }
        let sent = to_send(&slice)?;
        let arrives = async move |array: Array| {
            let slice = sent.arrive(array.rt()).await;
            verb(array, slice).await
        };
        self.ask(arrives).await?
    }
}

/// A drive or slice, ready to go to another core.
///
/// # Errors
/// When it cannot be used there.
pub fn to_send(drive: &Drive) -> Result<SentDrive, Refused> {
    drive.to_send().map_err(|error| {
        let why = format!("it cannot be used on another core: {error}");
        Refused::new(RefusedCode::Io, format!("drive {}", drive.info().name), why, "Use one core")
    })
}
