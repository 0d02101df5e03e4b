//! Rebuild: columns that are lost, or lie on a member that leaves, get another place; segment by segment, several at
//! once.
//!
//! ```text
//! next segment: the least redundancy left first -> restored (restore.rs) or cleaned -> a generation names the places
//! ```
//!
//! Which segment comes next is asked each time: when another member goes out meanwhile, what it leaves most exposed comes
//! next. A segment with little live data is cleaned where that costs less than its columns; one without live data is
//! left alone.
//!
//! Invariants:
//! - what is written to a new place matched the checksums of its record, or was made from what did;
//! - the old place of a column is kept until a generation that names the new one has taken effect and nobody looks at it
//!   any more; a member leaves when nothing lies on it.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, MemberId, SegmentId};
use futures::future::{join_all, select};
use ondisk::{MemberState, Scheme, Slot};

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::ctx::Wish;
use crate::engine::status::RebuildStatus;
use crate::fault::Fault;
use crate::jobs::rebuild_pace::{LANES, RebuildPace};
use crate::jobs::victims::Victim;
use crate::member::seat::Seat;
use crate::space::choose::choose;
use crate::space::segment::Seg;
use crate::space::segments::Table;

/// Segments restored before the generation that names them.
const SEGMENTS_PER_GENERATION: u64 = 8;

/// What a block costs to write, in blocks read.
const WRITE_COST: u64 = 3;

/// While rebuilds wait, what was emptied meanwhile is looked for so often.
const LOOK_WHILE_PAUSED: Duration = Duration::from_secs(5);

/// Between two tries when something is left that has no place.
const RETRY: Duration = Duration::from_secs(1);

/// How a rebuild goes.
#[derive(Default)]
pub struct Progress {
    pub(super) running: Cell<bool>,
    done: Cell<u64>,
    pub(super) bytes: Cell<u64>,
    pub(super) rows_lost: Cell<u64>,
    began: Cell<Option<rt::Nanos>>,
    pub(super) pace: RebuildPace,
    /// Segments that a lane has.
    under_way: RefCell<BTreeSet<SegmentId>>,
    /// Segments that could not be restored, until a member changes or the next pass.
    passed_over: RefCell<BTreeSet<SegmentId>>,
    /// Segments that were cleaned in this pass: what is live in them all the same is restored.
    cleaned: RefCell<BTreeSet<SegmentId>>,
    /// A checkpoint of this pass has counted what is live.
    counted: Cell<bool>,
    /// Members that went out, when [`Progress::passed_over`] began.
    failures: Cell<u64>,
    /// Lost columns restored, and segments restored, that no generation names yet.
    pub(super) unnamed_lost: Cell<u64>,
    /// What the worst of their segments has to spare until a generation names them.
    pub(super) unnamed_to_spare: Cell<Option<usize>>,
    unnamed: Cell<u64>,
    /// Old places of columns that were moved, for the next generation.
    pub(super) left_behind: RefCell<Vec<(Rc<Seat>, u32)>>,
    /// Members that the generation being written lets go, and those that one in effect has.
    pub(super) going: RefCell<Vec<Rc<Seat>>>,
    pub(super) gone: RefCell<Vec<Rc<Seat>>>,
}

/// How a segment gets its redundancy back, or off a member.
enum Way {
    /// Its columns are written elsewhere.
    Restore,
    /// What is live in it is.
    Clean(Victim),
    /// It is taken from its stream, so that it can be cleaned.
    Seal,
}

impl Progress {
    /// What the worst of the restored segments that no generation names yet has to spare until one does.
    pub fn unnamed_to_spare(&self) -> Option<usize> {
        self.unnamed_to_spare.get()
    }

    /// Rates were set anew.
    pub fn rate_changed(&self) {
        self.pace.rate_changed();
    }
}

impl Core {
    /// Whether a column has to be made from the others.
    pub(super) fn is_lost(&self, slot: &Slot) -> bool {
        slot.is_none_or(|(m, _)| self.members.seat(m).is_none_or(|s| s.state() != MemberState::In))
    }

