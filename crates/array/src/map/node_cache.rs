//! Map nodes in memory, by place: as many as fit in what the user gives them.
//!
//! Invariant: a place names one content for ever, so nothing here is ever wrong. What the trees no longer have is forgotten
//! at once: it has been asked for often, and would keep out what came in its place.
//!
//! Not here: reading them (`map`).

use std::cell::{Cell, Ref, RefCell};

use base::Pba;
use foldhash::fast::FixedState;
use quick_cache::Weighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};

use crate::map::packed::Packed;

/// What map nodes take in memory unless the user says otherwise: the leaves of 40 to 180 GiB.
const MAP_MEMORY_BYTES: u64 = 256 << 20;

/// What a node takes beside itself: its place, its entry, its allocations.
const OVERHEAD_BYTES: u64 = 128;

/// A node of data that was written in pieces of 128 KiB: tells how many nodes that went are remembered as such.
const USUAL_BYTES: u64 = 1400;

#[derive(Clone)]
struct InMemory;

impl Weighter<Pba, Packed> for InMemory {
    fn weight(&self, _: &Pba, node: &Packed) -> u64 {
        node.bytes() + OVERHEAD_BYTES
    }
}

/// The hash is always the same, so that a seed of the simulator is, too.
type Nodes = Cache<Pba, Packed, InMemory, FixedState>;

/// Map nodes in memory.
#[derive(Clone, Copy, Debug)]
pub struct MapMemory {
    /// What they take.
    pub bytes: u64,
    /// What they may take.
    pub bytes_max: u64,
    /// Nodes that were there when they were asked for, since the array was opened.
    pub hits: u64,
    /// Nodes that had to be read.
    pub misses: u64,
}

/// The cache.
pub struct NodeCache {
    nodes: RefCell<Nodes>,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl Default for NodeCache {
    fn default() -> NodeCache {
        NodeCache { nodes: RefCell::new(sized(MAP_MEMORY_BYTES)), hits: Cell::new(0), misses: Cell::new(0) }
    }
}

fn sized(bytes: u64) -> Nodes {
    let usual = (bytes / USUAL_BYTES).max(1) as usize;
    Cache::with(usual, bytes, InMemory, FixedState::default(), DefaultLifecycle::default())
}

impl NodeCache {
    /// Begins anew with room for `bytes`.
    pub fn resize(&self, bytes: u64) {
        *self.nodes.borrow_mut() = sized(bytes);
    }

    /// Remembers.
    pub fn put(&self, at: Pba, node: Packed) {
        self.nodes.borrow_mut().insert(at, node);
    }

    /// Nobody will ask for these.
    pub fn forget(&self, places: &[Pba]) {
        let mut nodes = self.nodes.borrow_mut();
        for at in places {
            nodes.remove(at);
        }
    }

    /// The node at a place, if it is here.
    pub fn get(&self, at: Pba) -> Option<Packed> {
        let node = self.nodes.borrow().get(&at).cloned();
        let tally = if node.is_some() { &self.hits } else { &self.misses };
        tally.set(tally.get() + 1);
        node
    }

    /// To look nodes up one after the other; not across an `.await`.
    #[inline]
    pub fn read(&self) -> Look<'_> {
        Look { nodes: self.nodes.borrow(), hits: &self.hits }
    }

    /// How it does.
    pub fn memory(&self) -> MapMemory {
        MapMemory {
            bytes: self.nodes.borrow().weight(),
            bytes_max: self.nodes.borrow().capacity(),
            hits: self.hits.get(),
            misses: self.misses.get(),
        }
    }
}

/// A look at nodes that are here.
pub struct Look<'a> {
    nodes: Ref<'a, Nodes>,
    hits: &'a Cell<u64>,
}

impl Look<'_> {
    /// The node at a place, if it is here; not counted yet.
    #[inline]
    pub fn look(&self, at: Pba) -> Option<&Packed> {
        self.nodes.get(&at)
    }

    /// So many were here when they were looked for.
    #[inline]
    pub fn found(&self, nodes: u64) {
        self.hits.set(self.hits.get() + nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::SegmentId;
    use ondisk::{MapRef, Node};

    #[test]
    fn no_more_than_the_user_gives() {
        let cache = NodeCache::default();
        cache.resize(100_000);
        let node = Packed::from(&Node::filled(MapRef::Zero));
        let at = |block| Pba { segment: SegmentId(1), block };
        (0..10_000).for_each(|block| cache.put(at(block), node.clone()));
        let there = (0..10_000).filter(|block| cache.get(at(*block)).is_some()).count() as u64;
        let status = cache.memory();
        assert!(status.bytes <= 100_000 && there * (node.bytes() + OVERHEAD_BYTES) == status.bytes, "{status:?}");
        assert!(there > 300 && (status.hits, status.misses) == (there, 10_000 - there), "{status:?}");
    }
}
