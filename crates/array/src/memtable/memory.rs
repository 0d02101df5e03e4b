//! What is newer than the trees: the memtables.
//!
//! Entries go to the active one. A checkpoint freezes it, merges it into the trees, and drops it when these are published.

use std::cell::{Cell, Ref, RefCell};
use std::ops::Range;
use std::rc::Rc;

use base::{BlockCount, Lba, Pba, VolumeId};
use ondisk::{Entry, MapRef, Place, ReplayFrom};

use super::table::{FACTS_MAX, Memtable, Touch};
use crate::canary::{Canary, planted};

/// The memtables, to be looked at.
#[derive(Default)]
pub struct Tables {
    /// Newest.
    pub active: Memtable,
    /// Older; `Some` from freeze to publish.
    pub frozen: Option<Rc<Memtable>>,
    /// Where replay begins once the frozen one is in the trees.
    frozen_from: ReplayFrom,
}

impl Tables {
    /// The frozen one, where a reader must look into it, too.
    #[inline]
    pub fn older(&self) -> Option<&Rc<Memtable>> {
        self.frozen.as_ref().filter(|_| !planted(Canary::FrozenTableForgotten))
    }

    /// Facts in both.
    pub fn weight(&self) -> u64 {
        self.active.weight() + self.frozen.as_ref().map_or(0, |f| f.weight())
    }

    /// Map nodes that both may add.
    pub fn nodes(&self) -> u64 {
        self.active.nodes() + self.frozen.as_ref().map_or(0, |f| f.nodes())
    }

    /// Entries in both.
    pub fn len(&self) -> usize {
        self.active.len() + self.frozen.as_ref().map_or(0, |f| f.len())
    }
}

/// Their owner.
pub struct Memory {
    tables: RefCell<Tables>,
    /// Facts in the active memtable at which a checkpoint begins.
    facts_max: Cell<u64>,
    /// Memtables frozen since the open.
    freezes: Cell<u64>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { tables: RefCell::default(), facts_max: Cell::new(FACTS_MAX), freezes: Cell::default() }
    }
}

/// What the log knows of moves in flight when their entries are put in.
pub trait Moves {
    /// Whether a move of this block comes too late: something newer was written there.
    fn is_overtaken(&self, volume: VolumeId, lba: Lba) -> bool;
    /// Something newer than any move in flight was written there.
    fn overtake(&self, volume: VolumeId, blocks: Range<u64>);
}

impl Memory {
    /// Both, to be looked at; not across an `.await`.
    #[inline]
    pub fn read(&self) -> Ref<'_, Tables> {
        self.tables.borrow()
    }

    /// Facts in the active memtable at which a checkpoint begins.
    pub fn facts_max(&self) -> u64 {
        self.facts_max.get()
    }

    /// A checkpoint begins at so many facts from now on.
    pub fn set_facts_max(&self, facts: u64) {
        self.facts_max.set(facts.max(1));
    }

    /// Memtables frozen since the open.
    pub fn freezes(&self) -> u64 {
        self.freezes.get()
    }

    /// Blocks are about to be stored where none may have been.
    pub fn will_store(&self, blocks: u64) {
        self.tables.borrow_mut().active.new_blocks += blocks;
    }

    /// Has the next checkpoint write a map node elsewhere.
    pub fn touch(&self, node: Touch) {
        self.tables.borrow_mut().active.touched.insert(node);
    }

    /// Freezes the active memtable, unless the last frozen one is not merged yet: that one, and where replay begins once it is
    /// in the trees.
    pub fn freeze(&self, from: impl FnOnce() -> ReplayFrom) -> (Rc<Memtable>, ReplayFrom) {
        let mut tables = self.tables.borrow_mut();
        if tables.frozen.is_none() {
            tables.frozen = Some(Rc::new(std::mem::take(&mut tables.active)));
            self.freezes.set(self.freezes.get() + 1);
            tables.frozen_from = from();
        }
        (tables.frozen.clone().expect("just set"), tables.frozen_from)
    }

    /// The frozen one is in the trees.
    pub fn is_merged(&self) {
        self.tables.borrow_mut().frozen = None;
    }

    /// Puts a record's facts into the active memtable. Entries with a payload block name theirs by order.
    pub fn remember(&self, entries: &[Entry], places: &[Pba], moves: &impl Moves) {
        let mut tables = self.tables.borrow_mut();
        let active = &mut tables.active;
        if !matches!(entries.first(), Some(Entry::MapNode { .. })) {
            active.kept += 1 + entries.iter().filter(|e| e.payload_crc().is_some()).count() as u64;
        }
        let overtaken = |entry: &Entry| match *entry {
            Entry::Move { volume, lba, .. } => moves.is_overtaken(volume, lba),
            Entry::Data { .. }
            | Entry::Hole { .. }
            | Entry::Zero { .. }
            | Entry::Bad { .. }
            | Entry::MapNode { .. }
            | Entry::Pad => false,
        };
        let mut block = 0;
        for run in entries.chunk_by(|a, b| continues(a, b) && overtaken(a) == overtaken(b)) {
            if let Some((volume, blocks)) = newer(run) {
                moves.overtake(volume, blocks);
            }
            match run[0] {
                Entry::Move { .. } if overtaken(&run[0]) => {}
                Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. } => {
                    let at = |(entry, pba): (&Entry, &Pba)| {
                        MapRef::At(Place { pba: *pba, crc: entry.payload_crc().expect("data has a block") })
                    };
                    let places = run.iter().zip(&places[block..block + run.len()]).map(at);
                    if matches!(run[0], Entry::Move { .. }) {
                        active.put(volume, lba, places);
                    } else {
                        active.put_written(volume, lba, places);
                    }
                }
                Entry::Hole { volume, lba, blocks, .. } => {
                    active.put_range(volume, lba, BlockCount(u64::from(blocks)), MapRef::Hole);
                }
                Entry::Zero { volume, lba, blocks, .. } => {
                    active.put_range(volume, lba, BlockCount(u64::from(blocks)), MapRef::Zero);
                }
                Entry::Bad { volume, lba, blocks } => {
                    active.put_range(volume, lba, BlockCount(u64::from(blocks)), MapRef::Bad);
                }
                Entry::MapNode { .. } => {}
                Entry::Pad => break,
            }
            block += run.iter().filter(|entry| entry.payload_crc().is_some()).count();
        }
    }
}

/// Whether the second entry speaks of the block behind the first one's.
fn continues(a: &Entry, b: &Entry) -> bool {
    let block = |entry: &Entry| match *entry {
        Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. } => Some((volume, lba)),
        Entry::Hole { .. } | Entry::Zero { .. } | Entry::Bad { .. } | Entry::MapNode { .. } | Entry::Pad => None,
    };
    block(a).is_some_and(|(volume, lba)| block(b) == Some((volume, lba + BlockCount(1))))
}

/// The blocks that a run of entries says something new of; a move does not.
fn newer(run: &[Entry]) -> Option<(VolumeId, Range<u64>)> {
    match run[0] {
        Entry::Data { volume, lba, .. } => Some((volume, lba.0..lba.0 + run.len() as u64)),
        Entry::Hole { volume, lba, blocks, .. }
        | Entry::Zero { volume, lba, blocks, .. }
        | Entry::Bad { volume, lba, blocks } => Some((volume, lba.0..lba.0 + u64::from(blocks))),
        Entry::Move { .. } | Entry::MapNode { .. } | Entry::Pad => None,
    }
}
