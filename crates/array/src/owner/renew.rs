//! An owner at work: every two seconds it looks for another's mark on all members, and writes its own there.

use std::rc::{Rc, Weak};

use api::EventCode;
use base::{BLOCK_BYTES, MemberLba};
use futures::FutureExt;
use futures::future::{LocalBoxFuture, join_all};
use ondisk::{Label, Level, OwnerMark, OwnerState};
use rt::{Buf, Drive, IoError, Nanos};

use super::mark::{Seen, image, owner_text, patiently, place_of};
use super::{FRESH, RENEW_EVERY, fence};
use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::health::Health;
use crate::member::Members;
use crate::member::carried::Carried;
use crate::member::guard::{Owner, PATIENCE};
use crate::member::seat::Seat;

/// Before a server that has not seen its mark for long looks again.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(250);

/// The reservations are looked at each so many marks.
const RESERVED_EVERY: u32 = 5;

/// Marks of earlier owners that are accepted: some were in flight when this server opened the array, some lie on drives that take no
/// writes.
const LATE_MAX: usize = 8;

/// The marks and reservations of an array that is open.
pub struct Marks {
    ctx: Rc<Context>,
    members: Rc<Members>,
    health: Rc<Health>,
}

impl Owner for Marks {
    fn look_for_others(&self) -> LocalBoxFuture<'_, ()> {
        self.look_until_known().boxed_local()
    }

    fn hold_again<'a>(&'a self, drive: &'a Drive, key: Option<u64>) -> LocalBoxFuture<'a, bool> {
        self.reserve_again(drive, key).boxed_local()
    }
}

impl Marks {
    /// Those of the drives of `members`, whose guard asks here.
    pub fn new(health: &Rc<Health>) -> Rc<Marks> {
        let members = health.members();
        let marks = Rc::new(Marks { ctx: health.ctx().clone(), members: members.clone(), health: health.clone() });
        let owner: Rc<dyn Owner> = marks.clone();
        members.guard().is_kept_by(Rc::downgrade(&owner));
        marks
    }

    async fn reserve_again(&self, drive: &Drive, key: Option<u64>) -> bool {
        let held = match key.filter(|_| !planted(Canary::ReservationLost)) {
            Some(key) => fence::hold_again(&self.ctx.rt, drive, key).await,
            None => Err("another host has reserved it".to_owned()),
        };
        match held {
            Ok(()) => {
                self.ctx.warn(
                    EventCode::ReservationLost,
                    format!("drive {} had lost its reservation: it is reserved again", drive.info().name),
                );
                true
            }
            Err(why) => {
                self.health.lose(&format!("drive {}: {why}", drive.info().name));
                false
            }
        }
    }

    /// The array carries marks from now on, as `carried` says.
    pub fn carry_marks(self: &Rc<Self>, carried: Option<Carried>) {
        let Some(carried) = carried else { return };
        self.members.guard().set_key(carried.key);
        self.members.guard().carry(carried);
        let marks = Rc::downgrade(self);
        let rt = self.ctx.rt.clone();
        self.ctx
            .rt
            .spawn(async move {
                while let Some(marks) = at_work(&marks) {
                    marks.renew_marks().await;
                    drop(marks);
                    rt.sleep(RENEW_EVERY).await;
                }
            })
            .detach();
        if self.ctx.shape.part.index == 0 {
            let (marks, rt) = (Rc::downgrade(self), self.ctx.rt.clone());
            let keep = async move {
                loop {
                    rt.sleep(RENEW_EVERY * RESERVED_EVERY).await;
                    let Some(marks) = at_work(&marks) else { return };
                    marks.keep_reserved().await;
                }
            };
            self.ctx.rt.spawn(keep).detach();
        }
    }

    /// A new array's marks, where others may reach its drives.
    pub async fn mark_new(self: &Rc<Self>) {
        if self.members.seats_in().iter().any(|s| s.drive.as_ref().is_some_and(|d| d.info().shared)) {
            self.carry_marks(Some(Carried::new(&self.ctx.rt)));
            self.renew_marks().await;
        }
    }

