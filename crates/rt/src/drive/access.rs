//! The ways to a drive: which one is used ([`Access`]), and which ones may be ([`Ways`]).
//!
//! Not here: finding out which ones a drive offers (`choose`).

use std::fmt;

/// How reads and writes reach a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the kernel's page cache: the file system has no O_DIRECT.
    Buffered,
    /// By O_DIRECT; the drive interrupts.
    Direct,
    /// By O_DIRECT; this process asks for the answers of reads and writes while there are any.
    DirectPolled,
    /// As NVMe commands to the namespace's character device; the drive interrupts. Commands are never polled: Linux
    /// 6.1 panics when a process dies that has such in flight (ADR 0021).
    Passthrough,
    /// By copying: this process's memory, or a model.
    Memory,
}

impl Access {
    /// Whether the kernel's page cache is passed by.
    #[must_use]
    pub fn is_direct(self) -> bool {
        self != Access::Buffered
    }

    /// In a word or two, as `status` says it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Access::Buffered => "buffered",
            Access::Direct => "direct",
            Access::DirectPolled => "direct, polled",
            Access::Passthrough => "passthrough",
            Access::Memory => "memory",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Which ways a runtime may use: O_DIRECT, and one other where a drive offers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ways {
    /// O_DIRECT and interrupts.
    #[default]
    Plain,
    /// And polling.
    Poll,
    /// And NVMe commands.
    Passthrough,
}
