//! Tables of results for spreadsheets: heads, and rows of numbers and words.

use super::columns::{self, Place};
use crate::findings::Findings;
use crate::model::Run;
use crate::report::cpus;

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

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Some(value).into()
    }
}

impl From<Option<u32>> for Value {
    fn from(value: Option<u32>) -> Value {
        value.map(f64::from).into()
    }
}

impl From<Option<u64>> for Value {
    fn from(value: Option<u64>) -> Value {
        value.map(|v| v as f64).into()
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        if text.is_empty() { Value::Nothing } else { Value::Text(text.to_owned()) }
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        text.as_str().into()
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

impl Sheet {
    /// Every cell of the results.
    pub fn cells(runs: &[Run]) -> Sheet {
        let rows = runs.iter().flat_map(|run| {
            let cpus = cpus(run);
            run.cells.iter().map(move |cell| columns::row(&Place { run, cell, cpus }))
        });
        Sheet { name: "Cells", heads: columns::heads(), rows: rows.collect() }
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
        assert!(reader.records().all(|r| r.unwrap().len() == cells.heads.len()));
    }
}
