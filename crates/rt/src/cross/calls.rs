//! Requests of one type to another core.
//!
//! Invariants: a request is answered once, or the other core is gone and nothing comes of it; requests arrive in the order of
//! sending; an answer that nobody awaits any more is discarded by [`Message::discard`], where it came.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::vec;

use slab::Slab;

use super::outbox::{Batch, Outbox};
use crate::{MailReceiver, MailSender, Rt, Trade};

/// What is asked of another core.
pub trait Message: Sized + Send + 'static {
    /// What it is answered with.
    type Answer: Send + 'static;

    /// An answer that nobody awaits: what it holds goes back to where it came from.
    fn discard(answer: Self::Answer, caller: &Caller<Self>);
}

/// The number of a request among those that are not answered: its caller's.
type Id = usize;

/// A request on its way; one without a number is not answered.
struct Asked<Q> {
    id: Option<Id>,
    request: Q,
}

/// An answer on its way.
struct Answered<A> {
    id: Id,
    answer: A,
}

/// The end of the core that asks, on its way there.
pub struct CallerEnd<Q: Message> {
    to: MailSender<Batch<Asked<Q>>>,
    inbox: MailReceiver<Batch<Answered<Q::Answer>>>,
}

/// The end of the core that answers, on its way there.
pub struct CalleeEnd<Q: Message> {
    inbox: MailReceiver<Batch<Asked<Q>>>,
    to: MailSender<Batch<Answered<Q::Answer>>>,
}

/// The two ends of a way between two cores; `rt` may be that of either.
#[must_use]
pub fn calls<Q: Message>(rt: &Rt) -> (CallerEnd<Q>, CalleeEnd<Q>) {
    let (requests, inbox) = rt.mailbox();
    let (answers, answered) = rt.mailbox();
    (CallerEnd { to: requests, inbox: answered }, CalleeEnd { inbox, to: answers })
}

/// Who asks. Clones are the same; the way ends with the last one.
pub struct Caller<Q: Message>(Rc<Asking<Q>>);

struct Asking<Q: Message> {
    outbox: Outbox<Asked<Q>>,
    calls: RefCell<Slab<State<Q::Answer>>>,
    /// The other core answers no more.
    gone: Cell<bool>,
}

enum State<A> {
    Waiting(Option<Waker>),
    Answered(A),
    /// Nobody awaits it any more.
    Left,
}

impl<A> State<A> {
    fn waker(&mut self) -> Option<Waker> {
        match self {
            State::Waiting(waker) => waker.take(),
            State::Answered(_) | State::Left => None,
        }
    }
}

impl<Q: Message> CallerEnd<Q> {
    /// Begins on this core.
    #[must_use]
    pub fn start(self, rt: &Rt) -> Caller<Q> {
        let outbox = Outbox::new(rt, self.to);
        let asking = Rc::new(Asking { outbox, calls: RefCell::default(), gone: Cell::new(false) });
        rt.spawn(receive(Rc::downgrade(&asking), self.inbox)).detach();
        Caller(asking)
    }
}

