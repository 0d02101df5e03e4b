//! A map node in memory: runs of slots that say the same, or name blocks behind each other, and a checksum for each block; or,
//! where there are many runs, each slot for itself.
//!
//! ```text
//! words of 32 bits   | runs | first slot of each run, four a word | three for each run | checksums |
//! a run's            | segment, 32 bits | its other 8, kind 8, place of its first checksum 8 | first block |
//! dense, by slots    | three as of a run | checksum |
//! ```
//!
//! All in one piece, so that a look-up waits for memory as seldom as can be: in a dense node once. Data that was written
//! sequentially lies in runs, and takes a fourth of what its node takes on a drive; blocks that were written one by one take
//! as much as there.
//!
//! Not here: the stored form (`ondisk::map`).

use std::hint::select_unpredictable;
use std::rc::Rc;

use base::{Pba, SegmentId};
use ondisk::{MapRef, NODE_REFS, Node, Place};

/// Words of a run.
const RUN_WORDS: usize = 3;

/// Words of a slot of a dense node.
const SLOT_WORDS: usize = RUN_WORDS + 1;

/// Words of a dense node.
const DENSE_WORDS: usize = NODE_REFS * SLOT_WORDS;

/// A node that would have so many words in runs is dense, which takes a sixth more there, and less from 237 runs on. So none in
/// runs has as many as a dense one.
const RUNS_WORDS_MAX: usize = DENSE_WORDS * 6 / 7;

/// What a run's slots say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hole,
    Zero,
    Bad,
    At,
}

/// Slots from `first` to the next run's.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Where the first slot's block is.
    segment: SegmentId,
    block: u32,
    first: u8,
    /// Its checksum's place among the checksums.
    crc: u8,
    kind: Kind,
}

impl Run {
    fn begin(first: usize, crcs: usize, what: MapRef) -> Run {
        // A run without blocks may begin behind the last checksum; it never looks at them.
        let run = Run { segment: SegmentId(0), block: 0, first: first as u8, crc: crcs as u8, kind: Kind::Hole };
        match what {
            MapRef::Hole => run,
            MapRef::Zero => Run { kind: Kind::Zero, ..run },
            MapRef::Bad => Run { kind: Kind::Bad, ..run },
            MapRef::At(Place { pba, .. }) => Run { segment: pba.segment, block: pba.block, kind: Kind::At, ..run },
        }
    }

    /// Whether slot `slot`, which is not before this run's first, says what the run would say of it.
    fn goes_on(&self, slot: usize, what: MapRef) -> bool {
        match what {
            MapRef::Hole => self.kind == Kind::Hole,
            MapRef::Zero => self.kind == Kind::Zero,
            MapRef::Bad => self.kind == Kind::Bad,
            MapRef::At(Place { pba, .. }) => {
                let next = self.block.checked_add((slot - usize::from(self.first)) as u32);
                self.kind == Kind::At && self.segment == pba.segment && next == Some(pba.block)
            }
        }
    }

    fn to_words(self) -> [u32; RUN_WORDS] {
        let high = (self.segment.0 >> 32) as u32;
        [self.segment.0 as u32, high | (self.kind as u32) << 8 | u32::from(self.crc) << 16, self.block]
    }
}

/// A node that does not change any more. Clones share it.
#[derive(Clone, Debug)]
pub struct Packed(Rc<[u32]>);

impl Packed {
    /// What slot `slot` says.
    pub fn get(&self, slot: usize) -> MapRef {
        assert!(slot < NODE_REFS, "a node has {NODE_REFS} slots");
        match self.dense() {
            Some(slots) => of_slot(slots, slot),
            None => self.said(self.run_of(slot), slot),
        }
    }

    /// Where the block of slot `slot` is; none when it is nowhere.
    pub fn place(&self, slot: usize) -> Option<Place> {
        match self.get(slot) {
            MapRef::At(place) => Some(place),
            MapRef::Hole | MapRef::Zero | MapRef::Bad => None,
        }
    }

