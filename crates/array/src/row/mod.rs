//! Reading rows: one column where it is whole, the others where it is not.
//!
//! Invariant: a block leaves here only when it matched the checksum it was asked for with.

mod hedge;
pub mod runs;
mod scan;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use api::EventCode;
use base::{BLOCK_BYTES, MemberLba, SegmentId};
use futures::future::join_all;
use ondisk::{Cut, Scheme, Slot, crc32c};
use rt::{Buf, Bytes, IoError, Nanos};

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::health::Health;
use crate::member::Members;
use crate::member::seat::Seat;
use crate::row::hedge::{Answer, Budget};
use crate::space::pins::Pins;
use crate::space::segments::Segments;

/// Times a read is tried before its column counts as unreadable: an error may pass (a controller reset).
pub const READ_TRIES: usize = 3;

/// Between the tries.
pub const READ_PAUSE: Duration = Duration::from_millis(20);

/// How long what cannot be read is asked for again before it is taken for lost for good: a controller resets, a drive comes
/// back.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// Between two times of asking.
const LOST_PAUSE: Duration = Duration::from_millis(250);

/// A segment's geometry at one instant.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Which segment.
    pub id: SegmentId,
    /// Its redundancy.
    pub scheme: Scheme,
    /// Its columns' places.
    pub slots: Rc<[Slot]>,
    /// Where its earlier lives ended.
    pub cuts: Rc<[Cut]>,
}

/// Rows as they were read, unverified.
pub struct Rows {
    columns: Vec<Option<Buf>>,
    /// Blocks of columns whose member is there that could not be read: column, row from the first.
    unreadable: BTreeSet<(usize, u32)>,
}

impl Rows {
    /// The block of `column` in `row`, counted from the first one read; `None` when it could not be read.
    pub fn block(&self, column: usize, row: u32) -> Option<&[u8]> {
        let at = row as usize * BLOCK_BYTES..(row as usize + 1) * BLOCK_BYTES;
        self.columns[column].as_ref().map(|b| &b[at]).filter(|_| !self.unreadable.contains(&(column, row)))
    }
}

/// Blocks of a run.
pub struct Run {
    /// The blocks; lost ones hold anything.
    pub data: Buf,
    /// Whether any could not be had.
    pub lost: bool,
}

/// Reads rows, makes good what errs, writes back what was wrong.
pub struct RowReader {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    pins: Pins,
    health: Rc<Health>,
    /// Reads around slow members that may still be made.
    hedges: Budget,
    /// How long the members' slowest reads take, in the middle, and when that was found.
    middle: Cell<Option<(Nanos, f64)>>,
}

impl RowReader {
    /// One that has read nothing yet.
    pub fn new(segments: &Rc<Segments>, pins: &Pins, health: &Rc<Health>) -> Rc<RowReader> {
        Rc::new(RowReader {
            ctx: health.ctx().clone(),
            members: health.members().clone(),
            segments: segments.clone(),
            pins: pins.clone(),
            health: health.clone(),
            hedges: Budget::default(),
            middle: Cell::default(),
        })
    }

    /// The columns of a segment; `None` when it is not in the table.
    pub fn columns(&self, id: SegmentId) -> Option<Columns> {
        let table = self.segments.read();
        let seg = table.segments.get(&id)?;
        Some(Columns { id, scheme: seg.scheme, slots: seg.slots.clone(), cuts: seg.cuts.clone() })
    }

    /// The member of a column and its zone there; `None` when it is not in.
    pub fn slot_seat(&self, columns: &Columns, column: usize) -> Option<(Rc<Seat>, u32)> {
        let (member, zone) = columns.slots[column]?;
        let seat = self.members.seat(member)?;
        (seat.is_in() && zone < seat.layout.zones).then_some((seat, zone))
    }

