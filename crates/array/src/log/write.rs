//! A record on its way: written to all columns at once, acknowledged in row order, put into the memtable.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{MemberId, Pba, SegmentId, Seq};
use futures::future::join_all;
use ondisk::{Entry, Place};
use rt::Bytes;

use super::{Moving, Piece, StreamId, What, window_rows};
use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::ctx::Wish;
use crate::ctx::figures::add;
use crate::fault::Fault;
use crate::space::segment::{Seg, Unmerged};
use crate::space::segments::Acknowledged;

/// Where a record is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Some column is not written yet.
    Writing,
    /// All columns are.
    Complete,
    /// A member failed it.
    Failed,
    /// Nobody waits for it any more.
    Abandoned,
}

/// One record in flight.
pub struct Record {
    pub(super) stream: StreamId,
    pub(super) segment: SegmentId,
    pub(super) row: u32,
    pub(super) rows: u32,
    pub(super) first_seq: Seq,
    pub(super) end_seq: Seq,
    pub(super) places: Vec<Pba>,
    pub(super) entries: Vec<Entry>,
    pub(super) pieces: RefCell<Vec<Piece>>,
    /// The parts of each column.
    pub(super) columns: RefCell<Vec<Vec<Bytes>>>,
    pub(super) state: Cell<State>,
}

impl Record {
    /// Whether a column is still being written.
    pub fn writing(&self) -> bool {
        self.state.get() == State::Writing
    }

    pub(super) fn abandon(&self, fault: Fault, moving: &Moving) {
        self.state.set(State::Abandoned);
        for piece in self.pieces.take() {
            if matches!(piece.what, What::Move) {
                moving.end(piece.volume, piece.lba);
            }
            piece.request.fail(fault);
        }
    }
}

impl Core {
    pub(super) fn start_record(self: &Rc<Self>, record: Rc<Record>) {
        let core = self.clone();
        self.ctx.rt.spawn(async move { core.write_record(record).await }).detach();
    }

    async fn write_record(self: Rc<Self>, record: Rc<Record>) {
        let (slots, k) = {
            let table = self.segments.read();
            let seg = table.get(record.segment);
            (seg.slots.clone(), seg.scheme.k())
        };
        add(&self.ctx.figures.data_blocks_written, u64::from(record.rows) * k as u64);
        let columns = record.columns.take();
        let mut writes = Vec::with_capacity(slots.len());
        for (slot, parts) in slots.iter().zip(columns) {
            let Some((member, zone)) = *slot else { continue };
            let seat = self.members.seat(member).expect("slots name seats");
            let at = seat.layout.zone_row(zone, record.row);
            add(&self.ctx.figures.raw_blocks_written, u64::from(record.rows));
            let core = &self;
            writes.push(async move {
                // As often as the rules say: the same content to the same rows.
                core.write_to(&seat, at, parts).await
            });
        }
        let mut whole = true;
        for result in join_all(writes).await {
            if result.is_err() {
                whole = planted(Canary::AckIncomplete);
            }
        }
        let stream = self.log.stream(record.stream);
        stream.in_flight.set(stream.in_flight.get() - 1);
        if record.state.get() == State::Writing {
            record.state.set(if whole { State::Complete } else { State::Failed });
            self.settle(record.segment);
        }
        stream.poke();
        self.ctx.changed.wake();
    }

    /// Acknowledges, in row order, what is complete. Nothing any more in a segment with a member that went out: what is
    /// not acknowledged there is written again elsewhere, and the generation that seals it has counted its rows.
    fn settle(&self, segment: SegmentId) {
        let is_in = |m: MemberId| self.members.seat(m).is_some_and(|s| s.is_in());
        let whole = |s: &Seg| s.slots.iter().flatten().all(|(m, _)| is_in(*m));
        if !self.segments.read().segments.get(&segment).is_some_and(whole) && !planted(Canary::AckIncomplete) {
            return;
        }
        loop {
            let record = {
                let mut unacked = self.log.unacked.borrow_mut();
                let Some(queue) = unacked.get_mut(&segment) else { return };
                let complete = queue.iter().position(|r| r.state.get() == State::Complete);
                let Some(next) = complete.filter(|at| *at == 0 || planted(Canary::AckOutOfOrder)) else { return };
                let record = queue.remove(next).expect("it is there");
                if queue.is_empty() {
                    unacked.remove(&segment);
                }
                record
            };
            self.acknowledge(&record);
        }
    }

    fn acknowledge(&self, record: &Record) {
        {
            let zone_blocks = self.ctx.shape.zone_blocks;
            let nodes = matches!(record.entries.first(), Some(Entry::MapNode { .. }));
            let host_facts = record.end_seq > record.first_seq && !nodes;
            let last = (self.ctx.epoch(), Seq(record.end_seq.0.saturating_sub(1)));
            let unmerged = Unmerged { row: record.row, last };
            let unmerged = (host_facts && !planted(Canary::ReplayForgotten)).then_some(unmerged);
            let brought = Acknowledged { row: record.row, rows: record.rows, nodes, unmerged };
            let waiting =
                self.segments.acknowledge(record.segment, brought, self.members.no_volatile_cache(), zone_blocks);
            if waiting >= window_rows(zone_blocks) / 2 {
                self.ctx.wish(Wish::Flush);
            }
        }
        self.memory.remember(&record.entries, &record.places, &self.log.moving);
        let mut block = 0;
        for piece in record.pieces.take() {
            let payload = piece.payload_blocks();
            let place = match piece.what {
                What::Node(_) => {
                    let crc = record.entries[block].payload_crc().expect("a node brings a block");
                    Some(Place { pba: record.places[block], crc })
                }
                What::Data | What::Move | What::Fill(_) => None,
            };
            if matches!(piece.what, What::Move) {
                self.log.moving.end(piece.volume, piece.lba);
            }
            match piece.what {
                What::Data => add(&self.ctx.figures.host_blocks_written, payload as u64),
                What::Move => add(&self.ctx.figures.moved_blocks, payload as u64),
                What::Node(_) => add(&self.ctx.figures.node_blocks_written, payload as u64),
                What::Fill(_) => {}
            }
            block += payload;
            piece.request.acknowledge(piece.entries() as u64, place);
        }
        if self.memtable_share() >= 1.0 {
            self.want_checkpoint();
        }
    }

    /// Takes the records of `segment` that were not acknowledged, once none of them is being written: their
    /// pieces, by stream.
    pub fn take_unacked(&self, segment: SegmentId) -> Vec<(StreamId, Vec<Piece>)> {
        let records = self.log.unacked.borrow_mut().remove(&segment).unwrap_or_default();
        let taken = records.into_iter().map(|record| {
            assert!(!record.writing(), "outstanding I/O returns first");
            record.state.set(State::Abandoned);
            (record.stream, record.pieces.take())
        });
        taken.collect()
    }
}
