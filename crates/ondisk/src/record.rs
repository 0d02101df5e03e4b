//! The header of a record: one block that names every block of its payload and checks each.
//!
//! ```text
//! 0    checksum 4 | magic 4 | version 2 | flags 2 | reserved 4
//! 16   array 16
//! 32   segment 8 | row 4 | epoch 4
//! 48   generation 8 | first sequence 8
//! 64   durable row 4 | rows 4 | k 2 | entries 2 | payload blocks 2 | log 1 | reserved 1
//! 80   reserved 176
//! 256  240 entries of 16 bytes: crc or count 4 | volume 4 | lba 6 | kind 1 | shard or level 1
//! ```

use base::{ArrayUuid, BLOCK_BYTES, Epoch, Generation, Lba, SegmentId, Seq, VolumeId};
use uuid::Uuid;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bytes::are_zero;
use crate::crc::crc32c;
use crate::{FORMAT_VERSION, FormatError, SHARDS};

/// Entries in one header, at most.
pub const ENTRIES_MAX: usize = 240;

/// A range entry that speaks for all shards (they are all attached to its log).
pub const ALL_SHARDS: u8 = 0xff;

/// The largest number that a reader believes of an entry: half of what fits, so that those that follow do too.
pub const SEQ_MAX: u64 = u64::MAX / 2;

const MAGIC: [u8; 4] = *b"AshR";
const WHAT: &str = "record header";

/// One fact in a record. Entries with a payload block name it by their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A host's block, in the payload.
    Data {
        /// Whose.
        volume: VolumeId,
        /// Which.
        lba: Lba,
        /// CRC-32C of the payload block.
        crc: u32,
    },
    /// A block copied by the cleaner, in the payload.
    Move {
        /// Whose.
        volume: VolumeId,
        /// Which.
        lba: Lba,
        /// CRC-32C of the payload block.
        crc: u32,
    },
    /// Blocks deallocated.
    Hole {
        /// Whose.
        volume: VolumeId,
        /// First.
        lba: Lba,
        /// How many.
        blocks: u32,
        /// For which shard's leaves, or [`ALL_SHARDS`].
        shard: u8,
    },
    /// Blocks set to zero.
    Zero {
        /// Whose.
        volume: VolumeId,
        /// First.
        lba: Lba,
        /// How many.
        blocks: u32,
        /// For which shard's leaves, or [`ALL_SHARDS`].
        shard: u8,
    },
    /// Blocks lost.
    Bad {
        /// Whose.
        volume: VolumeId,
        /// First.
        lba: Lba,
        /// How many.
        blocks: u32,
    },
    /// A node of the map, in the payload.
    MapNode {
        /// Whose.
        volume: VolumeId,
        /// First block it covers.
        lba: Lba,
        /// 0: leaf.
        level: u8,
        /// CRC-32C of the payload block.
        crc: u32,
    },
    /// Nothing: a block of zeros that fills the row.
    Pad,
}

