//! Members that fail: out at once; degraded while the redundancy covers it (`generation/degrade.rs` goes on from here), frozen
//! beyond. A drive that an open does not find goes out in `open/load.rs`.

use api::{EventCode, ExposureView};
use base::MemberId;
use ondisk::{MemberState, WhyOut};
use rt::IoError;

use super::Health;
use crate::canary::{Canary, planted};
use crate::ctx::Phase;
use crate::fault::Fault;
use crate::member::seat::Door;

/// Why an array is lost whose drives refuse it however often its own reservation is found to hold.
pub const RESERVED_AGAIN: &str = "another server keeps reserving the drives";

impl Health {
    /// A member failed a write or a flush and cannot be relied on any more: it is out from here on. Whoever needs the
    /// generation that says so waits for [`Health::degraded_durably`].
    pub fn member_failed(&self, member: MemberId, why: &str) {
        self.take_out(member, why, Door::ReadOnly, WhyOut::Failed);
    }

    /// A member does not answer. Of an array that writes nothing, it is not read any more either.
    pub fn member_silent(&self, member: MemberId, why: &str) {
        let door = if self.ctx.is_open() { Door::ReadOnly } else { Door::Shut };
        self.take_out(member, why, door, WhyOut::Failed);
    }

    /// A member answered with `error`, whatever was tried: what that says of it. `what` is what it was asked for.
    pub fn member_erred(&self, member: MemberId, what: &str, error: IoError) {
        match error {
            IoError::Gone if !planted(Canary::GoneFailed) => self.member_gone_writing(member),
            IoError::Conflict if !planted(Canary::ConflictCounted) => self.lose(RESERVED_AGAIN),
            error => self.member_failed(member, &format!("{what}: {error}")),
        }
    }

    /// A member is not there any more to read from.
    pub fn member_gone(&self, member: MemberId) {
        self.take_out(member, "is gone", Door::Shut, WhyOut::Missing);
    }

    /// A member is not there any more to write to.
    pub fn member_gone_writing(&self, member: MemberId) {
        self.take_out(member, "is gone", Door::ReadOnly, WhyOut::Missing);
    }

    /// A member's contents are those of some time before: nothing that it holds is believed.
    pub fn member_set_back(&self, member: MemberId) {
        self.take_out(member, "was set back to an older state while it was in use", Door::ReadOnly, WhyOut::Missing);
    }

    /// Behind a `shut` door it was not asked at all: that says nothing of it.
    fn take_out(&self, member: MemberId, why: &str, shut: Door, why_out: WhyOut) {
        let Some(seat) = self.members.seat(member) else { return };
        let door = if planted(Canary::DoorsBlameDrives) { Door::Open } else { seat.door() };
        if seat.state() != MemberState::In || door == Door::Shut || door == shut {
            return;
        }
        seat.goes_out(why_out);
        self.keep_leavers();
        seat.health.wake();
        self.failures.set(self.failures.get() + 1);
        let taken_out = match why_out {
            WhyOut::Missing => "it is now missing",
            WhyOut::Failed | WhyOut::Unsaid => "it has now failed",
        };
        self.ctx.warn(EventCode::DriveOut, format!("{} {why}; {taken_out}", seat.title()));
        if !self.ctx.is_open() {
            return;
        }
        if self.survivable() || planted(Canary::LossNotCounted) {
            self.degrading.set(true);
            self.streams.poke();
            self.ctx.changed.wake();
        } else {
            let (failed, missing) = self.members.seats_out();
            let gone = ExposureView::gone_words(&failed, &missing);
            let (level, tolerated) = (self.ctx.shape.level, self.ctx.shape.scheme.tolerates());
            self.freeze(&format!("{gone}, {level} tolerates {tolerated}"));
        }
    }

    /// A member that leaves in favour of one that went out stays.
    pub fn keep_leavers(&self) {
        let seats = self.members.all();
        for seat in seats.iter().filter(|s| s.is_in() && s.leaves()) {
            let in_bay = || seats.iter().filter(|s| s.bay() == seat.bay());
            if in_bay().any(|s| s.state() == MemberState::Out) && !in_bay().any(|s| s.takes_columns()) {
                seat.stays();
                self.ctx.note(
                    EventCode::DriveStays,
                    format!("drive {} stays in: the drive that was to replace it is out", seat.drive_name()),
                );
            }
        }
    }

    /// Stops writing for good: nothing is acknowledged, nothing on the drives changes any more.
    pub fn freeze(&self, why: &str) {
        if !self.ctx.is_open() {
            return;
        }
        self.ctx.error(
            EventCode::ArrayFrozen,
            format!(
                "frozen: {why}; writes fail, and reads fail where redundancy does not cover the loss. Reconnect the \
             drives, then restart the array"
            ),
        );
        self.stop_writing();
    }

    fn stop_writing(&self) {
        self.ctx.freeze();
        self.members.close_doors(Door::ReadOnly);
        self.streams.fail_all(self.members.frozen_by());
        self.end_degrading();
        self.streams.poke();
        self.ctx.changed.wake();
    }

    /// Another server has the drives: this one stops for good, reads included, since what they find may be another's by now.
    pub fn lose(&self, why: &str) {
        if self.ctx.phase() == Phase::Closed || self.members.guard().is_lost() {
            return;
        }
        self.members.guard().lost();
        self.ctx.doubt();
        if self.ctx.is_open() {
            self.stop_writing();
        }
        self.ctx.error(EventCode::ArrayFrozen, format!("frozen: {why}; nothing is read or written here"));
    }

    /// Waits until the generation that marks failed members out has taken effect.
    pub async fn degraded_durably(&self) -> Result<(), Fault> {
        let waits = || self.is_degrading() && !planted(Canary::FlushBeforeMemberOut);
        self.ctx.changed.until(|| !waits() || !self.ctx.is_open() || self.no_room_for_long()).await;
        self.members.writable()?;
        if waits() { Err(Fault::NoRoom) } else { Ok(()) }
    }
}
