//! Acknowledgements of alarms: who, when, and a note, kept over restarts in `acknowledged.toml` beside the list of
//! arrays.
//!
//! Invariants: an acknowledgement ends with its alarm, and does not hold for one that has become worse; of an array that is not served
//! it waits.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use api::{Acknowledgement, AlarmView, Arrays, Kind, Problem, Severity};
use serde::{Deserialize, Serialize};

use crate::registry::replace;

const HEADING: &str = "# Alarms that were acknowledged. Written by ashlar.\n";

/// One alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    severity: Severity,
    #[serde(flatten)]
    by: Acknowledgement,
}

type Lines = BTreeMap<String, Line>;

/// All of them. Clones are the same.
#[derive(Clone, Default)]
pub struct Acknowledged {
    path: PathBuf,
    lines: Arc<Mutex<Lines>>,
    /// Who writes the file: readers do not wait for it.
    writing: Arc<Mutex<()>>,
}

impl Acknowledged {
    /// Those in the directory `dir`. A file that cannot be read is said, and is as none.
    #[must_use]
    pub fn read(dir: &Path) -> Acknowledged {
        let path = dir.join("acknowledged.toml");
        let lines = match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| e.message().to_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Lines::new()),
            Err(e) => Err(e.to_string()),
        };
        let lines = lines.unwrap_or_else(|e| {
            tracing::warn!("{}: {e}: alarms count as not acknowledged", path.display());
            Lines::new()
        });
        Acknowledged { path, lines: Arc::new(Mutex::new(lines)), writing: Arc::default() }
    }

    /// Acknowledges the alarm of this id, or takes that back; `raised` are those that are raised now.
    ///
    /// # Errors
    /// When there is no such alarm, or it cannot be written down.
    pub fn set(&self, raised: &Arrays, id: &str, by: Option<Acknowledgement>) -> Result<(), Problem> {
        let Some(severity) = all(raised).find(|(known, _)| known == id).map(|(_, alarm)| alarm.severity) else {
            let (what, todo) = (format!("alarm {id}"), "`ashlar alarms` lists them");
            return Err(Problem::new(Kind::NotFound, "alarm_unknown", what, "it is not raised now", todo));
        };
        self.change(|lines| {
            match by {
                Some(by) => lines.insert(id.to_owned(), Line { severity, by }),
                None => lines.remove(id),
            };
        })
        .map_err(|e| {
            let why = format!("{}: {e}", self.path.display());
            Problem::failed(format!("alarm {id}"), why, "make room in the state directory, and acknowledge it again")
        })
    }

    /// Says in `raised` what was acknowledged; what has ended since, which is to be forgotten.
    #[must_use]
    pub fn fill_in(&self, raised: &mut Arrays) -> Vec<(String, Line)> {
        let lines = self.lines();
        if lines.is_empty() {
            return vec![];
        }
        let holds = |id: &str, alarm: &AlarmView| lines.get(id).filter(|line| line.severity >= alarm.severity);
        let gone: Vec<(String, Line)> =
            lines.iter().filter(|(id, _)| is_over(raised, id, &holds)).map(|(id, l)| (id.clone(), l.clone())).collect();
        let server = raised.alarms.iter_mut().map(|alarm| (None, alarm));
        let arrays = raised.arrays.iter_mut();
        let of_arrays = arrays.flat_map(|a| a.alarms.iter_mut().map(|alarm| (Some(a.name.as_str()), alarm)));
        for (array, alarm) in server.chain(of_arrays) {
            alarm.acknowledged = holds(&alarm.id(array), alarm).map(|line| Box::new(line.by.clone()));
        }
        gone
    }

    /// Forgets what has ended, unless it was said anew meanwhile. Writes a file: not on a thread that others wait for. One that cannot
    /// be written is tried again.
    pub fn forget(&self, gone: &[(String, Line)]) {
        let forget = |lines: &mut Lines| {
            for (id, line) in gone {
                if lines.get(id) == Some(line) {
                    lines.remove(id);
                }
            }
        };
        if let Err(e) = self.change(forget) {
            tracing::debug!("{}: {e}", self.path.display());
        }
    }

    fn change(&self, change: impl FnOnce(&mut Lines)) -> io::Result<()> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = self.lines();
        change(&mut changed);
        let text = toml::to_string(&changed).map_err(io::Error::other)?;
        replace(&self.path, &format!("{HEADING}{text}"))?;
        *self.lines.lock().unwrap_or_else(PoisonError::into_inner) = changed;
        Ok(())
    }

    fn lines(&self) -> Lines {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All alarms that are raised, with their ids.
fn all(raised: &Arrays) -> impl Iterator<Item = (String, &AlarmView)> {
    let server = raised.alarms.iter().map(|alarm| (alarm.id(None), alarm));
    let arrays = raised.arrays.iter();
    server.chain(arrays.flat_map(|a| a.alarms.iter().map(|alarm| (alarm.id(Some(&a.name)), alarm))))
}

/// Whether an acknowledgement has ended: its array is here, or it is the server's, and the alarm is not there, or worse.
fn is_over<'a>(raised: &Arrays, id: &str, holds: &impl Fn(&str, &AlarmView) -> Option<&'a Line>) -> bool {
    let array = id.split(':').next().unwrap_or_default();
    let is_here = array.is_empty() || raised.arrays.iter().any(|a| a.name == array);
    is_here && !all(raised).any(|(known, alarm)| known == id && holds(id, alarm).is_some())
}
