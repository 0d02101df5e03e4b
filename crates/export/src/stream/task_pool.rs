//! Tasks that do one request after the other.
//!
//! A task of its own for each request costs the memory of its future, 9 KiB where an array is behind, taken, filled by
//! copying and given back each time. A task that has ended its request waits for the next one instead.
//!
//! Invariants: a request never waits for another: it goes to a task that waits, or to a new one; those that wait take no
//! more memory than was allowed; after `close` none waits.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    rc::Rc,
    task::{Poll, Waker},
};

use rt::Rt;

/// What tasks may take that wait, all of a server's or a worker's: some 450 of those of an array, which a few deep queues
/// keep busy.
pub const WAITING_BYTES: usize = 4 << 20;

/// Tasks for jobs `J`, which are all done in one way.
pub struct TaskPool<J> {
    waiting: RefCell<Vec<Rc<Seat<J>>>>,
    /// What those may take that wait.
    waiting_bytes_max: usize,
    closed: Cell<bool>,
}

/// Where a task waits.
struct Seat<J> {
    job: RefCell<Option<J>>,
    ended: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl<J: 'static> TaskPool<J> {
    /// None yet; those that wait for jobs will take `waiting_bytes_max` at most.
    pub fn new(waiting_bytes_max: usize) -> Rc<Self> {
        Rc::new(TaskPool { waiting: RefCell::default(), waiting_bytes_max, closed: Cell::new(false) })
    }

    /// Begins `job`: `work` does it, the same for all jobs of this pool.
    pub fn begin<F>(self: &Rc<Self>, rt: &Rt, job: J, work: impl Fn(J) -> F + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let waiting = self.waiting.borrow_mut().pop();
        if let Some(seat) = waiting {
            *seat.job.borrow_mut() = Some(job);
            return seat.wake();
        }
        let (pool, waiting_max) = (self.clone(), self.waiting_bytes_max / size_of::<F>().max(1));
        rt.spawn(async move {
            let seat = Rc::new(Seat { job: RefCell::new(Some(job)), ended: Cell::new(false), waker: Cell::new(None) });
            while let Some(job) = seat.next().await {
                work(job).await;
                if !pool.wait(&seat, waiting_max) {
                    return;
                }
            }
        });
    }

    /// Ends the tasks that wait; the others end after their jobs.
    pub fn close(&self) {
        self.closed.set(true);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for seat in waiting {
            seat.ended.set(true);
            seat.wake();
        }
    }

    fn wait(&self, seat: &Rc<Seat<J>>, waiting_max: usize) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        if self.closed.get() || waiting.len() >= waiting_max {
            return false;
        }
        waiting.push(seat.clone());
        true
    }
}

impl<J> Seat<J> {
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The next job; nothing when there will be none.
    async fn next(&self) -> Option<J> {
        poll_fn(|cx| {
            if self.ended.get() || self.job.borrow().is_some() {
                return Poll::Ready(());
            }
            self.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        self.job.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING_MAX: usize = 32;

    /// Jobs that wait until they are let go; what was begun and how many tasks there are.
    #[test]
    fn jobs_never_wait_for_each_other_and_tasks_are_used_again() {
        let rt = Rt::modelled(1);
        rt.block_on(async {
            let (done, alive) = (Rc::new(Cell::new(0)), Rc::new(()));
            let work = {
                let (rt_of, done, alive) = (rt.clone(), done.clone(), alive.clone());
                move |micros: u64| {
                    let (rt, done, alive) = (rt_of.clone(), done.clone(), alive.clone());
                    async move {
                        rt.sleep(std::time::Duration::from_micros(micros)).await;
                        done.set(done.get() + 1);
                        drop(alive);
                    }
                }
            };
            let tasks = TaskPool::new(WAITING_MAX * size_of_val(&work(0)));
            let begin = |micros: u64| tasks.begin(&rt, micros, work.clone());
            let settle = async || rt.sleep(std::time::Duration::from_millis(1)).await;
            let since = rt.now();
            (0..100).for_each(|_| begin(1000));
            settle().await;
            settle().await;
            assert_eq!((done.get(), tasks.waiting.borrow().len()), (100, WAITING_MAX));
            assert!(rt.now() - since < std::time::Duration::from_millis(3));
            (0..WAITING_MAX + 1).for_each(|_| begin(10));
            assert_eq!(tasks.waiting.borrow().len(), 0);
            settle().await;
            assert_eq!((done.get(), tasks.waiting.borrow().len()), (133, WAITING_MAX));
            begin(3000);
            tasks.close();
            settle().await;
            assert_eq!(Rc::strong_count(&tasks), 2, "the one at work");
            settle().await;
            settle().await;
            settle().await;
            assert_eq!((done.get(), Rc::strong_count(&tasks), Rc::strong_count(&alive)), (134, 1, 2));
        });
    }
}
