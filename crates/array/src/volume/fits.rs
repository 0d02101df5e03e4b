//! What is stored, and whether more may be: volumes, and what their map takes beyond the usual, fill no more than `usable`.
//!
//! A volume that is written whole has a map node for each 256 blocks, which the reserve holds. A thin one may have one
//! for each block. That takes the room of more than one: a block that is moved has its leaf written again, and what is
//! above it.

use api::EventCode;
use base::Lba;
use ondisk::{MapRef, NODE_REFS};

use super::Hosts;
use crate::canary::{Canary, planted};
use crate::fault::Fault;
use crate::map::NodeKey;
use crate::volumes::vol::Vol;

/// The last part of what volumes may fill in which only new blocks are counted: one in this many.
const EXACT_SHARE: u64 = 16;

impl Hosts {
    /// Whether `n` blocks from `lba` on may be stored. Counts them, at first also those that overwrite others.
    pub async fn fits(&self, vol: &Vol, lba: Lba, n: u64) -> Result<(), Fault> {
        let mut new = n;
        if !self.fits_anyhow(n) {
            let not_there = async || match self.map.resolve(vol, lba, n as usize).await {
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
                new += match self.map.node_ref(&vol.roots(), vol.height(), NodeKey::leaf(vol.id, lba)).await {
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
        let usable = self.room.room_usable();
        self.room.stored_at_most() + n + usable / EXACT_SHARE <= usable
    }

    /// How many blocks are new, if they fit.
    async fn fits_exactly(&self, new: impl AsyncFn() -> Result<u64, Fault>) -> Result<u64, Fault> {
        let usable = self.room.room_usable();
        let n = new().await?;
        if n == 0 || self.room.stored_at_most() + n <= usable {
            return Ok(n);
        }
        // What was overwritten or deallocated counts only once it is merged, and what the map takes is known then.
        if self.room.stored_at_least() + n <= usable || self.room.merging_frees() {
            self.health.while_room(self.checkpoints.checkpoint_and_wait()).await?;
            self.members.writable()?;
            let n = new().await?;
            if n == 0 || self.room.stored_at_least() + n <= usable {
                return Ok(n);
            }
        }
        Err(self.no_space(n))
    }

    /// Hosts are told that `n` new blocks do not fit; once for the log, until there is room again.
    fn no_space(&self, n: u64) -> Fault {
        if self.room.refuse(n) {
            let (stored, usable) = (self.room.stored_at_least(), self.room.room_usable());
            self.ctx.error(
                EventCode::ArrayFull,
                format!(
                    "no space is left: {} of {} usable blocks are stored, and writes to new blocks are refused",
                    stored, usable
                ),
            );
        }
        Fault::NoSpace
    }

    /// Whether hosts would be refused what they were refused last. Where something was given back since, asks for the checkpoint that
    /// makes room of it.
    pub fn is_full(&self) -> bool {
        let Some(n) = self.room.refused() else { return false };
        let full = self.room.stored_at_least() + n > self.room.room_usable();
        if !full {
            self.room.end_refusal();
            self.ctx.note(EventCode::ArrayHasRoom, "there is space again: writes to new blocks continue".to_owned());
        } else if self.room.gave_back() && self.members.writable().is_ok() && !planted(Canary::FullForGood) {
            self.ctx.want_checkpoint();
        }
        full
    }
}