    /// Whether a column has to be somewhere else.
    pub(super) fn is_homeless(&self, slot: &Slot) -> bool {
        self.is_lost(slot) || slot.is_some_and(|(m, _)| self.members.seat(m).is_some_and(|s| s.leaves()))
    }

    /// Sealed or open segments that hold something and lack a column.
    pub fn broken_segments(&self) -> impl Iterator<Item = SegmentId> {
        let table = self.segments.read();
        let broken = |s: &&Seg| s.matters() && s.slots.iter().any(|slot| self.is_lost(slot));
        table.segments.values().filter(broken).map(|s| s.id).collect::<Vec<_>>().into_iter()
    }

    /// Whether redundancy is lacking somewhere, also by the generation in effect alone.
    pub fn lacks_redundancy(&self) -> bool {
        self.jobs.rebuild.unnamed_lost.get() > 0 || self.broken_segments().next().is_some() || self.is_behind()
    }

    /// Whether the generation in effect lists a segment that lacks a column and that nobody needs any more, or yet: a
    /// process that opens the array cannot know that.
    fn is_behind(&self) -> bool {
        let table = self.segments.read();
        table.listed().any(|s| !s.matters() && s.slots.iter().any(|slot| self.is_lost(slot)))
    }

    /// Whether a member is out whose bay nobody has taken.
    pub fn lacks_members(&self) -> bool {
        self.members.all().iter().any(|s| s.state() == MemberState::Out && !self.bay_filled(s.bay()))
    }

    /// Segments that are to be rebuilt, and the bytes of their columns that are.
    fn rebuild_left(&self) -> (u64, u64) {
        let table = self.segments.read();
        // What was cleaned waits for its generation.
        let left = table.segments.values().filter(|s| s.matters() && !s.is_cleaned()).map(|s| s.id);
        let work = left.map(|id| self.homeless_bytes(id)).filter(|bytes| *bytes > 0);
        work.fold((0, 0), |(n, all), bytes| (n + 1, all + bytes))
    }

    /// Bytes of a segment's columns that have to be somewhere else.
    fn homeless_bytes(&self, id: SegmentId) -> u64 {
        let table = self.segments.read();
        let Some(seg) = table.segments.get(&id) else { return 0 };
        let columns = seg.slots.iter().filter(|slot| self.is_homeless(slot)).count() as u64;
        BlockCount(columns * u64::from(seg.rows.acked)).bytes()
    }

    /// Whether somebody who is in sits in `bay`.
    pub fn bay_filled(&self, bay: u16) -> bool {
        self.members.all().iter().any(|s| s.bay() == bay && s.is_in())
    }

    /// Whether one is under way.
    pub fn is_rebuilding(&self) -> bool {
        self.jobs.rebuild.running.get() && self.may_rebuild()
    }

    /// Whether a segment's columns have no seats, and no drive is awaited that would bring one: then what is live in it is written
    /// elsewhere, in fewer columns.
    fn lacks_seats(&self, seg: &Seg) -> bool {
        let homeless = seg.slots.iter().filter(|slot| self.is_homeless(slot)).count();
        let seats = self.members.all().iter().filter(|s| s.takes_columns() && !seg.uses(s.id)).count();
        homeless > seats && !self.lacks_members() && !planted(Canary::TooFewSeats)
    }

    /// The rebuild under way, or paused.
    pub fn rebuild_status(&self) -> Option<RebuildStatus> {
        let p = &self.jobs.rebuild;
        let (left, bytes_left) = self.rebuild_left();
        let settings = *self.ctx.settings();
        let paused = settings.rebuild_paused && left > 0;
        if !p.running.get() && !paused {
            return None;
        }
        let now = self.ctx.rt.now();
        let speed = p.pace.bytes_per_second(now);
        Some(RebuildStatus {
            segments_total: p.done.get() + left,
            segments_done: p.done.get(),
            bytes_total: p.bytes.get() + bytes_left,
            bytes_moved: p.bytes.get(),
            bytes_per_second: speed,
            seconds: p.began.get().map_or(0, |began| (now - began).as_secs()),
            rows_lost: p.rows_lost.get(),
            eta_seconds: (speed > 0 && !paused).then(|| bytes_left.div_ceil(speed)),
            paused,
        })
    }

