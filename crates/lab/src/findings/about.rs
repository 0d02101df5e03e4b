//! What a result is about: the system that most of its cells are of, and the unit that its random loads are told in.

use crate::model::{Access, Cell, Part, Run, State, Verdict};
use crate::units::{rate, si};

/// What a rate is told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Requests a second.
    Iops,
    /// Bytes a second.
    Bytes,
}

impl Unit {
    /// The unit that a cell is drawn in.
    pub fn of(cell: &Cell) -> Option<Unit> {
        cell.headline().map(|(is_iops, _)| if is_iops { Unit::Iops } else { Unit::Bytes })
    }

    /// A cell's rate in this unit, printed or by its block size.
    pub fn value(self, cell: &Cell) -> Option<f64> {
        match self {
            Unit::Bytes => cell.bytes_per_sec(),
            Unit::Iops => {
                let reckoned = || Some(cell.figures.bytes_per_sec? / cell.load.block_bytes? as f64);
                cell.figures.iops.or_else(reckoned)
            }
        }
    }

    /// "863 k of 5.97 M IOPS": two rates with a word between, the unit once.
    pub fn both(self, value: f64, between: &str, other: f64) -> String {
        match self {
            Unit::Iops => format!("{} {between} {} IOPS", si(value), si(other)),
            Unit::Bytes => {
                let (one, two) = (rate(value), rate(other));
                let unit = |text: &str| text.rsplit(' ').next().map(str::to_owned);
                match one.rsplit_once(' ') {
                    Some((number, _)) if unit(&one) == unit(&two) => format!("{number} {between} {two}"),
                    _ => format!("{one} {between} {two}"),
                }
            }
        }
    }

    /// "3.14 M IOPS", "176 GB/s".
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Iops => format!("{} IOPS", si(value)),
            Unit::Bytes => rate(value),
        }
    }
}

/// A system in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Build {
    /// Drives.
    pub drives: Option<u32>,
    /// Controllers.
    pub controllers: Option<u32>,
    /// RAID level.
    pub level: Option<String>,
}

impl Build {
    /// Of a cell.
    pub fn of(cell: &Cell) -> Build {
        let subject = &cell.subject;
        Build { drives: subject.drive_count, controllers: subject.controller_count, level: subject.level.clone() }
    }

    /// "RAID5, 16 drives, 2 controllers"; what is not known is left out.
    pub fn text(&self) -> String {
        let mut words: Vec<String> = vec![];
        words.extend(self.level.clone());
        words.extend(self.drives.map(|n| count_of(n, "drive")));
        words.extend(self.controllers.filter(|n| *n > 0).map(|n| count_of(n, "controller")));
        words.join(", ")
    }
}

/// "1 drive", "8 drives".
pub fn count_of(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The first words of a long name: up to a bracket or a comma.
pub fn short(name: &str) -> String {
    name.split(" (").next().unwrap_or(name).split(", ").next().unwrap_or(name).to_owned()
}

/// A result, seen from the system that it is about.
pub struct About<'a> {
    /// The system.
    pub system: Option<&'a str>,
    /// The unit of its random loads.
    pub unit: Unit,
    /// Its cells that may be quoted: none that failed, no points of a curve, no rounds, and none at a rate that was asked for
    /// where others tell what it can do.
    pub cells: Vec<&'a Cell>,
    /// Such cells of other systems.
    pub others: Vec<&'a Cell>,
}

impl<'a> About<'a> {
    /// Of a result.
    pub fn of(run: &'a Run) -> About<'a> {
        let mut systems: Vec<(&str, usize)> = vec![];
        for cell in run.cells.iter().filter(|c| c.may_stand() && c.part != Part::Together) {
            match systems.iter_mut().find(|(name, _)| *name == cell.subject.system) {
                Some((_, count)) => *count += 1,
                None => systems.push((&cell.subject.system, 1)),
            }
        }
        // Of two with as many cells the first counts.
        let most = systems.iter().map(|(_, n)| *n).max();
        let system = systems.iter().find(|(_, n)| Some(*n) == most).map(|(name, _)| *name);
        let is_paced = |c: &&Cell| c.asked_iops.is_some();
        let has_free = run.cells.iter().filter(|c| is_quotable(c)).any(|c| !is_paced(&c));
        let quotable = run.cells.iter().filter(|c| is_quotable(c)).filter(|c| !(has_free && is_paced(c)));
        let (cells, others): (Vec<&Cell>, Vec<&Cell>) =
            quotable.partition(|c| Some(c.subject.system.as_str()) == system);
        let random = cells.iter().filter(|c| c.load.access == Some(Access::Random));
        let units: Vec<Unit> = random.filter_map(|c| Unit::of(c)).collect();
        let of_requests = units.iter().filter(|u| **u == Unit::Iops).count();
        let unit = if !units.is_empty() && 2 * of_requests >= units.len() { Unit::Iops } else { Unit::Bytes };
        About { system, unit, cells, others }
    }

    /// Its cells that are drawn in its unit.
    pub fn told(&self) -> impl Iterator<Item = &'a Cell> + '_ {
        self.cells.iter().copied().filter(|c| Unit::of(c) == Some(self.unit))
    }

    /// A cell's rate in its unit.
    pub fn value(&self, cell: &Cell) -> f64 {
        self.unit.value(cell).unwrap_or(0.0)
    }
}

pub fn is_quotable(cell: &Cell) -> bool {
    let of_its_own = !matches!(cell.part, Part::Curve { .. } | Part::Round { .. } | Part::Together);
    cell.may_stand() && of_its_own && cell.verdict() != Verdict::Fail && cell.headline().is_some_and(|(_, n)| n > 0.0)
}

/// "4K random reads", "4K OLTP": the load of a cell as a noun.
pub fn noun(cell: &Cell) -> String {
    match cell.load.read_percent {
        Some(0.0 | 100.0) => format!("{}s", cell.load.name()),
        // What a mix is called says more than its shares.
        Some(_) | None if !cell.test.is_empty() => cell.test.clone(),
        Some(_) | None => cell.load.name(),
    }
}

/// Reads, then writes, then mixes; random before sequential; small blocks first.
pub fn order(cell: &Cell) -> (bool, u8, u64) {
    let kind = match cell.load.read_percent {
        Some(100.0) => 0,
        Some(0.0) => 1,
        Some(_) | None => 2,
    };
    (cell.load.access == Some(Access::Sequential), kind, cell.load.block_bytes.unwrap_or(u64::MAX))
}

/// Whether two cells have the very same load; the peak of a curve is none of a plain load.
pub fn same_load(a: &Cell, b: &Cell) -> bool {
    a.load == b.load && noun(a) == noun(b) && (a.part == Part::CurveMax) == (b.part == Part::CurveMax)
}

/// The largest of cells with one load, one build and one state.
pub fn best<'a>(about: &About<'_>, cells: impl Iterator<Item = &'a Cell>) -> Option<&'a Cell> {
    // Of two with one rate that with the shorter tail: deeper queues add nothing but waiting.
    let tail = |c: &Cell| c.figures.latency.p99_us.unwrap_or(f64::MAX);
    cells.max_by(|a, b| about.value(a).total_cmp(&about.value(b)).then(tail(b).total_cmp(&tail(a))))
}

/// Whether an array is whole.
pub fn is_optimal(cell: &Cell) -> bool {
    cell.subject.state == State::Optimal
}

/// "a", "a and b", "a, b and c".
pub fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
