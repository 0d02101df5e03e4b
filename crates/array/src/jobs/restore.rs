//! Restoring one segment: its homeless columns, made from the others or copied from where they lie, written to new
//! places.
//!
//! Invariant: what is written to a new place matched the checksums of its record (or was made from what did). A block
//! that is lost beyond the redundancy becomes zeros there, which match no checksum: it reads as lost, and the events say
//! how many rows that concerns.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use api::EventCode;
use base::{BLOCK_BYTES, MemberId, SegmentId};
use futures::future::join_all;
use ondisk::{RecordHeader, Scheme, crc32c};
use rt::{Buf, Bytes, IoError};

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::fault::Fault;
use crate::generation::Generations;
use crate::health::Health;
use crate::jobs::On;
use crate::jobs::rebuild_pace::Pacing;
use crate::member::Members;
use crate::member::seat::Seat;
use crate::room::Room;
use crate::row::Columns;
use crate::row::RowReader;
use crate::space::pins::Pins;
use crate::space::segment::Seg;
use crate::space::segments::Segments;
use crate::streams::Streams;

/// Rows read and made at once, about: 256 KiB of each column.
const ROWS_AT_ONCE: u32 = 64;

/// The same beside hosts, or a record where that is longer: a request does not wait long behind one.
const ROWS_BESIDE_HOSTS: u32 = 16;

/// Rows of one write beside hosts: theirs go between two such.
const ROWS_OF_A_WRITE: usize = 8;

/// A column and its new place.
struct Target {
    column: usize,
    seat: Rc<Seat>,
    zone: u32,
}

/// Some rows of the columns that are written.
struct Piece {
    row: u32,
    end: u32,
    headers: Vec<RecordHeader>,
    /// The first column from `row` on, as it was read, where that was read at once.
    image: Option<Buf>,
}

/// Restores segments.
pub struct Restore {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    pins: Pins,
    streams: Rc<Streams>,
    health: Rc<Health>,
    rows: Rc<RowReader>,
    room: Rc<Room>,
    generations: Rc<Generations>,
    pacing: Rc<Pacing>,
    /// Bytes of columns that are done, and rows that could not be restored, of this rebuild.
    bytes: Cell<u64>,
    rows_lost: Cell<u64>,
}

impl Restore {
    /// Nothing is restored yet.
    pub fn new(on: &On<'_>, pacing: &Rc<Pacing>) -> Rc<Restore> {
        Rc::new(Restore {
            ctx: on.health.ctx().clone(),
            members: on.state.members.clone(),
            segments: on.state.segments.clone(),
            pins: on.state.pins.clone(),
            streams: on.state.streams.clone(),
            health: on.health.clone(),
            rows: on.rows.clone(),
            room: on.room.clone(),
            generations: on.generations.clone(),
            pacing: pacing.clone(),
            bytes: Cell::default(),
            rows_lost: Cell::default(),
        })
    }

    /// A rebuild begins.
    pub fn begin_anew(&self) {
        self.bytes.set(0);
        self.rows_lost.set(0);
    }

    /// Bytes of columns that are done, of this rebuild.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Rows that could not be restored, of this rebuild.
    pub fn rows_lost(&self) -> u64 {
        self.rows_lost.get()
    }

    /// So many bytes of columns are done.
    pub fn rebuilt(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.pacing.pace().moved(bytes, self.ctx.rt.now());
    }

    /// A member with room that has no column of the segment; one in the bay that a column is lost from first.
    pub fn place_for(&self, id: SegmentId, taken: &[MemberId]) -> Option<Rc<Seat>> {
        let table = self.segments.read();
        let seg = table.segments.get(&id)?;
        let seats = self.members.all().clone();
        let homeless = seg.slots.iter().filter(|slot| self.members.is_homeless(slot)).flatten();
        let bays: Vec<u16> = homeless.map(|(m, _)| seats[usize::from(m.0)].bay()).collect();
        let room = |s: &&Rc<Seat>| s.takes_columns() && s.zones_free() > 0 && !seg.uses(s.id) && !taken.contains(&s.id);
        let in_bay = |s: &Rc<Seat>| bays.contains(&s.bay());
        let best = seats.iter().filter(room).max_by_key(|s| (in_bay(s), s.zones_free())).cloned();
        drop(table);
        best.filter(|s| self.room.may_rebuild_on(s))
    }

