//! A comparison's result: an object for scripts, an aligned table for people.

use std::fmt;

use serde::Serialize;

use crate::condition::Condition;
use crate::figures::Figures;
use crate::load::Load;
use crate::subject::Subject;

/// What rates are per, in ratios and in the printed table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// A second.
    Second,
    /// A second of CPU time: on memory drives nothing waits, so this is what one core gives, whoever else uses it.
    CoreSecond,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Drives.
    pub drives: usize,
    /// "memory", "file", "block" or "modelled".
    pub drive_kind: &'static str,
    /// Bytes of the first drive.
    pub drive_bytes: u64,
    /// Bytes worked on.
    pub working_set_bytes: u64,
    /// Rounds that the medians are over.
    pub rounds: usize,
    /// How long each measurement ran, at most.
    pub seconds_each: f64,
    /// Whether time was a model's.
    pub virtual_time: bool,
    /// What rates are per, in ratios and in the printed table; the figures themselves are always per second.
    pub per: Per,
    /// One per condition and load.
    pub groups: Vec<Group>,
}

/// One load in one condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The load.
    pub load: Load,
    /// In which condition.
    pub condition: Condition,
    /// One per subject.
    pub rows: Vec<Row>,
}

/// One subject under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub subject: Subject,
    /// Its segments, such as "7+1".
    pub scheme: Option<String>,
    /// Medians over the rounds.
    pub figures: Figures,
    /// Rate over that of the direct drives, each within a round, then the median.
    pub ratio: Option<f64>,
    /// The theoretical limit of `ratio`; there is none to be known where direct drives clean for themselves.
    pub limit: Option<f64>,
    /// Rate per data drive over that of a direct drive; its limit is 1. Of writes only.
    pub ratio_per_data_drive: Option<f64>,
    /// The theoretical limit of the write amplification.
    pub drive_bytes_per_host_byte_min: Option<f64>,
    /// It was overwritten four times and its rate still was not steady: the figures say less.
    pub unsteady: bool,
}

/// Up to this many bytes a request counts as one that IOPS say more about than bytes per second.
const IOPS_BLOCK_BYTES_MAX: u32 = 16 << 10;

const HEADS: [&str; 10] =
    ["", "", "ratio", "limit", "per data drive", "p50 us", "p99 us", "p99.9 us", "CPU us", "written"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = if self.virtual_time { "virtual time" } else { "one core" };
        let rounds =
            if self.rounds == 1 { "one round".to_owned() } else { format!("median of {} rounds", self.rounds) };
        writeln!(
            f,
            "{} {} drives of {} MiB, {} MiB worked on, {time}, {rounds} of {:.2} s",
            self.drives,
            self.drive_kind,
            self.drive_bytes >> 20,
            self.working_set_bytes >> 20,
            self.seconds_each,
        )?;
        for group in &self.groups {
            writeln!(f)?;
            group.write(f, self.per)?;
        }
        writeln!(
            f,
            "\nratio: rate over that of the direct drives in the same round; limit: what the drives alone would allow"
        )?;
        if !self.virtual_time {
            writeln!(f, "CPU us: of one request, load generator and memory drives included")?;
        }
        writeln!(f, "written: bytes to drives per byte of hosts (the least possible)")?;
        match self.cpu_share_min().filter(|_| self.per == Per::CoreSecond) {
            Some(share) => {
                writeln!(f, "per core: second of CPU time; the core was ours {:.0} % of the time", share * 100.0)
            }
            None => writeln!(f, "rounds differ by {:.0} % at most", self.spread_max() * 100.0),
        }
    }
}

impl Report {
    /// The smallest share of the core in a row.
    fn cpu_share_min(&self) -> Option<f64> {
        self.groups.iter().flat_map(|g| &g.rows).filter_map(|r| r.figures.cpu_share).reduce(f64::min)
    }

    /// The largest spread of a row between rounds.
    fn spread_max(&self) -> f64 {
        self.groups.iter().flat_map(|g| &g.rows).map(|r| r.figures.spread).fold(0.0, f64::max)
    }
}

