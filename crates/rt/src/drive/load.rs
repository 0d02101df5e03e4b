//! The number of operations in flight on one drive, and who waits for it to become zero, or less than some limit.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Operations in flight; shared by a drive's handles and by the operations themselves.
#[derive(Default)]
pub(crate) struct Load {
    count: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
    /// Who waits for fewer looks again when there were so many.
    wakes_at: Cell<usize>,
}

impl Load {
    pub(crate) fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn done(&self) {
        let before = self.count.get();
        assert!(before > 0, "an operation ended that never began");
        self.count.set(before - 1);
        if before == 1 || before == self.wakes_at.get() {
            self.wakes_at.set(0);
            let waiting = self.waiting.take();
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    pub(crate) async fn idle(&self) {
        self.below(1).await;
    }

    /// Resolves when fewer than `limit` operations are in flight. All who wait are woken then, and the first begins.
    pub(crate) async fn below(&self, limit: usize) {
        poll_fn(|cx| {
            if self.count.get() < limit {
                return Poll::Ready(());
            }
            self.wakes_at.set(self.wakes_at.get().max(limit));
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

    #[test]
    fn as_many_are_in_flight_as_may_be() {
        let rt = Rt::modelled(2);
        let load = Rc::new(Load::default());
        let most = Rc::new(Cell::new(0));
        for _ in 0..10 {
            let (load, most, rt) = (load.clone(), most.clone(), rt.clone());
            rt.clone()
                .spawn(async move {
                    load.below(3).await;
                    load.begin();
                    most.set(most.get().max(load.count()));
                    rt.sleep(std::time::Duration::from_millis(1)).await;
                    load.done();
                })
                .detach();
        }
        rt.block_on(rt.sleep(std::time::Duration::from_millis(20)));
        assert_eq!((most.get(), load.count()), (3, 0));
    }
}
