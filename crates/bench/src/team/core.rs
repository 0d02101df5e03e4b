//! A core of a team: the calling one, or another thread, which is asked by submissions.
//!
//! Invariants: what a core is asked begins at once, beside what it is doing; it is done to its end, also when nobody waits
//! for the answer any more.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use array::Array;
use rt::cross::{Submitter, submissions};
use rt::{Rt, Task};

use crate::error::Error;
use crate::target::Target;

/// What a core has to itself.
pub(super) struct Own {
    /// Its runtime.
    pub rt: Rt,
    /// Its part of the array.
    pub part: RefCell<Option<Array>>,
    /// What its requests go to.
    pub target: RefCell<Option<Target>>,
    /// What it does for the other cores' requests.
    pub serving: RefCell<Vec<Task<()>>>,
}

impl Own {
    fn new(rt: Rt) -> Rc<Own> {
        Rc::new(Own { rt, part: RefCell::default(), target: RefCell::default(), serving: RefCell::default() })
    }

    /// A handle on what its requests go to.
    pub fn target(&self) -> Result<Target, Error> {
        self.target.borrow().clone().ok_or(Error::CoreEnded)
    }

    /// Asks the others for nothing more; returns when they do not either.
    pub async fn leave(&self) {
        drop(self.target.take());
        for serving in self.serving.take() {
            serving.await;
        }
    }
}

/// One core.
pub(super) struct Core(Submitter<Rc<Own>>);

impl Core {
    /// The calling one, and what it has.
    pub fn here(rt: &Rt) -> (Core, Rc<Own>) {
        let (submitter, submitted) = submissions(rt);
        let (world, own) = (rt.clone(), Own::new(rt.clone()));
        let given = own.clone();
        rt.spawn(async move { submitted.serve(&world, given).await }).detach();
        (Core(submitter), own)
    }

    /// A further one, which is there when this returns.
    pub async fn start(rt: &Rt, number: usize) -> Result<(Core, JoinHandle<io::Result<()>>), Error> {
        let (submitter, submitted) = submissions(rt);
        let work = move || {
            let rt = Rt::real()?;
            rt.block_on(submitted.serve(&rt, Own::new(rt.clone())));
            Ok(())
        };
        let no_core = |error| Error::NoCore(Arc::new(error));
        let thread = Builder::new().name(format!("core {number}")).spawn(work).map_err(no_core)?;
        match submitter.submit(async |_| ()).await {
            Some(()) => Ok((Core(submitter), thread)),
            None => Err(thread.join().ok().and_then(Result::err).map_or(Error::CoreEnded, no_core)),
        }
    }

    /// What `verb` says, on that core. It has begun when this returns; the future is its answer.
    pub fn ask<T, F, V>(&self, verb: V) -> impl Future<Output = Result<T, Error>> + use<T, F, V>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
        V: FnOnce(Rc<Own>) -> F + Send + 'static,
    {
        let said = self.0.submit(verb);
        async { said.await.ok_or(Error::CoreEnded) }
    }

    /// Lets it end.
    pub fn end(&self) {
        self.0.close();
    }
}
