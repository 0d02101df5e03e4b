//! What a guest's front end shares with its back end: the guest's memory, and events.
//!
//! ```text
//!   memory   files of memory that were passed over a socket, mapped; ranges of a guest's addresses are copied in and out
//!   event    eventfds: a guest has something for us, or we for the guest
//!   foreign  descriptors and mappings, which another thread closes and takes away
//! ```
//!
//! Invariants:
//! - what is shared may change at any time: it is copied once and judged as a copy, and there is no reference to it;
//! - a mapping cannot be cut short under us: its file is sealed against that, or it is refused;
//! - no call on an event waits on this thread, whatever the other side does with it.
//!
//! Not here: what the memory means (`export::vhost_user_blk`).

mod event;
mod foreign;
mod memory;

pub use event::Event;
pub use foreign::{FOREIGN_MAX, Foreign};
pub use memory::{GuestMemory, MapError, OutOfMemory, REGIONS_MAX, Region, sealed_memory};
