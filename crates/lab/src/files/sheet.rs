//! Tables of results for spreadsheets: heads, and rows of numbers and words.

use crate::findings::Findings;
use crate::model::{Cell, Run, Share, Verdict};
use crate::report::{cpus, iops_per_cpu, iops_per_drive};

/// What a place of a table holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing is known.
    Nothing,
    /// Words.
    Text(String),
    /// A number.
    Number(f64),
}

impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Value {
        value.filter(|v| v.is_finite()).map_or(Value::Nothing, Value::Number)
    }
}

impl From<Option<u32>> for Value {
    fn from(value: Option<u32>) -> Value {
        value.map(f64::from).into()
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        if text.is_empty() { Value::Nothing } else { Value::Text(text.to_owned()) }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// Its name.
    pub name: &'static str,
    /// The heads of its columns; units are in them.
    pub heads: Vec<&'static str>,
    /// Its rows, as long as the heads.
    pub rows: Vec<Vec<Value>>,
}

const CELL_HEADS: [&str; 47] = [
    "run",
    "id",
    "test",
    "part",
    "system",
    "drives",
    "drive_count",
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
    "slice_percent",
    "asked_iops",
    "iops",
    "achieved",
    "bytes_per_sec",
    "iops_per_drive",
    "iops_per_busy_cpu",
    "cpu_percent",
    "latency_us_mean",
    "latency_us_p50",
    "latency_us_p95",
    "latency_us_p99",
    "latency_us_p999",
    "latency_us_p9999",
    "latency_us_p99999",
    "latency_us_max",
    "in_flight",
    "read_iops",
    "read_latency_us_mean",
    "read_latency_us_p99",
    "read_latency_us_p999",
    "write_iops",
    "write_latency_us_mean",
    "write_latency_us_p99",
    "write_latency_us_p999",
    "seconds",
    "verdict",
    "reasons",
    "note",
];

impl Sheet {
    /// Every cell of the results.
    pub fn cells(runs: &[Run]) -> Sheet {
        let rows = runs.iter().flat_map(|run| {
            let cpus = cpus(run);
            run.cells.iter().map(move |cell| row(run, cell, cpus).into())
        });
        Sheet { name: "Cells", heads: CELL_HEADS.to_vec(), rows: rows.collect() }
    }

    /// What the results say.
    pub fn findings(runs: &[Run]) -> Sheet {
        let mut rows = vec![];
        for run in runs {
            let found = Findings::of(run);
            rows.push(vec![run.name.as_str().into(), "title".into(), found.title.as_str().into(), Value::Nothing]);
            for (kind, all) in [("finding", &found.sentences), ("caveat", &found.caveats)] {
                for one in all {
                    let of = [run.name.as_str(), kind, &one.text, &one.rows.join(" ")].map(Value::from);
                    rows.push(of.into());
                }
            }
        }
        Sheet { name: "Findings", heads: vec!["run", "kind", "text", "rows"], rows }
    }

    /// Each cell second by second.
    pub fn seconds(runs: &[Run]) -> Sheet {
        let cells = runs.iter().flat_map(|run| run.cells.iter().map(move |cell| (run, cell)));
        let rows = cells.flat_map(|(run, cell)| {
            cell.series.iter().map(move |s| {
                let (at, iops) = (Value::Number(s.at), Value::Number(s.iops));
                vec![run.name.as_str().into(), cell.id.as_str().into(), at, iops, s.mean_us.into()]
            })
        });
        Sheet { name: "Seconds", heads: vec!["run", "id", "second", "iops", "latency_us_mean"], rows: rows.collect() }
    }

    /// Figures that are no measurements.
    pub fn facts(runs: &[Run]) -> Sheet {
        let facts = runs.iter().flat_map(|run| run.facts.iter().map(move |fact| (run, fact)));
        let rows = facts.map(|(run, f)| {
            [&run.name, &f.id, &f.part, &f.of, &f.metric, &f.value, &f.kind, &f.note].map(|t| t.as_str().into()).into()
        });
        let heads = vec!["run", "id", "part", "of", "metric", "value", "kind", "note"];
        Sheet { name: "Facts", heads, rows: rows.collect() }
    }

