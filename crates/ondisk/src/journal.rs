//! A journal in a ring of blocks: records of a few hundred bytes, the oldest of which are overwritten.
//!
//! ```text
//! block   0 u32 CRC-32C of bytes 4..4096      4 [u8; 8] "ASHJRNL1"     12 u32 zero
//!        16 u64 sequence: one more with each write of any block
//!        24 u64 number of the first record    32 u16 records           34 u16 bytes of them
//!        36 [u8; 16] whose journal            52 records: u16 length, bytes
//! ```
//!
//! The block that is not full yet is written again with each record, never in its own place: to a block that holds nothing
//! which is needed. So a write that is cut or torn takes nothing but what the ring was to lose next.
//!
//! Invariants:
//! - records of a ring of n blocks are kept for n - 2 full blocks at least; of those, one that was written durably is found
//!   again whatever write was under way;
//! - a record has one number for ever, and numbers of what is found have no gap.
//!
//! Not here: where the blocks lie, who writes them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::bytes::{Reader, Writer};
use crate::crc::crc32c;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;

/// The longest record.
pub const RECORD_BYTES_MAX: usize = BLOCK_BYTES - HEADER_BYTES - 2;

/// The smallest ring.
pub const BLOCKS_MIN: u64 = 4;

const MAGIC: &[u8; 8] = b"ASHJRNL1";
const HEADER_BYTES: usize = 52;

/// A block to write; the next one is written when this one is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which block of the ring.
    pub block: u64,
    /// What.
    pub image: Vec<u8>,
}

/// A record that was found, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub number: u64,
    /// Its bytes.
    pub record: Vec<u8>,
}

/// Writes that are not done, in their order: the ring counts on it.
#[derive(Debug, Default)]
pub struct Unwritten {
    writes: VecDeque<Write>,
}

impl Unwritten {
    /// More of them.
    pub fn add(&mut self, writes: Vec<Write>) {
        self.writes.extend(writes);
    }

    /// The next one.
    #[must_use]
    pub fn first(&self) -> Option<&Write> {
        self.writes.front()
    }

    /// It is durable.
    pub fn first_is_written(&mut self) {
        self.writes.pop_front();
    }

    /// One could not be written, and is tried again: of several images of a block only the last one counts. So there are never
    /// more than the ring has blocks. Until all are written a block has to be written as a whole or not at all: the one before it
    /// may be the only one with what it holds.
    pub fn keep_newest(&mut self) {
        let newest: BTreeMap<u64, usize> =
            self.writes.iter().enumerate().map(|(at, write)| (write.block, at)).collect();
        let mut at = 0..;
        self.writes.retain(|write| at.next() == Some(newest[&write.block]));
    }

    /// Forgets them: there is nowhere to write.
    pub fn clear(&mut self) {
        self.writes.clear();
    }
}

/// A ring: where what lies, and what the block that is not full holds.
#[derive(Debug)]
pub struct Ring {
    owner: [u8; 16],
    sequence: u64,
    /// Blocks that hold nothing that is needed.
    free: Vec<u64>,
    /// The others, by the number of their first record.
    held: BTreeMap<u64, u64>,
    /// The number of the first record of the block that is not full, and its records.
    first: u64,
    records: Vec<u8>,
    count: u16,
}

/// What a block says.
struct Block<'a> {
    sequence: u64,
    first: u64,
    count: u16,
    records: &'a [u8],
}

impl<'a> Block<'a> {
    /// None where there is no block of this journal.
    fn decode(image: &'a [u8], owner: &[u8; 16]) -> Option<Block<'a>> {
        let mut fields = Reader::new("journal block", image);
        let crc = fields.u32().ok()?;
        if image.len() != BLOCK_BYTES || crc != crc32c(&image[4..]) || fields.array().ok()? != *MAGIC {
            return None;
        }
        fields.zeros(4, "reserved").ok()?;
        let (sequence, first) = (fields.u64().ok()?, fields.u64().ok()?);
        let (count, bytes) = (fields.u16().ok()?, fields.u16().ok()?);
        if fields.array().ok()? != *owner {
            return None;
        }
        let block = Block { sequence, first, count, records: fields.raw(usize::from(bytes)).ok()? };
        (block.split().count() == usize::from(block.count)).then_some(block)
    }

    fn split(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut left = self.records;
        std::iter::from_fn(move || {
            let length = left.first_chunk::<2>().map(|n| usize::from(u16::from_le_bytes(*n)))?;
            let record = left.get(2..2 + length)?;
            left = &left[2 + length..];
            Some(record)
        })
    }
}

impl Ring {
    /// An empty one of so many blocks.
    ///
    /// # Panics
    /// On fewer than [`BLOCKS_MIN`].
    #[must_use]
    pub fn new(owner: [u8; 16], blocks: u64) -> Ring {
        assert!(blocks >= BLOCKS_MIN, "a ring has at least {BLOCKS_MIN} blocks, not {blocks}");
        let free = (0..blocks).rev().collect();
        Ring { owner, sequence: 0, free, held: BTreeMap::new(), first: 1, records: vec![], count: 0 }
    }

