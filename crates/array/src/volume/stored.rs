//! What is stored, and whether more may be: volumes, and what their map takes beyond the usual, fill no more than `usable`.
//!
//! A volume that is written whole has a map node for each 256 blocks, which the reserve holds. A thin one may have one
//! for each block. That takes the room of more than one: a block that is moved has its leaf written again, and what is
//! above it.

use base::Lba;
use ondisk::{MapRef, NODE_REFS, VolumeState};

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::fault::Fault;
use crate::map::NodeKey;
use crate::volume::vol::Vol;

/// The last part of what volumes may fill in which only new blocks are counted: one in this many.
const EXACT_SHARE: u64 = 16;

/// What the map may take besides, of what volumes may fill: one in this many.
const MAP_SHARE: u64 = 32;

impl Core {
    /// Whether `n` blocks from `lba` on may be stored. Counts them, at first also those that overwrite others.
    pub async fn fits(&self, vol: &Vol, lba: Lba, n: u64) -> Result<(), Fault> {
        let mut new = n;
        if !self.fits_anyhow(n) {
            let not_there = async || match self.resolve(vol, lba, n as usize).await {
                Ok(resolved) => Ok(resolved.refs.iter().filter(|r| !matches!(r, MapRef::At(_))).count() as u64),
                // Their leaf is lost: what it held is counted until it is merged.
                Err(Fault::Medium) => Ok(0),
                Err(other) => Err(other),
            };
            new = self.fits_exactly(not_there).await?;
        }
        self.memory.will_store(new);
        Ok(())
    }

    /// Whether blocks `first..end` may say that they are zeros: the leaves at their edges may be new.
    pub async fn zeros_fit(&self, vol: &Vol, first: Lba, end: Lba) -> Result<(), Fault> {
        if self.fits_anyhow(0) {
            return Ok(());
        }
        let leaf_blocks = NODE_REFS as u64;
        let edges = [(first, first.0), (Lba(end.0 - 1), end.0)];
        let in_part = || edges.iter().filter(|(_, edge)| !edge.is_multiple_of(leaf_blocks)).map(|(lba, _)| *lba);
        let new_leaves = async || {
            let _pin = self.pins.pin();
            let mut new = 0;
            for lba in in_part() {
                new += match self.node_ref(&vol.roots(), vol.height(), NodeKey::leaf(vol.id, lba)).await {
                    Ok(MapRef::Hole | MapRef::Bad) => 1,
                    Ok(MapRef::Zero | MapRef::At(_)) | Err(Fault::Medium) => 0,
                    Err(other) => return Err(other),
                };
            }
            Ok(new)
        };
        self.fits_exactly(new_leaves).await.map(drop)
    }

    /// Whether `n` more blocks fit, whatever they overwrite.
    fn fits_anyhow(&self, n: u64) -> bool {
        let usable = self.room_usable();
        self.stored_at_most() + n + usable / EXACT_SHARE <= usable
    }

    /// How many blocks are new, if they fit.
    async fn fits_exactly(&self, new: impl AsyncFn() -> Result<u64, Fault>) -> Result<u64, Fault> {
        let usable = self.room_usable();
        let n = new().await?;
        if n == 0 || self.stored_at_most() + n <= usable {
            return Ok(n);
        }
        // What was overwritten or deallocated counts only once it is merged, and what the map takes is known then.
        if self.stored_at_least() + n <= usable || self.merging_frees() {
            self.while_room(self.checkpoint_and_wait()).await?;
            self.writable()?;
            let n = new().await?;
            if n == 0 || self.stored_at_least() + n <= usable {
                return Ok(n);
            }
        }
        Err(self.no_space(n))
    }

    /// Hosts are told that `n` new blocks do not fit; once for the log, until there is room again.
    fn no_space(&self, n: u64) -> Fault {
        if self.room.refuse(n) {
            let (stored, usable) = (self.stored_at_least(), self.room_usable());
            self.ctx.error(format!(
                "no space is left: {} of {} usable blocks are stored, and writes to new blocks are refused",
                stored, usable
            ));
        }
        Fault::NoSpace
    }

    /// Whether hosts would be refused what they were refused last. Where something was given back since, asks for the checkpoint that
    /// makes room of it.
    pub fn is_full(&self) -> bool {
        let Some(n) = self.room.refused() else { return false };
        let full = self.stored_at_least() + n > self.room_usable();
        if !full {
            self.room.end_refusal();
            self.ctx.note("there is space again: writes to new blocks continue".to_owned());
        } else if self.gave_back() && self.writable().is_ok() && !planted(Canary::FullForGood) {
            self.want_checkpoint();
        }
        full
    }

    /// Blocks that volumes and their map fill, at most: what memtables hold is taken for new.
    fn stored_at_most(&self) -> u64 {
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
    fn merging_frees(&self) -> bool {
        self.pending_blocks() > 0 || self.gave_back()
    }

    /// Whether hosts gave blocks back that a merge has not seen yet.
    fn gave_back(&self) -> bool {
        let memory = self.memory.read();
        let some_ranges = crate::map::memtable::Memtable::has_ranges;
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