impl Entry {
    /// The checksum of the payload block this entry brings, if it brings one.
    #[must_use]
    pub fn payload_crc(&self) -> Option<u32> {
        match self {
            Entry::Data { crc, .. } | Entry::Move { crc, .. } | Entry::MapNode { crc, .. } => Some(*crc),
            Entry::Pad => Some(crate::crc::ZERO_BLOCK_CRC32C),
            Entry::Hole { .. } | Entry::Zero { .. } | Entry::Bad { .. } => None,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct RawEntry {
    value: U32,
    volume: U32,
    lba: [u8; 6],
    kind: u8,
    aux: u8,
}
const _: () = assert!(size_of::<RawEntry>() == 16);

/// LBAs must stay below this (48 bits).
pub const LBA_LIMIT: u64 = 1 << 48;

impl From<&Entry> for RawEntry {
    fn from(e: &Entry) -> RawEntry {
        let raw = |kind: u8, volume: VolumeId, lba: Lba, value: u32, aux: u8| {
            assert!(lba.0 < LBA_LIMIT, "volume addresses fit 48 bits");
            let mut short = [0; 6];
            short.copy_from_slice(&lba.0.to_le_bytes()[..6]);
            RawEntry { value: U32::new(value), volume: U32::new(volume.0), lba: short, kind, aux }
        };
        match *e {
            Entry::Data { volume, lba, crc } => raw(1, volume, lba, crc, 0),
            Entry::Move { volume, lba, crc } => raw(2, volume, lba, crc, 0),
            Entry::Hole { volume, lba, blocks, shard } => raw(3, volume, lba, blocks, shard),
            Entry::Zero { volume, lba, blocks, shard } => raw(4, volume, lba, blocks, shard),
            Entry::Bad { volume, lba, blocks } => raw(5, volume, lba, blocks, 0),
            Entry::MapNode { volume, lba, level, crc } => raw(6, volume, lba, crc, level),
            Entry::Pad => raw(7, VolumeId(0), Lba(0), 0, 0),
        }
    }
}

impl RawEntry {
    fn verify(&self) -> Result<Entry, FormatError> {
        let mut wide = [0; 8];
        wide[..6].copy_from_slice(&self.lba);
        let (volume, lba) = (VolumeId(self.volume.get()), Lba(u64::from_le_bytes(wide)));
        let (value, aux) = (self.value.get(), self.aux);
        let shard_known = aux == ALL_SHARDS || usize::from(aux) < SHARDS;
        let range = value > 0 && lba.0 + u64::from(value) <= LBA_LIMIT;
        let entry = match self.kind {
            1 if aux == 0 => Entry::Data { volume, lba, crc: value },
            2 if aux == 0 => Entry::Move { volume, lba, crc: value },
            3 if shard_known && range => Entry::Hole { volume, lba, blocks: value, shard: aux },
            4 if shard_known && range => Entry::Zero { volume, lba, blocks: value, shard: aux },
            5 if aux == 0 && range => Entry::Bad { volume, lba, blocks: value },
            6 => Entry::MapNode { volume, lba, level: aux, crc: value },
            7 if aux == 0 && value == 0 && volume.0 == 0 && lba.0 == 0 => Entry::Pad,
            _ => return Err(FormatError::Field(WHAT, "entry")),
        };
        Ok(entry)
    }
}

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Raw {
    checksum: U32, // CRC-32C of everything after this field
    magic: [u8; 4],
    version: U16,
    flags: U16,
    reserved0: [u8; 4],
    array: [u8; 16], // catches a foreign drive
    segment: U64,    // segment and row catch misdirected reads and writes
    row: U32,
    epoch: U32, // epoch and generation catch another life of the same rows
    generation: U64,
    first_seq: U64,
    durable_row: U32, // tells a torn tail from damage
    rows: U32,
    k: U16,
    entries: U16,
    payload_blocks: U16,
    log: u8,
    reserved1: u8,
    reserved2: [u8; 176],
    entry: [RawEntry; ENTRIES_MAX],
}
const _: () = assert!(size_of::<Raw>() == BLOCK_BYTES);

/// A record's header, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The array it belongs to.
    pub array: ArrayUuid,
    /// Its segment.
    pub segment: SegmentId,
    /// Its first row.
    pub row: u32,
    /// Its rows.
    pub rows: u32,
    /// The segment's data columns.
    pub k: u16,
    /// The open that wrote it.
    pub epoch: Epoch,
    /// The generation in effect when it was written.
    pub generation: Generation,
    /// The number of its first entry.
    pub first_seq: Seq,
    /// Rows of this segment below this were acknowledged and durable when it was written.
    pub durable_row: u32,
    /// The log that wrote it.
    pub log: u8,
    /// What it says; those with a payload block come in payload order.
    pub entries: Vec<Entry>,
}

impl RecordHeader {
    /// The stored form into `block` (4096 bytes).
    pub fn encode(&self, block: &mut [u8]) {
        assert!(self.entries.len() <= ENTRIES_MAX, "a header holds {ENTRIES_MAX} entries");
        let mut raw = Raw {
            checksum: U32::ZERO,
            magic: MAGIC,
            version: U16::new(FORMAT_VERSION),
            flags: U16::ZERO,
            reserved0: [0; 4],
            array: *self.array.0.as_bytes(),
            segment: U64::new(self.segment.0),
            row: U32::new(self.row),
            epoch: U32::new(self.epoch.0),
            generation: U64::new(self.generation.0),
            first_seq: U64::new(self.first_seq.0),
            durable_row: U32::new(self.durable_row),
            rows: U32::new(self.rows),
            k: U16::new(self.k),
            entries: U16::new(self.entries.len() as u16),
            payload_blocks: U16::new(self.payload_blocks() as u16),
            log: self.log,
            reserved1: 0,
            reserved2: [0; 176],
            entry: [RawEntry { value: U32::ZERO, volume: U32::ZERO, lba: [0; 6], kind: 0, aux: 0 }; ENTRIES_MAX],
        };
        for (slot, e) in raw.entry.iter_mut().zip(&self.entries) {
            *slot = e.into();
        }
        raw.checksum = U32::new(crc32c(&raw.as_bytes()[4..]));
        block.copy_from_slice(raw.as_bytes());
    }

    /// The header in `block`.
    ///
    /// # Errors
    /// [`FormatError::Absent`] when there is none, another when it is not whole or not possible.
    pub fn decode(block: &[u8]) -> Result<RecordHeader, FormatError> {
        let raw = Raw::ref_from_bytes(block).map_err(|_| FormatError::Short(WHAT))?;
        if raw.magic != MAGIC {
            return Err(FormatError::Absent(WHAT));
        }
        if raw.checksum.get() != crc32c(&block[4..]) {
            return Err(FormatError::Checksum(WHAT));
        }
        if raw.version.get() != FORMAT_VERSION {
            return Err(FormatError::Version { what: WHAT, found: raw.version.get() });
        }
        let used = usize::from(raw.entries.get());
        let field = |name| Err(FormatError::Field(WHAT, name));
        if used > ENTRIES_MAX {
            return field("entries");
        }
        if raw.flags.get() != 0 || raw.reserved0 != [0; 4] || raw.reserved1 != 0 || raw.reserved2 != [0; 176] {
            return field("reserved");
        }
        if !are_zero(raw.entry[used..].as_bytes()) {
            return field("unused entries");
        }
        let mut entries = Vec::with_capacity(used);
        for e in &raw.entry[..used] {
            entries.push(e.verify()?);
        }
        let header = RecordHeader {
            array: ArrayUuid(Uuid::from_bytes(raw.array)),
            segment: SegmentId(raw.segment.get()),
            row: raw.row.get(),
            rows: raw.rows.get(),
            k: raw.k.get(),
            epoch: Epoch(raw.epoch.get()),
            generation: Generation(raw.generation.get()),
            first_seq: Seq(raw.first_seq.get()),
            durable_row: raw.durable_row.get(),
            log: raw.log,
            entries,
        };
        let payload = header.payload_blocks();
        if payload != usize::from(raw.payload_blocks.get()) {
            return field("payload blocks");
        }
        let blocks = u64::from(header.rows) * u64::from(header.k);
        if header.k == 0 || header.rows == 0 || blocks != 1 + payload as u64 {
            return field("rows");
        }
        if header.first_seq.0 > SEQ_MAX {
            return field("first sequence");
        }
        if header.row.checked_add(header.rows).is_none() || header.durable_row > header.row {
            return field("row");
        }
        Ok(header)
    }

    /// Payload blocks.
    #[must_use]
    pub fn payload_blocks(&self) -> usize {
        self.entries.iter().filter(|e| e.payload_crc().is_some()).count()
    }

    /// Entries that bring a payload block, with that block's index and checksum.
    pub fn payload(&self) -> impl Iterator<Item = (usize, &Entry, u32)> {
        let with_block = self.entries.iter().filter_map(|e| e.payload_crc().map(|crc| (e, crc)));
        with_block.enumerate().map(|(i, (e, crc))| (i, e, crc))
    }

    /// The column and row (in the segment) of payload block `index`: the record fills its rectangle column by
    /// column, the header first.
    #[must_use]
    pub fn payload_place(&self, index: usize) -> (usize, u32) {
        payload_place(self.row, self.rows, index)
    }

    /// The sequence number after the last entry. (Padding has no number.)
    #[must_use]
    pub fn end_seq(&self) -> Seq {
        Seq(self.first_seq.0 + self.entries.iter().filter(|e| !matches!(e, Entry::Pad)).count() as u64)
    }
}

/// Where payload block `index` of a record of `rows` rows from `row` lies: column, and row in the segment.
#[must_use]
pub fn payload_place(row: u32, rows: u32, index: usize) -> (usize, u32) {
    let at = index + 1;
    (at / rows as usize, row + (at % rows as usize) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sample() -> RecordHeader {
        let v = VolumeId(7);
        RecordHeader {
            array: ArrayUuid(Uuid::from_u128(0x1234)),
            segment: SegmentId(17),
            row: 3,
            rows: 2,
            k: 3,
            epoch: Epoch(2),
            generation: Generation(9),
            first_seq: Seq(1000),
            durable_row: 3,
            log: 0,
            entries: vec![
                Entry::Data { volume: v, lba: Lba(LBA_LIMIT - 1), crc: 1 },
                Entry::Move { volume: v, lba: Lba(2), crc: 2 },
                Entry::Hole { volume: v, lba: Lba(3), blocks: 4, shard: ALL_SHARDS },
                Entry::Zero { volume: v, lba: Lba(9), blocks: 1, shard: 15 },
                Entry::Bad { volume: v, lba: Lba(10), blocks: 1 },
                Entry::MapNode { volume: v, lba: Lba(256), level: 0, crc: 3 },
                Entry::Pad,
                Entry::Pad,
            ],
        }
    }

    #[test]
    fn round_trip() {
        let mut block = vec![0; BLOCK_BYTES];
        sample().encode(&mut block);
        assert_eq!(RecordHeader::decode(&block).unwrap(), sample());
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut block = vec![0; BLOCK_BYTES];
        sample().encode(&mut block);
        for at in (0..BLOCK_BYTES).step_by(61) {
            let mut torn = block.clone();
            torn[at] ^= 0x10;
            assert!(RecordHeader::decode(&torn).is_err(), "byte {at}");
        }
        assert_eq!(RecordHeader::decode(&[0; 4096]), Err(FormatError::Absent(WHAT)));
    }

    #[test]
    fn impossible_headers_with_the_right_checksum_are_refused() {
        let mut numbers = vec![0; BLOCK_BYTES];
        RecordHeader { first_seq: Seq(SEQ_MAX + 1), ..sample() }.encode(&mut numbers);
        let mut unused = vec![0; BLOCK_BYTES];
        sample().encode(&mut unused);
        unused[BLOCK_BYTES - 1] = 1;
        let crc = crc32c(&unused[4..]);
        unused[..4].copy_from_slice(&crc.to_le_bytes());
        for (block, field) in [(numbers, "first sequence"), (unused, "unused entries")] {
            assert_eq!(RecordHeader::decode(&block), Err(FormatError::Field(WHAT, field)));
        }
    }

    #[test]
    fn payload_runs_down_the_columns() {
        let places: Vec<_> = (0..5).map(|i| payload_place(10, 2, i)).collect();
        assert_eq!(places, [(0, 11), (1, 10), (1, 11), (2, 10), (2, 11)]);
    }
}