    /// What slot `slot` says, and the first slot behind it that is of another run.
    pub fn run_at(&self, slot: usize) -> (MapRef, usize) {
        if let Some(slots) = self.dense() {
            let says = of_slot(slots, slot);
            let run = Run::begin(slot, 0, says);
            let goes_on = |next: &usize| run.goes_on(*next, of_slot(slots, *next));
            return (says, slot + 1 + (slot + 1..NODE_REFS).take_while(goes_on).count());
        }
        let run = self.run_of(slot);
        let end = if run + 1 < self.runs() { self.first_of(run + 1) } else { NODE_REFS };
        (self.said(run, slot), end)
    }

    /// What the slots from `first` on say.
    pub fn slots_from(&self, first: usize) -> impl Iterator<Item = MapRef> {
        let dense = self.dense();
        let mut run = if dense.is_some() { 0 } else { self.run_of(first) };
        (first..NODE_REFS).map(move |slot| {
            if let Some(slots) = dense {
                return of_slot(slots, slot);
            }
            if run + 1 < self.runs() && self.first_of(run + 1) == slot {
                run += 1;
            }
            self.said(run, slot)
        })
    }

    /// The words of a dense node.
    #[inline]
    fn dense(&self) -> Option<&[u32; DENSE_WORDS]> {
        (&*self.0).try_into().ok()
    }

    fn runs(&self) -> usize {
        self.0[0] as usize
    }

    fn first_of(&self, run: usize) -> usize {
        (self.0[1 + run / 4] >> (8 * (run % 4)) & 0xff) as usize
    }

    /// Where the words of runs begin.
    fn runs_at(&self) -> usize {
        1 + self.runs().div_ceil(4)
    }

    /// The run that speaks of `slot`.
    fn run_of(&self, slot: usize) -> usize {
        let (mut low, mut left) = (0, self.runs());
        // Without branches: half of them would be foreseen wrongly, and what comes after waits for each.
        while left > 1 {
            let half = left / 2;
            low = select_unpredictable(self.first_of(low + half) <= slot, low + half, low);
            left -= half;
        }
        low
    }

    #[inline]
    fn said(&self, run: usize, slot: usize) -> MapRef {
        let at = self.runs_at() + run * RUN_WORDS;
        let words = [self.0[at], self.0[at + 1], self.0[at + 2]];
        let beyond = slot - self.first_of(run);
        let crcs = self.runs_at() + self.runs() * RUN_WORDS;
        says(words, beyond as u32, || self.0[crcs + (words[1] >> 16) as usize + beyond])
    }

    /// All slots, to be changed.
    pub fn to_node(&self) -> Node {
        let mut node = Node::filled(MapRef::Hole);
        match self.dense() {
            Some(slots) => node.0.iter_mut().enumerate().for_each(|(n, slot)| *slot = of_slot(slots, n)),
            None => node.0.iter_mut().zip(self.slots_from(0)).for_each(|(slot, says)| *slot = says),
        }
        node
    }

    /// Memory it takes, about.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }
}

/// What the words of a run say of its block `beyond` the first.
#[inline]
fn says(words: [u32; RUN_WORDS], beyond: u32, crc: impl FnOnce() -> u32) -> MapRef {
    match words[1] >> 8 & 0xff {
        k if k == Kind::At as u32 => {
            let segment = SegmentId(u64::from(words[0]) | u64::from(words[1] & 0xff) << 32);
            MapRef::At(Place { pba: Pba { segment, block: words[2] + beyond }, crc: crc() })
        }
        k if k == Kind::Zero as u32 => MapRef::Zero,
        k if k == Kind::Bad as u32 => MapRef::Bad,
        _ => MapRef::Hole,
    }
}

/// What a slot of a dense node says.
#[inline]
fn of_slot(slots: &[u32; DENSE_WORDS], slot: usize) -> MapRef {
    let at = slot * SLOT_WORDS;
    says([slots[at], slots[at + 1], slots[at + 2]], 0, || slots[at + RUN_WORDS])
}

