//! Messages of many tasks for one stream: they wait here and leave together, whole and in one send.
//!
//! Invariants: a message's head, parts and tail are never separated by another message; what a message holds (a permit) is
//! given back when its batch is dropped, after the send.

use std::{cell::RefCell, collections::VecDeque};

use rt::{Buf, Bytes};

use super::signal::Signal;

/// Payload after which a batch is long enough: then what it holds is given back before more is sent.
const BATCH_BYTES: usize = 4 << 20;

/// Most messages of a batch.
const BATCH_MESSAGES: usize = 256;

/// Waiting messages, each holding an `H` until it was sent.
pub struct Outbox<H> {
    state: RefCell<State<H>>,
    signal: Signal,
}

struct State<H> {
    waiting: VecDeque<Message<H>>,
    closed: bool,
}

struct Message<H> {
    head: Vec<u8>,
    parts: Vec<Bytes>,
    tail: Vec<u8>,
    hold: H,
}

/// Messages to send at once.
pub struct Batch<H> {
    /// What to send, in order.
    pub parts: Vec<Bytes>,
    /// What they hold meanwhile.
    pub holds: Vec<H>,
}

impl<H> Outbox<H> {
    pub fn new() -> Self {
        let state = State { waiting: VecDeque::new(), closed: false };
        Outbox { state: RefCell::new(state), signal: Signal::default() }
    }

    /// Adds a message: a head, the parts that follow it, and a tail. Forgotten when the outbox is closed.
    pub fn push(&self, head: Vec<u8>, parts: Vec<Bytes>, tail: Vec<u8>, hold: H) {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return;
        }
        state.waiting.push_back(Message { head, parts, tail, hold });
        drop(state);
        self.signal.notify();
    }

    /// No more messages; those that wait are still sent.
    pub fn close(&self) {
        self.state.borrow_mut().closed = true;
        self.signal.notify();
    }

    /// No more messages, and those that wait are forgotten.
    pub fn discard(&self) {
        let waiting = {
            let mut state = self.state.borrow_mut();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
        self.signal.notify();
    }

    /// The next messages to send; nothing when the outbox is closed and empty.
    pub async fn batch(&self) -> Option<Batch<H>> {
        let ready = || {
            let state = self.state.borrow();
            state.closed || !state.waiting.is_empty()
        };
        self.signal.until(ready).await;
        let mut state = self.state.borrow_mut();
        let mut messages = Vec::with_capacity(state.waiting.len().min(BATCH_MESSAGES));
        let mut bytes = 0;
        while bytes < BATCH_BYTES && messages.len() < BATCH_MESSAGES {
            let Some(message) = state.waiting.pop_front() else {
                break;
            };
            bytes += message.parts.iter().map(Bytes::len).sum::<usize>();
            messages.push(message);
        }
        (!messages.is_empty()).then(|| join(messages))
    }
}

/// All heads and tails go into one buffer; those that follow each other become one part.
fn join<H>(messages: Vec<Message<H>>) -> Batch<H> {
    let mut heads = Buf::for_overwrite(messages.iter().map(|m| m.head.len() + m.tail.len()).sum());
    let mut at = 0;
    for piece in messages.iter().flat_map(|m| [&m.head, &m.tail]) {
        heads[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    let heads = heads.freeze();
    let (mut parts, mut holds) = (Vec::new(), Vec::with_capacity(messages.len()));
    let (mut from, mut to) = (0, 0);
    for message in messages {
        to += message.head.len();
        if !message.parts.is_empty() {
            parts.push(heads.slice(from..to));
            from = to;
            parts.extend(message.parts);
        }
        to += message.tail.len();
        holds.push(message.hold);
    }
    if from < to {
        parts.push(heads.slice(from..to));
    }
    Batch { parts, holds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_joined_and_parts_stay_between_head_and_tail() {
        let message = |head: &[u8], parts: &[&[u8]], tail: &[u8]| Message {
            head: head.to_vec(),
            parts: parts.iter().map(|p| Bytes::from_slice(p)).collect(),
            tail: tail.to_vec(),
            hold: (),
        };
        let batch = join(vec![
            message(b"a", &[], b""),
            message(b"bb", &[], b""),
            message(b"c", &[b"data", b"more"], b"t"),
            message(b"d", &[], b""),
            message(b"e", &[b"x"], b""),
            message(b"f", &[], b"g"),
        ]);
        let parts: Vec<&[u8]> = batch.parts.iter().map(|p| &p[..]).collect();
        assert_eq!(parts, [&b"abbc"[..], b"data", b"more", b"tde", b"x", b"fg"]);
        assert_eq!(batch.holds.len(), 6);
    }
}
