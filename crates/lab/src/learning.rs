//! A drive file from a measured run, and how far off the model of it is under another load.

use std::path::Path;

use predict::{Access, DriveFile, Limits, Load, Measured, Pressure, Workload, alone, answer, learn};
use serde::Serialize;

use crate::error::Error;
use crate::model::{self, Cell, Part, Run, Verdict};

/// One cell beside the model.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// The cell.
    pub cell: String,
    /// Its load.
    pub load: String,
    /// Requests in flight.
    pub in_flight: f64,
    /// Requests a second that were measured.
    pub measured_iops: f64,
    /// Those of the model.
    pub modelled_iops: f64,
    /// modelled / measured - 1.
    pub error: f64,
    /// Within the cell: its fifths differ by so much of their mean. Absent: it has no seconds.
    pub spread_within: Option<f64>,
    /// From run to run: the same load in other cells and results differs by so much of the mean. Absent: measured once.
    pub spread_runs: Option<f64>,
}

/// What can be learnt from a run: its single loads on one target, without those that failed.
#[must_use]
pub fn measured(run: &Run) -> Vec<(String, Measured)> {
    run.cells.iter().filter_map(|cell| Some((cell.id.clone(), of_cell(cell)?))).collect()
}

fn of_cell(cell: &Cell) -> Option<Measured> {
    let single = matches!(cell.part, Part::Alone | Part::Matrix | Part::CurveMax | Part::Round { .. });
    let load = &cell.load;
    if !single || cell.verdict() >= Verdict::Model || load.targets.is_some_and(|t| t > 1) || load.cached == Some(true) {
        return None;
    }
    let access = match load.access? {
        model::Access::Random => Access::Random,
        model::Access::Sequential => Access::Sequential,
    };
    let block_bytes = u32::try_from(load.block_bytes?).ok()?;
    let workload = Workload { block_bytes, access, read_percent: load.read_percent? };
    let in_flight = load.outstanding()?;
    let iops = cell.figures.iops.or_else(|| Some(cell.figures.bytes_per_sec? / f64::from(block_bytes)))?;
    (iops > 0.0).then_some(Measured { workload, in_flight, iops, mean_us: cell.figures.latency.mean_us })
}

/// A drive file of a run on one drive.
///
/// # Errors
/// When the run has no small random read.
pub fn learn_drive(name: &str, run: &Run) -> Result<DriveFile, Error> {
    if !run.cells.is_empty() && run.cells.iter().all(|c| c.verdict() == Verdict::Model) {
        return Err(Error::usage(
            run.name.clone(),
            "its cells are of a model: a drive is learnt from what was measured",
        ));
    }
    let measured: Vec<Measured> = measured(run).into_iter().map(|(_, m)| m).collect();
    learn(name, 0, &measured).map_err(|e| Error::usage(run.name.clone(), e))
}

/// Writes a drive file that says which result it was learnt from; a file that is there stays whole until then.
///
/// # Errors
/// When it cannot be written.
pub fn write_drive(drive: &DriveFile, result: &Path, out: &Path) -> Result<(), Error> {
    let toml = drive.to_toml().map_err(|e| Error::format(out.display().to_string(), e))?;
    let from = format!("# Learnt from {} by `ashlar lab predict --learn`.\n\n{toml}", result.display());
    model::replace(out, from.as_bytes())
}

/// The cells of `runs` beside what the model says of `drive`.
///
/// # Errors
/// When no cell can be modelled.
pub fn check(drive: &DriveFile, runs: &[Run], seed: u64) -> Result<Vec<Checked>, Error> {
    let all: Vec<(String, Measured, Option<f64>)> = runs
        .iter()
        .flat_map(|run| {
            measured(run).into_iter().map(|(id, m)| {
                let within = run.cells.iter().find(|c| c.id == id).and_then(spread_within);
                (id, m, within)
            })
        })
        .collect();
    if all.is_empty() {
        return Err(Error::usage("--check", "no cell of it is a single load with its threads and depth"));
    }
    let mut checked = vec![];
    for (cell, m, spread_within) in &all {
        let load = Load { pressure: Pressure::InFlightPerDrive(m.in_flight), ..Load::new(m.workload) };
        let modelled =
            answer(&alone(drive), &load, &Limits::default(), seed, None).map_err(|e| Error::format(cell.clone(), e))?;
        let alike: Vec<f64> = all
            .iter()
            .filter(|(_, other, _)| other.workload == m.workload && other.in_flight == m.in_flight)
            .map(|(_, other, _)| other.iops)
            .collect();
        checked.push(Checked {
            cell: cell.clone(),
            load: m.workload.to_string(),
            in_flight: m.in_flight,
            measured_iops: m.iops,
            modelled_iops: modelled.iops,
            error: modelled.iops / m.iops - 1.0,
            spread_within: *spread_within,
            spread_runs: if alike.len() > 1 { spread(&alike) } else { None },
        });
    }
    Ok(checked)
}

