//! The verbs on an array's drives: fail, replace, add, retire; and the pace of the rebuild that follows from them.
//!
//! Invariant: a drive that is here and in is never given up before what lies on it lies elsewhere: it *leaves*, with its
//! redundancy, while its columns are copied. Only `fail` takes one out at once.

use std::pin::pin;
use std::rc::Rc;

use api::{EventCode, Remedy};
use base::{BlockCount, MemberId, MemberUuid, human};
use futures::future::select;
use ondisk::layout::MEMBERS_MAX;
use ondisk::{Label, MemberState, Rate, WhyOut};
use rt::Drive;

use super::report::Report;
use crate::canary::{Canary, planted};
use crate::ctx::Wish;
use crate::engine::Array;
use crate::fault::{Refused, RefusedCode};
use crate::member::health::PROBE_PATIENCE;
use crate::member::seat::Seat;
use crate::open::create::{self, random_uuid, seat_for, write_label};
use crate::room::Change;

impl Array {
    fn member(&self, seat: MemberId) -> Result<Rc<Seat>, Refused> {
        let known = self.rooms.members().seat(seat).filter(|s| s.state() != MemberState::Vacant);
        known.ok_or_else(|| {
            let (what, todo) = (format!("seat {}", seat.0), "Name one that is listed");
            Refused::new(RefusedCode::NotFound, what, "there is no such seat", todo).by(Remedy::ListSeats)
        })
    }

    /// What the drive of a seat is called, also of one that has left.
    pub(crate) fn drive_of(&self, seat: MemberId) -> Result<String, Refused> {
        self.rooms
            .members()
            .seat(seat)
            .map_or_else(|| self.member(seat), Ok)
            .map(|member| member.drive_name().to_owned())
    }

    /// What the drives are called that sat in this one's bay before it, as far as it is known yet.
    pub(crate) fn predecessors(&self, seat: MemberId) -> Vec<String> {
        let seats = self.rooms.members().all();
        let Some(own) = seats.get(usize::from(seat.0)) else { return vec![] };
        let before = seats.iter().filter(|s| s.id != seat && s.bay() == own.bay());
        before.filter(|s| s.state() != MemberState::Vacant).map(|s| s.drive_name().to_owned()).collect()
    }

    /// The seat of the drive of this name; of several the one of this number, else one that is not out.
    pub(crate) fn seat_of(&self, like: MemberId, drive: &str) -> Option<MemberId> {
        let seats = self.rooms.members().all();
        let known = |s: &&Rc<Seat>| s.drive_name() == drive && s.state() != MemberState::Vacant;
        let best = seats.iter().filter(known).min_by_key(|s| (s.id != like, s.state() == MemberState::Out));
        best.map(|s| s.id)
    }

    /// Whether the drive of this name takes part, or is a spare.
    pub(crate) fn has_drive(&self, drive: &str) -> bool {
        let seats = self.rooms.members().all();
        seats.iter().any(|s| s.drive_name() == drive && (s.is_in() || s.state() == MemberState::Spare))
    }

    /// Whether a label is that of a member.
    pub(crate) fn has_member(&self, label: &Label) -> bool {
        let seat = self.rooms.members().seat(label.seat);
        seat.is_some_and(|seat| seat.uuid() == label.member && seat.state() != MemberState::Vacant)
    }

    /// Whether there is a seat for another drive.
    pub(crate) fn may_join(&self) -> Result<(), Refused> {
        self.rooms.members().writable()?;
        self.free_seat().map(drop)
    }

    /// Whether the array goes on without `seat`, and without those that are `silent` beside it.
    fn may_lose(&self, seat: &Seat, silent: &[MemberId]) -> Result<(), Refused> {
        let rooms = &self.rooms;
        let what = || format!("drive {}", seat.drive_name());
        let hint = "Wait until a rebuild has restored redundancy, or reconnect a drive that is missing";
        if !rooms.health().survivable_without(&[seat.id]) {
            let why = "the array has no redundancy left to lose it";
            return Err(Refused::new(RefusedCode::Redundancy, what(), why, hint));
        }
        let lost: Vec<MemberId> = silent.iter().copied().chain([seat.id]).collect();
        if !rooms.health().survivable_without(&lost) {
            let names: Vec<String> =
                silent.iter().filter_map(|&s| rooms.members().seat(s)).map(|s| s.drive_name().to_string()).collect();
            let (verb, all) = if names.len() == 1 { ("does", "both") } else { ("do", "all of them") };
            let names = names.join(", ");
            let why = format!("{names} {verb} not answer, and the array cannot lose {all}");
            return Err(Refused::new(RefusedCode::Redundancy, what(), why, format!("Check {names}, then try again")));
        }
        Ok(())
    }

