//! What a system holds, and how long its drives last.

use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::error::Error;
use crate::sim::log_usable;
use crate::system::{Engine, System};

/// Bytes that volumes may have in all.
///
/// # Errors
/// When the drive's file says no size.
pub fn usable_bytes(system: &System) -> Result<f64, Error> {
    let drive = system.drive()?;
    if drive.capacity_bytes == 0 {
        return Err(Error::Impossible(format!("the file of drive {} has no capacity_bytes", drive.name)));
    }
    let width = f64::from(system.row_width());
    let data = (width - f64::from(system.level.redundancy(system.row_width()))) / width;
    let usable = if system.engine == Engine::Ashlar { log_usable() } else { 1.0 };
    Ok(drive.capacity_bytes as f64 * f64::from(system.count) * data * usable)
}

/// How long drives last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Life {
    /// Bytes that hosts write a day.
    pub host_bytes_per_day: f64,
    /// Bytes that each drive is given a day.
    pub drive_bytes_per_day: f64,
    /// Bytes that the flash of each drive programs a day.
    pub flash_bytes_per_day: f64,
    /// Years until the warranted bytes are written.
    pub years: f64,
}

/// Life at so many bytes a day of this load. `None`: the drive's file warrants nothing, or nothing is written.
///
/// A maker warrants bytes of hosts under random writes of the whole drive, so with the amplification of those. Flash
/// wears by what is programmed: bytes that are written with less amplification wear it less. `warranted` is the
/// amplification of random writes all over a full drive.
///
/// # Errors
/// When the system's drive does not exist.
pub fn life(system: &System, answer: &Answer, host_bytes_per_day: f64) -> Result<Option<Life>, Error> {
    let drive = system.drive()?;
    if drive.endurance_bytes == 0 || answer.drive_bytes_per_byte <= 0.0 {
        return Ok(None);
    }
    let all = crate::Span { fill: 1.0, slice: 1.0, age: f64::INFINITY };
    let warranted = drive.flash.map_or(1.0, |f| crate::flash_amplification(&f, &all));
    let drive_bytes_per_day = host_bytes_per_day * answer.drive_bytes_per_byte / f64::from(system.count);
    let flash_bytes_per_day = drive_bytes_per_day * answer.flash_amplification.max(1.0);
    let years = drive.endurance_bytes as f64 * warranted / flash_bytes_per_day / 365.25;
    Ok(Some(Life { host_bytes_per_day, drive_bytes_per_day, flash_bytes_per_day, years }))
}
