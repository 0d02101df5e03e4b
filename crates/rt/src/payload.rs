//! Data on its way to another thread, and the empty buffers that come back for it.
//!
//! A buffer is freed where its last user is, so that a thread that only sends would allocate for ever what another keeps.
//! Both sides count what came and went of each size ([`Trade`]); who has more gives back what it keeps.
//!
//! Not here: the messages that carry them (`mailbox`).

use std::cell::Cell;
use std::fmt;
use std::ops::Range;

use crate::buf::{ALIGN, CLASSES, KEPT_BYTES};
use crate::{Buf, Bytes};

/// Buffers of one size that came more than went, before any is given back.
const SLACK: i64 = 8;

/// Data that crosses to another thread. Nobody shares its memory.
pub struct Payload {
    memory: Buf,
    range: Range<usize>,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.range.len())
    }
}

/// One side of the trade in buffers between two threads.
#[derive(Debug, Default)]
pub struct Trade {
    /// What came more than went, by size class. No more than a thread keeps: what it freed beyond that is gone, and nobody
    /// owes it any more.
    surplus: [Cell<i64>; CLASSES],
}

impl Trade {
    fn count(&self, buf: &Buf, change: i64) {
        if let Some(class) = buf.class() {
            let most = SLACK.max((KEPT_BYTES / (ALIGN << class)) as i64);
            self.surplus[class].set((self.surplus[class].get() + change).clamp(-most, most));
        }
    }

    /// Makes data ready to cross: without a copy when nobody shares its memory.
    #[must_use]
    pub fn pack(&self, data: Bytes) -> Payload {
        let (memory, range) = data.into_parts();
        self.count(&memory, -1);
        Payload { memory, range }
    }

    /// Data that has come. No copy.
    #[must_use]
    pub fn unpack(&self, payload: Payload) -> Bytes {
        self.count(&payload.memory, 1);
        Bytes::from_parts(payload.memory, payload.range)
    }

    /// Buffers to give back with the next messages: as many as came more than went, of those that are free.
    #[must_use]
    pub fn to_give_back(&self) -> Vec<Buf> {
        let mut empties = vec![];
        for (class, surplus) in self.surplus.iter().enumerate().filter(|(_, surplus)| surplus.get() > SLACK) {
            let free = std::iter::from_fn(|| Buf::spare(class)).take(surplus.get() as usize);
            let before = empties.len();
            empties.extend(free);
            surplus.set(surplus.get() - (empties.len() - before) as i64);
        }
        empties
    }

    /// Buffers that the other side has given back: kept for the next ones.
    pub fn given_back(&self, empties: Vec<Buf>) {
        empties.iter().for_each(|buf| self.count(buf, 1));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::buf::kept;

    #[test]
    fn alone_without_a_copy_shared_with_one() {
        let trade = Trade::default();
        let data = Buf::from_slice(b"0123456789").freeze();
        let at = data.as_ptr();
        let payload = trade.pack(data.slice(2..8));
        assert_eq!(payload.range.len(), 6);
        let copy = trade.unpack(payload);
        assert_eq!((&copy[..], &data[..]), (&b"234567"[..], &b"0123456789"[..]));
        assert_ne!(copy.as_ptr(), at.wrapping_add(2));
        let middle = data.slice(2..8);
        drop(data);
        let moved = trade.unpack(trade.pack(middle));
        assert_eq!((&moved[..], moved.as_ptr()), (&b"234567"[..], at.wrapping_add(2)));
    }

    #[test]
    fn what_is_gone_is_not_owed() {
        std::thread::spawn(|| {
            let trade = Trade::default();
            // Twice what a thread keeps, freed at once: half of it is gone.
            drop((0..128).map(|_| trade.unpack(there(1 << 20))).collect::<Vec<_>>());
            assert_eq!(trade.to_give_back().len(), 64);
            for _ in 0..20 {
                drop(trade.unpack(there(1 << 20)));
                assert!(trade.to_give_back().is_empty(), "one or two are no surplus");
                let sent = trade.pack(Buf::zeroed(1 << 20).freeze());
                std::thread::spawn(|| drop(sent)).join().expect("a thread");
            }
        })
        .join()
        .expect("no assertion failed");
    }

    /// Data that another thread has sent.
    fn there(len: usize) -> Payload {
        std::thread::spawn(move || Trade::default().pack(Buf::zeroed(len).freeze())).join().expect("a thread")
    }

    #[test]
    fn what_one_side_sends_comes_back() {
        let (to, inbox) = mpsc::channel::<Vec<Payload>>();
        let (back, returned) = mpsc::channel::<Vec<Buf>>();
        let there = std::thread::spawn(move || {
            let trade = Trade::default();
            for payloads in inbox {
                payloads.into_iter().for_each(|payload| drop(trade.unpack(payload)));
                back.send(trade.to_give_back()).expect("somebody waits");
            }
        });
        let here = std::thread::spawn(move || {
            let trade = Trade::default();
            for _ in 0..1000 {
                to.send((0..4).map(|_| trade.pack(Buf::zeroed(4096).freeze())).collect()).expect("somebody waits");
                trade.given_back(returned.recv().expect("an answer to each"));
            }
            kept().misses
        });
        let misses = here.join().expect("no assertion failed");
        there.join().expect("no assertion failed");
        assert!(misses <= 4 + SLACK as u64, "4000 were sent, {misses} were allocated");
    }
}