    pub(super) async fn keep_rebuilt(self: Rc<Self>) {
        loop {
            let paused = self.ctx.settings().rebuild_paused;
            let wanted = || {
                let rebuild = self.ctx.wishes.has(Wish::Rebuild) && !self.members.is_degrading();
                rebuild || self.somebody_may_go() || self.ctx.settings().rebuild_paused != paused
            };
            let wait = pin!(self.ctx.changed.until(|| !self.ctx.is_open() || wanted()));
            if paused {
                select(wait, pin!(self.ctx.rt.sleep(LOOK_WHILE_PAUSED))).await;
            } else {
                wait.await;
            }
            if !self.ctx.is_open() {
                return;
            }
            self.ctx.wishes.take(Wish::Rebuild);
            if self.somebody_may_go() {
                self.let_go().await;
            }
            if !self.ctx.is_open() || !self.may_rebuild() {
                self.ctx.changed.wake();
                self.leave_out_what_is_empty().await;
                continue;
            }
            self.seat_spares();
            if self.next_to_rebuild().is_some() || self.some_wait_for_counts() {
                self.rebuild_pass().await;
            } else {
                self.ctx.changed.wake();
            }
            let behind = !self.lacks_members() && self.is_behind();
            if behind {
                // It freezes the array when it fails for good.
                let _ = self.commit().await;
            }
            if behind || (self.may_rebuild() && self.room_may_come()) {
                // Something has to change first: a member, room, what is in flight.
                self.ctx.rt.sleep(RETRY).await;
                self.ctx.wishes.ask(Wish::Rebuild);
            }
        }
    }

    /// Rebuilds wait. What lacks a column and holds nothing any more only has to be left out by a generation: that is no rebuild.
    async fn leave_out_what_is_empty(&self) {
        let empty = |s: &Seg| s.is_empty() || s.is_spare();
        let waits = |s: &Seg| s.listed && empty(s) && s.slots.iter().any(|slot| self.is_lost(slot));
        let any = self.segments.read().segments.values().any(|s| waits(s) && !self.in_use_by_log(s.id));
        if any && self.writable().is_ok() && !self.ctx.is_closing() && !self.lacks_members() {
            // It freezes the array when it fails for good.
            let _ = self.commit().await;
        }
    }

    /// Rebuilds what can be, and says how it went.
    async fn rebuild_pass(self: &Rc<Self>) {
        let p = &self.jobs.rebuild;
        p.running.set(true);
        [&p.done, &p.bytes, &p.rows_lost].iter().for_each(|figure| figure.set(0));
        p.began.set(Some(self.ctx.rt.now()));
        p.pace.begin(self.ctx.rt.now());
        p.counted.set(false);
        p.passed_over.borrow_mut().clear();
        p.cleaned.borrow_mut().clear();
        if !self.memory.read().active.is_empty() {
            // So that what was overwritten or given back since the last one is not carried to a new place.
            self.checkpoint_and_wait().await;
        }
        self.ctx.note(format!("the rebuild of {} segments has started", self.rebuild_left().0));
        let whole = self.rebuild_all().await;
        p.running.set(false);
        let left = self.rebuild_left().0;
        let paused = !self.may_rebuild();
        let lost = p.rows_lost.get();
        match whole {
            Ok(()) if left > 0 && paused => self.ctx.note(format!("the rebuild is paused: {left} segments remain")),
            Ok(()) if left > 0 => {
                self.ctx.warn(format!("the rebuild waits: {left} segments have no free space to be rebuilt to"))
            }
            Ok(()) if lost == 0 && self.lacks_redundancy() => self.ctx.note("the rebuild is done".to_owned()),
            Ok(()) if lost == 0 => self.ctx.note("the rebuild is done: redundancy is full".to_owned()),
            Ok(()) => {
                self.ctx.error(format!(
                    "the rebuild is done, but {lost} rows could not be restored: blocks in them are lost"
                ));
            }
            Err(fault) => self.ctx.error(format!("the rebuild stopped: {fault}")),
        }
        self.ctx.changed.wake();
    }