    /// Gives a segment's homeless columns new places. False: it was interrupted, or nothing is to be done any more.
    pub async fn restore(self: &Rc<Self>, id: SegmentId) -> Result<bool, Fault> {
        if !self.make_sealed(id).await {
            return Ok(false);
        }
        let Some(columns) = self.rows.columns(id) else { return Ok(false) };
        let mut targets: Vec<Target> = Vec::new();
        for column in (0..columns.slots.len()).filter(|&c| self.members.is_homeless(&columns.slots[c])) {
            let taken: Vec<_> = targets.iter().map(|t| t.seat.id).collect();
            let Some(seat) = self.place_for(id, &taken) else { break };
            let zone = seat.take_zone().expect("chosen for room");
            targets.push(Target { column, seat, zone });
            self.room.measure_room();
        }
        if targets.is_empty() {
            return Ok(false);
        }
        self.ctx.changed.wake();
        // While it is busy its columns stay where they are: nothing else moves them, and it is not freed.
        let rows = self.segments.hold(id);
        let copied = self.copy_columns(&columns, rows, &targets).await;
        let placed = copied == Ok(true) && targets.iter().all(|t| t.seat.is_in());
        self.segments.let_go(id);
        let to_spare = self.health.columns_to_spare(self.segments.read().get(id)).unwrap_or(0);
        for Target { column, seat, zone } in targets {
            if !placed {
                seat.give_zone(zone);
                continue;
            }
            self.moved_from(self.segments.move_column(id, column, (seat.id, zone)));
        }
        if placed {
            self.generations.riders().restored(to_spare);
        } else {
            self.room.room_changed();
        }
        if copied == Ok(true) && !placed { Err(Fault::Medium) } else { copied }
    }

    /// A column is somewhere else now: where it was is free once a generation says so.
    fn moved_from(&self, was: ondisk::Slot) {
        if self.members.is_lost(&was) {
            self.generations.riders().found_lost();
        }
        let Some((member, zone)) = was else { return };
        let Some(seat) = self.members.seat(member).filter(|s| s.is_in()) else { return };
        if planted(Canary::MovedFreedEarly) {
            self.room.zones_on_their_way(1);
            self.pins.free_later(vec![(seat, zone)]);
        } else {
            self.generations.riders().leave_behind(seat, zone);
        }
    }

    /// Takes a segment from its stream, and waits until nothing is in flight there.
    pub async fn make_sealed(&self, id: SegmentId) -> bool {
        if !self.segments.read().segments.get(&id).is_some_and(Seg::matters) {
            return false;
        }
        self.streams.leave(id);
        self.ctx.changed.until(|| !self.ctx.is_open() || !self.streams.unacked_in(id)).await;
        self.ctx.is_open() && self.segments.seal(id)
    }

    /// Writes the targets' columns, and makes them durable. False: it was interrupted.
    async fn copy_columns(&self, columns: &Columns, rows: u32, targets: &[Target]) -> Result<bool, Fault> {
        let mut row = if planted(Canary::RebuildEmpty) { rows } else { 0 };
        while row < rows {
            let window = if self.pacing.hosts_at_work() { ROWS_BESIDE_HOSTS } else { ROWS_AT_ONCE };
            let window = window.min(rows - row);
            let bytes = u64::from(window) * BLOCK_BYTES as u64 * targets.len() as u64;
            let still_needed = || self.segments.read().segments.get(&columns.id).is_some_and(Seg::matters);
            let Some(turn) = self.pacing.rebuild_turn(bytes).await.filter(|_| still_needed()) else { return Ok(false) };
            let began = self.ctx.rt.now();
            let end = self.copy_piece(columns, row..rows, window, targets).await?;
            let took = self.ctx.rt.now() - began;
            let bytes = u64::from(end - row) * BLOCK_BYTES as u64 * targets.len() as u64;
            self.rebuilt(bytes);
            row = end;
            self.pacing.rebuild_rest(turn, took).await;
        }
        let seats: Vec<Rc<Seat>> = targets.iter().map(|t| t.seat.clone()).collect();
        if self.health.flush_all(&seats).await { Ok(true) } else { Err(Fault::Medium) }
    }

    /// Writes the rows of some records from `row` on; the row behind them.
    async fn copy_piece(
        &self,
        columns: &Columns,
        rows: Range<u32>,
        window: u32,
        targets: &[Target],
    ) -> Result<u32, Fault> {
        self.members.writable()?;
        let row = rows.start;
        let wanted: Vec<usize> = targets.iter().map(|t| t.column).collect();
        let sources = self.sources(columns, &wanted);
        let piece = self.next_piece(columns, &sources, rows, window).await?;
        let made = self.make_columns(columns, &wanted, &sources, &piece).await;
        let writes = targets.iter().zip(made).map(|(t, data)| async move { self.write_column(t, row, data).await });
        if join_all(writes).await.iter().any(Result::is_err) {
            return Err(Fault::Medium);
        }
        Ok(piece.end)
    }

