//! Exposure, computed.

use api::ExposureView;
use base::MemberId;
use ondisk::MemberState;

use super::report::Report;
use crate::canary::{Canary, planted};
use crate::space::plan;

impl Report<'_> {
    /// How bad it is now.
    pub fn exposure(&self) -> ExposureView {
        let (failed, missing) = self.rooms.members().seats_out();
        ExposureView {
            may_fail: self.may_fail(),
            tolerates: self.tolerates(),
            rebuild_place: self.has_rebuild_place(),
            failed,
            missing,
        }
    }

    /// Drives that may fail at full strength: those of the level, unless there are too few drives for it.
    fn tolerates(&self) -> usize {
        self.rooms.ctx().shape.scheme.tolerates()
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
        let table = self.rooms.segments().read();
        let listed = table.listed().filter(|_| listed_counts);
        let needed = table.segments.values().filter(|s| s.matters()).chain(listed);
        let worst = needed
            .map(|s| self.rooms.health().to_spare_without(s, members).unwrap_or(0))
            .min()
            .unwrap_or_else(|| self.tolerates());
        let unnamed = self.rooms.generations().riders().unnamed_to_spare().filter(|_| listed_counts);
        // An array of which nothing is left holds nothing.
        let some_stay =
            self.rooms.members().seats_in().iter().filter(|s| !members.contains(&s.id)).count().saturating_sub(1);
        worst.min(unnamed.unwrap_or(worst)).min(some_stay)
    }

    /// Whether one more loss could be made good: a spare waits, or the drives that would be left have the columns and the room.
    fn has_rebuild_place(&self) -> bool {
        if self.tolerates() == 0 {
            return false;
        }
        let seats = self.rooms.members().all();
        if seats.iter().any(|s| s.state() == MemberState::Spare && s.drive.is_some()) {
            return true;
        }
        let mut zones: Vec<u32> = seats.iter().filter(|s| s.takes_columns()).map(|s| s.layout.zones).collect();
        zones.sort_unstable();
        // The largest one may be the next to fail.
        zones.pop();
        let scheme = self.rooms.ctx().shape.scheme;
        if zones.len() < scheme.width() {
            return false;
        }
        let shape = &self.rooms.ctx().shape;
        plan::usable_blocks(&zones, scheme, shape.zone_blocks, false, shape.usable_permille)
            >= self.rooms.room().stored_at_least()
    }
}
