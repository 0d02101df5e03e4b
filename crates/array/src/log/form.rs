//! Making one record of what waits: whole rows, no timers.

use std::rc::Rc;

use base::{BLOCK_BYTES, MemberId, SegmentId, Seq};
use ondisk::record::payload_place;
use ondisk::{ENTRIES_MAX, Entry, MemberState, RecordHeader, Scheme};
use rt::{Buf, Bytes};

use super::Log;
use super::swept::Swept;
use crate::canary::{Canary, planted};
use crate::space::segment::pba;
use crate::streams::{Made, Piece, Record, Stream, StreamId};

/// Records below this many payload blocks are small: at most [`SMALL_IN_FLIGHT`] of them unfinished, so that what
/// comes meanwhile fills the next one.
const SMALL_BLOCKS: usize = 64;

/// Unfinished records of a stream while the next would be small; and while hosts are paced, when each header and pad
/// costs the cleaner as much as their blocks.
const SMALL_IN_FLIGHT: usize = 2;
const SMALL_WHILE_PACED: usize = 1;

/// Unfinished records of a stream, at most: 16 of 1 MiB keep 24 drives busy.
const IN_FLIGHT_MAX: usize = 16;

/// The largest [`window_rows`].
pub const WINDOW_ROWS_MAX: u32 = 4096;

/// Rows of a segment given out and not known to be durable, at most: a part of it. So the first record that says that a
/// row is durable lies less than two windows behind it: that far recovery looks beyond a gap.
#[must_use]
pub fn window_rows(zone_blocks: u32) -> u32 {
    (zone_blocks / 4).clamp(16, WINDOW_ROWS_MAX)
}

impl Log {
    /// The next record of a stream, its rows given out; `None` when there is nothing to do now.
    pub fn form(self: &Rc<Self>, id: StreamId) -> Option<Rc<Record>> {
        let stream = self.streams.stream(id);
        if self.members.writable().is_err() || stream.len() == 0 || stream.in_flight() >= IN_FLIGHT_MAX {
            return None;
        }
        let widest = self.ctx.shape.scheme.k();
        // Room for the padding of a last row: k - 1 pads at most.
        let budget = ENTRIES_MAX + 1 - widest;
        let (waiting, ranges_only, lone) = stream.waiting(budget);
        let enough = if self.room.pace().limited() { SMALL_WHILE_PACED } else { SMALL_IN_FLIGHT };
        if waiting < SMALL_BLOCKS && lone == 0 && stream.in_flight() >= enough && id == StreamId::Host {
            return None;
        }
        if stream.expects_more() && waiting < budget {
            return None;
        }
        let short = id == StreamId::Host && (stream.in_flight() == 0 || lone > 0) && self.room.small_pays(waiting);
        let segment = if short { self.small_segment(stream) } else { None };
        let segment = segment.or_else(|| self.open_segment(id))?;
        let (scheme, row, room) = {
            let table = self.segments.read();
            let seg = table.get(segment);
            let from = if planted(Canary::WindowFromAcked) { seg.rows.acked } else { seg.rows.durable };
            let window = (from + window_rows(self.ctx.shape.zone_blocks)).saturating_sub(seg.rows.append);
            (seg.scheme, seg.rows.append, (self.ctx.shape.zone_blocks - seg.rows.append).min(window))
        };
        let k = scheme.k();
        if room == 0 {
            return None;
        }
        if room as usize * k == 1 {
            // One block is left: a header alone fills it.
            return Some(self.build(id, segment, scheme, row, Vec::new()));
        }
        let most = waiting.min(room as usize * k - 1);
        // Whole rows of what waits; the rest stays for the next record unless nothing else is in flight. While hosts are
        // paced it stays all the same: who waits for the cleaner anyway does not pad.
        let whole_rows = (most + 1) / k;
        let alone = stream.in_flight() == 0 && (whole_rows == 0 || !self.room.pace().limited());
        let take = if lone > 0 {
            // No more rows than they need.
            most.min((lone + 1).next_multiple_of(k) - 1)
        } else if (most + 1) % k == 0 || alone || ranges_only {
            most
        } else if whole_rows > 0 {
            whole_rows * k - 1
        } else {
            return None;
        };
        let pieces = stream.take(take, budget);
        if pieces.is_empty() {
            return None;
        }
        Some(self.build(id, segment, scheme, row, pieces))
    }

    /// The segment a stream appends to, opening the next one when the last is full; `None` when there is none now.
    fn open_segment(&self, id: StreamId) -> Option<SegmentId> {
        let stream = self.streams.stream(id);
        if let Some(segment) = stream.segment() {
            if self.goes_on(segment) {
                return Some(segment);
            }
            stream.set_segment(None);
        }
        let spare = self.room.take_spare(id)?;
        stream.set_segment(Some(spare));
        Some(spare)
    }

