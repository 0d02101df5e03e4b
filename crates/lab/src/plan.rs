//! A suite on one target: its cells in their order, the time and the bytes that it will write, before anything starts.

use serde::{Deserialize, Serialize};

use crate::bench;
use crate::exported;
use crate::fio::Pace;
use crate::hosts;
use crate::model::{Load, Pair, Part};
use crate::steady::{ROUNDS_MAX, WINDOW};
use crate::suite::{Kind, Slice, Suite, Test};
use crate::target::{Kind as TargetKind, Target};
use crate::together;

/// What the user may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// Time that there is; tests that do not fit are left out.
    pub budget_seconds: Option<f64>,
    /// Smaller writes are left out: they would wear a drive out and measure its unit.
    pub write_bytes_min: Option<u64>,
    /// Rate that unknown writes are reckoned with, in bytes a second.
    pub write_bytes_per_sec: Option<f64>,
    /// The array can be failed and rebuilt.
    pub array_control: bool,
    /// Hosts that make the loads; 0: this machine does.
    pub hosts: u32,
    /// Targets, where they are several.
    pub targets: u32,
    /// Bytes of the smallest of these.
    pub bytes_max: Option<u64>,
}

/// Rate that unknown writes are reckoned with when nobody says: of a common NVMe drive.
pub const WRITE_BYTES_PER_SEC: f64 = 2e9;
/// Time that starting and ending fio takes, each cell.
const OVERHEAD_SECONDS: f64 = 1.5;
/// Time that failing and replacing a drive may take, all in all.
const ACTIONS_SECONDS: f64 = 600.0;
/// A histogram of fio in its memory: 1,856 counters of 8 bytes.
const HISTOGRAM_BYTES: f64 = 14_848.0;
/// All of them, at most.
const HISTOGRAMS_BYTES_MAX: f64 = 512e6;
/// Ranges begin and end at this.
const ALIGN_BYTES: u64 = 1 << 20;

/// A cell to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name, which is the cell's.
    pub id: String,
    /// The test.
    pub test: String,
    /// What it is part of.
    pub part: Part,
    /// Which of the run's targets, from 0; together it is all of them.
    #[serde(default)]
    pub target: u32,
    /// Its load.
    pub load: Load,
    /// Seconds measured; of a fill a guess.
    pub seconds: f64,
    /// Seconds before that.
    pub ramp_seconds: f64,
    /// Seconds that a rebuild is waited for.
    pub rebuild_seconds: f64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Cells, in their order.
    pub steps: Vec<Step>,
    /// Tests that are not run, and why.
    pub not_run: Vec<Pair>,
    /// Rate that unknown writes were reckoned with.
    pub write_bytes_per_sec: f64,
    /// The drives are a model's: nothing is worn.
    pub is_modelled: bool,
}

impl Step {
    /// How fio is to pace it; `iops_max` is that of a point of a curve.
    pub fn pace(&self, iops_max: Option<f64>) -> Pace {
        let pace = Pace {
            seconds: self.seconds,
            ramp_seconds: self.ramp_seconds,
            iops_max,
            once: self.is_once(),
            histogram_seconds: None,
        };
        if self.part != Part::States {
            return pace;
        }
        // It is ended when the array has been through all states. fio keeps every histogram in memory until then.
        let most = self.seconds_all() + self.rebuild_seconds + ACTIONS_SECONDS;
        let bytes = most * f64::from(self.load.threads.unwrap_or(1)) * HISTOGRAM_BYTES;
        let histogram_seconds = Some((bytes / HISTOGRAMS_BYTES_MAX).ceil().max(1.0) as u32);
        Pace { seconds: most, ramp_seconds: 0.0, histogram_seconds, ..pace }
    }

    /// Whether it ends when the range was gone through once.
    pub fn is_once(&self) -> bool {
        matches!(self.part, Part::Fill | Part::Check)
    }

    /// About how long it takes.
    pub fn seconds_all(&self) -> f64 {
        // Optimal, degraded and rebuilt; how long rebuilding takes, nobody knows.
        let times = if self.part == Part::States { 3.0 } else { 1.0 };
        times * self.seconds + self.ramp_seconds + OVERHEAD_SECONDS
    }

    /// Whether it may turn out not to be needed.
    pub fn is_perhaps(&self) -> bool {
        matches!(self.part, Part::Round { number } if number as usize > WINDOW)
    }
}

