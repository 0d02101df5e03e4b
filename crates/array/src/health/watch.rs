//! Members that are late or err now and then: the thresholds, and what follows. Also the way of every record to a drive:
//! `write_to` tries again.
//!
//! | what | then |
//! |---|---|
//! | a request is late by 1 s | suspect: told, and shown; not while more are late than may fail at once |
//! | a request is late by 5 s | out |
//! | a write fails | written again; the third time within ten minutes: out |
//! | a flush fails | out at once: what the drive held is not known any more |
//! | the drive says it is gone | out at once |
//! | 20 reads fail within ten minutes | suspect: what cannot be read is made from its row |
//! | every read fails for a minute, of its labels and generations, too | out |
//! | a write finds no room where the drive lies | it waits ([`crate::member::no_room`]) |
//! | a request is late by 40 s in an open or a close that cannot do without it | the open is refused, the array freezes |
//!
//! Invariants:
//! - time in which this thread did not look is no drive's: after a standstill (a signal, a paused machine, long work on this
//!   thread) what is in flight is as late as before it;
//! - nobody goes out for being late, or for errors that may pass, when the redundancy does not cover it: it is waited for;
//! - before one goes out for being late, the others are asked: those that do not answer, or have requests that are late as
//!   well, count as lost;
//! - who waits for a member that went out is answered at once; what the drive still does then lands in zones that nobody
//!   uses any more (it comes back only as new, once it is idle).

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::{AlarmCode, AlarmView, EventCode};
use base::{BLOCK_BYTES, MemberId, MemberLba};
use futures::future::{Either, join_all, select};
use rt::{Buf, Bytes, IoError, Nanos};

use super::Health;
use super::fail::RESERVED_AGAIN;
use crate::canary::{Canary, planted};
use crate::ctx::Phase;
use crate::member::health::{
    END_WAITS, LATE_OUT, LATE_SUSPECT, PROBE_PATIENCE, READ_ERRORS_SUSPECT, WRITE_ERRORS_OUT, WRITE_GIVE_UP, Watcher,
};
use crate::member::seat::{CONFLICTS_MAX, Seat};

/// Between the tries of a write.
const WRITE_PAUSE: Duration = Duration::from_millis(20);

/// Between the tries of a write whose member the array cannot do without.
const WRITE_PAUSE_LONG: Duration = Duration::from_secs(1);

/// A member with a request as late as this beside one that is to go out does not answer either.
const LATE_TOO: Duration = Duration::from_millis(2500);

