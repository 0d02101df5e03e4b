//! What a drive says of its health: the log page that every NVMe drive has.
//!
//! NVMe Base 2.0, 5.16.1.3 (SMART / Health Information, 02h), asked of the kernel, whichever way the drive is used.
//! The call may take as long as the drive does, and hang with it.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::drive::nvme::generic::health_log;

/// Zero degrees Celsius in Kelvin, as NVMe counts.
const ZERO_CELSIUS: i32 = 273;

/// "Data units" of NVMe: 1000 sectors of 512 bytes.
const UNIT_BYTES: u64 = 512_000;

/// What a drive says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smart {
    /// Bits of what is critical: spare, temperature, reliability, read-only, backup, persistent memory.
    pub critical: u8,
    /// Of the whole drive; none from one that does not tell.
    pub temperature_celsius: Option<i32>,
    /// Spare blocks that are left, of 1.
    pub spare_ratio: f64,
    /// Below this the drive warns.
    pub spare_threshold_ratio: f64,
    /// Endurance that is used, of 1; it may exceed 1.
    pub used_ratio: f64,
    /// Bytes that hosts have written.
    pub written_bytes: u64,
    /// Times that data could not be read, or did not match.
    pub media_errors: u64,
    /// How long it has had power.
    pub power_on: Duration,
    /// Times that it lost power unasked.
    pub unsafe_shutdowns: u64,
}

/// Asks the drive at `path`.
///
/// # Errors
/// When it is no NVMe drive, or this user may not ask it.
pub fn smart(path: &Path) -> io::Result<Smart> {
    health_log(path).map(|page| Smart::decode(&page))
}

impl Smart {
    fn decode(page: &[u8; 512]) -> Smart {
        // Counters have 16 bytes; nothing needs more than 8.
        let count = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| page[at + i]));
        let kelvin = i32::from(u16::from_le_bytes([page[1], page[2]]));
        let percent = |byte: u8| f64::from(byte) / 100.0;
        Smart {
            critical: page[0],
            temperature_celsius: (kelvin > 0).then_some(kelvin - ZERO_CELSIUS),
            spare_ratio: percent(page[3]),
            spare_threshold_ratio: percent(page[4]),
            used_ratio: percent(page[5]),
            written_bytes: count(48).saturating_mul(UNIT_BYTES),
            power_on: Duration::from_secs(count(128).saturating_mul(3600)),
            unsafe_shutdowns: count(144),
            media_errors: count(160),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read() {
        let mut page = [0; 512];
        page[1..6].copy_from_slice(&[0x38, 0x01, 97, 10, 12]);
        page[48] = 2;
        page[128] = 3;
        page[160] = 4;
        let said = Smart::decode(&page);
        assert_eq!((said.temperature_celsius, said.spare_ratio, said.used_ratio), (Some(39), 0.97, 0.12));
        assert_eq!((said.written_bytes, said.power_on.as_secs(), said.media_errors), (1_024_000, 10_800, 4));
        assert_eq!(Smart::decode(&[0; 512]).temperature_celsius, None);
    }

    #[test]
    fn a_file_has_no_such_page() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("drive"), [0; 4096]).unwrap();
        assert!(smart(&dir.path().join("drive")).is_err());
        assert!(smart(&dir.path().join("none")).is_err());
    }
}
