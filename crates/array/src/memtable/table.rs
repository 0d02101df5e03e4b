//! Acknowledged entries that the trees do not have yet.
//!
//! Invariant: what a table says of a block is newer than what any older table or the trees say; within a table the
//! later call wins.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use base::{BlockCount, Lba, VolumeId};
use ondisk::{MapRef, NODE_REFS};

/// What a fact takes in memory where each lies in a leaf of its own; a sixth of it where they lie together.
pub const FACT_BYTES: u64 = 240;

/// Facts in the active table at which a checkpoint begins unless the user says otherwise: 60 MiB at most, and some seconds of
/// replay.
pub const FACTS_MAX: u64 = 256 * 1024;

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

/// What is said of single blocks of one leaf.
#[derive(Debug, Default)]
struct Leaf {
    /// A bit for each slot that something is said of.
    said: [u64; NODE_REFS / 64],
    /// What, in the order of the slots.
    refs: Vec<MapRef>,
}

impl Leaf {
    /// How many slots before `slot` something is said of.
    fn before(&self, slot: usize) -> usize {
        let word = |(i, w): (usize, &u64)| match (i * 64..i * 64 + 64).contains(&slot) {
            true => (w & ((1 << (slot % 64)) - 1)).count_ones(),
            false => w.count_ones(),
        };
        self.said.iter().enumerate().take(slot / 64 + 1).map(word).sum::<u32>() as usize
    }

    /// Where what is said of these slots is.
    fn places(&self, slots: &Range<usize>) -> Range<usize> {
        self.before(slots.start)..self.before(slots.end)
    }

    /// Says of these slots; how many of them were not spoken of before.
    fn put(&mut self, slots: Range<usize>, to: impl Iterator<Item = MapRef>) -> usize {
        let places = self.places(&slots);
        let new = slots.len() - places.len();
        match (new, slots.len()) {
            (0, _) => self.refs[places].iter_mut().zip(to).for_each(|(said, to)| *said = to),
            // `splice` would collect it first.
            (1, 1) => to.for_each(|to| self.refs.insert(places.start, to)),
            _ => drop(self.refs.splice(places, to)),
        }
        if new > 0 {
            slots.for_each(|s| self.said[s / 64] |= 1 << (s % 64));
        }
        new
    }

    /// Says nothing of these slots any more; how many it spoke of.
    fn clear(&mut self, slots: Range<usize>) -> usize {
        let places = self.places(&slots);
        slots.for_each(|s| self.said[s / 64] &= !(1 << (s % 64)));
        self.refs.drain(places).len()
    }

    /// What it says of these slots, in their order.
    fn get(&self, slots: Range<usize>) -> impl Iterator<Item = (usize, MapRef)> {
        let refs = &self.refs[self.places(&slots)];
        slots.filter(|s| self.said[s / 64] >> (s % 64) & 1 == 1).zip(refs.iter().copied())
    }
}

/// The numbers of the leaves that blocks lie in.
fn leaves_of(blocks: &Range<u64>) -> Range<u64> {
    blocks.start / NODE_REFS as u64..blocks.end.div_ceil(NODE_REFS as u64)
}

/// The slots of a leaf that lie within `blocks`.
fn slots_of(leaf: u64, blocks: &Range<u64>) -> Range<usize> {
    let (first, end) = (leaf * NODE_REFS as u64, (leaf + 1) * NODE_REFS as u64);
    (blocks.start.max(first) - first) as usize..(blocks.end.min(end) - first) as usize
}

/// What a table says of the next blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing.
    Nothing,
    /// All of them this.
    Fill(MapRef),
    /// Of the first one where it is.
    Block,
}

/// Leaves of which nothing is said that one look passes by.
const EMPTY_LEAVES: usize = 64;

/// One table.
#[derive(Debug, Default)]
pub struct Memtable {
    /// Leaves that change, by volume and number; one that only a range touches says nothing of single blocks.
    leaves: BTreeMap<(VolumeId, u64), Leaf>,
    /// Single blocks in all leaves, and those of each volume that were written.
    blocks: usize,
    written: BTreeMap<VolumeId, u64>,
    /// Start to end and fill; ranges of a volume do not overlap.
    ranges: BTreeMap<(VolumeId, u64), (u64, MapRef)>,
    /// Leaves that ranges covered whole when they were put.
    covered: u64,
    /// Nodes to write again.
    pub touched: BTreeSet<Touch>,
    /// Blocks that may not have been mapped before.
    pub new_blocks: u64,
    /// Blocks of data columns that the log keeps for its replay: headers and padding of its records, too.
    pub kept: u64,
}

impl Memtable {
    /// Says of the blocks from `lba` on; of how many nothing was said before.
    pub fn put(&mut self, volume: VolumeId, lba: Lba, to: impl ExactSizeIterator<Item = MapRef>) -> u64 {
        let blocks = lba.0..lba.0 + to.len() as u64;
        let (mut to, mut said) = (to, 0);
        for leaf in leaves_of(&blocks) {
            let slots = slots_of(leaf, &blocks);
            let of_leaf = to.by_ref().take(slots.len());
            said += self.leaves.entry((volume, leaf)).or_default().put(slots, of_leaf);
        }
        self.blocks += said;
        said as u64
    }

