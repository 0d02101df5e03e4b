//! Messages of many tasks for one stream: they wait here and leave together, whole and in one send.
//!
//! Invariants: a message's pieces and parts are never separated by another message; what a message holds (a permit) is given
//! back when its batch is dropped, after the send.

use std::{cell::RefCell, collections::VecDeque, time::Duration};

use rt::{Bytes, net::Stream};

use super::{budget::Budget, signal::Signal};

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
    /// In the order to send; all but the last are long enough.
    waiting: VecDeque<Gathered<H>>,
    closed: bool,
}

/// Messages that will leave together.
struct Gathered<H> {
    message: Message,
    holds: Vec<H>,
}

/// The bytes of messages behind each other: small pieces, which are copied, and parts, which are not.
#[derive(Default)]
pub struct Message {
    /// All small pieces.
    pieces: Vec<u8>,
    /// Parts, each with the number of bytes of `pieces` that come before it.
    parts: Vec<(usize, Bytes)>,
    /// Bytes of all parts.
    bytes: usize,
}

/// Messages to send at once.
pub struct Batch<H> {
    /// What to send, in order.
    pub parts: Vec<Bytes>,
    /// What they hold meanwhile.
    pub holds: Vec<H>,
}

impl Message {
    /// Where small pieces are written to.
    pub fn pieces(&mut self) -> &mut Vec<u8> {
        &mut self.pieces
    }

    /// Adds parts.
    pub fn parts(&mut self, parts: Vec<Bytes>) {
        for part in parts {
            self.bytes += part.len();
            self.parts.push((self.pieces.len(), part));
        }
    }

    /// What to send, in order. Small pieces that follow each other become one part.
    fn joined(self) -> Vec<Bytes> {
        let pieces = Bytes::from_slice(&self.pieces);
        let mut all = Vec::with_capacity(2 * self.parts.len() + 1);
        let mut from = 0;
        for (to, part) in self.parts {
            if from < to {
                all.push(pieces.slice(from..to));
                from = to;
            }
            all.push(part);
        }
        if from < pieces.len() {
            all.push(pieces.slice(from..pieces.len()));
        }
        all
    }
}

impl<H> Gathered<H> {
    fn new() -> Self {
        Gathered { message: Message::default(), holds: Vec::new() }
    }

    fn is_long_enough(&self) -> bool {
        self.message.bytes >= BATCH_BYTES || self.holds.len() >= BATCH_MESSAGES
    }
}

impl<H> Outbox<H> {
    pub fn new() -> Self {
        let state = State { waiting: VecDeque::new(), closed: false };
        Outbox { state: RefCell::new(state), signal: Signal::default() }
    }

    /// Sends what comes until it is closed; or until the peer is gone, or stalls for longer than `patience` while others wait
    /// for memory. Then nothing more can be answered, and the receiving side of `stream` ends, too.
    pub async fn send_to(&self, stream: &Stream, budget: &Budget, patience: Duration) {
        while let Some(batch) = self.batch().await {
            let sent = budget.unless_in_the_way(patience, stream.send_all(batch.parts)).await;
            if !matches!(sent, Some(Ok(()))) {
                stream.shutdown();
                self.discard();
                return;
            }
            drop(batch.holds);
        }
    }

    /// Adds a message, which `write` appends. Forgotten when the outbox is closed.
    pub fn push(&self, hold: H, write: impl FnOnce(&mut Message)) {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return;
        }
        if state.waiting.back().is_none_or(Gathered::is_long_enough) {
            state.waiting.push_back(Gathered::new());
        }
        let last = state.waiting.back_mut().expect("it was just added");
        write(&mut last.message);
        last.holds.push(hold);
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
        let Gathered { message, holds } = self.state.borrow_mut().waiting.pop_front()?;
        Some(Batch { parts: message.joined(), holds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_and_parts_stay_between_them() {
        let mut all = Message::default();
        let mut message = |head: &[u8], parts: &[&[u8]], tail: &[u8]| {
            all.pieces().extend_from_slice(head);
            all.parts(parts.iter().map(|p| Bytes::from_slice(p)).collect());
            all.pieces().extend_from_slice(tail);
        };
        message(b"a", &[], b"");
        message(b"bb", &[], b"");
        message(b"c", &[b"data", b"more"], b"t");
        message(b"d", &[], b"");
        message(b"e", &[b"x"], b"");
        message(b"f", &[], b"g");
        let joined = all.joined();
        let parts: Vec<&[u8]> = joined.iter().map(|p| &p[..]).collect();
        assert_eq!(parts, [&b"abbc"[..], b"data", b"more", b"tde", b"x", b"fg"]);
    }

    #[test]
    fn batches_end_when_they_are_long_enough() {
        let rt = rt::Rt::modelled(1);
        rt.block_on(async {
            let outbox = Outbox::new();
            for n in 0..2 * BATCH_MESSAGES + 1 {
                outbox.push(n, |m| m.pieces().push(n as u8));
            }
            for _ in 0..3 {
                outbox.push(0, |m| m.parts(vec![Bytes::zeroed(BATCH_BYTES / 2)]));
            }
            outbox.push(0, |m| m.pieces().push(7));
            outbox.close();
            outbox.push(0, |_| panic!("it is closed"));
            let mut batches = vec![];
            while let Some(batch) = outbox.batch().await {
                batches.push((batch.holds.len(), batch.parts.iter().map(Bytes::len).collect::<Vec<_>>()));
            }
            let half = BATCH_BYTES / 2;
            let most = (BATCH_MESSAGES, vec![BATCH_MESSAGES]);
            assert_eq!(batches, [most.clone(), most, (3, vec![1, half, half]), (2, vec![half, 1])]);
        });
    }
}
