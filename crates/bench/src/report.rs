//! A comparison's result: an object for scripts, an aligned table for people.

use std::fmt;

use serde::Serialize;

use crate::condition::{Condition, Fill};
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
    /// CPU time of a request over that on the first number of cores, each within a round, then the median; nothing for that
    /// one itself.
    pub cpu_ratio_to_first_core_count: Option<f64>,
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

/// Those that are empty depend on the table.
const HEADS: [&str; 12] =
    ["", "", "", "ratio", "limit", "per data drive", "p50 us", "p99 us", "p99.9 us", "CPU us", "", "written"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = if self.virtual_time { "virtual time".to_owned() } else { self.cores() };
        let rounds =
            if self.rounds == 1 { "one round".to_owned() } else { format!("median of {} rounds", self.rounds) };
        write!(f, "{} {} drives of {} MiB, ", self.drives, self.drive_kind, self.drive_bytes >> 20)?;
        // What is filled is worked on as far as it is.
        if self.groups.iter().any(|g| g.condition.fill == Fill::Fresh) {
            write!(f, "{} MiB worked on, ", self.working_set_bytes >> 20)?;
        }
        writeln!(f, "{time}, {rounds} of {:.2} s", self.seconds_each)?;
        for group in &self.groups {
            writeln!(f)?;
            group.write(f, self.style(group))?;
        }
        writeln!(
            f,
            "\nratio: rate over that of the direct drives in the same round; limit: the theoretical maximum of the \
             drives"
        )?;
        let several = self.is_on_several();
        if !self.virtual_time {
            let cores = if several { "on all cores, " } else { "" };
            writeln!(f, "CPU us: of one request, {cores}load generator and memory drives included")?;
        }
        if self.groups.iter().flat_map(|g| &g.rows).any(|r| r.cpu_ratio_to_first_core_count.is_some()) {
            writeln!(f, ": {0}: CPU us over that on {0} in the same round", self.first_cores())?;
        }
        writeln!(f, "written: bytes to drives per byte of hosts (the minimum possible)")?;
        match self.cpu_share_min().filter(|_| self.per == Per::CoreSecond) {
            Some(share) if several => {
                writeln!(f, "per core and ratio: per second of CPU time; IOPS, MB/s: of all cores, per second")?;
                let share = share * 100.0;
                writeln!(
                    f,
                    "each core was busy at least {share:.0} % of the time; otherwise it waited, or other programs \
                     used it"
                )
            }
            Some(share) => {
                writeln!(
                    f,
                    "per core: per second of CPU time; the benchmark had the core {:.0} % of the time",
                    share * 100.0
                )
            }
            None => writeln!(f, "rounds differ by {:.0} % at most", self.spread_max() * 100.0),
        }
    }
}

/// How a group is written.
#[derive(Clone, Copy)]
struct Style {
    per: Per,
    /// Something in the report was measured on several cores: the heading has a line of its own.
    several: bool,
    /// The number of cores that others are compared with.
    first_cores: usize,
}

/// So many, for people.
fn cores(count: usize) -> String {
    if count == 1 { "1 core".to_owned() } else { format!("{count} cores") }
}

impl Report {
    /// The numbers of cores, in the order of the groups.
    fn counts(&self) -> Vec<usize> {
        let mut counts = vec![];
        for group in &self.groups {
            if !counts.contains(&group.condition.cores) {
                counts.push(group.condition.cores);
            }
        }
        counts
    }

    /// The numbers of cores, for people.
    fn cores(&self) -> String {
        let counts = self.counts();
        match &counts[..] {
            [] | [1] => "one core".to_owned(),
            [one] => cores(*one),
            [most @ .., last] => {
                let most: Vec<String> = most.iter().map(ToString::to_string).collect();
                format!("{} and {}", most.join(", "), cores(*last))
            }
        }
    }

    fn first_cores(&self) -> String {
        cores(self.counts().first().copied().unwrap_or(1))
    }

    fn is_on_several(&self) -> bool {
        self.groups.iter().any(|g| g.condition.cores != 1)
    }

