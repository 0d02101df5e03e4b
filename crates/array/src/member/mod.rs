//! Members: their drives, how they behave, and what becomes of one that fails.

pub mod fail;
pub mod flush;
pub mod health;
pub mod no_room;
pub mod seat;
pub mod standing;

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use base::MemberId;

use flush::Flushes;
use no_room::Waits;
use seat::{Door, Seat};

use crate::owner::Guard;

/// All seats of an array, and what is going on with their members.
pub struct Members {
    /// Whether the drives are still this server's to write.
    pub guard: Rc<Guard>,
    seats: RefCell<Vec<Rc<Seat>>>,
    /// A task looks at requests in flight.
    watched: Cell<bool>,
    /// Members went out and the generation that says so has not taken effect.
    degrading: Cell<bool>,
    /// Members that went out since the open.
    failures: Cell<u64>,
    /// Writes that wait for room where members lie.
    no_room: Waits,
    flushes: Flushes,
}

impl Members {
    /// None yet.
    pub fn new(guard: Rc<Guard>) -> Members {
        Members {
            guard,
            seats: RefCell::default(),
            watched: Cell::default(),
            degrading: Cell::default(),
            failures: Cell::default(),
            no_room: Waits::default(),
            flushes: Flushes::default(),
        }
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

    /// Members that went out since the open.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Whether members went out and no generation in effect says so yet.
    pub fn is_degrading(&self) -> bool {
        self.degrading.get()
    }

    /// A generation says who is out, or none ever will.
    pub fn end_degrading(&self) {
        self.degrading.set(false);
    }
}
