//! Several runs of blocks at once, as a request of a host wants them.
//!
//! What answers soon and matches its checksums takes one step. One deadline counts for all runs; what is late then, fails or
//! does not match goes the way of a single run, alone.

use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use base::{BLOCK_BYTES, MemberLba};
use futures::future::{Either, FutureExt, join_all, select};
use ondisk::{MapRef, Place, crc32c};
use rt::{Buf, Nanos};

use super::RowReader;
use super::hedge::ROWS_MAX;
use crate::canary::{Canary, planted};
use crate::fault::Fault;
use crate::member::seat::Seat;
use crate::space::segment::Seg;

/// `join_all` makes a task on the heap for each of more futures than this.
const JOINED_AT_ONCE: usize = 30;

/// The places of stored blocks, in runs that lie behind each other in one column.
#[derive(Default)]
pub struct Runs {
    places: Vec<Place>,
    /// Index of the first block, and which places.
    runs: Vec<(usize, Range<usize>)>,
}

impl Runs {
    /// The runs of what `refs` say; holes and zeros are left out.
    ///
    /// # Errors
    /// [`Fault::Medium`] where a block is bad.
    pub fn of(refs: &[MapRef], zone_blocks: u32) -> Result<Runs, Fault> {
        let mut all = Runs { places: Vec::with_capacity(refs.len()), runs: Vec::new() };
        for (i, says) in refs.iter().enumerate() {
            let place = match says {
                MapRef::Bad => return Err(Fault::Medium),
                MapRef::Hole | MapRef::Zero => continue,
                MapRef::At(place) => *place,
            };
            let end = all.places.len();
            let follows = |last: &Place| {
                last.pba.segment == place.pba.segment
                    && last.pba.block + 1 == place.pba.block
                    && place.pba.block % zone_blocks != 0
            };
            match all.runs.last_mut() {
                Some((first, run)) if *first + run.len() == i && follows(&all.places[end - 1]) => run.end += 1,
                _ => all.runs.push((i, end..end + 1)),
            }
            all.places.push(place);
        }
        Ok(all)
    }

    /// Each run: the index of its first block, and its places.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[Place])> {
        self.runs.iter().map(|(first, run)| (*first, &self.places[run.clone()]))
    }
}

/// A run that is being read.
struct Asked<'a> {
    places: &'a [Place],
    /// Its member, which is in and not slow, and where it lies there.
    member: Option<(Rc<Seat>, MemberLba)>,
    /// Whether what it said did not match: it is made good, on the drive, too, and nothing else is the answer.
    mismatched: Cell<bool>,
    /// Whether that is under way: another answer may have come before, and would end it half way.
    mending: Cell<bool>,
    /// What came first: the blocks, or that they are lost.
    answer: OnceCell<Option<Buf>>,
}

impl RowReader {
    /// Reads runs, all at once; `None` for each that is lost.
    pub async fn read_runs(&self, runs: &Runs) -> Vec<Option<Buf>> {
        let begun = self.ctx.rt.turned();
        let asked: Vec<Asked<'_>> = runs.iter().map(|(_, places)| self.ask(places)).collect();
        let patience = asked.iter().filter_map(Asked::hedged).map(|(seat, _)| self.patience(seat)).max();
        let patience = patience.filter(|_| !planted(Canary::LateRunsWaitedFor));
        {
            let part = |part| join_all(<[Asked<'_>]>::iter(part).map(|asked| self.answer(asked, begun)));
            let all = pin!(join_all(asked.chunks(JOINED_AT_ONCE).map(part)));
            match patience {
                None => _ = all.await,
                Some(patience) => {
                    let late = pin!(self.ctx.rt.sleep_until(begun + patience));
                    if let Either::Right(((), mut all)) = select(all, late).await {
                        let mut around = Box::pin(self.go_around_late(&asked, begun)).fuse();
                        poll_fn(|cx| {
                            let all_came = all.poll_unpin(cx).is_ready();
                            let _went_around = around.poll_unpin(cx);
                            if all_came || asked.iter().all(Asked::is_done) { Poll::Ready(()) } else { Poll::Pending }
                        })
                        .await;
                    }
                }
            }
        }
        asked.into_iter().map(|asked| asked.answer.into_inner().flatten()).collect()
    }

    fn ask<'a>(&self, places: &'a [Place]) -> Asked<'a> {
        let member = self.quick_member(places[0]);
        if let Some((seat, _)) = &member {
            self.earn_hedges(seat);
        }
        Asked { places, member, mismatched: Cell::default(), mending: Cell::default(), answer: OnceCell::new() }
    }

