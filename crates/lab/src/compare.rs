//! Results side by side: which cells may be compared, by how much they differ, and whether that is more than noise.
//!
//! Cells are matched by what makes a load (order, share of reads, block size, part of a larger test). Where both sides
//! tell a condition and it differs, the pair is shown without a difference, and the condition is named; where one side
//! does not tell it, the difference is shown with that said.

use serde::Serialize;

use crate::model::{Cell, Part, Run};
use crate::steady::variation;

/// All of it; the first result is what others are held against.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The results' names.
    pub names: Vec<String>,
    /// One for each cell of the first result that any other result has something for.
    pub lines: Vec<Line>,
    /// Cells of the first result that no other has anything for.
    pub alone: usize,
}

/// A cell of the first result, and what the others have for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The load.
    pub what: String,
    /// Whether values are IOPS; otherwise bytes a second.
    pub is_iops: bool,
    /// The first result's value.
    pub base: f64,
    /// Its cell.
    pub base_id: String,
    /// For each other result.
    pub others: Vec<Option<Pairing>>,
}

/// A cell of another result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pairing {
    /// Its name.
    pub id: String,
    /// Its value.
    pub value: f64,
    /// Why no difference is told.
    pub unlike: Vec<String>,
    /// What only one side tells.
    pub untold: Vec<String>,
    /// Value over the first result's, minus one; nothing where that one is zero.
    pub delta: Option<f64>,
    /// Whether the difference is more than noise.
    pub real: Real,
}

/// Whether a difference is more than noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Real {
    /// More than twice the pooled spread.
    Yes,
    /// Within it.
    Noise,
    /// At least one side does not tell its spread, or the first has a rate of zero.
    Unknown,
}

impl Real {
    /// What stands behind the difference.
    #[must_use]
    pub const fn remark(self) -> &'static str {
        match self {
            Real::Yes => "",
            Real::Noise => ", within the noise",
            Real::Unknown => ", spread unknown",
        }
    }
}

/// Compares `runs`, of which there are at least two.
pub fn compare(runs: &[Run]) -> Comparison {
    let names = runs.iter().map(|r| r.name.clone()).collect();
    let mut comparison = Comparison { names, lines: vec![], alone: 0 };
    let Some((first, others)) = runs.split_first() else { return comparison };
    for cell in &first.cells {
        let Some((is_iops, base)) = cell.headline() else { continue };
        let others: Vec<Option<Pairing>> = others.iter().map(|run| pairing(cell, is_iops, base, run)).collect();
        if others.iter().all(Option::is_none) {
            comparison.alone += 1;
            continue;
        }
        let what = format!("{}{}", cell.load.name(), part_name(cell));
        comparison.lines.push(Line { what, is_iops, base, base_id: cell.id.clone(), others });
    }
    comparison
}

/// What a cell is part of, as a few words after the name of its load.
pub fn part_name(cell: &Cell) -> String {
    match cell.part {
        Part::Alone | Part::Matrix => format!(", {}", cell.load.pressure()),
        Part::CurveMax => ", without a limit".to_owned(),
        Part::Curve { percent } => format!(", {percent} %"),
        Part::Round { number } => format!(", round {number}"),
        Part::Fill => ", fill".to_owned(),
        Part::Precondition => ", precondition".to_owned(),
        Part::Unallocated => ", unallocated".to_owned(),
        Part::Check => ", check".to_owned(),
        Part::OneOf { number } => format!(", {}, target {number} alone", cell.load.pressure()),
        Part::Together => format!(", {}", cell.load.pressure()),
        Part::States => format!(", {}", cell.subject.state),
    }
}

/// The cell of `run` that is most like `cell`.
fn pairing(cell: &Cell, is_iops: bool, base: f64, run: &Run) -> Option<Pairing> {
    let same = run.cells.iter().filter(|c| same_load(cell, c));
    let candidates = same.filter_map(|c| Some((c, differences(cell, c), value(c, is_iops)?)));
    let (other, (unlike, untold), value) =
        candidates.min_by_key(|(_, (unlike, untold), _)| (unlike.len(), untold.len()))?;
    let delta = (base > 0.0).then(|| value / base - 1.0);
    Some(Pairing {
        id: other.id.clone(),
        value,
        real: delta.map_or(Real::Unknown, |delta| real(cell, other, delta)),
        delta,
        unlike,
        untold,
    })
}

fn value(cell: &Cell, is_iops: bool) -> Option<f64> {
    if is_iops {
        let by_bytes = || Some(cell.figures.bytes_per_sec? / cell.load.block_bytes? as f64);
        cell.figures.iops.or_else(by_bytes)
    } else {
        cell.bytes_per_sec()
    }
}

fn same_load(a: &Cell, b: &Cell) -> bool {
    // The peak of a published curve is a cell of its own: it is the run without a limit.
    // So is that of a state in a review, or on modelled drives.
    let kind = |c: &Cell| if matches!(c.part, Part::CurveMax | Part::States) { Part::Alone } else { c.part };
    a.load.access == b.load.access
        && a.load.read_percent == b.load.read_percent
        && a.load.block_bytes == b.load.block_bytes
        && kind(a) == kind(b)
}

/// Conditions that both must tell.
const PRESSURE: [&str; 2] = ["threads", "depth"];

