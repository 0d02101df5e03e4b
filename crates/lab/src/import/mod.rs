//! Results of other tools. What a file does not tell stays absent, and is named in the verdict.

mod elbencho;
mod fio;
mod vdbench;

use std::fs;
use std::path::Path;

use crate::bins::Bins;
use crate::error::Error;
use crate::gates::{Seen, judge};
use crate::model::{Cell, Check, Figures, Gate, Latency, Load, Origin, Page, Part, Run, Second, Share, Subject};

/// What can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// fio, json or json+.
    Fio,
    /// A directory of fio's files, such as bench-fio leaves.
    FioDirectory,
    /// Vdbench's flatfile.
    VdbenchFlatfile,
    /// Vdbench's totals.
    VdbenchTotals,
    /// elbencho's CSV.
    ElbenchoCsv,
    /// elbencho's JSON.
    ElbenchoJson,
}

impl Format {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Format::Fio => "fio JSON",
            Format::FioDirectory => "a directory of fio JSON",
            Format::VdbenchFlatfile => "a Vdbench flatfile",
            Format::VdbenchTotals => "Vdbench totals",
            Format::ElbenchoCsv => "elbencho CSV",
            Format::ElbenchoJson => "elbencho JSON",
        }
    }

    /// What a file is, by what is in it.
    fn of(text: &str) -> Option<Format> {
        let line = |wanted: &[&str]| text.lines().any(|l| wanted.iter().all(|w| l.contains(w)));
        if text.contains("\"fio version\"") {
            Some(Format::Fio)
        } else if text.contains("\"IOPS [last]\"") && text.trim_start().starts_with(['{', '[']) {
            Some(Format::ElbenchoJson)
        } else if line(&["ISO date", "operation", "IOPS [last]"]) {
            Some(Format::ElbenchoCsv)
        } else if line(&["reqrate", "rate", "MB/sec", "resp"]) {
            Some(Format::VdbenchFlatfile)
        } else if line(&["Starting RD="]) {
            Some(Format::VdbenchTotals)
        } else {
            None
        }
    }
}

/// A cell as another tool tells it.
#[derive(Default)]
struct Found {
    name: String,
    /// Where its tool tells; alone otherwise.
    part: Option<Part>,
    series: Vec<Second>,
    load: Load,
    figures: Figures,
    bins: Bins,
    asked_iops: Option<f64>,
    asked_seconds: Option<f64>,
    errors: Option<(u64, u64)>,
    command: Option<String>,
    note: String,
    /// Options of its job, for who reads them further.
    options: Vec<(String, String)>,
}

/// Reads a file or a directory.
///
/// # Errors
/// When it cannot be read, or is nothing that is known.
pub fn import(path: &Path, subject: &Subject) -> Result<Run, Error> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    if path.is_dir() {
        let files = fio::directory(path)?;
        return Ok(run(&name, Format::FioDirectory, files, subject));
    }
    let text = fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
    import_text(&name, &text, subject).map_err(|e| Error::format(path.display().to_string(), e))
}

/// Reads the text of a file.
///
/// # Errors
/// When it is nothing that is known.
pub fn import_text(name: &str, text: &str, subject: &Subject) -> Result<Run, Error> {
    let why = "unknown format; valid: JSON of fio, flatfile or totals of Vdbench, CSV or JSON of elbencho";
    let format = Format::of(text).ok_or_else(|| Error::format(name, why))?;
    let found = match format {
        Format::Fio | Format::FioDirectory => fio::file(text)?,
        Format::VdbenchFlatfile => vdbench::flatfile(text)?,
        Format::VdbenchTotals => vdbench::totals(text)?,
        Format::ElbenchoCsv => elbencho::csv(text)?,
        Format::ElbenchoJson => elbencho::json(text)?,
    };
    if found.is_empty() {
        return Err(Error::format(name, "it contains no measurement"));
    }
    Ok(run(name, format, vec![(name.to_owned(), found)], subject))
}

