//! `result.json`: everything about one run, with the version of its schema.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cell::Cell;
use crate::error::Error;
use crate::spent::Spent;

/// The schema that is written; others are refused.
pub const SCHEMA: u32 = 1;

/// Where a result comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Origin {
    /// This lab measured it.
    Measured,
    /// A review's article.
    Published,
    /// Another tool's files.
    Imported {
        /// Which tool.
        format: String,
    },
}

/// A name and a value, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// What.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Pair {
    /// A pair.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Pair {
        Pair { name: name.into(), value: value.into() }
    }
}

/// A published figure that is no measurement under a load: a limit, a specification, a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Row of the data file.
    pub id: String,
    /// The table it belongs to.
    pub part: String,
    /// Of what.
    pub of: String,
    /// What.
    pub metric: String,
    /// Its value and unit.
    pub value: String,
    /// "claim", "spec", "link-limit", ...
    pub kind: String,
    /// What else is to be known.
    pub note: String,
}

/// The rounds of one test on the way to a steady state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rounds {
    /// The test.
    pub test: String,
    /// What is tracked.
    pub tracked: String,
    /// Its value in each round.
    pub values: Vec<f64>,
    /// Whether the last five were steady.
    pub steady: bool,
}

/// A moment of a rebuild.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds from the beginning.
    pub at: f64,
    /// Requests a second.
    pub iops: Option<f64>,
    /// Latency, 50 %.
    #[serde(default)]
    pub p50_us: Option<f64>,
    /// Latency, 95 %.
    #[serde(default)]
    pub p95_us: Option<f64>,
    /// Latency, 99 %.
    pub p99_us: Option<f64>,
    /// Latency, 99.9 %.
    #[serde(default)]
    pub p999_us: Option<f64>,
    /// Hundredths rebuilt.
    pub rebuilt_percent: Option<f64>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds from the beginning.
    pub at: f64,
    /// What.
    pub what: String,
}

/// Load and progress while an array is rebuilt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Of what.
    pub name: String,
    /// Requests a second of the whole array, before.
    pub optimal_iops: Option<f64>,
    /// As it went.
    pub moments: Vec<Moment>,
    /// What happened.
    pub events: Vec<Event>,
}

/// A page of the disclosure: a job file, a version, a file as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Its title.
    pub title: String,
    /// Its text.
    pub text: String,
}

/// A result: one run of a suite, one review, or one import.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What wrote it.
    pub tool: String,
    /// Its name.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether its suite is meant for publication.
    pub for_publication: bool,
    /// When it began, UTC.
    pub begun: Option<String>,
    /// When its last cell ended; absent when it was not finished.
    pub ended: Option<String>,
    /// The machine and the target.
    pub system: Vec<Pair>,
    /// Measurements.
    pub cells: Vec<Cell>,
    /// On the way to steady states.
    pub rounds: Vec<Rounds>,
    /// Rebuilds.
    pub timelines: Vec<Timeline>,
    /// Figures that are no measurements.
    pub facts: Vec<Fact>,
    /// Tests of the suite that were not run, and why.
    pub not_run: Vec<Pair>,
    /// What is needed to repeat it.
    pub disclosure: Vec<Page>,
    /// Of modelled drives and systems: what simulating took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
}

impl Run {
    /// An empty one.
    pub fn new(name: impl Into<String>, about: impl Into<String>, origin: Origin) -> Run {
        Run {
            schema: SCHEMA,
            tool: concat!("ashlar lab ", env!("CARGO_PKG_VERSION")).to_owned(),
            name: name.into(),
            about: about.into(),
            origin,
            for_publication: false,
            begun: None,
            ended: None,
            system: vec![],
            cells: vec![],
            rounds: vec![],
            timelines: vec![],
            facts: vec![],
            not_run: vec![],
            disclosure: vec![],
            spent: None,
        }
    }

    /// Reads a `result.json`, or the one in a directory.
    ///
    /// # Errors
    /// When it cannot be read, or is of another schema.
    pub fn read(path: &Path) -> Result<Run, Error> {
        let path = if path.is_dir() { path.join("result.json") } else { path.to_owned() };
        let text = fs::read_to_string(&path).map_err(|e| Error::file(&path, e))?;
        let wrong = |why: String| Error::format(path.display().to_string(), why);
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(other) => return Err(wrong(format!("its schema is {other}, this program reads {SCHEMA}"))),
            None => {
                return Err(wrong(
                    "it has no \"schema\", so it is not a result of the lab (use `ashlar lab import`)".to_owned(),
                ));
            }
        }
        serde_json::from_value(value).map_err(|e| wrong(e.to_string()))
    }

    /// Writes `result.json` into a directory; whoever reads meanwhile sees the old or the new.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::format("result.json", e))?;
        replace(&dir.join("result.json"), text.as_bytes())
    }
}

/// Writes a file that is called `path`.partial until it is complete. What is no file, such as /dev/stdout, is written as it is.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, bytes).map_err(|e| Error::file(path, e));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    fs::write(&partial, bytes).map_err(|e| Error::file(&partial, e))?;
    fs::rename(&partial, path).map_err(|e| Error::file(path, e))
}