    fn style(&self, group: &Group) -> Style {
        let first = self.groups.iter().find(|g| g.condition.is_same_but_for_cores(&group.condition));
        let first_cores = first.map_or(1, |g| g.condition.cores);
        Style { per: self.per, several: self.is_on_several(), first_cores }
    }

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
    fn write(&self, f: &mut impl fmt::Write, style: Style) -> fmt::Result {
        let Style { per, several, first_cores } = style;
        let counts = self.load.block_bytes <= IOPS_BLOCK_BYTES_MAX;
        let mut heads: Vec<String> = HEADS.iter().map(ToString::to_string).collect();
        let title = format!("{}{}", self.load, self.condition);
        if several {
            writeln!(f, "{title}")?;
        } else {
            heads[0] = title;
        }
        let unit = if counts { "IOPS" } else { "MB/s" };
        heads[1] = if per == Per::CoreSecond { format!("{unit}/core") } else { unit.to_owned() };
        heads[2] = unit.to_owned();
        heads[10] = format!(": {}", cores(first_cores));
        let mut lines = vec![heads];
        lines.extend(self.rows.iter().map(|row| row.cells(counts, style)));
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
    fn cells(&self, counts: bool, style: Style) -> Vec<String> {
        let Style { per, several, .. } = style;
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
        let rate = |requests: f64| if counts { requests } else { requests * bytes_per_request / 1e6 };
        let optional = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.2}"));
        let written = figures.drive_bytes_per_host_byte.zip(self.drive_bytes_per_host_byte_min);
        vec![
            name,
            grouped(rate(requests_per_sec)),
            if several && per == Per::CoreSecond { grouped(rate(figures.iops)) } else { String::new() },
            optional(self.ratio),
            optional(self.limit),
            // The table is wide enough without.
            optional(self.ratio_per_data_drive.filter(|_| !several)),
            short(figures.latency_us_p50),
            short(figures.latency_us_p99),
            short(figures.latency_us_p999),
            figures.cpu_us_per_request.map_or(String::new(), |us| format!("{us:.2}")),
            optional(self.cpu_ratio_to_first_core_count),
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

    fn row(cpu_us_per_request: Option<f64>) -> Row {
        let figures = Figures {
            runs: 3,
            iops: 1_234_567.0,
            bytes_per_sec: 5e9,
            latency_us_mean: 1.2,
            latency_us_p50: 1.0,
            latency_us_p99: 20.0,
            latency_us_p999: 3000.0,
            cpu_us_per_request,
            cpu_share: cpu_us_per_request.map(|_| 0.99),
            drive_bytes_per_host_byte: None,
            spread: 0.1,
        };
        Row {
            subject: Subject::Direct,
            scheme: None,
            figures,
            ratio: Some(1.0),
            limit: Some(1.0),
            cpu_ratio_to_first_core_count: None,
            ratio_per_data_drive: None,
            drive_bytes_per_host_byte_min: None,
            unsteady: false,
        }
    }

    #[test]
    fn columns_align_and_empty_ones_go() {
        let load = Load::new(Pattern::RANDOM_READ, 4096, 64);
        let group = Group { load, condition: Condition::default(), rows: vec![row(None)] };
        let mut text = String::new();
        group.write(&mut text, Style { per: Per::Second, several: false, first_cores: 1 }).unwrap();
        assert_eq!(
            text,
            "4K random read, depth 64       IOPS  ratio  limit  p50 us  p99 us  p99.9 us\n  \
               direct drives           1,234,567   1.00   1.00     1.0      20     3,000\n"
        );
    }

    #[test]
    fn further_cores_stand_beside_the_first_ones() {
        let load = Load::new(Pattern::RANDOM_READ, 4096, 64);
        let group = |cores, ratio| Group {
            load,
            condition: Condition { cores, ..Condition::default() },
            rows: vec![Row { cpu_ratio_to_first_core_count: ratio, ..row(Some(1.25)) }],
        };
        let report = Report {
            drives: 8,
            drive_kind: "memory",
            drive_bytes: 512 << 20,
            working_set_bytes: 512 << 20,
            rounds: 3,
            seconds_each: 0.5,
            virtual_time: false,
            per: Per::CoreSecond,
            groups: vec![group(1, None), group(2, Some(1.5)), group(4, Some(1.75))],
        };
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("512 MiB worked on, 1, 2 and 4 cores, median of 3 rounds"), "{text}");
        assert_eq!(
            lines[6..9],
            [
                "4K random read, depth 64, 2 cores",
                "                 IOPS/core       IOPS  ratio  limit  p50 us  p99 us  p99.9 us  CPU us  : 1 core",
                "  direct drives    800,000  1,234,567   1.00   1.00     1.0      20     3,000    1.25      1.50",
            ]
        );
        assert!(text.contains(": 1 core: CPU us over that on 1 core in the same round"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["groups"][2]["condition"]["cores"], 4);
        assert_eq!(json["groups"][2]["rows"][0]["cpu_ratio_to_first_core_count"], 1.75);
    }
}