fn run(name: &str, format: Format, files: Vec<(String, Vec<Found>)>, subject: &Subject) -> Run {
    let mut run = Run::new(
        name,
        format!("Imported from {}", format.name()),
        Origin::Imported { format: format.name().to_owned() },
    );
    let mut text = String::new();
    for (file, found) in files {
        for found in found {
            let cell = cell(&format!("{:03}", run.cells.len() + 1), &file, found, subject);
            text.push_str(&format!("{} {file}\n", cell.id));
            run.cells.push(cell);
        }
    }
    run.disclosure.push(Page { title: "Files that cells are from".to_owned(), text });
    run
}

fn cell(nth: &str, file: &str, found: Found, subject: &Subject) -> Cell {
    let name = found.load.name();
    let mut cell = Cell {
        id: format!("{nth}-{}", if found.name.is_empty() { "cell" } else { &found.name }),
        test: if name.is_empty() { found.name } else { name },
        part: found.part.unwrap_or(Part::Alone),
        source: Some(file.to_owned()),
        subject: subject.clone(),
        load: Load { read_percent: found.load.read_percent.filter(|p| (0.0..=100.0).contains(p)), ..found.load },
        asked_iops: number(found.asked_iops),
        asked_seconds: number(found.asked_seconds),
        figures: sound(found.figures),
        bins: found.bins.pairs(),
        series: found.series,
        gates: vec![],
        command: found.command,
        note: found.note,
    };
    if cell.subject.system.is_empty() {
        file.clone_into(&mut cell.subject.system);
    }
    cell.gates = judge(&cell, &Seen { errors: found.errors, ..Seen::default() });
    let mut missing = vec![];
    for (absent, what) in [
        (cell.load.block_bytes.is_none(), "block size"),
        (cell.load.access.is_none(), "order of addresses"),
        (cell.load.outstanding().is_none(), "threads x depth"),
        (cell.figures.latency.p99_us.is_none(), "p99"),
        (cell.load.reads(), "whether the range was written"),
    ] {
        missing.extend(absent.then_some(what));
    }
    cell.gates.push(if missing.is_empty() {
        Gate::pass(Check::Disclosure, "load and latency are known")
    } else {
        Gate::warn(Check::Disclosure, format!("imported; unknown: {}", missing.join(", ")))
    });
    cell
}

/// A number that can be one: no "NaN", nothing below zero, no overflow in what it is multiplied with.
fn number(told: Option<f64>) -> Option<f64> {
    told.filter(|n| (0.0..=1e15).contains(n))
}

/// Figures without what is no number.
fn sound(told: Figures) -> Figures {
    let share = |s: Option<Share>| s.filter(|s| number(Some(s.iops)).and(number(Some(s.bytes_per_sec))).is_some());
    let latency = told.latency;
    Figures {
        iops: number(told.iops),
        bytes_per_sec: number(told.bytes_per_sec),
        latency: Latency {
            mean_us: number(latency.mean_us),
            p50_us: number(latency.p50_us),
            p95_us: number(latency.p95_us),
            p99_us: number(latency.p99_us),
            p999_us: number(latency.p999_us),
            p9999_us: number(latency.p9999_us),
            p99999_us: number(latency.p99999_us),
            max_us: number(latency.max_us),
        },
        read: share(told.read),
        write: share(told.write),
        seconds: number(told.seconds),
        written_bytes: told.written_bytes,
        cpu_percent: number(told.cpu_percent),
        disk_busy_percent: number(told.disk_busy_percent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_not_told() {
        let text = "tod Run Interval reqrate rate MB/sec resp\n1 rd1 avg_2-5 100 500 NaN -3\n";
        let run = import_text("f", text, &Subject::default()).unwrap();
        let figures = &run.cells[0].figures;
        assert_eq!((figures.iops, figures.bytes_per_sec, figures.latency.mean_us), (Some(500.0), None, None));
    }

    #[test]
    fn what_is_nothing_known_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for text in ["", "hello", "{\"a\": 1}", "{\"fio version\": \"fio-3.33\", \"jobs\": []}"] {
            fs::write(&path, text).unwrap();
            assert!(import(&path, &Subject::default()).is_err(), "{text}");
        }
        assert!(import(&dir.path().join("none"), &Subject::default()).is_err());
    }
}