    /// The small segment beside the one that a stream appends to, opening the next one; `None` when there is none now.
    fn small_segment(&self, stream: &Stream) -> Option<SegmentId> {
        if let Some(segment) = stream.small().filter(|s| self.goes_on(*s)) {
            return Some(segment);
        }
        let spare = self.room.take_small();
        stream.set_small(spare);
        spare
    }

    /// Whether an open segment has rows left, and all of its members.
    fn goes_on(&self, segment: SegmentId) -> bool {
        let table = self.segments.read();
        let seg = table.get(segment);
        let is_in = |m: MemberId| self.members.all()[usize::from(m.0)].state() == MemberState::In;
        let healthy = seg.slots.iter().flatten().all(|(m, _)| is_in(*m));
        healthy && seg.is_open() && seg.rows.append < self.ctx.shape.zone_blocks
    }

    /// Lays the pieces out in rows from `row` on, computes the parity. The payload is not copied: the columns are slices
    /// of the pieces' data. ([`Bytes`] never change, so what is written is what the checksum is of.)
    fn build(
        self: &Rc<Self>,
        stream: StreamId,
        segment: SegmentId,
        scheme: Scheme,
        row: u32,
        pieces: Vec<Piece>,
    ) -> Rc<Record> {
        let k = scheme.k();
        let payload: usize = pieces.iter().map(Piece::payload_blocks).sum();
        let rows = (payload + 1).div_ceil(k);
        let mut blocks = Vec::with_capacity(payload);
        pieces.iter().for_each(|piece| piece.add_blocks(&mut blocks));
        let mut swept = Swept::of(self.ctx.kernel, scheme, rows, &blocks);
        let mut entries: Vec<Entry> = Vec::with_capacity(pieces.iter().map(Piece::entries).sum::<usize>() + rows * k);
        let mut crcs = swept.crcs.iter().copied();
        pieces.iter().for_each(|piece| piece.to_entries(&mut entries, &mut crcs));
        let numbered = entries.len();
        let pads = rows * k - 1 - payload;
        if stream == StreamId::Host {
            self.room.pace().take(pads as u64 + 1);
        }
        entries.extend(std::iter::repeat_n(Entry::Pad, pads));
        let first_seq = self.streams.number(numbered);
        let durable_row = {
            let durable = self.segments.give_out(segment, row, rows as u32);
            if planted(Canary::DurableRowForgotten) { 0 } else { durable }
        };
        let header = RecordHeader {
            array: self.ctx.shape.array,
            segment,
            row,
            rows: rows as u32,
            k: k as u16,
            epoch: self.ctx.epoch(),
            generation: base::Generation(self.system.number()),
            first_seq,
            durable_row,
            log: 0,
            entries,
        };
        let mut first = Buf::for_overwrite(BLOCK_BYTES);
        header.encode(&mut first);
        swept.add_header(self.ctx.kernel, &first);
        let payload_parts = pieces.iter().filter_map(|piece| piece.data.clone());
        let parts = std::iter::once(first.freeze()).chain(payload_parts).chain([Bytes::zeroed(pads * BLOCK_BYTES)]);
        let columns = swept.lay_out(scheme, cut(parts, rows * BLOCK_BYTES));
        let places = (0..payload).map(|i| {
            let (column, at) = payload_place(row, rows as u32, i);
            pba(segment, column, at, self.ctx.shape.zone_blocks)
        });
        let seqs = first_seq..Seq(first_seq.0 + numbered as u64);
        let made = Made { row, rows: rows as u32, seqs, places: places.collect(), entries: header.entries };
        let record = Record::new(stream, segment, made, pieces, columns);
        self.streams.begin(&record);
        record
    }
}

/// Cuts what the parts hold behind each other into columns of `column_bytes`.
fn cut(parts: impl Iterator<Item = Bytes>, column_bytes: usize) -> Vec<Vec<Bytes>> {
    let mut columns: Vec<Vec<Bytes>> = Vec::new();
    let mut room = 0;
    for part in parts {
        let mut at = 0;
        while at < part.len() {
            if room == 0 {
                columns.push(Vec::new());
                room = column_bytes;
            }
            let n = room.min(part.len() - at);
            columns.last_mut().expect("one was pushed").push(part.slice(at..at + n));
            (at, room) = (at + n, room - n);
        }
    }
    assert_eq!(room, 0, "the last column is full");
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_go_through_parts() {
        let parts = [1, 3, 0, 2].map(|n: u8| Buf::from_slice(&vec![n; usize::from(n) * BLOCK_BYTES]).freeze());
        let columns = cut(parts.into_iter(), 2 * BLOCK_BYTES);
        let seen = |part: &Bytes| (part[0], part.len() / BLOCK_BYTES);
        let seen: Vec<Vec<_>> = columns.iter().map(|column| column.iter().map(seen).collect()).collect();
        assert_eq!(seen, [vec![(1, 1), (3, 1)], vec![(3, 2)], vec![(2, 2)]]);
    }
}