    /// Reads `rows` rows of one column as they are, unverified; `None` when its member is not there or fails.
    pub async fn read_column(&self, columns: &Columns, column: usize, row: u32, rows: u32) -> Option<Buf> {
        let (seat, zone) = self.slot_seat(columns, column)?;
        let (at, buf) = (seat.layout.zone_row(zone, row), Buf::for_overwrite(rows as usize * BLOCK_BYTES));
        let (result, buf) = seat.read(at, buf).await;
        match result {
            Ok(()) => Some(buf),
            Err(error) => Box::pin(self.read_again(&seat, at, error, buf)).await,
        }
    }

    /// A read of a member failed: reads again, as often as the rules say.
    pub async fn read_again(&self, seat: &Seat, at: MemberLba, error: IoError, buf: Buf) -> Option<Buf> {
        let (mut error, mut buf) = (error, buf);
        for attempt in 1..=READ_TRIES {
            if error == IoError::Gone {
                self.health.member_gone(seat.id);
                break;
            }
            if error == IoError::Conflict && !planted(Canary::ConflictCounted) {
                break;
            }
            self.health.read_failed(seat);
            if attempt == READ_TRIES {
                break;
            }
            self.ctx.rt.sleep(READ_PAUSE).await;
            let (result, back) = seat.read(at, buf).await;
            buf = back;
            match result {
                Ok(()) => return Some(buf),
                Err(next) => error = next,
            }
        }
        self.ctx.figures.columns_unread.add(1);
        None
    }

    /// Asks until what it hears is not `lost`, for some seconds as long as drives fail to read: for who makes lost blocks bad
    /// ones, which nobody takes back. What was read and does not match its checksum is not asked for again.
    pub async fn ask_for_good<T>(&self, lost: impl Fn(&T) -> bool, ask: impl AsyncFn() -> T) -> T {
        let begun = self.ctx.rt.now();
        loop {
            let unread = self.ctx.figures.columns_unread.get();
            let heard = ask().await;
            let may_pass = self.ctx.figures.columns_unread.get() != unread && self.ctx.rt.now() - begun < LOST_AFTER;
            if !lost(&heard) || !may_pass || self.members.writable().is_err() || planted(Canary::GivenUpAtOnce) {
                return heard;
            }
            self.ctx.rt.sleep(LOST_PAUSE).await;
        }
    }

    /// Reads `rows` rows of all columns but `except`, unverified.
    pub async fn read_columns(&self, columns: &Columns, except: &[usize], row: u32, rows: u32) -> Vec<Option<Buf>> {
        let read = |c: usize| async move {
            if except.contains(&c) { None } else { self.read_column(columns, c, row, rows).await }
        };
        join_all((0..columns.scheme.width()).map(read)).await
    }

    /// Reads `rows` rows of all columns but `except`. One bad block does not cost its column: where a column cannot be
    /// read at once it is read block by block.
    pub async fn read_rows(&self, columns: &Columns, except: &[usize], row: u32, rows: u32) -> Rows {
        let mut read =
            Rows { columns: self.read_columns(columns, except, row, rows).await, unreadable: BTreeSet::new() };
        for c in 0..columns.scheme.width() {
            let whole = read.columns[c].is_some() || planted(Canary::RebuildByBatch);
            if whole || except.contains(&c) || self.slot_seat(columns, c).is_none() {
                continue;
            }
            let blocks = join_all((0..rows).map(|r| self.read_column(columns, c, row + r, 1))).await;
            let mut column = Buf::zeroed(rows as usize * BLOCK_BYTES);
            for ((r, to), block) in (0..).zip(column.chunks_exact_mut(BLOCK_BYTES)).zip(blocks) {
                match block {
                    Some(block) => to.copy_from_slice(&block),
                    None => _ = read.unreadable.insert((c, r)),
                }
            }
            read.columns[c] = Some(column);
        }
        read
    }

