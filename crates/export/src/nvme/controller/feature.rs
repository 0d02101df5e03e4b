//! Features. NVMe Base 2.0, 5.27.1.
//!
//! Not here: those that Fabrics do not need (arbitration, power, temperature, error recovery, write atomicity); they
//! are refused as invalid fields. No feature can be saved.

use super::event::config;
use crate::nvme::status::Status;

/// Feature identifiers.
pub mod id {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const VOLATILE_CACHE: u8 = 0x06;
    pub const QUEUES: u8 = 0x07;
    pub const EVENTS: u8 = 0x0b;
    pub const KEEP_ALIVE: u8 = 0x0f;
    pub const HOST_ID: u8 = 0x81;
}

/// SCT 1, SC 0Dh: Feature Identifier Not Saveable.
const NOT_SAVEABLE: Status = Status(1 << 14 | 1 << 8 | 0x0d);

/// What a command about a feature wants.
pub struct Ask {
    /// Which.
    pub id: u8,
    /// Select for Get, save for Set: must be 0.
    pub select: u32,
    /// Command dword 11.
    pub value: u32,
}

impl Ask {
    /// From command dwords 10 and 11.
    #[must_use]
    pub fn new(dword_10: u32, dword_11: u32) -> Ask {
        Ask { id: dword_10 as u8, select: dword_10 >> 8, value: dword_11 }
    }

    /// A Get asks for the current value: nothing else is supported (ONCS bit 4).
    ///
    /// # Errors
    /// Another selection.
    pub fn check_get(&self) -> Result<(), Status> {
        if self.select & 7 == 0 { Ok(()) } else { Err(Status::INVALID_FIELD) }
    }

    /// A Set does not save.
    ///
    /// # Errors
    /// It does.
    pub fn check_set(&self) -> Result<(), Status> {
        if self.select >> 23 == 0 { Ok(()) } else { Err(NOT_SAVEABLE) }
    }
}

/// The events that a host may ask for.
///
/// # Errors
/// Others.
pub fn check_events(value: u32, is_discovery: bool) -> Result<(), Status> {
    let known = if is_discovery { config::DISCOVERY } else { config::HEALTH_ALL | config::NAMESPACES | config::ANA };
    if value & !known == 0 { Ok(()) } else { Err(Status::INVALID_FIELD) }
}

/// I/O queues that a host gets when it asks for `value` (submission queues in 15:0, completion queues in 31:16, both
/// from 0 for one), at most `most`. In Fabrics they come in pairs.
///
/// # Errors
/// 65536 of one of them.
pub fn queues(value: u32, most: u16) -> Result<u16, Status> {
    let (submission, completion) = (value & 0xffff, value >> 16);
    if submission == 0xffff || completion == 0xffff {
        return Err(Status::INVALID_FIELD);
    }
    Ok(((submission.min(completion) + 1) as u16).min(most))
}

/// The answer for so many queue pairs.
#[must_use]
pub fn queues_result(pairs: u16) -> u32 {
    let from_zero = u32::from(pairs - 1);
    from_zero << 16 | from_zero
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_limited() {
        assert_eq!(queues(0x0007_0007, 16), Ok(8));
        assert_eq!(queues(0x0000_0007, 16), Ok(1));
        assert_eq!(queues(0x00ff_00ff, 16), Ok(16));
        assert_eq!(queues(0xffff_0000, 16), Err(Status::INVALID_FIELD));
        assert_eq!(queues_result(16), 0x000f_000f);
    }

    #[test]
    fn nothing_is_saved_or_selected() {
        assert_eq!(Ask::new(0x8000_000b, 0).check_set(), Err(NOT_SAVEABLE));
        assert_eq!(Ask::new(0x0000_010b, 0).check_get(), Err(Status::INVALID_FIELD));
        assert!(Ask::new(0x0b, 0).check_get().is_ok() && Ask::new(0x0b, 0).check_set().is_ok());
    }

    #[test]
    fn events_are_those_of_the_kind() {
        assert!(check_events(1 << 8 | 1 << 11 | 0xff, false).is_ok());
        assert!(check_events(1 << 31, true).is_ok());
        assert!(check_events(1 << 31, false).is_err() && check_events(1 << 8, true).is_err());
        assert!(check_events(1 << 9, false).is_err(), "firmware");
    }
}
