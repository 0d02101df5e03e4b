//! A condition that tasks of one thread wait for.
//!
//! Invariant: whoever changes what a condition reads calls `notify` afterwards.

use std::{
    cell::RefCell,
    future::poll_fn,
    task::{Poll, Waker},
};

/// The tasks that wait.
#[derive(Default)]
pub struct Signal {
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    /// Waits until `condition` holds.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        poll_fn(|cx| {
            if condition() {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Looks at all conditions again.
    pub fn notify(&self) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}
