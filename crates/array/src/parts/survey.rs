//! What an array would be like if it were opened with these drives: from labels and generations, without locks, and nothing is
//! written.
//!
//! Not here: the log. What recovery would find there (a record that is lost, for instance), only an open can say.

use api::{Prospect, SeatState};
use base::MemberId;
use ondisk::{Generation, Level, MemberState, SegmentState, WhyOut};
use rt::{Drive, Rt};

use crate::fault::Refused;
use crate::open::returning::Standing;
use crate::open::{Found, OpenHow, choose, frontier_survives, read_member};
use crate::parts::find;

/// What the drives of one array say of it.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Its name.
    pub name: String,
    /// Its level.
    pub level: Level,
    /// Parts that it consists of.
    pub parts: u8,
    /// What an open would make of it.
    pub prospect: Prospect,
    /// Its seats: of the first part.
    pub members: Vec<Surveyed>,
}

/// A seat.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// The number of the seat.
    pub bay: u16,
    /// Its state, as far as it is known without an open.
    pub state: SeatState,
    /// What its drive was called when it joined.
    pub drive_name: String,
    /// The drive, by its number among those that were looked at; none: it is not here.
    pub here: Option<usize>,
}

impl Survey {
    /// Seats whose drives take part, and those of them that are here.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let takes_part = |m: &&Surveyed| matches!(m.state, SeatState::In | SeatState::Leaving | SeatState::Missing);
        let all = self.members.iter().filter(takes_part);
        (all.clone().count(), all.filter(|m| m.here.is_some()).count())
    }

    /// The seat of a drive, by the drive's number.
    #[must_use]
    pub fn seat_of(&self, drive: usize) -> Option<&Surveyed> {
        self.members.iter().find(|m| m.here == Some(drive))
    }
}

/// Looks at the drives of one array; none when they do not tell.
///
/// # Errors
/// When they are of several arrays, or have several histories.
pub async fn survey(rt: &Rt, drives: &[Drive]) -> Result<Option<Survey>, Refused> {
    let mut survey: Option<Survey> = None;
    for (part, slices) in find::find(rt, drives.to_vec()).await? {
        let mut found: Vec<Found> = vec![];
        for slice in slices {
            let Some(member) = read_member(rt, slice).await? else { continue };
            // Of copies of a member, an open takes one.
            if found.iter().all(|f| f.label.member != member.label.member) {
                found.push(member);
            }
        }
        let how = OpenHow { read_only: true, degraded: true, force_diverged: true, ..OpenHow::default() };
        if found.is_empty() {
            return Ok(None);
        }
        let (newest, standings) = choose(&found, how)?;
        let here = |seat: usize| {
            let of_seat =
                |(f, standing): &(&Found, &Standing)| usize::from(f.label.seat.0) == seat && standing.is_current();
            found.iter().zip(&standings).find(of_seat).map(|(f, _)| f)
        };
        let prospect = prospect(&newest, |seat| here(seat).is_some());
        if let Some(whole) = &mut survey {
            whole.prospect = whole.prospect.max(prospect);
            continue;
        }
        let drive_of = |f: &Found| drives.iter().position(|d| d.is_same_as(&f.drive));
        let taken = newest.members.iter().enumerate().filter(|(_, m)| m.state != MemberState::Vacant);
        let members = taken.map(|(seat, m)| {
            // The drive of one that is out is looked at by its label: what it holds does not count.
            let labelled = || found.iter().find(|f| f.label.member == m.uuid);
            let here = here(seat).or_else(labelled).and_then(drive_of);
            Surveyed { bay: m.bay, state: state_of(m, here.is_some()), drive_name: m.drive_name.clone(), here }
        });
        survey = Some(Survey {
            name: newest.name.clone(),
            level: newest.level,
            parts: part.of,
            prospect,
            members: members.collect(),
        });
    }
    Ok(survey)
}

fn state_of(member: &ondisk::Member, here: bool) -> SeatState {
    match member.state {
        MemberState::In if !here => SeatState::Missing,
        MemberState::In if member.leaving => SeatState::Leaving,
        MemberState::In => SeatState::In,
        MemberState::Out if member.why_out == WhyOut::Missing => SeatState::Missing,
        MemberState::Out | MemberState::Vacant => SeatState::Failed,
        MemberState::Spare => SeatState::Spare,
    }
}

fn prospect(g: &Generation, here: impl Fn(usize) -> bool) -> Prospect {
    let is_in = |seat: &usize| g.members[*seat].state == MemberState::In;
    let marked_in = (0..g.members.len()).filter(is_in).count();
    let present = (0..g.members.len()).filter(is_in).filter(|seat| here(*seat)).count();
    let gone = |m: MemberId| !(is_in(&usize::from(m.0)) && here(usize::from(m.0)));
    let matters = |s: &&ondisk::Segment| s.live > 0 || s.replay_row.is_some();
    let lost = |s: &ondisk::Segment| (0..s.slots.len()).filter(|c| s.slots[*c].is_none_or(|(m, _)| gone(m))).count();
    let segments = || g.segments.iter().filter(matters);
    let holds = |s: &&ondisk::Segment| s.live > 0 || (s.state == SegmentState::Open && s.rows > 0);
    let survives = |s: &ondisk::Segment| s.scheme.survives(|c| s.slots[c].is_none_or(|(m, _)| gone(m)));
    if !g.segments.iter().filter(holds).all(survives) || !frontier_survives(g, gone) || present == 0 {
        return Prospect::LacksDrives;
    }
    if present * 2 <= marked_in && present < marked_in {
        return Prospect::FewerThanHalf;
    }
    let unfilled = |m: &&ondisk::Member| {
        let filled = g.members.iter().any(|other| other.bay == m.bay && other.state == MemberState::In);
        m.state == MemberState::Out && !filled
    };
    let is_whole = present == marked_in && segments().all(|s| lost(s) == 0) && !g.members.iter().any(|m| unfilled(&m));
    if is_whole { Prospect::Whole } else { Prospect::Degraded }
}