    /// Whether something is left that has no place for want of room.
    fn room_may_come(&self) -> bool {
        let table = self.segments.read();
        let seats = self.members.all();
        let waits = |s: &Seg| {
            let leaves = s.slots.iter().any(|slot| self.is_homeless(slot) && !self.is_lost(slot));
            let lost = s.slots.iter().any(|slot| self.is_lost(slot));
            let has_seat = || seats.iter().any(|seat| seat.takes_columns() && !s.uses(seat.id));
            leaves || (lost && (has_seat() || self.lacks_seats(s)))
        };
        table.segments.values().filter(|s| s.matters()).any(waits)
    }

    async fn rebuild_all(self: &Rc<Self>) -> Result<(), Fault> {
        loop {
            join_all((0..LANES).map(|_| self.rebuild_on())).await;
            self.writable()?;
            if self.jobs.rebuild.unnamed.take() > 0 {
                self.commit().await?;
            }
            if !self.may_rebuild() {
                return Ok(());
            }
            if self.somebody_may_go() {
                self.let_go().await;
            }
            self.seat_spares();
            if self.some_wait_for_counts() {
                // It gives back what was emptied, and counts what was never counted.
                self.checkpoint_and_wait().await;
                self.writable()?;
                self.jobs.rebuild.counted.set(true);
            }
            if self.next_to_rebuild().is_none() && !self.some_wait_for_counts() && !self.cleaner_makes_room().await {
                return Ok(());
            }
        }
    }

    /// Waits for room that the cleaner makes for segments without a place; false when it does not.
    async fn cleaner_makes_room(&self) -> bool {
        if !self.room_may_come() || self.has_room_for_rebuild() || planted(Canary::RebuildLeftShort) {
            return false;
        }
        // Who cleans may have to be told; and something else may change: a member.
        self.ctx.changed.wake();
        let over = self.ctx.changed.until(|| !self.may_rebuild() || self.has_room_for_rebuild());
        select(pin!(over), pin!(self.ctx.rt.sleep(RETRY))).await;
        !self.may_rebuild() || self.has_room_for_rebuild() || self.pace().is_cleaning()
    }

    /// One lane: segment after segment, until none is left for it.
    async fn rebuild_on(self: &Rc<Self>) {
        let p = &self.jobs.rebuild;
        while let Some(turn) = self.rebuild_turn(0).await {
            let Some((id, way)) = self.next_to_rebuild() else { return };
            p.under_way.borrow_mut().insert(id);
            let restored = match way {
                Way::Restore => {
                    drop(turn);
                    self.restore(id).await
                }
                Way::Clean(victim) => {
                    let (began, bytes) = (self.ctx.rt.now(), self.homeless_bytes(id));
                    p.cleaned.borrow_mut().insert(id);
                    self.empty(victim, false).await;
                    self.give_back_emptied();
                    self.rebuild_rest(turn, self.ctx.rt.now() - began).await;
                    let cleaned = self.segments.read().segments.get(&id).is_none_or(|s| s.is_cleaned());
                    self.rebuilt(if cleaned { bytes } else { 0 });
                    Ok(cleaned)
                }
                Way::Seal => {
                    self.make_sealed(id).await;
                    p.counted.set(false);
                    Ok(false)
                }
            };
            p.under_way.borrow_mut().remove(&id);
            match restored {
                Ok(true) => {
                    p.done.set(p.done.get() + 1);
                    p.unnamed.set(p.unnamed.get() + 1);
                }
                // Interrupted, or nothing to do any more.
                Ok(false) => {}
                Err(fault) => {
                    // One that cannot be restored does not hold up the others.
                    p.passed_over.borrow_mut().insert(id);
                    if self.writable().is_ok() {
                        self.ctx.warn(format!("segment {id} could not be rebuilt: {fault}"));
                    }
                }
            }
            if p.unnamed.get() >= SEGMENTS_PER_GENERATION {
                p.unnamed.set(0);
                if self.commit().await.is_err() {
                    return;
                }
            }
        }
    }

