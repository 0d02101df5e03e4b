//! One volume at work: what the next generation says of it, and what its hosts see.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use base::{Lba, VolumeId};
use ondisk::{Limits, MapRef, SHARDS, VolumeKind, VolumeState};
use uuid::Uuid;

use super::quota::Quota;
use super::share::Share;
use super::tree::height_for;
use crate::sync::RangeLocks;
use crate::volumes::counters::VolumeCounters;

/// The name of a notebook: no volume of hosts can have it.
const NOTEBOOK_NAME: &str = "(notebook)";

/// Its size in blocks.
struct Size {
    /// As the next generation will say.
    next: Cell<u64>,
    /// As the generation in effect says, and hosts see it; 0 when it does not know the volume yet.
    agreed: Cell<u64>,
}

/// Its trees, as they are published.
struct Trees {
    /// Levels above the leaves.
    height: Cell<u8>,
    roots: Cell<[MapRef; SHARDS]>,
    /// Blocks stored, as of the last merge.
    mapped: Cell<u64>,
}

/// One volume.
pub struct Vol {
    /// Never reused.
    pub id: VolumeId,
    /// Its identity for hosts.
    pub uuid: Uuid,
    /// Whose it is.
    pub kind: VolumeKind,
    name: RefCell<Arc<str>>,
    size: Size,
    trees: Trees,
    state: Cell<VolumeState>,
    limits: Cell<Limits>,
    /// How far its hosts are ahead of the limits.
    pub quota: Quota,
    /// What is in flight.
    pub share: Share,
    /// Writes in flight.
    pub locks: Rc<RangeLocks>,
    /// Requests of hosts.
    pub counters: VolumeCounters,
}

impl Vol {
    /// A new volume, which no generation knows yet.
    pub fn new(id: VolumeId, name: &str, uuid: Uuid, blocks: u64) -> Vol {
        Vol {
            id,
            uuid,
            kind: VolumeKind::Hosts,
            name: RefCell::new(name.into()),
            size: Size { next: Cell::new(blocks), agreed: Cell::new(0) },
            trees: Trees {
                height: Cell::new(height_for(blocks)),
                roots: Cell::new([MapRef::Hole; SHARDS]),
                mapped: Cell::new(0),
            },
            state: Cell::new(VolumeState::Live),
            limits: Cell::default(),
            quota: Quota::default(),
            share: Share::default(),
            locks: Rc::default(),
            counters: VolumeCounters::default(),
        }
    }

    /// The array's own notebook, which no generation knows yet.
    pub fn notebook(id: VolumeId, uuid: Uuid, blocks: u64) -> Vol {
        Vol { kind: VolumeKind::Notebook, ..Vol::new(id, NOTEBOOK_NAME, uuid, blocks) }
    }

    /// A volume as a generation describes it.
    pub fn from_line(line: &ondisk::Volume) -> Vol {
        let vol = Vol { kind: line.kind, ..Vol::new(line.id, &line.name, line.uuid, line.blocks) };
        vol.size.agreed.set(line.blocks);
        vol.trees.height.set(line.height);
        vol.trees.roots.set(line.roots);
        vol.trees.mapped.set(line.mapped_blocks);
        vol.state.set(line.state);
        vol.limits.set(line.limits);
        vol
    }

    /// As the next generation says it.
    pub fn line(&self) -> ondisk::Volume {
        ondisk::Volume {
            id: self.id,
            kind: self.kind,
            name: self.name().to_string(),
            uuid: self.uuid,
            blocks: self.blocks(),
            mapped_blocks: self.mapped(),
            state: self.state(),
            height: self.height(),
            roots: self.roots(),
            limits: self.limits(),
        }
    }

    /// Its name.
    #[inline]
    pub fn name(&self) -> Arc<str> {
        self.name.borrow().clone()
    }

    /// Gives it another name.
    pub fn rename(&self, name: &str) {
        self.name.replace(name.into());
    }

    /// Size in blocks, as the next generation will say.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.size.next.get()
    }

    /// Makes it larger, with the next generation.
    pub fn grow(&self, blocks: u64) {
        assert!(blocks >= self.blocks(), "a volume only grows");
        self.size.next.set(blocks);
    }

    /// Size in blocks as the generation in effect says, and hosts see it; 0 when it does not know the volume yet.
    #[inline]
    pub fn agreed_blocks(&self) -> u64 {
        self.size.agreed.get()
    }

    /// A generation with this size is in effect; whether hosts see another one than before.
    pub fn is_agreed(&self, blocks: u64) -> bool {
        self.size.agreed.replace(blocks) != blocks
    }

    /// Blocks stored, as of the last merge.
    #[inline]
    pub fn mapped(&self) -> u64 {
        self.trees.mapped.get()
    }

    /// Levels above the leaves.
    #[inline]
    pub fn height(&self) -> u8 {
        self.trees.height.get()
    }

    /// Its trees.
    #[inline]
    pub fn roots(&self) -> [MapRef; SHARDS] {
        self.trees.roots.get()
    }

    /// The root of one shard.
    #[inline]
    pub fn root(&self, shard: usize) -> MapRef {
        let roots: &Cell<[MapRef]> = &self.trees.roots;
        roots.as_slice_of_cells()[shard].get()
    }

    /// New trees are published.
    pub fn publish(&self, roots: [MapRef; SHARDS]) {
        self.trees.roots.set(roots);
    }

    /// The published trees are so high.
    pub fn publish_height(&self, height: u8) {
        self.trees.height.set(height);
    }

    /// The published trees have so many blocks more or fewer.
    pub fn publish_mapped(&self, by: i64) {
        let mapped = &self.trees.mapped;
        mapped.set(mapped.get().checked_add_signed(by).expect("blocks are counted once"));
    }

    /// Where in its life.
    #[inline]
    pub fn state(&self) -> VolumeState {
        self.state.get()
    }

    /// Whether it is the hosts', not the array's own.
    #[inline]
    pub fn is_hosts(&self) -> bool {
        self.kind == VolumeKind::Hosts
    }

    /// It is deleted, and its blocks are dropped up to `cursor`.
    pub fn drop_up_to(&self, cursor: Lba) {
        self.state.set(VolumeState::Dropping { cursor });
    }

    /// Whether it is deleted, and nothing of it is left.
    pub fn is_gone(&self) -> bool {
        matches!(self.state(), VolumeState::Dropping { cursor } if cursor.0 >= self.blocks())
    }

    /// What its hosts may take.
    #[inline]
    pub fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// Its hosts may take this from `now` on.
    pub fn limit(&self, limits: Limits, now: u64) {
        self.limits.set(limits);
        self.quota.begin_anew(now);
    }
}
