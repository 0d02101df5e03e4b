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

use api::{EventCode, RebuildView};
use base::SegmentId;
use futures::future::{join_all, select};
use ondisk::{MemberState, Scheme};

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::ctx::Wish;
use crate::fault::Fault;
use crate::generation::Generations;
use crate::health::Health;
use crate::jobs::checkpoint::Checkpoints;
use crate::jobs::clean::Cleaner;
use crate::jobs::rebuild_pace::{LANES, Pacing};
use crate::jobs::restore::Restore;
use crate::jobs::victims::{Victim, Victims};
use crate::member::Members;
use crate::room::Room;
use crate::space::segment::Seg;
use crate::space::segments::Segments;

/// Segments restored before the generation that names them.
const SEGMENTS_PER_GENERATION: u64 = 8;

/// What a block costs to write, in blocks read.
const WRITE_COST: u64 = 3;

/// While rebuilds wait, what was emptied meanwhile is looked for so often.
pub const LOOK_WHILE_PAUSED: Duration = Duration::from_secs(5);

/// Between two tries when something is left that has no place.
const RETRY: Duration = Duration::from_secs(1);

/// How a rebuild goes.
#[derive(Default)]
struct Progress {
    running: Cell<bool>,
    /// Something is left that has no place for want of room: told only, nothing is decided by it.
    waits: Cell<bool>,
    /// A beginning was told, and no end since that left nothing to do.
    told: Cell<bool>,
    /// Segments that were left when the last pass ended.
    left: Cell<u64>,
    done: Cell<u64>,
    began: Cell<Option<rt::Nanos>>,
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
    /// Segments restored that no generation names yet.
    unnamed: Cell<u64>,
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

/// Rebuilds an array.
pub struct Rebuild {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    health: Rc<Health>,
    room: Rc<Room>,
    generations: Rc<Generations>,
    checkpoints: Rc<Checkpoints>,
    victims: Rc<Victims>,
    cleaner: Rc<Cleaner>,
    restore: Rc<Restore>,
    pacing: Rc<Pacing>,
    progress: Progress,
}

/// The jobs that a rebuild is made of.
pub struct Uses<'a> {
    /// Generations name what was rebuilt.
    pub generations: &'a Rc<Generations>,
    /// Checkpoints count what is live.
    pub checkpoints: &'a Rc<Checkpoints>,
    /// Which segments can be emptied.
    pub victims: &'a Rc<Victims>,
    /// Empties them.
    pub cleaner: &'a Rc<Cleaner>,
    /// Restores the others.
    pub restore: &'a Rc<Restore>,
    /// How fast.
    pub pacing: &'a Rc<Pacing>,
}

impl Rebuild {
    /// Nothing is rebuilt yet.
    pub fn new(health: &Rc<Health>, segments: &Rc<Segments>, room: &Rc<Room>, uses: &Uses<'_>) -> Rc<Rebuild> {
        Rc::new(Rebuild {
            ctx: health.ctx().clone(),
            members: health.members().clone(),
            segments: segments.clone(),
            health: health.clone(),
            room: room.clone(),
            generations: uses.generations.clone(),
            checkpoints: uses.checkpoints.clone(),
            victims: uses.victims.clone(),
            cleaner: uses.cleaner.clone(),
            restore: uses.restore.clone(),
            pacing: uses.pacing.clone(),
            progress: Progress::default(),
        })
    }

    /// Rates were set anew.
    pub fn rate_changed(&self) {
        self.pacing.pace().rate_changed();
    }

    /// Whether redundancy is lacking somewhere, also by the generation in effect alone.
    pub fn lacks_redundancy(&self) -> bool {
        self.generations.riders().has_unnamed()
            || self.health.broken_segments().next().is_some()
            || self.health.is_behind()
    }

    /// Whether one is under way.
    pub fn is_rebuilding(&self) -> bool {
        self.progress.running.get() && self.pacing.may_rebuild()
    }

    /// The rebuild under way, or paused.
    pub fn rebuild_status(&self) -> Option<RebuildView> {
        let p = &self.progress;
        let (left, bytes_left) = self.health.rebuild_left();
        let settings = *self.ctx.settings();
        let paused = settings.rebuild_paused && left > 0;
        let waits = !p.running.get() && p.waits.get() && left > 0 && self.pacing.may_rebuild();
        if !p.running.get() && !paused && !waits {
            return None;
        }
        let now = self.ctx.rt.now();
        let speed = self.pacing.pace().bytes_per_second(now);
        Some(RebuildView {
            segments_total: p.done.get() + left,
            segments_done: p.done.get(),
            bytes_total: self.restore.bytes() + bytes_left,
            bytes_moved: self.restore.bytes(),
            bytes_per_second: speed,
            seconds: p.began.get().map_or(0, |began| (now - began).as_secs()),
            rows_lost: self.restore.rows_lost(),
            eta_seconds: (speed > 0 && !paused && !waits).then(|| bytes_left.div_ceil(speed)),
            paused,
            waits: waits.then(|| format!("{left} segments have no free space to be rebuilt to")),
        })
    }