    /// The ring that lies in `images`, block by block, and its records, oldest first. What is no block of it is free.
    ///
    /// # Panics
    /// On fewer than [`BLOCKS_MIN`].
    pub fn recover(owner: [u8; 16], images: &[Vec<u8>]) -> (Ring, Vec<Found>) {
        let mut ring = Ring::new(owner, images.len() as u64);
        // Of two that begin with the same record the newer one holds all that the older one does.
        let mut newest: BTreeMap<u64, (u64, Block<'_>)> = BTreeMap::new();
        for (at, image) in (0..).zip(images) {
            let Some(block) = Block::decode(image, &ring.owner) else { continue };
            ring.sequence = ring.sequence.max(block.sequence);
            match newest.get(&block.first) {
                Some((_, known)) if known.sequence > block.sequence => {}
                Some(_) | None => _ = newest.insert(block.first, (at, block)),
            }
        }
        // From the newest one back to the first gap: what lies behind it is older than what was overwritten.
        let mut chain: Vec<(u64, Block<'_>)> = vec![];
        for (_, (at, block)) in newest.into_iter().rev() {
            let follows = chain.last().is_none_or(|(_, next)| block.first + u64::from(block.count) == next.first);
            if !follows {
                break;
            }
            chain.push((at, block));
        }
        let mut found = vec![];
        for (at, block) in chain.iter().rev() {
            ring.held.insert(block.first, *at);
            let numbered = (block.first..).zip(block.split());
            found.extend(numbered.map(|(number, record)| Found { number, record: record.to_vec() }));
        }
        let held: BTreeSet<u64> = chain.iter().map(|(at, _)| *at).collect();
        ring.free.retain(|at| !held.contains(at));
        if let Some((_, last)) = chain.first() {
            (ring.first, ring.count, ring.records) = (last.first, last.count, last.records.to_vec());
        }
        (ring, found)
    }

    /// The number that the next record gets.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// The number of the oldest record that is kept.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.held.first_key_value().map_or(self.first, |(first, _)| *first)
    }

    /// Adds records, which get the next numbers; what has to be written for it, in this order.
    ///
    /// # Panics
    /// On a record that is longer than [`RECORD_BYTES_MAX`].
    pub fn append<'a>(&mut self, records: impl IntoIterator<Item = &'a [u8]>) -> Vec<Write> {
        let mut writes = vec![];
        let mut added = false;
        for record in records {
            assert!(record.len() <= RECORD_BYTES_MAX, "a record of {} bytes", record.len());
            if HEADER_BYTES + self.records.len() + 2 + record.len() > BLOCK_BYTES {
                if added {
                    writes.push(self.write());
                }
                self.first = self.next_number();
                (self.records, self.count) = (vec![], 0);
            }
            self.records.extend((record.len() as u16).to_le_bytes());
            self.records.extend(record);
            self.count += 1;
            added = true;
        }
        if added {
            writes.push(self.write());
        }
        writes
    }

    /// The block that is not full, to where nothing is that is needed.
    fn write(&mut self) -> Write {
        self.sequence += 1;
        let oldest = || self.held.pop_first().map(|(_, at)| at);
        let block = self.free.pop().or_else(oldest).expect("a ring has more than one block");
        if let Some(before) = self.held.insert(self.first, block) {
            // Not at once: what is written there next may be cut while this one is not durable yet. It is, as writes follow
            // each other.
            self.free.push(before);
        }
        Write { block, image: self.image() }
    }

