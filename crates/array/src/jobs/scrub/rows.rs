//! A scrub of one segment: a few rows at a time, every block against what its record says it is.
//!
//! Invariant: what is written back matched its checksum, or is redundancy made from data that did; a row in which that
//! cannot be said of every block it is made from stays as it is.

use std::collections::BTreeMap;
use std::rc::Rc;

use api::ScrubKind;
use base::{BLOCK_BYTES, Lba, SegmentId, VolumeId};
use ondisk::{Entry, Place, RecordHeader, Scheme, crc32c};
use rt::{Buf, Bytes};

use super::course::{Course, Outcome};
use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::fault::Fault;
use crate::jobs::clean::Cleaner;
use crate::jobs::survey::Surveyor;
use crate::member::Members;
use crate::member::seat::Seat;
use crate::row::{Columns, RowReader, Rows};
use crate::space::pins::Pins;
use crate::space::segment::pba;
use crate::space::segments::Segments;

/// Rows read at once: 256 KiB of each column.
const ROWS_AT_ONCE: u32 = 64;

/// Times a block is written back before its place counts as one that does not hold.
const WRITES_MAX: usize = 2;

/// What a data block is, and its checksum.
#[derive(Clone, Copy, Debug)]
struct Expected {
    crc: u32,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Header,
    Block(VolumeId, Lba),
    Node(VolumeId, Lba, u8),
    Padding,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            What::Header => "record header",
            What::Block(..) => "data block",
            What::Node(..) => "map node",
            What::Padding => "padding",
        }
    }
}

/// What the headers of a segment say of its data blocks: by row, then column.
type Expectations = BTreeMap<(u32, usize), Expected>;

/// Reads segments.
pub(super) struct RowScrub {
    pub(super) ctx: Rc<Context>,
    pub(super) members: Rc<Members>,
    pub(super) segments: Rc<Segments>,
    pub(super) pins: Pins,
    pub(super) rows: Rc<RowReader>,
    pub(super) surveyor: Rc<Surveyor>,
    pub(super) cleaner: Rc<Cleaner>,
    pub(super) course: Rc<Course>,
}

impl RowScrub {
    /// Reads a segment's acknowledged rows and puts right what is wrong. Its place in the table, its columns and its rows
    /// are asked for anew every few rows: meanwhile it may be freed or rebuilt.
    pub async fn scrub_segment(self: &Rc<Self>, id: SegmentId, kind: ScrubKind) -> Result<(), Fault> {
        let mut row = 0;
        let mut expected = Expectations::new();
        // From here on a header must begin; before it lie rows of a record that is known, or lost.
        let mut next_header = 0;
        loop {
            self.members.writable()?;
            let begun = self.ctx.rt.now();
            let pin = self.pins.pin();
            let Some(columns) = self.rows.columns(id) else { return Ok(()) };
            let rows = self.acked_rows_of(id);
            if row >= rows || !self.course.scrub_goes_on() {
                return Ok(());
            }
            let end = rows.min(row + ROWS_AT_ONCE);
            let have = self.rows.read_rows(&columns, &[], row, end - row).await;
            while next_header < end {
                let block = next_header.checked_sub(row).and_then(|r| have.block(0, r));
                let header = match block.and_then(|block| self.rows.header_in(&columns, next_header, block)) {
                    Some(header) => Some(header),
                    None => self.rows.read_header(&columns, next_header).await,
                };
                self.members.writable()?;
                match header {
                    Some(header) => {
                        expect(&mut expected, &header);
                        next_header += header.rows;
                    }
                    None => {
                        self.header_lost(&columns, next_header);
                        next_header = self.next_header(&columns, next_header + 1, rows).await?;
                    }
                }
            }
            for r in row..end {
                if !self.row_is_right(&columns, &have, r - row, &expected, r, kind) {
                    self.mend_row(&columns, &expected, r).await?;
                }
            }
            drop(pin);
            let here = (0..columns.scheme.width()).filter(|c| self.rows.slot_seat(&columns, *c).is_some()).count();
            self.course.scrub_pause(u64::from(end - row) * (here * BLOCK_BYTES) as u64, begun).await;
            expected = expected.split_off(&(end, 0));
            row = end;
        }
    }

    fn acked_rows_of(&self, id: SegmentId) -> u32 {
        let table = self.segments.read();
        let written = |s: &&crate::space::segment::Seg| !s.is_spare();
        table
            .segments
            .get(&id)
            .filter(written)
            .map_or(0, |s| if planted(Canary::ScrubBeyondAcked) { s.rows.append } else { s.rows.acked })
    }

