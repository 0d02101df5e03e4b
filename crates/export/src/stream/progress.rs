//! What a server is doing as a whole: whether it stops, and which requests it still owes something.
//!
//! Invariant: a request counts as executed only after its reply was queued, so that between the two counts none is
//! forgotten.

use std::{cell::Cell, rc::Rc};

use super::signal::Signal;

/// The server's state, shared by its connections.
#[derive(Default)]
pub struct Progress {
    stopping: Cell<bool>,
    executing: Cell<u64>,
    unanswered: Cell<u64>,
    changed: Signal,
}

/// A request that is being executed, until dropped.
pub struct Executing(Rc<Progress>);

/// A reply that has not been sent, until dropped.
pub struct Unanswered(Rc<Progress>);

impl Progress {
    /// From now on requests are refused.
    pub fn stop(&self) {
        self.stopping.set(true);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub fn is_executing(&self) -> bool {
        self.executing.get() > 0
    }

    pub fn executing(self: &Rc<Self>) -> Executing {
        self.executing.set(self.executing.get() + 1);
        Executing(self.clone())
    }

    pub fn unanswered(self: &Rc<Self>) -> Unanswered {
        self.unanswered.set(self.unanswered.get() + 1);
        Unanswered(self.clone())
    }

    /// Waits until no request is being executed.
    pub async fn executed(&self) {
        self.changed.until(|| self.executing.get() == 0).await;
    }

    /// Waits until no reply waits to be sent.
    pub async fn answered(&self) {
        self.changed.until(|| self.unanswered.get() == 0).await;
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        self.0.executing.set(self.0.executing.get() - 1);
        self.0.changed.notify();
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.unanswered.set(self.0.unanswered.get() - 1);
        self.0.changed.notify();
    }
}
