//! Acknowledged entries that the trees do not have yet.
//!
//! Invariant: what a table says of a block is newer than what any older table or the trees say; within a table the
//! later call wins.

use std::collections::{BTreeMap, BTreeSet};

use base::{BlockCount, Lba, VolumeId};
use ondisk::{MapRef, NODE_REFS};

/// Facts in the active table at which a checkpoint begins: about 25 MB, and some seconds of replay.
pub const FACTS_MAX: usize = 256 * 1024;

/// A map node to be written again although nothing in it changes, because the cleaner wants its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    /// Whose tree.
    pub volume: VolumeId,
    /// 0: leaf.
    pub level: u8,
    /// First block it covers.
    pub lba: Lba,
}

/// One table.
#[derive(Debug, Default)]
pub struct Memtable {
    blocks: BTreeMap<(VolumeId, u64), MapRef>,
    /// Start to end and fill; ranges of a volume do not overlap.
    ranges: BTreeMap<(VolumeId, u64), (u64, MapRef)>,
    /// Nodes to write again.
    pub touched: BTreeSet<Touch>,
    /// Blocks that may not have been mapped before.
    pub new_blocks: u64,
    /// Leaves that change.
    leaves: BTreeSet<(VolumeId, u64)>,
    last_leaf: Option<(VolumeId, u64)>,
}

impl Memtable {
    /// Says of one block.
    pub fn put(&mut self, volume: VolumeId, lba: Lba, to: MapRef) {
        self.blocks.insert((volume, lba.0), to);
        self.dirty_leaf(volume, lba.0);
    }

    fn dirty_leaf(&mut self, volume: VolumeId, lba: u64) {
        let leaf = (volume, lba / NODE_REFS as u64);
        if self.last_leaf != Some(leaf) {
            self.leaves.insert(leaf);
            self.last_leaf = Some(leaf);
        }
    }

    /// Map nodes that a merge may write, about: the leaves that change, and for each two above (whole trees of
    /// neighbours share these).
    pub fn nodes(&self) -> u64 {
        let leaves = self.leaves.len() as u64;
        leaves + (2 * leaves).min(leaves / 64 + 64) + self.touched.len() as u64
    }

    /// Says of a run of blocks (a fill, not places).
    pub fn put_range(&mut self, volume: VolumeId, lba: Lba, n: BlockCount, fill: MapRef) {
        assert!(!matches!(fill, MapRef::At(_)), "a range says hole, zero or bad");
        let (start, end) = (lba.0, lba.0 + n.0);
        if n.is_empty() {
            return;
        }
        let covered: Vec<_> = self.blocks.range((volume, start)..(volume, end)).map(|(k, _)| *k).collect();
        for key in covered {
            self.blocks.remove(&key);
        }
        let before = self.ranges.range(..(volume, start)).next_back().map(|(k, v)| (*k, *v));
        if let Some(((v, s), (e, f))) = before
            && v == volume
            && e > start
        {
            self.ranges.insert((v, s), (start, f));
            if e > end {
                self.ranges.insert((v, end), (e, f));
            }
        }
        let inside: Vec<_> = self.ranges.range((volume, start)..(volume, end)).map(|(k, v)| (*k, *v)).collect();
        for (key, (e, f)) in inside {
            self.ranges.remove(&key);
            if e > end {
                self.ranges.insert((volume, end), (e, f));
            }
        }
        self.ranges.insert((volume, start), (end, fill));
        // Only its edges change leaves in part; whole ones become a word in their parent.
        self.dirty_leaf(volume, start);
        self.dirty_leaf(volume, end - 1);
    }

    /// Fills in what it says of the blocks from `lba` on, where `out` says nothing yet.
    pub fn overlay(&self, volume: VolumeId, lba: Lba, out: &mut [Option<MapRef>]) {
        let (start, end) = (lba.0, lba.0 + out.len() as u64);
        for ((_, at), to) in self.blocks.range((volume, start)..(volume, end)) {
            out[(at - start) as usize].get_or_insert(*to);
        }
        let first = self.ranges.range(..=(volume, start)).next_back().filter(|((v, _), _)| *v == volume);
        let later = self.ranges.range((volume, start + 1)..(volume, end));
        for ((_, s), (e, fill)) in first.into_iter().chain(later) {
            let (from, to) = ((*s).max(start), (*e).min(end));
            for slot in &mut out[(from - start).min(end - start) as usize..(to.max(from) - start) as usize] {
                slot.get_or_insert(*fill);
            }
        }
    }

    /// Whether it says anything of the blocks `from..to`.
    pub fn says_anything(&self, volume: VolumeId, from: Lba, to: Lba) -> bool {
        let block = self.blocks.range((volume, from.0)..(volume, to.0)).next().is_some();
        let range = self.ranges.range(..(volume, to.0)).next_back();
        block || range.is_some_and(|((v, _), (end, _))| *v == volume && *end > from.0)
    }

    /// Facts held: what memory and replay time grow with.
    pub fn len(&self) -> usize {
        self.blocks.len() + self.ranges.len() + self.touched.len()
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Single blocks, by volume and address.
    pub fn blocks(&self) -> impl Iterator<Item = (VolumeId, Lba, MapRef)> {
        self.blocks.iter().map(|(&(v, lba), &to)| (v, Lba(lba), to))
    }

    /// Ranges, by volume and address: first block, length, fill.
    pub fn ranges(&self) -> impl Iterator<Item = (VolumeId, Lba, BlockCount, MapRef)> {
        self.ranges.iter().map(|(&(v, s), &(e, fill))| (v, Lba(s), BlockCount(e - s), fill))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Pba, SegmentId};
    use ondisk::Place;
    use proptest::prelude::*;

    fn at(n: u32) -> MapRef {
        MapRef::At(Place { pba: Pba { segment: SegmentId(1), block: n }, crc: n })
    }

    proptest! {
        #[test]
        fn says_what_a_plain_array_says(ops in prop::collection::vec((0u64..40, 1u64..20, 0u8..4), 1..60)) {
            const V: VolumeId = VolumeId(3);
            let mut table = Memtable::default();
            let mut plain = vec![None; 64];
            for (i, (lba, n, kind)) in ops.into_iter().enumerate() {
                if kind == 0 {
                    table.put(V, Lba(lba), at(i as u32));
                    plain[lba as usize] = Some(at(i as u32));
                } else {
                    let fill = [MapRef::Hole, MapRef::Zero, MapRef::Bad][usize::from(kind) - 1];
                    table.put_range(V, Lba(lba), BlockCount(n), fill);
                    plain[lba as usize..(lba + n) as usize].fill(Some(fill));
                }
            }
            table.put(VolumeId(2), Lba(5), at(0));
            table.put_range(VolumeId(4), Lba(0), BlockCount(64), MapRef::Zero);
            for (from, len) in [(0usize, 64usize), (7, 9), (20, 1), (63, 1)] {
                let mut out = vec![None; len];
                table.overlay(V, Lba(from as u64), &mut out);
                prop_assert_eq!(&out[..], &plain[from..from + len]);
            }
        }
    }
}
