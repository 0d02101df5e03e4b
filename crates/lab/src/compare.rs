//! Results side by side: which cells may be compared, by how much they differ, and whether that is more than noise.
//!
//! Cells are matched by what makes a load (order, share of reads, block size, part of a larger test). A number stands with
//! its verdict; one that failed is not compared. Where both sides tell a condition and it differs, the pair is shown
//! without a difference, and the condition is named; where one does not tell threads or depth, the ratio is shown with
//! "conditions unknown"; where it does not tell another one, the difference is shown with that said. Points of a curve are
//! at shares of each side's own maximum, so they are not compared: the chart shows them.

use serde::Serialize;

use crate::findings::{Build, noun};
use crate::model::{Cell, Latency, Part, Run, State, Verdict};
use crate::steady::variation;

/// All of it; the first result is what others are held against.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The results' names.
    pub names: Vec<String>,
    /// One for each cell of the first result that any other result has something for.
    pub lines: Vec<Line>,
    /// What each keeps of its optimal rate in other states, where at least two results tell.
    pub kept: Vec<Kept>,
    /// Cells of the first result that no other has anything for; points of curves are not counted.
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
    /// The verdict of that cell.
    pub base_verdict: Verdict,
    /// The value over its drives, when they are counted.
    pub base_per_drive: Option<f64>,
    /// Its latency.
    pub base_latency: Latency,
    /// Whether there was one request at a time: then the latency is the number.
    pub lone: bool,
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
    /// Its verdict.
    pub verdict: Verdict,
    /// The value over its drives, when they are counted.
    pub per_drive: Option<f64>,
    /// Its latency.
    pub latency: Latency,
    /// Why no difference is told: a side failed, or conditions differ.
    pub unlike: Vec<String>,
    /// Which of threads and depth a side does not tell: then there is only a ratio.
    pub unknown: Vec<String>,
    /// What only one side tells.
    pub untold: Vec<String>,
    /// Value over the first result's, minus one; nothing where that one is zero, or conditions are unlike or unknown.
    pub delta: Option<f64>,
    /// Value over the first result's, where conditions are unknown.
    pub ratio: Option<f64>,
    /// The same for each drive, where both count them and their numbers differ.
    pub ratio_per_drive: Option<f64>,
    /// Whether the difference is more than noise.
    pub real: Real,
}

/// What results keep of their optimal rates, from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kept {
    /// The load and the state.
    pub what: String,
    /// For each result.
    pub shares: Vec<Option<f64>>,
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

impl Pairing {
    /// What came of it, in a few words; of `base_latency` when latencies are told by both.
    pub fn judgement(&self, base_latency: &Latency) -> String {
        let mut words = vec![];
        if !self.unlike.is_empty() {
            words.push(format!("not comparable: {}", self.unlike.join("; ")));
        } else if !self.unknown.is_empty() {
            let ratio = self.ratio.map_or("no ratio to zero".to_owned(), |r| format!("{r:.2} times"));
            words.push(format!("{ratio}, conditions unknown: {}", self.unknown.join(", ")));
        } else {
            let remark = self.real.remark();
            words.push(self.delta.map_or("no ratio to zero".to_owned(), |d| format!("{}{remark}", change(1.0 + d, 1))));
        }
        // Said once: beside the first ratio that it holds of.
        let unknown = if self.ratio.is_none() && !self.unknown.is_empty() {
            format!(", conditions unknown: {}", self.unknown.join(", "))
        } else {
            String::new()
        };
        words.extend(self.ratio_per_drive.map(|r| format!("{r:.2} times for each drive{unknown}")));
        if self.unlike.is_empty() {
            for (name, a, b) in [
                ("mean", base_latency.mean_us, self.latency.mean_us),
                ("p99", base_latency.p99_us, self.latency.p99_us),
            ] {
                if let (Some(a), Some(b)) = (a.filter(|a| *a > 0.0), b) {
                    words.push(format!("{name} {}", change(b / a, 0)));
                }
            }
        }
        if !self.untold.is_empty() {
            words.push(format!("known of one side only: {}", self.untold.join(", ")));
        }
        words.join("; ")
    }
}

/// A ratio as large as this is said as a number of times.
const TIMES_MIN: f64 = 3.0;

