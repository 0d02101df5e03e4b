//! Members that were not there for a while, or were set back in time: which they are, and how they come back.
//!
//! ```text
//! generation in effect    N      its predecessor  N-1      what a member that is in may hold last: a commit writes one member
//!                                                          after the other
//! anything older          it missed something: it is behind
//! ```
//!
//! A member that is behind takes no part in recovery. Then it comes back in its own seat: columns of segments that are as they
//! were when its last generation was written are current, all others are given up there and rebuilt.
//!
//! Invariants:
//! - a member comes back only by a generation of our own history, or with nothing that is believed;
//! - a column that is kept has every row below the segment's acknowledged one: the member's own generation lists as many,
//!   in the same place, and everything that a generation relies on was flushed before it was written;
//! - one that failed does not come back by itself.
//!
//! Not here: copies of a member that are here beside it (`whole::twins`), rebuilding what was given up (`rebuild`).

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{MemberId, SegmentId};
use ondisk::{Generation, Member, MemberState, Segment, WhyOut};
use rt::Drive;

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::ctx::Wish;
use crate::engine::Array;
use crate::fault::{Refused, RefusedCode, Remedy};
use crate::member::seat::Seat;
use crate::open::{Found, NOT_OWN, is_newcomer, last_word, read_member};
use crate::space::segment::Seg;

/// What a drive that was found is to the array.
#[derive(Debug)]
pub enum Standing {
    /// As new as it must be: it takes part.
    Current,
    /// It is a member and missed something since this generation of its own; `None`: it holds none that counts.
    Behind(Option<Box<Generation>>),
    /// It does not take part.
    Out,
}

impl Standing {
    /// Whether what the drive holds counts.
    #[must_use]
    pub fn is_current(&self) -> bool {
        matches!(self, Standing::Current)
    }
}

/// What `f` is to the array whose newest generation is `newest`.
pub(crate) fn standing(f: &Found, newest: &Generation, found: &[Found]) -> Standing {
    let Some(member) = seat_of(f, newest).filter(|_| f.own || planted(Canary::ForeignTakenBack)) else {
        return Standing::Out;
    };
    let last = last_word(f, newest);
    let ours = planted(Canary::DivergedBelieved) || last.is_none_or(|g| newest.descends_from(g.id));
    let behind = || Standing::Behind(last.cloned().map(Box::new));
    match member.state {
        // A spare holds no generation: its label is its word.
        MemberState::Spare if ours => Standing::Current,
        MemberState::In if is_newcomer(f, newest, found) => Standing::Current,
        MemberState::In if last.is_some() && ours && is_current(f, newest) => Standing::Current,
        MemberState::In if ours => behind(),
        MemberState::Out if planted(Canary::StaleBelieved) && ours && last.is_some() => Standing::Current,
        MemberState::Out if member.why_out == WhyOut::Missing && ours => behind(),
        MemberState::In | MemberState::Out | MemberState::Spare | MemberState::Vacant => Standing::Out,
    }
}

/// The line of a drive in a generation, if it is the seat's.
pub(crate) fn seat_of<'a>(f: &Found, g: &'a Generation) -> Option<&'a Member> {
    g.members.get(usize::from(f.label.seat.0)).filter(|m| m.uuid == f.label.member)
}

/// Whether the last word of a drive that `newest` marks in is as new as it must be.
fn is_current(f: &Found, newest: &Generation) -> bool {
    let last = last_word(f, newest);
    let as_new = |g: &Generation| g.id == newest.id || newest.ancestors.first() == Some(&g.id);
    last.is_some_and(as_new) || planted(Canary::OldStateCurrent)
}

