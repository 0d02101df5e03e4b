//! What crosses, and the box from which it is carried.
//!
//! Invariant: what is put into a box is carried after the tasks that were ready then, all together.

use std::cell::RefCell;
use std::rc::Rc;

use rt::{Buf, Bytes, MailSender, Parcel, Rt, Task, Trade};

use crate::namespace::{Answer, Fault, NamespaceInfo, Request};
use crate::stream::signal::Signal;

/// Which request an answer is to: the guest's number for it.
pub type Ticket = usize;

/// Which open namespace: the host's number for it.
pub type Key = usize;

/// From the guest.
pub enum Ask {
    Names(Ticket),
    Open(Ticket, String),
    Do(Ticket, Key, Request<Parcel>),
    /// No request to it follows.
    Close(Key),
}

/// From the host.
pub struct Reply {
    pub ticket: Ticket,
    pub answer: Said,
}

pub enum Said {
    Names(Vec<String>),
    Opened(Option<(Key, NamespaceInfo)>),
    Done(Result<Answer<Parcel>, Fault>),
}

/// Letters that cross together, and empty buffers that go back.
pub struct Batch<T> {
    pub letters: Vec<T>,
    pub empties: Vec<Buf>,
}

/// The box of one end.
pub struct Post<T> {
    shared: Rc<Shared<T>>,
    carrier: Task<()>,
}

struct Shared<T> {
    letters: RefCell<Vec<T>>,
    filled: Signal,
    to: MailSender<Batch<T>>,
    trade: Trade,
}

impl<T: Send + 'static> Post<T> {
    pub fn new(rt: &Rt, to: MailSender<Batch<T>>) -> Post<T> {
        let shared =
            Rc::new(Shared { letters: RefCell::default(), filled: Signal::default(), to, trade: Trade::default() });
        Post { carrier: rt.spawn(carry(rt.clone(), shared.clone())), shared }
    }

    /// Sends a letter, soon.
    pub fn put(&self, letter: T) {
        let mut letters = self.shared.letters.borrow_mut();
        letters.push(letter);
        if letters.len() == 1 {
            drop(letters);
            self.shared.filled.notify();
        }
    }

    /// Opens a batch of the other end.
    pub fn receive<U>(&self, batch: Batch<U>) -> Vec<U> {
        self.shared.trade.given_back(batch.empties);
        batch.letters
    }

    pub fn pack(&self, data: Bytes) -> Parcel {
        self.shared.trade.pack(data)
    }

    pub fn unpack(&self, parcel: Parcel) -> Bytes {
        self.shared.trade.unpack(parcel)
    }
}

async fn carry<T: Send + 'static>(rt: Rt, shared: Rc<Shared<T>>) {
    loop {
        shared.filled.until(|| !shared.letters.borrow().is_empty()).await;
        // Behind those that were made ready meanwhile: they may have something to say, too.
        rt.yield_now().await;
        let letters = std::mem::take(&mut *shared.letters.borrow_mut());
        // When nobody is there any more, the receiving side of this end learns it.
        shared.to.send(Batch { letters, empties: shared.trade.to_give_back() });
    }
}

impl<T> Drop for Post<T> {
    fn drop(&mut self) {
        // What was put is carried first: a namespace that is closed as the last one is told to its thread.
        let letters = std::mem::take(&mut *self.shared.letters.borrow_mut());
        if !letters.is_empty() {
            self.shared.to.send(Batch { letters, empties: vec![] });
        }
        // The carrier holds the sender, whose end is the end of the way.
        self.carrier.cancel();
    }
}