    async fn answer(&self, asked: &Asked<'_>, begun: Nanos) {
        if let Some((seat, at)) = &asked.member {
            let (result, data) = pin!(seat.read(*at, Buf::for_overwrite(asked.places.len() * BLOCK_BYTES))).await;
            seat.speed.took(self.ctx.rt.turned() - begun);
            let matches = |(block, place): (&[u8], &Place)| crc32c(block) == place.crc;
            let all_match = || data.chunks_exact(BLOCK_BYTES).zip(asked.places).all(matches);
            if result.is_ok() && (all_match() || planted(Canary::ChecksumIgnored)) {
                _ = asked.answer.set(Some(data));
                return;
            }
            let direct = match result {
                Ok(()) => Some(data),
                Err(error) => Box::pin(self.read_again(seat, *at, error, data)).await,
            };
            asked.mismatched.set(true);
            asked.mending.set(true);
            let made = Box::pin(self.make_good(asked.places, direct)).await;
            asked.mending.set(false);
            if let Some(data) = made {
                _ = asked.answer.set(Some(data));
                return;
            }
        }
        let data = Box::pin(self.read_places(asked.places)).await;
        _ = asked.answer.set(data);
    }

    /// What a member said of a run, made good where it did not match, there too; `None` when it is lost.
    async fn make_good(&self, places: &[Place], direct: Option<Buf>) -> Option<Buf> {
        let columns = self.columns(places[0].pba.segment)?;
        let (column, row) = Seg::place(places[0].pba.block, self.ctx.shape.zone_blocks);
        let crcs: Vec<u32> = places.iter().map(|place| place.crc).collect();
        let run = self.made_good(&columns, column, row, &crcs, direct).await;
        (!run.lost).then_some(run.data)
    }

    /// Reads around the members that are late.
    async fn go_around_late(&self, asked: &[Asked<'_>], begun: Nanos) {
        let late = asked.iter().filter(|asked| asked.answer.get().is_none() && !asked.mismatched.get());
        join_all(late.map(|asked| self.go_around_one(asked, begun))).await;
    }

    async fn go_around_one(&self, asked: &Asked<'_>, begun: Nanos) {
        let Some((seat, _)) = asked.hedged() else { return };
        let Some(columns) = self.columns(asked.places[0].pba.segment) else { return };
        let (column, row) = Seg::place(asked.places[0].pba.block, self.ctx.shape.zone_blocks);
        let Some(hedge) = self.hedge(&columns, column) else { return };
        let crcs: Vec<u32> = asked.places.iter().map(|place| place.crc).collect();
        if let Some(data) = self.go_around(&columns, column, row, &crcs, &hedge).await
            && !asked.mismatched.get()
            && asked.answer.set(Some(data)).is_ok()
        {
            self.went_around(seat, begun);
        }
    }

    /// One run of places down one column, however long it takes; `None` when it is lost.
    async fn read_places(&self, places: &[Place]) -> Option<Buf> {
        let columns = self.columns(places[0].pba.segment)?;
        let (column, row) = Seg::place(places[0].pba.block, self.ctx.shape.zone_blocks);
        let crcs: Vec<u32> = places.iter().map(|place| place.crc).collect();
        let run = self.read_run(&columns, column, row, &crcs).await;
        (!run.lost).then_some(run.data)
    }
}

impl Asked<'_> {
    /// Whether its answer is there, and nothing has to be done on the drive.
    fn is_done(&self) -> bool {
        self.answer.get().is_some() && !self.mending.get()
    }

    /// The member that is read around when it is late: long runs take as long as their bytes do.
    fn hedged(&self) -> Option<&(Rc<Seat>, MemberLba)> {
        self.member.as_ref().filter(|_| self.places.len() as u32 <= ROWS_MAX)
    }
}
