//! `cells.csv`: one line for each cell, for spreadsheets.

use super::cell::{Cell, Part};

const HEADS: [&str; 39] = [
    "id",
    "test",
    "part",
    "percent",
    "source",
    "system",
    "drives",
    "level",
    "controllers",
    "state",
    "access",
    "read_percent",
    "block_bytes",
    "threads",
    "depth",
    "hosts",
    "targets",
    "cached",
    "range_bytes",
    "slice_percent",
    "duplicate_percent",
    "compressible_percent",
    "inferred",
    "asked_iops",
    "iops",
    "achieved",
    "bytes_per_sec",
    "latency_us_mean",
    "latency_us_p50",
    "latency_us_p99",
    "latency_us_p999",
    "latency_us_p9999",
    "latency_us_max",
    "in_flight",
    "seconds",
    "cpu_percent",
    "written_bytes",
    "verdict",
    "reasons",
];

/// All of `cells` as text.
pub fn cells_csv(cells: &[Cell]) -> String {
    let mut out = csv::Writer::from_writer(vec![]);
    // Writing to memory cannot fail.
    let _ = out.write_record(HEADS);
    for cell in cells {
        let _ = out.write_record(line(cell));
    }
    String::from_utf8(out.into_inner().unwrap_or_default()).unwrap_or_default()
}

fn line(cell: &Cell) -> [String; 39] {
    let (load, figures, latency) = (&cell.load, &cell.figures, &cell.figures.latency);
    let (part, percent) = match cell.part {
        Part::Alone => ("alone", String::new()),
        Part::CurveMax => ("curve-max", String::new()),
        Part::Curve { percent } => ("curve", percent.to_string()),
        Part::Matrix => ("matrix", String::new()),
        Part::Round { number } => ("round", number.to_string()),
        Part::Fill => ("fill", String::new()),
        Part::Precondition => ("precondition", String::new()),
        Part::Unallocated => ("unallocated", String::new()),
        Part::Check => ("check", String::new()),
        Part::OneOf { number } => ("one-of", number.to_string()),
        Part::Together => ("together", String::new()),
        Part::States => ("states", String::new()),
    };
    let reasons: Vec<String> =
        cell.gates.iter().filter(|g| g.verdict != super::Verdict::Pass).map(ToString::to_string).collect();
    [
        cell.id.clone(),
        cell.test.clone(),
        part.to_owned(),
        percent,
        cell.source.clone().unwrap_or_default(),
        cell.subject.system.clone(),
        cell.subject.drives.clone(),
        cell.subject.level.clone().unwrap_or_default(),
        cell.subject.controllers.clone().unwrap_or_default(),
        cell.subject.state.to_string(),
        told(load.access),
        told(load.read_percent),
        told(load.block_bytes),
        told(load.threads),
        told(load.depth),
        told(load.hosts),
        told(load.targets),
        told(load.cached),
        told(load.range_bytes),
        told(load.slice_percent),
        told(load.reducible.map(|r| r.duplicate_percent)),
        told(load.reducible.map(|r| r.compressible_percent)),
        load.inferred.join(" "),
        told(cell.asked_iops),
        told(figures.iops),
        told(cell.achieved()),
        told(figures.bytes_per_sec),
        told(latency.mean_us),
        told(latency.p50_us),
        told(latency.p99_us),
        told(latency.p999_us),
        told(latency.p9999_us),
        told(latency.max_us),
        told(cell.in_flight()),
        told(figures.seconds),
        told(figures.cpu_percent),
        told(figures.written_bytes),
        cell.verdict().to_string(),
        reasons.join("; "),
    ]
}

fn told<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |v| v.to_string())
}