/// Hands answers to those who await them, until the other core is gone or nobody is left who asks.
async fn receive<Q: Message>(asking: Weak<Asking<Q>>, mut inbox: MailReceiver<Batch<Answered<Q::Answer>>>) {
    while let Some(Batch { messages, empties }) = inbox.recv().await {
        let Some(caller) = asking.upgrade().map(Caller) else { return };
        caller.0.outbox.trade().given_back(empties);
        messages.into_iter().for_each(|Answered { id, answer }| caller.answered(id, answer));
    }
    if let Some(asking) = asking.upgrade() {
        asking.gone.set(true);
        let wakers: Vec<Waker> = asking.calls.borrow_mut().iter_mut().filter_map(|(_, call)| call.waker()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<Q: Message> Caller<Q> {
    /// Sends a request, soon.
    pub fn call(&self, request: Q) -> Call<Q> {
        let id = self.0.calls.borrow_mut().insert(State::Waiting(None));
        self.0.outbox.put(Asked { id: Some(id), request });
        Call { caller: self.clone(), id: Some(id) }
    }

    /// Sends a request that is not answered.
    pub fn tell(&self, request: Q) {
        self.0.outbox.put(Asked { id: None, request });
    }

    /// Whether the other core answers no more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.gone.get()
    }

    /// The buffers of this way: makes data ready to cross, and takes what has come.
    #[must_use]
    pub fn trade(&self) -> &Trade {
        self.0.outbox.trade()
    }

    fn answered(&self, id: Id, answer: Q::Answer) {
        let mut calls = self.0.calls.borrow_mut();
        let call = &mut calls[id];
        if let State::Left = call {
            calls.remove(id);
            drop(calls);
            return Q::discard(answer, self);
        }
        let waker = call.waker();
        *call = State::Answered(answer);
        drop(calls);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<Q: Message> Clone for Caller<Q> {
    fn clone(&self) -> Self {
        Caller(self.0.clone())
    }
}

/// A request on its way: its answer, or nothing when the other core is gone.
pub struct Call<Q: Message> {
    caller: Caller<Q>,
    /// Until it is answered.
    id: Option<Id>,
}

impl<Q: Message> Future for Call<Q> {
    type Output = Option<Q::Answer>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Q::Answer>> {
        let this = &mut *self;
        let id = this.id.expect("a call is polled until its answer");
        let mut calls = this.caller.0.calls.borrow_mut();
        match &mut calls[id] {
            State::Waiting(waker) if !this.caller.is_gone() => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Waiting(_) | State::Answered(_) | State::Left => {
                this.id = None;
                match calls.remove(id) {
                    State::Answered(answer) => Poll::Ready(Some(answer)),
                    State::Waiting(_) | State::Left => Poll::Ready(None),
                }
            }
        }
    }
}

impl<Q: Message> Drop for Call<Q> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut calls = self.caller.0.calls.borrow_mut();
        match std::mem::replace(&mut calls[id], State::Left) {
            State::Answered(answer) => {
                calls.remove(id);
                drop(calls);
                Q::discard(answer, &self.caller);
            }
            State::Waiting(_) | State::Left => {
                // There will be no answer.
                if self.caller.is_gone() {
                    calls.remove(id);
                }
            }
        }
    }
}

/// Who answers.
pub struct Callee<Q: Message> {
    inbox: MailReceiver<Batch<Asked<Q>>>,
    /// Received, and not begun.
    arrived: vec::IntoIter<Asked<Q>>,
    outbox: Rc<Outbox<Answered<Q::Answer>>>,
}

/// Where a request's answer goes.
pub struct Reply<Q: Message> {
    id: Option<Id>,
    outbox: Rc<Outbox<Answered<Q::Answer>>>,
}

impl<Q: Message> CalleeEnd<Q> {
    /// Begins on this core.
    #[must_use]
    pub fn start(self, rt: &Rt) -> Callee<Q> {
        Callee { inbox: self.inbox, arrived: vec![].into_iter(), outbox: Rc::new(Outbox::new(rt, self.to)) }
    }
}

impl<Q: Message> Callee<Q> {
    /// The next request, and where its answer goes; nothing when nobody is left who asks.
    pub async fn next(&mut self) -> Option<(Q, Reply<Q>)> {
        loop {
            if let Some(Asked { id, request }) = self.arrived.next() {
                return Some((request, Reply { id, outbox: self.outbox.clone() }));
            }
            let Batch { messages, empties } = self.inbox.recv().await?;
            self.outbox.trade().given_back(empties);
            self.arrived = messages.into_iter();
        }
    }
}

impl<Q: Message> Reply<Q> {
    /// Sends the answer, soon; of a request that is not answered it goes nowhere.
    pub fn send(self, answer: Q::Answer) {
        if let Some(id) = self.id {
            self.outbox.put(Answered { id, answer });
        }
    }

    /// The buffers of this way: makes data ready to cross, and takes what has come.
    #[must_use]
    pub fn trade(&self) -> &Trade {
        self.outbox.trade()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Answered with the next number; what is discarded is told by the negative number.
    struct Number(i64);

    impl Message for Number {
        type Answer = i64;
        fn discard(answer: i64, caller: &Caller<Number>) {
            caller.tell(Number(-answer));
        }
    }

    /// Answers in the order of the numbers' last digits, and says what was told.
    async fn answer(rt: Rt, mut callee: Callee<Number>) -> Vec<i64> {
        let mut told = vec![];
        while let Some((Number(number), reply)) = callee.next().await {
            if number < 0 {
                told.push(number);
                continue;
            }
            let of_task = rt.clone();
            rt.spawn(async move {
                of_task.sleep(Duration::from_micros(number as u64 % 10)).await;
                reply.send(number + 1);
            });
        }
        told
    }

    #[test]
    fn each_call_has_its_answer_and_what_is_left_is_discarded() {
        for seed in 0..20 {
            let rt = Rt::modelled(seed);
            rt.block_on(async {
                let (caller, callee) = calls(&rt);
                let answering = rt.spawn(answer(rt.clone(), callee.start(&rt)));
                let caller = caller.start(&rt);
                let all: Vec<_> = (0..50).map(|n| caller.call(Number(n))).collect();
                drop(caller.call(Number(100)));
                let late = caller.call(Number(200));
                for (n, call) in all.into_iter().enumerate() {
                    assert_eq!(call.await, Some(n as i64 + 1));
                }
                rt.sleep(Duration::from_millis(1)).await;
                drop(late);
                assert!(caller.0.calls.borrow().is_empty());
                drop(caller);
                assert_eq!(answering.await, [-101, -201], "seed {seed}");
            });
        }
    }

    #[test]
    fn calls_end_when_the_other_core_is_gone() {
        let rt = Rt::modelled(1);
        rt.block_on(async {
            let (caller, callee) = calls(&rt);
            let (caller, mut callee) = (caller.start(&rt), callee.start(&rt));
            let (first, second) = (caller.call(Number(1)), caller.call(Number(2)));
            let (_, reply) = callee.next().await.expect("the first");
            reply.send(7);
            drop(callee);
            assert_eq!((first.await, second.await, caller.is_gone()), (Some(7), None, true));
            assert_eq!(caller.call(Number(3)).await, None);
            drop(caller.call(Number(4)));
            assert!(caller.0.calls.borrow().is_empty());
        });
    }
}
