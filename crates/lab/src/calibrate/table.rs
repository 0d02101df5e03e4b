//! What the model says of each case, as a file; and what its errors say of a prediction.

use std::collections::BTreeMap;

use predict::{Access, Engine, Limits, Load, System, answer};
use serde::{Deserialize, Serialize};

use super::cases::{Role, cases};
use crate::error::Error;

const TABLE: &str = include_str!("../../data/model.csv");
const FIRST_SIGHT: &str = include_str!("../../data/model-first-sight.csv");

/// The seed of all comparisons.
pub const SEED: u64 = 1;

/// One line of `model.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Row of `published.csv`.
    pub id: String,
    /// The system and its level.
    pub system: String,
    /// The load.
    pub load: String,
    /// How the drives were.
    pub condition: String,
    /// "fitted", "held out: two cards", "not scored: ...".
    pub role: String,
    /// What errors are gathered by.
    pub class: String,
    /// IOPS or GB/s.
    pub unit: String,
    /// As printed.
    pub published: f64,
    /// The model's.
    pub modelled: f64,
    /// Requests simulated.
    pub requests: u64,
}

impl Line {
    /// modelled / published - 1.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.modelled / self.published - 1.0
    }

    /// Whether it counts as held out.
    #[must_use]
    pub fn held_out(&self) -> bool {
        self.role.starts_with("held out")
    }

    /// Whether it is the figure of an array or of many drives; all are.
    #[must_use]
    pub fn fitted(&self) -> bool {
        self.role == "fitted"
    }
}

/// What errors are gathered by: who stands between, and the kind of load.
#[must_use]
pub fn class_of(system: &System, load: &Load) -> String {
    let who = match system.engine {
        Engine::Direct => "direct",
        Engine::Card => "card",
        Engine::InPlace | Engine::Ashlar => "software",
    };
    let what = match (load.workload.access, load.workload.read_percent) {
        (Access::Random, 100.0) => "random read",
        (Access::Random, 0.0) => "random write",
        (Access::Random, _) => "random mix",
        (Access::Sequential, 0.0) => "write in order",
        (Access::Sequential, _) => "read in order",
    };
    format!("{who}, {what}")
}

/// Runs all cases.
///
/// # Errors
/// None in practice: a test runs them all.
pub fn compare() -> Result<Vec<Line>, Error> {
    let mut lines = vec![];
    for case in cases()?.0 {
        let answer = answer(&case.system, &case.load, &Limits::default(), SEED, None)
            .map_err(|e| Error::format(&case.row.id, e))?;
        let (unit, factor) = match case.row.unit.as_str() {
            "IOPS" => ("IOPS", None),
            "MB/s" => ("GB/s", Some(1e-3)),
            _ => ("GB/s", Some(1.0)),
        };
        let number = case.row.number().unwrap_or(f64::NAN);
        lines.push(Line {
            id: case.row.id.clone(),
            system: case.system.title(),
            load: case.load.workload.to_string(),
            condition: match case.row.state.as_str() {
                "rebuilding" => format!("rebuilding, {}", case.condition),
                _ => case.condition.to_owned(),
            },
            role: match case.role {
                Role::Fitted => "fitted".to_owned(),
                Role::HeldOut(by) => format!("held out: {by}"),
                Role::NotScored(why) => format!("not scored: {why}"),
            },
            class: class_of(&case.system, &case.load),
            unit: unit.to_owned(),
            published: number * factor.unwrap_or(1.0),
            modelled: three(if factor.is_some() { answer.bytes_per_s / 1e9 } else { answer.iops }),
            requests: answer.requests,
        });
    }
    Ok(lines)
}

/// Five digits: what a file keeps.
fn three(value: f64) -> f64 {
    let digits = 10f64.powf(4.0 - value.abs().max(1e-12).log10().floor());
    (value * digits).round() / digits
}

/// What `model.csv` holds.
///
/// # Errors
/// None, as a test reads it.
pub fn read() -> Result<Vec<Line>, Error> {
    let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
    reader.deserialize().map(|line| line.map_err(|e| Error::format("model.csv", e))).collect()
}

/// Lines as the text of `model.csv`.
#[must_use]
pub fn write(lines: &[Line]) -> String {
    let mut out = csv::Writer::from_writer(vec![]);
    // Writing to memory cannot fail.
    lines.iter().for_each(|line| drop(out.serialize(line)));
    String::from_utf8(out.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// What the model said when it was first compared, by row.
///
/// # Errors
/// None, as a test reads it.
pub fn first_sight() -> Result<BTreeMap<String, f64>, Error> {
    let mut reader = csv::Reader::from_reader(FIRST_SIGHT.as_bytes());
    let lines: Result<Vec<Line>, _> = reader.deserialize().collect();
    let lines = lines.map_err(|e| Error::format("model-first-sight.csv", e))?;
    Ok(lines.into_iter().map(|line| (line.id.clone(), line.error())).collect())
}

/// Errors of many rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Rows.
    pub rows: usize,
    /// Median of the errors without their signs.
    pub median: f64,
    /// 90 of 100 are no larger.
    pub p90: f64,
    /// Share of them within 25 %.
    pub within_quarter: f64,
}

/// Of errors with signs. `None`: there are none.
#[must_use]
pub fn summary(errors: impl IntoIterator<Item = f64>) -> Option<Summary> {
    let mut all: Vec<f64> = errors.into_iter().map(f64::abs).collect();
    all.sort_by(f64::total_cmp);
    let at = |q: f64| all.get(((all.len() as f64 - 1.0) * q).round() as usize).copied();
    let within = all.iter().filter(|e| **e <= 0.25).count();
    Some(Summary { rows: all.len(), median: at(0.5)?, p90: at(0.9)?, within_quarter: within as f64 / all.len() as f64 })
}

/// Fewer rows of a class than this say nothing by themselves.
const CLASS_MIN: usize = 3;

/// What published figures were to the model's, for held-out rows of a class: the smallest, and the largest of 90 % of
/// them; and how many rows that rests on. A class with too few rows takes its kind of load from all systems.
///
/// # Errors
/// None, as a test reads the table.
pub fn ratios(class: &str) -> Result<(f64, f64, usize), Error> {
    let all: Vec<Line> = read()?.into_iter().filter(Line::held_out).collect();
    let kind = class.split_once(", ").map_or(class, |(_, kind)| kind);
    let own: Vec<&Line> = all.iter().filter(|l| l.class == class).collect();
    let alike: Vec<&Line> = all.iter().filter(|l| l.class.ends_with(kind)).collect();
    let (lines, rests_on) = if own.len() >= CLASS_MIN { (&own, own.len()) } else { (&alike, 0) };
    let mut found: Vec<f64> = lines.iter().map(|l| 1.0 / (1.0 + l.error())).collect();
    found.sort_by(f64::total_cmp);
    let at = |q: f64| found[((found.len() - 1) as f64 * q).round() as usize];
    if found.is_empty() {
        return Ok((0.5, 1.5, 0));
    }
    Ok((at(0.05).min(0.95), at(0.95).max(1.05), rests_on))
}
