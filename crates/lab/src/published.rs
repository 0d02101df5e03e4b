//! What the reviews printed, as results: one row of `data/published.csv` for each figure, each with its source.
//!
//! A measurement under a load becomes a cell that names its row; everything else (limits, specifications, claims,
//! figures told in words) becomes a fact. Numbers are those that were printed; a row that was computed from others has the
//! kind "derived". A condition is stated, inferred (the column `inferred` names it, the note says from what) or, where its
//! column is empty, unknown.

use serde::Deserialize;

use crate::error::Error;
use crate::model::{Access, Cell, Check, Fact, Figures, Gate, Load, Origin, Page, Pair, Part, Run, State, Subject};
use crate::units::{grouped, latency, rate};

const DATA: &str = include_str!("../data/published.csv");

/// A review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Review {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What it does not print, though others do.
    pub silent: &'static str,
}

/// All of them.
pub const REVIEWS: [Review; 5] = [
    Review {
        name: "perc12",
        about: "What Dell's PERC 12 looked like: bare drives, RAID 10 and RAID 5 on one card and two, and rebuilding",
        silent: "load curves are printed as pictures: their peaks are here; no latency, no depth for the fio tests",
    },
    Review {
        name: "perc11",
        about: "What Dell's PERC 11 (H755N) looked like: RAID 10, 5 and 6 under saturation, up to 64 threads 64 deep",
        silent: "tables are pictures: the figures are those of the text; latencies, and threads and depth of each test, are missing",
    },
    Review {
        name: "qlc24",
        about: "What 24 QLC drives of a two-node server give: sequential fill, then 5 % of every drive",
        silent: "threads, depth and latency are not printed; writes below 64K were left out, as the drives' unit is larger",
    },
    Review {
        name: "fc-roce",
        about: "Fibre Channel beside RoCE, SCSI beside NVMe, flash beside disk: what an integrator measured and says",
        silent: "charts are pictures: only gains and limits are stated in the text",
    },
    Review {
        name: "ssd24",
        about: "What 24 SATA SSDs in a RAID 0 give through the page cache, and why that is not the drives",
        silent: "the threads x depth matrices are pictures: only their shape and the largest figures are stated",
    },
];

/// A row as it lies in the file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Row {
    /// Its name, unique in the file.
    pub id: String,
    /// The review.
    pub review: String,
    /// The table it belongs to.
    pub part: String,
    /// What was measured.
    pub system: String,
    /// Its drives, in words.
    pub drives: String,
    /// How many they are.
    pub drive_count: Option<u32>,
    /// "RAID5", "JBOD".
    pub level: String,
    /// Controllers, in words.
    pub controllers: String,
    /// How many.
    pub controller_count: Option<u32>,
    /// "optimal", "rebuilding", or nothing.
    pub state: String,
    /// "yes" or nothing.
    pub cached: String,
    /// Hundredths of the drives worked on.
    pub slice_percent: Option<f64>,
    /// Load generator.
    pub tool: String,
    /// The load, in words.
    pub workload: String,
    /// "random", "sequential", or nothing.
    pub access: String,
    /// Bytes of a request.
    pub block_bytes: Option<u64>,
    /// Hundredths of reads.
    pub read_percent: Option<f64>,
    /// Threads.
    pub threads: Option<u32>,
    /// Requests in flight, each thread.
    pub depth: Option<u32>,
    /// Targets that have so many threads each; nothing: one.
    pub targets: Option<u32>,
    /// Columns that are inferred, with spaces between.
    pub inferred: String,
    /// What the number is.
    pub metric: String,
    /// The number, as printed where it is none.
    pub value: String,
    /// Its unit.
    pub unit: String,
    /// "measured", "measured, rounded", "stated", "derived", "spec", "claim", "config", "method", "link-limit".
    pub kind: String,
    /// Where it was printed.
    pub source: String,
    /// What else is to be known.
    pub note: String,
}

/// All rows.
///
/// # Errors
/// None, as a test reads them all; the signature is that of reading.
pub fn rows() -> Result<Vec<Row>, Error> {
    let mut reader = csv::Reader::from_reader(DATA.as_bytes());
    reader.deserialize().map(|row| row.map_err(|e| Error::format("published.csv", e))).collect()
}