    /// The next row at which a record begins.
    async fn next_header(&self, columns: &Columns, from: u32, rows: u32) -> Result<u32, Fault> {
        for row in from..rows {
            self.members.writable()?;
            if self.rows.read_header(columns, row).await.is_some() {
                return Ok(row);
            }
        }
        Ok(rows)
    }

    fn header_lost(&self, columns: &Columns, row: u32) {
        if let Some((seat, zone)) = self.rows.slot_seat(columns, 0) {
            let text = at(&seat, zone, columns.id, row, "record header");
            self.course.scrub_found(&seat, &text, Outcome::Lost);
        }
    }

    /// Whether all that was read of a row is as it should be. Blocks of members that are not there do not count.
    fn row_is_right(
        &self,
        columns: &Columns,
        have: &Rows,
        r: u32,
        expected: &Expectations,
        row: u32,
        kind: ScrubKind,
    ) -> bool {
        let (k, width) = (columns.scheme.k(), columns.scheme.width());
        let copies = matches!(columns.scheme, Scheme::Copies { .. });
        for c in 0..width {
            let Some(block) = have.block(c, r) else {
                if self.rows.slot_seat(columns, c).is_some() {
                    return false;
                }
                continue;
            };
            let data = if copies { c % k } else { c };
            if data < k
                && let Some(e) = expected.get(&(row, data))
                && crc32c(block) != e.crc
                && !(planted(Canary::ScrubBlocksSkipped) && matches!(e.what, What::Block(..)))
            {
                return false;
            }
        }
        kind == ScrubKind::Media || planted(Canary::ScrubParitySkipped) || self.redundancy_fits(columns, have, r)
    }

    /// Whether redundancy goes with the data, where all of a row was read.
    fn redundancy_fits(&self, columns: &Columns, have: &Rows, r: u32) -> bool {
        let (k, width) = (columns.scheme.k(), columns.scheme.width());
        match columns.scheme {
            Scheme::Copies { .. } => (k..width).all(|c| match (have.block(c, r), have.block(c % k, r)) {
                (Some(copy), Some(block)) => copy == block,
                _ => true,
            }),
            Scheme::Parity { .. } => {
                let all: Vec<&[u8]> = (0..width).filter_map(|c| have.block(c, r)).collect();
                all.len() < width || erasure::matches(self.ctx.kernel, &all[..k], &all[k..])
            }
        }
    }