    /// Looks for other owners, then writes the own mark: on every member, since another server may reach any of them and no
    /// other.
    async fn renew_marks(&self) {
        let Some((carried, beat, _turn)) = self.members.guard().next_beat().await else { return };
        let mark = carried.mark(&self.ctx.rt.host(), self.ctx.shape.array, OwnerState::Held, beat);
        let image = image(&mark);
        let begun = self.ctx.rt.now();
        let seats = self.marked_seats();
        let looks = self.look_at_marks(&seats, &carried).await;
        self.looked(begun, &looks);
        if !self.ctx.is_open() {
            return;
        }
        let write = async |(seat, look): (&Rc<Seat>, &Look)| {
            if let Some(at) = seat.layout.owner_mark().filter(|_| look.may_be_written()) {
                // Who cannot be marked is looked at all the same.
                let _may_fail =
                    patiently(&self.ctx.rt, self.members.guard().patience(), seat.write_aside(at, image.clone())).await;
            }
        };
        join_all(seats.iter().zip(&looks).map(write)).await;
    }

    async fn look_at_marks(&self, seats: &[Rc<Seat>], carried: &Carried) -> Vec<Look> {
        let look = async |seat: &Rc<Seat>| match seat.layout.owner_mark() {
            Some(at) => self.look_at_mark(seat, at, carried).await,
            None => Look::None,
        };
        join_all(seats.iter().map(look)).await
    }

    /// Members that carry a mark.
    fn marked_seats(&self) -> Vec<Rc<Seat>> {
        let mut seats = self.members.seats_in();
        if planted(Canary::TwoMarks) {
            seats.truncate(2);
        }
        seats
    }

    /// Looks at one member's mark.
    async fn look_at_mark(&self, seat: &Rc<Seat>, at: MemberLba, carried: &Carried) -> Look {
        let looked = self.ctx.rt.now();
        let read = seat.read_aside(at, Buf::zeroed(BLOCK_BYTES));
        match patiently(&self.ctx.rt, self.members.guard().patience(), read)
            .await
            .map(|block| OwnerMark::decode(&block))
        {
            Err(IoError::TimedOut) => Look::Silent,
            // What cannot be read cannot be read by another server either, and may be once it is written.
            Err(IoError::Medium) | Ok(Err(_)) => Look::Free,
            Err(_) => Look::None,
            Ok(Ok(other)) if other.session == carried.session || planted(Canary::MarkIgnored) => {
                self.members.guard().answered_after(self.ctx.rt.now() - looked);
                Look::Own
            }
            Ok(Ok(other)) if other.array != self.ctx.shape.array => Look::Free,
            Ok(Ok(other))
                if carried.before.contains(&other.session)
                    && self.members.guard().lands_late(other.session, other.beat, LATE_MAX) =>
            {
                Look::Free
            }
            Ok(Ok(other)) => Look::Strange(owner_text(&other)),
        }
    }

    /// What follows when all members have been looked at: whoever claims the array after these looks waits for longer than writes
    /// are free. It needs so many members that one of these is among them; and so many that the own mark cannot be left on enough
    /// others: where it is, a strange one came with older contents of a drive.
    fn looked(&self, begun: Nanos, looks: &[Look]) {
        let count = |which: fn(&Look) -> bool| looks.iter().filter(|look| which(look)).count();
        let own = count(|look| *look == Look::Own);
        let free = count(|look| *look == Look::Free);
        let silent = count(|look| *look == Look::Silent);
        let strange = looks.iter().find_map(|look| match look {
            Look::Strange(whose) => Some(whose),
            Look::Own | Look::Free | Look::Silent | Look::None => None,
        });
        let all = looks.iter().filter(|look| **look != Look::None).count();
        let least = match self.ctx.shape.level {
            Level::Raid10 { copies } => all / usize::from(copies).max(1),
            _ => all.saturating_sub(self.ctx.shape.scheme.tolerates()),
        };
        let least = least.max(1);
        let enough = if planted(Canary::TwoMarks) { 1 } else { (all + 1).saturating_sub(least) };
        match strange {
            Some(whose) if own < enough || planted(Canary::StrangeMarkObeyed) => {
                self.health.lose(&format!("another server has the drives: {whose}"));
            }
            _ if !self.ctx.is_open() => {}
            _ if own + free >= enough => self.members.guard().set_fresh(begun + FRESH),
            _ if silent > 0 => self.members.guard().all_silent(),
            _ => {}
        }
    }