/// One review as a result.
///
/// # Errors
/// When there is none of this name.
pub fn run(name: &str) -> Result<Run, Error> {
    let names: Vec<&str> = REVIEWS.iter().map(|r| r.name).collect();
    let review = REVIEWS
        .iter()
        .find(|r| r.name == name)
        .ok_or_else(|| Error::usage(format!("published results \"{name}\""), format!("valid: {}", names.join(", "))))?;
    let rows: Vec<Row> = rows()?.into_iter().filter(|r| r.review == name).collect();
    let mut run = Run::new(review.name, review.about, Origin::Published);
    let (ceiling, sheet) = (Ceiling::of(&rows), Sheet::of(&rows));
    for row in &rows {
        match row.cell(&ceiling, sheet.as_ref()) {
            Some(cell) => run.cells.push(cell),
            None => run.facts.push(row.fact()),
        }
    }
    let source = rows.first().map_or(String::new(), |r| r.source.clone());
    run.system.push(Pair::new("source", source));
    let mut systems: Vec<&str> = run.cells.iter().map(|c| c.subject.system.as_str()).collect();
    systems.dedup();
    systems.sort_unstable();
    systems.dedup();
    run.system.push(Pair::new("systems", systems.join("; ")));
    let mut drives: Vec<&str> = run.cells.iter().map(|c| c.subject.drives.as_str()).filter(|d| !d.is_empty()).collect();
    drives.sort_unstable();
    drives.dedup();
    run.system.push(Pair::new("drives", drives.join("; ")));
    run.not_run.push(Pair::new("not printed", review.silent));
    run.disclosure.push(Page { title: "Rows of the data file".to_owned(), text: csv_of(name) });
    Ok(run)
}

/// The lines of one review, as they lie in the file.
fn csv_of(name: &str) -> String {
    let mut lines = DATA.lines();
    let head = lines.next().unwrap_or_default();
    let own = lines.filter(|l| l.split(',').nth(1) == Some(name));
    std::iter::once(head).chain(own).collect::<Vec<_>>().join("\n")
}

/// What the links of a review carry, in bytes a second, one direction.
struct Ceiling {
    of_a_card: Option<f64>,
    of_a_drive: Option<f64>,
}

impl Ceiling {
    fn of(rows: &[Row]) -> Ceiling {
        let limit = |metric: &str| {
            let row = rows.iter().find(|r| r.kind == "link-limit" && r.unit == "GB/s" && r.metric == metric);
            row.and_then(Row::number).map(|gb| gb * 1e9)
        };
        Ceiling { of_a_card: limit("bandwidth ceiling one direction"), of_a_drive: limit("per-drive link saturation") }
    }

    fn for_row(&self, row: &Row) -> Option<f64> {
        match row.controller_count {
            Some(0) => Some(self.of_a_drive? * f64::from(row.drive_count?)),
            Some(cards) => Some(self.of_a_card? * f64::from(cards)),
            None => None,
        }
    }
}

/// Of a ceiling: above this the link is the limit.
const LINK_BOUND: f64 = 0.95;

/// What a drive of a review can go on writing at random, by its maker's sheet.
struct Sheet {
    /// "Solidigm P5520 7.68TB", as rows name their drives.
    drive: String,
    block_bytes: u64,
    iops: f64,
}

impl Sheet {
    const METRIC: &str = "steady 4K random write of one drive";

    fn of(rows: &[Row]) -> Option<Sheet> {
        let row = rows.iter().find(|r| r.kind == "spec" && r.metric == Sheet::METRIC)?;
        Some(Sheet { drive: row.drives.clone(), block_bytes: row.block_bytes?, iops: row.number()? })
    }

    /// Whether a row writes more than its drives can go on with: the verdict, if it does.
    fn gate(&self, row: &Row) -> Option<Gate> {
        let drives = f64::from(row.drive_count.filter(|_| row.drives.contains(&self.drive))?);
        let is_like = row.access == "random" && row.block_bytes == Some(self.block_bytes) && row.unit == "IOPS";
        let written = row.number().filter(|_| is_like)? * (1.0 - row.read_percent? / 100.0);
        // A write to RAID 10 is written twice; one of RAID 5 and 6 its parities, too.
        let copies = match row.level.as_str() {
            "JBOD" | "RAID0" => 1.0,
            "RAID10" | "RAID5" => 2.0,
            "RAID6" => 3.0,
            _ => return None,
        };
        let each = written * copies / drives;
        let text =
            format!("{} writes a second to each drive, whose data sheet has {}", grouped(each), grouped(self.iops));
        (each > STEADY_MAX * self.iops).then(|| match row.slice_percent {
            Some(slice) if slice < 100.0 => {
                Gate::warn(Check::Steady, format!("{text} on all of it: {slice} % were used, the rest is spare"))
            }
            _ => Gate::warn(Check::Steady, format!("cannot be a steady state: {text}")),
        })
    }
}

