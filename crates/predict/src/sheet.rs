//! Drives against their makers' sheets.

use crate::answer::{Limits, answer};
use crate::drive::{DriveFile, SheetRow};
use crate::error::Error;
use crate::load::{Load, Pressure};
use crate::system::{DriveState, Engine, HostFigures, Level, System};

/// A sheet figure beside the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct SheetError {
    /// What the maker says.
    pub row: SheetRow,
    /// What the model says, in the same unit.
    pub modelled: f64,
}

impl SheetError {
    /// modelled / value - 1.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.modelled / self.row.value - 1.0
    }
}

/// One drive with nothing around it: cores that are not the limit, and a request that costs no time.
#[must_use]
pub fn alone(drive: &DriveFile) -> System {
    System {
        name: drive.name.clone(),
        about: drive.about.clone(),
        drives: drive.name.clone(),
        count: 1,
        engine: Engine::Direct,
        level: Level::Jbod,
        width: 0,
        state: DriveState::Optimal,
        host: HostFigures { cores: 64.0, request_us: 0.0, vdbench_request_us: None, parts: 0 },
        card: None,
        network: None,
        drive_file: Some(drive.clone()),
    }
}

/// All figures of a drive's sheet, modelled.
///
/// # Errors
/// When a row of the file is not one.
pub fn sheet_errors(drive: &DriveFile, seed: u64) -> Result<Vec<SheetError>, Error> {
    let mut all = vec![];
    for row in &drive.sheet {
        let mut load = Load::new(row.load.parse()?);
        load.pressure = Pressure::InFlightPerDrive(f64::from(row.in_flight));
        load.age = match row.condition.as_str() {
            "fresh" => 0.0,
            "steady" => f64::INFINITY,
            other => return Err(Error::unknown("condition", other, "fresh, steady")),
        };
        let answer = answer(&alone(drive), &load, &Limits::default(), seed, None)?;
        let modelled = match row.unit.as_str() {
            "IOPS" => answer.iops,
            "GB/s" => answer.bytes_per_s / 1e9,
            "us" => answer.mean_us,
            other => return Err(Error::unknown("unit", other, "IOPS, GB/s, us")),
        };
        all.push(SheetError { row: row.clone(), modelled });
    }
    Ok(all)
}
