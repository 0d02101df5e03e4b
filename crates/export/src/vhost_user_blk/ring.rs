//! A split virtqueue in a guest's memory. Virtio 1.2, 2.7.
//!
//! ```text
//!   descriptors   at u64 | bytes u32 | flags u16 | next u16        one behind the other, a request is a chain of them
//!   available     flags u16 | index u16 | head u16 * size | used event u16
//!   used          flags u16 | index u16 | (head u32, bytes u32) * size | available event u16
//! ```
//!
//! Invariants:
//! - nothing that the guest writes is believed: indices are compared with the size, chains end after [`CHAIN_MAX`] descriptors, each
//!   descriptor is read once, and what it names is checked when it is copied;
//! - a head is under way once, so what is under way is bounded by the size of the ring;
//! - a ring that breaks these rules is not served any more until it is set up anew.
//!
//! Not here: waiting for the guest, and telling it (`queue`).

use std::sync::atomic::{Ordering, fence};

use rt::guest::OutOfMemory;

use super::memory::Memory;

/// Descriptors of one request: the parts of its data, its head and its status, each perhaps in two.
pub const CHAIN_MAX: usize = 128;
/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// The guest wants to hear of nothing (`VIRTQ_AVAIL_F_NO_INTERRUPT`).
const NO_INTERRUPT: u16 = 1;

/// What a guest may not do with a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// A part of it is not in the guest's memory.
    #[error("an address is not in the guest's memory")]
    Address,
    /// More is available than the ring has places.
    #[error("the index of what is available jumps from {from} to {to}")]
    Jump {
        /// What was taken last.
        from: u16,
        /// What it says.
        to: u16,
    },
    /// A head, or a next descriptor, is none of the ring.
    #[error("descriptor {0} is none of the ring")]
    Descriptor(u16),
    /// A request that is under way is asked once more.
    #[error("head {0} is under way already")]
    Twice(u16),
    /// A loop, or a chain that no driver makes.
    #[error("a chain has more than {CHAIN_MAX} descriptors")]
    Long,
    /// What is read comes behind what is written, a table within a table, or one of no whole descriptors.
    #[error("a chain is not in order")]
    Order,
    /// No place for a head or a status.
    #[error("a request has no head of 16 bytes, or no room for its status")]
    Short,
}

impl From<OutOfMemory> for RingError {
    fn from(_: OutOfMemory) -> RingError {
        RingError::Address
    }
}

/// A run of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it is.
    pub at: u64,
    /// Its length.
    pub bytes: u32,
}

/// What a chain of descriptors names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// What the guest gives.
    pub given: Vec<Segment>,
    /// Room for the answer.
    pub room: Vec<Segment>,
}

impl Chain {
    fn add(&mut self, descriptor: &Descriptor) -> Result<(), RingError> {
        if self.given.len() + self.room.len() >= CHAIN_MAX {
            return Err(RingError::Long);
        }
        let segment = Segment { at: descriptor.at, bytes: descriptor.bytes };
        if descriptor.flags & WRITE != 0 {
            self.room.push(segment);
        } else if self.room.is_empty() {
            self.given.push(segment);
        } else {
            return Err(RingError::Order);
        }
        Ok(())
    }
}

struct Descriptor {
    at: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

/// Where the parts of a ring are, in the guest's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Its descriptors.
    pub descriptors: u64,
    /// What is available.
    pub available: u64,
    /// What is used.
    pub used: u64,
}

/// A ring.
pub struct Ring {
    size: u16,
    parts: Parts,
    /// Both sides say from which index on they want to hear (`VIRTIO_F_EVENT_IDX`).
    by_index: bool,
    /// Tables of descriptors elsewhere are agreed upon.
    indirect: bool,
    next_available: u16,
    next_used: u16,
    /// Where the guest was last told, or thought of.
    told: u16,
    under_way: Vec<bool>,
}

impl Ring {
    /// A ring of `size` places, a power of two, whose parts are in the memory.
    ///
    /// # Errors
    /// When they are not, or not aligned.
    pub fn new(memory: &Memory, size: u16, parts: Parts, by_index: bool, indirect: bool) -> Result<Ring, RingError> {
        assert!(size.is_power_of_two(), "a ring's size");
        let places = u64::from(size);
        let has = |at: u64, bytes: u64, align: u64| at.is_multiple_of(align) && memory.has(at, bytes);
        let is_there = has(parts.descriptors, places * DESCRIPTOR, 16)
            && has(parts.available, 6 + places * 2, 2)
            && has(parts.used, 6 + places * 8, 4);
        if !is_there {
            return Err(RingError::Address);
        }
        let next_used = memory.load(parts.used + 2)?;
        Ok(Ring {
            size,
            parts,
            by_index,
            indirect,
            next_available: next_used,
            next_used,
            told: next_used,
            under_way: vec![false; usize::from(size)],
        })
    }