    /// Returns when it is known again that the drives are this server's, or that they are not, or nothing is written any more.
    /// It writes no mark: who waits for this goes on as soon as members have answered.
    async fn look_until_known(&self) {
        loop {
            let Some((carried, _beat, turn)) = self.members.guard().next_beat().await else { return };
            if !self.ctx.is_open() || self.members.guard().is_fresh(self.ctx.rt.now()) {
                return;
            }
            let begun = self.ctx.rt.now();
            let looks = self.look_at_marks(&self.marked_seats(), &carried).await;
            self.looked(begun, &looks);
            drop(turn);
            if !self.ctx.is_open() || self.members.guard().is_fresh(self.ctx.rt.now()) {
                return;
            }
            self.ctx.rt.sleep(LOOK_AGAIN).await;
        }
    }

    /// Writes the own mark on a drive that is about to take its seat again: it has one of before.
    pub async fn mark_joining(&self, drive: &Drive, label: &Label) -> Result<(), crate::Refused> {
        let (Some((carried, beat, _turn)), Some(place)) =
            (self.members.guard().next_beat().await, place_of(drive, label).await)
        else {
            return Ok(());
        };
        let mark = carried.mark(&self.ctx.rt.host(), self.ctx.shape.array, OwnerState::Held, beat);
        place
            .write(&self.ctx.rt, &mark)
            .await
            .map_err(|e| crate::Refused::io(&format!("drive {}", drive.info().name), e))
    }

