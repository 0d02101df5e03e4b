//! Where a seat stands in its array, as the next generation will say it: changed by verbs, one for each thing that happens.

use std::cell::Cell;

use base::Generation;
use ondisk::{Member, MemberState, WhyOut};

use super::seat::Seat;
use crate::canary::{Canary, planted};

/// What a generation says of a seat, and what the next will say.
pub struct Standing {
    state: Cell<MemberState>,
    /// The order pairs are made by.
    bay: Cell<u16>,
    /// Its columns are being moved away; nothing new goes there.
    leaving: Cell<bool>,
    /// The first generation that marks it out or vacant; 0: it is neither.
    gone_since: Cell<Generation>,
    /// Why it is out, if it is.
    why_out: Cell<WhyOut>,
}

impl Standing {
    /// As a generation says it.
    pub(super) fn of(member: &Member) -> Standing {
        Standing {
            state: Cell::new(member.state),
            bay: Cell::new(member.bay),
            leaving: Cell::new(member.leaving),
            gone_since: Cell::new(member.gone_since),
            why_out: Cell::new(member.why_out),
        }
    }
}

impl Seat {
    /// Whether it takes part.
    #[inline]
    pub fn state(&self) -> MemberState {
        self.standing.state.get()
    }

    /// The order pairs are made by; people know it as the number of the seat.
    #[inline]
    pub fn bay(&self) -> u16 {
        self.standing.bay.get()
    }

    /// Whether its columns are being moved away.
    #[inline]
    pub fn leaves(&self) -> bool {
        self.standing.leaving.get()
    }

    /// The first generation that marks it out or vacant; 0: it is neither.
    pub fn gone_since(&self) -> Generation {
        self.standing.gone_since.get()
    }

    /// Why it is out, as a generation says it.
    pub fn why_out(&self) -> WhyOut {
        if self.state() == MemberState::Out { self.standing.why_out.get() } else { WhyOut::Unsaid }
    }

    /// Takes part, and its drive is here.
    #[inline]
    pub fn is_in(&self) -> bool {
        self.state() == MemberState::In && self.drive.is_some()
    }

    /// Takes part, and new columns may lie there.
    pub fn takes_columns(&self) -> bool {
        self.is_in() && (!self.leaves() || planted(Canary::LeavingUsed))
    }

    /// It takes part.
    pub fn joins(&self) {
        self.standing.state.set(MemberState::In);
    }

    /// A spare takes the place of one that is out.
    pub fn takes_bay(&self, bay: u16) {
        self.standing.bay.set(bay);
        self.joins();
    }

    /// It is out from here on.
    pub fn goes_out(&self, why: WhyOut) {
        self.standing.state.set(MemberState::Out);
        self.standing.why_out.set(why);
        self.standing.leaving.set(false);
    }

    /// One that was missing does not come back.
    pub fn has_failed(&self) {
        self.standing.why_out.set(WhyOut::Failed);
    }

    /// Its columns are to be moved away.
    pub fn begins_to_leave(&self) {
        self.standing.leaving.set(true);
    }

    /// It does not leave.
    pub fn stays(&self) {
        self.standing.leaving.set(false);
    }

    /// Nothing of the array lies there: the seat is free for another drive.
    pub fn is_given_up(&self) {
        self.standing.state.set(MemberState::Vacant);
        self.standing.leaving.set(false);
    }

    /// Remembers that generation `number` is the first that marks it out or vacant, if it is.
    pub fn gone_with(&self, number: Generation) {
        let gone = matches!(self.state(), MemberState::Out | MemberState::Vacant);
        let since = &self.standing.gone_since;
        match (gone, since.get().0) {
            (true, 0) => since.set(number),
            (true, _) => {}
            (false, _) => since.set(Generation(0)),
        }
    }

    /// As the next generation says it.
    pub fn line(&self) -> Member {
        Member {
            uuid: self.uuid(),
            state: self.state(),
            bay: self.bay(),
            drive_blocks: self.layout.drive_blocks,
            zones: self.layout.zones,
            leaving: self.leaves() && self.state() == MemberState::In,
            gone_since: self.gone_since(),
            why_out: self.why_out(),
            drive_name: self.drive_name().to_owned(),
        }
    }
}