    /// Whether the array has no redundancy left somewhere once it has lost `seat`, which it may lose.
    pub(crate) async fn uses_up_redundancy(&self, seat: MemberId) -> bool {
        let rooms = &self.rooms;
        let Some(member) = rooms.members().seat(seat).filter(|s| s.is_in()) else { return false };
        let mut lost = rooms.health().silent_besides(&member).await;
        lost.push(seat);
        rooms.health().survivable_without(&lost) && Report::of(rooms).may_fail_without(&lost) == 0
    }

    /// Takes a member out.
    ///
    /// # Errors
    /// When the redundancy does not cover it.
    pub async fn drive_fail(&self, seat: MemberId) -> Result<(), Refused> {
        let member = self.may_fail_asked(seat).await?;
        if member.state() == MemberState::In {
            self.rooms.health().member_failed(seat, "was failed by command");
        } else if member.why_out() == WhyOut::Missing && !planted(Canary::MissingNotFailed) {
            member.has_failed();
            self.rooms.ctx().note(
                EventCode::DriveOut,
                format!(
                    "drive {} (seat {}) was failed by command: it will not rejoin",
                    member.drive_name(),
                    member.bay()
                ),
            );
            self.rooms.health().degraded_durably().await?;
            return Ok(self.rooms.generations().commit().await?);
        }
        Ok(self.rooms.health().degraded_durably().await?)
    }

    /// Takes a member out whose drive is gone.
    ///
    /// # Errors
    /// When the redundancy does not cover it.
    pub async fn drive_gone(&self, seat: MemberId) -> Result<(), Refused> {
        let member = self.may_fail(seat)?;
        if member.state() == MemberState::In {
            self.rooms.health().member_gone_writing(seat);
        }
        Ok(self.rooms.health().degraded_durably().await?)
    }

    /// The member, if it is out or may go out.
    pub fn may_fail(&self, seat: MemberId) -> Result<Rc<Seat>, Refused> {
        let member = self.member(seat)?;
        self.rooms.members().writable()?;
        if member.state() == MemberState::In {
            self.may_lose(&member, &[])?;
        }
        Ok(member)
    }

    /// The same, after the other members were asked: an idle one may be gone, hang, or have been emptied, and the array does not
    /// know it yet.
    pub(crate) async fn may_fail_asked(&self, seat: MemberId) -> Result<Rc<Seat>, Refused> {
        let member = self.may_fail(seat)?;
        if member.state() == MemberState::In && !planted(Canary::OthersUnasked) {
            let silent = self.rooms.health().silent_besides(&member).await;
            if silent.is_empty() {
                let look = pin!(self.rooms.generations().look_for_set_back());
                select(look, pin!(self.rooms.ctx().rt.sleep(PROBE_PATIENCE))).await;
            }
            self.may_fail(seat)?;
            self.may_lose(&member, &silent)?;
        }
        Ok(member)
    }

    /// A new drive takes the place of a seat's. Of one that is in, what lies there is copied first, and it leaves when
    /// nothing lies there any more ([`Array::drive_left`]); of one that is out, it is made from the others.
    ///
    /// With `force` it may belong to an array, and be too small for what is stored.
    ///
    /// # Errors
    /// When the drive is too small or belongs to an array, or the place is taken.
    pub async fn drive_replace(&self, seat: MemberId, with: Drive, force: bool) -> Result<(), Refused> {
        let rooms = &self.rooms;
        let old = self.may_replace(seat)?;
        if !force {
            self.may_be_smaller(Some(&old), &with.info().name, with.info().blocks)?;
        }
        let usable = rooms.room().usable_blocks();
        let newcomer = self.seat_drive(with, old.bay(), force).await?;
        // Something may have become of it meanwhile.
        if let Err(refused) = self.may_be_replaced(&old) {
            newcomer.is_given_up();
            return Err(refused);
        }
        newcomer.joins();
        if old.is_in() {
            old.begins_to_leave();
        } else {
            old.stays();
        }
        rooms.generations().commit().await?;
        if !newcomer.is_in() {
            let what = format!("drive {}", newcomer.drive_name());
            return Err(Refused::new(RefusedCode::Io, what, "its first write failed", "Use another drive"));
        }
        rooms.ctx().note(
            EventCode::DriveReplaced,
            match old.is_in() {
                true => format!("drive {} takes over from {}, which leaves", newcomer.drive_name(), old.drive_name()),
                false => format!("drive {} takes the place of {}", newcomer.drive_name(), old.drive_name()),
            },
        );
        Report::of(rooms).note_if_smaller(usable);
        rooms.ctx().wishes.ask(Wish::Rebuild);
        rooms.room().room_changed();
        Ok(())
    }

