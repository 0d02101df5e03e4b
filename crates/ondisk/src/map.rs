//! The map's bytes: references, and the 4 KiB nodes that hold 256 of them.
//!
//! ```text
//! reference, 16 bytes   | segment 5 | kind 1 | reserved 2 | block 4 | CRC-32C 4 |
//! leaf                  256 references to data blocks: 1 MiB of a volume
//! inner node            256 references to nodes of the level below
//! ```
//!
//! A node carries no header: its parent holds its checksum, and the record it lies in names it.

use base::{Pba, SegmentId};
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::FormatError;
use crate::crc::crc32c;

/// References in a node.
pub const NODE_REFS: usize = 256;

/// Segment ids must stay below this (40 bits).
pub const SEGMENT_ID_LIMIT: u64 = 1 << 40;

const KIND_HOLE: u8 = 0;
const KIND_AT: u8 = 1;
const KIND_ZERO: u8 = 2;
const KIND_BAD: u8 = 3;

/// A block's place and the checksum its contents must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where.
    pub pba: Pba,
    /// CRC-32C of the block.
    pub crc: u32,
}

/// What a map slot says of its block, or of all blocks below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapRef {
    /// Never written or deallocated: reads zeros.
    #[default]
    Hole,
    /// Stored there.
    At(Place),
    /// Written with zeros: reads zeros, nothing stored.
    Zero,
    /// Lost: a medium error until overwritten.
    Bad,
}

/// The stored form of a [`MapRef`].
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct RawRef {
    segment: [u8; 5],
    kind: u8,
    reserved: [u8; 2],
    block: U32,
    crc: U32,
}
const _: () = assert!(size_of::<RawRef>() == 16);

impl From<MapRef> for RawRef {
    fn from(r: MapRef) -> RawRef {
        let empty = |kind| RawRef { segment: [0; 5], kind, reserved: [0; 2], block: U32::ZERO, crc: U32::ZERO };
        match r {
            MapRef::Hole => empty(KIND_HOLE),
            MapRef::Zero => empty(KIND_ZERO),
            MapRef::Bad => empty(KIND_BAD),
            MapRef::At(place) => {
                let id = place.pba.segment.0;
                assert!(id < SEGMENT_ID_LIMIT, "segment ids fit 40 bits");
                let mut segment = [0; 5];
                segment.copy_from_slice(&id.to_le_bytes()[..5]);
                RawRef {
                    segment,
                    kind: KIND_AT,
                    reserved: [0; 2],
                    block: U32::new(place.pba.block),
                    crc: U32::new(place.crc),
                }
            }
        }
    }
}

impl RawRef {
    /// The checked value.
    ///
    /// # Errors
    /// On an unknown kind, or bytes that should be zero.
    pub fn verify(&self) -> Result<MapRef, FormatError> {
        let bad = FormatError::Field("map reference", "kind");
        let empty = self.segment == [0; 5] && self.block.get() == 0 && self.crc.get() == 0;
        if self.reserved != [0; 2] || (self.kind != KIND_AT && !empty) {
            return Err(bad);
        }
        match self.kind {
            KIND_HOLE => Ok(MapRef::Hole),
            KIND_ZERO => Ok(MapRef::Zero),
            KIND_BAD => Ok(MapRef::Bad),
            KIND_AT => {
                let mut id = [0; 8];
                id[..5].copy_from_slice(&self.segment);
                Ok(MapRef::At(Place {
                    pba: Pba { segment: SegmentId(u64::from_le_bytes(id)), block: self.block.get() },
                    crc: self.crc.get(),
                }))
            }
            _ => Err(bad),
        }
    }
}

/// A node of the map: a leaf or an inner node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node(pub Box<[MapRef; NODE_REFS]>);

impl Node {
    /// All slots saying the same.
    #[must_use]
    pub fn filled(with: MapRef) -> Node {
        Node(Box::new([with; NODE_REFS]))
    }

    /// The stored form into `block` (4096 bytes); its checksum.
    pub fn encode(&self, block: &mut [u8]) -> u32 {
        assert_eq!(block.len(), base::BLOCK_BYTES);
        for (r, raw) in self.0.iter().zip(block.as_chunks_mut::<16>().0) {
            raw.copy_from_slice(RawRef::from(*r).as_bytes());
        }
        crc32c(block)
    }

    /// A node from `block`, whose checksum the caller has matched.
    ///
    /// # Errors
    /// On an impossible reference.
    pub fn decode(block: &[u8]) -> Result<Node, FormatError> {
        let short = FormatError::Short("map node");
        let raws = <[RawRef; NODE_REFS]>::ref_from_bytes(block).map_err(|_| short)?;
        let mut node = Node::filled(MapRef::Hole);
        for (slot, raw) in node.0.iter_mut().zip(raws) {
            *slot = raw.verify()?;
        }
        Ok(node)
    }

    /// The common contents when all slots say the same and none is stored: such a node need not exist.
    #[must_use]
    pub fn uniform(&self) -> Option<MapRef> {
        let first = self.0[0];
        let same = !matches!(first, MapRef::At(_)) && self.0.iter().all(|r| *r == first);
        same.then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_round_trip() {
        let mut node = Node::filled(MapRef::Hole);
        node.0[3] = MapRef::Zero;
        node.0[4] = MapRef::Bad;
        let pba = Pba { segment: SegmentId(SEGMENT_ID_LIMIT - 1), block: 77 };
        node.0[5] = MapRef::At(Place { pba, crc: 0xdead_beef });
        let mut block = vec![0; 4096];
        node.encode(&mut block);
        assert_eq!(Node::decode(&block).unwrap(), node);
    }

    #[test]
    fn impossible_references_are_refused() {
        for (at, value) in [(5, 9u8), (6, 1), (8, 1)] {
            let mut block = vec![0; 4096];
            block[at] = value;
            assert!(Node::decode(&block).is_err(), "byte {at}");
        }
        assert!(Node::decode(&[0; 100]).is_err());
    }
}
