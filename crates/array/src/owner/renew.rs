//! An owner at work: every two seconds it looks for another's mark on two members, and writes its own there.

use std::rc::{Rc, Weak};

use base::{BLOCK_BYTES, MemberId, MemberLba};
use futures::future::join_all;
use ondisk::{OwnerMark, OwnerState};
use rt::{Buf, IoError, Nanos, Reserve};

use super::mark::{Carried, Seen, image, owner_text, patiently};
use super::{FRESH, PATIENCE, RENEW_EVERY, fence};
use crate::canary::{Canary, planted};
use crate::core::{Core, Phase};
use crate::seat::Seat;

/// Members that carry a mark which moves.
const HOLDERS: usize = 2;

/// Before a server that has not seen its mark for long looks again.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(250);

/// The reservations are looked at each so many marks.
const RESERVED_EVERY: u32 = 5;

/// Marks of the owner before that may land late: one that was in flight to each member.
const LATE_MAX: u32 = 8;

impl Core {
    /// The array carries marks from now on, as `carried` says.
    pub(crate) fn carry_marks(self: &Rc<Self>, carried: Option<Carried>) {
        let Some(carried) = carried else { return };
        self.guard.set_key(carried.key);
        self.guard.carry(carried);
        let core = Rc::downgrade(self);
        let rt = self.rt.clone();
        self.rt
            .spawn(async move {
                while let Some(core) = at_work(&core) {
                    core.renew_marks().await;
                    drop(core);
                    rt.sleep(RENEW_EVERY).await;
                }
            })
            .detach();
        if self.shape.part.index == 0 {
            let (core, rt) = (Rc::downgrade(self), self.rt.clone());
            let keep = async move {
                loop {
                    rt.sleep(RENEW_EVERY * RESERVED_EVERY).await;
                    let Some(core) = at_work(&core) else { return };
                    core.keep_reserved().await;
                }
            };
            self.rt.spawn(keep).detach();
        }
    }

    /// A new array's marks, where others may reach its drives.
    pub(crate) async fn mark_new(self: &Rc<Self>) {
        if self.seats_in().iter().any(|s| s.drive.as_ref().is_some_and(|d| d.info().shared)) {
            self.carry_marks(Some(Carried::new(&self.rt)));
            self.renew_marks().await;
        }
    }

    /// Looks for other owners, then writes the own mark.
    async fn renew_marks(&self) {
        let Some((carried, beat, _turn)) = self.guard.next_beat().await else { return };
        let mark = carried.mark(&self.rt.host(), self.shape.array, OwnerState::Held, beat);
        let image = image(&mark);
        let (mut holders, mut found) = (Vec::<MemberId>::new(), Found::default());
        let begun = self.rt.now();
        for seat in self.candidates() {
            if holders.len() == HOLDERS || self.phase.get() != Phase::Open {
                break;
            }
            let Some(at) = seat.layout.owner_mark() else { continue };
            if !self.look_at_mark(&seat, at, &carried, &mut found).await {
                continue;
            }
            let patience = self.guard.patience();
            match patiently(&self.rt, patience, seat.write_aside(at, image.clone())).await {
                Ok(()) => holders.push(seat.id),
                Err(error) => found.silent |= error == IoError::TimedOut,
            }
        }
        self.looked(begun, found);
        self.guard.set_holders(holders);
    }

    /// Members that may carry a mark, those first that carry one.
    fn candidates(&self) -> Vec<Rc<Seat>> {
        let holders = self.guard.holders();
        let mut seats = self.seats_in();
        seats.sort_by_key(|s| !holders.contains(&s.id));
        seats
    }

    /// Looks at one member's mark; false when nothing can be written there, or nothing may be any more.
    async fn look_at_mark(&self, seat: &Rc<Seat>, at: MemberLba, carried: &Carried, found: &mut Found) -> bool {
        let looked = self.rt.now();
        let read = seat.read_aside(at, Buf::zeroed(BLOCK_BYTES));
        match patiently(&self.rt, self.guard.patience(), read).await.map(|block| OwnerMark::decode(&block)) {
            Err(IoError::TimedOut) => {
                found.silent = true;
                false
            }
            // It may be readable once it is written.
            Err(IoError::Medium) | Ok(Err(_)) => true,
            Err(_) => false,
            Ok(Ok(other)) if other.session == carried.session || planted(Canary::MarkIgnored) => {
                // Whoever claims after this look waits for longer.
                self.guard.set_fresh(looked + FRESH);
                self.guard.answered_after(self.rt.now() - looked);
                found.seen = true;
                true
            }
            Ok(Ok(other)) if other.session == carried.before && self.guard.lands_late(LATE_MAX) => true,
            Ok(Ok(other)) => {
                self.lose(&format!("another server has the drives: {}", owner_text(&other)));
                false
            }
        }
    }

    /// What follows when all members that were to be looked at have been.
    fn looked(&self, begun: Nanos, found: Found) {
        if !found.seen && !found.silent && self.phase.get() == Phase::Open {
            // All members answer, and none has kept a mark: then nobody else's is there either.
            self.guard.set_fresh(begun + FRESH);
        }
        if found.silent && !found.seen {
            self.guard.all_silent();
        }
    }

