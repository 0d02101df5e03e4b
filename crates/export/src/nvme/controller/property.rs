//! Controller properties: capabilities, version, configuration, status. NVMe Base 2.0, 3.1.3 and 3.5.
//!
//! ```text
//!   disabled -- CC.EN 1 --> ready -- CC.SHN --> shutting down -- done --> shut down
//!       ^                     |                      |                       |
//!       +---- CC.EN 0 --------+----------------------+-----------------------+
//!   CC.EN 1 with a configuration that is not supported: CSTS.CFS until CC.EN 0
//! ```

use crate::nvme::{limits::QUEUE_ENTRIES_MAX, status::Status};

/// Offsets. 3.1.3, "Property Definition".
pub mod offset {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const CAP: u32 = 0x00;
    pub const VS: u32 = 0x08;
    pub const CC: u32 = 0x14;
    pub const CSTS: u32 = 0x1c;
    pub const CRTO: u32 = 0x68;
}

/// Version 2.0.0. 3.1.3.2.
pub const VERSION: u32 = 0x0002_0000;

/// Bits of CC. 3.1.3.5.
pub mod cc {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const ENABLE: u32 = 1;
    /// I/O command set, page size, arbitration: all 0 here.
    pub const CSS_MPS_AMS: u32 = 0x3ff0;
    pub const SHUTDOWN: u32 = 3 << 14;
    pub const ENTRY_SIZES: u32 = 0xff << 16;
    /// 2^6 bytes for submissions, 2^4 for completions.
    pub const ENTRY_SIZES_ONLY: u32 = 0x46 << 16;
}

/// Bits of CSTS. 3.1.3.6.
pub mod csts {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const READY: u32 = 1;
    pub const FATAL: u32 = 1 << 1;
    pub const SHUTDOWN_OCCURRING: u32 = 1 << 2;
    pub const SHUTDOWN_COMPLETE: u32 = 2 << 2;
}

/// In CAP and CRTO: how long it may take to become ready, 10 s.
const READY_HALF_SECONDS_MAX: u32 = 20;

/// CAP: entries, contiguous queues, time to become ready, NVM command set, pages of 4 KiB; CRMS: ready means with media,
/// which version 2.0 asks for. 3.1.3.1.
#[must_use]
pub fn capabilities() -> u64 {
    let contiguous = 1 << 16;
    let timeout_in_half_seconds = u64::from(READY_HALF_SECONDS_MAX) << 24;
    let nvm_command_set = 1 << 37;
    let ready_with_media = 1 << 59;
    u64::from(QUEUE_ENTRIES_MAX - 1) | contiguous | timeout_in_half_seconds | nvm_command_set | ready_with_media
}

/// Where a controller is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Not enabled.
    Disabled,
    /// Takes commands.
    Ready,
    /// A shutdown is under way.
    ShuttingDown,
    /// A shutdown is complete.
    ShutDown,
    /// Does nothing until it is disabled.
    Failed,
}

/// What a Property Set asks the controller to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// Forget I/O queues and events.
    Reset,
    /// Make everything durable, then [`Properties::shutdown_done`].
    Shutdown,
}

/// The properties of one controller.
#[derive(Debug)]
pub struct Properties {
    configuration: u32,
    life: Life,
    /// Discovery controllers have no I/O queues, so entry sizes do not matter.
    discovery: bool,
}

impl Properties {
    /// Those of a controller that has just been made.
    #[must_use]
    pub fn new(discovery: bool) -> Self {
        Properties { configuration: 0, life: Life::Disabled, discovery }
    }

    /// Where the controller is.
    #[must_use]
    pub fn life(&self) -> Life {
        self.life
    }