impl Array {
    /// A drive that was missing is here again: it takes its seat, and what it missed is made anew there.
    ///
    /// # Errors
    /// When it is no member that was missing, its history is not the array's, or requests of before are in flight.
    pub async fn drive_back(&self, seat: MemberId, drive: Drive) -> Result<(), Refused> {
        let core = &self.core;
        core.writable()?;
        let name = format!("drive {}", drive.info().name);
        let refuse = |code, why: &str, todo: &str| Err(Refused::new(code, name.clone(), why, todo));
        let is_missing = |s: &Rc<Seat>| s.state() == MemberState::Out && s.why_out() == WhyOut::Missing;
        let Some(old) = core.members.seat(seat).filter(is_missing) else {
            let refused = refuse(RefusedCode::InUse, "it is not missing", "Name another drive");
            return refused.map_err(|r| r.by(Remedy::ListSeats));
        };
        if drive.in_flight() > 0 && !planted(Canary::BusyReturns) {
            let why = "requests that were sent to it before are still unanswered";
            return refuse(RefusedCode::InUse, why, "Wait until it answers, or unplug it and plug it in again");
        }
        let found = read_member(&core.ctx.rt, drive.clone()).await?;
        let is_it = |f: &Found| {
            let l = &f.label;
            (l.array, l.part, l.member, l.seat) == (core.ctx.shape.array, core.ctx.shape.part, old.uuid(), old.id)
        };
        let Some(found) = found.filter(is_it) else {
            return refuse(RefusedCode::NotFound, "it is not the drive of this seat", "Name the right drive");
        };
        if !found.own && !planted(Canary::ForeignTakenBack) {
            let todo = "Check what it holds, or put it in as a new drive";
            return refuse(RefusedCode::Diverged, &format!("it {NOT_OWN}"), todo)
                .map_err(|r| r.by(Remedy::ReplaceDrive));
        }
        core.degraded_durably().await?;
        let base = found.generations.first();
        if base.is_some_and(|g| !core.system.descends_from(g.id)) {
            let why = "it was used meanwhile without the other drives";
            let todo = "Wipe it, then put it in as a new drive";
            return refuse(RefusedCode::Diverged, why, todo).map_err(|r| r.by(Remedy::WipeDrive));
        }
        core.reserve_joining(&drive).await?;
        // What a mark of before says would be another server's.
        core.mark_joining(&found.drive, &found.label).await?;
        if !core.members.seat(seat).is_some_and(|s| Rc::ptr_eq(&s, &old)) || !core.take_back(seat, drive, base) {
            let todo = "Wipe it, then add it as a spare";
            return refuse(RefusedCode::InUse, "another drive has taken its place", todo)
                .map_err(|r| r.by(Remedy::WipeDrive));
        }
        core.commit().await?;
        if let Some(seat) = core.members.seat(seat) {
            core.heal_labels_of(&seat).await;
        }
        Ok(())
    }
}

impl Core {
    /// Takes a member that is out back in, with the next generation. Its columns are current where the segment is as `base`,
    /// the last generation of its own, says; the others are given up. False: another has taken its place.
    pub fn take_back(&self, id: MemberId, drive: Drive, base: Option<&Generation>) -> bool {
        let Some(old) = self.members.seat(id).filter(|s| s.state() == MemberState::Out) else { return false };
        let (name, bay) = (drive.info().name.clone(), old.bay());
        if self.bay_filled(bay) {
            self.ctx.note(format!("drive {name} (seat {bay}) is back, but another has taken its place"));
            return false;
        }
        let layout = self.layout_now(&drive, bay, old.layout);
        let seat = old.again(drive, layout);
        let then: BTreeMap<SegmentId, &Segment> = base.iter().flat_map(|g| &g.segments).map(|s| (s.id, s)).collect();
        let (kept, given_up) = self.segments.give_up_columns(id, |seg, column, zone| {
            zone < seat.layout.zones && is_as_it_was(seg, column, then.get(&seg.id).copied())
        });
        kept.iter().chain(&given_up).for_each(|zone| seat.occupy_zone(*zone));
        // What lay behind the end of a drive that has become smaller is nowhere.
        let fits = given_up.into_iter().filter(|zone| *zone < seat.layout.zones);
        let given_up: Vec<_> = fits.map(|zone| (seat.clone(), zone)).collect();
        self.ctx.note(format!(
            "drive {name} (seat {bay}) is back: {} of its columns are current, {} are rebuilt",
            kept.len(),
            given_up.len()
        ));
        self.members.replace(seat);
        if !given_up.is_empty() {
            self.zones_on_their_way(given_up.len() as i64);
            self.pins.free_later(given_up);
        }
        self.ctx.wishes.ask(Wish::Rebuild);
        true
    }
}

/// Whether a column holds every row of its segment, since it was written to the end when `then` was.
fn is_as_it_was(seg: &Seg, column: usize, then: Option<&Segment>) -> bool {
    planted(Canary::ChangedKept)
        || then.is_some_and(|then| then.slots.get(column) == Some(&seg.slots[column]) && then.rows >= seg.rows.acked)
}
