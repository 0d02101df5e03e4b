//! Whose the drives are: at most one server writes an array, from whatever machine.
//!
//! ```text
//!   reservation   where all drives can be reserved: the drives themselves refuse everybody else         fence.rs
//!   owner mark    where others may reach them: a sign of life beside the slots, looked at before a write  mark.rs
//!
//!   open:     read all marks -> watch those not known dead, 5 s -> claim -> reserve -> wait -> look again   admit.rs
//!   at work:  every 2 s: look for another's mark, then write one's own                                     renew.rs
//!   close:    the mark says released, the reservation ends                                                  renew.rs
//! ```
//!
//! Times. An owner writes only when it has begun to look at its marks at most [`FRESH`] ago, and found them its own; else it looks
//! first. Who opens has seen a mark unmoved for [`WATCH`], claims, and waits [`SETTLE`], longer than an owner writes unseen. Of two
//! that open at once, the one that took longer than [`QUICK`] from its look to its claim waits so, too; the other has waited that
//! long before its second look. (A process that stands still between a look and its write may still write once, when it goes on:
//! what prevents that is a reservation.)
//!
//! Invariants:
//! - a conflict is never an error of a drive: the own reservation is looked at, and taken again where it still holds; else the
//!   array freezes before anything more is answered;
//! - nothing else is written before the marks of all drives were read, and no owner was seen living;
//! - each part of an array has marks of its own, so that none waits for another to be told.
//!
//! Not here: who should have an array. What is in use is refused, or taken over by force when a person says so.

mod admit;
mod claim;
mod fence;
mod look;
mod mark;
mod renew;

use std::time::Duration;

pub use crate::member::carried::Carried;
pub use admit::{Admitted, admit};
pub use look::{InUse, in_use, refuse_in_use};
pub use renew::Marks;

/// An owner writes its mark so often.
pub const RENEW_EVERY: Duration = Duration::from_secs(2);

/// An owner whose last look is older looks for others before it writes.
pub const FRESH: Duration = Duration::from_secs(4);

/// A mark that does not change for so long has no owner that lives.
pub const WATCH: Duration = Duration::from_secs(5);

/// A claim on what may have an owner after all stands so long before anything else is written.
pub const SETTLE: Duration = Duration::from_millis(4500);

/// Who takes over by force, without reservations, waits so long.
pub const TAKE_OVER: Duration = Duration::from_secs(10);

/// From the look to the claim, where nobody has to be waited for; and from the claim to the second look.
pub const QUICK: Duration = Duration::from_millis(100);

/// Who opens waits so long for a drive to show its mark.
const PATIENCE_OF_OPEN: Duration = Duration::from_secs(4);

/// What an open does about other owners.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnerHow {
    /// Takes the array from a server that has it.
    pub take_over: bool,
    /// Reserves the drives where all of them can be.
    pub reserve: bool,
    /// Of a part: what the open of the whole array has found and claimed.
    pub carried: Option<Carried>,
}

impl OwnerHow {
    /// Takes nothing over, reserves nothing.
    pub const PLAIN: OwnerHow = OwnerHow { take_over: false, reserve: false, carried: None };
}
