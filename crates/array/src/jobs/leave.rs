//! What a generation says of a rebuild, and members that leave with it.
//!
//! Invariants:
//! - the old place of a column that was moved is given back when the generation that names the new one is in effect, and
//!   to others when nobody reads there any more;
//! - a member leaves with the generation after that, once all its zones are free; its label is wiped when that one is in
//!   effect, and its seat is nobody else's before. Where the end comes between, the next open wipes it.

use std::cell::RefCell;
use std::rc::Rc;

use ondisk::{Generation, MemberState};

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::member::health::LATE_OUT;
use crate::member::seat::Seat;
use crate::open::Found;
use crate::open::returning::seat_of;

/// What was rebuilt when a generation was made up.
pub struct Rebuilt {
    lost: u64,
    left_behind: Vec<(Rc<Seat>, u32)>,
}

/// What the next generation says of a rebuild.
impl Core {
    /// What the generation that is made up in this step will name.
    pub fn take_rebuilt(&self) -> Rebuilt {
        Rebuilt { lost: self.jobs.rebuild.unnamed_lost.get(), left_behind: self.jobs.rebuild.left_behind.take() }
    }

    /// That generation was not written.
    pub fn keep_rebuilt_for_later(&self, rebuilt: Rebuilt) {
        self.jobs.rebuild.left_behind.borrow_mut().extend(rebuilt.left_behind);
    }

    /// That generation is in effect: old places are free when nobody looks at them any more.
    pub fn rebuilt_is_named(&self, rebuilt: Rebuilt) {
        let p = &self.jobs.rebuild;
        p.unnamed_lost.set(p.unnamed_lost.get() - rebuilt.lost);
        if p.unnamed_lost.get() == 0 {
            p.unnamed_to_spare.set(None);
        }
        p.gone.borrow_mut().append(&mut p.going.borrow_mut());
        if !rebuilt.left_behind.is_empty() {
            self.zones_on_their_way(rebuilt.left_behind.len() as i64);
            self.pins.free_later(rebuilt.left_behind);
        }
        self.ctx.changed.wake();
    }
}

/// Members that leave, once nothing lies on them.
impl Core {
    /// Whether a member that leaves has nothing left, or has left and carries its label yet; or one that was replaced is listed
    /// still, since segments that named it went with the last generation only.
    pub(super) fn somebody_may_go(&self) -> bool {
        let gone = !self.jobs.rebuild.gone.borrow().is_empty();
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
            self.jobs.rebuild.going.borrow_mut().push(seat.clone());
        }
    }

    /// A spare leaves with the next generation.
    pub fn release_spare(&self, seat: &Rc<Seat>) {
        seat.is_given_up();
        self.jobs.rebuild.going.borrow_mut().push(seat.clone());
    }

    /// Commits a generation without those who may go, and takes the array's label off their drives.
    pub(super) async fn let_go(&self) {
        if self.jobs.rebuild.gone.borrow().is_empty() && self.commit().await.is_err() {
            return;
        }
        while let Some(seat) = { self.jobs.rebuild.gone.borrow().first().cloned() } {
            // It holds nothing any more, so the rebuild does not wait for a drive that does not answer.
            let wiped = match &seat.drive {
                Some(drive) => drive.within(LATE_OUT, seat.wipe()).await,
                None => seat.wipe().await,
            };
            self.ctx.note(match wiped {
                Ok(()) => {
                    format!(
                        "drive {} has left: it holds no data of the array, and its label is wiped",
                        seat.drive_name()
                    )
                }
                Err(e) => format!("drive {} has left; its label could not be wiped: {e}", seat.drive_name()),
            });
            self.jobs.rebuild.gone.borrow_mut().retain(|s| !Rc::ptr_eq(s, &seat));
            self.ctx.changed.wake();
        }
    }

    /// Takes the array's label off drives that left in order, as the generation in effect knows, when the end of a process came
    /// before that.
    pub(crate) async fn wipe_left(&self, found: &[Found], g: &Generation) {
        for f in found.iter().filter(|f| has_left(f, g) && !planted(Canary::LeftLabelStays)) {
            let Some(seat) = self.members.seat(f.label.seat).map(|seat| seat.left_by(f.drive.clone(), f.label.layout))
            else {
                continue;
            };
            let wiped = f.drive.within(LATE_OUT, seat.wipe()).await;
            self.ctx.note(match wiped {
                Ok(()) => format!("drive {} had left before: its label is wiped now", seat.drive_name()),
                Err(e) => format!("drive {} had left before; its label could not be wiped: {e}", seat.drive_name()),
            });
        }
    }

    /// Whether `seat` is on its way out, or its drive not wiped yet.
    pub fn is_leaving(&self, seat: &Rc<Seat>) -> bool {
        let p = &self.jobs.rebuild;
        let listed = |list: &RefCell<Vec<Rc<Seat>>>| list.borrow().iter().any(|s| Rc::ptr_eq(s, seat));
        (seat.is_in() && seat.leaves()) || listed(&p.going) || listed(&p.gone)
    }
}

/// Whether a drive left the array in order: its own last generation says that it was leaving, and the next that nothing lies on
/// it any more. (Of a spare, or one that is wiped in part, there is no generation.)
fn has_left(f: &Found, g: &Generation) -> bool {
    let Some(member) = seat_of(f, g).filter(|m| m.state == MemberState::Vacant) else { return false };
    let was_leaving = |own: &Generation| {
        let next = own.number.0 + 1 == member.gone_since.0;
        next && g.descends_from(own.id) && seat_of(f, own).is_some_and(|m| m.leaving)
    };
    f.own && f.generations.first().is_none_or(was_leaving)
}