/// Requests in flight are looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Health {
    /// Writes to a member as often as the rules say; an error when it is out, or nothing is written any more.
    pub async fn write_to(&self, seat: &Rc<Seat>, at: MemberLba, parts: Vec<Bytes>) -> Result<(), IoError> {
        self.write_for(seat, at, parts, true).await
    }

    /// [`Health::write_to`]; whether `hosts` wait for it, too.
    pub async fn write_for(
        &self,
        seat: &Rc<Seat>,
        at: MemberLba,
        parts: Vec<Bytes>,
        hosts: bool,
    ) -> Result<(), IoError> {
        let mut failing = Duration::ZERO;
        let mut short = None;
        let mut conflicts = 0;
        loop {
            let error = match seat.write_vectored(at, parts.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if error == IoError::Conflict && !planted(Canary::ConflictCounted) {
                conflicts += 1;
                if self.members.writable().is_err() || conflicts == CONFLICTS_MAX {
                    self.lose(RESERVED_AGAIN);
                    return Err(error);
                }
                continue;
            }
            if error == IoError::Gone {
                self.member_gone_writing(seat.id);
                return Err(error);
            }
            if error == IoError::NoSpace && planted(Canary::NoRoomAcked) {
                return Ok(());
            }
            let waits = error == IoError::NoSpace && !planted(Canary::NoRoomBlamed);
            if !waits {
                short = None;
                self.write_failed(seat, error, failing);
            }
            if !seat.is_in() || self.members.writable().is_err() {
                return Err(error);
            }
            if waits {
                Box::pin(short.get_or_insert_with(|| self.runs_short(seat, hosts)).pause()).await;
                continue;
            }
            let pause = if self.survives_without(seat.id) { WRITE_PAUSE } else { WRITE_PAUSE_LONG };
            self.ctx.rt.sleep(pause).await;
            // Not by the clock: it goes on while this process stands still.
            failing += pause;
        }
    }

    /// A write that has been `failing` for so long failed once more.
    pub fn write_failed(&self, seat: &Rc<Seat>, error: IoError, failing: Duration) {
        let n = seat.health.write_failed(self.ctx.rt.now());
        let text = format!("write failed: {error} ({n} within ten minutes)");
        let enough = n >= WRITE_ERRORS_OUT || planted(Canary::OneErrorPutsOut);
        let for_good = failing >= WRITE_GIVE_UP;
        let may_go = self.survives_without(seat.id) || planted(Canary::ErrorsBeyondRedundancy);
        if (enough && may_go) || for_good {
            self.member_failed(seat.id, &text);
        } else if n == 1 || n == WRITE_ERRORS_OUT {
            self.make_suspect(seat, text);
        }
    }

    /// A read failed; the row makes up for it.
    pub fn read_failed(&self, seat: &Seat) {
        let n = seat.health.read_failed(self.ctx.rt.now());
        if n == READ_ERRORS_SUSPECT {
            self.make_suspect(seat, format!("{n} reads failed within ten minutes"));
        }
    }

    /// Looks whether members that fail every read can be read anywhere. Those that cannot go out: their errors do not pass, and what
    /// is made from the others on each read is without its redundancy. Not where that is more of them than may fail: then it is
    /// what they share that does not work.
    pub async fn look_for_dead(&self) {
        if planted(Canary::DeadStays) {
            return;
        }
        let failing = || self.members.seats_in().into_iter().filter(|s| s.health.fails_reads());
        for seat in failing().collect::<Vec<_>>() {
            let [first, last, inner] = seat.layout.labels();
            for at in [first, last, inner, seat.layout.slot(0), seat.layout.slot(1)] {
                let _heard = seat.read(at, Buf::zeroed(BLOCK_BYTES)).await;
            }
        }
        let now = self.ctx.rt.now();
        let all: Vec<MemberId> = failing().map(|s| s.id).collect();
        for seat in failing() {
            let Some(time) = seat.health.reads_nothing(now) else { continue };
            if self.ctx.is_open() && self.survives_without_all(&all) {
                self.member_failed(seat.id, &format!("has failed every read for {} s", time.as_secs()));
            } else if seat.health.suspect(now).is_none() {
                self.make_suspect(&seat, format!("every read has failed for {} s", time.as_secs()));
            }
        }
    }

    fn make_suspect(&self, seat: &Seat, why: String) {
        if !seat.is_in() || !self.ctx.is_open() {
            return;
        }
        self.ctx.warn(EventCode::DriveSuspect, format!("{} is suspect: {why}", seat.title()));
        seat.health.make_suspect(self.ctx.rt.now(), why);
    }

    /// Whether every segment that matters survives without this member, too, and what is being written has a place.
    pub fn survives_without(&self, member: MemberId) -> bool {
        self.survives_without_all(&[member])
    }

    fn survives_without_all(&self, members: &[MemberId]) -> bool {
        // An empty array has no segment that matters; what the log holds is not known before recovery has read it.
        let recovered = !self.ctx.is_recovering() || self.all_survive_without(members);
        let left = self.members.seats_in().iter().filter(|s| !members.contains(&s.id)).count();
        self.survivable_without(members) && recovered && left >= self.ctx.shape.scheme.k()
    }

    /// Begins to look at what is in flight, unless that is done already.
    pub fn start_health(self: &Rc<Self>) {
        if !self.watched.replace(true) {
            let health = self.clone();
            self.ctx.rt.spawn(async move { health.keep_health().await }).detach();
        }
    }

    /// The same while the array is being opened.
    pub fn watch_recovery(self: &Rc<Self>) {
        if !planted(Canary::RecoveryUnwatched) {
            self.ctx.set_recovering(true);
            self.start_health();
        }
    }

    fn is_watched(&self) -> bool {
        match self.ctx.phase() {
            Phase::Open => true,
            Phase::ReadOnly | Phase::Frozen => self.ctx.is_recovering(),
            Phase::Closed => false,
        }
    }

    /// Looks at what is in flight until the array is closed.
    async fn keep_health(self: Rc<Self>) {
        let watcher: Rc<Watcher> = Rc::default();
        let over = || !self.is_watched();
        let mut ends = pin!(self.ctx.changed.until(over));
        loop {
            for seat in self.members.seats_in() {
                seat.health.watched_by(&watcher);
            }
            let idle = || self.members.seats_in().iter().all(|s| s.health.oldest().is_none());
            watcher.looks(self.ctx.rt.now());
            if idle() {
                let begun = pin!(watcher.sleep());
                if let Either::Right(_) = select(begun, ends.as_mut()).await {
                    return;
                }
            }
            let planned = watcher.since() + LOOK_EVERY;
            if let Either::Right(_) = select(pin!(self.ctx.rt.sleep_until(planned)), ends.as_mut()).await {
                return;
            }
            self.nobody_looked(planned);
            for seat in self.members.seats_in() {
                if !over() {
                    self.look_at(&seat).await;
                }
            }
        }
    }

    /// A look that was planned for then comes now: the time between is no drive's.
    fn nobody_looked(&self, planned: Nanos) {
        let now = self.ctx.rt.now();
        if now > planned {
            self.members.seats_in().iter().for_each(|seat| seat.health.forgive(now - planned, now));
        }
    }

    async fn look_at(&self, seat: &Rc<Seat>) {
        let Some((number, begun)) = seat.health.oldest() else {
            seat.health.set_waited_for(None);
            return;
        };
        let late = self.ctx.rt.now() - begun;
        if late < LATE_SUSPECT {
            seat.health.set_waited_for(None);
            return;
        }
        if seat.health.suspect(self.ctx.rt.now()).is_none() && !self.is_late_with_others(seat) {
            self.make_suspect(seat, format!("a request took {} ms", late.as_millis()));
        }
        if late < LATE_OUT || planted(Canary::LateStays) {
            return;
        }
        let answers_by = self.ctx.rt.now() + PROBE_PATIENCE;
        let silent = self.silent_besides(seat).await;
        if self.ctx.rt.now() > answers_by + LOOK_EVERY {
            // It stood still meanwhile: the next look decides.
            return self.nobody_looked(answers_by);
        }
        if !self.is_watched() || !seat.is_in() || !seat.health.in_flight(number) {
            return;
        }
        let mut gone = silent;
        gone.push(seat.id);
        let may_go = self.survives_without_all(&gone) || planted(Canary::LateBeyondRedundancy);
        let late = self.ctx.rt.now() - begun;
        if may_go {
            self.member_silent(seat.id, &format!("has not answered a request for {} ms", late.as_millis()));
            return;
        }
        if seat.health.set_waited_for(Some(late)).is_none() {
            self.ctx.error(
                EventCode::DriveSilent,
                format!("{} does not answer, and the array needs it: requests wait for it", seat.title()),
            );
        }
        if late >= END_WAITS {
            self.ctx.changed.wake();
        }
    }

    /// A member that was waited for as long as an open, or a close, waits.
    fn silent_for_long(&self) -> Option<Rc<Seat>> {
        let silent = |s: &Rc<Seat>| s.health.waited_for().is_some_and(|late| late >= END_WAITS);
        self.members.seats_in().into_iter().find(silent).filter(|_| !planted(Canary::EndWaitsForSilent))
    }

    /// A step of an open, or of a close, unless it waits too long for a drive that does not answer: then which.
    pub async fn unless_silent<T>(&self, step: impl Future<Output = T>) -> Result<T, String> {
        let gives_up = pin!(self.ctx.changed.until(|| self.silent_for_long().is_some()));
        match select(pin!(step), gives_up).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(self.silent_for_long().map(|seat| seat.title()).unwrap_or_default()),
        }
    }

    /// Waits, when the doors are shut, until nothing is in flight to the drives: a background task may be between a read and the
    /// write that follows from it. Not for long for one that is out, or when the array could not be handed over.
    pub async fn come_to_rest(&self, handed_over: bool) {
        let seats: Vec<Rc<Seat>> = self.members.all().iter().cloned().collect();
        let rest = |seat: Rc<Seat>| async move {
            let patience = if seat.is_in() && handed_over { END_WAITS } else { LATE_OUT };
            seat.come_to_rest(self.ctx.rt.sleep(patience)).await;
        };
        join_all(seats.into_iter().map(rest)).await;
    }

    /// Whether something is in flight to a member that nobody waits for any more.
    pub fn may_still_write(&self) -> bool {
        let in_flight = |s: &Rc<Seat>| s.is_in() && s.drive.as_ref().is_some_and(|drive| drive.in_flight() > 0);
        self.members.all().iter().any(in_flight) && !planted(Canary::LateWriteReleased)
    }

    /// Whether more members are late at once than may fail at once: then it is what they share that is slow, a file system or
    /// a controller, and no drive is suspect.
    fn is_late_with_others(&self, seat: &Rc<Seat>) -> bool {
        let now = self.ctx.rt.now();
        let late = |s: &Rc<Seat>| s.health.oldest().is_some_and(|(_, begun)| now - begun >= LATE_SUSPECT / 2);
        let mut all: Vec<MemberId> =
            self.members.seats_in().iter().filter(|s| s.id != seat.id && late(s)).map(|s| s.id).collect();
        if all.is_empty() || planted(Canary::LateApart) {
            return false;
        }
        all.push(seat.id);
        !self.survives_without_all(&all)
    }

    /// The other members that do not answer either. Those that are gone go out.
    pub async fn silent_besides(&self, seat: &Rc<Seat>) -> Vec<MemberId> {
        let others = self.members.seats_in().into_iter().filter(|s| s.id != seat.id);
        let now = self.ctx.rt.now();
        let late = |s: &Seat| s.health.oldest().is_some_and(|(_, begun)| now - begun >= LATE_TOO);
        let asked = others.map(|s| async move {
            if late(&s) && !planted(Canary::LateApart) {
                return Some(s.id);
            }
            let read = pin!(s.read(MemberLba(0), Buf::zeroed(BLOCK_BYTES)));
            match select(read, pin!(self.ctx.rt.sleep(PROBE_PATIENCE))).await {
                Either::Left(((Err(IoError::Gone), _), _)) => {
                    self.member_gone(s.id);
                    None
                }
                Either::Left(_) => None,
                Either::Right(_) => Some(s.id),
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Members that the array waits for, for its alarms.
    pub fn health_alarms(&self) -> Vec<AlarmView> {
        let now = self.ctx.rt.now();
        let mut alarms: Vec<AlarmView> = self.room_alarm().into_iter().collect();
        for seat in self.members.seats_in() {
            if seat.health.waited_for().is_some() {
                let what = format!("{} does not answer, and the array needs it", seat.title());
                alarms.push(
                    AlarmView::critical(AlarmCode::DriveSilent, what, "Check it and its cabling").of_seat(seat.bay()),
                );
            } else if let Some(why) = seat.health.suspect(now) {
                let what = format!("{} is suspect: {why}", seat.title());
                alarms.push(
                    AlarmView::warning(AlarmCode::DriveSuspect, what, "Check it, or replace it").of_seat(seat.bay()),
                );
            }
        }
        alarms
    }
}
