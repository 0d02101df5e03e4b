//! Rebuild: lost columns are made anew on other members, segment by segment, and a generation names their new
//! places.
//!
//! Invariant: what is written to a new place matched the checksums of its record (or was made from what did). A block
//! that is lost beyond the redundancy becomes zeros there, which match no checksum: it reads as lost, and the events
//! say how many rows that concerns.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{BLOCK_BYTES, MemberId, SegmentId};
use futures::future::join_all;
use ondisk::{MemberState, RecordHeader, SegmentState, crc32c};
use rt::Buf;

use crate::canary::{Canary, planted};
use crate::core::{Core, Phase};
use crate::fault::Fault;
use crate::row::Columns;
use crate::seat::Seat;
use crate::segment::Seg;
use crate::status::RebuildStatus;

/// Rows read and made at once, about: 1 MiB of each column.
const ROWS_AT_ONCE: u32 = 256;

/// Segments restored before the generation that names them.
const SEGMENTS_PER_GENERATION: usize = 8;

/// How a rebuild goes.
#[derive(Default)]
pub struct Progress {
    running: Cell<bool>,
    total: Cell<u64>,
    done: Cell<u64>,
    bytes: Cell<u64>,
    rows_lost: Cell<u64>,
    began: Cell<Option<rt::Nanos>>,
}

impl Core {
    /// Sealed or open segments that hold something and lack a column.
    pub fn broken_segments(&self) -> impl Iterator<Item = SegmentId> {
        let table = self.table.borrow();
        let seats = self.seats.borrow();
        let lost = |m: MemberId| seats[usize::from(m.0)].state.get() != MemberState::In;
        let broken = |s: &&Seg| s.matters() && s.slots.iter().any(|slot| slot.is_none_or(|(m, _)| lost(m)));
        table.segments.values().filter(broken).map(|s| s.id).collect::<Vec<_>>().into_iter()
    }

    /// Whether somebody who is in sits in `bay`.
    pub fn bay_filled(&self, bay: u16) -> bool {
        self.seats.borrow().iter().any(|s| s.bay.get() == bay && s.is_in())
    }

    /// The rebuild under way.
    pub fn rebuild_status(&self) -> Option<RebuildStatus> {
        let p = &self.rebuild;
        let began = p.began.get().filter(|_| p.running.get())?;
        let seconds = (self.rt.now() - began).as_secs();
        let (total, done) = (p.total.get(), p.done.get());
        Some(RebuildStatus {
            segments_total: total,
            segments_done: done,
            bytes_moved: p.bytes.get(),
            seconds,
            rows_lost: p.rows_lost.get(),
            eta_seconds: (done > 0).then(|| seconds * total.saturating_sub(done) / done),
        })
    }

    pub(super) async fn keep_rebuilt(self: Rc<Self>) {
        loop {
            let wanted = || self.wanted.rebuild.get() && !self.degrading.get();
            self.changed.until(|| self.phase.get() != Phase::Open || wanted()).await;
            if self.phase.get() != Phase::Open {
                return;
            }
            self.wanted.rebuild.set(false);
            if !self.rebuild_possible() {
                self.changed.wake();
                continue;
            }
            self.seat_spares();
            let todo: Vec<SegmentId> = self.broken_segments().collect();
            let p = &self.rebuild;
            p.running.set(true);
            p.total.set(todo.len() as u64);
            p.done.set(0);
            p.bytes.set(0);
            p.rows_lost.set(0);
            p.began.set(Some(self.rt.now()));
            self.note(format!("rebuild of {} segments begins", todo.len()));
            let whole = self.rebuild_segments(todo).await;
            p.running.set(false);
            let left = self.broken_segments().count();
            self.note(match (whole, left) {
                (Ok(()), 0) if p.rows_lost.get() == 0 => "rebuild done: full redundancy".to_owned(),
                (Ok(()), 0) => format!(
                    "rebuild done, but {} rows could not be made whole: blocks in them are lost",
                    p.rows_lost.get()
                ),
                (Ok(()), n) => format!("rebuild pauses: {n} segments have no place yet"),
                (Err(fault), _) => format!("rebuild stopped: {fault}"),
            });
            self.changed.wake();
            if whole.is_err() || left > 0 {
                // Something has to change first: a member, room.
                self.rt.sleep(Duration::from_secs(1)).await;
                self.wanted.rebuild.set(true);
            }
        }
    }

    /// Whether a lost column has a place to go.
    fn rebuild_possible(&self) -> bool {
        let spare = self.seats.borrow().iter().any(|s| s.state.get() == MemberState::Spare && s.drive.is_some());
        let broken: Vec<SegmentId> = self.broken_segments().collect();
        (spare
            && self.seats.borrow().iter().any(|s| s.state.get() == MemberState::Out && !self.bay_filled(s.bay.get())))
            || broken.into_iter().any(|id| self.place_for(id, &[]).is_some() && !self.table.borrow().get(id).busy)
    }

