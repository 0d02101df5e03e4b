//! The numbers that people ask for first, all of one configuration of one system.

use super::about::{About, Build, Unit, is_optimal};
use crate::model::{Access, Cell};

/// A number.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// What people ask for: "random read".
    pub name: &'static str,
    /// Its cell.
    pub id: String,
    /// Its unit; of lone requests the latency is the number.
    pub unit: Unit,
    /// Its value in that unit.
    pub value: f64,
    /// Whether it is of one request at a time.
    pub lone: bool,
}

/// A load that people ask for, and how it is recognised.
type Wanted = (&'static str, fn(&Cell) -> bool);

fn is(cell: &Cell, access: Access, reads: std::ops::RangeInclusive<f64>) -> bool {
    cell.load.access == Some(access) && cell.load.read_percent.is_some_and(|p| reads.contains(&p))
}

fn is_lone(cell: &Cell) -> bool {
    cell.load.outstanding() == Some(1.0) && cell.figures.latency.mean_us.is_some()
}

const RANDOM: [Wanted; 4] = [
    ("random read", |c| is(c, Access::Random, 100.0..=100.0)),
    ("random write", |c| is(c, Access::Random, 0.0..=0.0)),
    ("random mix", |c| {
        c.load.access == Some(Access::Random) && c.load.read_percent.is_none_or(|p| p > 0.0 && p < 100.0)
    }),
    ("one request at a time", is_lone),
];

const SEQUENTIAL: [Wanted; 2] = [
    ("sequential read", |c| is(c, Access::Sequential, 100.0..=100.0)),
    ("sequential write", |c| is(c, Access::Sequential, 0.0..=0.0)),
];

/// The best of each; random loads in the unit of the result, sequential ones as bandwidth.
pub fn of(about: &About<'_>) -> Vec<Number> {
    let mut builds: Vec<(Build, usize)> = vec![];
    for cell in about.cells.iter().filter(|c| is_optimal(c)) {
        let build = Build::of(cell);
        match builds.iter_mut().find(|(b, _)| *b == build) {
            Some((_, n)) => *n += 1,
            None => builds.push((build, 1)),
        }
    }
    let most = builds.iter().map(|(_, n)| *n).max();
    let Some(build) = builds.into_iter().find(|(_, n)| Some(*n) == most).map(|(b, _)| b) else { return vec![] };
    let here = || about.cells.iter().copied().filter(|c| is_optimal(c) && Build::of(c) == build);
    let best = |wanted: &Wanted, unit: Unit| {
        let lone = wanted.0 == "one request at a time";
        let fits = here().filter(|c| wanted.1(c) && (lone || Unit::of(c) == Some(unit)));
        let cell = fits.max_by(|a, b| unit.value(a).unwrap_or(0.0).total_cmp(&unit.value(b).unwrap_or(0.0)))?;
        Some(Number { name: wanted.0, id: cell.id.clone(), unit, value: unit.value(cell)?, lone })
    };
    let random = RANDOM.iter().filter_map(|w| best(w, about.unit));
    random.chain(SEQUENTIAL.iter().filter_map(|w| best(w, Unit::Bytes))).collect()
}
