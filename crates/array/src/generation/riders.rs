//! What the next generation says besides: columns that have new places, and members that leave with it.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use crate::member::seat::Seat;

/// What waits for the next generation.
#[derive(Default)]
pub struct Riders {
    /// Lost columns restored that no generation names yet.
    lost: Cell<u64>,
    /// What the worst of their segments has to spare until a generation names them.
    to_spare: Cell<Option<usize>>,
    /// Old places of columns that were moved.
    left_behind: RefCell<Vec<(Rc<Seat>, u32)>>,
    /// Members that the generation being written lets go, and those that one in effect has.
    going: RefCell<Vec<Rc<Seat>>>,
    gone: RefCell<Vec<Rc<Seat>>>,
}

/// What was rebuilt when a generation was made up.
pub struct Rebuilt {
    lost: u64,
    left_behind: Vec<(Rc<Seat>, u32)>,
}

impl Riders {
    /// A lost column has a new place; its segment has so many columns to spare without it.
    pub fn restored(&self, to_spare: usize) {
        let worst = self.to_spare.get().map_or(to_spare, |before| before.min(to_spare));
        self.to_spare.set(Some(worst));
    }

    /// Another lost column has its new place.
    pub fn found_lost(&self) {
        self.lost.set(self.lost.get() + 1);
    }

    /// A column was moved from here.
    pub fn leave_behind(&self, seat: Rc<Seat>, zone: u32) {
        self.left_behind.borrow_mut().push((seat, zone));
    }

    /// Whether lost columns were restored that no generation names yet.
    pub fn has_unnamed(&self) -> bool {
        self.lost.get() > 0
    }

    /// What the worst of the restored segments that no generation names yet has to spare until one does.
    pub fn unnamed_to_spare(&self) -> Option<usize> {
        self.to_spare.get()
    }

    /// What the generation that is made up in this step will name.
    pub fn take(&self) -> Rebuilt {
        Rebuilt { lost: self.lost.get(), left_behind: self.left_behind.take() }
    }

    /// That generation was not written.
    pub fn put_back(&self, rebuilt: Rebuilt) {
        self.left_behind.borrow_mut().extend(rebuilt.left_behind);
    }

    /// That generation is in effect; the old places that are free now.
    pub fn are_named(&self, rebuilt: Rebuilt) -> Vec<(Rc<Seat>, u32)> {
        self.lost.set(self.lost.get() - rebuilt.lost);
        if self.lost.get() == 0 {
            self.to_spare.set(None);
        }
        self.gone.borrow_mut().append(&mut self.going.borrow_mut());
        rebuilt.left_behind
    }

    /// A member leaves with the next generation.
    pub fn goes(&self, seat: Rc<Seat>) {
        self.going.borrow_mut().push(seat);
    }

    /// Members that have left and carry their labels yet; not across an `.await`.
    pub fn gone(&self) -> Ref<'_, Vec<Rc<Seat>>> {
        self.gone.borrow()
    }

    /// The label of one is wiped.
    pub fn is_wiped(&self, seat: &Rc<Seat>) {
        self.gone.borrow_mut().retain(|s| !Rc::ptr_eq(s, seat));
    }

    /// Whether a member is on its way out, or its drive not wiped yet.
    pub fn has(&self, seat: &Rc<Seat>) -> bool {
        let listed = |list: &RefCell<Vec<Rc<Seat>>>| list.borrow().iter().any(|s| Rc::ptr_eq(s, seat));
        listed(&self.going) || listed(&self.gone)
    }
}