    /// The segment to be rebuilt next, and how; `None` when none has a place.
    ///
    /// The least redundancy left first. Of equal ones those whose live blocks are counted, and the fullest of them: what
    /// is nearly empty may be empty when its turn comes.
    fn next_to_rebuild(&self) -> Option<(SegmentId, Way)> {
        let p = &self.jobs.rebuild;
        if p.failures.replace(self.members.failures()) != self.members.failures() {
            p.passed_over.borrow_mut().clear();
        }
        let mut segments: Vec<_> = {
            let (under_way, passed_over) = (p.under_way.borrow(), p.passed_over.borrow());
            let emptied = self.jobs.cleaner.emptying();
            let table = self.segments.read();
            let last = !self.another_can_be_had(&table);
            let goes_on = |s: &Seg| s.is_open() && (s.live > 0 || !s.unmerged.is_empty() || s.fresh_nodes);
            let free = |s: &&Seg| {
                let taken = under_way.contains(&s.id) || passed_over.contains(&s.id) || emptied.contains_key(&s.id);
                !(taken || last && goes_on(s))
                    && s.matters()
                    && !s.is_cleaned()
                    && (p.counted.get() || !s.is_uncounted())
            };
            let homeless = |s: &&Seg| s.slots.iter().any(|slot| self.is_homeless(slot));
            let order = |s: &Seg| (self.spare_columns(s), !s.unmerged.is_empty(), Reverse(s.live), s.id);
            table.segments.values().filter(free).filter(homeless).map(order).collect()
        };
        segments.sort_unstable();
        if planted(Canary::ExposedLast) {
            segments.reverse();
        }
        segments.into_iter().find_map(|(.., id)| Some((id, self.way_for(id)?)))
    }

    /// Whether there is room for another segment: else those that are open and hold something stay so, and make it.
    pub(crate) fn another_can_be_had(&self, table: &Table) -> bool {
        let spare = |s: &Seg| s.is_spare();
        table.segments.values().any(spare)
            || choose(&self.members.all(), self.ctx.shape.scheme, table.next, self.room.short()).is_some()
    }

    /// Columns that a segment can lose yet.
    fn spare_columns(&self, seg: &Seg) -> usize {
        let lost = |c: usize| self.is_lost(&seg.slots[c]);
        match seg.scheme {
            Scheme::Parity { m, .. } => {
                usize::from(m).saturating_sub((0..seg.slots.len()).filter(|&c| lost(c)).count())
            }
            Scheme::Copies { k, .. } => {
                let k = usize::from(k);
                let left = |c: usize| (c..seg.slots.len()).step_by(k).filter(|&c| !lost(c)).count();
                (0..k).map(left).min().unwrap_or(0).saturating_sub(1)
            }
        }
    }

    /// The cheaper way; `None` when there is none now.
    fn way_for(&self, id: SegmentId) -> Option<Way> {
        let restorable = self.place_for(id, &[]).is_some();
        let table = self.segments.read();
        let seg = table.segments.get(&id)?;
        let (restore, clean) = self.costs(seg);
        let lost = seg.slots.iter().any(|slot| self.is_lost(slot));
        let open = seg.is_open();
        let too_few = self.lacks_seats(seg);
        drop(table);
        // Without a place for what is lost an array stays degraded until a drive comes that is awaited; but a member that leaves
        // is emptied in one way or the other.
        if !too_few && ((restorable && restore <= clean) || (!restorable && lost)) {
            return restorable.then_some(Way::Restore);
        }
        if open && (too_few || !restorable) {
            return Some(Way::Seal);
        }
        let fresh = !self.jobs.rebuild.cleaned.borrow().contains(&id);
        let victim = self.victim(id).filter(|_| fresh);
        victim.map(Way::Clean).or(restorable.then_some(Way::Restore))
    }

