//! Hedged reads: a member that is slow is read around. After a deadline a block is made from the rest of its row, and
//! whichever comes first and matches its checksum is the answer. So one slow drive does not set the array's tail.
//!
//! The deadline follows what reads have taken lately: three times the high quantile of the member, or of the others where
//! it is much slower than they are. One that is known to be slow is not asked first at all, but for one read in sixteen,
//! which tells when it is itself again.
//!
//! Bounded: hedged reads are at most twice as many as what is asked for, about what a degraded array does.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{BLOCK_BYTES, MemberLba};
use futures::future::{Either, select};
use ondisk::{Place, Scheme, crc32c};
use rt::{Buf, Nanos};

use super::RowReader;
use crate::canary::{Canary, planted};
use crate::member::seat::Seat;
use crate::row::Columns;
use crate::space::segment::Seg;

/// A member is slow when its quantile is so many times the middle one.
const SLOW: f64 = 4.0;

/// The deadline is so many quantiles.
const DEADLINE: f64 = 3.0;

/// No deadline is shorter: a drive's own work (erasing, refreshing) takes as long now and then.
const DEADLINE_MIN: Duration = Duration::from_micros(500);

/// No deadline is longer.
const DEADLINE_MAX: Duration = Duration::from_millis(200);

/// A slow member is asked directly by one read in so many.
const PROBE_ONE_IN: u64 = 16;

/// Hedged reads that one read earns: one member of `k + m` slow for good takes `k + m - 2` for each `k` reads.
const EARNED: f64 = 2.0;

/// Hedged reads that may be saved up.
const SAVED_MAX: f64 = 256.0;

/// Rows of the largest read that is hedged: longer ones take as long as the bytes do.
pub const ROWS_MAX: u32 = 16;

/// Hedged reads that may still be made.
pub struct Budget(Cell<f64>);

impl Default for Budget {
    fn default() -> Self {
        Budget(Cell::new(SAVED_MAX / 4.0))
    }
}

impl Budget {
    fn earn(&self) {
        self.0.set((self.0.get() + EARNED).min(SAVED_MAX));
    }

    fn spend(&self, reads: f64) -> bool {
        let left = self.0.get() - reads;
        if left >= 0.0 {
            self.0.set(left);
        }
        left >= 0.0
    }
}

/// How a block could be had without its member.
pub struct Hedge {
    /// Columns that are not asked: the block's own, and those that are slow.
    without: Vec<usize>,
    /// Reads it takes.
    reads: f64,
}

/// What a read came to.
pub enum Answer {
    /// What the member itself said, unverified; `None` when it could not.
    Direct(Option<Buf>),
    /// Made from the others; every block matched.
    Around(Buf),
}

impl RowReader {
    /// Reads a run of one column from its member, or around it.
    pub async fn read_or_go_around(&self, columns: &Columns, column: usize, row: u32, crcs: &[u32]) -> Answer {
        let rows = crcs.len() as u32;
        let member = self.slot_seat(columns, column).filter(|_| rows <= ROWS_MAX);
        let Some((seat, zone)) = member else {
            return Answer::Direct(self.read_column(columns, column, row, rows).await);
        };
        self.hedges.earn();
        let probe = seat.speed.probes(PROBE_ONE_IN);
        if self.is_slow(&seat)
            && !probe
            && let Some(hedge) = self.hedge(columns, column)
        {
            // It takes the place of a read of the member.
            let hedge = Hedge { reads: hedge.reads - 1.0, ..hedge };
            let around = self.around_first(columns, column, row, crcs, &seat, &hedge);
            return Box::pin(around).await;
        }
        let begun = self.ctx.rt.turned();
        let direct = pin!(self.read_of(&seat, seat.layout.zone_row(zone, row), rows));
        let data = match select(direct, pin!(self.ctx.rt.sleep_until(begun + self.patience(&seat)))).await {
            Either::Left((data, _)) => data,
            Either::Right((_, direct)) => match self.late(columns, column, row, crcs, direct).await {
                Answer::Around(data) => {
                    self.went_around(&seat, begun);
                    return Answer::Around(data);
                }
                Answer::Direct(data) => data,
            },
        };
        seat.speed.took(self.ctx.rt.turned() - begun);
        Answer::Direct(data)
    }

    /// The member that has a place, and where, when it is in and not slow.
    pub fn quick_member(&self, place: Place) -> Option<(Rc<Seat>, MemberLba)> {
        let (column, row) = Seg::place(place.pba.block, self.ctx.shape.zone_blocks);
        let slot = *self.segments.read().segments.get(&place.pba.segment)?.slots.get(column)?;
        let (member, zone) = slot?;
        let seat = self.members.seat(member).filter(|seat| seat.is_in() && zone < seat.layout.zones)?;
        let at = seat.layout.zone_row(zone, row);
        (!self.is_slow(&seat)).then_some((seat, at))
    }

