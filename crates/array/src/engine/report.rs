//! A look at all rooms of an open array: it reads, and changes nothing.

use crate::rooms::Rooms;

/// What is to be said of an array.
pub struct Report<'a> {
    pub(super) rooms: &'a Rooms,
}

impl<'a> Report<'a> {
    /// Of this one.
    pub fn of(rooms: &'a Rooms) -> Report<'a> {
        Report { rooms }
    }
}
