//! Block devices of this machine (ublk): the kernel asks, a namespace answers.
//!
//! ```text
//!   /dev/ublkbN -> block layer -> rt::ublk::Queue -> request::judge -> Namespace
//!   device       made, taken over from a server that died, left for the next one, removed
//!   service      one task a tag, 128 tags, 256 KiB a request: 32 MiB of payload at most
//!   request      what a descriptor asks for, and the one table from a fault to an error number
//! ```
//!
//! A server that dies or leaves does not end a device: what is asked of it waits, and is asked of the next server again, so writes
//! may be done twice and are then the same.
//!
//! Invariants: a device is known as ours by its mark (`ublksrv_flags`); one that somebody has open is not stopped, unless that was
//! asked for.
//!
//! Not here: which volume has which number (`server`); partitions, which are the kernel's; other queues than one.

mod device;
mod error;
mod parameters;
pub mod request;
mod service;

use rt::Rt;
use rt::ublk::DeviceState;

pub use device::{BlockDevice, Left, delete_left};
pub use error::UblkError;
pub use rt::ublk::{ControlError, Opener};

/// What the kernel has under a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The mark of who made it.
    pub mark: u64,
    /// Its length.
    pub bytes: u64,
    /// Whether its server lives.
    pub is_served: bool,
    /// Whether it can be taken over: not when it was stopped, or never started.
    pub is_recoverable: bool,
    /// Whether it refuses writes.
    pub is_read_only: bool,
}

/// What the kernel has under this number, if anything.
///
/// # Errors
/// When the kernel does not tell.
pub async fn look(rt: &Rt, number: u32) -> Result<Option<Found>, UblkError> {
    let device = rt::ublk::look(rt, number).await?;
    Ok(device.map(|device| Found {
        mark: device.mark,
        bytes: device.bytes,
        is_served: device.server.is_some(),
        is_recoverable: device.is_recoverable && device.state != DeviceState::Dead,
        is_read_only: device.read_only,
    }))
}

/// Why the kernel cannot: no module, no permission, a missing feature.
///
/// # Errors
/// When it cannot.
pub async fn supported(rt: &Rt) -> Result<(), UblkError> {
    rt::ublk::features(rt).await?;
    Ok(())
}