    /// A member that is not slow is about to be read.
    pub fn earn_hedges(&self, seat: &Seat) {
        self.hedges.earn();
        seat.speed.probes(PROBE_ONE_IN);
    }

    /// The block at `place`: at once when its member is in, not slow, and says what matches. `None` when it is not so, or
    /// the block cannot be had.
    pub async fn read_place(&self, place: Place) -> Option<Buf> {
        let (seat, at) = self.quick_member(place)?;
        self.earn_hedges(&seat);
        let begun = self.ctx.rt.turned();
        let direct = pin!(self.read_of(&seat, at, 1));
        let (data, columns) = match select(direct, pin!(self.ctx.rt.sleep_until(begun + self.patience(&seat)))).await {
            Either::Left((data, _)) => (data, None),
            Either::Right((_, direct)) => {
                let columns = self.columns(place.pba.segment)?;
                let (column, row) = Seg::place(place.pba.block, self.ctx.shape.zone_blocks);
                match Box::pin(self.late(&columns, column, row, &[place.crc], direct)).await {
                    Answer::Around(data) => {
                        self.went_around(&seat, begun);
                        return Some(data);
                    }
                    Answer::Direct(data) => (data, Some(columns)),
                }
            }
        };
        seat.speed.took(self.ctx.rt.turned() - begun);
        match data {
            Some(data) if crc32c(&data) == place.crc || planted(Canary::ChecksumIgnored) => Some(data),
            data => {
                let columns = columns.or_else(|| self.columns(place.pba.segment))?;
                let (column, row) = Seg::place(place.pba.block, self.ctx.shape.zone_blocks);
                let run = Box::pin(self.made_good(&columns, column, row, &[place.crc], data)).await;
                (!run.lost).then_some(run.data)
            }
        }
    }

    /// Rows of a member as it has them, unverified; `None` when it could not say.
    async fn read_of(&self, seat: &Seat, at: MemberLba, rows: u32) -> Option<Buf> {
        let (result, data) = pin!(seat.read(at, Buf::for_overwrite(rows as usize * BLOCK_BYTES))).await;
        match result {
            Ok(()) => Some(data),
            Err(error) => Box::pin(self.read_again(seat, at, error, data)).await,
        }
    }

    /// A read is late: what it says, or what the others say before it. How these could say it is looked for only now:
    /// nearly all reads have been answered before.
    async fn late(
        &self,
        columns: &Columns,
        column: usize,
        row: u32,
        crcs: &[u32],
        direct: impl Future<Output = Option<Buf>> + Unpin,
    ) -> Answer {
        let Some(hedge) = self.hedge(columns, column) else { return Answer::Direct(direct.await) };
        match select(direct, Box::pin(self.go_around(columns, column, row, crcs, &hedge))).await {
            Either::Left((data, _)) => Answer::Direct(data),
            Either::Right((Some(data), _)) => Answer::Around(data),
            Either::Right((None, direct)) => Answer::Direct(direct.await),
        }
    }

    pub fn went_around(&self, seat: &Seat, begun: Nanos) {
        seat.speed.took(self.ctx.rt.turned() - begun);
        seat.speed.went_around();
    }

    /// Goes around a slow member. Who is slow may have been another one lately: the member itself is asked after the
    /// deadline all the same.
    async fn around_first(
        &self,
        columns: &Columns,
        column: usize,
        row: u32,
        crcs: &[u32],
        seat: &Seat,
        hedge: &Hedge,
    ) -> Answer {
        let rows = crcs.len() as u32;
        let around = pin!(self.go_around(columns, column, row, crcs, hedge));
        let around = match select(around, pin!(self.ctx.rt.sleep(self.patience(seat)))).await {
            Either::Left((Some(data), _)) => {
                seat.speed.went_around();
                return Answer::Around(data);
            }
            Either::Left((None, _)) => return self.timed(columns, column, row, rows, seat).await,
            Either::Right((_, around)) => around,
        };
        if planted(Canary::SlowNotAsked) {
            return around.await.map_or(Answer::Direct(None), Answer::Around);
        }
        match select(around, pin!(self.timed(columns, column, row, rows, seat))).await {
            Either::Left((Some(data), _)) => {
                seat.speed.went_around();
                Answer::Around(data)
            }
            Either::Left((None, direct)) => direct.await,
            Either::Right((answer, _)) => answer,
        }
    }

