//! A part of an array: on this core, or on another, where it is asked by messages.
//!
//! Invariant: what was asked of another core is done to its end, also when nobody waits for the answer any more.
//!
//! Not here: threads; hosts' requests, which find their own way to a part.

use std::future::Future;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::LocalBoxFuture;
use rt::{MailReceiver, MailSender, Rt};

use crate::engine::Array;
use crate::fault::Fault;

/// A verb on its way.
type Letter = Box<dyn FnOnce(Array) -> LocalBoxFuture<'static, ()> + Send>;

/// A part. Clones are handles on the same one.
#[derive(Clone)]
pub enum Part {
    /// On this core.
    Here(Array),
    /// On another.
    There(Asker),
}

/// The way to a part on another core.
#[derive(Clone)]
pub struct Asker(MailSender<Letter>);

/// The other end of it.
pub struct PartEnd(MailReceiver<Letter>);

/// A way to a part; `rt` may be that of either end.
#[must_use]
pub fn way(rt: &Rt) -> (PartEnd, Part) {
    let (letters, inbox) = rt.mailbox();
    (PartEnd(inbox), Part::There(Asker(letters)))
}

impl PartEnd {
    /// Does what is asked of `array`, until nobody can ask any more and all of it is done.
    pub async fn serve(mut self, rt: &Rt, array: Array) {
        let mut verbs = vec![];
        while let Some(verb) = self.0.recv().await {
            verbs.retain(|verb: &rt::Task<()>| !verb.is_finished());
            verbs.push(rt.spawn(verb(array.clone())));
        }
        for verb in verbs {
            verb.await;
        }
    }
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
            Part::There(Asker(letters)) => {
                let (answer, answered) = oneshot::channel();
                let tell = |said| drop(answer.send(said));
                letters.send(Box::new(|array| verb(array).map(tell).boxed_local()));
                answered.await.map_err(|_| Fault::Closed)
            }
        }
    }
}