    /// What restoring a segment's columns costs, and what cleaning it, in blocks read.
    fn costs(&self, seg: &Seg) -> (u64, u64) {
        let (k, width) = (seg.scheme.k() as u64, seg.scheme.width() as u64);
        let columns = || seg.slots.iter().enumerate().filter(|(_, slot)| self.is_homeless(slot));
        let homeless = columns().count() as u64;
        let parity = matches!(seg.scheme, Scheme::Parity { .. });
        let from_row = parity && columns().any(|(c, slot)| c as u64 >= k || self.is_lost(slot));
        let lost_data = columns().filter(|(c, slot)| (*c as u64) < k && self.is_lost(slot)).count() as u64;
        let restore = u64::from(seg.rows.acked) * (if from_row { k } else { homeless } + WRITE_COST * homeless);
        // A block of a lost column takes a row to read.
        let reads = if parity { k + lost_data * (k - 1) } else { k };
        let clean = u64::from(seg.live) * (reads + WRITE_COST * width) / k;
        (restore, clean)
    }

    /// So many bytes of columns are done.
    pub(super) fn rebuilt(&self, bytes: u64) {
        self.jobs.rebuild.bytes.set(self.jobs.rebuild.bytes.get() + bytes);
        self.jobs.rebuild.pace.moved(bytes, self.ctx.rt.now());
    }

    /// Whether segments wait for a checkpoint that gives them back, or counts them.
    fn some_wait_for_counts(&self) -> bool {
        let table = self.segments.read();
        let moves =
            |s: &Seg| s.slots.iter().any(|slot| self.is_homeless(slot) && !self.is_lost(slot)) || self.lacks_seats(s);
        let waits = |s: &&Seg| {
            let cleaned = s.is_cleaned() && self.jobs.rebuild.cleaned.borrow().contains(&s.id);
            let uncounted = s.is_uncounted() || (s.is_sealed() && !s.unmerged.is_empty() && moves(s));
            let released = s.is_empty() && moves(s);
            released || (s.matters() && (cleaned || (uncounted && !self.jobs.rebuild.counted.get())))
        };
        let lost = |s: &Seg| s.slots.iter().any(|slot| self.is_lost(slot));
        table.segments.values().filter(waits).any(|s| moves(s) || (lost(s) && self.place_for(s.id, &[]).is_some()))
    }

    /// Spares take the bays of members that are out.
    fn seat_spares(&self) {
        let seats = self.members.all();
        for out in seats.iter().filter(|s| s.state() == MemberState::Out && !self.bay_filled(s.bay())) {
            let spare = seats.iter().find(|s| s.state() == MemberState::Spare && s.drive.is_some());
            if let Some(spare) = spare {
                spare.takes_bay(out.bay());
                self.ctx.note(format!("spare {} takes the place of {}", spare.title(), out.title()));
            }
        }
    }

    /// A member with room that has no column of the segment; one in the bay that a column is lost from first.
    pub(super) fn place_for(&self, id: SegmentId, taken: &[MemberId]) -> Option<Rc<Seat>> {
        let table = self.segments.read();
        let seg = table.segments.get(&id)?;
        let seats = self.members.all().clone();
        let homeless = seg.slots.iter().filter(|slot| self.is_homeless(slot)).flatten();
        let bays: Vec<u16> = homeless.map(|(m, _)| seats[usize::from(m.0)].bay()).collect();
        let room = |s: &&Rc<Seat>| s.takes_columns() && s.zones_free() > 0 && !seg.uses(s.id) && !taken.contains(&s.id);
        let in_bay = |s: &Rc<Seat>| bays.contains(&s.bay());
        let best = seats.iter().filter(room).max_by_key(|s| (in_bay(s), s.zones_free())).cloned();
        drop(table);
        best.filter(|s| self.may_rebuild_on(s))
    }

    /// Resolves when no rebuild is running and none is about to, or it is paused.
    pub async fn rebuild_over(&self) {
        let p = &self.jobs.rebuild;
        let busy = || {
            p.running.get()
                || self.ctx.wishes.has(Wish::Rebuild)
                || self.members.is_degrading()
                || self.somebody_may_go()
        };
        self.ctx.changed.until(|| !self.ctx.is_open() || !busy()).await;
    }
}

#[cfg(test)]
mod tests;
