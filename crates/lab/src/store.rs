//! A store of results: a directory with one directory for each, an index page, and the history of what was measured
//! again.
//!
//! Invariants: a result that is kept is never changed or replaced; the index is made of the results alone, so it can be
//! deleted. It does not fetch, upload, or delete anything.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use crate::compare::{Real, compare};
use crate::error::Error;
use crate::files;
use crate::findings::{About, Findings, Unit, numbers};
use crate::model::{Run, Verdict, replace};
use crate::report::{Extra, history_page, page};

/// The store.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

/// A result that is kept.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its directory, inside the store.
    pub dir: String,
    /// The result.
    pub run: Run,
    /// What it found, as a title.
    pub title: String,
}

/// An entry for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its directory, inside the store.
    pub dir: String,
    /// Its suite or review.
    pub name: String,
    /// When it began, UTC.
    pub begun: Option<String>,
    /// What it found.
    pub title: String,
    /// Cells by verdict.
    pub pass: usize,
    /// Cells by verdict.
    pub warn: usize,
    /// Cells by verdict.
    pub fail: usize,
}

/// One number over several runs of one suite on one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// "random read: 4K random read, 4 x 16".
    pub what: String,
    /// Its unit.
    pub unit: Unit,
    /// For each run of the group: the value, and the change against the run before, if there is one that counts.
    pub points: Vec<Option<Point>>,
}

/// A value of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The value.
    pub value: f64,
    /// Its verdict.
    pub verdict: Verdict,
    /// Against the run before, minus one; nothing where that cannot be compared.
    pub delta: Option<f64>,
    /// Whether that is more than noise.
    pub real: Real,
}

/// What was measured again: one suite on one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// "smoke on /dev/md0".
    pub name: String,
    /// The directories of its runs, the oldest first.
    pub dirs: Vec<String>,
    /// When they began.
    pub begun: Vec<String>,
    /// Its numbers.
    pub series: Vec<Series>,
}

impl Store {
    /// The store in a directory; it is made when the first result is kept.
    pub fn at(dir: impl Into<PathBuf>) -> Store {
        Store { dir: dir.into() }
    }

    /// Its index page.
    pub fn index(&self) -> PathBuf {
        self.dir.join("index.html")
    }

    /// Keeps a result with its report; returns where. The same result twice is kept once.
    ///
    /// # Errors
    /// When another one is there under its name and time, or a file cannot be written.
    pub fn keep(&self, run: &Run) -> Result<PathBuf, Error> {
        let dir = self.dir.join(name_of(run));
        if dir.join("result.json").exists() {
            let known = Run::read(&dir)?;
            // A file that was read back has all that is written.
            let text = serde_json::to_value(run).map_err(|e| Error::format("result.json", e))?;
            let there = serde_json::to_value(&known).map_err(|e| Error::format("result.json", e))?;
            if text == there {
                return Ok(dir);
            }
            return Err(Error::usage(
                dir.display().to_string(),
                "another result with this name and time is kept there",
            ));
        }
        fs::create_dir_all(&dir).map_err(|e| Error::file(&dir, e))?;
        let report = page(std::slice::from_ref(run), &Extra::default());
        replace(&dir.join("report.html"), report.as_bytes())?;
        files::save(run, &dir)?;
        Ok(dir)
    }

    /// All results, the newest first; one that has no time is last.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let mut entries = vec![];
        let listed = match fs::read_dir(&self.dir) {
            Ok(listed) => listed,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(entries),
            Err(e) => return Err(Error::file(&self.dir, e)),
        };
        for item in listed {
            let path = item.map_err(|e| Error::file(&self.dir, e))?.path();
            if path.join("result.json").exists() {
                let run = Run::read(&path)?;
                let dir = path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
                entries.push(Entry { dir, title: Findings::of(&run).title, run });
            }
        }
        entries.sort_by(|a, b| (&b.run.begun, &a.dir).cmp(&(&a.run.begun, &b.dir)));
        Ok(entries)
    }

    /// Makes the index page anew.
    ///
    /// # Errors
    /// When a result cannot be read, or the page cannot be written.
    pub fn write_index(&self) -> Result<Vec<Listed>, Error> {
        let entries = self.entries()?;
        fs::create_dir_all(&self.dir).map_err(|e| Error::file(&self.dir, e))?;
        replace(&self.index(), history_page(&entries, &groups(&entries)).as_bytes())?;
        Ok(entries.iter().map(Entry::listed).collect())
    }
}

impl Entry {
    /// For scripts.
    pub fn listed(&self) -> Listed {
        let count = |v: Verdict| self.run.cells.iter().filter(|c| c.verdict() == v).count();
        Listed {
            dir: self.dir.clone(),
            name: self.run.name.clone(),
            begun: self.run.begun.clone(),
            title: self.title.clone(),
            pass: count(Verdict::Pass),
            warn: count(Verdict::Warn),
            fail: count(Verdict::Fail),
        }
    }
}

/// "2026-11-22T201639Z-smoke"; a result without a time is only its name.
fn name_of(run: &Run) -> String {
    let begun = run.begun.as_ref().map_or(String::new(), |t| format!("{t}-"));
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            Some(c)
        } else if c == ':' {
            None
        } else {
            Some('-')
        }
    };
    let name: String = format!("{begun}{}", run.name).chars().filter_map(keep).take(96).collect();
    if name.is_empty() { "result".to_owned() } else { name }
}