    /// The member, if another drive may take its place.
    pub(crate) fn may_replace(&self, seat: MemberId) -> Result<Rc<Seat>, Refused> {
        let old = self.member(seat)?;
        self.rooms.members().writable()?;
        self.may_be_replaced(&old)?;
        Ok(old)
    }

    /// Whether another drive has the place of this seat's, or it has none: its drive has left, or is a spare.
    pub(crate) fn place_is_taken(&self, seat: MemberId) -> bool {
        self.rooms.members().seat(seat).is_none_or(|old| match old.state() {
            MemberState::Out => self.rooms.members().bay_filled(old.bay()),
            MemberState::Vacant | MemberState::Spare => true,
            MemberState::In => false,
        })
    }

    fn may_be_replaced(&self, old: &Seat) -> Result<(), Refused> {
        let why = match old.state() {
            MemberState::In if old.leaves() => "it is already leaving",
            MemberState::In => return Ok(()),
            MemberState::Spare => "it is a spare and holds no data",
            MemberState::Vacant => "it has left",
            MemberState::Out if !self.rooms.members().bay_filled(old.bay()) => return Ok(()),
            MemberState::Out => "another drive has already taken its place",
        };
        let what = format!("seat {}", old.bay());
        Err(Refused::new(RefusedCode::InUse, what, why, "Name another drive").by(Remedy::ListSeats))
    }

    /// Adds a drive that takes the place of the next one to fail.
    ///
    /// With `force` it may belong to an array, and be too small for what is stored.
    ///
    /// # Errors
    /// When the drive is too small or belongs to an array.
    pub async fn drive_add_spare(&self, drive: Drive, force: bool) -> Result<(), Refused> {
        self.rooms.members().writable()?;
        if !force {
            self.may_be_smaller(None, &drive.info().name, drive.info().blocks)?;
        }
        let newcomer = self.seat_drive(drive, self.next_bay(), force).await?;
        self.rooms.generations().commit().await?;
        self.rooms.ctx().note(EventCode::DriveSpare, format!("drive {} is a spare", newcomer.drive_name()));
        self.rooms.ctx().wishes.ask(Wish::Rebuild);
        self.rooms.ctx().changed.wake();
        Ok(())
    }

    /// Adds a drive that takes part: new segments lie on it, too.
    ///
    /// # Errors
    /// When the drive is too small or belongs to an array.
    pub async fn drive_grow(&self, drive: Drive, force: bool) -> Result<(), Refused> {
        let rooms = &self.rooms;
        rooms.members().writable()?;
        let newcomer = self.seat_drive(drive, self.next_bay(), force).await?;
        newcomer.joins();
        rooms.generations().commit().await?;
        rooms
            .ctx()
            .note(EventCode::DriveJoined, format!("drive {} joined: new segments use it", newcomer.drive_name()));
        rooms.ctx().wishes.ask(Wish::Rebuild);
        rooms.room().room_changed();
        Ok(())
    }

    fn next_bay(&self) -> u16 {
        self.rooms.members().all().iter().map(|s| s.bay()).max().unwrap_or(0) + 1
    }

    /// Lets a member go for good: its columns are moved to the others, or what is live in them is; then it leaves
    /// ([`Array::drive_left`]). A spare leaves at once.
    ///
    /// # Errors
    /// When the others have no room for what is stored, are too few, or redundancy is lacking.
    pub async fn drive_retire(&self, seat: MemberId) -> Result<(), Refused> {
        let rooms = &self.rooms;
        let old = self.may_leave(seat)?;
        if old.state() == MemberState::Spare {
            rooms.generations().release_spare(&old);
        } else {
            old.begins_to_leave();
        }
        rooms.generations().commit().await?;
        rooms.ctx().note(EventCode::DriveLeaves, format!("drive {} leaves", old.drive_name()));
        rooms.ctx().wishes.ask(Wish::Rebuild);
        rooms.room().room_changed();
        Ok(())
    }