    /// Writes a column's rows from `row` on to its new place.
    async fn write_column(&self, target: &Target, row: u32, data: Bytes) -> Result<(), IoError> {
        let rows = data.len() / BLOCK_BYTES;
        let at_once = if self.pacing.hosts_at_work() { ROWS_OF_A_WRITE } else { rows };
        for first in (0..rows).step_by(at_once.max(1)) {
            let end = rows.min(first + at_once);
            let at = target.seat.layout.zone_row(target.zone, row + first as u32);
            self.health
                .write_for(&target.seat, at, vec![data.slice(first * BLOCK_BYTES..end * BLOCK_BYTES)], false)
                .await?;
        }
        Ok(())
    }

    /// The columns that are read: where the wanted ones lie, if their checksums are known; else as many as a row can be
    /// made from, data first.
    fn sources(&self, columns: &Columns, wanted: &[usize]) -> Vec<usize> {
        let k = columns.scheme.k();
        let there = |c: &usize| self.rows.slot_seat(columns, *c).is_some();
        match columns.scheme {
            Scheme::Parity { .. } if wanted.iter().all(|c| *c < k && there(c)) => wanted.to_vec(),
            Scheme::Parity { .. } => (0..columns.scheme.width()).filter(there).take(k).collect(),
            Scheme::Copies { .. } => {
                let copies = |c: usize| (c % k..columns.scheme.width()).step_by(k).filter(there);
                let source = |c: &usize| if there(c) { Some(*c) } else { copies(*c).next() };
                let mut sources: Vec<usize> = wanted.iter().filter_map(source).collect();
                sources.sort_unstable();
                sources.dedup();
                sources
            }
        }
    }

    /// Whole records from the first of `rows` on, about `window` rows of them. The rows of a record whose header is lost are
    /// among them: what they should hold is not known, only that their parity is right.
    async fn next_piece(
        &self,
        columns: &Columns,
        sources: &[usize],
        rows: Range<u32>,
        window: u32,
    ) -> Result<Piece, Fault> {
        let (row, rows) = (rows.start, rows.end);
        let image = if sources.contains(&0) { self.rows.read_column(columns, 0, row, window).await } else { None };
        let mut headers: Vec<RecordHeader> = Vec::new();
        let mut end = row;
        while end < row + window {
            match self.rows.header_at(columns, image.as_deref(), row, end).await {
                // It goes to the next piece, unless it is too long for any.
                Some(header) if end + header.rows > row + window && end > row => break,
                Some(header) => {
                    end += header.rows;
                    headers.push(header);
                }
                None => {
                    self.ctx.error(
                        EventCode::DataLost,
                        format!("segment {}: the record header at row {end} is lost", columns.id),
                    );
                    end += 1;
                    while end < rows && self.rows.read_header(columns, end).await.is_none() {
                        self.members.writable()?;
                        end += 1;
                    }
                }
            }
        }
        Ok(Piece { row, end: end.min(rows), headers, image })
    }

    /// The wanted columns of a piece. Rows where a block does not match its checksum are made with all that there is.
    async fn make_columns(&self, columns: &Columns, wanted: &[usize], sources: &[usize], piece: &Piece) -> Vec<Bytes> {
        let (k, width, n) = (columns.scheme.k(), columns.scheme.width(), piece.end - piece.row);
        let read = |c: usize| async move {
            let begun = piece.image.as_ref().filter(|image| c == 0 && image.len() >= n as usize * BLOCK_BYTES);
            match begun {
                Some(image) => Some(Buf::from_slice(&image[..n as usize * BLOCK_BYTES])),
                None => self.rows.read_column(columns, c, piece.row, n).await,
            }
        };
        let mut have: Vec<Option<Buf>> = (0..width).map(|_| None).collect();
        for (&c, column) in sources.iter().zip(join_all(sources.iter().map(|&c| read(c))).await) {
            have[c] = column;
        }
        let expected = expected_crcs(k, piece);
        let fits = |c: usize, r: u32, block: &[u8]| {
            let data = c < k || matches!(columns.scheme, Scheme::Copies { .. });
            !data
                || expected[c % k][r as usize].is_none_or(|crc| crc32c(block) == crc)
                || planted(Canary::CopyUnverified)
        };
        let known: Vec<bool> = have.iter().map(Option::is_some).collect();
        let Some(all) = self.fill_in(columns.scheme, wanted, have) else {
            return self.make_with_all(columns, wanted, piece, &(0..n).collect::<Vec<_>>(), None, &fits).await;
        };
        let at = |r: u32| r as usize * BLOCK_BYTES..(r as usize + 1) * BLOCK_BYTES;
        let judged = |c: &usize| known[*c] || wanted.contains(c);
        let wrong_in = |r: &u32| {
            (0..width).filter(judged).any(|c| all[c].as_ref().is_some_and(|column| !fits(c, *r, &column[at(*r)])))
        };
        let wrong: Vec<u32> = (0..n).filter(wrong_in).collect();
        self.make_with_all(columns, wanted, piece, &wrong, Some(all), &fits).await
    }