    /// Goes on at this index of what is available.
    pub fn go_on_at(&mut self, next_available: u16) {
        self.next_available = next_available;
    }

    /// The index of what is available next.
    #[must_use]
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// The index of what is used next.
    #[must_use]
    pub fn next_used(&self) -> u16 {
        self.next_used
    }

    /// Takes the next head that is available.
    ///
    /// # Errors
    /// When the guest breaks the rules.
    pub fn take(&mut self, memory: &Memory) -> Result<Option<u16>, RingError> {
        let index = memory.load(self.parts.available + 2)?;
        let ready = index.wrapping_sub(self.next_available);
        if ready == 0 {
            return Ok(None);
        }
        if ready > self.size {
            return Err(RingError::Jump { from: self.next_available, to: index });
        }
        let place = u64::from(self.next_available % self.size);
        let head = memory.load(self.parts.available + 4 + place * 2)?;
        self.begin(head)?;
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(head))
    }

    /// Notes that a head is under way: one that was taken, or that a server before has taken.
    ///
    /// # Errors
    /// When it is none of the ring, or is under way already.
    pub fn begin(&mut self, head: u16) -> Result<(), RingError> {
        let under_way = self.under_way.get_mut(usize::from(head)).ok_or(RingError::Descriptor(head))?;
        if std::mem::replace(under_way, true) {
            return Err(RingError::Twice(head));
        }
        Ok(())
    }

    /// The chain of a head.
    ///
    /// # Errors
    /// When it is none.
    pub fn chain(&self, memory: &Memory, head: u16) -> Result<Chain, RingError> {
        let mut chain = Chain::default();
        let mut index = head;
        // A chain of this length that goes on has a loop.
        for _ in 0..self.size {
            if index >= self.size {
                return Err(RingError::Descriptor(index));
            }
            let descriptor = read(memory, self.parts.descriptors, index)?;
            if descriptor.flags & INDIRECT != 0 {
                if !self.indirect || descriptor.flags & (NEXT | WRITE) != 0 {
                    return Err(RingError::Order);
                }
                follow_table(memory, &descriptor, &mut chain)?;
                return Ok(chain);
            }
            chain.add(&descriptor)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(chain);
            }
            index = descriptor.next;
        }
        Err(RingError::Long)
    }

    /// Gives a head back, with so many bytes written to its room.
    ///
    /// # Errors
    /// When the ring's memory is gone.
    pub fn give_back(&mut self, memory: &Memory, head: u16, bytes: u32) -> Result<(), RingError> {
        let under_way = std::mem::replace(&mut self.under_way[usize::from(head)], false);
        assert!(under_way, "a head is given back once");
        let mut element = [0; 8];
        element[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        element[4..].copy_from_slice(&bytes.to_le_bytes());
        let place = u64::from(self.next_used % self.size);
        memory.write(self.parts.used + 4 + place * 8, &element)?;
        self.next_used = self.next_used.wrapping_add(1);
        memory.store(self.parts.used + 2, self.next_used)?;
        Ok(())
    }

    /// Whether the guest wants to hear of what was given back since this was asked last.
    pub fn wants_call(&mut self, memory: &Memory) -> bool {
        // What was given back is seen by a guest that says now from where on it wants to hear (2.7.10).
        fence(Ordering::SeqCst);
        let before = std::mem::replace(&mut self.told, self.next_used);
        if !self.by_index {
            return memory.load(self.parts.available).is_ok_and(|flags| flags & NO_INTERRUPT == 0);
        }
        let wanted = memory.load(self.parts.available + 4 + u64::from(self.size) * 2).unwrap_or(before);
        self.next_used.wrapping_sub(wanted).wrapping_sub(1) < self.next_used.wrapping_sub(before)
    }

    /// Asks the guest to tell of the next head; whether one is available already.
    ///
    /// # Errors
    /// When the ring's memory is gone.
    pub fn ask_for_kick(&self, memory: &Memory) -> Result<bool, RingError> {
        if self.by_index {
            memory.store(self.parts.used + 4 + u64::from(self.size) * 8, self.next_available)?;
        } else {
            memory.store(self.parts.used, 0)?;
        }
        // A guest that has added meanwhile is seen, or sees what was asked.
        fence(Ordering::SeqCst);
        Ok(memory.load(self.parts.available + 2)? != self.next_available)
    }
}