/// A ratio as a change in per cent, or a number of times where it is large.
fn change(ratio: f64, digits: usize) -> String {
    if ratio >= TIMES_MIN { format!("{ratio:.1} times") } else { format!("{:+.digits$} %", (ratio - 1.0) * 100.0) }
}

/// Names several results, which lie at `places`, so that each is told from the others: by its system, where each is of one and all of
/// these differ, as when one suite ran on several; otherwise by its place.
pub fn tell_apart(runs: &mut [Run], places: &[String]) {
    let system = |run: &Run| {
        let first = &run.cells.first()?.subject.system;
        let is_one = !first.is_empty() && run.cells.iter().all(|c| c.subject.system == *first);
        is_one.then(|| first.clone())
    };
    let systems: Option<Vec<String>> = runs.iter().map(system).collect();
    let differ = |all: &Vec<String>| all.iter().enumerate().all(|(n, name)| !all[..n].contains(name));
    let is_one_suite = runs.windows(2).all(|two| two[0].name == two[1].name);
    match systems.filter(|all| is_one_suite && differ(all)) {
        Some(systems) => runs.iter_mut().zip(systems).for_each(|(run, system)| run.name = system),
        None => runs.iter_mut().zip(places).for_each(|(run, place)| run.name = format!("{} ({place})", run.name)),
    }
}

/// Compares `runs`, of which there are at least two.
pub fn compare(runs: &[Run]) -> Comparison {
    let names = runs.iter().map(|r| r.name.clone()).collect();
    let mut comparison = Comparison { names, lines: vec![], kept: kept(runs), alone: 0 };
    let Some((first, others)) = runs.split_first() else { return comparison };
    for cell in first.cells.iter().filter(|c| !matches!(c.part, Part::Curve { .. })) {
        let Some((is_iops, base)) = cell.headline() else { continue };
        let others: Vec<Option<Pairing>> = others.iter().map(|run| pairing(cell, is_iops, base, run)).collect();
        if others.iter().all(Option::is_none) {
            comparison.alone += 1;
            continue;
        }
        comparison.lines.push(Line {
            what: what(cell),
            is_iops,
            base,
            base_id: cell.id.clone(),
            base_verdict: cell.verdict(),
            base_per_drive: per_drive(cell, base),
            base_latency: cell.figures.latency,
            lone: cell.load.outstanding() == Some(1.0),
            others,
        });
    }
    comparison
}

/// "4K random reads, RAID5, 8 drives, 64 x 64".
fn what(cell: &Cell) -> String {
    let build = Build::of(cell).text();
    let build = if build.is_empty() { String::new() } else { format!(", {build}") };
    // Conditions that are not told are named beside the ratio.
    let part = part_name(cell).replace(", unknown", "");
    format!("{}{build}{part}", noun(cell))
}

fn per_drive(cell: &Cell, value: f64) -> Option<f64> {
    cell.subject.drive_count.filter(|n| *n > 0).map(|n| value / f64::from(n))
}