    pub async fn keep_rebuilt(self: Rc<Self>) {
        loop {
            let paused = self.ctx.settings().rebuild_paused;
            let wanted = || {
                let rebuild = self.ctx.wishes.has(Wish::Rebuild) && !self.health.is_degrading();
                rebuild || self.generations.somebody_may_go() || self.ctx.settings().rebuild_paused != paused
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
            if self.generations.somebody_may_go() {
                self.generations.let_go().await;
            }
            if !self.ctx.is_open() || !self.pacing.may_rebuild() {
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
            let behind = !self.members.lacks_members() && self.health.is_behind();
            if behind {
                // It freezes the array when it fails for good.
                let _ = self.generations.commit().await;
            }
            let waits = self.pacing.may_rebuild() && self.room_may_come();
            self.progress.waits.set(waits);
            if behind || waits {
                // Something has to change first: a member, room, what is in flight.
                self.ctx.rt.sleep(RETRY).await;
                self.ctx.wishes.ask(Wish::Rebuild);
            }
        }
    }

    /// Rebuilds wait. What lacks a column and holds nothing any more only has to be left out by a generation: that is no rebuild.
    async fn leave_out_what_is_empty(&self) {
        let empty = |s: &Seg| s.is_empty() || s.is_spare();
        let waits = |s: &Seg| s.listed && empty(s) && s.slots.iter().any(|slot| self.members.is_lost(slot));
        let any = self.segments.read().segments.values().any(|s| waits(s) && !self.room.in_use_by_log(s.id));
        if any && self.members.writable().is_ok() && !self.ctx.is_closing() && !self.members.lacks_members() {
            // It freezes the array when it fails for good.
            let _ = self.generations.commit().await;
        }
    }

    /// Rebuilds what can be, and says how it went.
    async fn rebuild_pass(self: &Rc<Self>) {
        let p = &self.progress;
        p.running.set(true);
        p.done.set(0);
        self.restore.begin_anew();
        p.began.set(Some(self.ctx.rt.now()));
        self.pacing.pace().begin(self.ctx.rt.now());
        p.counted.set(false);
        p.passed_over.borrow_mut().clear();
        p.cleaned.borrow_mut().clear();
        if self.checkpoints.has_unmerged() || self.some_wait_for_counts() {
            // So that what was overwritten or given back since the last one is not carried to a new place.
            self.checkpoints.checkpoint_and_wait().await;
        }
        // What waits for room is looked at every second: that is told once.
        let segments = self.health.rebuild_left().0;
        let waited = p.waits.get() && segments <= p.left.get();
        if segments > 0 && !waited {
            p.told.set(true);
            self.ctx.note(EventCode::RebuildBegan, format!("the rebuild of {segments} segments has started"));
        }
        let whole = self.rebuild_all().await;
        p.running.set(false);
        let left = self.health.rebuild_left().0;
        p.left.set(left);
        let paused = !self.pacing.may_rebuild();
        let lost = self.restore.rows_lost();
        match whole {
            // Only what was emptied had to be counted.
            Ok(()) if left == 0 && lost == 0 && !p.told.get() => {}
            Ok(()) if left > 0 && waited && !paused && p.done.get() == 0 => {}
            Ok(()) if left > 0 && paused => {
                self.ctx.note(EventCode::RebuildPaused, format!("the rebuild is paused: {left} segments remain"))
            }
            Ok(()) if left > 0 => self.ctx.warn(
                EventCode::RebuildWaits,
                format!("the rebuild waits: {left} segments have no free space to be rebuilt to"),
            ),
            Ok(()) if lost == 0 && self.lacks_redundancy() => {
                self.ctx.note(EventCode::RebuildEnded, "the rebuild is done".to_owned())
            }
            Ok(()) if lost == 0 => {
                p.told.set(false);
                self.ctx.note(EventCode::RebuildEnded, "the rebuild is done: redundancy is full".to_owned())
            }
            Ok(()) => {
                p.told.set(false);
                self.ctx.error(
                    EventCode::DataLost,
                    format!("the rebuild is done, but {lost} rows could not be restored: blocks in them are lost"),
                );
            }
            Err(fault) => self.ctx.error(EventCode::RebuildStopped, format!("the rebuild stopped: {fault}")),
        }
        self.ctx.changed.wake();
    }

    /// Whether something is left that has no place for want of room.
    fn room_may_come(&self) -> bool {
        let table = self.segments.read();
        let waits = |s: &Seg| {
            let leaves = s.slots.iter().any(|slot| self.members.is_homeless(slot) && !self.members.is_lost(slot));
            let lost = s.slots.iter().any(|slot| self.members.is_lost(slot));
            leaves || (lost && (self.has_seat(s) || self.health.lacks_seats(s)))
        };
        table.segments.values().filter(|s| s.matters()).any(waits)
    }

    /// Whether a member takes columns that has none of this segment.
    fn has_seat(&self, seg: &Seg) -> bool {
        self.members.all().iter().any(|seat| seat.takes_columns() && !seg.uses(seat.id))
    }

    async fn rebuild_all(self: &Rc<Self>) -> Result<(), Fault> {
        loop {
            join_all((0..LANES).map(|_| self.rebuild_on())).await;
            self.members.writable()?;
            if self.progress.unnamed.take() > 0 {
                self.generations.commit().await?;
            }
            if !self.pacing.may_rebuild() {
                return Ok(());
            }
            if self.generations.somebody_may_go() {
                self.generations.let_go().await;
            }
            self.seat_spares();
            if self.some_wait_for_counts() {
                // It gives back what was emptied, and counts what was never counted.
                self.checkpoints.checkpoint_and_wait().await;
                self.members.writable()?;
                self.progress.counted.set(true);
            }
            if self.next_to_rebuild().is_none() && !self.some_wait_for_counts() && !self.cleaner_makes_room().await {
                return Ok(());
            }
        }
    }

    /// Waits for room that the cleaner makes for segments without a place; false when it does not.
    async fn cleaner_makes_room(&self) -> bool {
        if !self.room_may_come() || self.room.has_room_for_rebuild() || planted(Canary::RebuildLeftShort) {
            return false;
        }
        // Who cleans may have to be told; and something else may change: a member.
        self.ctx.changed.wake();
        let over = self.ctx.changed.until(|| !self.pacing.may_rebuild() || self.room.has_room_for_rebuild());
        select(pin!(over), pin!(self.ctx.rt.sleep(RETRY))).await;
        !self.pacing.may_rebuild() || self.room.has_room_for_rebuild() || self.room.pace().is_cleaning()
    }

    /// One lane: segment after segment, until none is left for it.
    async fn rebuild_on(self: &Rc<Self>) {
        let p = &self.progress;
        while let Some(turn) = self.pacing.rebuild_turn(0).await {
            let Some((id, way)) = self.next_to_rebuild() else { return };
            p.under_way.borrow_mut().insert(id);
            let restored = match way {
                Way::Restore => {
                    drop(turn);
                    self.restore.restore(id).await
                }
                Way::Clean(victim) => {
                    let (began, bytes) = (self.ctx.rt.now(), self.health.homeless_bytes(id));
                    p.cleaned.borrow_mut().insert(id);
                    self.cleaner.empty(victim, false).await;
                    self.cleaner.give_back_emptied();
                    self.pacing.rebuild_rest(turn, self.ctx.rt.now() - began).await;
                    let cleaned = self.segments.read().segments.get(&id).is_none_or(|s| s.is_cleaned());
                    self.restore.rebuilt(if cleaned { bytes } else { 0 });
                    Ok(cleaned)
                }
                Way::Seal => {
                    self.restore.make_sealed(id).await;
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
                    if self.members.writable().is_ok() {
                        self.ctx.warn(EventCode::RebuildWaits, format!("segment {id} could not be rebuilt: {fault}"));
                    }
                }
            }
            if p.unnamed.get() >= SEGMENTS_PER_GENERATION {
                p.unnamed.set(0);
                if self.generations.commit().await.is_err() {
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
        let p = &self.progress;
        if p.failures.replace(self.health.failures()) != self.health.failures() {
            p.passed_over.borrow_mut().clear();
        }
        let mut segments: Vec<_> = {
            let (under_way, passed_over) = (p.under_way.borrow(), p.passed_over.borrow());
            let emptied = self.victims.under_way().emptying();
            let table = self.segments.read();
            let last = !self.room.another_can_be_had(&table);
            let goes_on = |s: &Seg| s.is_open() && (s.live > 0 || !s.unmerged.is_empty() || s.fresh_nodes);
            let free = |s: &&Seg| {
                let taken = under_way.contains(&s.id) || passed_over.contains(&s.id) || emptied.contains_key(&s.id);
                !(taken || last && goes_on(s))
                    && s.matters()
                    && !s.is_cleaned()
                    && (p.counted.get() || !s.is_uncounted())
            };
            let homeless = |s: &&Seg| s.slots.iter().any(|slot| self.members.is_homeless(slot));
            let order = |s: &Seg| (self.spare_columns(s), !s.unmerged.is_empty(), Reverse(s.live), s.id);
            table.segments.values().filter(free).filter(homeless).map(order).collect()
        };
        segments.sort_unstable();
        if planted(Canary::ExposedLast) {
            segments.reverse();
        }
        segments.into_iter().find_map(|(.., id)| Some((id, self.way_for(id)?)))
    }

    /// Columns that a segment can lose yet.
    fn spare_columns(&self, seg: &Seg) -> usize {
        let lost = |c: usize| self.members.is_lost(&seg.slots[c]);
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
        let restorable = self.restore.place_for(id, &[]).is_some();
        let table = self.segments.read();
        let seg = table.segments.get(&id)?;
        let (restore, clean) = self.costs(seg);
        let lost = seg.slots.iter().any(|slot| self.members.is_lost(slot));
        let open = seg.is_open();
        let too_few = self.health.lacks_seats(seg);
        drop(table);
        // Without a place for what is lost an array stays degraded until a drive comes that is awaited; but a member that leaves
        // is emptied in one way or the other.
        if !too_few && ((restorable && restore <= clean) || (!restorable && lost)) {
            return restorable.then_some(Way::Restore);
        }
        if open && (too_few || !restorable) {
            return Some(Way::Seal);
        }
        let fresh = !self.is_cleaned_by_pass(id);
        let victim = self.victims.victim(id).filter(|_| fresh);
        victim.map(Way::Clean).or(restorable.then_some(Way::Restore))
    }

    /// What restoring a segment's columns costs, and what cleaning it, in blocks read.
    fn costs(&self, seg: &Seg) -> (u64, u64) {
        let (k, width) = (seg.scheme.k() as u64, seg.scheme.width() as u64);
        let columns = || seg.slots.iter().enumerate().filter(|(_, slot)| self.members.is_homeless(slot));
        let homeless = columns().count() as u64;
        let parity = matches!(seg.scheme, Scheme::Parity { .. });
        let from_row = parity && columns().any(|(c, slot)| c as u64 >= k || self.members.is_lost(slot));
        let lost_data = columns().filter(|(c, slot)| (*c as u64) < k && self.members.is_lost(slot)).count() as u64;
        let restore = u64::from(seg.rows.acked) * (if from_row { k } else { homeless } + WRITE_COST * homeless);
        // A block of a lost column takes a row to read.
        let reads = if parity { k + lost_data * (k - 1) } else { k };
        let clean = u64::from(seg.live) * (reads + WRITE_COST * width) / k;
        (restore, clean)
    }

    /// Whether segments wait for a checkpoint that gives them back, or counts them.
    fn some_wait_for_counts(&self) -> bool {
        let table = self.segments.read();
        let moves = |s: &Seg| {
            s.slots.iter().any(|slot| self.members.is_homeless(slot) && !self.members.is_lost(slot))
                || self.health.lacks_seats(s)
        };
        // A cleaner at work asks for checkpoints itself.
        let others = self.victims.under_way().is_idle() && !planted(Canary::OthersCleaned);
        let waits = |s: &&Seg| {
            let cleaned = s.is_cleaned() && (others || self.is_cleaned_by_pass(s.id));
            let uncounted = s.is_uncounted() || (s.is_sealed() && !s.unmerged.is_empty() && moves(s));
            let released = s.is_empty() && moves(s);
            released || (s.matters() && (cleaned || (uncounted && !self.progress.counted.get())))
        };
        let lost = |s: &Seg| s.slots.iter().any(|slot| self.members.is_lost(slot));
        // What is emptied makes its place itself.
        let has_place = |s: &Seg| (s.is_cleaned() && self.has_seat(s)) || self.restore.place_for(s.id, &[]).is_some();
        table.segments.values().filter(waits).any(|s| moves(s) || (lost(s) && has_place(s)))
    }

    /// Whether this pass has cleaned a segment; others are emptied by the cleaner on its own.
    fn is_cleaned_by_pass(&self, id: SegmentId) -> bool {
        self.progress.cleaned.borrow().contains(&id)
    }

    /// Spares take the bays of members that are out.
    fn seat_spares(&self) {
        let seats = self.members.all();
        for out in seats.iter().filter(|s| s.state() == MemberState::Out && !self.members.bay_filled(s.bay())) {
            let spare = seats.iter().find(|s| s.state() == MemberState::Spare && s.drive.is_some());
            if let Some(spare) = spare {
                spare.takes_bay(out.bay());
                self.ctx.note(
                    EventCode::DriveReplaced,
                    format!("spare {} takes the place of {}", spare.title(), out.title()),
                );
            }
        }
    }

    /// Resolves when no rebuild is running and none is about to, or it is paused.
    pub async fn rebuild_over(&self) {
        let p = &self.progress;
        let busy = || {
            p.running.get()
                || self.ctx.wishes.has(Wish::Rebuild)
                || self.health.is_degrading()
                || self.generations.somebody_may_go()
        };
        self.ctx.changed.until(|| !self.ctx.is_open() || !busy()).await;
    }
}