/// Adds what a table elsewhere names.
fn follow_table(memory: &Memory, table: &Descriptor, chain: &mut Chain) -> Result<(), RingError> {
    let descriptors = table.bytes / DESCRIPTOR as u32;
    if descriptors == 0 || !u64::from(table.bytes).is_multiple_of(DESCRIPTOR) {
        return Err(RingError::Order);
    }
    let mut index = 0;
    for _ in 0..descriptors {
        if u32::from(index) >= descriptors {
            return Err(RingError::Descriptor(index));
        }
        let descriptor = read(memory, table.at, index)?;
        if descriptor.flags & INDIRECT != 0 {
            return Err(RingError::Order);
        }
        chain.add(&descriptor)?;
        if descriptor.flags & NEXT == 0 {
            return Ok(());
        }
        index = descriptor.next;
    }
    Err(RingError::Long)
}

fn read(memory: &Memory, table: u64, index: u16) -> Result<Descriptor, RingError> {
    let mut raw = [0; DESCRIPTOR as usize];
    let at = table.checked_add(u64::from(index) * DESCRIPTOR).ok_or(RingError::Address)?;
    memory.read(at, &mut raw)?;
    let two = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
    let at = u64::from_le_bytes(raw[..8].try_into().expect("eight bytes"));
    let bytes = u32::from_le_bytes(raw[8..12].try_into().expect("four bytes"));
    Ok(Descriptor { at, bytes, flags: two(12), next: two(14) })
}

#[cfg(test)]
mod tests {
    use rt::guest::{GuestMemory, Region, sealed_memory};

    use super::*;

    const SIZE: u16 = 8;
    const PARTS: Parts = Parts { descriptors: 0, available: 0x200, used: 0x400 };
    const TABLE: u64 = 0x800;

    fn memory() -> Memory {
        let region = Region { guest: 0, bytes: 1 << 16, user: 0, offset: 0 };
        GuestMemory::map(vec![(region, sealed_memory(1 << 16).unwrap())]).unwrap().into()
    }

    fn ring(memory: &Memory) -> Ring {
        Ring::new(memory, SIZE, PARTS, true, true).unwrap()
    }

    fn put(memory: &Memory, table: u64, index: u16, at: u64, bytes: u32, flags: u16, next: u16) {
        let mut raw = at.to_le_bytes().to_vec();
        raw.extend(bytes.to_le_bytes());
        raw.extend(flags.to_le_bytes());
        raw.extend(next.to_le_bytes());
        memory.write(table + u64::from(index) * 16, &raw).unwrap();
    }

    fn offer(memory: &Memory, heads: &[u16], index: u16) {
        for (place, head) in heads.iter().enumerate() {
            memory.store(PARTS.available + 4 + place as u64 * 2, *head).unwrap();
        }
        memory.store(PARTS.available + 2, index).unwrap();
    }

    #[test]
    fn heads_are_taken_once_and_given_back() {
        let memory = memory();
        let mut ring = ring(&memory);
        assert_eq!(ring.take(&memory), Ok(None));
        offer(&memory, &[3, 5, 3], 2);
        assert_eq!(ring.ask_for_kick(&memory), Ok(true));
        assert_eq!((ring.take(&memory), ring.take(&memory), ring.take(&memory)), (Ok(Some(3)), Ok(Some(5)), Ok(None)));
        assert_eq!(ring.ask_for_kick(&memory), Ok(false));
        assert_eq!(memory.load(PARTS.used + 4 + 64), Ok(2), "the guest is asked to kick at the third");
        offer(&memory, &[3, 5, 3], 3);
        assert_eq!(ring.take(&memory), Err(RingError::Twice(3)));
        ring.give_back(&memory, 5, 4097).unwrap();
        assert!(ring.wants_call(&memory));
        let mut element = [0; 8];
        memory.read(PARTS.used + 4, &mut element).unwrap();
        assert_eq!((element, memory.load(PARTS.used + 2)), ([5, 0, 0, 0, 1, 16, 0, 0], Ok(1)));
        // It wants to hear of the fourth.
        memory.store(PARTS.available + 4 + 16, 3).unwrap();
        ring.give_back(&memory, 3, 1).unwrap();
        assert!(!ring.wants_call(&memory));
    }

    #[test]
    fn without_indices_the_guest_says_by_a_flag() {
        let memory = memory();
        let mut ring = Ring::new(&memory, SIZE, PARTS, false, false).unwrap();
        offer(&memory, &[1], 1);
        ring.take(&memory).unwrap();
        ring.give_back(&memory, 1, 0).unwrap();
        assert!(ring.wants_call(&memory));
        memory.store(PARTS.available, NO_INTERRUPT).unwrap();
        assert!(!ring.wants_call(&memory));
        put(&memory, 0, 0, TABLE, 16, INDIRECT, 0);
        assert_eq!(ring.chain(&memory, 0), Err(RingError::Order), "tables were not agreed upon");
    }

