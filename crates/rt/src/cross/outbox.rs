//! Messages to another core that wait for the end of a turn.
//!
//! Invariant: what is put is sent after the tasks that were ready then, all together.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::{Buf, MailSender, Rt, Task, Trade};

/// Messages that cross together, and empty buffers that go back.
pub(super) struct Batch<T> {
    pub messages: Vec<T>,
    pub empties: Vec<Buf>,
}

/// The messages of one core to one other.
pub(super) struct Outbox<T> {
    waiting: Rc<Waiting<T>>,
    carrier: Task<()>,
}

struct Waiting<T> {
    messages: RefCell<Vec<T>>,
    carrier: Cell<Option<Waker>>,
    to: MailSender<Batch<T>>,
    trade: Trade,
}

impl<T: Send + 'static> Outbox<T> {
    pub fn new(rt: &Rt, to: MailSender<Batch<T>>) -> Outbox<T> {
        let waiting =
            Rc::new(Waiting { messages: RefCell::default(), carrier: Cell::default(), to, trade: Trade::default() });
        Outbox { carrier: rt.spawn(carry(rt.clone(), waiting.clone())), waiting }
    }

    /// Sends a message, soon.
    pub fn put(&self, message: T) {
        self.waiting.messages.borrow_mut().push(message);
        if let Some(carrier) = self.waiting.carrier.take() {
            carrier.wake();
        }
    }

    /// Buffers come and go by this.
    pub fn trade(&self) -> &Trade {
        &self.waiting.trade
    }
}

async fn carry<T: Send + 'static>(rt: Rt, waiting: Rc<Waiting<T>>) {
    loop {
        poll_fn(|cx| {
            if !waiting.messages.borrow().is_empty() {
                return Poll::Ready(());
            }
            waiting.carrier.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        // Behind those that were made ready meanwhile: they may have something to say, too.
        rt.yield_now().await;
        let messages = std::mem::take(&mut *waiting.messages.borrow_mut());
        // When nobody is there any more, the receiving side of this core learns it.
        waiting.to.send(Batch { messages, empties: waiting.trade.to_give_back() });
    }
}

impl<T> Drop for Outbox<T> {
    fn drop(&mut self) {
        // What was put is sent first: that something is closed as the last act, for instance.
        let messages = std::mem::take(&mut *self.waiting.messages.borrow_mut());
        if !messages.is_empty() {
            self.waiting.to.send(Batch { messages, empties: vec![] });
        }
        // The carrier holds the sender, whose end is the end of the way.
        self.carrier.cancel();
    }
}