impl From<&Node> for Packed {
    fn from(node: &Node) -> Packed {
        let (mut runs, mut crcs) = (Vec::<Run>::new(), Vec::new());
        for (slot, what) in node.0.iter().enumerate() {
            if !runs.last().is_some_and(|run| run.goes_on(slot, *what)) {
                runs.push(Run::begin(slot, crcs.len(), *what));
            }
            if let MapRef::At(place) = what {
                crcs.push(place.crc);
            }
        }
        let words = 1 + runs.len().div_ceil(4) + runs.len() * RUN_WORDS + crcs.len();
        if words >= RUNS_WORDS_MAX {
            let slot = |what: &MapRef| {
                let [a, b, c] = Run::begin(0, 0, *what).to_words();
                let crc = if let MapRef::At(place) = what { place.crc } else { 0 };
                [a, b, c, crc]
            };
            return Packed(node.0.iter().flat_map(slot).collect());
        }
        let four = |firsts: &[Run]| firsts.iter().rev().fold(0, |word, run| word << 8 | u32::from(run.first));
        let mut words = Vec::with_capacity(words);
        words.push(runs.len() as u32);
        words.extend(runs.chunks(4).map(four));
        words.extend(runs.iter().flat_map(|run| run.to_words()));
        words.append(&mut crcs);
        Packed(words.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(segment: u64, block: u32) -> MapRef {
        MapRef::At(Place { pba: Pba { segment: SegmentId(segment), block }, crc: block.wrapping_mul(77) })
    }

    proptest! {
        #[test]
        fn says_what_the_node_says(
            lowest in 0u8..5,
            longest in 1usize..40,
            runs in prop::collection::vec((0u8..6, 0usize..40, 0u32..400), 1..300),
        ) {
            // From 3 on all slots name blocks, as in most nodes; runs of one slot each are what random writes leave.
            let runs = runs.into_iter().map(|(kind, n, block)| (kind.max(lowest), 1 + n % longest, block));
            let mut slots = runs.flat_map(|(kind, n, block)| (0..n).map(move |i| match kind {
                0 => MapRef::Hole,
                1 => MapRef::Zero,
                2 => MapRef::Bad,
                3 => at(u64::from(block), u32::MAX),
                _ => at(u64::from(kind), block + i as u32),
            }));
            let mut node = Node::filled(MapRef::Hole);
            node.0.fill_with(|| slots.next().unwrap_or_default());
            let packed = Packed::from(&node);
            for slot in 0..NODE_REFS {
                prop_assert_eq!(packed.get(slot), node.0[slot]);
                let (says, end) = packed.run_at(slot);
                prop_assert_eq!(says, node.0[slot]);
                let is_alike = |s: &MapRef| matches!(s, MapRef::At(_)) || *s == says;
                prop_assert!(slot < end && node.0[slot..end].iter().all(is_alike));
                let goes_on = node.0.get(end).is_some_and(|s| *s == says && !matches!(s, MapRef::At(_)));
                prop_assert!(!goes_on);
                prop_assert!(packed.slots_from(slot).eq(node.0[slot..].iter().copied()));
            }
            prop_assert_eq!(packed.to_node(), node);
        }
    }

    #[test]
    fn many_runs_are_dense() {
        let mut node = Node::filled(MapRef::Hole);
        for (runs, dense) in [(190, false), (192, true), (NODE_REFS, true)] {
            // The last one goes to the end.
            (0..NODE_REFS).for_each(|slot| node.0[slot] = at(slot.min(runs - 1) as u64, slot as u32));
            for empty in [None, Some(0), Some(100)] {
                if let Some(slot) = empty {
                    node.0[slot] = MapRef::Zero;
                }
                let packed = Packed::from(&node);
                assert_eq!(packed.dense().is_some(), dense, "{runs} runs");
                assert!((0..NODE_REFS).all(|slot| packed.get(slot) == node.0[slot]), "{runs} runs, empty: {empty:?}");
                assert_eq!(packed.to_node(), node);
                assert_eq!(packed.run_at(runs - 1).1, NODE_REFS);
            }
        }
    }

    #[test]
    fn what_is_sequential_is_small() {
        let mut node = Node::filled(MapRef::Hole);
        (0..NODE_REFS).for_each(|slot| node.0[slot] = at(1 + slot as u64 / 32, slot as u32));
        assert!(Packed::from(&node).bytes() < 1300, "{}", Packed::from(&node).bytes());
        (0..NODE_REFS).for_each(|slot| node.0[slot] = at(1, 2 * slot as u32));
        assert_eq!(Packed::from(&node).bytes(), 4096);
    }
}