    /// The member, if the array can do without it.
    pub(crate) fn may_leave(&self, seat: MemberId) -> Result<Rc<Seat>, Refused> {
        let old = self.member(seat)?;
        self.rooms.members().writable()?;
        match old.state() {
            MemberState::Spare => {}
            MemberState::In if !old.leaves() => {
                if !planted(Canary::RetireUnasked) {
                    self.may_retire(&old)?;
                }
            }
            MemberState::In | MemberState::Vacant => {
                let what = format!("drive {}", old.drive_name());
                return Err(Refused::new(RefusedCode::InUse, what, "it is already leaving", "Wait until it has left"));
            }
            MemberState::Out => {
                let todo = "Put another drive in its place";
                let what = format!("seat {}", old.bay());
                let refused = Refused::new(RefusedCode::NotFound, what, "its drive is out", todo);
                return Err(refused.by(Remedy::ReplaceDrive));
            }
        }
        Ok(old)
    }

    /// Whether the array can do without a member's room.
    fn may_retire(&self, seat: &Seat) -> Result<(), Refused> {
        let rooms = &self.rooms;
        let refuse =
            |code, why: String, todo: &str| Err(Refused::new(code, format!("drive {}", seat.drive_name()), why, todo));
        if rooms.rebuild().lacks_redundancy() || rooms.members().lacks_members() {
            let why = "the array lacks redundancy".to_owned();
            return refuse(
                RefusedCode::Redundancy,
                why,
                "Replace the drives that are out and wait for the rebuild first",
            );
        }
        let raid0 = rooms.ctx().shape.level == ondisk::Level::Raid0 && rooms.ctx().shape.scheme.k() > 1;
        let least = rooms.ctx().shape.scheme.tolerates() + if raid0 { 2 } else { 1 };
        let left = rooms.members().all().iter().filter(|s| s.takes_columns() && s.id != seat.id).count();
        let room = BlockCount(rooms.room().usable_blocks_if(Change::Leaves(seat.id))).bytes();
        if left < least {
            let why = format!("{left} drives would remain, and {} needs at least {least}", rooms.ctx().shape.level);
            let refused = refuse(RefusedCode::Drives, why, "Replace it, or add a drive first");
            return refused.map_err(|r| r.by(Remedy::AddDrive));
        }
        let stored = BlockCount(rooms.room().stored_at_least()).bytes();
        if stored > room {
            let why = format!("{} are stored; the other {left} drives hold {}", human(stored), human(room));
            let todo = "Delete or deallocate data, replace it, or add a drive first";
            return refuse(RefusedCode::Size, why, todo).map_err(|r| r.by(Remedy::AddDrive));
        }
        Ok(())
    }

    /// Resolves when a member that leaves has left and its label is wiped, or stays after all; whether it has left.
    pub async fn drive_left(&self, seat: MemberId) -> bool {
        let Some(member) = self.rooms.members().seat(seat) else { return true };
        let rooms = &self.rooms;
        rooms.ctx().changed.until(|| !rooms.ctx().is_open() || !rooms.generations().is_leaving(&member)).await;
        member.state() == MemberState::Vacant
    }

    /// Drives that were members and are open here still: until another takes their seat, they are let go of, or the array is closed.
    #[must_use]
    pub fn former_drives(&self) -> Vec<Drive> {
        let rooms = &self.rooms;
        let gone = |s: &&Rc<Seat>| matches!(s.state(), MemberState::Out | MemberState::Vacant);
        // Of one that leaves the label is still to be wiped.
        let seats = rooms.members().all();
        seats
            .iter()
            .filter(gone)
            .filter(|s| !rooms.generations().is_leaving(s))
            .filter_map(|s| s.drive.clone())
            .collect()
    }

    /// Lets go of drives that have failed, were replaced or retired, once they have answered everything: then they can be
    /// wiped, or used for something else. The paths of the drives that are open here still.
    pub fn let_go_of_former(&self) -> Vec<String> {
        let rooms = &self.rooms;
        // One that is missing may come back.
        let has_left = |seat: &Rc<Seat>| match seat.state() {
            MemberState::Out => seat.why_out() == WhyOut::Failed,
            MemberState::Vacant => !rooms.generations().is_leaving(seat),
            MemberState::In | MemberState::Spare => false,
        };
        let idle = |seat: &Rc<Seat>| seat.drive.as_ref().is_some_and(|drive| drive.in_flight() == 0);
        let former: Vec<Rc<Seat>> = rooms.members().all().iter().filter(|s| idle(s) && has_left(s)).cloned().collect();
        if rooms.members().writable().is_ok() && !planted(Canary::FormerKept) {
            former.iter().for_each(|seat| rooms.members().replace(seat.let_go()));
        }
        rooms.members().all().iter().filter_map(|s| s.drive.as_ref()).map(|drive| drive.info().name.clone()).collect()
    }

