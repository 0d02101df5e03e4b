//! A record on its way: written to all columns at once, acknowledged in row order, put into the memtable.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use base::{BlockCount, MemberId, Pba, SegmentId, Seq, VolumeId};
use futures::future::join_all;
use ondisk::{Entry, MapRef, Place, SegmentState};
use rt::Bytes;

use super::{Moving, Piece, StreamId, What, window_rows};
use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::fault::Fault;
use crate::member::seat::add;
use crate::space::segment::{Seg, Unmerged};

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

impl Core {
    pub(super) fn start_record(self: &Rc<Self>, record: Rc<Record>) {
        let core = self.clone();
        self.rt.spawn(async move { core.write_record(record).await }).detach();
    }

    async fn write_record(self: Rc<Self>, record: Rc<Record>) {
        let (slots, k) = {
            let table = self.table.borrow();
            let seg = table.get(record.segment);
            (seg.slots.clone(), seg.scheme.k())
        };
        add(&self.tally.data_blocks_written, u64::from(record.rows) * k as u64);
        let columns = record.columns.take();
        let mut writes = Vec::with_capacity(slots.len());
        for (slot, parts) in slots.iter().zip(columns) {
            let Some((member, zone)) = *slot else { continue };
            let seat = self.seat(member).expect("slots name seats");
            let at = seat.layout.zone_row(zone, record.row);
            add(&self.tally.raw_blocks_written, u64::from(record.rows));
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
        self.changed.wake();
    }

    /// Acknowledges, in row order, what is complete. Nothing any more in a segment with a member that went out: what is
    /// not acknowledged there is written again elsewhere, and the generation that seals it has counted its rows.
    fn settle(&self, segment: SegmentId) {
        let is_in = |m: MemberId| self.seat(m).is_some_and(|s| s.is_in());
        let whole = |s: &Seg| s.slots.iter().flatten().all(|(m, _)| is_in(*m));
        if !self.table.borrow().segments.get(&segment).is_some_and(whole) && !planted(Canary::AckIncomplete) {
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
            let durable_at_once = self.no_volatile_cache();
            let mut table = self.table.borrow_mut();
            let seg = table.get_mut(record.segment);
            let in_order = seg.acked == record.row || planted(Canary::AckOutOfOrder);
            assert!(in_order, "records are acknowledged in row order");
            seg.acked += record.rows;
            if durable_at_once {
                seg.durable = seg.acked;
            } else if seg.acked - seg.durable >= window_rows(self.shape.zone_blocks) / 2
                && !self.wanted.flush.replace(true)
            {
                self.changed.wake();
            }
            if seg.acked == self.shape.zone_blocks {
                seg.state = SegmentState::Sealed;
            }
            seg.fresh_nodes |= matches!(record.entries.first(), Some(Entry::MapNode { .. }));
            let host_facts =
                record.end_seq > record.first_seq && !matches!(record.entries.first(), Some(Entry::MapNode { .. }));
            if host_facts && !planted(Canary::ReplayForgotten) {
                let last = (self.epoch.get(), Seq(record.end_seq.0 - 1));
                seg.unmerged.push(Unmerged { row: record.row, last });
            }
        }
        self.remember(&record.entries, &record.places);
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
                What::Data => add(&self.tally.host_blocks_written, payload as u64),
                What::Move => add(&self.tally.moved_blocks, payload as u64),
                What::Node(_) => add(&self.tally.node_blocks_written, payload as u64),
                What::Fill(_) => {}
            }
            block += payload;
            piece.request.acknowledge(piece.entries() as u64, place);
        }
        if self.memtable_share() >= 1.0 {
            self.want_checkpoint();
        }
    }

    /// Puts a record's facts into the active memtable. Entries with a payload block name theirs by order.
    pub fn remember(&self, entries: &[Entry], places: &[Pba]) {
        let mut memory = self.memory.borrow_mut();
        let active = &mut memory.active;
        if !matches!(entries.first(), Some(Entry::MapNode { .. })) {
            active.kept += 1 + entries.iter().filter(|e| e.payload_crc().is_some()).count() as u64;
        }
        let moving = &self.log.moving;
        let overtaken = |entry: &Entry| match *entry {
            Entry::Move { volume, lba, .. } => moving.is_overtaken(volume, lba),
            _ => false,
        };
        let mut block = 0;
        for run in entries.chunk_by(|a, b| continues(a, b) && overtaken(a) == overtaken(b)) {
            if let Some((volume, blocks)) = newer(run) {
                moving.overtake(volume, blocks);
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
