//! A recovery under way.

use crate::rooms::Rooms;

/// Fills the rooms of an array that is being opened.
pub struct Recovering<'a> {
    pub(super) rooms: &'a Rooms,
}

impl<'a> Recovering<'a> {
    /// These.
    pub fn of(rooms: &'a Rooms) -> Recovering<'a> {
        Recovering { rooms }
    }
}