/// What each result keeps in each state: the smallest share where several builds tell.
fn kept(runs: &[Run]) -> Vec<Kept> {
    let mut all: Vec<Kept> = vec![];
    for (nth, run) in runs.iter().enumerate() {
        let stands = |c: &&Cell| c.verdict() != Verdict::Fail && matches!(c.part, Part::States | Part::Alone);
        for cell in run.cells.iter().filter(stands).filter(|c| c.subject.state != State::Optimal) {
            let is_whole = |c: &&Cell| {
                let same = (&c.subject.level, c.subject.drive_count) == (&cell.subject.level, cell.subject.drive_count);
                c.subject.state == State::Optimal && c.load == cell.load && c.test == cell.test && same
            };
            let Some((is_iops, value)) = cell.headline() else { continue };
            let optimal = run.cells.iter().filter(stands).find(is_whole).and_then(|c| self::value(c, is_iops));
            let Some(share) = optimal.filter(|n| *n > 0.0).map(|n| value / n) else { continue };
            let level = cell.subject.level.as_ref().map_or(String::new(), |l| format!(", {l}"));
            let what = format!("{}{level}, {}", noun(cell), cell.subject.state);
            let at = all.iter().position(|k| k.what == what).unwrap_or_else(|| {
                all.push(Kept { what, shares: vec![None; runs.len()] });
                all.len() - 1
            });
            let known = &mut all[at].shares[nth];
            *known = Some(known.map_or(share, |k| k.min(share)));
        }
    }
    all.retain(|k| k.shares.iter().flatten().count() > 1);
    all
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
        Part::Unallocated => format!(", unallocated, {}", cell.load.pressure()),
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
    let (other, Differences { mut unlike, unknown, untold }, value) =
        candidates.min_by_key(|(_, d, _)| (d.unlike.len(), d.unknown.len(), d.untold.len()))?;
    for (whose, failed) in [("the first", cell), ("this", other)] {
        let checks: Vec<String> =
            failed.gates.iter().filter(|g| g.verdict == Verdict::Fail).map(|g| g.check.to_string()).collect();
        if !checks.is_empty() {
            unlike.push(format!("{whose} is FAIL ({})", checks.join(", ")));
        }
    }
    let ratio = (base > 0.0).then(|| value / base);
    let delta = ratio.filter(|_| unlike.is_empty() && unknown.is_empty()).map(|r| r - 1.0);
    let (each, base_each) = (per_drive(other, value), per_drive(cell, base));
    let other_count = cell.subject.drive_count != other.subject.drive_count;
    let stands = cell.verdict() != Verdict::Fail && other.verdict() != Verdict::Fail;
    let ratio_per_drive = each.zip(base_each).filter(|(_, b)| other_count && stands && *b > 0.0).map(|(a, b)| a / b);
    Some(Pairing {
        id: other.id.clone(),
        value,
        verdict: other.verdict(),
        per_drive: each,
        latency: other.figures.latency,
        real: delta.map_or(Real::Unknown, |delta| real(cell, other, delta)),
        delta,
        ratio: ratio.filter(|_| unlike.is_empty() && !unknown.is_empty()),
        ratio_per_drive,
        unlike,
        unknown,
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
        // What does not tell its shares or its block is only what it is called.
        && ((a.load.read_percent.is_some() && a.load.block_bytes.is_some()) || a.test == b.test)
        && kind(a) == kind(b)
}

/// Conditions that both must tell.
const PRESSURE: [&str; 2] = ["threads", "depth"];

/// How conditions differ.
#[derive(Debug, Default)]
struct Differences {
    /// Both tell, and they differ.
    unlike: Vec<String>,
    /// Threads or depth, which at least one does not tell.
    unknown: Vec<String>,
    /// Others, which only one tells.
    untold: Vec<String>,
}

fn differences(a: &Cell, b: &Cell) -> Differences {
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
    let mut found = Differences::default();
    for (name, a, b) in conditions {
        match (a, b) {
            (Some(a), Some(b)) if a != b => found.unlike.push(format!("{name}: {a} and {b}")),
            // Without its pressure a rate says little.
            (a, b) if PRESSURE.contains(&name) && (a.is_none() || b.is_none()) => found.unknown.push(name.to_owned()),
            (Some(_), None) | (None, Some(_)) => found.untold.push(name.to_owned()),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    found
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
    fn results_of_one_suite_are_named_by_their_systems() {
        let of = |suite: &str, system: &str| run(suite, 1.0, |c| system.clone_into(&mut c.subject.system));
        let named = |mut runs: Vec<Run>| {
            let places: Vec<String> = (0..runs.len()).map(|n| format!("d{n}")).collect();
            tell_apart(&mut runs, &places);
            runs.into_iter().map(|run| run.name).collect::<Vec<_>>()
        };
        assert_eq!(named(vec![of("s", "NBD"), of("s", "ublk")]), ["NBD", "ublk"]);
        assert_eq!(named(vec![of("s", "NBD"), of("s", "NBD")]), ["s (d0)", "s (d1)"]);
        assert_eq!(named(vec![of("s", "NBD"), of("s", "")]), ["s (d0)", "s (d1)"]);
        assert_eq!(named(vec![of("s", "NBD"), of("t", "ublk")]), ["s (d0)", "t (d1)"]);
    }

    #[test]
    fn lines_of_one_load_differ_by_its_depth_and_large_changes_are_times() {
        let unallocated = |depth| {
            move |c: &mut Cell| {
                c.part = Part::Unallocated;
                (c.load.threads, c.load.depth) = (Some(1), Some(depth));
            }
        };
        let both = |iops: f64| {
            let mut all = run("a", iops, unallocated(1));
            all.cells.extend(run("a", iops, unallocated(32)).cells);
            all
        };
        let compared = compare(&[both(100.0), both(1000.0)]);
        assert_eq!(compared.lines.len(), 2);
        assert!(compared.lines[1].what.ends_with(", unallocated, 1 x 32"), "{}", compared.lines[1].what);
        let words = compared.lines[0].others[0].as_ref().unwrap().judgement(&Latency::default());
        assert_eq!(words, "10.0 times");
        assert_eq!(
            (change(0.5, 1), change(2.9, 0), change(3.0, 0)),
            ("-50.0 %".into(), "+190 %".into(), "3.0 times".into())
        );
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
        assert_eq!(other.unlike.len(), 3, "{:?}", other.unlike);
        assert_eq!((other.unknown, other.untold), (vec!["threads".to_owned()], vec!["page cache".to_owned()]));
        assert_eq!((other.delta, other.ratio), (None, None));
        let none = compare(&[base(), run("b", 1.0, |c| c.load.block_bytes = Some(8192))]);
        assert_eq!((none.lines.len(), none.alone), (0, 1));
    }

    #[test]
    fn what_failed_is_not_compared_and_unknown_conditions_leave_a_ratio() {
        let fail = |c: &mut Cell| c.gates = vec![crate::model::Gate::fail(crate::model::Check::Written, "never")];
        for (a, b) in
            [(run("a", 1000.0, fail), run("b", 2000.0, |_| {})), (run("a", 1000.0, |_| {}), run("b", 2000.0, fail))]
        {
            let pair = only(a, b);
            assert!(pair.delta.is_none() && pair.unlike[0].contains("FAIL (written)"), "{pair:?}");
        }
        let depthless = |c: &mut Cell| {
            c.load.depth = None;
            c.subject.drive_count = Some(16);
        };
        let pair = only(run("a", 1000.0, |c| c.load.depth = None), run("b", 3000.0, depthless));
        assert_eq!((pair.unknown.len(), pair.delta, pair.ratio_per_drive), (1, None, Some(1.5)));
        assert!(pair.unlike[0].starts_with("drives"), "{pair:?}");
        let words = pair.judgement(&Latency::default());
        assert!(words.contains("1.50 times for each drive, conditions unknown: depth"), "{words}");
        let same = |c: &mut Cell| c.load.depth = None;
        let pair = only(run("a", 1000.0, same), run("b", 3000.0, same));
        assert_eq!((pair.ratio, pair.delta), (Some(3.0), None));
        assert!(pair.judgement(&Latency::default()).contains("3.00 times, conditions unknown: depth"));
    }

    #[test]
    fn latencies_are_compared_and_points_of_curves_are_not() {
        let slow = |us: f64| move |c: &mut Cell| c.figures.latency.p99_us = Some(us);
        let compared = compare(&[run("a", 1000.0, slow(100.0)), run("b", 1000.0, slow(150.0))]);
        let line = &compared.lines[0];
        let words = line.others[0].as_ref().unwrap().judgement(&line.base_latency);
        assert!(words.contains("p99 +50 %"), "{words}");
        let point = |c: &mut Cell| c.part = Part::Curve { percent: 10 };
        let compared = compare(&[run("a", 1000.0, point), run("b", 1000.0, point)]);
        assert_eq!((compared.lines.len(), compared.alone), (0, 0));
    }

    #[test]
    fn a_review_is_held_against_another_by_ratio_and_by_drive() {
        let runs = [crate::published::run("perc11").unwrap(), crate::published::run("perc12").unwrap()];
        let compared = compare(&runs);
        let told = compared.lines.iter().flat_map(|l| l.others.iter().flatten());
        let ratios = told.filter(|p| p.ratio.is_some() || p.ratio_per_drive.is_some()).count();
        assert!(ratios >= 5, "{compared:#?}");
    }

    #[test]
    fn what_states_keep_is_set_side_by_side() {
        let runs = [crate::published::run("perc12").unwrap(), crate::published::run("perc12").unwrap()];
        let kept = compare(&runs).kept;
        let oltp = kept.iter().find(|k| k.what.contains("OLTP, RAID5, rebuilding")).unwrap();
        assert!(oltp.shares.iter().all(|s| (s.unwrap() - 0.092).abs() < 0.001), "{oltp:?}");
    }
}