    /// The same of blocks that were written, not moved.
    pub fn put_written(&mut self, volume: VolumeId, lba: Lba, to: impl ExactSizeIterator<Item = MapRef>) {
        let said = self.put(volume, lba, to);
        *self.written.entry(volume).or_default() += said;
    }

    /// Blocks of a volume that were written, each once, and may not have been mapped before.
    pub fn written(&self, volume: VolumeId) -> u64 {
        self.written.get(&volume).copied().unwrap_or(0)
    }

    fn no_longer(&mut self, volume: VolumeId, said: usize) {
        self.blocks -= said;
        if let Some(written) = self.written.get_mut(&volume) {
            *written = written.saturating_sub(said as u64);
        }
    }

    /// The leaves of `blocks`, and which of their slots.
    fn leaves_in(&self, volume: VolumeId, blocks: Range<u64>) -> impl Iterator<Item = (u64, &Leaf, Range<usize>)> {
        let leaves = leaves_of(&blocks);
        let there = self.leaves.range((volume, leaves.start)..(volume, leaves.end));
        there.map(move |(&(_, leaf), said)| (leaf, said, slots_of(leaf, &blocks)))
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
        let blocks = start..end;
        let leaves = leaves_of(&blocks);
        // Nothing is said any more of single blocks of whole leaves: they are gone, and nobody comes by them again.
        let whole = start.div_ceil(NODE_REFS as u64)..end / NODE_REFS as u64;
        if whole.start < whole.end {
            let gone = self.leaves.extract_if((volume, whole.start)..(volume, whole.end), |_, _| true);
            let said = gone.map(|(_, said)| said.refs.len()).sum();
            self.no_longer(volume, said);
        }
        for leaf in [leaves.start, leaves.end - 1] {
            if let Some(said) = self.leaves.get_mut(&(volume, leaf)) {
                let said = said.clear(slots_of(leaf, &blocks));
                self.no_longer(volume, said);
            }
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
        self.covered += (leaves.end - leaves.start).saturating_sub(2);
        // Only its edges change leaves in part; whole ones become a word in their parent.
        for edge in [leaves.start, leaves.end - 1] {
            self.leaves.entry((volume, edge)).or_default();
        }
    }

    /// What it says of one block.
    pub fn get(&self, volume: VolumeId, lba: Lba) -> Option<MapRef> {
        let (leaf, slot) = (lba.0 / NODE_REFS as u64, (lba.0 % NODE_REFS as u64) as usize);
        let said = self.leaves.get(&(volume, leaf)).and_then(|said| said.get(slot..slot + 1).next());
        if let Some((_, to)) = said {
            return Some(to);
        }
        let before = self.ranges.range(..=(volume, lba.0)).next_back();
        before.filter(|((v, _), (end, _))| *v == volume && *end > lba.0).map(|(_, (_, fill))| *fill)
    }

    /// Fills in what it says of the blocks from `lba` on, where `out` says nothing yet.
    pub fn overlay(&self, volume: VolumeId, lba: Lba, out: &mut [Option<MapRef>]) {
        let (start, end) = (lba.0, lba.0 + out.len() as u64);
        for (leaf, said, slots) in self.leaves_in(volume, start..end) {
            for (slot, to) in said.get(slots) {
                out[(leaf * NODE_REFS as u64 + slot as u64 - start) as usize].get_or_insert(to);
            }
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
        let block = self.leaves_in(volume, from.0..to.0).any(|(_, said, slots)| !said.places(&slots).is_empty());
        let range = self.ranges.range(..(volume, to.0)).next_back();
        block || range.is_some_and(|((v, _), (end, _))| *v == volume && *end > from.0)
    }

    /// What it says of the blocks from `lba` on, and up to where, `end` at most.
    pub fn run(&self, volume: VolumeId, lba: Lba, end: Lba) -> (Said, Lba) {
        let before = self.ranges.range(..=(volume, lba.0)).next_back();
        let (said, until) = match before.filter(|((v, _), (end, _))| *v == volume && *end > lba.0) {
            Some((_, (range_end, fill))) => (Said::Fill(*fill), end.0.min(*range_end)),
            None => {
                let next = self.ranges.range((volume, lba.0)..(volume, end.0)).next();
                (Said::Nothing, next.map_or(end.0, |((_, start), _)| *start))
            }
        };
        for (n, (leaf, says, slots)) in self.leaves_in(volume, lba.0..until).enumerate() {
            let first = leaf * NODE_REFS as u64;
            if let Some((slot, _)) = says.get(slots).next() {
                let block = first + slot as u64;
                return if block == lba.0 { (Said::Block, Lba(block + 1)) } else { (said, Lba(block)) };
            }
            if n == EMPTY_LEAVES {
                return (said, Lba((first + NODE_REFS as u64).min(until)));
            }
        }
        (said, Lba(until))
    }

    /// Where the blocks from `from` on end that lie in so many leaves of which something is said, `to` at most.
    pub fn end_of_leaves(&self, volume: VolumeId, from: Lba, to: Lba, leaves: usize) -> Lba {
        let next = self.leaves_in(volume, from.0..to.0).nth(leaves);
        next.map_or(to, |(leaf, ..)| Lba(leaf * NODE_REFS as u64).max(Lba(from.0 + 1)))
    }

    /// Ranges of one volume, by address: first block, length, fill.
    pub fn ranges_of(&self, volume: VolumeId) -> impl Iterator<Item = (Lba, BlockCount, MapRef)> {
        let ranges = self.ranges.range((volume, 0)..=(volume, u64::MAX));
        ranges.map(|(&(_, s), &(e, fill))| (Lba(s), BlockCount(e - s), fill))
    }

    /// Facts held: what memory and replay time grow with.
    pub fn len(&self) -> usize {
        self.blocks + self.ranges.len() + self.touched.len()
    }

    /// What a merge takes memory and time for: each fact, and each leaf within a range.
    pub fn weight(&self) -> u64 {
        self.len() as u64 + self.covered
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Single blocks of a volume, leaf by leaf: its number, and slots in their order.
    pub fn leaves(&self, volume: VolumeId) -> impl Iterator<Item = (u64, impl Iterator<Item = (usize, MapRef)>)> {
        let leaves = self.leaves.range((volume, 0)..=(volume, u64::MAX));
        leaves.map(|(&(_, leaf), said)| (leaf, said.get(0..NODE_REFS)))
    }

    /// Of the slots of one leaf below `end`, in their order.
    pub fn slots(&self, volume: VolumeId, leaf: u64, end: usize) -> impl Iterator<Item = (usize, MapRef)> {
        let said = (end > 0).then(|| self.leaves.get(&(volume, leaf))).flatten();
        said.into_iter().flat_map(move |said| said.get(0..end))
    }

    /// Lets go of what is said of so many leaves; whether that was all. For one that nobody asks any more.
    pub fn forget(&mut self, leaves: usize) -> bool {
        (0..leaves).for_each(|_| drop(self.leaves.pop_first()));
        self.leaves.is_empty()
    }

    /// Whether it has ranges.
    pub fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
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
        fn says_what_a_plain_array_says(ops in prop::collection::vec((230u64..270, 1u64..20, 0u8..4), 1..60)) {
            const V: VolumeId = VolumeId(3);
            let mut table = Memtable::default();
            // Blocks from 230 on, so that runs go over the edge of a leaf.
            let mut plain = vec![None; 64];
            let index = |lba: u64| (lba - 230) as usize;
            for (i, (lba, n, kind)) in ops.into_iter().enumerate() {
                if kind == 0 {
                    table.put(V, Lba(lba), (0..n as u32).map(|j| at(i as u32 + j)));
                    (0..n).for_each(|j| plain[index(lba + j)] = Some(at(i as u32 + j as u32)));
                } else {
                    let fill = [MapRef::Hole, MapRef::Zero, MapRef::Bad][usize::from(kind) - 1];
                    table.put_range(V, Lba(lba), BlockCount(n), fill);
                    plain[index(lba)..index(lba + n)].fill(Some(fill));
                }
            }
            for (i, said) in plain.iter().enumerate() {
                prop_assert_eq!(table.get(V, Lba(230 + i as u64)), *said);
            }
            let single = plain.iter().filter(|said| matches!(said, Some(MapRef::At(_)))).count();
            prop_assert_eq!(table.leaves(V).flat_map(|(_, slots)| slots).count(), single);
            prop_assert_eq!(table.len(), single + table.ranges_of(V).count());
            table.put(VolumeId(2), Lba(235), [at(0)].into_iter());
            table.put_range(VolumeId(4), Lba(200), BlockCount(100), MapRef::Zero);
            for (from, len) in [(0usize, 64usize), (7, 9), (20, 1), (63, 1)] {
                let mut out = vec![None; len];
                table.overlay(V, Lba(230 + from as u64), &mut out);
                prop_assert_eq!(&out[..], &plain[from..from + len]);
                let (start, end) = (Lba(230 + from as u64), Lba(230 + (from + len) as u64));
                prop_assert_eq!(table.says_anything(V, start, end), out.iter().any(Option::is_some));
            }
            let mut at = Lba(230);
            while at < Lba(294) {
                let (said, until) = table.run(V, at, Lba(294));
                prop_assert!(at < until && until <= Lba(294));
                let expected = |lba: u64| match plain[index(lba)] {
                    None => Said::Nothing,
                    Some(MapRef::At(_)) => Said::Block,
                    Some(fill) => Said::Fill(fill),
                };
                prop_assert!((at.0..until.0).all(|lba| expected(lba) == said), "{:?} up to {}", said, until);
                at = until;
            }
        }
    }
}
