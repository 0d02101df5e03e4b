//! The program itself: what it is told, and how it ends.

use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sim")).args(args).output().expect("the program runs")
}

#[test]
fn a_seed_passes_and_says_how_long_it_took() {
    let run = sim(&["--seeds", "0..1"]);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    assert!(said.ends_with(" s\n"), "{said}");
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused() {
    let run = sim(&["--seeds", "3..1"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("give a range such as 0..200"));
}

#[test]
fn a_bug_that_nobody_plants_is_refused_and_those_that_are_known_are_named() {
    let run = sim(&["--canary", "NoSuchBug"]);
    assert_eq!(run.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&run.stdout).contains("ChecksumIgnored"));
}