    /// Takes reservations again that a reset has taken away.
    async fn keep_reserved(&self) {
        let Some(key) = self.members.guard().key().filter(|_| !planted(Canary::ReservationLost)) else { return };
        let seats = self.members.seats_in();
        let drives: Vec<_> = seats.iter().filter_map(|s| s.drive.clone()).collect();
        let told = join_all(drives.iter().map(|drive| fence::look(&self.ctx.rt, drive))).await;
        for (drive, reserved) in drives.iter().zip(told) {
            let name = &drive.info().name;
            match reserved.map(|r| r.holder) {
                Ok(Some(holder)) if holder != key => {
                    return self
                        .health
                        .lose(&format!("drive {name}: another host has reserved it, by key {holder:#018x}"));
                }
                Ok(None) if self.ctx.is_open() => {
                    let taken = fence::take(drive, key, None).await;
                    let outcome =
                        taken.map_or_else(|e| format!("cannot be reserved again: {e}"), |_| "is reserved again".into());
                    self.ctx.warn(
                        EventCode::ReservationLost,
                        format!("drive {name} had lost its reservation; it {outcome}"),
                    );
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// A drive that is about to join is reserved as the others are.
    pub async fn reserve_joining(&self, drive: &rt::Drive) -> Result<(), crate::Refused> {
        let Some(key) = self.members.guard().key() else { return Ok(()) };
        match fence::take(drive, key, None).await {
            Ok(_) => Ok(()),
            Err(rt::ReserveError::Unable(why)) => {
                self.ctx.note(
                    EventCode::ReservationLost,
                    format!("drive {} joins without a reservation: {why}", drive.info().name),
                );
                Ok(())
            }
            Err(rt::ReserveError::Io(e)) => Err(crate::Refused::io(&format!("drive {}", drive.info().name), e)),
        }
    }

    /// Says on the members that nobody has the array any more. Nothing else may be written afterwards.
    pub async fn release_marks(&self) {
        let Some((carried, beat, _turn)) = self.members.guard().next_beat().await else { return };
        let mark = carried.mark(&self.ctx.rt.host(), self.ctx.shape.array, OwnerState::Released, beat);
        let release = async |seat: Rc<Seat>| {
            let (drive, at) = (seat.drive.clone()?, seat.layout.owner_mark()?);
            let place = super::mark::Place { drive, at, array: self.ctx.shape.array, array_name: String::new() };
            let block = place.read(&self.ctx.rt).await.ok()?;
            if matches!(Seen::of(&block, self.ctx.shape.array), Seen::Mark(mark) if mark.session == carried.session) {
                place.write(&self.ctx.rt, &mark).await.ok()?;
                patiently(&self.ctx.rt, PATIENCE, place.drive.flush()).await.ok()?;
            }
            Some(())
        };
        join_all(self.members.seats_in().into_iter().map(release)).await;
    }

    /// Ends the reservation of a drive that no part writes to any more.
    pub async fn end_reservation(&self, drive: &Drive) {
        let Some(key) = self.members.guard().key().filter(|_| !self.members.guard().is_lost()) else { return };
        if let Err(error) = fence::leave(&self.ctx.rt, drive, key).await {
            // One that was wiped in order has none any more.
            tracing::debug!("drive {}: its reservation could not be given up: {error}", drive.info().name);
        }
    }

    /// Ends the reservations.
    pub async fn release_drives(&self) {
        let Some(key) = self.members.guard().key().filter(|_| !self.members.guard().is_lost()) else { return };
        self.members.guard().set_key(None);
        let drives: Vec<_> = self.members.all().iter().filter_map(|s| s.drive.clone()).collect();
        let left = join_all(drives.iter().map(|drive| fence::leave(&self.ctx.rt, drive, key))).await;
        for (drive, left) in drives.iter().zip(left) {
            if let Err(error) = left {
                tracing::warn!("drive {}: its reservation could not be given up: {error}", drive.info().name);
            }
        }
    }

    /// Reserves all drives, if they can be; the key.
    pub async fn reserve_new(&self) -> Option<u64> {
        let drives: Vec<_> = self.members.seats_in().iter().filter_map(|s| s.drive.clone()).collect();
        let told = join_all(drives.iter().map(|drive| fence::look(&self.ctx.rt, drive))).await;
        if !told.iter().all(|t| t.as_ref().is_ok_and(|r| r.holder.is_none())) {
            return None;
        }
        let key = Carried::new_key(&self.ctx.rt);
        // The marks name the key before the drives know it.
        self.take_key(key).await;
        for drive in &drives {
            if let Err(error) = fence::take(drive, key, None).await {
                tracing::warn!("drive {}: not reserved: {error}", drive.info().name);
                self.release_drives().await;
                return None;
            }
        }
        Some(key)
    }

    /// The drives are reserved by `key`: the marks say so.
    pub async fn take_key(&self, key: u64) {
        self.members.guard().set_key(Some(key));
        self.renew_marks().await;
    }
}

/// What a look at a member's mark has found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Look {
    /// One's own mark.
    Own,
    /// No owner's: it may be written.
    Free,
    /// That of another open, and whose.
    Strange(String),
    /// The member did not answer in time.
    Silent,
    /// There is no place for a mark, or the member answers with an error.
    None,
}

impl Look {
    fn may_be_written(&self) -> bool {
        matches!(self, Look::Own | Look::Free | Look::Strange(_))
    }
}

/// The array, while it is written.
fn at_work(marks: &Weak<Marks>) -> Option<Rc<Marks>> {
    marks.upgrade().filter(|marks| marks.ctx.is_open())
}