    /// Property Get. `wide` is for properties of 8 bytes.
    ///
    /// # Errors
    /// A property that does not exist or has another size.
    pub fn get(&self, offset: u32, wide: bool) -> Result<u64, Status> {
        match (offset, wide) {
            (offset::CAP, true) => Ok(capabilities()),
            (offset::VS, false) => Ok(u64::from(VERSION)),
            (offset::CC, false) => Ok(u64::from(self.configuration)),
            (offset::CSTS, false) => Ok(u64::from(self.status())),
            // 3.1.3.18: CRWMT; CRIMT is for a mode that is not supported.
            (offset::CRTO, false) => Ok(u64::from(READY_HALF_SECONDS_MAX)),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn status(&self) -> u32 {
        match self.life {
            Life::Disabled => 0,
            Life::Ready => csts::READY,
            Life::ShuttingDown => csts::READY | csts::SHUTDOWN_OCCURRING,
            Life::ShutDown => csts::READY | csts::SHUTDOWN_COMPLETE,
            Life::Failed => csts::FATAL,
        }
    }

    /// Property Set.
    ///
    /// # Errors
    /// Another property than CC, or another size.
    pub fn set(&mut self, offset: u32, wide: bool, value: u64) -> Result<Change, Status> {
        let (offset::CC, false) = (offset, wide) else {
            return Err(Status::INVALID_FIELD);
        };
        self.configuration = value as u32;
        let enable = self.configuration & cc::ENABLE != 0;
        let shutdown = self.configuration & cc::SHUTDOWN != 0;
        match (self.life, enable) {
            (Life::Disabled, true) => {
                self.life = if self.is_supported() { Life::Ready } else { Life::Failed };
                Ok(Change::None)
            }
            (Life::Disabled, false) | (Life::Failed, true) => Ok(Change::None),
            (Life::Ready, true) if shutdown => {
                self.life = Life::ShuttingDown;
                Ok(Change::Shutdown)
            }
            (Life::Ready | Life::ShuttingDown | Life::ShutDown, true) => Ok(Change::None),
            (Life::Ready | Life::ShuttingDown | Life::ShutDown | Life::Failed, false) => {
                self.life = Life::Disabled;
                Ok(Change::Reset)
            }
        }
    }

    /// Everything is durable.
    pub fn shutdown_done(&mut self) {
        if self.life == Life::ShuttingDown {
            self.life = Life::ShutDown;
        }
    }

    fn is_supported(&self) -> bool {
        let sizes = self.discovery || self.configuration & cc::ENTRY_SIZES == cc::ENTRY_SIZES_ONLY;
        sizes && self.configuration & cc::CSS_MPS_AMS == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENABLED: u64 = (cc::ENTRY_SIZES_ONLY | cc::ENABLE) as u64;

    fn set(properties: &mut Properties, value: u64) -> Change {
        properties.set(offset::CC, false, value).unwrap()
    }

    #[test]
    fn a_life() {
        let mut properties = Properties::new(false);
        let status = |p: &Properties| p.get(offset::CSTS, false).unwrap();
        assert_eq!(status(&properties), 0);
        assert_eq!(set(&mut properties, ENABLED & !1), Change::None);
        assert_eq!(set(&mut properties, ENABLED), Change::None);
        assert_eq!((properties.life(), status(&properties)), (Life::Ready, 1));
        assert_eq!(set(&mut properties, ENABLED | 1 << 14), Change::Shutdown);
        assert_eq!(status(&properties), 1 | 1 << 2);
        assert_eq!(set(&mut properties, ENABLED | 1 << 14), Change::None, "once only");
        properties.shutdown_done();
        assert_eq!(status(&properties), 1 | 2 << 2);
        assert_eq!(set(&mut properties, 0), Change::Reset);
        assert_eq!(status(&properties), 0);
        assert_eq!(set(&mut properties, ENABLED), Change::None);
        assert_eq!(status(&properties), 1);
    }

    #[test]
    fn configurations_that_are_not_supported() {
        for wrong in [1 << 4, 7 << 4, 1 << 7, 1 << 11, 1 << 16, 1 << 20] {
            let mut properties = Properties::new(false);
            set(&mut properties, ENABLED ^ wrong);
            assert_eq!((properties.life(), properties.get(offset::CSTS, false)), (Life::Failed, Ok(2)), "{wrong:#x}");
            set(&mut properties, ENABLED);
            assert_eq!(properties.life(), Life::Failed, "until it is disabled");
            assert_eq!(set(&mut properties, 0), Change::Reset);
            set(&mut properties, ENABLED);
            assert_eq!(properties.life(), Life::Ready);
        }
        let mut discovery = Properties::new(true);
        set(&mut discovery, 1);
        assert_eq!(discovery.life(), Life::Ready, "entry sizes do not matter without I/O queues");
    }

    #[test]
    fn properties_have_one_size() {
        let mut properties = Properties::new(false);
        assert_eq!(properties.get(offset::VS, false), Ok(0x2_0000));
        assert_eq!(properties.get(offset::CAP, true), Ok(0x0800_0020_1401_007f));
        for (offset, wide) in
            [(0, false), (8, true), (0x14, true), (0x1c, true), (0x20, false), (4, false), (0x38, true)]
        {
            assert_eq!(properties.get(offset, wide), Err(Status::INVALID_FIELD), "{offset:#x}");
        }
        for (offset, wide) in [(0, true), (8, false), (0x14, true), (0x1c, false), (u32::MAX, false)] {
            assert_eq!(properties.set(offset, wide, 1), Err(Status::INVALID_FIELD), "{offset:#x}");
        }
    }
}