    /// Every wanted column, from those that were read; `None` when these do not suffice.
    fn fill_in(&self, scheme: Scheme, wanted: &[usize], mut have: Vec<Option<Buf>>) -> Option<Vec<Option<Buf>>> {
        if wanted.iter().all(|&c| have[c].is_some()) {
            return Some(have);
        }
        let Scheme::Parity { k, m } = scheme else {
            let k = scheme.k();
            for &c in wanted {
                if have[c].is_none() {
                    let copy = (c % k..scheme.width()).step_by(k).find_map(|c| have[c].as_deref().map(Buf::from_slice));
                    have[c] = Some(copy?);
                }
            }
            return Some(have);
        };
        let len = have.iter().flatten().next()?.len();
        let lost: Vec<usize> = (0..have.len()).filter(|&c| have[c].is_none()).collect();
        let mut all: Vec<Buf> = have.into_iter().map(|b| b.unwrap_or_else(|| Buf::zeroed(len))).collect();
        let mut slices: Vec<&mut [u8]> = all.iter_mut().map(|b| &mut b[..]).collect();
        erasure::reconstruct(self.ctx.kernel, usize::from(k), usize::from(m), &mut slices, &lost).ok()?;
        Some(all.into_iter().map(Some).collect())
    }

    /// The wanted columns, `rows` of them (counted from the piece's first) made anew from all that can be read; what is
    /// wrong among that is not used. In a row that cannot be made whole, what can be had is there and the rest is zeros.
    async fn make_with_all(
        &self,
        columns: &Columns,
        wanted: &[usize],
        piece: &Piece,
        rows: &[u32],
        made: Option<Vec<Option<Buf>>>,
        fits: &impl Fn(usize, u32, &[u8]) -> bool,
    ) -> Vec<Bytes> {
        let (k, width) = (columns.scheme.k(), columns.scheme.width());
        let bytes = (piece.end - piece.row) as usize * BLOCK_BYTES;
        let mut made = made.unwrap_or_else(|| (0..width).map(|_| None).collect());
        let mut out: Vec<Buf> = wanted.iter().map(|&c| made[c].take().unwrap_or_else(|| Buf::zeroed(bytes))).collect();
        let mut from = 0;
        // Neighbours together: mostly it is one row, or all.
        for run in rows.chunk_by(|a, b| a + 1 == *b) {
            let have = self.rows.read_rows(columns, &[], piece.row + run[0], run.len() as u32).await;
            for &r in run {
                let blocks = || -> Vec<Option<Buf>> {
                    let had = (0..width).map(|c| have.block(c, r - run[0]).filter(|b| fits(c, r, b)));
                    had.map(|block| block.map(Buf::from_slice)).collect()
                };
                let row_made: Vec<Option<Buf>> = match self.rows.whole_row(columns, blocks(), &|c, b| fits(c, r, b)) {
                    Some(whole) => whole.into_iter().map(Some).collect(),
                    None => {
                        from += 1;
                        self.ctx.error(
                            EventCode::DataLost,
                            format!("segment {}: row {} cannot be restored", columns.id, piece.row + r),
                        );
                        let rest = |c| self.rows.solve(columns.scheme, blocks(), c).filter(|b| c < k && fits(c, r, b));
                        (0..width).map(rest).collect()
                    }
                };
                let at = r as usize * BLOCK_BYTES..(r as usize + 1) * BLOCK_BYTES;
                for (column, &c) in out.iter_mut().zip(wanted) {
                    match &row_made[c] {
                        Some(block) => column[at.clone()].copy_from_slice(block),
                        None => column[at.clone()].fill(0),
                    }
                }
            }
        }
        self.rows_lost.set(self.rows_lost.get() + from);
        out.into_iter().map(Buf::freeze).collect()
    }
}

/// The checksum every block of the data columns must have, where that is known: by column, and row from the piece's first.
fn expected_crcs(k: usize, piece: &Piece) -> Vec<Vec<Option<u32>>> {
    let mut expected = vec![vec![None; (piece.end - piece.row) as usize]; k];
    let mut image = vec![0; BLOCK_BYTES];
    for header in &piece.headers {
        header.encode(&mut image);
        expected[0][(header.row - piece.row) as usize] = Some(crc32c(&image));
        for (index, _, crc) in header.payload() {
            let (column, at) = header.payload_place(index);
            expected[column][(at - piece.row) as usize] = Some(crc);
        }
    }
    expected
}