    fn image(&self) -> Vec<u8> {
        let mut image = Writer::new();
        image.u32(0);
        image.raw(MAGIC);
        image.zeros(4);
        image.u64(self.sequence);
        image.u64(self.first);
        image.u16(self.count);
        image.u16(self.records.len() as u16);
        image.raw(&self.owner);
        image.raw(&self.records);
        image.zeros(BLOCK_BYTES - image.len());
        let mut image = image.finish();
        let crc = crc32c(&image[4..]);
        image[..4].copy_from_slice(&crc.to_le_bytes());
        image
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWNER: [u8; 16] = [7; 16];

    fn record(number: u64, bytes: usize) -> Vec<u8> {
        let mut record = number.to_le_bytes().to_vec();
        record.resize(bytes.max(8), number as u8);
        record
    }

    fn store(disk: &mut [Vec<u8>], writes: &[Write]) {
        writes.iter().for_each(|w| disk[w.block as usize].clone_from(&w.image));
    }

    /// Whether `found` are records without a gap up to `upto`, `from` or an older one first, each the one of its number.
    fn holds(found: &[Found], from: u64, upto: u64) -> Result<(), String> {
        let numbers: Vec<u64> = found.iter().map(|f| f.number).collect();
        let first = numbers.first().copied().unwrap_or(upto + 1);
        if numbers != (first..=upto).collect::<Vec<_>>() || first > from.max(1) {
            return Err(format!("{first}..={:?}, not {from}..={upto}", numbers.last()));
        }
        match found.iter().find(|f| f.record[..8] != f.number.to_le_bytes()) {
            Some(wrong) => Err(format!("{wrong:?}")),
            None => Ok(()),
        }
    }

    #[test]
    fn an_empty_ring_and_foreign_blocks_hold_nothing() {
        let mut disk = vec![vec![0; BLOCK_BYTES]; 5];
        store(&mut disk, &Ring::new([1; 16], 5).append([record(1, 20).as_slice()]));
        disk[2] = vec![0xff; BLOCK_BYTES];
        disk[3].truncate(100);
        let (ring, found) = Ring::recover(OWNER, &disk);
        assert_eq!((ring.next_number(), ring.oldest(), found.len()), (1, 1, 0));
    }

    /// 100,000 records, the power cut at each write in turn: what is promised and was acknowledged is there.
    #[test]
    fn a_cut_takes_nothing_that_is_promised() {
        let mut disk = vec![vec![0; BLOCK_BYTES]; 8];
        let mut ring = Ring::new(OWNER, 8);
        let mut acked = 0;
        let per_block = ((BLOCK_BYTES - HEADER_BYTES) / (2 + 150)) as u64;
        while acked < 100_000 {
            let number = acked + 1;
            let writes = ring.append([record(number, 150).as_slice()]);
            let [write] = &writes[..] else { panic!("{} writes", writes.len()) };
            // Nothing of it, parts of it, garbage: then the next process.
            let half = BLOCK_BYTES / 2;
            let old = disk[write.block as usize].clone();
            let torn = [old.clone(), [&write.image[..half], &old[half..]].concat(), vec![0xa5; BLOCK_BYTES]];
            for state in torn {
                disk[write.block as usize] = state;
                let (after, found) = Ring::recover(OWNER, &disk);
                let promised = acked.saturating_sub(6 * per_block) + 1;
                // The half that is there may be all of a short block: it is found then, acknowledged or not.
                let upto = found.last().map_or(0, |f| f.number);
                assert!(upto == acked || upto == number, "{upto} after {acked}");
                holds(&found, promised, upto).unwrap_or_else(|e| panic!("after {acked}: {e}"));
                assert_eq!(after.next_number(), upto + 1);
            }
            disk[write.block as usize].clone_from(&write.image);
            acked = number;
            if acked % 997 == 0 {
                ring = Ring::recover(OWNER, &disk).0;
            }
        }
    }

    proptest! {
        /// Records of any length, several at once, reopened at any time, cut at any write.
        #[test]
        fn any_course_keeps_what_is_promised(
            blocks in BLOCKS_MIN..9,
            course in prop::collection::vec((prop::collection::vec(8usize..1500, 1..6), any::<bool>(), 0usize..4), 1..120),
        ) {
            let mut disk = vec![vec![0; BLOCK_BYTES]; blocks as usize];
            let mut ring = Ring::new(OWNER, blocks);
            let mut acked = 0;
            for (lengths, reopen, cut) in course {
                let added: Vec<Vec<u8>> = (acked + 1..).zip(&lengths).map(|(n, bytes)| record(n, *bytes)).collect();
                let writes = ring.append(added.iter().map(Vec::as_slice));
                let kept = ring.oldest();
                let mut cut_disk = disk.clone();
                let whole = cut.min(writes.len() - 1);
                store(&mut cut_disk, &writes[..whole]);
                cut_disk[writes[whole].block as usize] = vec![0; BLOCK_BYTES];
                let (_, found) = Ring::recover(OWNER, &cut_disk);
                prop_assert!(found.last().map_or(0, |f| f.number) >= acked);
                let upto = found.last().map_or(0, |f| f.number);
                prop_assert!(holds(&found, kept, upto).is_ok(), "{:?}", holds(&found, kept, upto));
                store(&mut disk, &writes);
                acked += lengths.len() as u64;
                if reopen {
                    let (again, found) = Ring::recover(OWNER, &disk);
                    prop_assert!(holds(&found, kept, acked).is_ok(), "{:?}", holds(&found, kept, acked));
                    prop_assert_eq!(again.next_number(), ring.next_number());
                    ring = again;
                }
            }
        }

        #[test]
        fn any_bytes_are_survived(images in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 4..6)) {
            let (ring, found) = Ring::recover(OWNER, &images);
            prop_assert_eq!((ring.next_number(), found.len()), (1, 0));
        }
    }
}
