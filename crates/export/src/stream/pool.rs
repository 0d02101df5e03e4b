//! A number of units that are lent, in the order of asking.
//!
//! Invariants: a pool never gives more than its size; it gives in the order of asking, so a large request cannot be
//! starved by small ones; a waiter that is dropped leaves the queue.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

/// A number of units that are lent.
pub struct Pool {
    free: Cell<u64>,
    queue: RefCell<VecDeque<Waiter>>,
    tickets: Cell<u64>,
}

struct Waiter {
    ticket: u64,
    waker: Option<Waker>,
}

impl Pool {
    pub fn new(units: u64) -> Rc<Pool> {
        Rc::new(Pool { free: Cell::new(units), queue: RefCell::default(), tickets: Cell::new(0) })
    }

    /// Whether anyone waits.
    pub fn is_contended(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// Takes `units`, after all that asked before.
    pub async fn take(self: &Rc<Self>, units: u64) -> Loan {
        if let Some(loan) = self.try_take(units) {
            return loan;
        }
        let place = Place { pool: self, ticket: self.enqueue() };
        poll_fn(|cx| {
            let mut queue = self.queue.borrow_mut();
            let first = queue.front().is_some_and(|w| w.ticket == place.ticket);
            if first && self.free.get() >= units {
                return Poll::Ready(());
            }
            if let Some(waiter) = queue.iter_mut().find(|w| w.ticket == place.ticket) {
                waiter.waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
        self.free.set(self.free.get() - units);
        Loan { pool: self.clone(), units }
    }

    /// Takes `units` if they are there and nobody waits.
    pub fn try_take(self: &Rc<Self>, units: u64) -> Option<Loan> {
        if self.is_contended() || self.free.get() < units {
            return None;
        }
        self.free.set(self.free.get() - units);
        Some(Loan { pool: self.clone(), units })
    }

    fn enqueue(&self) -> u64 {
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        self.queue.borrow_mut().push_back(Waiter { ticket, waker: None });
        ticket
    }

    fn wake_first(&self) {
        let waker = self.queue.borrow_mut().front_mut().and_then(|w| w.waker.take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place in the queue, left when dropped.
struct Place<'a> {
    pool: &'a Pool,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pool.queue.borrow_mut().retain(|w| w.ticket != self.ticket);
        self.pool.wake_first();
    }
}

/// Units of a pool, given back when dropped.
pub struct Loan {
    pool: Rc<Pool>,
    units: u64,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.pool.free.set(self.pool.free.get() + self.units);
        self.pool.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn large_requests_are_not_overtaken() {
        let pool = Pool::new(10);
        let held = pool.try_take(4).unwrap();
        let (mut large, mut small) = (pin!(pool.take(8)), pin!(pool.take(1)));
        assert!(poll(large.as_mut()).is_pending());
        assert!(poll(small.as_mut()).is_pending(), "a small request waits behind a large one");
        assert!(pool.try_take(1).is_none());
        drop(held);
        let Poll::Ready(large) = poll(large) else { panic!("room for the large one") };
        assert!(poll(small.as_mut()).is_ready());
        drop(large);
        assert_eq!(pool.free.get(), 10);
    }

    #[test]
    fn a_waiter_that_leaves_lets_the_next_one_go() {
        let pool = Pool::new(4);
        let held = pool.try_take(3).unwrap();
        let mut small = pin!(pool.take(1));
        {
            let mut large = pin!(pool.take(4));
            assert!(poll(large.as_mut()).is_pending());
            assert!(poll(small.as_mut()).is_pending());
        }
        assert!(poll(small).is_ready());
        drop(held);
        assert_eq!(pool.free.get(), 4);
    }
}