impl Group {
    fn write(&self, f: &mut impl fmt::Write, per: Per) -> fmt::Result {
        let counts = self.load.block_bytes <= IOPS_BLOCK_BYTES_MAX;
        let mut heads: Vec<String> = HEADS.iter().map(ToString::to_string).collect();
        heads[0] = format!("{}{}", self.load, self.condition);
        heads[1] = match (counts, per) {
            (true, Per::Second) => "IOPS",
            (true, Per::CoreSecond) => "IOPS/core",
            (false, Per::Second) => "MB/s",
            (false, Per::CoreSecond) => "MB/s/core",
        }
        .to_owned();
        let mut lines = vec![heads];
        lines.extend(self.rows.iter().map(|row| row.cells(counts, per)));
        // A column that says nothing under this load is left out.
        let told = |c: usize| c < 2 || lines[1..].iter().any(|l| !l[c].is_empty());
        let columns: Vec<usize> = (0..HEADS.len()).filter(|&c| told(c)).collect();
        let width = |c: usize| lines.iter().map(|l| l[c].chars().count()).max().unwrap_or(0);
        for line in &lines {
            let mut text = format!("{:<width$}", line[0], width = width(0));
            for &c in &columns[1..] {
                text.push_str(&format!("  {:>width$}", line[c], width = width(c)));
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

impl Row {
    fn cells(&self, counts: bool, per: Per) -> Vec<String> {
        let figures = &self.figures;
        let name = match &self.scheme {
            Some(scheme) if self.unsteady => format!("  {} ({scheme}), not steady", self.subject),
            Some(scheme) => format!("  {} ({scheme})", self.subject),
            None => format!("  {}", self.subject),
        };
        let requests_per_sec = match (per, figures.cpu_us_per_request) {
            (Per::CoreSecond, Some(us)) => 1e6 / us,
            (Per::CoreSecond | Per::Second, _) => figures.iops,
        };
        let bytes_per_request = figures.bytes_per_sec / figures.iops;
        let rate = if counts { requests_per_sec } else { requests_per_sec * bytes_per_request / 1e6 };
        let optional = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.2}"));
        let written = figures.drive_bytes_per_host_byte.zip(self.drive_bytes_per_host_byte_min);
        vec![
            name,
            grouped(rate),
            optional(self.ratio),
            optional(self.limit),
            optional(self.ratio_per_data_drive),
            short(figures.latency_us_p50),
            short(figures.latency_us_p99),
            short(figures.latency_us_p999),
            figures.cpu_us_per_request.map_or(String::new(), |us| format!("{us:.2}")),
            written.map_or(String::new(), |(is, least)| format!("{is:.2} ({least:.2})")),
        ]
    }
}

/// A whole number with thousands set apart.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// About three digits.
fn short(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { grouped(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Pattern;

    #[test]
    fn numbers_print() {
        for (value, text) in [(0.4, "0"), (999.0, "999"), (1000.0, "1,000"), (1_234_567.4, "1,234,567")] {
            assert_eq!(grouped(value), text);
        }
        assert_eq!((short(3.06), short(12.6)), ("3.1".to_owned(), "13".to_owned()));
    }

    #[test]
    fn columns_align_and_empty_ones_go() {
        let figures = Figures {
            runs: 3,
            iops: 1_234_567.0,
            bytes_per_sec: 5e9,
            latency_us_mean: 1.2,
            latency_us_p50: 1.0,
            latency_us_p99: 20.0,
            latency_us_p999: 3000.0,
            cpu_us_per_request: None,
            cpu_share: None,
            drive_bytes_per_host_byte: None,
            spread: 0.1,
        };
        let row = Row {
            subject: Subject::Direct,
            scheme: None,
            figures,
            ratio: Some(1.0),
            limit: Some(1.0),
            ratio_per_data_drive: None,
            drive_bytes_per_host_byte_min: None,
            unsteady: false,
        };
        let load = Load::new(Pattern::RANDOM_READ, 4096, 64);
        let group = Group { load, condition: Condition::default(), rows: vec![row] };
        let mut text = String::new();
        group.write(&mut text, Per::Second).unwrap();
        assert_eq!(
            text,
            "4K random read, depth 64       IOPS  ratio  limit  p50 us  p99 us  p99.9 us\n  \
               direct drives           1,234,567   1.00   1.00     1.0      20     3,000\n"
        );
    }
}