/// Of a sheet's steady rate: drives are a little better than their sheets.
const STEADY_MAX: f64 = 1.10;

/// What a drive needs at least for a lone request, in microseconds: a read of flash, and a write into its buffer. The
/// sheet of the P5520 has 75 and 15.
const LONE_READ_US: f64 = 60.0;
const LONE_WRITE_US: f64 = 10.0;

/// Little's law on a printed rate, where the requests in flight are known and the latency is not.
fn little(cell: &Cell) -> Option<Gate> {
    let (most, block) = (cell.load.outstanding()?, cell.load.block_bytes? as f64);
    let iops = cell.figures.iops.or(cell.figures.bytes_per_sec.map(|b| b / block))?;
    let each = most / iops * 1e6;
    let reads = cell.load.read_percent? / 100.0;
    let least = if cell.load.cached == Some(true) { 0.0 } else { reads * LONE_READ_US + (1.0 - reads) * LONE_WRITE_US };
    let text = format!("{most:.0} in flight at this rate take {} each", latency(each));
    Some(if each >= least {
        Gate::pass(Check::Little, text)
    } else {
        Gate::fail(Check::Little, format!("{text}, less than a lone request of a drive ({})", latency(least)))
    })
}

impl Row {
    /// The value as a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        self.value.parse().ok()
    }

    fn figures(&self) -> Option<Figures> {
        let value = self.number()?;
        let mut figures = Figures::default();
        match self.unit.as_str() {
            "IOPS" => figures.iops = Some(value),
            "MB/s" => figures.bytes_per_sec = Some(value * 1e6),
            "GB/s" => figures.bytes_per_sec = Some(value * 1e9),
            _ => return None,
        }
        Some(figures)
    }

    fn cell(&self, ceiling: &Ceiling, sheet: Option<&Sheet>) -> Option<Cell> {
        let figures = self.figures().filter(|_| self.kind.starts_with("measured"))?;
        let load = Load {
            access: match self.access.as_str() {
                "random" => Some(Access::Random),
                "sequential" => Some(Access::Sequential),
                _ => None,
            },
            read_percent: self.read_percent,
            block_bytes: self.block_bytes,
            threads: self.threads,
            depth: self.depth,
            targets: self.targets,
            inferred: self.inferred.split_whitespace().map(str::to_owned).collect(),
            cached: (self.cached == "yes").then_some(true),
            slice_percent: self.slice_percent,
            ..Load::default()
        };
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let subject = Subject {
            system: self.system.clone(),
            drives: self.drives.clone(),
            drive_count: self.drive_count,
            level: some(&self.level),
            controllers: some(&self.controllers),
            controller_count: self.controller_count,
            state: if self.state == "rebuilding" { State::Rebuilding } else { State::Optimal },
        };
        let mut cell = Cell {
            id: self.id.clone(),
            test: self.workload.clone(),
            part: Part::Alone,
            source: Some(self.id.clone()),
            subject,
            load,
            asked_iops: None,
            asked_seconds: None,
            figures,
            bins: vec![],
            series: vec![],
            gates: vec![],
            command: None,
            note: self.note.clone(),
        };
        cell.gates = self.gates(&cell, ceiling.for_row(self), sheet);
        Some(cell)
    }

    fn gates(&self, cell: &Cell, ceiling: Option<f64>, sheet: Option<&Sheet>) -> Vec<Gate> {
        let mut missing = vec![];
        for (absent, what) in [
            (cell.load.block_bytes.is_none(), "block size"),
            (cell.load.read_percent.is_none(), "share of reads"),
            (cell.load.threads.is_none(), "threads"),
            (cell.load.depth.is_none(), "depth"),
            (cell.figures.latency.mean_us.is_none(), "latency"),
        ] {
            missing.extend(absent.then_some(what));
        }
        let mut gates = vec![Gate::warn(Check::Disclosure, format!("not printed: {}", missing.join(", ")))];
        if missing.is_empty() {
            gates = vec![Gate::pass(Check::Disclosure, "load and latency are printed")];
        }
        if !cell.load.inferred.is_empty() {
            let names: Vec<&str> = cell.load.inferred.iter().map(|name| condition(name)).collect();
            gates.push(Gate::warn(Check::Disclosure, format!("inferred, not stated: {}", names.join(", "))));
        }
        gates.extend(little(cell));
        if self.kind == "measured, rounded" {
            gates.push(Gate::warn(Check::Disclosure, "printed as a round number"));
        }
        if cell.load.writes() {
            let told = sheet.and_then(|s| s.gate(self));
            let silent = || Gate::warn(Check::Steady, "no proof of a steady state is printed");
            gates.push(told.unwrap_or_else(silent));
        }
        if cell.load.cached == Some(true) {
            gates.push(Gate::warn(Check::Cache, "the page cache of the host, not the drives"));
        }
        // A mix uses both directions of a link: only one-way loads are held against it.
        let one_way = matches!(cell.load.read_percent, Some(0.0 | 100.0));
        if let (Some(ceiling), Some(bytes), true) = (ceiling, cell.bytes_per_sec(), one_way) {
            let text = format!("{} of the {} that the link carries", rate(bytes), rate(ceiling));
            gates.push(if bytes >= LINK_BOUND * ceiling {
                Gate::warn(Check::Link, format!("link-bound: {text}"))
            } else {
                Gate::pass(Check::Link, text)
            });
        }
        gates
    }

    fn fact(&self) -> Fact {
        let of = [&self.system, &self.drives, &self.level, &self.workload];
        let of: Vec<&str> = of.into_iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
        Fact {
            id: self.id.clone(),
            part: self.part.clone(),
            of: of.join(", "),
            metric: self.metric.clone(),
            value: format!("{} {}", self.value, self.unit).trim().to_owned(),
            kind: self.kind.clone(),
            note: self.note.clone(),
        }
    }
}

