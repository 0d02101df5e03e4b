//! A run's directory: its order, and one file for each step that was measured.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Said;
use crate::array::Control;
use crate::error::Error;
use crate::hosts::Host;
use crate::model::{Cell, Pair, SCHEMA, Timeline, replace};
use crate::plan::Step;
use crate::target::Target;

/// What a step gave: one cell, or one for each state of an array with the way through them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// Measurements.
    pub cells: Vec<Cell>,
    /// How a rebuild went.
    pub timeline: Option<Timeline>,
}

/// What a run is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Suite.
    pub suite: String,
    /// What it tests.
    pub about: String,
    /// Whether its numbers are meant for others.
    pub for_publication: bool,
    /// When it began.
    pub begun: String,
    /// What the user says of it.
    pub said: Said,
    /// On what.
    pub target: Target,
    /// Cells to be.
    pub steps: Vec<Step>,
    /// What is not run, and why.
    pub not_run: Vec<Pair>,
    /// How its array is controlled.
    pub control: Option<Control>,
    /// Hosts that make the loads; none: the machine of the run does.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Targets beside the first.
    #[serde(default)]
    pub beside: Vec<Target>,
}

impl Order {
    /// All targets.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        std::iter::once(&self.target).chain(&self.beside)
    }
}

/// The order as it lies in its file.
#[derive(Serialize, Deserialize)]
struct Stored {
    schema: u32,
    #[serde(flatten)]
    order: Order,
}

/// A run's directory.
#[derive(Clone, Debug)]
pub struct Journal {
    dir: PathBuf,
    order: Order,
}

impl Journal {
    /// Makes it.
    ///
    /// # Errors
    /// When a run is there already, or it cannot be written.
    pub fn create(dir: PathBuf, order: Order) -> Result<Journal, Error> {
        let path = dir.join("plan.json");
        if path.exists() {
            return Err(Error::usage(
                dir.display().to_string(),
                "it already contains a run: use --resume, or name another directory",
            ));
        }
        // Files of somebody's beside ours would be taken for ours.
        if fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::usage(dir.display().to_string(), "it is not empty: name another directory"));
        }
        fs::create_dir_all(dir.join("cells")).map_err(|e| Error::file(&dir, e))?;
        let stored = Stored { schema: SCHEMA, order };
        let text = serde_json::to_string_pretty(&stored).map_err(|e| Error::format("plan.json", e))?;
        replace(&path, text.as_bytes())?;
        Ok(Journal { dir, order: stored.order })
    }

    /// Opens one that was begun.
    ///
    /// # Errors
    /// When there is none, or it is of another schema.
    pub fn open(dir: PathBuf) -> Result<Journal, Error> {
        let path = dir.join("plan.json");
        let text = fs::read_to_string(&path).map_err(|e| Error::file(&path, e))?;
        let stored: Stored = serde_json::from_str(&text).map_err(|e| Error::format(path.display().to_string(), e))?;
        if stored.schema != SCHEMA {
            let why = format!("its schema is {}, this program reads {SCHEMA}", stored.schema);
            return Err(Error::format(path.display().to_string(), why));
        }
        Ok(Journal { dir, order: stored.order })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is to be done.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Saves what a step gave.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, step: &str, taken: &Taken) -> Result<(), Error> {
        let text = serde_json::to_string(taken).map_err(|e| Error::format(step, e))?;
        replace(&self.path(step), text.as_bytes())
    }

    /// What was measured, in the order of the steps.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn taken(&self) -> Result<Vec<(String, Taken)>, Error> {
        let there = self.order.steps.iter().filter(|s| self.path(&s.id).exists());
        there
            .map(|step| {
                let path = self.path(&step.id);
                let text = fs::read_to_string(&path).map_err(|e| Error::file(&path, e))?;
                let taken = serde_json::from_str(&text).map_err(|e| Error::format(path.display().to_string(), e))?;
                Ok((step.id.clone(), taken))
            })
            .collect()
    }

    fn path(&self, step: &str) -> PathBuf {
        self.dir.join("cells").join(format!("{step}.json"))
    }
}