    /// Rows of one column as its member has them, unverified, if it says so soon: who does not need them alone can ask for
    /// each by [`RowReader::read_or_go_around`]. What lies between is not wanted, so an error says nothing of the member.
    pub async fn read_if_soon(&self, columns: &Columns, column: usize, row: u32, rows: u32) -> Option<Buf> {
        let (seat, zone) = self.slot_seat(columns, column).filter(|(seat, _)| !self.is_slow(seat))?;
        let begun = self.ctx.rt.turned();
        let read = pin!(seat.read(seat.layout.zone_row(zone, row), Buf::for_overwrite(rows as usize * BLOCK_BYTES)));
        let patience = if planted(Canary::RunWaitedFor) { Duration::from_secs(3600) } else { DEADLINE_MAX };
        let data = match select(read, pin!(self.ctx.rt.sleep_until(begun + patience))).await {
            Either::Left(((Ok(()), data), _)) => Some(data),
            Either::Left(((Err(_), _), _)) | Either::Right(_) => None,
        };
        seat.speed.took(self.ctx.rt.turned() - begun);
        data
    }

    async fn timed(&self, columns: &Columns, column: usize, row: u32, rows: u32, seat: &Seat) -> Answer {
        let begun = self.ctx.rt.turned();
        let data = self.read_column(columns, column, row, rows).await;
        seat.speed.took(self.ctx.rt.turned() - begun);
        Answer::Direct(data)
    }

    /// The run from the others, if every block of it matches.
    pub async fn go_around(
        &self,
        columns: &Columns,
        column: usize,
        row: u32,
        crcs: &[u32],
        hedge: &Hedge,
    ) -> Option<Buf> {
        if !self.hedges.spend(hedge.reads) {
            return None;
        }
        let data = self.reconstruct(columns, &hedge.without, column, row, crcs.len() as u32).await?;
        let matches = |(block, crc): (&[u8], &u32)| crc32c(block) == *crc || planted(Canary::HedgeUnverified);
        data.chunks_exact(BLOCK_BYTES).zip(crcs).all(matches).then_some(data)
    }

    /// The middle of the members' quantiles, in nanoseconds, as it was when this turn of the runtime first asked; 0 when nothing is
    /// known.
    fn middle_ns(&self) -> f64 {
        let turned = self.ctx.rt.turned();
        match self.middle.get() {
            Some((at, middle)) if at == turned => middle,
            Some(_) | None => {
                let middle = self.find_middle_ns();
                self.middle.set(Some((turned, middle)));
                middle
            }
        }
    }

    fn find_middle_ns(&self) -> f64 {
        let seats = self.members.all();
        let known = seats.iter().filter(|s| s.is_in()).map(|s| s.speed.high_ns()).filter(|ns| *ns > 0.0);
        let mut known: Vec<f64> = known.collect();
        if known.is_empty() {
            return 0.0;
        }
        // Of an even number the lower: of two members one may be slow.
        let middle = (known.len() - 1) / 2;
        *known.select_nth_unstable_by(middle, f64::total_cmp).1
    }

    fn is_slow(&self, seat: &Seat) -> bool {
        let high = seat.speed.high_ns();
        // Nearly all are quick beyond doubt: the middle one is looked for only for the others.
        high > DEADLINE_MIN.as_nanos() as f64 && high > SLOW * self.middle_ns()
    }

    /// How long a member is waited for alone.
    pub fn patience(&self, seat: &Seat) -> Duration {
        let own = seat.speed.high_ns();
        if own > 0.0 && own * DEADLINE <= DEADLINE_MIN.as_nanos() as f64 {
            return DEADLINE_MIN;
        }
        let middle = self.middle_ns();
        let usual = if own == 0.0 { middle } else { own.min(2.0 * middle) };
        Duration::from_nanos((usual * DEADLINE) as u64).clamp(DEADLINE_MIN, DEADLINE_MAX)
    }

    /// How to read around a column's member; `None` when there is no redundancy left for it among those that are quick.
    pub fn hedge(&self, columns: &Columns, column: usize) -> Option<Hedge> {
        if planted(Canary::HedgeForgotten) {
            return None;
        }
        let slow = |c: usize| self.slot_seat(columns, c).is_none_or(|(s, _)| self.is_slow(&s));
        let mut without: Vec<usize> = (0..columns.scheme.width()).filter(|c| *c == column || slow(*c)).collect();
        if !columns.scheme.survives(|c| without.contains(&c)) {
            // Who is slow is not known well while reads are few: those that are there, and the first answer counts.
            without.retain(|&c| c == column || self.slot_seat(columns, c).is_none());
            if !columns.scheme.survives(|c| without.contains(&c)) {
                return None;
            }
        }
        let reads = match columns.scheme {
            Scheme::Copies { .. } => 1.0,
            Scheme::Parity { .. } => (columns.scheme.width() - without.len()) as f64,
        };
        Some(Hedge { without, reads })
    }
}
