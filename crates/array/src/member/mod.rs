//! Members: their drives, how they behave, and where they stand. What becomes of one that fails is in `health`.

pub mod carried;
mod counters;
pub mod guard;
pub mod health;
pub mod no_room;
pub mod seat;
pub mod speed;
pub mod standing;
mod zones;

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use api::SeatState;
use base::MemberId;
use ondisk::{MemberState, Slot, WhyOut};

use crate::ctx::{Context, Phase};
use crate::fault::Fault;
use guard::Guard;
use seat::{Door, Seat};

/// All seats of an array.
pub struct Members {
    ctx: Rc<Context>,
    guard: Rc<Guard>,
    seats: RefCell<Vec<Rc<Seat>>>,
}

impl Members {
    /// None yet.
    pub fn new(ctx: &Rc<Context>) -> Rc<Members> {
        Rc::new(Members { ctx: ctx.clone(), guard: Guard::new(ctx), seats: RefCell::default() })
    }

    /// The context.
    pub fn ctx(&self) -> &Rc<Context> {
        &self.ctx
    }

    /// Whether the drives are still this server's to write.
    #[inline]
    pub fn guard(&self) -> &Rc<Guard> {
        &self.guard
    }

    /// All seats by number; not across an `.await`.
    #[inline]
    pub fn all(&self) -> Ref<'_, Vec<Rc<Seat>>> {
        self.seats.borrow()
    }

    /// The member of a seat.
    #[inline]
    pub fn seat(&self, id: MemberId) -> Option<Rc<Seat>> {
        self.all().get(usize::from(id.0)).cloned()
    }

    /// Members that take part.
    pub fn seats_in(&self) -> Vec<Rc<Seat>> {
        self.all().iter().filter(|s| s.is_in()).cloned().collect()
    }

    /// Another seat, behind all others.
    pub fn add(&self, seat: Rc<Seat>) {
        let mut seats = self.seats.borrow_mut();
        assert_eq!(usize::from(seat.id.0), seats.len(), "seats are numbered without a gap");
        seats.push(seat);
    }

    /// A seat has another drive from now on, or none.
    pub fn replace(&self, seat: Rc<Seat>) {
        let at = usize::from(seat.id.0);
        self.seats.borrow_mut()[at] = seat;
    }

    /// From here on no drive is asked for more than `door` lets through.
    pub fn close_doors(&self, door: Door) {
        self.all().iter().for_each(|s| s.close_door(door));
    }

    /// Whether all members that are in keep what they completed.
    #[inline]
    pub fn no_volatile_cache(&self) -> bool {
        self.all().iter().filter(|s| s.is_in()).all(|s| !s.volatile())
    }

    /// What a request that writes gets when the array does not take it.
    #[inline]
    pub fn writable(&self) -> Result<(), Fault> {
        match self.ctx.phase() {
            Phase::Open => Ok(()),
            Phase::ReadOnly => Err(Fault::ReadOnly),
            Phase::Frozen => Err(self.frozen_by()),
            Phase::Closed => Err(Fault::Closed),
        }
    }

    /// Why it is frozen.
    pub fn frozen_by(&self) -> Fault {
        if self.guard.is_lost() { Fault::TakenOver } else { Fault::Frozen }
    }

    /// What a read gets when what it would find may be old.
    #[inline]
    pub fn readable(&self) -> Result<(), Fault> {
        if self.ctx.is_uncertain() { Err(self.frozen_by()) } else { Ok(()) }
    }

    /// An open that was refused: nothing is asked of the drives any more, and nobody looks after them.
    pub fn give_up(&self) {
        self.ctx.close();
        self.close_doors(Door::Shut);
        self.ctx.changed.wake();
    }

    /// Whether a column has to be made from the others.
    pub fn is_lost(&self, slot: &Slot) -> bool {
        slot.is_none_or(|(m, _)| self.seat(m).is_none_or(|s| s.state() != MemberState::In))
    }

    /// Whether a column has to be somewhere else.
    pub fn is_homeless(&self, slot: &Slot) -> bool {
        self.is_lost(slot) || slot.is_some_and(|(m, _)| self.seat(m).is_some_and(|s| s.leaves()))
    }

    /// Whether a member is out whose bay nobody has taken.
    pub fn lacks_members(&self) -> bool {
        self.all().iter().any(|s| s.state() == MemberState::Out && !self.bay_filled(s.bay()))
    }

    /// Whether somebody who is in sits in `bay`.
    pub fn bay_filled(&self, bay: u16) -> bool {
        self.all().iter().any(|s| s.bay() == bay && s.is_in())
    }

    /// Seats whose drive failed, and seats whose drive is missing, where no other has taken the place. A drive that was
    /// retired is not out: it was asked to leave.
    pub fn seats_out(&self) -> (Vec<u16>, Vec<u16>) {
        let all = self.all();
        let seats = || all.iter().filter(|s| s.state() != MemberState::Vacant);
        let with = |state| seats().filter(|s| self.seat_state(s) == state).map(|s| s.bay()).collect();
        (with(SeatState::Failed), with(SeatState::Missing))
    }

    /// A seat in one word.
    pub fn seat_state(&self, s: &Seat) -> SeatState {
        match s.state() {
            MemberState::In if s.drive.is_none() => SeatState::Missing,
            MemberState::In if s.leaves() => SeatState::Leaving,
            MemberState::In => SeatState::In,
            MemberState::Spare => SeatState::Spare,
            MemberState::Out | MemberState::Vacant if self.bay_filled(s.bay()) => SeatState::Replaced,
            MemberState::Out if s.why_out() == WhyOut::Missing => SeatState::Missing,
            MemberState::Out | MemberState::Vacant => SeatState::Failed,
        }
    }
}
