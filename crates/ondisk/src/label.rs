//! A drive's name tag: which array and seat it belongs to, and where its parts lie. Written once, when it joins.
//!
//! ```text
//! 0    checksum 4 | magic 4 | version 2 | reserved 6
//! 16   array 16 | member 16
//! 48   seat 2 | reserved 2 | slot blocks 4 | zone blocks 4 | zones 4
//! 64   drive blocks 8
//! 72   array name 64
//! 136  reserved to 4096
//! ```

use base::{ArrayUuid, BLOCK_BYTES, MemberId, MemberUuid};
use uuid::Uuid;

use crate::bytes::{Reader, Writer};
use crate::crc::crc32c;
use crate::generation::NAME_BYTES;
use crate::layout::{Layout, ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN};
use crate::{FORMAT_VERSION, FormatError};

const MAGIC: [u8; 4] = *b"AshL";
const WHAT: &str = "label";

/// What a drive says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The array.
    pub array: ArrayUuid,
    /// This drive's identity in it.
    pub member: MemberUuid,
    /// Its seat.
    pub seat: MemberId,
    /// Where its parts lie.
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
        w.zeros(2);
        w.u32(self.layout.slot_blocks);
        w.u32(self.layout.zone_blocks);
        w.u32(self.layout.zones);
        w.u64(self.layout.drive_blocks);
        w.text(&self.array_name, NAME_BYTES);
        w.zeros(BLOCK_BYTES - w.len());
        let mut block = w.finish();
        let crc = crc32c(&block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
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
        r.zeros(2, "reserved")?;
        let (slot_blocks, zone_blocks, zones, drive_blocks) = (r.u32()?, r.u32()?, r.u32()?, r.u64()?);
        let array_name = r.text(NAME_BYTES, "name")?;
        r.zeros(r.remaining(), "reserved")?;
        let possible = zone_blocks.is_power_of_two()
            && (ZONE_BLOCKS_MIN..=ZONE_BLOCKS_MAX).contains(&zone_blocks)
            && drive_blocks <= u64::MAX / BLOCK_BYTES as u64;
        match Layout::new(drive_blocks, slot_blocks, zone_blocks) {
            Some(layout) if possible && layout.zones == zones => Ok(Label { array, member, seat, layout, array_name }),
            _ => Err(r.field("layout")),
        }
    }
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
            layout,
            array_name: "fast".into(),
        };
        let mut block = label.encode();
        assert_eq!(Label::decode(&block).unwrap(), label);
        block[60] ^= 1;
        assert_eq!(Label::decode(&block), Err(FormatError::Checksum(WHAT)));
    }

    #[test]
    fn impossible_labels_with_the_right_checksum_are_refused() {
        let layout = Layout::new(1 << 18, 1024, 1024).unwrap();
        let ids = (ArrayUuid(Uuid::from_u128(1)), MemberUuid(Uuid::from_u128(2)));
        let label = Label { array: ids.0, member: ids.1, seat: MemberId(3), layout, array_name: "fast".into() };
        // Offset, value, and the field that is named: zones of no blocks, reserved bytes within and at the end.
        for (at, value, field) in [(56, [0; 4], "layout"), (10, [1; 4], "reserved"), (4092, [1; 4], "reserved")] {
            let mut block = label.encode();
            block[at..at + 4].copy_from_slice(&value);
            let crc = crc32c(&block[4..]);
            block[..4].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Label::decode(&block), Err(FormatError::Field(WHAT, field)), "byte {at}");
        }
    }
}