/// Conditions that differ, or must be told and are not; conditions that only one tells.
fn differences(a: &Cell, b: &Cell) -> (Vec<String>, Vec<String>) {
    fn text<T: ToString>(value: Option<T>) -> Option<String> {
        value.map(|v| v.to_string())
    }
    let conditions = [
        ("threads", text(a.load.threads), text(b.load.threads)),
        ("depth", text(a.load.depth), text(b.load.depth)),
        ("targets together", text(a.load.targets.or(Some(1))), text(b.load.targets.or(Some(1)))),
        ("hosts", text(a.load.hosts.or(Some(1))), text(b.load.hosts.or(Some(1)))),
        ("page cache", text(a.load.cached), text(b.load.cached)),
        ("percent of the target", text(a.load.slice_percent), text(b.load.slice_percent)),
        ("data", text(Some(data(a))), text(Some(data(b)))),
        ("state", text(Some(a.subject.state)), text(Some(b.subject.state))),
        ("level", a.subject.level.clone(), b.subject.level.clone()),
        ("drives", text(a.subject.drive_count), text(b.subject.drive_count)),
    ];
    let (mut unlike, mut untold) = (vec![], vec![]);
    for (name, a, b) in conditions {
        match (a, b) {
            (Some(a), Some(b)) if a != b => unlike.push(format!("{name}: {a} and {b}")),
            // Without its pressure a rate says nothing.
            (Some(a), None) if PRESSURE.contains(&name) => unlike.push(format!("{name}: {a} and unknown")),
            (None, Some(b)) if PRESSURE.contains(&name) => unlike.push(format!("{name}: unknown and {b}")),
            (Some(_), None) | (None, Some(_)) => untold.push(name.to_owned()),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    (unlike, untold)
}

/// Data in words; what nobody tells is taken for random.
fn data(cell: &Cell) -> String {
    cell.load.reducible.map_or("random".to_owned(), |shares| shares.to_string())
}

fn real(a: &Cell, b: &Cell, delta: f64) -> Real {
    match (spread(a), spread(b)) {
        (Some(a), Some(b)) if delta.abs() > 2.0 * ((a * a + b * b) / 2.0).sqrt() => Real::Yes,
        (Some(_), Some(_)) => Real::Noise,
        (None, _) | (_, None) => Real::Unknown,
    }
}

/// Spread of a cell: of five parts of its time against each other.
pub fn spread(cell: &Cell) -> Option<f64> {
    let parts = fifths(cell);
    if parts.len() < 5 { None } else { variation(&parts) }
}

/// Means over five equal parts of a cell's time; nothing when it has too few seconds.
pub fn fifths(cell: &Cell) -> Vec<f64> {
    let each = cell.series.len() / 5;
    if each == 0 {
        return vec![];
    }
    let skip = cell.series.len() - 5 * each;
    let seconds = cell.series[skip..].chunks_exact(each);
    seconds.map(|part| part.iter().map(|s| s.iops).sum::<f64>() / each as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Access, Load, Origin, Second, State};

    fn run(name: &str, iops: f64, change: impl Fn(&mut Cell)) -> Run {
        let mut run = Run::new(name, "", Origin::Measured);
        let mut cell = crate::published::run("perc12").unwrap().cells[0].clone();
        cell.load = Load {
            access: Some(Access::Random),
            read_percent: Some(100.0),
            block_bytes: Some(4096),
            threads: Some(4),
            depth: Some(8),
            slice_percent: Some(25.0),
            ..Load::default()
        };
        cell.figures.iops = Some(iops);
        cell.series = (0..10)
            .map(|i| Second { at: f64::from(i), iops: iops * (1.0 + f64::from(i % 3) / 50.0), mean_us: None })
            .collect();
        change(&mut cell);
        run.cells.push(cell);
        run
    }

    fn only(a: Run, b: Run) -> Pairing {
        compare(&[a, b]).lines[0].others[0].clone().unwrap()
    }

    #[test]
    fn differences_are_held_against_the_spread() {
        let base = || run("a", 1000.0, |_| {});
        assert_eq!(only(base(), run("b", 1001.0, |_| {})).real, Real::Noise);
        let twice = only(base(), run("b", 2000.0, |_| {}));
        assert_eq!((twice.real, twice.delta, twice.unlike.len()), (Real::Yes, Some(1.0), 0));
        assert_eq!(only(base(), run("b", 2000.0, |c| c.series.clear())).real, Real::Unknown);
    }

    #[test]
    fn nothing_differs_by_a_share_of_nothing() {
        let none = only(run("a", 0.0, |_| {}), run("b", 0.0, |_| {}));
        assert_eq!((none.real, none.delta), (Real::Unknown, None));
        assert_eq!(only(run("a", 0.0, |_| {}), run("b", 5.0, |_| {})).delta, None);
    }

    #[test]
    fn unlike_conditions_are_named() {
        let base = || run("a", 1000.0, |_| {});
        let other = only(
            base(),
            run("b", 1.0, |c| {
                c.load.depth = Some(64);
                c.load.slice_percent = Some(100.0);
                c.subject.state = State::Rebuilding;
                c.load.threads = None;
                c.load.cached = Some(false);
            }),
        );
        assert_eq!(other.unlike.len(), 4, "{:?}", other.unlike);
        assert_eq!(other.untold, vec!["page cache"]);
        let none = compare(&[base(), run("b", 1.0, |c| c.load.block_bytes = Some(8192))]);
        assert_eq!((none.lines.len(), none.alone), (0, 1));
    }
}
