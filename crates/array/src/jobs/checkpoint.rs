//! Checkpoint: freeze the memtable, merge it, publish the trees, commit a generation that has them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use api::EventCode;
use base::Pba;
use ondisk::ReplayFrom;

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::ctx::Wish;
use crate::fault::Fault;
use crate::generation::Generations;
use crate::in_effect::InEffect;
use crate::jobs::On;
use crate::map::Map;
use crate::member::Members;
use crate::memtable::memory::Memory;
use crate::memtable::table::Memtable;
use crate::room::Room;
use crate::space::segments::Segments;
use crate::streams::Streams;
use crate::sync::{Gate, Pieces};

/// Nodes, or leaves of a memtable, let go of at once: a tenth of a millisecond.
const NODES_LET_GO: usize = 256;

/// Checkpoints, one at a time.
pub struct Checkpoints {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    memory: Rc<Memory>,
    system: Rc<InEffect>,
    streams: Rc<Streams>,
    room: Rc<Room>,
    map: Rc<Map>,
    generations: Rc<Generations>,
    gate: Gate,
    /// Those that were tried.
    tried: Cell<u64>,
}

impl Checkpoints {
    /// None was tried yet.
    pub fn new(on: &On<'_>) -> Rc<Checkpoints> {
        Rc::new(Checkpoints {
            ctx: on.health.ctx().clone(),
            members: on.state.members.clone(),
            segments: on.state.segments.clone(),
            memory: on.state.memory.clone(),
            system: on.state.system.clone(),
            streams: on.state.streams.clone(),
            room: on.room.clone(),
            map: on.map.clone(),
            generations: on.generations.clone(),
            gate: Gate::default(),
            tried: Cell::default(),
        })
    }

    /// Whether the memtable holds anything.
    pub fn has_unmerged(&self) -> bool {
        !self.memory.read().active.is_empty()
    }

    /// Brings everything acknowledged before the call into the trees of a generation in effect.
    pub async fn checkpoint(&self) -> Result<(), Fault> {
        let turn = self.gate.pass().await;
        let result = self.checkpoint_now().await;
        drop(turn);
        self.tried.set(self.tried.get() + 1);
        self.ctx.changed.wake();
        result
    }

    async fn checkpoint_now(&self) -> Result<(), Fault> {
        self.members.writable()?;
        self.ctx.wishes.take(Wish::Checkpoint);
        let (table, replay_from) = self.freeze_memtable();
        let merged = self.map.merge(&table).await;
        self.room.none_replaced();
        let merged = merged?;
        // One step: trees, counts, and what replay may leave out.
        let replaced = merged.publish(&self.map);
        self.memory.is_merged();
        self.system.set_replay_from(replay_from);
        self.segments.forget_merged(replay_from);
        self.ctx.figures.checkpoints.add(1);
        self.room.measure_room();
        let committed = self.generations.commit().await;
        if committed.is_ok() {
            self.ctx.figures.checkpointed(self.ctx.rt.unix_seconds());
        }
        self.forget_merged(table, &replaced).await;
        committed
    }

    /// Gives back the memory of a table that is merged, and of the nodes that the trees no longer have.
    async fn forget_merged(&self, table: Rc<Memtable>, replaced: &[Pba]) {
        let pieces = Pieces::of(1, &self.ctx.rt);
        for places in replaced.chunks(NODES_LET_GO) {
            self.map.nodes().forget(places);
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
        let enough = self.tried.get() + 2;
        let tried = || self.tried.get();
        while tried() < enough && self.ctx.is_open() {
            self.ctx.want_checkpoint();
            let before = tried();
            self.ctx.changed.until(|| tried() != before || !self.ctx.is_open()).await;
        }
    }

    /// Swaps the memtables. Replay begins at the oldest entry that is numbered and not acknowledged: everything
    /// from there on is replayed in order, merged or not, which gives the same state.
    fn freeze_memtable(&self) -> (Rc<Memtable>, ReplayFrom) {
        self.memory.freeze(|| {
            let unacked = self.streams.lowest_unacked().filter(|_| !planted(Canary::ReplayLate));
            ReplayFrom { epoch: self.ctx.epoch(), seq: unacked.unwrap_or(self.streams.next_seq()) }
        })
    }
}

impl Checkpoints {
    pub async fn keep_checkpoints(self: Rc<Self>) {
        loop {
            // It may have become full by what became of the array: narrower segments hold less.
            let full = || self.room.memtable_share() >= 1.0;
            self.ctx
                .changed
                .until(|| self.ctx.over() || self.ctx.wishes.has(Wish::Checkpoint) || self.room.dropping() || full())
                .await;
            if self.ctx.over() {
                return;
            }
            if self.checkpoint().await.is_err() && !self.ctx.over() {
                self.ctx.warn(EventCode::CheckpointFailed, "a checkpoint failed; it will be retried".to_owned());
                self.ctx.rt.sleep(Duration::from_secs(1)).await;
                self.ctx.wishes.ask(Wish::Checkpoint);
            }
        }
    }
}
