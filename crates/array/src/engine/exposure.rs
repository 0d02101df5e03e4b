//! Exposure: what may fail now, computed from the segment that is worst off.
//!
//! What the generation in effect lists counts as well as what is in memory: a loss may come with a power cut, and whoever
//! opens the array then knows the generation alone.

use base::MemberId;
use ondisk::MemberState;
use serde::Serialize;

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::space::plan;
use crate::space::segment::Seg;

/// How bad it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exposure {
    /// Drives that may fail now, whichever they are, and nothing is lost.
    pub may_fail: usize,
    /// Drives that may fail when nothing is out.
    pub tolerates: usize,
    /// Whether what one more loss takes has a place on the drives that are left, or a spare waits.
    pub rebuild_place: bool,
    /// Seats whose drive failed, and that no other drive took.
    pub failed: Vec<u16>,
    /// Seats whose drive is not here, and that no other drive took.
    pub missing: Vec<u16>,
}

impl Exposure {
    /// "1 drive failed or is missing".
    pub fn gone_words(failed: &[u16], missing: &[u16]) -> String {
        match failed.len() + missing.len() {
            1 => "1 drive failed or is missing".to_owned(),
            n => format!("{n} drives failed or are missing"),
        }
    }

    /// That of an array that consists of parts, of which `other` is one more.
    pub fn add(&mut self, other: &Exposure) {
        self.may_fail = self.may_fail.min(other.may_fail);
        self.rebuild_place &= other.rebuild_place;
    }
}

impl Core {
    /// How bad it is now.
    pub fn exposure(&self) -> Exposure {
        let (failed, missing) = self.seats_out();
        Exposure {
            may_fail: self.may_fail(),
            tolerates: self.tolerates(),
            rebuild_place: self.has_rebuild_place(),
            failed,
            missing,
        }
    }

    /// Drives that may fail at full strength: those of the level, unless there are too few drives for it.
    fn tolerates(&self) -> usize {
        self.ctx.shape.scheme.tolerates()
    }

    /// Further members that may be lost, whichever they are.
    pub fn may_fail(&self) -> usize {
        self.may_fail_without(&[])
    }

    /// The same once `members` are lost.
    pub fn may_fail_without(&self, members: &[MemberId]) -> usize {
        if planted(Canary::ExposureOverstated) {
            return self.tolerates();
        }
        let listed_counts = !planted(Canary::ListedUncounted);
        let table = self.segments.read();
        let listed = table.listed().filter(|_| listed_counts);
        let needed = table.segments.values().filter(|s| s.matters()).chain(listed);
        let worst =
            needed.map(|s| self.to_spare_without(s, members).unwrap_or(0)).min().unwrap_or_else(|| self.tolerates());
        let unnamed = self.jobs.rebuild.unnamed_to_spare().filter(|_| listed_counts);
        // An array of which nothing is left holds nothing.
        let some_stay = self.members.seats_in().iter().filter(|s| !members.contains(&s.id)).count().saturating_sub(1);
        worst.min(unnamed.unwrap_or(worst)).min(some_stay)
    }

    /// Further columns of a segment that may be lost, whichever they are; `None` if some of its data is lost already.
    pub fn columns_to_spare(&self, seg: &Seg) -> Option<usize> {
        self.to_spare_without(seg, &[])
    }

    fn to_spare_without(&self, seg: &Seg, members: &[MemberId]) -> Option<usize> {
        let gone = |m: MemberId| members.contains(&m) || self.members.seat(m).is_none_or(|s| !s.is_in());
        seg.scheme.to_spare(|c| seg.slots[c].is_none_or(|(m, _)| gone(m)))
    }

    /// Whether one more loss could be made good: a spare waits, or the drives that would be left have the columns and the room.
    fn has_rebuild_place(&self) -> bool {
        if self.tolerates() == 0 {
            return false;
        }
        let seats = self.members.all();
        if seats.iter().any(|s| s.state() == MemberState::Spare && s.drive.is_some()) {
            return true;
        }
        let mut zones: Vec<u32> = seats.iter().filter(|s| s.takes_columns()).map(|s| s.layout.zones).collect();
        zones.sort_unstable();
        // The largest one may be the next to fail.
        zones.pop();
        let scheme = self.ctx.shape.scheme;
        if zones.len() < scheme.width() {
            return false;
        }
        let shape = &self.ctx.shape;
        plan::usable_blocks(&zones, scheme, shape.zone_blocks, false, shape.usable_permille) >= self.stored_at_least()
    }

    /// Seats whose drive failed, and seats whose drive is missing, where no other has taken the place.
    pub fn seats_out(&self) -> (Vec<u16>, Vec<u16>) {
        use crate::engine::status::SeatState;
        let seats = self.members.all();
        let with = |state| seats.iter().filter(|s| self.seat_state(s) == state).map(|s| s.bay()).collect();
        (with(SeatState::Failed), with(SeatState::Missing))
    }
}
