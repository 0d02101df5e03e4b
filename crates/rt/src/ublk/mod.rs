//! Block devices of Linux that a process serves (ublk), by hand: the driver's commands, and the queue of one device.
//!
//! ```text
//!   control   /dev/ublk-control    add, start, stop, delete, recover: each on a thread of its own
//!   process                        by which these are sent: what waits in the kernel has nothing of the server's
//!   queue     /dev/ublkcN          requests are fetched and answered in the runtime's own ring; their data is copied
//!                                  by preadv and pwritev on the same device, which never wait
//!   wire      structures and numbers
//! ```
//!
//! A device outlives its server (`UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE`): what it was asked and had not answered
//! waits in the kernel, and is asked of the next server again.
//!
//! Invariants:
//! - one queue a device, and one thread that serves it: the one that fetched first;
//! - a fetch owns no memory that the kernel touches, so the ring's end does not wait for it;
//! - what the kernel shares is only read.
//!
//! Not here: what requests mean, and who answers them (`export::ublk`); devices for unprivileged users.

mod control;
mod error;
mod openers;
pub mod process;
mod queue;
mod wire;

pub use control::{
    Device, DeviceState, Features, Parameters, add, begin_recovery, delete, end_recovery, features, look, resize,
    start, stop,
};
pub use error::{ControlError, Opener};
pub use queue::{CopyError, Fetch, Fetched, Queue};
pub use wire::Descriptor;

/// Requests that a device has under way at most, and one more: see `process::leave_one_tag`.
pub const DEPTH: u16 = 128;
