//! The cleaner: moves live blocks out of the emptiest segments so that these can be freed. Greedy.
//!
//! Invariant: a block is moved only while the map names the place it is moved from and no write of it is in
//! flight; the move holds the block's lock until it is acknowledged.

use std::rc::Rc;

use base::{Lba, Pba, SegmentId, VolumeId};
use futures::future::join_all;
use ondisk::{Entry, MapRef, Place, SegmentState, VolumeState};

use crate::canary::{Canary, planted};
use crate::core::{Core, Phase};
use crate::fault::Fault;
use crate::log::{Held, Piece, Request, What};
use crate::map::NodeKey;
use crate::memtable::Touch;
use crate::row::Columns;
use crate::segment::{Seg, pba};

/// Blocks read and moved at once: handed to the log together, they make full records.
const MOVES_AT_ONCE: usize = 4 * ondisk::ENTRIES_MAX;

/// A new segment, for reckoning with parts of segments.
const SHARE: i64 = 1000;

/// Segments cleaned before the checkpoint that frees them.
const VICTIMS_AT_ONCE: usize = 64;

impl Core {
    pub(super) async fn keep_clean(self: Rc<Self>) {
        loop {
            let clean_below = self.ladder().clean_below;
            let low = || self.room_left() < clean_below;
            self.changed.until(|| self.phase.get() != Phase::Open || low()).await;
            // Counts become exact, and what is empty is freed, before anything is moved.
            self.checkpoint_and_wait().await;
            if self.phase.get() != Phase::Open {
                return;
            }
            if !low() {
                continue;
            }
            let victims = self.victims();
            if victims.is_empty() {
                self.hard_to_clean.borrow_mut().clear();
                // Nothing to gain until something is overwritten or deallocated.
                let before = self.tally.host_blocks_written.get();
                let left = self.room_left();
                let news = || self.tally.host_blocks_written.get() != before || self.room_left() != left;
                let freed = self.memory.borrow().active.len();
                let facts = || self.memory.borrow().active.len() != freed;
                self.changed.until(|| self.phase.get() != Phase::Open || news() || facts()).await;
                continue;
            }
            for id in victims {
                if self.clean(id).await.is_err() {
                    if self.phase.get() != Phase::Open {
                        return;
                    }
                    // It is not chosen again before the others had their turn.
                    self.hard_to_clean.borrow_mut().insert(id);
                }
            }
        }
    }

    /// The sealed segments that give most: as many as bring the ladder's rung back, none that gives nothing.
    fn victims(&self) -> Vec<SegmentId> {
        let ladder = self.ladder();
        let left = self.segments_left();
        let lacking = (ladder.clean_below.saturating_sub(left) + 1) as i64 * SHARE;
        let room = left.saturating_sub(ladder.free_floor) as i64 * SHARE;
        let table = self.table.borrow();
        let cleanable = |s: &&Seg| {
            s.state == SegmentState::Sealed
                && s.unmerged.is_empty()
                && !s.busy
                && !s.fresh_nodes
                && !self.in_use_by_log(s.id)
                && !self.hard_to_clean.borrow().contains(&s.id)
        };
        let mut found: Vec<(i64, i64, SegmentId)> = table
            .segments
            .values()
            .filter(cleanable)
            .map(|s| {
                let takes = i64::from(s.live) * SHARE * 33 / 32 / self.segment_blocks_now() as i64;
                (self.zones_share(s) - takes, takes, s.id)
            })
            .filter(|(gain, ..)| *gain > SHARE / 32)
            .collect();
        found.sort_by_key(|(gain, takes, id)| (-gain, *takes, *id));
        let (mut gained, mut moved, mut victims) = (0, 0, Vec::new());
        for (gain, takes, id) in found.into_iter().take(VICTIMS_AT_ONCE) {
            if gained >= lacking || moved + takes > room {
                break;
            }
            gained += gain;
            moved += takes;
            victims.push(id);
        }
        victims
    }