    /// Spares take the bays of members that are out.
    fn seat_spares(&self) {
        let seats = self.seats.borrow();
        for out in seats.iter().filter(|s| s.state.get() == MemberState::Out && !self.bay_filled(s.bay.get())) {
            let spare = seats.iter().find(|s| s.state.get() == MemberState::Spare && s.drive.is_some());
            if let Some(spare) = spare {
                spare.bay.set(out.bay.get());
                spare.state.set(MemberState::In);
                self.note(format!("spare {} takes the place of {}", spare.drive_name, out.drive_name));
            }
        }
    }

    /// A member with room that has no column of the segment; the one in the lost member's bay first.
    fn place_for(&self, id: SegmentId, taken: &[MemberId]) -> Option<Rc<Seat>> {
        let table = self.table.borrow();
        let seg = table.segments.get(&id)?;
        let seats = self.seats.borrow().clone();
        let lost_bays: Vec<u16> = seg
            .slots
            .iter()
            .flatten()
            .map(|(m, _)| &seats[usize::from(m.0)])
            .filter(|s| s.state.get() != MemberState::In)
            .map(|s| s.bay.get())
            .collect();
        let uses = |m: MemberId| seg.uses(m);
        let room = |s: &&Rc<Seat>| s.is_in() && !s.free.borrow().is_empty() && !uses(s.id) && !taken.contains(&s.id);
        let in_bay = |s: &Rc<Seat>| lost_bays.contains(&s.bay.get());
        let best = seats.iter().filter(room).max_by_key(|s| (in_bay(s), s.free.borrow().len())).cloned();
        drop((table, seats));
        best.filter(|s| self.may_rebuild_on(s))
    }

    async fn rebuild_segments(self: &Rc<Self>, todo: Vec<SegmentId>) -> Result<(), Fault> {
        for batch in todo.chunks(SEGMENTS_PER_GENERATION) {
            for &id in batch {
                if self.make_sealed(id).await
                    && let Err(fault) = self.rebuild_segment(id).await
                {
                    // One that cannot be restored does not hold up the others.
                    self.writable()?;
                    self.note(format!("segment {id} could not be rebuilt: {fault}"));
                }
                self.rebuild.done.set(self.rebuild.done.get() + 1);
            }
            self.commit().await?;
        }
        Ok(())
    }

    /// Takes a segment that lacks columns from its stream, and waits until nothing is in flight there.
    pub(super) async fn make_sealed(&self, id: SegmentId) -> bool {
        if !self.table.borrow().segments.get(&id).is_some_and(Seg::matters) {
            return false;
        }
        for stream in crate::log::STREAMS {
            let stream = self.log.stream(stream);
            if stream.segment.get() == Some(id) {
                stream.segment.set(None);
            }
        }
        self.changed.until(|| self.phase.get() != Phase::Open || !self.log.unacked_in(id)).await;
        let mut table = self.table.borrow_mut();
        match table.segments.get_mut(&id) {
            Some(seg) if self.phase.get() == Phase::Open => {
                seg.append = seg.acked;
                seg.state = SegmentState::Sealed;
                true
            }
            _ => false,
        }
    }

    async fn rebuild_segment(self: &Rc<Self>, id: SegmentId) -> Result<(), Fault> {
        let pin = self.pins.pin();
        let Some(columns) = self.columns(id) else { return Ok(()) };
        let is_in = |m: MemberId| self.seat(m).is_some_and(|s| s.is_in());
        let lost: Vec<usize> =
            (0..columns.slots.len()).filter(|&c| columns.slots[c].is_none_or(|(m, _)| !is_in(m))).collect();
        let mut targets: Vec<(usize, Rc<Seat>, u32)> = Vec::new();
        for &column in &lost {
            let taken: Vec<MemberId> = targets.iter().map(|(_, s, _)| s.id).collect();
            let Some(seat) = self.place_for(id, &taken) else { break };
            let zone = seat.free.borrow_mut().pop_first().expect("chosen for room");
            targets.push((column, seat, zone));
        }
        if targets.is_empty() {
            return Ok(());
        }
        let rows = {
            let mut table = self.table.borrow_mut();
            let seg = table.get_mut(id);
            seg.busy = true;
            seg.acked
        };
        let copied = self.copy_columns(&columns, rows, &lost, &targets).await;
        drop(pin);
        let mut table = self.table.borrow_mut();
        let seg = table.get_mut(id);
        seg.busy = false;
        let all_in = targets.iter().all(|(_, seat, _)| seat.is_in());
        if copied.is_ok() && all_in {
            for (column, seat, zone) in targets {
                seg.slots[column] = Some((seat.id, zone));
            }
        } else {
            for (_, seat, zone) in targets {
                seat.free.borrow_mut().insert(zone);
            }
        }
        copied
    }