    /// Reads a run of blocks down one data column and matches each with its checksum; what does not match is
    /// made from the rest of its row, and put right on the drive. Nothing counts as lost as long as a rebuild gives the
    /// columns other places.
    pub async fn read_run(&self, columns: &Columns, column: usize, row: u32, crcs: &[u32]) -> Run {
        let mut run = self.read_run_there(columns, column, row, crcs).await;
        let mut asked = None;
        while run.lost && !planted(Canary::OldPlacesBelieved) {
            let before = asked.as_ref().unwrap_or(columns);
            let Some(now) = self.columns(columns.id).filter(|now| now.slots != before.slots) else { break };
            run = self.read_run_there(&now, column, row, crcs).await;
            asked = Some(now);
        }
        run
    }

    async fn read_run_there(&self, columns: &Columns, column: usize, row: u32, crcs: &[u32]) -> Run {
        match self.read_or_go_around(columns, column, row, crcs).await {
            Answer::Direct(direct) => self.made_good(columns, column, row, crcs, direct).await,
            Answer::Around(data) => Run { data, lost: false },
        }
    }

    /// What a member said of a run, each block matched with its checksum; what it did not say, or what does not match, is
    /// made from the rest of its row.
    pub async fn made_good(
        &self,
        columns: &Columns,
        column: usize,
        row: u32,
        crcs: &[u32],
        direct: Option<Buf>,
    ) -> Run {
        let rows = crcs.len() as u32;
        let had_direct = direct.is_some();
        let mut data = match direct {
            Some(data) => data,
            None => match self.reconstruct(columns, &[column], column, row, rows).await {
                Some(data) => data,
                None => Buf::zeroed(rows as usize * BLOCK_BYTES),
            },
        };
        let mut lost = false;
        for (i, &crc) in crcs.iter().enumerate() {
            let at = i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES;
            if crc32c(&data[at.clone()]) == crc || planted(Canary::ChecksumIgnored) {
                continue;
            }
            let row = row + i as u32;
            if had_direct && let Some((seat, _)) = self.slot_seat(columns, column) {
                seat.counters.mismatches.add(1);
            }
            match self.recover_block(columns, column, row, |b| crc32c(b) == crc).await {
                Some(block) => {
                    data[at].copy_from_slice(&block);
                    if had_direct {
                        self.repair(columns, column, row, block).await;
                    }
                }
                None => lost = true,
            }
        }
        Run { data, lost }
    }

    /// One block from the others of its row: first as if it alone were lost, then with each other one under
    /// suspicion too, until it `fits`.
    pub async fn recover_block(
        &self,
        columns: &Columns,
        column: usize,
        row: u32,
        fits: impl Fn(&[u8]) -> bool,
    ) -> Option<Buf> {
        let matches = |b: &Buf| fits(b);
        if let Scheme::Copies { k, copies } = columns.scheme {
            let k = usize::from(k);
            for c in (column % k..k * usize::from(copies)).step_by(k) {
                if let Some(block) = self.read_column(columns, c, row, 1).await.filter(matches) {
                    return Some(block);
                }
            }
            return None;
        }
        let row_blocks = self.read_columns(columns, &[column], row, 1).await;
        let suspects = std::iter::once(None).chain((0..columns.scheme.width()).filter(|c| *c != column).map(Some));
        for suspect in suspects {
            let mut blocks: Vec<Option<Buf>> =
                row_blocks.iter().map(|b| b.as_ref().map(|b| Buf::from_slice(b))).collect();
            if let Some(c) = suspect {
                blocks[c] = None;
            }
            if let Some(block) = self.solve(columns.scheme, blocks, column).filter(matches) {
                return Some(block);
            }
        }
        None
    }

