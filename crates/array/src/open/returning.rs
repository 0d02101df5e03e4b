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
//! Not here: copies of a member that are here beside it (`parts::twins`), rebuilding what was given up (`rebuild`).

use std::collections::BTreeMap;

use api::EventCode;
use base::{MemberId, SegmentId};
use ondisk::{Generation, Member, MemberState, Segment, WhyOut};
use rt::Drive;

use super::recovering::Recovering;
use crate::canary::{Canary, planted};
use crate::ctx::Wish;
use crate::member::health::LATE_OUT;
use crate::open::{Found, is_newcomer, last_word};
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

impl Recovering<'_> {
    /// Takes a member that is out back in, with the next generation. Its columns are current where the segment is as `base`,
    /// the last generation of its own, says; the others are given up. False: another has taken its place.
    pub fn take_back(&self, id: MemberId, drive: Drive, base: Option<&Generation>) -> bool {
        let Some(old) = self.rooms.members().seat(id).filter(|s| s.state() == MemberState::Out) else { return false };
        let (name, bay) = (drive.info().name.clone(), old.bay());
        if self.rooms.members().bay_filled(bay) {
            self.rooms.ctx().note(
                EventCode::DriveOld,
                format!("drive {name} (seat {bay}) is back, but another has taken its place"),
            );
            return false;
        }
        let layout = self.rooms.labels().layout_now(&drive, bay, old.layout);
        let seat = old.again(drive, layout);
        let then: BTreeMap<SegmentId, &Segment> = base.iter().flat_map(|g| &g.segments).map(|s| (s.id, s)).collect();
        let (kept, given_up) = self.rooms.segments().give_up_columns(id, |seg, column, zone| {
            zone < seat.layout.zones && is_as_it_was(seg, column, then.get(&seg.id).copied())
        });
        kept.iter().chain(&given_up).for_each(|zone| seat.occupy_zone(*zone));
        // What lay behind the end of a drive that has become smaller is nowhere.
        let fits = given_up.into_iter().filter(|zone| *zone < seat.layout.zones);
        let given_up: Vec<_> = fits.map(|zone| (seat.clone(), zone)).collect();
        self.rooms.ctx().note(
            EventCode::DriveBack,
            format!(
                "drive {name} (seat {bay}) is back: {} of its columns are current, {} are rebuilt",
                kept.len(),
                given_up.len()
            ),
        );
        self.rooms.members().replace(seat);
        if !given_up.is_empty() {
            self.rooms.room().zones_on_their_way(given_up.len() as i64);
            self.rooms.pins().free_later(given_up);
        }
        self.rooms.ctx().wishes.ask(Wish::Rebuild);
        true
    }
}

/// Whether a column holds every row of its segment, since it was written to the end when `then` was.
fn is_as_it_was(seg: &Seg, column: usize, then: Option<&Segment>) -> bool {
    planted(Canary::ChangedKept)
        || then.is_some_and(|then| then.slots.get(column) == Some(&seg.slots[column]) && then.rows >= seg.rows.acked)
}

impl Recovering<'_> {
    /// Takes the array's label off drives that left in order, as the generation in effect knows, when the end of a process came
    /// before that.
    pub async fn wipe_left(&self, found: &[Found], g: &Generation) {
        for f in found.iter().filter(|f| has_left(f, g) && !planted(Canary::LeftLabelStays)) {
            let Some(seat) =
                self.rooms.members().seat(f.label.seat).map(|seat| seat.left_by(f.drive.clone(), f.label.layout))
            else {
                continue;
            };
            let wiped = f.drive.within(LATE_OUT, seat.wipe()).await;
            self.rooms.ctx().note(
                EventCode::DriveLeft,
                match wiped {
                    Ok(()) => format!("drive {} had left before: its label is wiped now", seat.drive_name()),
                    Err(e) => format!("drive {} had left before; its label could not be wiped: {e}", seat.drive_name()),
                },
            );
        }
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
