//! What a run on a simulated system takes, and what its plan said: both in CPU seconds, of one process.

#![allow(clippy::unwrap_used)]

use std::fs;

use lab::bench::Bench;
use lab::model::{Part, Run, State, Verdict};
use lab::plan::{Plan, Wishes};
use lab::run::{Around, Given, Journal, begin, run};
use lab::simulated;
use lab::spent::Spent;
use lab::suite::Suite;
use lab::target::Target;

/// Reads and writes, alone and deep, in order, a mix, points of a curve, and states where there is a level.
const SUITE: &str = r#"
about = "a test"
for_publication = false
[[test]]
name = "reads"
kind = "load"
access = "random"
reads = 100
block = "4K"
threads = [1, 64]
depth = [16]
seconds = 1
[[test]]
name = "writes"
kind = "curve"
access = "random"
reads = 0
block = "4K"
threads = [256]
depth = [1]
percents = [20, 60, 100, 120]
seconds = 1
[[test]]
name = "in order"
kind = "load"
access = "sequential"
reads = 0
block = "64K"
threads = [8]
depth = [32]
seconds = 1
[[test]]
name = "mix"
kind = "load"
access = "random"
reads = 70
block = "8K"
threads = [16]
depth = [32]
slice = "25%"
seconds = 1
[[test]]
name = "states"
kind = "states"
access = "random"
reads = 67
block = "4K"
threads = [16]
depth = [32]
seconds = 1
"#;

/// A run of the suite on a target: what it took, and the result.
fn taken(target: &str) -> (Spent, Run) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.toml");
    fs::write(&path, SUITE).unwrap();
    taken_of(&Suite::find(path.to_str().unwrap()).unwrap(), target)
}

fn taken_of(suite: &Suite, target: &str) -> (Spent, Run) {
    let dir = tempfile::tempdir().unwrap();
    let target = Target::look(target, None).unwrap();
    let plan = Plan::of(suite, &target, Wishes::default());
    let planned = plan.cpu_seconds().unwrap();
    let journal = begin(dir.path().join("out"), suite, &target, &plan, Given::default()).unwrap();
    let result = run(&journal, &[], Around::default(), &mut |_| {}).unwrap();
    let spent = result.spent.unwrap();
    assert!((spent.planned_cpu_seconds / planned - 1.0).abs() < 1e-6, "{spent:?} of {planned}");
    // Gone on with, it has nothing left to do and forgets nothing.
    let again = run(&Journal::open(journal.dir().to_owned()).unwrap(), &[], Around::default(), &mut |_| {}).unwrap();
    assert_eq!(again.spent, Some(spent));
    (spent, result)
}

#[test]
fn a_plan_on_a_simulated_system_is_right_within_a_factor_of_one_and_a_half() {
    let mut all = Spent::default();
    for target in ["model:r760-direct", "model:r760-perc12,raid=5", "model:h755n,engine=ashlar,raid=6,fill=80"] {
        let (spent, result) = taken(target);
        println!("{target}: {}", spent.words());
        all = all.with(spent);
        assert!(spent.requests > 100_000 && spent.requests_per_cpu_second().unwrap() > 10_000.0, "{spent:?}");
        // A point above the largest rate has no more in flight than there are.
        let last = result.cells.iter().find(|c| c.part == (Part::Curve { percent: 120 })).unwrap();
        assert!(last.in_flight().unwrap() < 256.0 * 1.05 && last.achieved().unwrap() < 0.95, "{last:?}");
        assert!(result.cells.iter().all(|c| c.verdict() == Verdict::Model), "{:?}", result.cells);
        assert!(result.system.iter().any(|p| p.name == "simulation" && p.value.contains("each CPU second")));
    }
    let times = all.to_plan().unwrap();
    println!("all: {}", all.words());
    assert!((1.0 / 1.5..1.5).contains(&times), "{}", all.words());
}

/// Kinds of systems.
const SYSTEMS: [&str; 6] = [
    "model:r760-direct",
    "model:r760-perc12,raid=5",
    "model:h755n,raid=6",
    "model:vss2249p",
    "model:s3700x24",
    "model:r760-perc12,engine=ashlar,raid=5,fill=80",
];

/// Rates of deep mixes drift while buffers fill, which looks like noise. How many requests a cell takes is the same on every
/// machine, so it is held without the clock.
#[test]
fn requests_of_a_suite_whose_rates_drift_are_known_beforehand() {
    let suite = Suite::find("saturation").unwrap();
    for name in ["model:r760-direct", "model:s3700x24"] {
        let target = Target::look(name, None).unwrap();
        let system = simulated::system(&target.model().unwrap()).unwrap().unwrap();
        let (mut planned, mut taken) = (0.0, 0.0);
        for step in Plan::of(&suite, &target, Wishes::default()).steps {
            planned += simulated::expected(&target, &system, &step, None).unwrap().requests;
            taken += simulated::cell(&target, &system, &step, State::Optimal, None).unwrap().requests as f64;
        }
        println!("{name}: {taken:.0} requests, {planned:.0} planned (x {:.2})", taken / planned);
        assert!((0.9..1.1).contains(&(taken / planned)), "{name}: {taken} of {planned}");
    }
}

/// Modelled drives, with the program that ASHLAR_BENCH names, for people.
#[test]
#[ignore = "minutes of CPU: ASHLAR_BENCH=ashlar cargo test -p lab --test cost -- --ignored --nocapture drives"]
fn factors_of_modelled_drives() {
    let path = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(path.path(), SUITE).unwrap();
    let suite = Suite::find(path.path().to_str().unwrap()).unwrap();
    for target in ["model:tlc:5x512M", "model:tlc:5x2G,raid=5", "model:tlc:5x256M,raid=5,fill=80"] {
        let target = Target::look(target, None).unwrap();
        let mut plan = Plan::of(&suite, &target, Wishes::default());
        Bench::find().unwrap().try_out(&target, &mut plan.steps).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let journal = begin(dir.path().join("out"), &suite, &target, &plan, Given::default()).unwrap();
        let spent = run(&journal, &[], Around::default(), &mut |_| {}).unwrap().spent.unwrap();
        println!("{:<32} {}", target.name, spent.words());
    }
}

/// Every suite on every kind of system, for people.
#[test]
#[ignore = "prints a table: cargo test -p lab --test cost -- --ignored --nocapture"]
fn factors_of_all_suites() {
    for target in SYSTEMS {
        let mut all = Spent::default();
        let only = std::env::var("SUITE").ok();
        for (name, _) in lab::suite::BUILT_IN.iter().filter(|(name, _)| only.as_deref().is_none_or(|o| o == *name)) {
            let suite = Suite::find(name).unwrap();
            if Plan::of(&suite, &Target::look(target, None).unwrap(), Wishes::default()).steps.is_empty() {
                continue;
            }
            let (spent, _) = taken_of(&suite, target);
            println!("{target:<48} {name:<18} {}", spent.words());
            all = all.with(spent);
        }
        println!("{target:<48} {:<18} {}", "all", all.words());
    }
}