    /// As CSV.
    pub fn csv(&self) -> String {
        let mut out = csv::Writer::from_writer(vec![]);
        // Writing to memory cannot fail.
        let _ = out.write_record(&self.heads);
        for row in &self.rows {
            let _ = out.write_record(row.iter().map(|value| match value {
                Value::Nothing => String::new(),
                Value::Text(text) => text.clone(),
                Value::Number(number) => number.to_string(),
            }));
        }
        String::from_utf8(out.into_inner().unwrap_or_default()).unwrap_or_default()
    }
}

fn row(run: &Run, cell: &Cell, cpus: Option<f64>) -> [Value; 47] {
    let (load, figures, latency, subject) = (&cell.load, &cell.figures, &cell.figures.latency, &cell.subject);
    let side = |share: Option<Share>, of: fn(&Share) -> Option<f64>| Value::from(share.as_ref().and_then(of));
    let reasons: Vec<String> =
        cell.gates.iter().filter(|g| g.verdict != Verdict::Pass).map(ToString::to_string).collect();
    let word = |text: Option<String>| Value::from(text.unwrap_or_default().as_str());
    let part = serde_json::to_value(cell.part).ok().and_then(|p| p["kind"].as_str().map(str::to_owned));
    [
        run.name.as_str().into(),
        cell.id.as_str().into(),
        cell.test.as_str().into(),
        word(part),
        subject.system.as_str().into(),
        subject.drives.as_str().into(),
        subject.drive_count.into(),
        word(subject.level.clone()),
        word(subject.controllers.clone()),
        subject.state.to_string().as_str().into(),
        word(load.access.map(|a| a.to_string())),
        load.read_percent.into(),
        load.block_bytes.map(|b| b as f64).into(),
        load.threads.into(),
        load.depth.into(),
        load.hosts.into(),
        load.targets.into(),
        word(load.cached.map(|c| c.to_string())),
        load.slice_percent.into(),
        cell.asked_iops.into(),
        figures.iops.into(),
        cell.achieved().into(),
        figures.bytes_per_sec.into(),
        iops_per_drive(cell).into(),
        iops_per_cpu(cell, cpus).into(),
        figures.cpu_percent.into(),
        latency.mean_us.into(),
        latency.p50_us.into(),
        latency.p95_us.into(),
        latency.p99_us.into(),
        latency.p999_us.into(),
        latency.p9999_us.into(),
        latency.p99999_us.into(),
        latency.max_us.into(),
        cell.in_flight().into(),
        side(figures.read, |s| Some(s.iops)),
        side(figures.read, |s| s.mean_us),
        side(figures.read, |s| s.p99_us),
        side(figures.read, |s| s.p999_us),
        side(figures.write, |s| Some(s.iops)),
        side(figures.write, |s| s.mean_us),
        side(figures.write, |s| s.p99_us),
        side(figures.write, |s| s.p999_us),
        figures.seconds.into(),
        cell.verdict().to_string().as_str().into(),
        reasons.join("; ").as_str().into(),
        cell.note.as_str().into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_what_is_known_and_nothing_else() {
        let runs = [crate::published::run("perc12").unwrap(), crate::published::run("fc-roce").unwrap()];
        let cells = Sheet::cells(&runs);
        assert_eq!(cells.rows.len(), runs[0].cells.len());
        let at = |head: &str| cells.heads.iter().position(|h| *h == head).unwrap();
        let row = cells.rows.iter().find(|r| r[at("id")] == Value::from("perc12-046")).unwrap();
        assert_eq!(row[at("iops")], Value::Number(862_769.0));
        assert_eq!(row[at("iops_per_drive")], Value::Number(862_769.0 / 8.0));
        assert_eq!((&row[at("level")], &row[at("latency_us_p99")]), (&Value::from("RAID5"), &Value::Nothing));
        assert_eq!(Sheet::facts(&runs).rows.len(), runs[0].facts.len() + runs[1].facts.len());
        let csv = cells.csv();
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        assert!(reader.records().all(|r| r.unwrap().len() == CELL_HEADS.len()));
    }
}
