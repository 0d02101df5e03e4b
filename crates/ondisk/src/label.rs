//! A drive's name tag: which array and seat it belongs to, and where its parts lie. Written once, when it joins.
//!
//! ```text
//! 0    checksum 4 | magic 4 | version 2 | reserved 6
//! 16   array 16 | member 16
//! 48   seat 2 | part 1 | last part 1 | slot blocks 4 | zone blocks 4 | zones 4
//! 64   drive blocks 8
//! 72   array name 64
//! 136  reserved to 4096; in the drive's first block 446 to 512 is a protective MBR
//! ```

use base::{ArrayUuid, BLOCK_BYTES, MemberId, MemberLba, MemberUuid};
use uuid::Uuid;

use crate::bytes::{Reader, Writer};
use crate::crc::crc32c;
use crate::generation::NAME_BYTES;
use crate::layout::{Layout, ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN};
use crate::{FORMAT_VERSION, FormatError};

const MAGIC: [u8; 4] = *b"AshL";
const WHAT: &str = "label";

/// Where a master boot record has its partition table, and the end of its sector.
const MBR_TABLE: std::ops::Range<usize> = 446..512;

/// A protective MBR (UEFI 2.10, section 5.2.3): one partition of type EEh from sector 1 on, as large as can be said. Programs
/// that look for a partition table or a file system see that the drive is taken; Linux makes no partition of it.
const PROTECTIVE_MBR: [u8; 66] = {
    let mut table = [0; 66];
    let partition = [0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let mut i = 0;
    while i < partition.len() {
        table[i] = partition[i];
        i += 1;
    }
    (table[64], table[65]) = (0x55, 0xaa);
    table
};

/// The most parts an array can have.
pub const PARTS_MAX: u8 = 16;

/// Which part of an array: it may consist of several, each complete in itself, on a slice of every drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOf {
    /// Its number, from 0 on.
    pub index: u8,
    /// How many there are, 1 to [`PARTS_MAX`].
    pub of: u8,
}

impl PartOf {
    /// The only one: the array is in one piece.
    pub const ALL: PartOf = PartOf { index: 0, of: 1 };
}

impl Default for PartOf {
    fn default() -> Self {
        Self::ALL
    }
}

/// What a drive, or a part's slice of it, says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The array.
    pub array: ArrayUuid,
    /// This drive's identity in it.
    pub member: MemberUuid,
    /// Its seat.
    pub seat: MemberId,
    /// The part of the array that this is a slice for.
    pub part: PartOf,
    /// Where what lies on it lies.
    pub layout: Layout,
    /// The array's name when this drive joined (a hint for people; the generation has the name in force).
    pub array_name: String,
}