impl Plan {
    /// Plans.
    pub fn of(suite: &Suite, target: &Target, wishes: Wishes) -> Plan {
        let rate = wishes.write_bytes_per_sec.unwrap_or(WRITE_BYTES_PER_SEC);
        let is_modelled = target.kind == TargetKind::Model;
        let mut plan = Plan { steps: vec![], not_run: vec![], write_bytes_per_sec: rate, is_modelled };
        plan.not_run
            .extend(suite.not_here.iter().map(|what| Pair::new(what.split(':').next().unwrap_or_default(), what)));
        let mut left = wishes.budget_seconds.unwrap_or(f64::INFINITY);
        for (nth, test) in suite.test.iter().enumerate() {
            if let Some(least) = wishes.write_bytes_min.filter(|least| test.writes() && test.block < *least) {
                let why = format!("not run: writes of {} are below the indirection unit of {least}", test.block);
                plan.not_run.push(Pair::new(&test.name, why));
                continue;
            }
            let needs_control = test.kind == Kind::States && wishes.hosts == 0 && wishes.targets < 2;
            if needs_control && !wishes.array_control && target.kind != TargetKind::Model {
                let why = "not run: nothing controls the array; give --array, or the --hook options";
                plan.not_run.push(Pair::new(&test.name, why));
                continue;
            }
            let range = range(test.slice, target.bytes.min(wishes.bytes_max.unwrap_or(u64::MAX)));
            if range < test.block {
                plan.not_run.push(Pair::new(&test.name, "not run: the range is smaller than a request"));
                continue;
            }
            let mut steps = steps(nth + 1, test, range, rate);
            steps.iter_mut().for_each(|s| s.load.checksums = suite.checks() && wishes.hosts == 0);
            if wishes.targets > 1 {
                steps = match together::steps(steps, wishes.targets) {
                    Ok(steps) => steps,
                    Err(why) => {
                        plan.not_run.push(Pair::new(&test.name, format!("not run: {why}")));
                        continue;
                    }
                };
            }
            if wishes.hosts > 0 {
                if let Some(why) = steps.iter().find_map(|s| hosts::refuses(s.part, &s.load)) {
                    plan.not_run.push(Pair::new(&test.name, format!("not run: {why}")));
                    continue;
                }
                let shared = steps.iter_mut().filter(|s| hosts::share(s.part));
                shared.for_each(|s| s.load.hosts = Some(wishes.hosts));
            }
            if target.kind == TargetKind::Model {
                let refused = steps.iter().find_map(|s| bench::refuses(target, s.part, &s.load));
                if let Some(why) = refused {
                    plan.not_run.push(Pair::new(&test.name, format!("not run: {why}")));
                    continue;
                }
                steps.iter_mut().for_each(|s| (s.seconds, s.ramp_seconds) = (bench::SECONDS, 0.0));
            }
            if target.kind == TargetKind::Nvme {
                if let Some(why) = steps.iter().find_map(|s| exported::refuses(s.part, &s.load)) {
                    plan.not_run.push(Pair::new(&test.name, format!("not run: {why}")));
                    continue;
                }
                steps.iter_mut().for_each(|s| s.load.checksums = false);
            }
            let seconds: f64 = steps.iter().filter(|s| !s.is_perhaps()).map(Step::seconds_all).sum();
            if seconds > left {
                let why = format!("not run: {} do not fit the budget", crate::units::time(seconds));
                plan.not_run.push(Pair::new(&test.name, why));
                continue;
            }
            left -= seconds;
            plan.steps.extend(steps);
        }
        plan
    }

    /// Seconds, at least and at most.
    pub fn seconds(&self) -> (f64, f64) {
        let all: f64 = self.steps.iter().map(Step::seconds_all).sum();
        let sure: f64 = self.steps.iter().filter(|s| !s.is_perhaps()).map(Step::seconds_all).sum();
        (sure, all)
    }

    /// Bytes that fills write, exactly; bytes that timed writes write at the reckoned rate, at most.
    pub fn written_bytes(&self) -> (u64, u64) {
        let fills = self.steps.iter().filter(|s| s.part == Part::Fill);
        let exact = fills.filter_map(|s| s.load.range_bytes).sum();
        let timed = self.steps.iter().filter(|s| s.part != Part::Fill && s.load.writes());
        let seconds: f64 = timed
            .map(|s| {
                let share = 1.0 - s.load.read_percent.unwrap_or(0.0) / 100.0;
                let part = if let Part::Curve { percent } = s.part { f64::from(percent.min(100)) / 100.0 } else { 1.0 };
                (s.seconds_all() - OVERHEAD_SECONDS) * share * part * f64::from(s.load.targets.unwrap_or(1))
            })
            .sum();
        (exact, (seconds * self.write_bytes_per_sec) as u64)
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        !self.is_modelled && self.steps.iter().any(|s| s.load.writes())
    }
}

/// Bytes worked on.
fn range(slice: Slice, bytes: u64) -> u64 {
    let wanted = match slice {
        Slice::Percent(percent) => (bytes as f64 * percent / 100.0) as u64,
        Slice::Bytes(wanted) => wanted.min(bytes),
    };
    // A target below one unit is used as it is.
    if wanted >= ALIGN_BYTES { wanted / ALIGN_BYTES * ALIGN_BYTES } else { wanted }
}

