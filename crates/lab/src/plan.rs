//! A suite on one target: its cells in their order, the time and the bytes that it will write, before anything starts.

use serde::{Deserialize, Serialize};

use crate::bench;
use crate::exported;
use crate::fio::Pace;
use crate::hosts;
use crate::model::{Load, Pair, Part};
use crate::simulated;
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
/// Seconds for which the rate without a limit is measured before states with a limited one.
const STATES_MAX_SECONDS: f64 = 60.0;
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
    /// Of states: hundredths of the rate without a limit that are kept through all of them.
    #[serde(default)]
    pub rate_percent: Option<u32>,
    /// Of a precondition: bytes that end it, and the seconds that do so before; its seconds are a guess then.
    #[serde(default)]
    pub until: Option<Until>,
    /// Of modelled drives and systems: CPU seconds that all its cells are likely to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
}

/// What ends a precondition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Until {
    /// So many bytes were written,
    pub bytes: u64,
    /// or so many seconds are over.
    pub seconds: f64,
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
            seconds: self.until.map_or(self.seconds, |u| u.seconds),
            ramp_seconds: self.ramp_seconds,
            iops_max,
            once: self.is_once(),
            bytes: self.until.map(|u| u.bytes),
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
        if let Some(seconds) = self.cpu_seconds {
            return seconds;
        }
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
        // "what: why", or only what.
        let not_here = suite.not_here.iter().map(|text| text.split_once(": ").unwrap_or((text, "not in this suite")));
        plan.not_run.extend(not_here.map(|(what, why)| Pair::new(what, why)));
        let mut left = wishes.budget_seconds.unwrap_or(f64::INFINITY);
        for (nth, test) in suite.test.iter().enumerate() {
            let mut test = test.clone();
            if let Some(least) = wishes.write_bytes_min.filter(|_| test.writes()) {
                let small = test.block.iter().filter(|b| **b < least);
                let why = |block| format!("not run: writes of {block} are below the indirection unit of {least}");
                plan.not_run.extend(small.map(|b| Pair::new(&test.name, why(*b))));
                test.block.retain(|b| *b >= least);
            }
            let Some(largest) = test.block.iter().copied().max() else { continue };
            let test = &test;
            let needs_control = test.kind == Kind::States && wishes.hosts == 0 && wishes.targets < 2;
            if needs_control && !wishes.array_control && target.kind != TargetKind::Model {
                let why = "not run: nothing controls the array; give --array, or the --hook options";
                plan.not_run.push(Pair::new(&test.name, why));
                continue;
            }
            let range = range(test.slice, target.bytes.min(wishes.bytes_max.unwrap_or(u64::MAX)));
            if let Slice::Bytes(wanted) = test.slice
                && range < wanted / ALIGN_BYTES * ALIGN_BYTES
            {
                let (has, wanted) = (crate::units::capacity(range), crate::units::capacity(wanted));
                let why =
                    format!("on {has} instead of {wanted}: the target is smaller, and a smaller range is another test");
                plan.not_run.push(Pair::new(&test.name, why));
            }
            if range < largest {
                plan.not_run.push(Pair::new(&test.name, "not run: the range is smaller than a request"));
                continue;
            }
            let mut steps = steps(nth + 1, test, range, rate);
            steps.iter_mut().for_each(|s| s.load.checksums = suite.checks() && wishes.hosts == 0);
            if wishes.targets > 1 {
                steps = match together::steps(steps, wishes.targets, suite.each_alone) {
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
                let simulated = target.model().ok().and_then(|m| simulated::system(&m).ok().flatten());
                let refused = steps.iter().find_map(|s| match &simulated {
                    Some(system) => simulated::refuses(system, s.part, &s.load),
                    None => bench::refuses(target, s.part, &s.load),
                });
                if let Some(why) = refused {
                    plan.not_run.push(Pair::new(&test.name, format!("not run: {why}")));
                    continue;
                }
                steps.iter_mut().for_each(|s| (s.seconds, s.ramp_seconds, s.until) = (bench::SECONDS, 0.0, None));
                if let Some(system) = &simulated {
                    let unknown = Pair::new(
                        "states degraded and rebuilt",
                        "not run: a simulated system is optimal or rebuilding",
                    );
                    if test.kind == Kind::States && !plan.not_run.contains(&unknown) {
                        plan.not_run.push(unknown);
                    }
                    try_out(target, system, &mut steps);
                }
            }
            if target.kind == TargetKind::Nvme {
                if let Some(why) = steps.iter().find_map(|s| exported::refuses(s.part, &s.load)) {
                    plan.not_run.push(Pair::new(&test.name, format!("not run: {why}")));
                    continue;
                }
                // The bench ends by time.
                steps.iter_mut().for_each(|s| (s.load.checksums, s.until) = (false, None));
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

    /// CPU seconds that a run is likely to take, of modelled drives and systems.
    pub fn cpu_seconds(&self) -> Option<f64> {
        let known = self.is_modelled && self.steps.iter().all(|s| s.cpu_seconds.is_some());
        known.then(|| self.steps.iter().filter_map(|s| s.cpu_seconds).sum())
    }

    /// Bytes that fills write, exactly; bytes that timed writes write at the reckoned rate, at most.
    pub fn written_bytes(&self) -> (u64, u64) {
        let fills = self.steps.iter().filter(|s| s.part == Part::Fill);
        let exact = fills.filter_map(|s| Some(s.load.range_bytes? * u64::from(s.load.targets.unwrap_or(1)))).sum();
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

/// Finds out what the steps of a test are likely to take on a simulated system. What cannot be simulated says so in the run.
fn try_out(target: &Target, system: &predict::System, steps: &mut [Step]) {
    let mut iops_max = None;
    for step in steps {
        let percent = match step.part {
            Part::Curve { percent } => Some(percent),
            _ => step.rate_percent,
        };
        let asked = percent.and_then(|p| Some(iops_max? * f64::from(p) / 100.0));
        let Ok(expected) = simulated::expected(target, system, step, asked) else { continue };
        step.cpu_seconds = Some(expected.cpu_seconds);
        if step.part == Part::CurveMax {
            iops_max = Some(expected.iops);
        }
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
        block_bytes: test.block.first().copied(),
        threads: test.threads.first().copied(),
        depth: test.depth.first().copied(),
        hosts: None,
        targets: None,
        cached: Some(test.cached),
        warm: test.warm,
        offset_bytes: Some(0),
        range_bytes: Some(range),
        slice_percent: if let Slice::Percent(percent) = test.slice { Some(percent) } else { None },
        reducible: test.reducible(),
        fsync: test.fsync,
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
        rate_percent: None,
        until: None,
        cpu_seconds: None,
    };
    let every = |part: Part| -> Vec<Step> {
        let pairs = || test.threads.iter().flat_map(|&t| test.depth.iter().map(move |&d| (t, d)));
        let all = test.block.iter().flat_map(|&block| pairs().map(move |(t, d)| (block, t, d)));
        all.map(|(block, threads, depth)| {
            let load = Load { block_bytes: Some(block), threads: Some(threads), depth: Some(depth), ..load.clone() };
            let size =
                if test.block.len() > 1 { format!("-{}", slug(&crate::units::block(block))) } else { String::new() };
            step(&format!("{size}-t{threads}-d{depth}"), part, load)
        })
        .collect()
    };
    match test.kind {
        Kind::Fill => vec![Step { seconds: range as f64 / rate, ramp_seconds: 0.0, ..step("", Part::Fill, load) }],
        Kind::Check => vec![Step { seconds: range as f64 / rate, ramp_seconds: 0.0, ..step("", Part::Check, load) }],
        Kind::Precondition => {
            let bytes = test.times.map(|times| range * u64::from(times));
            let until = bytes.map(|bytes| Until { bytes, seconds: test.seconds });
            let seconds = until.map_or(test.seconds, |u| (u.bytes as f64 / rate).min(u.seconds));
            vec![Step { seconds, until, ..step("", Part::Precondition, load) }]
        }
        Kind::Load => every(Part::Alone),
        Kind::Matrix => every(Part::Matrix),
        Kind::Unallocated => every(Part::Unallocated),
        Kind::States => {
            let Some(percent) = test.percents.first().copied() else { return every(Part::States) };
            // What the whole array does without a limit comes first.
            let max =
                Step { seconds: test.seconds.min(STATES_MAX_SECONDS), ..step("-max", Part::CurveMax, load.clone()) };
            let through = every(Part::States).into_iter().map(|s| Step { rate_percent: Some(percent), ..s });
            std::iter::once(max).chain(through).collect()
        }
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
        Target::look("/no-such-place/drive", Some(bytes)).unwrap()
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

    #[test]
    fn every_suite_plans_for_many_targets_and_says_what_it_leaves_out() {
        let plan = |suite: &str, targets| {
            Plan::of(&Suite::find(suite).unwrap(), &target(100 << 30), Wishes { targets, ..Wishes::default() })
        };
        // 24 drives at once, none alone: no more cells than for one drive.
        let (one, many) = (plan("qlc-slice", 1), plan("qlc-slice", 24));
        assert_eq!((one.steps.len(), many.steps.len()), (10, 10));
        assert!(many.steps.iter().all(|s| s.load.targets == Some(24)), "{:?}", many.steps);
        assert_eq!(many.written_bytes().0, 24 * (100 << 30));
        // The curves of a JBOD are of all its drives.
        let jbod = plan("jbod", 8);
        assert_eq!(jbod.steps.iter().filter(|s| s.part == Part::CurveMax && s.load.targets == Some(8)).count(), 6);
        assert!(jbod.not_run.iter().all(|p| !p.value.starts_with("not run")), "{:?}", jbod.not_run);
        // One card against two: each alone, and both.
        let parts: Vec<Part> =
            plan("raid-card", 2).steps.iter().filter(|s| s.test == "max 4K random read").map(|s| s.part).collect();
        assert_eq!(parts, [Part::OneOf { number: 1 }, Part::OneOf { number: 2 }, Part::Together]);
    }

    #[test]
    fn block_sizes_are_cells_and_small_writes_are_left_out() {
        let suite = Suite::find("block-sizes").unwrap();
        let plan = |least| Plan::of(&suite, &target(100 << 30), Wishes { write_bytes_min: least, ..Wishes::default() });
        let of = |plan: &Plan, test: &str| -> Vec<Option<u64>> {
            plan.steps.iter().filter(|s| s.test == test).map(|s| s.load.block_bytes).collect()
        };
        let all = of(&plan(None), "random write");
        assert!(all.len() >= 6 && all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
        let large = plan(Some(64 << 10));
        assert!(of(&large, "random write").iter().all(|b| *b >= Some(64 << 10)));
        assert_eq!(of(&large, "random read"), of(&plan(None), "random read"), "reads wear nothing");
        assert!(large.not_run.iter().any(|p| p.name == "random write" && p.value.contains("4096")));
    }

    #[test]
    fn a_smaller_range_is_told() {
        let plan = |bytes| Plan::of(&Suite::find("cached-and-direct").unwrap(), &target(bytes), Wishes::default());
        assert!(plan(100 << 30).not_run.iter().all(|p| !p.value.contains("instead of")));
        let small = plan(1 << 30);
        let told = small.not_run.iter().find(|p| p.value.contains("instead of")).unwrap();
        assert!(told.value.starts_with("on 1.07 GB instead of 34.4 GB"), "{}", told.value);
        // The matrix is over the whole target, whatever it has.
        let matrix = small.steps.iter().filter(|s| s.part == Part::Matrix);
        assert_eq!(matrix.clone().count(), 72);
        assert!(matrix.clone().all(|s| s.load.range_bytes == Some(1 << 30) && s.load.slice_percent == Some(100.0)));
    }

    #[test]
    fn a_precondition_ends_by_what_it_wrote() {
        let plan = Plan::of(&Suite::find("raid-card").unwrap(), &target(64 << 30), Wishes::default());
        let random = plan.steps.iter().find(|s| s.test == "precondition, random").unwrap();
        assert_eq!(random.until.unwrap().bytes, 64 << 30);
        // 64 GiB at the reckoned 2 GB/s, and not the hours that it may take.
        assert!((random.seconds - 34.4).abs() < 0.1 && random.pace(None).seconds > 3600.0, "{random:?}");
        assert_eq!(random.pace(None).bytes, Some(64 << 30));
    }

    #[test]
    fn a_fixed_rate_through_the_states_is_a_share_of_what_the_array_does() {
        let wishes = Wishes { array_control: true, ..Wishes::default() };
        let plan = Plan::of(&Suite::find("array-states").unwrap(), &target(64 << 30), wishes);
        let latency: Vec<&Step> = plan.steps.iter().filter(|s| s.test == "4K write latency at a fixed rate").collect();
        let [max, through] = latency[..] else { panic!("{latency:?}") };
        assert_eq!((max.part, max.rate_percent), (Part::CurveMax, None));
        assert_eq!((through.part, through.rate_percent), (Part::States, Some(20)));
        assert_eq!(through.pace(Some(5000.0)).iops_max, Some(5000.0));
    }

    #[test]
    fn what_a_suite_does_not_have_is_said_once() {
        let target = Target::look("/no-such-place/drive", Some(1 << 30)).unwrap();
        let plan = Plan::of(&Suite::find("raid-card").unwrap(), &target, Wishes::default());
        let pair = plan.not_run.iter().find(|p| p.name.starts_with("degraded")).unwrap();
        assert!(!pair.value.contains(&pair.name) && pair.value.contains("array-states"), "{pair:?}");
    }
}
