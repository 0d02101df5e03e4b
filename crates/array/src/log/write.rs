//! A record on its way: written to all columns at once, acknowledged in row order, put into the memtable.

use std::rc::Rc;

use base::{MemberId, SegmentId, Seq};
use futures::future::join_all;
use ondisk::{Entry, Place};

use super::{Log, window_rows};
use crate::canary::{Canary, planted};
use crate::ctx::Wish;
use crate::space::segment::{Seg, Unmerged};
use crate::space::segments::Acknowledged;
use crate::streams::{Record, What};

impl Log {
    pub(super) fn start_record(self: &Rc<Self>, record: Rc<Record>) {
        let log = self.clone();
        self.ctx.rt.spawn(async move { log.write_record(record).await }).detach();
    }

    async fn write_record(self: Rc<Self>, record: Rc<Record>) {
        let (slots, k) = {
            let table = self.segments.read();
            let seg = table.get(record.segment);
            (seg.slots.clone(), seg.scheme.k())
        };
        self.ctx.figures.data_blocks_written.add(u64::from(record.made.rows) * k as u64);
        let columns = record.take_columns();
        let mut writes = Vec::with_capacity(slots.len());
        for (slot, parts) in slots.iter().zip(columns) {
            let Some((member, zone)) = *slot else { continue };
            let seat = self.members.seat(member).expect("slots name seats");
            let at = seat.layout.zone_row(zone, record.made.row);
            self.ctx.figures.raw_blocks_written.add(u64::from(record.made.rows));
            let health = &self.health;
            writes.push(async move {
                // As often as the rules say: the same content to the same rows.
                health.write_to(&seat, at, parts).await
            });
        }
        let mut whole = true;
        for result in join_all(writes).await {
            if result.is_err() {
                whole = planted(Canary::AckIncomplete);
            }
        }
        self.streams.end(&record);
        if record.is_written(whole) {
            self.settle(record.segment);
        }
        self.streams.stream(record.stream).poke();
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
        while let Some(record) = self.streams.take_complete(segment) {
            self.acknowledge(&record);
        }
    }

    fn acknowledge(&self, record: &Record) {
        {
            let zone_blocks = self.ctx.shape.zone_blocks;
            let nodes = matches!(record.made.entries.first(), Some(Entry::MapNode { .. }));
            let host_facts = record.made.seqs.end > record.made.seqs.start && !nodes;
            let last = (self.ctx.epoch(), Seq(record.made.seqs.end.0.saturating_sub(1)));
            let unmerged = Unmerged { row: record.made.row, last };
            let unmerged = (host_facts && !planted(Canary::ReplayForgotten)).then_some(unmerged);
            let brought = Acknowledged { row: record.made.row, rows: record.made.rows, nodes, unmerged };
            let waiting =
                self.segments.acknowledge(record.segment, brought, self.members.no_volatile_cache(), zone_blocks);
            if waiting >= window_rows(zone_blocks) / 2 {
                self.ctx.wish(Wish::Flush);
            }
        }
        self.memory.remember(&record.made.entries, &record.made.places, self.streams.moving());
        let mut block = 0;
        for piece in record.take_pieces() {
            let payload = piece.payload_blocks();
            let place = match piece.what {
                What::Node(_) => {
                    let crc = record.made.entries[block].payload_crc().expect("a node brings a block");
                    Some(Place { pba: record.made.places[block], crc })
                }
                What::Data | What::Move | What::Fill(_) => None,
            };
            if matches!(piece.what, What::Move) {
                self.streams.moving().end(piece.volume, piece.lba);
            }
            match piece.what {
                What::Data => self.ctx.figures.host_blocks_written.add(payload as u64),
                What::Move => self.ctx.figures.moved_blocks.add(payload as u64),
                What::Node(_) => self.ctx.figures.node_blocks_written.add(payload as u64),
                What::Fill(_) => {}
            }
            block += payload;
            piece.request.acknowledge(piece.entries() as u64, place);
        }
        if self.room.memtable_share() >= 1.0 {
            self.ctx.want_checkpoint();
        }
    }
}
