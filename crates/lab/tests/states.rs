//! A load through the states of an array that hooks control, with fio on a file: part of the tests that need foreign programs.

#![allow(clippy::unwrap_used)]

use std::fs;

use lab::array::{Array, Control, Hooked, Hooks};
use lab::model::{Check, Part, State};
use lab::plan::{Plan, Wishes};
use lab::run::{Around, Given, begin, run};
use lab::suite::Suite;
use lab::target::Target;

const SUITE: &str = r#"
about = "a test"
for_publication = false
[[test]]
name = "fill"
kind = "fill"
access = "sequential"
reads = 0
block = "1M"
[[test]]
name = "latency"
kind = "states"
access = "random"
reads = 0
block = "4K"
depth = [4]
percents = [10]
seconds = 6
[[test]]
name = "all it can"
kind = "states"
access = "random"
reads = 0
block = "4K"
depth = [4]
seconds = 8
"#;

#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_fixed_rate_is_kept_through_the_states_and_all_states_are_held_to_be_steady() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.toml");
    fs::write(&path, SUITE).unwrap();
    let suite = Suite::find(path.to_str().unwrap()).unwrap();
    let target = Target::look(dir.path().join("f").to_str().unwrap(), Some(8 << 20)).unwrap();
    let plan = Plan::of(&suite, &target, Wishes { array_control: true, ..Wishes::default() });
    let hooks = Hooks { fail: "true".into(), replace: "true".into(), wait: Some("sleep 6".into()), state: None };
    let given = Given { control: Some(Control::Hooks(hooks.clone())), ..Given::default() };
    let journal = begin(dir.path().join("out"), &suite, &target, &plan, given).unwrap();
    let mut array = Hooked::new(hooks).unwrap();
    let around = Around { array: Some(&mut array as &mut dyn Array), ..Around::default() };
    let result = run(&journal, &[], around, &mut |_| {}).unwrap();
    let max = result.cells.iter().find(|c| c.part == Part::CurveMax).unwrap().figures.iops.unwrap();
    let states =
        |test: &str| result.cells.iter().filter(|c| c.test == test && c.part == Part::States).collect::<Vec<_>>();
    let latency = states("latency");
    let order: Vec<State> = latency.iter().map(|c| c.subject.state).collect();
    assert_eq!(order, [State::Optimal, State::Degraded, State::Rebuilding, State::Rebuilt]);
    for cell in latency {
        assert_eq!(cell.asked_iops, Some(max * 10.0 / 100.0));
        assert!((0.8..1.2).contains(&cell.achieved().unwrap()), "{:?} of {:?}", cell.figures.iops, cell.asked_iops);
        assert!(cell.figures.latency.p99_us.is_some());
        assert!(
            cell.gates.iter().all(|g| g.check != Check::Steady || g.reason.starts_with("rebuilt")),
            "a limit is steady"
        );
    }
    for cell in states("all it can") {
        assert_eq!(cell.asked_iops, None);
        assert!(cell.gates.iter().any(|g| g.check == Check::Steady), "{:?}", cell.gates);
    }
}

const BROKEN: &str = r#"
about = "a test"
for_publication = false
[[test]]
name = "fill"
kind = "fill"
access = "sequential"
reads = 0
block = "1M"
[[test]]
name = "states"
kind = "states"
access = "random"
reads = 0
block = "4K"
depth = [4]
seconds = 3
[[test]]
name = "after"
kind = "load"
access = "random"
reads = 100
block = "4K"
depth = [4]
seconds = 2
"#;

/// The generator is killed while a drive is out: its cell fails, the array is made whole, and the run goes on.
#[test]
#[ignore = "needs fio: cargo xtask test --only lab"]
fn a_generator_that_dies_between_states_fails_its_cell_only() {
    let dir = tempfile::tempdir().unwrap();
    let (suite, state) = (dir.path().join("test.toml"), dir.path().join("state"));
    fs::write(&suite, BROKEN).unwrap();
    fs::write(&state, "optimal\n").unwrap();
    let suite = Suite::find(suite.to_str().unwrap()).unwrap();
    let target = Target::look(dir.path().join("f").to_str().unwrap(), Some(8 << 20)).unwrap();
    let plan = Plan::of(&suite, &target, Wishes { array_control: true, ..Wishes::default() });
    let (here, state) = (dir.path().display(), state.display());
    let hooks = Hooks {
        fail: format!("echo degraded >{state}; pkill -KILL -f 'name=cel[l].*{here}'"),
        replace: format!("echo optimal >{state}"),
        wait: None,
        state: Some(format!("cat {state}")),
    };
    let given = Given { control: Some(Control::Hooks(hooks.clone())), ..Given::default() };
    let journal = begin(dir.path().join("out"), &suite, &target, &plan, given).unwrap();
    let mut array = Hooked::new(hooks).unwrap();
    let around = Around { array: Some(&mut array as &mut dyn Array), ..Around::default() };
    let result = run(&journal, &[], around, &mut |_| {}).unwrap();
    let reason = |test: &str| {
        let cell = result.cells.iter().find(|c| c.test == test).unwrap();
        cell.gates.iter().find(|g| g.check == Check::Errors).unwrap().reason.clone()
    };
    assert!(reason("states").starts_with("nothing was measured"), "{}", reason("states"));
    assert_eq!(reason("after"), "none");
    assert_eq!(array.standing().unwrap().state, State::Optimal, "what comes next is measured on a whole array");
}
