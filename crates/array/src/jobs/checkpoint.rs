//! Checkpoint: freeze the memtable, merge it, publish the trees, commit a generation that has them.

use std::rc::Rc;

use base::Pba;
use ondisk::ReplayFrom;

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::ctx::Wish;
use crate::fault::Fault;
use crate::map::memtable::Memtable;
use crate::sync::Pieces;

/// Nodes, or leaves of a memtable, let go of at once: tenths of a millisecond.
const NODES_LET_GO: usize = 1024;

impl Core {
    /// Brings everything acknowledged before the call into the trees of a generation in effect.
    pub async fn checkpoint(&self) -> Result<(), Fault> {
        let turn = self.jobs.checkpoints.gate.pass().await;
        let result = self.checkpoint_now().await;
        drop(turn);
        crate::ctx::figures::add(&self.jobs.checkpoints.tried, 1);
        self.ctx.changed.wake();
        result
    }

    async fn checkpoint_now(&self) -> Result<(), Fault> {
        self.writable()?;
        self.ctx.wishes.take(Wish::Checkpoint);
        let (table, replay_from) = self.freeze_memtable();
        let merged = self.merge(&table).await;
        self.none_replaced();
        let merged = merged?;
        // One step: trees, counts, and what replay may leave out.
        let replaced = merged.publish(self);
        self.memory.is_merged();
        self.system.set_replay_from(replay_from);
        self.segments.forget_merged(replay_from);
        crate::ctx::figures::add(&self.ctx.figures.checkpoints, 1);
        self.measure_room();
        let committed = self.commit().await;
        self.forget_merged(table, &replaced).await;
        committed
    }

    /// Gives back the memory of a table that is merged, and of the nodes that the trees no longer have.
    async fn forget_merged(&self, table: Rc<Memtable>, replaced: &[Pba]) {
        let pieces = Pieces::of(1, &self.ctx.rt);
        for places in replaced.chunks(NODES_LET_GO) {
            self.nodes.forget(places);
            pieces.did(1).await;
        }
        // Whoever still looks into it drops it.
        let Some(mut table) = Rc::into_inner(table) else { return };
        while !table.forget(NODES_LET_GO) {
            pieces.did(1).await;
        }
    }

    /// Asks for a checkpoint and waits until one that began later was tried, by whomever. A host's request
    /// does it this way: its future may be dropped at any time, and a commit must not be.
    pub async fn checkpoint_and_wait(&self) {
        // The one under way may have begun before.
        let enough = self.jobs.checkpoints.tried.get() + 2;
        let tried = || self.jobs.checkpoints.tried.get();
        while tried() < enough && self.ctx.is_open() {
            self.want_checkpoint();
            let before = tried();
            self.ctx.changed.until(|| tried() != before || !self.ctx.is_open()).await;
        }
    }

    /// Swaps the memtables. Replay begins at the oldest entry that is numbered and not acknowledged: everything
    /// from there on is replayed in order, merged or not, which gives the same state.
    fn freeze_memtable(&self) -> (Rc<Memtable>, ReplayFrom) {
        self.memory.freeze(|| {
            let unacked = self.log.lowest_unacked().filter(|_| !planted(Canary::ReplayLate));
            ReplayFrom { epoch: self.ctx.epoch(), seq: unacked.unwrap_or(self.log.next_seq()) }
        })
    }
}
