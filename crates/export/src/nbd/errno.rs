//! NBD's error values, and the one table from a fault to its error. "Error values".

use std::fmt;

use crate::namespace::Fault;

/// The errors that a reply can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Errno {
    /// Operation not permitted: a write to a read-only export.
    Perm,
    /// Input/output error.
    Io,
    /// Cannot allocate memory. Received from other servers; ours waits instead.
    NoMem,
    /// Invalid argument.
    Invalid,
    /// No space left on device.
    NoSpace,
    /// Value too large.
    Overflow,
    /// Operation not supported: a fast zero that would not be fast.
    NotSup,
    /// The server is being shut down.
    Shutdown,
}

impl Errno {
    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            Errno::Perm => 1,
            Errno::Io => 5,
            Errno::NoMem => 12,
            Errno::Invalid => 22,
            Errno::NoSpace => 28,
            Errno::Overflow => 75,
            Errno::NotSup => 95,
            Errno::Shutdown => 108,
        }
    }

    /// "The client SHOULD treat an unexpected error value as if it had been NBD_EINVAL".
    #[must_use]
    pub fn from_code(code: u32) -> Errno {
        match code {
            1 => Errno::Perm,
            5 => Errno::Io,
            12 => Errno::NoMem,
            28 => Errno::NoSpace,
            75 => Errno::Overflow,
            95 => Errno::NotSup,
            108 => Errno::Shutdown,
            _ => Errno::Invalid,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Errno::Perm => "EPERM",
            Errno::Io => "EIO",
            Errno::NoMem => "ENOMEM",
            Errno::Invalid => "EINVAL",
            Errno::NoSpace => "ENOSPC",
            Errno::Overflow => "EOVERFLOW",
            Errno::NotSup => "ENOTSUP",
            Errno::Shutdown => "ESHUTDOWN",
        })
    }
}

/// The table.
impl From<Fault> for Errno {
    fn from(fault: Fault) -> Errno {
        match fault {
            Fault::Medium | Fault::Unavailable => Errno::Io,
            Fault::NoSpace => Errno::NoSpace,
            Fault::ReadOnly => Errno::Perm,
            Fault::OutOfRange | Fault::Misaligned => Errno::Invalid,
            // "If the client receives an NBD_ESHUTDOWN error it MUST initiate a soft disconnect": what it should do.
            Fault::Gone => Errno::Shutdown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back() {
        for code in [1, 5, 12, 22, 28, 75, 95, 108] {
            assert_eq!(Errno::from_code(code).code(), code);
        }
        assert_eq!(Errno::from_code(4711), Errno::Invalid);
    }
}