impl Label {
    /// The stored form: one block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(0);
        w.raw(&MAGIC);
        w.u16(FORMAT_VERSION);
        w.zeros(6);
        w.raw(self.array.0.as_bytes());
        w.raw(self.member.0.as_bytes());
        w.u16(self.seat.0);
        w.u8(self.part.index);
        w.u8(self.part.of - 1);
        w.u32(self.layout.slot_blocks);
        w.u32(self.layout.zone_blocks);
        w.u32(self.layout.zones);
        w.u64(self.layout.drive_blocks);
        w.text(&self.array_name, NAME_BYTES);
        w.zeros(BLOCK_BYTES - w.len());
        sealed(w.finish())
    }

    /// The stored form at `at` of the drive or slice: in the first block of a drive with a protective MBR.
    #[must_use]
    pub fn encode_at(&self, at: MemberLba) -> Vec<u8> {
        let mut block = self.encode();
        if at.0 == 0 && self.part.index == 0 {
            block[MBR_TABLE].copy_from_slice(&PROTECTIVE_MBR);
            block = sealed(block);
        }
        block
    }

    /// The label in `block`.
    ///
    /// # Errors
    /// [`FormatError::Absent`] when there is none, another when it is not whole or not possible.
    pub fn decode(block: &[u8]) -> Result<Label, FormatError> {
        let block: &[u8; BLOCK_BYTES] = block.try_into().map_err(|_| FormatError::Short(WHAT))?;
        let mut r = Reader::new(WHAT, block);
        let checksum = r.u32()?;
        if r.array()? != MAGIC {
            return Err(FormatError::Absent(WHAT));
        }
        if checksum != crc32c(&block[4..]) {
            return Err(FormatError::Checksum(WHAT));
        }
        let version = r.u16()?;
        if version != FORMAT_VERSION {
            return Err(FormatError::Version { what: WHAT, found: version });
        }
        r.zeros(6, "reserved")?;
        let array = ArrayUuid(Uuid::from_bytes(r.array()?));
        let member = MemberUuid(Uuid::from_bytes(r.array()?));
        let seat = MemberId(r.u16()?);
        let (index, last) = (r.u8()?, r.u8()?);
        if index > last || last >= PARTS_MAX {
            return Err(r.field("part"));
        }
        let part = PartOf { index, of: last + 1 };
        let (slot_blocks, zone_blocks, zones, drive_blocks) = (r.u32()?, r.u32()?, r.u32()?, r.u64()?);
        let array_name = r.text(NAME_BYTES, "name")?;
        r.zeros(MBR_TABLE.start - (BLOCK_BYTES - r.remaining()), "reserved")?;
        let table: [u8; 66] = r.array()?;
        if table != [0; 66] && table != PROTECTIVE_MBR {
            return Err(r.field("partition table"));
        }
        r.zeros(r.remaining(), "reserved")?;
        let possible = zone_blocks.is_power_of_two()
            && (ZONE_BLOCKS_MIN..=ZONE_BLOCKS_MAX).contains(&zone_blocks)
            && drive_blocks <= u64::MAX / BLOCK_BYTES as u64;
        match Layout::new(drive_blocks, slot_blocks, zone_blocks) {
            Some(layout) if possible && layout.zones == zones => {
                Ok(Label { array, member, seat, part, layout, array_name })
            }
            _ => Err(r.field("layout")),
        }
    }
}

/// `block` with its checksum.
fn sealed(mut block: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let layout = Layout::new(1 << 18, 1024, 1024).unwrap();
        let label = Label {
            array: ArrayUuid(Uuid::from_u128(1)),
            member: MemberUuid(Uuid::from_u128(2)),
            seat: MemberId(3),
            part: PartOf { index: 15, of: 16 },
            layout,
            array_name: "fast".into(),
        };
        let mut block = label.encode();
        assert_eq!(Label::decode(&block).unwrap(), label);
        assert_eq!(label.encode_at(MemberLba(0)), block, "a slice that does not begin the drive");
        let first = Label { part: PartOf { index: 0, of: 16 }, ..label.clone() };
        assert_eq!(Label::decode(&first.encode_at(MemberLba(0))).unwrap(), first);
        assert_eq!(first.encode_at(MemberLba(0))[510..512], [0x55, 0xaa]);
        assert_eq!(first.encode_at(MemberLba(1)), first.encode());
        block[60] ^= 1;
        assert_eq!(Label::decode(&block), Err(FormatError::Checksum(WHAT)));
    }

    #[test]
    fn impossible_labels_with_the_right_checksum_are_refused() {
        let layout = Layout::new(1 << 18, 1024, 1024).unwrap();
        let ids = (ArrayUuid(Uuid::from_u128(1)), MemberUuid(Uuid::from_u128(2)));
        let (seat, part) = (MemberId(3), PartOf::ALL);
        let label = Label { array: ids.0, member: ids.1, seat, part, layout, array_name: "fast".into() };
        // Offset, value, and the field that is named: zones of no blocks, part 1 of 1, the 17th of 17, reserved bytes within
        // and at the end.
        let wrong: [(usize, &[u8], _); 6] = [
            (500, &[1; 2], "partition table"),
            (56, &[0; 4], "layout"),
            (50, &[1, 0], "part"),
            (50, &[16, 16], "part"),
            (10, &[1; 4], "reserved"),
            (4092, &[1; 4], "reserved"),
        ];
        for (at, value, field) in wrong {
            let mut block = label.encode();
            block[at..at + value.len()].copy_from_slice(value);
            let crc = crc32c(&block[4..]);
            block[..4].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Label::decode(&block), Err(FormatError::Field(WHAT, field)), "byte {at}");
        }
    }
}
