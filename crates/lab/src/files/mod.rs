//! What a report leaves beside itself: a PNG of each chart, one workbook, one CSV.
//!
//! All are made of what the page shows: charts are taken out of the page, and the tables are the cells, findings, seconds
//! and facts of its results.

mod columns;
mod picture;
mod sheet;
mod workbook;

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::model::{Run, replace};
use crate::report::charts;

pub use picture::png;
pub use sheet::{Sheet, Value};

const CELLS: &str = "cells.csv";

/// Writes `result.json` and `cells.csv` of a run into a directory; whoever reads meanwhile sees the old or the new.
///
/// # Errors
/// When they cannot be written.
pub fn save(run: &Run, dir: &Path) -> Result<(), Error> {
    run.write(dir)?;
    replace(&dir.join(CELLS), Sheet::cells(std::slice::from_ref(run)).csv().as_bytes())
}

/// Writes all of a report into a directory, which is made when it is not there; returns what was written.
///
/// # Errors
/// When a file cannot be written, or a chart cannot be drawn.
pub fn write(runs: &[Run], page: &str, dir: &Path) -> Result<Vec<PathBuf>, Error> {
    std::fs::create_dir_all(dir).map_err(|e| Error::file(dir, e))?;
    let mut written = vec![];
    let mut put = |name: String, bytes: &[u8]| {
        let path = dir.join(name);
        replace(&path, bytes)?;
        written.push(path);
        Ok::<(), Error>(())
    };
    put("report.html".to_owned(), page.as_bytes())?;
    put(CELLS.to_owned(), Sheet::cells(runs).csv().as_bytes())?;
    put("report.xlsx".to_owned(), &workbook::xlsx(runs)?)?;
    for (nth, chart) in charts(page).iter().enumerate() {
        put(format!("chart-{:03}-{}.png", nth + 1, file_name(&chart.caption)), &png(chart)?)?;
    }
    Ok(written)
}

/// The title of a chart as a file name: letters, digits and dashes.
fn file_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        if name.len() >= 48 {
            break;
        }
    }
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Extra, page};

    #[test]
    fn every_chart_becomes_a_picture_beside_one_workbook_and_one_table() {
        let dir = tempfile::tempdir().unwrap();
        let runs = [crate::published::run("qlc24").unwrap()];
        let page = page(&runs, &Extra::default());
        let written = write(&runs, &page, dir.path()).unwrap();
        let count = |end: &str| written.iter().filter(|p| p.to_string_lossy().ends_with(end)).count();
        assert_eq!((count(".png"), count(".xlsx"), count(".csv")), (page.matches("<svg").count(), 1, 1));
        for path in written {
            let bytes = std::fs::read(&path).unwrap();
            let magic: &[u8] = match path.extension().and_then(|e| e.to_str()) {
                Some("png") => b"\x89PNG\r\n",
                Some("xlsx") => b"PK\x03\x04",
                Some("csv") => b"run,",
                _ => b"<!DOCTYPE",
            };
            assert!(bytes.starts_with(magic), "{}", path.display());
        }
    }

    #[test]
    fn captions_are_names_of_files() {
        assert_eq!(
            file_name("4K random write, IOPS, on 25 % of each drive"),
            "4k-random-write-iops-on-25-of-each-drive"
        );
        assert_eq!(file_name("../../etc"), "etc");
    }
}