    async fn copy_columns(
        &self,
        columns: &Columns,
        rows: u32,
        lost: &[usize],
        targets: &[(usize, Rc<Seat>, u32)],
    ) -> Result<(), Fault> {
        let mut row = if planted(Canary::RebuildEmpty) { rows } else { 0 };
        while row < rows {
            self.writable()?;
            let (headers, end) = self.records_from(columns, row, rows).await?;
            let made = self.make_columns(columns, lost, &headers, row, end).await;
            let writes = targets.iter().map(|(column, seat, zone)| {
                let data = Buf::from_slice(&made[*column]).freeze();
                async move { self.write_to(seat, seat.layout.zone_row(*zone, row), vec![data]).await }
            });
            if join_all(writes).await.iter().any(Result::is_err) {
                return Err(Fault::Medium);
            }
            let bytes = u64::from(end - row) * BLOCK_BYTES as u64 * targets.len() as u64;
            self.rebuild.bytes.set(self.rebuild.bytes.get() + bytes);
            row = end;
        }
        let seats: Vec<Rc<Seat>> = targets.iter().map(|(_, seat, _)| seat.clone()).collect();
        if self.flush_all(&seats).await { Ok(()) } else { Err(Fault::Medium) }
    }

    /// Headers of whole records from `row` on, about [`ROWS_AT_ONCE`] rows of them, and the row behind. The rows of a
    /// record whose header is lost are among them: what they should hold is not known, only that their parity is right.
    async fn records_from(&self, columns: &Columns, row: u32, rows: u32) -> Result<(Vec<RecordHeader>, u32), Fault> {
        let mut headers = Vec::new();
        let mut end = row;
        while end < rows && end - row < ROWS_AT_ONCE {
            match self.read_header(columns, end).await {
                Some(header) => {
                    end += header.rows;
                    headers.push(header);
                }
                None => {
                    self.note(format!("segment {}: the record header at row {end} is lost", columns.id));
                    end += 1;
                    while end < rows && self.read_header(columns, end).await.is_none() {
                        self.writable()?;
                        end += 1;
                    }
                }
            }
        }
        Ok((headers, end))
    }

    /// All columns of rows `row..end`, the lost ones made from the rest; what is wrong among the rest is not used. In
    /// a row that cannot be made whole, what can be had is there and the rest is zeros.
    async fn make_columns(
        &self,
        columns: &Columns,
        lost: &[usize],
        headers: &[RecordHeader],
        row: u32,
        end: u32,
    ) -> Vec<Buf> {
        let have = self.read_rows(columns, lost, row, end - row).await;
        let expected = expected_crcs(columns.scheme.k(), headers, row, end);
        let (k, width) = (columns.scheme.k(), columns.scheme.width());
        let ok = |r: u32, c: usize, b: &[u8]| c >= k || expected[c][r as usize].is_none_or(|crc| crc32c(b) == crc);
        let mut made: Vec<Buf> = (0..width).map(|_| Buf::zeroed((end - row) as usize * BLOCK_BYTES)).collect();
        let at = |r: u32| r as usize * BLOCK_BYTES..(r as usize + 1) * BLOCK_BYTES;
        for r in 0..end - row {
            let blocks = || -> Vec<Option<Buf>> {
                let had = (0..width).map(|c| have.block(c, r).filter(|b| ok(r, c, b)));
                had.map(|block| block.map(Buf::from_slice)).collect()
            };
            let row_made: Vec<Option<Buf>> = match self.whole_row(columns, blocks(), &|c, b| ok(r, c, b)) {
                Some(whole) => whole.into_iter().map(Some).collect(),
                None => {
                    let lost_rows = &self.rebuild.rows_lost;
                    lost_rows.set(lost_rows.get() + 1);
                    self.note(format!("segment {}: row {} cannot be made whole", columns.id, row + r));
                    (0..width)
                        .map(|c| self.solve(columns.scheme, blocks(), c).filter(|b| c < k && ok(r, c, b)))
                        .collect()
                }
            };
            for (column, block) in made.iter_mut().zip(row_made) {
                if let Some(block) = block {
                    column[at(r)].copy_from_slice(&block);
                }
            }
        }
        made
    }

    /// Resolves when no rebuild is running and none is about to.
    pub async fn rebuild_over(&self) {
        let busy = || self.rebuild.running.get() || self.wanted.rebuild.get() || self.degrading.get();
        self.changed.until(|| self.phase.get() != Phase::Open || !busy()).await;
    }
}

/// The checksum every block of the data columns must have, where that is known.
fn expected_crcs(k: usize, headers: &[RecordHeader], row: u32, end: u32) -> Vec<Vec<Option<u32>>> {
    let mut expected = vec![vec![None; (end - row) as usize]; k];
    let mut image = vec![0; BLOCK_BYTES];
    for header in headers {
        header.encode(&mut image);
        expected[0][(header.row - row) as usize] = Some(crc32c(&image));
        for (index, _, crc) in header.payload() {
            let (column, at) = header.payload_place(index);
            expected[column][(at - row) as usize] = Some(crc);
        }
    }
    expected
}