/// A suite and the system that it was run on.
type Key<'a> = (&'a str, Option<&'a str>);

/// What was measured at least twice, by suite and system.
pub fn groups(entries: &[Entry]) -> Vec<Group> {
    let mut all: Vec<(Key<'_>, Vec<&Entry>)> = vec![];
    for entry in entries.iter().rev() {
        let key = (entry.run.name.as_str(), About::of(&entry.run).system);
        match all.iter_mut().find(|(k, _)| *k == key) {
            Some((_, entries)) => entries.push(entry),
            None => all.push((key, vec![entry])),
        }
    }
    let of = |((name, system), entries): (Key<'_>, Vec<&Entry>)| Group {
        name: system.map_or(name.to_owned(), |s| format!("{name} on {s}")),
        dirs: entries.iter().map(|e| e.dir.clone()).collect(),
        begun: entries.iter().map(|e| e.run.begun.clone().unwrap_or_default()).collect(),
        series: series(&entries),
    };
    all.into_iter().filter(|(_, entries)| entries.len() > 1).map(of).collect()
}

/// The numbers of the newest run, in all of them.
fn series(entries: &[&Entry]) -> Vec<Series> {
    let Some(newest) = entries.last() else { return vec![] };
    let about = About::of(&newest.run);
    let wanted = numbers(&about);
    let of = |number: &crate::findings::Number| {
        let cell = newest.run.cells.iter().find(|c| c.id == number.id)?;
        let in_run = |run: &Run| {
            let same = run.cells.iter().find(|c| c.id == cell.id && c.load == cell.load && c.test == cell.test)?;
            Some((number.unit.value(same)?, same.verdict()))
        };
        let point = |nth: usize| {
            let run = &entries[nth].run;
            let (value, verdict) = in_run(run)?;
            let before = nth.checked_sub(1).map(|n| &entries[n].run);
            let pairing = before.and_then(|before| {
                let compared = compare(&[before.clone(), run.clone()]);
                let line = compared.lines.into_iter().find(|l| l.base_id == cell.id)?;
                line.others.into_iter().next().flatten().filter(|p| p.id == cell.id)
            });
            let real = pairing.as_ref().map_or(Real::Unknown, |p| p.real);
            Some(Point { value, verdict, delta: pairing.and_then(|p| p.delta), real })
        };
        Some(Series {
            what: format!("{}: {}, {}", number.name, cell.load.name(), cell.load.pressure()),
            unit: number.unit,
            points: (0..entries.len()).map(point).collect(),
        })
    };
    wanted.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Origin, Second};

    /// A run with one cell of a rate that is steady.
    fn run(begun: &str, iops: f64) -> Run {
        let mut run = Run::new("smoke", "", Origin::Measured);
        run.begun = Some(begun.to_owned());
        let mut cell = crate::published::run("perc12").unwrap().cells.remove(0);
        cell.id = "read".to_owned();
        cell.load.depth = Some(4);
        cell.figures.iops = Some(iops);
        cell.series = (1..=10).map(|at| Second { at: f64::from(at), iops, mean_us: None }).collect();
        run.cells.push(cell);
        run
    }

    #[test]
    fn what_is_kept_stays_and_has_a_history() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path().join("store"));
        assert!(store.entries().unwrap().is_empty());
        let (old, new) = (run("2026-11-20T10:00:00Z", 1e5), run("2026-11-21T10:00:00Z", 1.5e5));
        let kept = store.keep(&new).unwrap();
        assert!(kept.ends_with("2026-11-21T100000Z-smoke") && kept.join("report.html").exists());
        store.keep(&old).unwrap();
        assert_eq!(store.keep(&old).unwrap(), store.dir.join("2026-11-20T100000Z-smoke"), "twice is once");
        let other = run("2026-11-20T10:00:00Z", 7.0);
        assert!(store.keep(&other).unwrap_err().to_string().contains("another result"));
        let listed = store.write_index().unwrap();
        assert_eq!(
            listed.iter().map(|l| l.dir.as_str()).collect::<Vec<_>>(),
            ["2026-11-21T100000Z-smoke", "2026-11-20T100000Z-smoke"]
        );
        let entries = store.entries().unwrap();
        let groups = groups(&entries);
        let points = &groups[0].series[0].points;
        let last = points[1].as_ref().unwrap();
        assert_eq!((points[0].as_ref().unwrap().delta, last.value, last.real), (None, 1.5e5, Real::Yes));
        assert!((last.delta.unwrap() - 0.5).abs() < 1e-9);
        let html = fs::read_to_string(store.index()).unwrap();
        for text in ["2026-11-21T100000Z-smoke/report.html", "+50.0 %", "<svg", "150 k IOPS"] {
            assert!(html.contains(text), "{text}: {html}");
        }
    }

    #[test]
    fn a_name_stays_inside_the_store() {
        let mut run = run("2026-11-20T10:00:00Z", 1.0);
        run.name = "../../etc/x".to_owned();
        run.begun = None;
        assert_eq!(name_of(&run), "------etc-x");
        run.name = String::new();
        assert_eq!(name_of(&run), "result");
    }
}
