//! A map node in memory: runs of slots that say the same, or name blocks behind each other, and a checksum for each block.
//!
//! Data that was written sequentially lies in runs, and takes a fourth of what its node takes on a drive; blocks that were
//! written one by one take a fourth more.
//!
//! Not here: the stored form (`ondisk::map`).

use base::{Pba, SegmentId};
use ondisk::{MapRef, NODE_REFS, Node, Place};

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
const _: () = assert!(size_of::<Run>() == 16);

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
}

/// A node that does not change any more.
#[derive(Debug)]
pub struct Packed {
    runs: Box<[Run]>,
    crcs: Box<[u32]>,
}

impl Packed {
    /// What slot `slot` says.
    pub fn get(&self, slot: usize) -> MapRef {
        assert!(slot < NODE_REFS, "a node has {NODE_REFS} slots");
        self.said(&self.runs[self.run_of(slot)], slot)
    }

    /// What the slots from `first` on say.
    pub fn slots_from(&self, first: usize) -> impl Iterator<Item = MapRef> {
        let mut run = self.run_of(first);
        (first..NODE_REFS).map(move |slot| {
            if self.runs.get(run + 1).is_some_and(|next| usize::from(next.first) == slot) {
                run += 1;
            }
            self.said(&self.runs[run], slot)
        })
    }

    /// The run that speaks of `slot`.
    fn run_of(&self, slot: usize) -> usize {
        self.runs.partition_point(|r| usize::from(r.first) <= slot) - 1
    }

    fn said(&self, run: &Run, slot: usize) -> MapRef {
        let beyond = slot - usize::from(run.first);
        match run.kind {
            Kind::Hole => MapRef::Hole,
            Kind::Zero => MapRef::Zero,
            Kind::Bad => MapRef::Bad,
            Kind::At => MapRef::At(Place {
                pba: Pba { segment: run.segment, block: run.block + beyond as u32 },
                crc: self.crcs[usize::from(run.crc) + beyond],
            }),
        }
    }

    /// All slots, to be changed.
    pub fn to_node(&self) -> Node {
        let mut node = Node::filled(MapRef::Hole);
        node.0.iter_mut().zip(self.slots_from(0)).for_each(|(slot, says)| *slot = says);
        node
    }

    /// Memory it takes, about.
    pub fn bytes(&self) -> u64 {
        (size_of::<Packed>() + size_of_val(&*self.runs) + size_of_val(&*self.crcs)) as u64
    }
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
        Packed { runs: runs.into(), crcs: crcs.into() }
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
        fn says_what_the_node_says(runs in prop::collection::vec((0u8..6, 1usize..40, 0u32..400), 1..80)) {
            let mut slots = runs.into_iter().flat_map(|(kind, n, block)| (0..n).map(move |i| match kind {
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
                prop_assert!(packed.slots_from(slot).eq(node.0[slot..].iter().copied()));
            }
            prop_assert_eq!(packed.to_node(), node);
        }
    }

    #[test]
    fn what_is_sequential_is_small() {
        let mut node = Node::filled(MapRef::Hole);
        (0..NODE_REFS).for_each(|slot| node.0[slot] = at(1 + slot as u64 / 32, slot as u32));
        assert!(Packed::from(&node).bytes() < 1300, "{}", Packed::from(&node).bytes());
        (0..NODE_REFS).for_each(|slot| node.0[slot] = at(1, 2 * slot as u32));
        assert!(Packed::from(&node).bytes() < 5300, "{}", Packed::from(&node).bytes());
    }
}
