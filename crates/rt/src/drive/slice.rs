//! A slice: a range of a drive that is a drive of its own.
//!
//! ```text
//!   whole   0 ........ from ............ from + blocks ........ end
//!   slice              0 ............... blocks
//! ```
//!
//! Invariant: a slice's offset is that in what the backend has, so a slice of a slice costs what a slice costs: one
//! addition.
//!
//! Not here: which slices there are (the array's), and slices on other threads (`sent`).

use std::rc::Rc;

use base::{BlockCount, MemberLba};

use super::{Drive, DriveInfo};

impl Drive {
    /// The `blocks` from `from` on as a drive of their own. It shares the descriptors, memory or model with this one, and
    /// so its locks, its way of access and its flushes; but it counts only its own operations in flight. What is known of
    /// it is what is known of this one, except for the length.
    ///
    /// Slices may overlap; who writes where is the callers' matter.
    ///
    /// # Panics
    /// When the range is not within this drive.
    #[must_use]
    pub fn slice(&self, from: MemberLba, blocks: BlockCount) -> Drive {
        let whole = &*self.0;
        let Ok(place) = whole.place(from, blocks) else {
            panic!("a slice of {} blocks from {from} on is not within {self:?}", blocks.0);
        };
        let info = DriveInfo { blocks, ..whole.info.clone() };
        Drive::new(&whole.rt, info, whole.backend.clone(), whole.found.as_ref().map(Rc::clone), place)
    }
}