    /// `rows` rows of `column` from the columns other than `lost`, unverified.
    pub async fn reconstruct(
        &self,
        columns: &Columns,
        lost: &[usize],
        column: usize,
        row: u32,
        rows: u32,
    ) -> Option<Buf> {
        if let Scheme::Copies { k, copies } = columns.scheme {
            let k = usize::from(k);
            for c in (column % k..k * usize::from(copies)).step_by(k).filter(|c| !lost.contains(c)) {
                if let Some(data) = self.read_column(columns, c, row, rows).await {
                    return Some(data);
                }
            }
            return None;
        }
        // As many as it takes; all that there are when one of these fails.
        let there = |c: &usize| !lost.contains(c) && self.slot_seat(columns, *c).is_some();
        let few: Vec<usize> = (0..columns.scheme.width()).filter(there).take(columns.scheme.k()).collect();
        let except: Vec<usize> = (0..columns.scheme.width()).filter(|c| !few.contains(c)).collect();
        let mut have = self.read_columns(columns, &except, row, rows).await;
        if few.iter().any(|&c| have[c].is_none()) {
            have = self.read_columns(columns, lost, row, rows).await;
        }
        self.solve(columns.scheme, have, column)
    }

    /// `column` from the parity columns that are there; `None` when too few are.
    pub fn solve(&self, scheme: Scheme, mut have: Vec<Option<Buf>>, column: usize) -> Option<Buf> {
        if let Some(there) = have[column].take() {
            return Some(there);
        }
        let Scheme::Parity { k, m } = scheme else {
            let k = scheme.k();
            return (column % k..scheme.width()).step_by(k).find_map(|c| have[c].take());
        };
        let len = have.iter().flatten().next()?.len();
        let lost: Vec<usize> = (0..have.len()).filter(|&c| have[c].is_none()).collect();
        let mut all: Vec<Buf> = have.into_iter().map(|b| b.unwrap_or_else(|| Buf::zeroed(len))).collect();
        let mut slices: Vec<&mut [u8]> = all.iter_mut().map(|b| &mut b[..]).collect();
        erasure::reconstruct(self.ctx.kernel, usize::from(k), usize::from(m), &mut slices, &lost).ok()?;
        Some(all.swap_remove(column))
    }

    /// Writes a block back to where it should have been: the same content, proven by its checksum.
    async fn repair(&self, columns: &Columns, column: usize, row: u32, block: Buf) {
        if planted(Canary::RepairForgotten) {
            return;
        }
        let Some((seat, zone)) = self.slot_seat(columns, column) else { return };
        let Some(done) = self.write_back(columns, column, row, block.freeze()).await else { return };
        self.ctx.figures.repaired_blocks.add(1);
        let outcome = if done.is_ok() { "repaired from its row" } else { "could not be written back" };
        let at = seat.layout.zone_row(zone, row);
        self.ctx.warn(
            EventCode::Mismatch,
            format!("block {at} of {} did not match its checksum; {outcome}", seat.drive_name()),
        );
    }

    /// Writes what a block must be, proven, over what it is; `None` when it is not there any more or nothing is written.
    pub async fn write_back(
        &self,
        columns: &Columns,
        column: usize,
        row: u32,
        block: Bytes,
    ) -> Option<Result<(), rt::IoError>> {
        let (seat, zone) = self.slot_seat(columns, column)?;
        let at = seat.layout.zone_row(zone, row);
        // While the segment is listed a pin made now keeps its zones: the write outlives a reader who walks away.
        let still_there = self.columns(columns.id).is_some_and(|now| now.slots[column] == columns.slots[column]);
        if self.members.writable().is_err() || !still_there {
            return None;
        }
        let pin = self.pins.pin();
        let writer = seat.clone();
        let write = async move {
            let done = writer.write(at, block).await;
            drop(pin);
            done
        };
        let done = self.ctx.rt.spawn(write).await;
        if let Err(error) = done
            && !matches!(error, rt::IoError::Gone | rt::IoError::NoSpace | rt::IoError::Conflict)
        {
            self.health.write_failed(&seat, error, std::time::Duration::ZERO);
        }
        Some(done)
    }
}
