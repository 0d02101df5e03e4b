//! Requests that another thread answers, by number.
//!
//! Invariant: a ticket is in use from its request until its answer, also when nobody waits for that any more.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use slab::Slab;

use super::letters::Ticket;

/// Requests without an answer, or with one that was not fetched.
pub struct Tickets<A> {
    requests: RefCell<Slab<Request<A>>>,
    /// The other thread answers no more.
    gone: Cell<bool>,
}

enum Request<A> {
    Waiting(Option<Waker>),
    Answered(A),
    /// Nobody waits any more.
    Left,
}

/// A request on its way; nothing comes of it when the other thread is gone.
pub struct Waiting<A> {
    tickets: Rc<Tickets<A>>,
    ticket: Option<Ticket>,
}

impl<A> Default for Tickets<A> {
    fn default() -> Self {
        Tickets { requests: RefCell::default(), gone: Cell::new(false) }
    }
}

impl<A> Tickets<A> {
    /// A new request: its number, and where its answer is waited for.
    pub fn take(self: &Rc<Self>) -> (Ticket, Waiting<A>) {
        let ticket = self.requests.borrow_mut().insert(Request::Waiting(None));
        (ticket, Waiting { tickets: self.clone(), ticket: Some(ticket) })
    }

    /// An answer has come; it is given back when nobody waits for it.
    pub fn answered(&self, ticket: Ticket, answer: A) -> Option<A> {
        let mut requests = self.requests.borrow_mut();
        let request = &mut requests[ticket];
        if let Request::Left = request {
            requests.remove(ticket);
            return Some(answer);
        }
        let waker = request.waker();
        *request = Request::Answered(answer);
        drop(requests);
        if let Some(waker) = waker {
            waker.wake();
        }
        None
    }

    /// The other thread is gone: all who wait get nothing.
    pub fn end(&self) {
        self.gone.set(true);
        let wakers: Vec<Waker> = self.requests.borrow_mut().iter_mut().filter_map(|(_, r)| r.waker()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<A> Request<A> {
    fn waker(&mut self) -> Option<Waker> {
        match self {
            Request::Waiting(waker) => waker.take(),
            Request::Answered(_) | Request::Left => None,
        }
    }
}

impl<A> Future for Waiting<A> {
    type Output = Option<A>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<A>> {
        let this = &mut *self;
        let ticket = this.ticket.expect("a request is polled until its answer");
        let mut requests = this.tickets.requests.borrow_mut();
        match &mut requests[ticket] {
            Request::Waiting(waker) if !this.tickets.gone.get() => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Request::Waiting(_) | Request::Answered(_) | Request::Left => {
                this.ticket = None;
                match requests.remove(ticket) {
                    Request::Answered(answer) => Poll::Ready(Some(answer)),
                    Request::Waiting(_) | Request::Left => Poll::Ready(None),
                }
            }
        }
    }
}

impl<A> Waiting<A> {
    /// Waits no more; an answer that has come, and was not fetched.
    pub fn leave(&mut self) -> Option<A> {
        let ticket = self.ticket.take()?;
        let mut requests = self.tickets.requests.borrow_mut();
        match std::mem::replace(&mut requests[ticket], Request::Left) {
            Request::Answered(answer) => {
                requests.remove(ticket);
                Some(answer)
            }
            Request::Waiting(_) | Request::Left => {
                // There will be no answer.
                if self.tickets.gone.get() {
                    requests.remove(ticket);
                }
                None
            }
        }
    }
}

impl<A> Drop for Waiting<A> {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