    #[test]
    fn indices_that_jump() {
        let memory = memory();
        let mut ring = ring(&memory);
        offer(&memory, &[0], SIZE + 1);
        assert_eq!(ring.take(&memory), Err(RingError::Jump { from: 0, to: 9 }));
        offer(&memory, &[0], u16::MAX);
        assert!(matches!(ring.take(&memory), Err(RingError::Jump { .. })));
        offer(&memory, &[SIZE], 1);
        assert_eq!(ring.take(&memory), Err(RingError::Descriptor(SIZE)));
        offer(&memory, &[u16::MAX], 1);
        assert_eq!(ring.take(&memory), Err(RingError::Descriptor(u16::MAX)));
    }

    #[test]
    fn chains() {
        let memory = memory();
        let ring = ring(&memory);
        put(&memory, 0, 0, 0x1000, 16, NEXT, 4);
        put(&memory, 0, 4, 0x2000, 512, NEXT, 2);
        put(&memory, 0, 2, 0x3000, 1, WRITE, 77);
        let expected = Chain {
            given: vec![Segment { at: 0x1000, bytes: 16 }, Segment { at: 0x2000, bytes: 512 }],
            room: vec![Segment { at: 0x3000, bytes: 1 }],
        };
        assert_eq!(ring.chain(&memory, 0), Ok(expected.clone()));
        // The same in a table elsewhere, behind a descriptor or alone.
        put(&memory, TABLE, 0, 0x1000, 16, NEXT, 1);
        put(&memory, TABLE, 1, 0x2000, 512, NEXT, 2);
        put(&memory, TABLE, 2, 0x3000, 1, WRITE, 0);
        put(&memory, 0, 7, TABLE, 48, INDIRECT, 0);
        assert_eq!(ring.chain(&memory, 7), Ok(expected.clone()));
        put(&memory, 0, 6, 0x1000, 16, NEXT, 5);
        put(&memory, 0, 5, TABLE + 16, 32, INDIRECT, 0);
        put(&memory, TABLE, 1, 0x2000, 512, NEXT, 1);
        assert_eq!(ring.chain(&memory, 6), Ok(expected));
    }

    #[test]
    fn chains_that_are_none() {
        let memory = memory();
        let ring = ring(&memory);
        put(&memory, 0, 0, 0x1000, 16, NEXT, 1);
        for (at, bytes, flags, next, expected) in [
            (0x1000, 16, NEXT, 0, RingError::Long),
            (0x1000, 16, NEXT, 1, RingError::Long),
            (0x1000, 16, NEXT, SIZE, RingError::Descriptor(SIZE)),
            (0x1000, 16, NEXT, u16::MAX, RingError::Descriptor(u16::MAX)),
            (0x1000, 16, NEXT | INDIRECT, 1, RingError::Order),
            (0x1000, 0, INDIRECT, 1, RingError::Order),
            (0x1000, 15, INDIRECT, 1, RingError::Order),
            (0x1000, 16, INDIRECT | WRITE, 1, RingError::Order),
            (1 << 20, 16, INDIRECT, 1, RingError::Address),
            (u64::MAX - 7, 32, INDIRECT, 1, RingError::Address),
        ] {
            put(&memory, 0, 1, at, bytes, flags, next);
            assert_eq!(ring.chain(&memory, 0), Err(expected), "{at:#x} {bytes} {flags} {next}");
        }
        // Within a table: a loop, a next beyond it, another table, what is read behind what is written, too many.
        put(&memory, 0, 1, TABLE, 32, INDIRECT, 0);
        put(&memory, TABLE, 0, 0x1000, 16, NEXT, 1);
        for (flags, next, expected) in
            [(NEXT, 0, RingError::Long), (NEXT, 2, RingError::Long), (INDIRECT, 0, RingError::Order)]
        {
            put(&memory, TABLE, 1, 0x1000, 16, flags, next);
            assert_eq!(ring.chain(&memory, 0), Err(expected));
        }
        put(&memory, TABLE, 0, 0x1000, 16, NEXT | WRITE, 1);
        put(&memory, TABLE, 1, 0x1000, 16, 0, 0);
        assert_eq!(ring.chain(&memory, 0), Err(RingError::Order));
        put(&memory, 0, 1, TABLE, 16 * 1024, INDIRECT, 0);
        (0..1024).for_each(|index| put(&memory, TABLE, index, 0x1000, 1, NEXT, index + 1));
        assert_eq!(ring.chain(&memory, 0), Err(RingError::Long));
    }

    #[test]
    fn rings_that_are_not_in_the_memory() {
        let memory = memory();
        for parts in [
            Parts { descriptors: (1 << 16) - 64, ..PARTS },
            Parts { descriptors: 8, ..PARTS },
            Parts { available: 1 << 16, ..PARTS },
            Parts { available: 3, ..PARTS },
            Parts { used: u64::MAX - 3, ..PARTS },
            Parts { used: 0x402, ..PARTS },
        ] {
            assert_eq!(Ring::new(&memory, SIZE, parts, true, true).err(), Some(RingError::Address), "{parts:?}");
        }
    }
}
