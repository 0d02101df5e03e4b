//! What a figure is worth: the same load with each figure of the drive, and the CPU's, a fifth smaller and larger.

use serde::{Deserialize, Serialize};

use crate::answer::{Limits, answer};
use crate::drive::{DriveFile, Origin};
use crate::error::Error;
use crate::load::{Load, Pressure};
use crate::system::System;

/// By which part figures are changed.
pub const CHANGED_BY: f64 = 0.2;

/// A figure, and what the answer does when it changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swing {
    /// Its key in the drive file; or "CPU time of a request".
    pub figure: String,
    /// Where it comes from, where the file says so.
    pub origin: Option<Origin>,
    /// Requests a second to those of the whole answer, where the figure is a fifth smaller.
    pub smaller: f64,
    /// Where it is a fifth larger.
    pub larger: f64,
    /// Requests simulated for both.
    pub requests: u64,
}

impl Swing {
    /// How far the answer goes, up or down.
    #[must_use]
    pub fn most(&self) -> f64 {
        (self.smaller - 1.0).abs().max((self.larger - 1.0).abs())
    }
}

/// The CPU as a figure.
pub const CPU: &str = "CPU time of a request";

/// Figures of the system's drive and of its CPUs, the one that moves the answer most first. At a fixed rate there are none,
/// since the rate stays.
///
/// # Errors
/// When the system cannot be.
pub fn sensitivity(system: &System, load: &Load, seed: u64) -> Result<Vec<Swing>, Error> {
    if matches!(load.pressure, Pressure::Rate(_)) {
        return Ok(vec![]);
    }
    let file = system.drive()?;
    // Answers are compared with each other only, and have the same seed.
    let limits = Limits { known_within: 0.01, requests_max: 300_000, ..Limits::default() };
    let run = |file: &DriveFile, times: f64| {
        let system = System { drive_file: Some(file.clone()), ..system.clone() };
        answer(&system, &Load { cpu_times: load.cpu_times * times, ..*load }, &limits, seed, None)
    };
    let whole = run(&file, 1.0)?;
    let swing = |figure: &str, pair: [&DriveFile; 2], times: [f64; 2]| {
        let [smaller, larger] = [run(pair[0], times[0])?, run(pair[1], times[1])?];
        let to_whole = |iops: f64| iops / whole.iops.max(1e-9);
        Ok(Swing {
            figure: figure.to_owned(),
            origin: file.origins.get(figure).copied(),
            smaller: to_whole(smaller.iops),
            larger: to_whole(larger.iops),
            requests: smaller.requests + larger.requests,
        })
    };
    let times = [1.0 - CHANGED_BY, 1.0 + CHANGED_BY];
    let mut all = vec![swing(CPU, [&file, &file], times)?];
    for (figure, [smaller, larger]) in changed(&file)? {
        all.push(swing(&figure, [&smaller, &larger], [1.0, 1.0])?);
    }
    all.sort_by(|a, b| b.most().total_cmp(&a.most()));
    Ok(all)
}

/// Figures that are sizes and numbers: a drive has these or others, and a fifth between them is no drive.
const FIXED: [&str; 5] = ["unit_bytes", "page_bytes", "dies", "channels", "superblocks"];
/// The tables of a drive file with figures of the drive itself.
const TABLES: [&str; 3] = ["flash", "disk", "per_byte"];

/// The drive with each of its figures smaller and larger.
fn changed(file: &DriveFile) -> Result<Vec<(String, [DriveFile; 2])>, Error> {
    let wrong = |why: String| Error::file(&file.name, why);
    let table: toml::Table = file.to_toml()?.parse().map_err(|e: toml::de::Error| wrong(e.to_string()))?;
    let mut all = vec![];
    for name in TABLES {
        let Some(figures) = table.get(name).and_then(toml::Value::as_table) else { continue };
        for (key, value) in figures.iter().filter(|(key, _)| !FIXED.contains(&key.as_str())) {
            let times = |times: f64| {
                let value = match value {
                    toml::Value::Integer(n) => toml::Value::Integer((*n as f64 * times).round() as i64),
                    toml::Value::Float(n) => toml::Value::Float(n * times),
                    other => other.clone(),
                };
                let mut table = table.clone();
                if let Some(figures) = table.get_mut(name).and_then(toml::Value::as_table_mut) {
                    figures.insert(key.clone(), value);
                }
                DriveFile::parse(&table.to_string()).map_err(wrong)
            };
            all.push((key.clone(), [times(1.0 - CHANGED_BY)?, times(1.0 + CHANGED_BY)?]));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swings(load: &str, in_flight: f64) -> Vec<Swing> {
        let system = System::named("r760-direct").expect("it is there");
        let load =
            Load { pressure: Pressure::InFlightPerDrive(in_flight), ..Load::new(load.parse().expect("a workload")) };
        sensitivity(&system, &load, 1).expect("it can be")
    }

    #[test]
    fn the_figure_that_decides_comes_first_with_its_origin() {
        // A lone read waits for its page; steady random writes for programs, which spare flash makes fewer.
        let lone = &swings("4k-randread", 0.125)[0];
        assert_eq!((lone.figure.as_str(), lone.origin), ("page_read_ns", Some(Origin::Derived)));
        assert!(lone.smaller > 1.1 && lone.larger < 0.9, "{lone:?}");
        let steady = swings("4k-randwrite", 32.0);
        let of = |name: &str| steady.iter().find(|s| s.figure == name).expect("it is changed");
        assert!(of("spare").larger > 1.05 && of("spare").smaller < 0.95, "{steady:?}");
        assert!((of("page_program_ns").smaller - 1.25).abs() < 0.06, "{steady:?}");
        assert!(of("link_read_bytes_per_s").most() < 0.01 && of(CPU).most() < 0.01, "{steady:?}");
        assert_eq!(of("suspend_ns").origin, Some(Origin::Assumed));
        assert!(steady.windows(2).all(|pair| pair[0].most() >= pair[1].most()));
    }
}