fn steps(nth: usize, test: &Test, range: u64, rate: f64) -> Vec<Step> {
    let load = Load {
        access: Some(test.access),
        read_percent: Some(test.reads),
        block_bytes: Some(test.block),
        threads: test.threads.first().copied(),
        depth: test.depth.first().copied(),
        hosts: None,
        targets: None,
        cached: Some(test.cached),
        offset_bytes: Some(0),
        range_bytes: Some(range),
        slice_percent: if let Slice::Percent(percent) = test.slice { Some(percent) } else { None },
        reducible: test.reducible(),
        checksums: false,
        inferred: vec![],
    };
    let step = |what: &str, part: Part, load: Load| Step {
        id: format!("{nth:02}-{}{what}", slug(&test.name)),
        test: test.name.clone(),
        part,
        target: 0,
        load,
        seconds: test.seconds,
        ramp_seconds: test.ramp,
        rebuild_seconds: test.rebuild,
    };
    let every = |part: Part| -> Vec<Step> {
        let pairs = test.threads.iter().flat_map(|&t| test.depth.iter().map(move |&d| (t, d)));
        pairs
            .map(|(threads, depth)| {
                let load = Load { threads: Some(threads), depth: Some(depth), ..load.clone() };
                step(&format!("-t{threads}-d{depth}"), part, load)
            })
            .collect()
    };
    match test.kind {
        Kind::Fill => vec![Step { seconds: range as f64 / rate, ramp_seconds: 0.0, ..step("", Part::Fill, load) }],
        Kind::Check => vec![Step { seconds: range as f64 / rate, ramp_seconds: 0.0, ..step("", Part::Check, load) }],
        Kind::Precondition => vec![step("", Part::Precondition, load)],
        Kind::Load => every(Part::Alone),
        Kind::Matrix => every(Part::Matrix),
        Kind::Unallocated => every(Part::Unallocated),
        Kind::States => every(Part::States),
        Kind::Curve => {
            let max = step("-max", Part::CurveMax, load.clone());
            let point =
                |percent: &u32| step(&format!("-{percent:03}"), Part::Curve { percent: *percent }, load.clone());
            std::iter::once(max).chain(test.percents.iter().map(point)).collect()
        }
        Kind::Steady => {
            let round = |number| step(&format!("-r{number:02}"), Part::Round { number }, load.clone());
            (1..=ROUNDS_MAX).map(round).collect()
        }
    }
}

/// A name as part of a file's.
fn slug(name: &str) -> String {
    let lower = name.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn target(bytes: u64) -> Target {
        Target::look("/tmp/not-there-for-a-plan", Some(bytes)).unwrap()
    }

    #[test]
    fn names_are_unique_in_every_suite() {
        for (name, _) in crate::suite::BUILT_IN {
            let wishes = Wishes { array_control: true, ..Wishes::default() };
            let plan = Plan::of(&Suite::find(name).unwrap(), &target(100 << 30), wishes);
            let ids: BTreeSet<&str> = plan.steps.iter().map(|s| s.id.as_str()).collect();
            assert_eq!(ids.len(), plan.steps.len(), "{name}");
        }
    }

    #[test]
    fn the_smoke_suite_takes_two_minutes_and_says_what_it_writes() {
        let plan = Plan::of(&Suite::find("smoke").unwrap(), &target(64 << 20), Wishes::default());
        let (sure, most) = plan.seconds();
        assert!(sure == most && (90.0..180.0).contains(&sure), "{sure}");
        // Three cells of 5 s write, with 1 s before each.
        assert_eq!(plan.written_bytes(), (64 << 20, 36_000_000_000));
        assert!(plan.writes());
    }

    #[test]
    fn a_curve_has_its_maximum_first_and_rounds_may_be_fewer() {
        let plan = Plan::of(&Suite::find("steady-state").unwrap(), &target(1 << 30), Wishes::default());
        let (sure, most) = plan.seconds();
        assert!(sure < most);
        assert_eq!(plan.steps.iter().filter(|s| s.is_perhaps()).count(), 3 * 20);
        let plan = Plan::of(&Suite::find("raid-card").unwrap(), &target(1 << 30), Wishes::default());
        let curve: Vec<&Step> = plan.steps.iter().filter(|s| s.test == "4K random read").collect();
        assert_eq!((curve.len(), curve[0].part, curve[0].load.range_bytes), (13, Part::CurveMax, Some(256 << 20)));
    }

    #[test]
    fn a_budget_leaves_tests_out_and_says_so() {
        let suite = Suite::find("raid-card").unwrap();
        let all = Plan::of(&suite, &target(1 << 30), Wishes::default());
        let some = Plan::of(&suite, &target(1 << 30), Wishes { budget_seconds: Some(1800.0), ..Wishes::default() });
        assert!(some.seconds().0 <= 1800.0 && some.steps.len() < all.steps.len());
        assert!(some.not_run.iter().any(|p| p.value.contains("budget")));
        let qlc = Plan::of(&suite, &target(1 << 30), Wishes { write_bytes_min: Some(64 << 10), ..Wishes::default() });
        assert!(qlc.steps.iter().all(|s| !s.load.writes() || s.load.block_bytes >= Some(64 << 10)));
    }
}
