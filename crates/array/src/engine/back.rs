//! A drive that was missing is here again.

use std::rc::Rc;

use api::Remedy;
use base::MemberId;
use ondisk::{MemberState, WhyOut};
use rt::Drive;

use super::Array;
use crate::canary::{Canary, planted};
use crate::fault::{Refused, RefusedCode};
use crate::label::read::read_label;
use crate::member::seat::Seat;
use crate::open::recovering::Recovering;
use crate::open::{Found, NOT_OWN, read_member};

impl Array {
    /// A drive that was missing is here again: it takes its seat, and what it missed is made anew there.
    ///
    /// # Errors
    /// When it is no member that was missing, its history is not the array's, or requests of before are in flight.
    pub async fn drive_back(&self, seat: MemberId, drive: Drive) -> Result<(), Refused> {
        let rooms = &self.rooms;
        rooms.members().writable()?;
        let name = format!("drive {}", drive.info().name);
        let refuse = |code, why: &str, todo: &str| Err(Refused::new(code, name.clone(), why, todo));
        let is_missing = |s: &Rc<Seat>| s.state() == MemberState::Out && s.why_out() == WhyOut::Missing;
        let Some(old) = rooms.members().seat(seat).filter(is_missing) else {
            let refused = refuse(RefusedCode::InUse, "it is not missing", "Name another drive");
            return refused.map_err(|r| r.by(Remedy::ListSeats));
        };
        if drive.in_flight() > 0 && !planted(Canary::BusyReturns) {
            let why = "requests that were sent to it before are still unanswered";
            return refuse(RefusedCode::InUse, why, "Wait until it answers, or unplug it and plug it in again");
        }
        let found = read_member(&rooms.ctx().rt, drive.clone()).await?;
        let is_it = |f: &Found| {
            let l = &f.label;
            (l.array, l.part, l.member, l.seat) == (rooms.ctx().shape.array, rooms.ctx().shape.part, old.uuid(), old.id)
        };
        let Some(found) = found.filter(is_it) else {
            return refuse(RefusedCode::NotFound, "it is not the drive of this seat", "Name the right drive");
        };
        if !found.own && !planted(Canary::ForeignTakenBack) {
            let todo = "Check what it holds, or put it in as a new drive";
            return refuse(RefusedCode::Diverged, &format!("it {NOT_OWN}"), todo)
                .map_err(|r| r.by(Remedy::ReplaceDrive));
        }
        rooms.health().degraded_durably().await?;
        let base = found.generations.first();
        if base.is_some_and(|g| !rooms.system().descends_from(g.id)) {
            let why = "it was used meanwhile without the other drives";
            let todo = "Wipe it, then put it in as a new drive";
            return refuse(RefusedCode::Diverged, why, todo).map_err(|r| r.by(Remedy::WipeDrive));
        }
        rooms.marks().reserve_joining(&drive).await?;
        // What a mark of before says would be another server's.
        rooms.marks().mark_joining(&found.drive, &found.label).await?;
        if !rooms.members().seat(seat).is_some_and(|s| Rc::ptr_eq(&s, &old))
            || !Recovering::of(rooms).take_back(seat, drive, base)
        {
            let todo = "Wipe it, then add it as a spare";
            return refuse(RefusedCode::InUse, "another drive has taken its place", todo)
                .map_err(|r| r.by(Remedy::WipeDrive));
        }
        rooms.generations().commit().await?;
        if let Some(seat) = rooms.members().seat(seat) {
            rooms.labels().heal_labels_of(&seat).await;
        }
        Ok(())
    }
}

impl Array {
    /// Seats whose drives are missing, and whose places nothing has taken.
    pub(crate) fn missing(&self) -> Vec<MemberId> {
        let seats = self.rooms.members().all();
        let missing = |s: &&Rc<Seat>| s.state() == MemberState::Out && s.why_out() == WhyOut::Missing;
        seats.iter().filter(missing).filter(|s| !self.rooms.members().bay_filled(s.bay())).map(|s| s.id).collect()
    }

    /// Lets go of missing drives to which nothing is in flight; their names.
    pub(crate) fn let_go_of_missing(&self) -> Vec<String> {
        let mut names = Vec::new();
        for id in self.missing() {
            let Some(seat) = self.rooms.members().seat(id) else { continue };
            if let Some(drive) = seat.drive.as_ref().filter(|drive| drive.in_flight() == 0) {
                names.push(drive.info().name.clone());
                self.rooms.members().replace(seat.without_drive());
            }
        }
        names
    }

    /// Takes a slice back if its label is that of a missing member; whether it was.
    pub(crate) async fn comes_back(&self, slice: Drive) -> Result<bool, Refused> {
        let label = read_label(&slice).await.ok().and_then(Result::ok);
        let Some(seat) = label.map(|l| l.seat).filter(|seat| self.missing().contains(seat)) else { return Ok(false) };
        self.drive_back(seat, slice).await.map(|()| true)
    }
}