    /// Returns when it is known again that the drives are this server's, or that they are not, or nothing is written any more.
    /// It writes no mark: who waits for this goes on as soon as one member has answered.
    pub(crate) async fn look_for_others(&self) {
        loop {
            let Some((carried, _beat, turn)) = self.guard.next_beat().await else { return };
            let (mut found, begun) = (Found::default(), self.rt.now());
            for seat in self.candidates() {
                if self.phase.get() != Phase::Open || self.guard.is_fresh(self.rt.now()) {
                    return;
                }
                if let Some(at) = seat.layout.owner_mark() {
                    self.look_at_mark(&seat, at, &carried, &mut found).await;
                }
            }
            self.looked(begun, found);
            drop(turn);
            if self.phase.get() != Phase::Open || self.guard.is_fresh(self.rt.now()) {
                return;
            }
            self.rt.sleep(LOOK_AGAIN).await;
        }
    }

    /// Takes reservations again that a reset has taken away.
    async fn keep_reserved(&self) {
        let Some(key) = self.guard.key().filter(|_| !planted(Canary::ReservationLost)) else { return };
        let seats = self.seats_in();
        let drives: Vec<_> = seats.iter().filter_map(|s| s.drive.clone()).collect();
        let told = join_all(drives.iter().map(|drive| fence::look(&self.rt, drive))).await;
        for (drive, reserved) in drives.iter().zip(told) {
            let name = &drive.info().name;
            match reserved.map(|r| r.holder) {
                Ok(Some(holder)) if holder != key => {
                    return self.lose(&format!("drive {name}: another host has reserved it, by key {holder:#018x}"));
                }
                Ok(None) if self.phase.get() == Phase::Open => {
                    let taken = fence::take(drive, key, None).await;
                    let outcome = taken
                        .map_or_else(|e| format!("cannot be reserved again: {e}"), |()| "is reserved again".into());
                    self.note(format!("drive {name} had lost its reservation; it {outcome}"));
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// A drive that is about to join is reserved as the others are.
    pub(crate) async fn reserve_joining(&self, drive: &rt::Drive) -> Result<(), crate::Refused> {
        let Some(key) = self.guard.key() else { return Ok(()) };
        match fence::take(drive, key, None).await {
            Ok(()) => Ok(()),
            Err(rt::ReserveError::Unable(why)) => {
                self.note(format!("drive {} joins without a reservation: {why}", drive.info().name));
                Ok(())
            }
            Err(rt::ReserveError::Io(e)) => Err(crate::Refused::io(&format!("drive {}", drive.info().name), e)),
        }
    }

    /// Says on the members that nobody has the array any more. Nothing else may be written afterwards.
    pub(crate) async fn release_marks(&self) {
        let Some((carried, beat, _turn)) = self.guard.next_beat().await else { return };
        let mark = carried.mark(&self.rt.host(), self.shape.array, OwnerState::Released, beat);
        let release = async |seat: Rc<Seat>| {
            let (drive, at) = (seat.drive.clone()?, seat.layout.owner_mark()?);
            let place = super::mark::Place { drive, at, array: self.shape.array, array_name: String::new() };
            let block = place.read(&self.rt).await.ok()?;
            if matches!(Seen::of(&block, self.shape.array), Seen::Mark(mark) if mark.session == carried.session) {
                place.write(&self.rt, &mark).await.ok()?;
                patiently(&self.rt, PATIENCE, place.drive.flush()).await.ok()?;
            }
            Some(())
        };
        join_all(self.seats_in().into_iter().map(release)).await;
    }

    /// Ends the reservations.
    pub(crate) async fn release_drives(&self) {
        let Some(key) = self.guard.key().filter(|_| !self.guard.is_lost()) else { return };
        self.guard.set_key(None);
        let drives: Vec<_> = self.seats.borrow().iter().filter_map(|s| s.drive.clone()).collect();
        for (drive, left) in drives.iter().zip(join_all(drives.iter().map(|d| d.reserve(Reserve::Leave(key)))).await) {
            if let Err(error) = left {
                tracing::warn!("drive {}: its reservation could not be given up: {error}", drive.info().name);
            }
        }
    }

    /// Reserves all drives, if they can be; the key.
    pub(crate) async fn reserve_new(&self) -> Option<u64> {
        let drives: Vec<_> = self.seats_in().iter().filter_map(|s| s.drive.clone()).collect();
        let told = join_all(drives.iter().map(|drive| fence::look(&self.rt, drive))).await;
        if !told.iter().all(|t| t.as_ref().is_ok_and(|r| r.holder.is_none())) {
            return None;
        }
        let key = Carried::new_key(&self.rt);
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
    pub(crate) async fn take_key(&self, key: u64) {
        self.guard.set_key(Some(key));
        self.renew_marks().await;
    }
}

/// What looks at marks have found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// One's own mark.
    seen: bool,
    /// A member that did not answer in time.
    silent: bool,
}

/// The array, while it is written.
fn at_work(core: &Weak<Core>) -> Option<Rc<Core>> {
    core.upgrade().filter(|core| core.phase.get() == Phase::Open)
}

/// A time at which every look is old.
pub(super) const STALE: Nanos = Nanos(0);