    /// Reads a row once more and puts right what is wrong. What is lost beyond the redundancy becomes a durable bad
    /// entry where it is live.
    async fn mend_row(self: &Rc<Self>, columns: &Columns, expected: &Expectations, row: u32) -> Result<(), Fault> {
        let (k, width) = (columns.scheme.k(), columns.scheme.width());
        let have = self.rows.read_rows(columns, &[], row, 1).await;
        self.members.writable()?;
        let of = |c: usize| expected.get(&(row, c));
        if (0..k).any(|c| of(c).is_none()) {
            self.row_unknown(columns, &have, row);
            return Ok(());
        }
        let copies = matches!(columns.scheme, Scheme::Copies { .. });
        let ok = |c: usize, b: &[u8]| match of(if copies { c % k } else { c }) {
            Some(e) => crc32c(b) == e.crc,
            None => true,
        };
        let right: Vec<Option<Buf>> =
            (0..width).map(|c| have.block(c, 0).filter(|b| ok(c, b)).map(Buf::from_slice)).collect();
        let made: Vec<Option<Buf>> = match self.rows.whole_row(columns, right, &ok) {
            Some(whole) => whole.into_iter().map(Some).collect(),
            None => {
                let mut made = Vec::with_capacity(width);
                for c in 0..k {
                    made.push(match have.block(c, 0).filter(|b| ok(c, b)) {
                        Some(block) => Some(Buf::from_slice(block)),
                        None => self.rows.recover_block(columns, c, row, |b| ok(c, b)).await,
                    });
                }
                for c in k..width {
                    let copy = if copies { made[c % k].as_ref().map(|b| Buf::from_slice(b)) } else { None };
                    made.push(copy);
                }
                made
            }
        };
        for (c, block) in made.into_iter().enumerate() {
            let Some((seat, zone)) = self.rows.slot_seat(columns, c) else { continue };
            let there = have.block(c, 0);
            let what = if c < k { of(c).map_or("block", |e| e.what.word()) } else { "redundancy" };
            match block {
                Some(block) if there != Some(&block[..]) => {
                    let wrong = if there.is_some() { "is not what was written" } else { "cannot be read" };
                    if there.is_some() {
                        seat.counters.mismatches.add(1);
                    }
                    let held = self.write_back_checked(columns, c, row, block.freeze()).await;
                    self.members.writable()?;
                    let Some(held) = held else { continue };
                    if held == Outcome::NotHeld {
                        self.course.failing.borrow_mut().insert(columns.id);
                    }
                    self.course.scrub_found(
                        &seat,
                        &format!("{} {wrong}", at(&seat, zone, columns.id, row, what)),
                        held,
                    );
                }
                Some(_) => {}
                None if c < k => {
                    self.members.writable()?;
                    self.course.scrub_found(&seat, &at(&seat, zone, columns.id, row, what), Outcome::Lost);
                    if let Some(e) = of(c) {
                        self.mark_bad(columns, c, row, *e).await?;
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// A row of a record whose header is lost: nothing in it can be proven.
    fn row_unknown(&self, columns: &Columns, have: &Rows, row: u32) {
        for c in 0..columns.scheme.width() {
            if have.block(c, 0).is_none()
                && let Some((seat, zone)) = self.rows.slot_seat(columns, c)
            {
                let text = format!("{} cannot be read", at(&seat, zone, columns.id, row, "block"));
                self.course.scrub_found(&seat, &text, Outcome::Lost);
            }
        }
    }

    /// Writes a block back and reads it again; `None` when it is nobody's any more: the segment was given back, or the member
    /// went.
    async fn write_back_checked(&self, columns: &Columns, column: usize, row: u32, block: Bytes) -> Option<Outcome> {
        for _ in 0..WRITES_MAX {
            let written = self.rows.write_back(columns, column, row, block.clone()).await;
            if written.is_none() && planted(Canary::GivenBackNotHeld) {
                return Some(Outcome::NotHeld);
            }
            match written? {
                Ok(()) => {}
                // It stays as it is until a scrub finds room.
                Err(rt::IoError::NoSpace) => return Some(Outcome::NoRoom),
                Err(_) => continue,
            }
            let unasked = planted(Canary::ScrubBelievesWrites);
            let read = if unasked { None } else { self.rows.read_column(columns, column, row, 1).await };
            if unasked || read.as_deref() == Some(&block[..]) {
                self.ctx.figures.repaired_blocks.add(1);
                return Some(Outcome::Repaired);
            }
        }
        Some(Outcome::NotHeld)
    }

    /// A block beyond the redundancy: where it is live it is an error from here on, durably, as the cleaner makes it.
    async fn mark_bad(self: &Rc<Self>, columns: &Columns, column: usize, row: u32, e: Expected) -> Result<(), Fault> {
        if planted(Canary::ScrubLossForgotten) {
            return Ok(());
        }
        let place = Place { pba: pba(columns.id, column, row, self.ctx.shape.zone_blocks), crc: e.crc };
        let marked = match e.what {
            What::Block(volume, lba) => self.cleaner.mark_if_lost((volume, lba, place)).await,
            // The merge finds out what it can no longer say.
            What::Node(volume, lba, level) => {
                self.surveyor.touch(volume, lba, level, place.pba).await.map(|_| self.ctx.want_checkpoint())
            }
            What::Header | What::Padding => Ok(()),
        };
        self.members.writable()?;
        // A map that cannot be read is found by itself.
        marked.or(Ok(()))
    }
}

/// Takes in what a header says of its rows.
fn expect(expected: &mut Expectations, header: &RecordHeader) {
    let mut image = vec![0; BLOCK_BYTES];
    header.encode(&mut image);
    expected.insert((header.row, 0), Expected { crc: crc32c(&image), what: What::Header });
    for (index, entry, crc) in header.payload() {
        let (column, row) = header.payload_place(index);
        let what = match *entry {
            Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. } => What::Block(volume, lba),
            Entry::MapNode { volume, lba, level, .. } => What::Node(volume, lba, level),
            Entry::Pad | Entry::Hole { .. } | Entry::Zero { .. } | Entry::Bad { .. } => What::Padding,
        };
        expected.insert((row, column), Expected { crc, what });
    }
}

/// What lies where, for people.
fn at(seat: &Seat, zone: u32, segment: SegmentId, row: u32, what: &str) -> String {
    let byte = seat.layout.zone_row(zone, row).byte_offset();
    format!("{what} at byte {byte} (segment {segment}, row {row})")
}
