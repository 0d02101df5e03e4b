//! The number of operations in flight on one drive, and who waits for it to become zero.
//!
//! Not here: limits; the array keeps its own.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Operations in flight; shared by a drive's handles and by the operations themselves.
#[derive(Default)]
pub(crate) struct Load {
    count: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

impl Load {
    pub(crate) fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn done(&self) {
        let before = self.count.get();
        assert!(before > 0, "an operation ended that never began");
        self.count.set(before - 1);
        if before == 1 {
            let waiting = self.waiting.take();
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    pub(crate) async fn idle(&self) {
        poll_fn(|cx| {
            if self.count.get() == 0 {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rt;
    use std::rc::Rc;

    #[test]
    fn idle_waits_for_the_last() {
        let rt = Rt::modelled(1);
        let load = Rc::new(Load::default());
        load.begin();
        load.begin();
        let ender = load.clone();
        let other = rt.clone();
        drop(rt.spawn(async move {
            for left in [1, 0] {
                other.yield_now().await;
                ender.done();
                assert_eq!(ender.count(), left);
            }
        }));
        rt.block_on(load.idle());
        assert_eq!(load.count(), 0);
    }
}
