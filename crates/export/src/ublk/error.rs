//! Why a block device is not made, taken over or removed.

use rt::ublk::ControlError;

/// What went wrong with a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UblkError {
    /// The kernel cannot, does not, or is busy.
    #[error(transparent)]
    Kernel(#[from] ControlError),
    /// There is no such device.
    #[error("the kernel has no /dev/ublkb{number}")]
    Absent {
        /// Its number.
        number: u32,
    },
    /// Its mark is another.
    #[error("/dev/ublkb{number} is not of this volume: another program, or another volume, has made it")]
    NotOurs {
        /// Its number.
        number: u32,
    },
    /// Its server lives.
    #[error("/dev/ublkb{number} is served by process {pid}")]
    Alive {
        /// Its number.
        number: u32,
        /// That process.
        pid: u32,
    },
    /// It was stopped, or never started.
    #[error("/dev/ublkb{number} was stopped and cannot be taken over: it can only be deleted")]
    Stopped {
        /// Its number.
        number: u32,
    },
    /// It is longer than the volume, or has smaller blocks.
    #[error("/dev/ublkb{number} has {device} bytes, the volume {volume}: it does not fit")]
    Size {
        /// Its number.
        number: u32,
        /// Its length.
        device: u64,
        /// Length of the namespace.
        volume: u64,
    },
    /// A block device cannot have blocks of this size.
    #[error("a block device cannot have blocks of {block} bytes: 512 to {largest} are valid")]
    Block {
        /// Unit of addressing of the namespace.
        block: u32,
        /// A page of the kernel.
        largest: u32,
    },
    /// It can be written, and the volume cannot.
    #[error("/dev/ublkb{number} waits for a server that may write: this one only reads")]
    ReadOnly {
        /// Its number.
        number: u32,
    },
    /// Its server is gone, and the kernel takes it for served. With Linux 6.12 that is for good where the server died in the moment in
    /// which it took the device over.
    #[error("/dev/ublkb{number}: the kernel has not noticed within {seconds} s that its server is gone")]
    Unnoticed {
        /// Its number.
        number: u32,
        /// How long it had.
        seconds: u64,
    },
    /// The kernel cannot change the size of a device.
    #[error("this kernel cannot change the size of a block device in use: Linux 6.16 or newer can")]
    Unsupported,
    /// This handle's device is not served by it any more.
    #[error("/dev/ublkb{number} is not served by this handle any more")]
    NotServed {
        /// Its number.
        number: u32,
    },
}

impl UblkError {
    /// Whether somebody uses the device: a mount, a process.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, UblkError::Kernel(ControlError::Busy { .. }))
    }

    /// Whether the kernel has not answered in time, and may never.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        matches!(self, UblkError::Kernel(ControlError::Slow { .. }))
    }
}