    /// Moves everything live out of a segment.
    pub async fn clean(self: &Rc<Self>, id: SegmentId) -> Result<(), Fault> {
        let Some(columns) = self.columns(id) else { return Ok(()) };
        let Some(rows) = self.table.borrow().segments.get(&id).map(|s| s.acked) else { return Ok(()) };
        let pin = self.pins.pin();
        let mut row = 0;
        let mut live: Vec<(VolumeId, Lba, Place)> = Vec::new();
        while row < rows {
            let Some(header) = self.read_header(&columns, row).await else {
                self.note(format!("segment {id}: the record header at row {row} is lost; the segment stays"));
                if let Some(seg) = self.table.borrow_mut().segments.get_mut(&id) {
                    seg.busy = true;
                }
                return Err(Fault::Medium);
            };
            for (index, entry, crc) in header.payload() {
                let (column, at) = header.payload_place(index);
                let place = Place { pba: pba(id, column, at, self.shape.zone_blocks), crc };
                match *entry {
                    Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. } => {
                        live.push((volume, lba, place))
                    }
                    Entry::MapNode { volume, lba, level, .. } => self.touch(volume, lba, level, place.pba).await?,
                    Entry::Pad | Entry::Hole { .. } | Entry::Zero { .. } | Entry::Bad { .. } => {}
                }
            }
            row += header.rows;
        }
        live.sort_by_key(|(volume, lba, _)| (*volume, *lba));
        for batch in live.chunks(MOVES_AT_ONCE) {
            let moves = batch.iter().map(|&(volume, lba, place)| self.prepare_move(&columns, volume, lba, place));
            let pieces: Vec<Piece> =
                join_all(moves).await.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
            let requests: Vec<Rc<Request>> = pieces.iter().map(|p| p.request.clone()).collect();
            for piece in pieces {
                self.submit_to(crate::log::StreamId::Inner, piece);
            }
            for request in requests {
                request.done().await?;
            }
        }
        drop(pin);
        Ok(())
    }

    /// A block's move, its lock held; `None` when it is not there any more or about to be overwritten.
    async fn prepare_move(
        self: &Rc<Self>,
        columns: &Columns,
        volume: VolumeId,
        lba: Lba,
        from: Place,
    ) -> Result<Option<Piece>, Fault> {
        let Some(vol) = self.volumes.borrow().get(&volume).cloned() else { return Ok(None) };
        if vol.state.get() != VolumeState::Live {
            return Ok(None);
        }
        // Being written: it will be somewhere else soon.
        let Some(guard) = vol.locks.try_lock(lba.0, lba.0 + 1) else { return Ok(None) };
        let resolved = self.resolve(&vol, lba, 1).await?;
        if resolved.refs[0] != MapRef::At(from) && !planted(Canary::MoveUnconditional) {
            return Ok(None);
        }
        let (column, row) = Seg::place(from.pba.block, self.shape.zone_blocks);
        let run = self.read_run(columns, column, row, &[from.crc]).await;
        let request = Request::new(1, Some(Held { guard, promise: None }));
        let (what, data) = if run.lost[0] {
            self.note(format!("volume {}: block {lba} is lost", vol.name.borrow()));
            (What::Fill(if planted(Canary::BadForgotten) { MapRef::Hole } else { MapRef::Bad }), None)
        } else {
            (What::Move, Some(run.data.freeze()))
        };
        Ok(Some(Piece { what, volume, lba, blocks: 1, data, request }))
    }

    /// Has the next checkpoint write a map node elsewhere, if it still is where the cleaner found it.
    async fn touch(&self, volume: VolumeId, lba: Lba, level: u8, at: Pba) -> Result<(), Fault> {
        let Some(vol) = self.volumes.borrow().get(&volume).cloned() else { return Ok(()) };
        let key = NodeKey::of(volume, level, lba);
        let now = self.node_ref(&vol.roots.get(), vol.height.get(), key).await?;
        if matches!(now, MapRef::At(place) if place.pba == at) {
            self.memory.borrow_mut().active.touched.insert(Touch { volume, level, lba });
        }
        Ok(())
    }
}
