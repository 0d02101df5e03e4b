//! How much is stored: in volumes, in their map, and in memtables that are not merged.

use ondisk::VolumeState;

use super::Room;
use crate::canary::{Canary, planted};
use crate::memtable::table::Memtable;
use crate::volumes::vol::Vol;

/// What the map may take besides, of what volumes may fill: one in this many.
const MAP_SHARE: u64 = 32;

impl Room {
    /// Blocks that volumes and their map fill, at most: what memtables hold is taken for new.
    pub fn stored_at_most(&self) -> u64 {
        self.stored(self.memory.read().nodes())
    }

    /// The same, but for the nodes that memtables need.
    pub fn stored_at_least(&self) -> u64 {
        self.stored(0)
    }

    fn stored(&self, new_nodes: u64) -> u64 {
        self.mapped_blocks() + self.pending_blocks() + self.room_of_map(self.map_blocks() + new_nodes)
    }

    /// Room of volumes that so many map nodes take, in blocks.
    fn room_of_map(&self, nodes: u64) -> u64 {
        if planted(Canary::NodesUncounted) {
            return 0;
        }
        let tallest = self.volumes.all().values().map(|v| u64::from(v.height())).max().unwrap_or(0);
        (1 + tallest) * nodes.saturating_sub(self.room_usable() / MAP_SHARE)
    }

    /// Blocks of what volumes may fill that their map takes, as of the last merge.
    pub fn room_taken_by_map(&self) -> u64 {
        self.room_of_map(self.map_blocks())
    }

    /// Whether a merge may make what is stored less.
    pub fn merging_frees(&self) -> bool {
        self.pending_blocks() > 0 || self.gave_back()
    }

    /// Whether hosts gave blocks back that a merge has not seen yet.
    pub fn gave_back(&self) -> bool {
        let memory = self.memory.read();
        let some_ranges = Memtable::has_ranges;
        some_ranges(&memory.active) || memory.frozen.as_ref().is_some_and(|f| some_ranges(f)) || self.dropping()
    }

    /// Whether a deleted volume still has blocks.
    pub fn dropping(&self) -> bool {
        self.volumes.all().values().any(|v| matches!(v.state(), VolumeState::Dropping { .. }))
    }

    /// Blocks stored in all volumes as of the last merge.
    pub fn mapped_blocks(&self) -> u64 {
        self.volumes.all().values().map(|v| v.mapped()).sum()
    }

    /// Blocks of memtables that may not have been counted as stored yet.
    pub fn pending_blocks(&self) -> u64 {
        let memory = self.memory.read();
        memory.active.new_blocks + memory.frozen.as_ref().map_or(0, |f| f.new_blocks)
    }

    /// Blocks stored in a volume, at most: what memtables hold may overwrite what is merged, until it is merged, too.
    pub fn stored_in(&self, vol: &Vol) -> u64 {
        let memory = self.memory.read();
        let pending = memory.active.written(vol.id) + memory.frozen.as_ref().map_or(0, |f| f.written(vol.id));
        let mapped = vol.mapped();
        match vol.state() {
            VolumeState::Live if !planted(Canary::UnmergedNotShown) => (mapped + pending).min(vol.blocks()).max(mapped),
            VolumeState::Live | VolumeState::Dropping { .. } => mapped,
        }
    }

    /// Blocks of data segments that the map nodes of the trees take, from the live counts.
    pub fn count_map_blocks(&self) -> u64 {
        let table = self.segments.read();
        let (mut all, mut mirrored) = (0, 0);
        for seg in table.segments.values() {
            all += u64::from(seg.live);
            // Of an array without redundancy: a node takes two blocks.
            if self.is_maps_own(seg) {
                mirrored += u64::from(seg.live);
            }
        }
        // A vacated segment that is gone already is still in the trees.
        (all + mirrored).saturating_sub(self.mapped_blocks())
    }
}