/// (largest - smallest) / mean.
fn spread(values: &[f64]) -> Option<f64> {
    let (low, high) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean > 0.0).then_some((high - low) / mean)
}

fn spread_within(cell: &Cell) -> Option<f64> {
    let fifth = cell.series.len() / 5;
    if fifth == 0 {
        return None;
    }
    let means = cell.series.chunks(fifth).take(5).map(|c| c.iter().map(|s| s.iops).sum::<f64>() / c.len() as f64);
    spread(&means.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Origin;

    fn run(cells: &[(&str, u32, f64, f64)]) -> Run {
        let mut run = Run::new("smoke", "", Origin::Measured);
        for (i, (load, in_flight, iops, us)) in cells.iter().enumerate() {
            let workload: Workload = load.parse().expect("a workload");
            let access = match workload.access {
                Access::Random => model::Access::Random,
                Access::Sequential => model::Access::Sequential,
            };
            let json = serde_json::json!({
                "id": format!("c{i}"), "test": "t", "part": { "kind": "alone" }, "source": null, "subject": {},
                "load": {}, "asked_iops": null, "asked_seconds": null, "figures": {}, "bins": [], "series": [],
                "gates": [], "command": null, "note": "",
            });
            let mut cell: Cell = serde_json::from_value(json).expect("a cell");
            cell.load.access = Some(access);
            cell.load.block_bytes = Some(u64::from(workload.block_bytes));
            cell.load.read_percent = Some(workload.read_percent);
            (cell.load.threads, cell.load.depth) = (Some(1), Some(*in_flight));
            (cell.figures.iops, cell.figures.latency.mean_us) = (Some(*iops), Some(*us));
            run.cells.push(cell);
        }
        run
    }

    #[test]
    fn a_drive_that_was_learnt_is_checked_under_another_load() {
        // A device that is held to 3,000 requests and 100 MB a second, with 150 us of its own.
        let first = run(&[
            ("4k-randread", 1, 2900.0, 340.0),
            ("4k-randread", 32, 3000.0, 10_600.0),
            ("128k-read", 8, 763.0, 10_500.0),
            ("4k-randwrite", 32, 3000.0, 10_600.0),
        ]);
        let drive = learn_drive("held", &first).expect("it has reads");
        let second = run(&[("4k-randread", 8, 3010.0, 2660.0), ("64k-randread", 16, 1526.0, 10_500.0)]);
        let checked = check(&drive, &[first, second], 1).expect("they are loads");
        for c in &checked {
            assert!(c.error.abs() < 0.25, "{} x {}: {:+.2}", c.load, c.in_flight, c.error);
        }
        assert_eq!(checked.len(), 6);
    }

    #[test]
    fn nothing_is_learnt_from_a_model() {
        let mut first = run(&[("4k-randread", 1, 2900.0, 340.0)]);
        assert!(learn_drive("held", &first).is_ok());
        first.cells.iter_mut().for_each(|c| c.gates.push(model::Gate::model("simulated")));
        assert!(learn_drive("held", &first).expect_err("it is a model's").to_string().contains("measured"));
    }

    /// A second name of the file that was there has all of the old one: it was not written into.
    #[test]
    fn a_drive_file_takes_the_place_of_another_as_a_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let (out, other) = (dir.path().join("mine.toml"), dir.path().join("other"));
        std::fs::write(&out, "old").expect("it can be written");
        std::fs::hard_link(&out, &other).expect("it can be linked");
        let drive = learn_drive("mine", &run(&[("4k-randread", 1, 2900.0, 340.0)])).expect("it has a read");
        write_drive(&drive, Path::new("lab-smoke"), &out).expect("it can be written");
        let text = std::fs::read_to_string(&out).expect("it is there");
        assert!(text.starts_with("# Learnt from lab-smoke by"), "{text}");
        assert_eq!(DriveFile::parse(&text), Ok(drive));
        assert_eq!(std::fs::read_to_string(&other).expect("it is there"), "old");
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 2, "nothing else is left");
    }
}