/// A column's name for people.
fn condition(column: &str) -> &str {
    match column {
        "read_percent" => "share of reads",
        "targets" => "drives that have the threads each",
        other => other,
    }
}

/// The tables of one review in the order of the file: the name of each and its cells.
pub fn tables(run: &Run) -> Vec<(String, Vec<&Cell>)> {
    let rows = rows().unwrap_or_default();
    let mut tables: Vec<(String, Vec<&Cell>)> = vec![];
    for cell in &run.cells {
        let part = rows.iter().find(|r| Some(&r.id) == cell.source.as_ref()).map_or("", |r| r.part.as_str());
        match tables.iter_mut().find(|(name, _)| name == part) {
            Some((_, cells)) => cells.push(cell),
            None => tables.push((part.to_owned(), vec![cell])),
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::Verdict;

    #[test]
    fn every_row_is_read_and_becomes_one_cell_or_one_fact() {
        let rows = rows().unwrap();
        let ids: BTreeSet<&str> = rows.iter().map(|r| r.id.as_str()).collect();
        assert_eq!((rows.len(), ids.len()), (214, 214));
        let mut seen = BTreeSet::new();
        for review in REVIEWS {
            let run = run(review.name).unwrap();
            for cell in &run.cells {
                let source = cell.source.clone().unwrap();
                let row = rows.iter().find(|r| r.id == source).unwrap();
                let printed = cell.figures.iops.or(cell.figures.bytes_per_sec).unwrap();
                assert!([1.0, 1e6, 1e9].contains(&(printed / row.number().unwrap()).round()), "{source}");
                assert!(seen.insert(source));
            }
            run.facts.iter().for_each(|f| assert!(seen.insert(f.id.clone()), "{}", f.id));
        }
        assert_eq!(seen.len(), rows.len());
    }

    #[test]
    fn every_row_has_a_source_and_a_known_kind() {
        let kinds = [
            "measured",
            "measured, rounded",
            "stated",
            "derived",
            "spec",
            "claim",
            "config",
            "method",
            "link-limit",
            "forecast",
        ];
        for row in rows().unwrap() {
            assert!(!row.source.is_empty() && kinds.contains(&row.kind.as_str()), "{row:?}");
            assert!(REVIEWS.iter().any(|r| r.name == row.review), "{row:?}");
        }
    }

    #[test]
    fn figures_are_those_that_were_printed() {
        let run = run("perc12").unwrap();
        let cell = |id: &str| run.cells.iter().find(|c| c.id == id).unwrap();
        assert_eq!(cell("perc12-001").figures.iops, Some(5_550_000.0));
        assert_eq!(cell("perc12-013").figures.bytes_per_sec, Some(54_396e6));
        assert_eq!(
            (cell("perc12-061").figures.iops, cell("perc12-061").subject.state),
            (Some(242_802.0), State::Rebuilding)
        );
        // 7.0 million reads of 4096 B are more than the 28 GB/s of the card; so are 28,076 MB/s; 24,049 MB/s are not.
        for (id, verdict) in
            [("perc12-035", Verdict::Warn), ("perc12-014", Verdict::Warn), ("perc12-018", Verdict::Pass)]
        {
            let link = cell(id).gates.iter().find(|g| g.check == Check::Link).unwrap();
            assert_eq!(link.verdict, verdict, "{id}");
        }
        assert!(run.cells.iter().all(|c| c.verdict() != Verdict::Pass), "no review tells everything");
    }

    #[test]
    fn littles_law_holds_in_the_file_itself() {
        let mut checked = 0;
        for review in REVIEWS {
            for cell in run(review.name).unwrap().cells {
                let Some(gate) = cell.gates.iter().find(|g| g.check == Check::Little) else { continue };
                assert_eq!(gate.verdict, Verdict::Pass, "{}: {gate}", cell.id);
                checked += 1;
            }
        }
        assert_eq!(checked, 12, "the peaks of the curves");
        // The same threads for all eight drives together would answer reads of flash within 23 us.
        let row = rows().unwrap().into_iter().find(|r| r.id == "perc12-001").unwrap();
        let ceiling = Ceiling { of_a_card: None, of_a_drive: None };
        let cell = Row { targets: None, ..row }.cell(&ceiling, None).unwrap();
        let gate = cell.gates.iter().find(|g| g.check == Check::Little).unwrap();
        assert_eq!(gate.verdict, Verdict::Fail);
        assert!(gate.reason.contains("23.1 us"), "{gate}");
    }

    #[test]
    fn what_is_inferred_is_there_and_named() {
        let columns = ["threads", "depth", "targets", "read_percent", "block_bytes", "slice_percent"];
        for row in rows().unwrap() {
            for name in row.inferred.split_whitespace() {
                let there = match name {
                    "threads" => row.threads.is_some(),
                    "depth" => row.depth.is_some(),
                    "targets" => row.targets.is_some(),
                    "read_percent" => row.read_percent.is_some(),
                    "block_bytes" => row.block_bytes.is_some(),
                    "slice_percent" => row.slice_percent.is_some(),
                    _ => panic!("{}: {name} is none of {columns:?}", row.id),
                };
                assert!(there, "{}: {name}", row.id);
            }
        }
        let run = run("perc12").unwrap();
        let oltp = run.cells.iter().filter(|c| c.test == "4K OLTP");
        for cell in oltp {
            assert_eq!((cell.load.read_percent, cell.load.inferred.join(" ")), (Some(67.0), "read_percent".to_owned()));
            assert!(cell.gates.iter().any(|g| g.reason == "inferred, not stated: share of reads"), "{:?}", cell.gates);
        }
    }

    #[test]
    fn the_inferred_mix_follows_from_other_rows() {
        let rows = rows().unwrap();
        let value = |id: &str| rows.iter().find(|r| r.id == id).and_then(Row::number).unwrap();
        // RAID 5 is bound by its writes: these over all of OLTP are the share of writes, on one card and on two.
        for (writes, oltp) in [("perc12-046", "perc12-053"), ("perc12-047", "perc12-054")] {
            assert!((value(writes) / value(oltp) - 0.33).abs() < 0.005, "{writes}");
        }
        // 67 % of it are what the card's link carries one way; 70 % would be more.
        let read = |share: f64| value("perc12-049") * share * 4096.0;
        let link = value("perc12-035") * 4096.0;
        assert!(read(0.67) < link && read(0.70) > link, "{} {link}", read(0.67));
    }

    #[test]
    fn writes_above_the_sheet_are_no_steady_state() {
        let run = run("perc12").unwrap();
        let steady = |id: &str| {
            let cell = run.cells.iter().find(|c| c.id == id).unwrap();
            cell.gates.iter().find(|g| g.check == Check::Steady).map_or("", |g| g.reason.as_str())
        };
        for id in ["perc12-041", "perc12-042", "perc12-043", "perc12-044"] {
            assert!(steady(id).starts_with("cannot be a steady state"), "{id}: {}", steady(id));
        }
        assert!(steady("perc12-042").contains("746,783"), "{}", steady("perc12-042"));
        assert!(steady("perc12-003").contains("25 % were used"), "{}", steady("perc12-003"));
        // 862,769 writes to RAID 5 are 216 k for each drive.
        assert_eq!(steady("perc12-046"), "no proof of a steady state is printed");
        assert_eq!(steady("perc12-034"), "", "reads");
    }

    #[test]
    fn what_a_review_does_not_state_is_absent() {
        let rows = rows().unwrap();
        let row = |id: &str| rows.iter().find(|r| r.id == id).unwrap();
        for row in rows.iter().filter(|r| r.review == "perc11" && r.kind.starts_with("measured") && r.tool == "fio") {
            assert_eq!((row.threads, row.depth), (None, None), "{}", row.id);
        }
        for id in ["qlc24-017", "qlc24-018"] {
            assert_eq!((row(id).slice_percent, row(id).tool.as_str()), (None, ""), "another review's server");
        }
        for id in ["fc-roce-018", "fc-roce-019"] {
            assert_eq!(row(id).block_bytes, None, "{id}");
        }
        assert_eq!(row("perc12-070").system, "Dell R760 Direct Drives");
        assert_eq!(row("perc11-018").level, "RAID5");
        assert_eq!((row("qlc24-027").value.as_str(), row("ssd24-010").value.as_str()), ("almost 750", "almost 50000"));
        assert!(["ssd24-001", "ssd24-002"].iter().all(|id| row(id).cached.is_empty()), "run twice");
    }

    #[test]
    fn remarks_stand_on_both_rows_of_a_pair() {
        let rows = rows().unwrap();
        let note = |id: &str| rows.iter().find(|r| r.id == id).map(|r| r.note.as_str()).unwrap();
        for (ids, words) in [
            (&["perc12-055", "perc12-056"][..], "reads below writes"),
            (&["perc12-063", "perc12-064", "perc12-065", "perc12-066"], "suspicious"),
            (&["perc12-003", "perc12-004", "perc12-007", "perc12-008"], "gap narrows"),
            (&["perc12-049"], "a link has two directions"),
            (&["perc12-049"], "10 million"),
            (&["perc12-041", "perc12-042"], "direct drives write less"),
        ] {
            for id in ids {
                assert!(note(id).contains(words), "{id}: {}", note(id));
            }
        }
    }

    #[test]
    fn facts_that_were_missing_are_rows() {
        let rows = rows().unwrap();
        let has = |review: &str, words: &[&str]| {
            rows.iter().any(|r| {
                let all = format!("{} {} {} {} {} {}", r.system, r.level, r.workload, r.metric, r.value, r.unit);
                r.review == review && words.iter().all(|w| all.contains(w))
            })
        };
        for (review, words) in [
            ("perc12", &["CPUs saturate"][..]),
            ("perc12", &["sequential precondition, sequential tests, random precondition"]),
            ("perc12", &["8 and 16"]),
            ("perc12", &["SAS4116W"]),
            ("perc11", &["8.3", "RHEL"]),
            ("perc11", &["almost 3"]),
            ("perc11", &["over 3"]),
            ("perc11", &["H730P", "not normal"]),
            ("perc11", &["14.x"]),
            ("perc11", &["several times faster"]),
            ("qlc24", &["fill before the tests", "sequential"]),
            ("qlc24", &["data sheet", "consistent"]),
            ("fc-roce", &["latency chart (figure 2)"]),
            ("fc-roce", &["100G Ethernet", "dearer"]),
            ("fc-roce", &["PFC and DCB"]),
            ("fc-roce", &["GEN6 and GEN7"]),
            ("fc-roce", &["Emulex", "NVMe/FC", "steadier"]),
            ("fc-roce", &["Emulex", "SCSI/FC", "level"]),
            ("fc-roce", &["with real data", "most of it gone"]),
            ("fc-roce", &["parity, already today", "SAS 10K"]),
            ("fc-roce", &["parity, with deduplication and compression", "cheaper than HDD"]),
            ("ssd24", &["at low depths", "better and less even"]),
            ("ssd24", &["peak", "lower"]),
            ("ssd24", &["minimum", "better"]),
        ] {
            assert!(has(review, words), "{review}: {words:?}");
        }
    }

    #[test]
    fn an_unknown_review_is_answered_with_the_known_ones() {
        let error = super::run("perc13").unwrap_err().to_string();
        assert!(error.contains("perc12") && error.contains("ssd24"), "{error}");
    }
}
