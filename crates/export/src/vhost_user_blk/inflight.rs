//! Which requests of a guest are under way, in memory that its front end keeps while this server is not there.
//! Vhost-user, "Inflight I/O tracking", for split rings.
//!
//! ```text
//!   queue    features u64 | version u16 | descriptors u16 | last head u16 | used index u16 | state * descriptors
//!   state    under way u8 | 0 * 5 | next u16 | counter u64
//! ```
//!
//! Invariants:
//! - a head is noted before its request is begun, and taken off after it was given back: a server that is killed between two steps
//!   loses none;
//! - what the memory says is judged as what a guest says: heads within the ring, each once.

use rt::guest::{Foreign, GuestMemory, MapError, OutOfMemory, Region};

const HEAD: u64 = 16;
const STATE: u64 = 16;
const ALIGN: u64 = 64;
const VERSION: u16 = 1;

const VERSION_AT: u64 = 8;
const LAST_AT: u64 = 12;
const USED_AT: u64 = 14;
const COUNTER_AT: u64 = 8;

/// The bytes of one queue.
fn bytes_of_queue(size: u16) -> u64 {
    (HEAD + STATE * u64::from(size)).next_multiple_of(ALIGN)
}

/// The bytes of all queues.
#[must_use]
pub fn bytes(queues: u16, size: u16) -> u64 {
    bytes_of_queue(size) * u64::from(queues)
}

/// The memory of all queues of a device.
pub struct Inflight {
    memory: GuestMemory,
    queues: u16,
    size: u16,
}

impl Inflight {
    /// What a front end has kept, `length` bytes from `offset` of its file on.
    ///
    /// # Errors
    /// When it is too short for its queues, or cannot be mapped.
    pub fn map(
        file: impl Into<Foreign>,
        length: u64,
        offset: u64,
        queues: u16,
        size: u16,
    ) -> Result<Inflight, MapError> {
        let region = Region { guest: 0, bytes: length, user: 0, offset };
        if length < bytes(queues, size) {
            return Err(MapError::Beyond { bytes: bytes(queues, size), offset, file: length });
        }
        Ok(Inflight { memory: GuestMemory::map(vec![(region, file)])?, queues, size })
    }

    /// The notes of one queue; none when there are none for it, or for a shorter ring.
    #[must_use]
    pub fn queue(&self, queue: u16, size: u16) -> Option<Notes> {
        let has = queue < self.queues && size <= self.size;
        let at = bytes_of_queue(self.size) * u64::from(queue);
        has.then(|| Notes { memory: self.memory.clone(), at, size, counter: 0 })
    }
}

/// The notes of one queue.
pub struct Notes {
    memory: GuestMemory,
    at: u64,
    size: u16,
    counter: u64,
}

impl Notes {
    /// What a server before has begun and not given back, in the order of beginning, where the ring is used up to `used`.
    ///
    /// # Errors
    /// When the memory is not there.
    pub fn recover(&mut self, used: u16) -> Result<Vec<u16>, OutOfMemory> {
        if self.memory.load(self.at + VERSION_AT)? != VERSION {
            self.memory.store(self.at + USED_AT, used)?;
            self.memory.store(self.at + VERSION_AT, VERSION)?;
        }
        let last = self.memory.load(self.at + LAST_AT)?;
        if self.memory.load(self.at + USED_AT)? != used {
            // Killed after a head was given back: it is not under way.
            if last < self.size {
                self.memory.store_byte(self.state(last), 0)?;
            }
            self.memory.store(self.at + USED_AT, used)?;
        }
        let mut found = Vec::new();
        for head in 0..self.size {
            let mut state = [0; STATE as usize];
            self.memory.read(self.state(head), &mut state)?;
            if state[0] == 1 {
                found.push((u64::from_le_bytes(state[8..].try_into().expect("eight bytes")), head));
            }
        }
        found.sort_unstable();
        self.counter = found.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok(found.into_iter().map(|(_, head)| head).collect())
    }

    /// A request is begun.
    ///
    /// # Errors
    /// When the memory is not there.
    pub fn begin(&mut self, head: u16) -> Result<(), OutOfMemory> {
        self.memory.store_long(self.state(head) + COUNTER_AT, self.counter)?;
        self.counter = self.counter.wrapping_add(1);
        self.memory.store_byte(self.state(head), 1)
    }

    /// A request will be given back next.
    ///
    /// # Errors
    /// When the memory is not there.
    pub fn ends(&self, head: u16) -> Result<(), OutOfMemory> {
        self.memory.store(self.at + LAST_AT, head)
    }

    /// It was given back: the ring is used up to `used`.
    ///
    /// # Errors
    /// When the memory is not there.
    pub fn ended(&self, head: u16, used: u16) -> Result<(), OutOfMemory> {
        self.memory.store_byte(self.state(head), 0)?;
        self.memory.store(self.at + USED_AT, used)
    }

    fn state(&self, head: u16) -> u64 {
        self.at + HEAD + STATE * u64::from(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inflight() -> Inflight {
        let length = bytes(2, 8);
        Inflight::map(rt::guest::sealed_memory(length).unwrap(), length, 0, 2, 8).unwrap()
    }

    #[test]
    fn what_was_begun_and_not_given_back_is_found_in_its_order() {
        let memory = inflight();
        let mut notes = memory.queue(1, 8).unwrap();
        assert_eq!(notes.recover(7), Ok(vec![]));
        for head in [5, 2, 7] {
            notes.begin(head).unwrap();
        }
        notes.ends(2).unwrap();
        notes.ended(2, 8).unwrap();
        notes.begin(0).unwrap();
        let found = |used| memory.queue(1, 8).unwrap().recover(used);
        assert_eq!(found(8), Ok(vec![5, 7, 0]));
        // Killed before and after a head was given back.
        notes.ends(7).unwrap();
        assert_eq!(found(8), Ok(vec![5, 7, 0]));
        assert_eq!(found(9), Ok(vec![5, 0]));
        assert_eq!(found(9), Ok(vec![5, 0]));
        let mut next = memory.queue(1, 8).unwrap();
        next.recover(9).unwrap();
        next.begin(1).unwrap();
        assert_eq!(found(9), Ok(vec![5, 0, 1]));
        // The guest began anew: its ring is at the start.
        for head in [5, 0, 1] {
            next.ends(head).unwrap();
            next.ended(head, 12).unwrap();
        }
        assert_eq!(found(0), Ok(vec![]));
        assert_eq!(memory.queue(0, 8).unwrap().recover(0), Ok(vec![]), "another queue");
    }

    #[test]
    fn notes_are_believed_as_little_as_a_guest() {
        let memory = inflight();
        assert!(memory.queue(2, 8).is_none() && memory.queue(0, 16).is_none());
        let mut notes = memory.queue(0, 8).unwrap();
        memory.memory.write(0, &[0xff; 16]).unwrap();
        assert_eq!(notes.recover(3), Ok(vec![]));
        memory.memory.write(16, &[1; 128]).unwrap();
        assert_eq!(notes.recover(4).unwrap().len(), 8);
        assert!(Inflight::map(rt::guest::sealed_memory(64).unwrap(), 64, 0, 2, 8).is_err());
        assert!(Inflight::map(rt::guest::sealed_memory(64).unwrap(), 4096, 0, 2, 8).is_err());
    }
}
