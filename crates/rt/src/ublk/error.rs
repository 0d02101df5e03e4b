//! Why the kernel does not do what is asked of its ublk driver.

use std::io;

/// A command to the driver that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The module is not loaded.
    #[error("the kernel has no /dev/ublk-control: load its module (modprobe ublk_drv); Linux 6.6 or newer has it")]
    NoModule,
    /// This process may not.
    #[error("/dev/ublk-control: permission denied: block devices are made and served as root (CAP_SYS_ADMIN)")]
    NotPermitted,
    /// The driver lacks something that there is no serving without.
    #[error("the kernel's ublk driver lacks {feature}: Linux 6.6 or newer has it")]
    Missing {
        /// Its name in the kernel.
        feature: &'static str,
    },
    /// There is a device of this number.
    #[error("/dev/ublkb{number} is there already")]
    Taken {
        /// Its number.
        number: u32,
    },
    /// Somebody uses the device.
    #[error("/dev/ublkb{number} is in use: {by}")]
    Busy {
        /// Its number.
        number: u32,
        /// By whom.
        by: Opener,
    },
    /// It takes longer than is waited for; it may go on in the kernel.
    #[error("{command} of /dev/ublkb{number} takes longer than {seconds} s")]
    Slow {
        /// What was asked of the kernel.
        command: &'static str,
        /// The device.
        number: u32,
        /// How long that was waited for.
        seconds: u64,
    },
    /// The kernel refuses.
    #[error("{command}: {}", io::Error::from_raw_os_error(*errno))]
    Kernel {
        /// What was asked of it.
        command: &'static str,
        /// Its answer.
        errno: i32,
    },
}

/// Who has a device open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Opener {
    /// A file system, or a driver of the kernel.
    #[error("it is mounted, or another driver of the kernel has it")]
    Exclusive,
    /// A process.
    #[error("process {0} has it open")]
    Process(u32),
    /// The kernel does not tell.
    #[error("it is open")]
    Unknown,
}

impl ControlError {
    /// The kernel's answer to a command, as an error.
    pub(super) fn of(command: &'static str, errno: i32) -> ControlError {
        match errno {
            libc::EPERM | libc::EACCES => ControlError::NotPermitted,
            errno => ControlError::Kernel { command, errno },
        }
    }

    /// The kernel's error number, where there is one.
    pub(super) fn errno(&self) -> Option<i32> {
        match self {
            ControlError::Kernel { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}
