//! The columns of `cells.csv` and of the sheet of cells: one line for each, with its head and what it holds.

use super::sheet::Value;
use crate::model::{Cell, Part, Run, Share, Verdict};
use crate::report::{iops_per_cpu, iops_per_drive};

/// A cell, and where it stands.
pub struct Place<'a> {
    /// Its run.
    pub run: &'a Run,
    /// It.
    pub cell: &'a Cell,
    /// CPUs of the machine that measured.
    pub cpus: Option<f64>,
}

type Column = (&'static str, fn(&Place<'_>) -> Value);

/// In their order. Units are in the heads.
const COLUMNS: &[Column] = &[
    ("run", |p| p.run.name.as_str().into()),
    ("id", |p| p.cell.id.as_str().into()),
    ("test", |p| p.cell.test.as_str().into()),
    ("part", |p| part(p.cell).into()),
    ("percent", |p| match p.cell.part {
        Part::Curve { percent } => Some(percent).into(),
        _ => Value::Nothing,
    }),
    ("number", |p| match p.cell.part {
        Part::Round { number } | Part::OneOf { number } => Some(number).into(),
        _ => Value::Nothing,
    }),
    ("source", |p| word(p.cell.source.clone())),
    ("system", |p| p.cell.subject.system.as_str().into()),
    ("drives", |p| p.cell.subject.drives.as_str().into()),
    ("drive_count", |p| p.cell.subject.drive_count.into()),
    ("level", |p| word(p.cell.subject.level.clone())),
    ("controllers", |p| word(p.cell.subject.controllers.clone())),
    ("state", |p| p.cell.subject.state.to_string().into()),
    ("access", |p| word(p.cell.load.access)),
    ("read_percent", |p| p.cell.load.read_percent.into()),
    ("block_bytes", |p| p.cell.load.block_bytes.into()),
    ("threads", |p| p.cell.load.threads.into()),
    ("depth", |p| p.cell.load.depth.into()),
    ("hosts", |p| p.cell.load.hosts.into()),
    ("targets", |p| p.cell.load.targets.into()),
    ("cached", |p| word(p.cell.load.cached)),
    ("range_bytes", |p| p.cell.load.range_bytes.into()),
    ("slice_percent", |p| p.cell.load.slice_percent.into()),
    ("duplicate_percent", |p| p.cell.load.reducible.map(|r| r.duplicate_percent).into()),
    ("compressible_percent", |p| p.cell.load.reducible.map(|r| r.compressible_percent).into()),
    ("inferred", |p| p.cell.load.inferred.join(" ").into()),
    ("asked_iops", |p| p.cell.asked_iops.into()),
    ("iops", |p| p.cell.figures.iops.into()),
    ("achieved", |p| p.cell.achieved().into()),
    ("bytes_per_sec", |p| p.cell.figures.bytes_per_sec.into()),
    ("iops_per_drive", |p| iops_per_drive(p.cell).into()),
    ("iops_per_busy_cpu", |p| iops_per_cpu(p.cell, p.cpus).into()),
    ("cpu_percent", |p| p.cell.figures.cpu_percent.into()),
    ("disk_busy_percent", |p| p.cell.figures.disk_busy_percent.into()),
    ("latency_us_mean", |p| p.cell.figures.latency.mean_us.into()),
    ("latency_us_p50", |p| p.cell.figures.latency.p50_us.into()),
    ("latency_us_p95", |p| p.cell.figures.latency.p95_us.into()),
    ("latency_us_p99", |p| p.cell.figures.latency.p99_us.into()),
    ("latency_us_p999", |p| p.cell.figures.latency.p999_us.into()),
    ("latency_us_p9999", |p| p.cell.figures.latency.p9999_us.into()),
    ("latency_us_p99999", |p| p.cell.figures.latency.p99999_us.into()),
    ("latency_us_max", |p| p.cell.figures.latency.max_us.into()),
    ("in_flight", |p| p.cell.in_flight().into()),
    ("read_iops", |p| side(p.cell.figures.read, |s| Some(s.iops))),
    ("read_latency_us_mean", |p| side(p.cell.figures.read, |s| s.mean_us)),
    ("read_latency_us_p99", |p| side(p.cell.figures.read, |s| s.p99_us)),
    ("read_latency_us_p999", |p| side(p.cell.figures.read, |s| s.p999_us)),
    ("write_iops", |p| side(p.cell.figures.write, |s| Some(s.iops))),
    ("write_latency_us_mean", |p| side(p.cell.figures.write, |s| s.mean_us)),
    ("write_latency_us_p99", |p| side(p.cell.figures.write, |s| s.p99_us)),
    ("write_latency_us_p999", |p| side(p.cell.figures.write, |s| s.p999_us)),
    ("written_bytes", |p| p.cell.figures.written_bytes.into()),
    ("seconds", |p| p.cell.figures.seconds.into()),
    ("verdict", |p| p.cell.verdict().to_string().into()),
    ("reasons", |p| reasons(p.cell).into()),
    ("note", |p| p.cell.note.as_str().into()),
];

/// The heads.
pub fn heads() -> Vec<&'static str> {
    COLUMNS.iter().map(|(head, _)| *head).collect()
}

/// The values of a cell, under the heads.
pub fn row(place: &Place<'_>) -> Vec<Value> {
    COLUMNS.iter().map(|(_, value)| value(place)).collect()
}

fn word<T: ToString>(text: Option<T>) -> Value {
    text.map_or(Value::Nothing, |t| t.to_string().into())
}

fn side(share: Option<Share>, of: fn(&Share) -> Option<f64>) -> Value {
    share.as_ref().and_then(of).into()
}

fn part(cell: &Cell) -> String {
    let part = serde_json::to_value(cell.part).ok();
    part.and_then(|p| p["kind"].as_str().map(str::to_owned)).unwrap_or_default()
}

fn reasons(cell: &Cell) -> String {
    let open = cell.gates.iter().filter(|g| g.verdict != Verdict::Pass);
    open.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