    /// Labels a drive and gives it a seat, not yet in. Whoever has another use for it says so before the next wait: until then
    /// it is a spare, and a rebuild may give it the place of any drive that is out.
    async fn seat_drive(&self, drive: Drive, bay: u16, force: bool) -> Result<Rc<Seat>, Refused> {
        let rooms = &self.rooms;
        if drive.in_flight() > 0 && !planted(Canary::BusyReturns) {
            return Err(Refused::new(
                RefusedCode::InUse,
                format!("drive {}", drive.info().name),
                "requests that were sent to it before are still unanswered: they could overwrite new data",
                "Wait until it answers, or unplug it and plug it in again",
            ));
        }
        if force {
            crate::owner::refuse_in_use(&rooms.ctx().rt, std::slice::from_ref(&drive)).await?;
        } else {
            create::refuse_labelled(&drive).await?;
        }
        let layout = self.layout_for(&drive.info().name, drive.info().blocks)?;
        let number = self.free_seat()?;
        let label = Label {
            array: rooms.ctx().shape.array,
            member: MemberUuid(random_uuid(&rooms.ctx().rt)),
            seat: number,
            part: rooms.ctx().shape.part,
            layout,
            array_name: rooms.ctx().name(),
        };
        let name = drive.info().name.clone();
        rooms.marks().reserve_joining(&drive).await?;
        write_label(&drive, &label).await.map_err(|e| Refused::io(&format!("cannot write to {name}"), e))?;
        // The last wait: what goes out while it is labelled is out durably before it joins.
        if !planted(Canary::JoinsAsSpare) {
            rooms.health().degraded_durably().await?;
        }
        // In reserve until the caller knows better: its number is taken.
        let seat = seat_for(&label, drive, bay, MemberState::Spare, rooms.members().guard());
        match rooms.members().seat(number) {
            Some(place) if place.state() == MemberState::Vacant => rooms.members().replace(seat.clone()),
            Some(_) => {
                return Err(Refused::new(
                    RefusedCode::Drives,
                    name,
                    "another drive took its seat meanwhile",
                    "Try again",
                ));
            }
            None => rooms.members().add(seat.clone()),
        }
        if planted(Canary::JoinsAsSpare) {
            rooms.health().degraded_durably().await?;
        }
        Ok(seat)
    }

    /// The number of a seat that nobody has, nor is about to leave.
    fn free_seat(&self) -> Result<MemberId, Refused> {
        let seats = self.rooms.members().all();
        let vacant = |s: &Rc<Seat>| s.state() == MemberState::Vacant && !self.rooms.generations().is_leaving(s);
        let number = seats.iter().position(vacant).unwrap_or(seats.len());
        if seats.iter().filter(|s| s.takes_columns()).count() >= MEMBERS_MAX || number >= ondisk::generation::SEATS_MAX
        {
            let why = format!("an array has at most {MEMBERS_MAX} drives");
            return Err(Refused::new(RefusedCode::Drives, "all seats are taken", why, "Remove a drive first"));
        }
        Ok(MemberId(number as u16))
    }

    /// Resolves when no rebuild is running or about to, or it is paused.
    pub async fn rebuild_done(&self) {
        self.rooms.rebuild().rebuild_over().await;
    }

    /// Sets how fast rebuilds go; kept over restarts.
    ///
    /// # Errors
    /// When the array is not writable, or the rate is 0.
    pub async fn rebuild_rate(&self, rate: Rate) -> Result<(), Refused> {
        self.rooms.members().writable()?;
        if rate == Rate::Bytes(0) {
            let todo = "Give a rate, or pause the rebuild";
            return Err(Refused::new(RefusedCode::Size, "a rebuild of 0 bytes/s", "it would never end", todo));
        }
        self.rooms.ctx().set(|settings| settings.rebuild = rate);
        self.rooms.rebuild().rate_changed();
        Ok(self.rooms.generations().commit().await?)
    }

    /// Has rebuilds wait, or go on; kept over restarts.
    ///
    /// # Errors
    /// When the array is not writable.
    pub async fn rebuild_pause(&self, paused: bool) -> Result<(), Refused> {
        let rooms = &self.rooms;
        rooms.members().writable()?;
        rooms.ctx().set(|settings| settings.rebuild_paused = paused);
        if paused {
            rooms.ctx().wishes.take(Wish::Rebuild);
        } else {
            rooms.ctx().wishes.ask(Wish::Rebuild);
        }
        rooms.ctx().changed.wake();
        Ok(rooms.generations().commit().await?)
    }
}
