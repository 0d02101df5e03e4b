//! What a generation says of a rebuild, and members that leave with it.
//!
//! Invariants:
//! - the old place of a column that was moved is given back when the generation that names the new one is in effect, and
//!   to others when nobody reads there any more;
//! - a member leaves with the generation after that, once all its zones are free; its label is wiped when that one is in
//!   effect, and its seat is nobody else's before. Where the end comes between, the next open wipes it.

use std::rc::Rc;

use super::Generations;
use super::riders::Rebuilt;
use crate::canary::{Canary, planted};
use crate::member::health::LATE_OUT;
use crate::member::seat::Seat;
use api::EventCode;

/// What the next generation says of a rebuild.
impl Generations {
    /// Rebuilt columns are named by the generation in effect: old places are free when nobody looks at them any more.
    pub(super) fn rebuilt_is_named(&self, rebuilt: Rebuilt) {
        let left_behind = self.riders.are_named(rebuilt);
        if !left_behind.is_empty() {
            self.room.zones_on_their_way(left_behind.len() as i64);
            self.pins.free_later(left_behind);
        }
        self.ctx.changed.wake();
    }
}

/// Members that leave, once nothing lies on them.
impl Generations {
    /// Whether a member that leaves has nothing left, or has left and carries its label yet; or one that was replaced is listed
    /// still, since segments that named it went with the last generation only.
    pub fn somebody_may_go(&self) -> bool {
        let gone = !self.riders.gone().is_empty();
        // A close writes the last generation; the next open forgets what was replaced.
        let replaced = |s: &Seat| self.is_nobodys(s) && !self.ctx.is_closing() && !planted(Canary::ReplacedListed);
        gone || self.members.all().iter().any(|s| self.may_go(s) || replaced(s))
    }

    fn may_go(&self, seat: &Seat) -> bool {
        let early = planted(Canary::LeavesEarly) && seat.is_in() && seat.leaves();
        early || (seat.is_in() && seat.leaves() && seat.is_bare())
    }

    /// Members with nothing on them leave with the generation that is about to be written.
    pub fn release_members(&self) {
        for seat in self.members.all().iter().filter(|s| self.may_go(s)) {
            seat.is_given_up();
            self.riders.goes(seat.clone());
        }
    }

    /// A spare leaves with the next generation.
    pub fn release_spare(&self, seat: &Rc<Seat>) {
        seat.is_given_up();
        self.riders.goes(seat.clone());
    }

    /// Commits a generation without those who may go, and takes the array's label off their drives.
    pub async fn let_go(&self) {
        if self.riders.gone().is_empty() && self.commit().await.is_err() {
            return;
        }
        while let Some(seat) = { self.riders.gone().first().cloned() } {
            // It holds nothing any more, so the rebuild does not wait for a drive that does not answer.
            let wiped = match &seat.drive {
                Some(drive) => drive.within(LATE_OUT, seat.wipe()).await,
                None => seat.wipe().await,
            };
            self.ctx.note(
                EventCode::DriveLeft,
                match wiped {
                    Ok(()) => {
                        format!(
                            "drive {} has left: it holds no data of the array, and its label is wiped",
                            seat.drive_name()
                        )
                    }
                    Err(e) => format!("drive {} has left; its label could not be wiped: {e}", seat.drive_name()),
                },
            );
            self.riders.is_wiped(&seat);
            self.ctx.changed.wake();
        }
    }

    /// Whether `seat` is on its way out, or its drive not wiped yet.
    pub fn is_leaving(&self, seat: &Rc<Seat>) -> bool {
        (seat.is_in() && seat.leaves()) || self.riders.has(seat)
    }
}
