//! The model beside published figures: `data/model.csv` is what it says, and a figure that moves is named.
//!
//! `ASHLAR_RENEW_TEXTS=1 cargo test --release -p lab --test model` writes the file and the page instead.

use std::fs;
use std::path::Path;

use lab::calibrate::{compare, page, read, write};

/// A figure that moves by more has to be looked at.
const MOVED_MAX: f64 = 0.02;

/// The page that is made of it.
const PAGE: &str = "../../docs/model.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_figure_of_the_model_has_moved() {
    let begun = std::time::Instant::now();
    let now = compare().expect("all rows can be modelled");
    let requests: u64 = now.iter().map(|l| l.requests).sum();
    let took = begun.elapsed().as_secs_f64();
    println!("{requests} requests simulated, {:.1} million a second", requests as f64 / took / 1e6);
    if std::env::var_os("ASHLAR_RENEW_TEXTS").is_some() {
        let first = root().join("data/model-first-sight.csv");
        if fs::read_to_string(&first).unwrap_or_default().lines().count() < 2 {
            fs::write(&first, write(&now)).expect("it can be written");
        }
        fs::write(root().join("data/model.csv"), write(&now)).expect("it can be written");
        fs::write(root().join(PAGE), page(&now).expect("it can be made")).expect("it can be written");
        return;
    }
    let before = read().expect("it can be read");
    assert_eq!(before.len(), now.len(), "rows that are covered");
    for (before, now) in before.iter().zip(&now) {
        let moved = now.modelled / before.modelled - 1.0;
        assert!(
            moved.abs() <= MOVED_MAX,
            "{} ({}, {}): {} became {}, {:+.1} %",
            now.id,
            now.system,
            now.load,
            before.modelled,
            now.modelled,
            moved * 100.0
        );
    }
}

#[test]
fn the_page_is_what_the_program_makes() {
    if std::env::var_os("ASHLAR_RENEW_TEXTS").is_some() {
        return;
    }
    let made = page(&read().expect("it can be read")).expect("it can be made");
    let written = fs::read_to_string(root().join(PAGE)).unwrap_or_default();
    for (made, written) in made.lines().zip(written.lines()) {
        assert_eq!(made, written, "docs/model.md: ASHLAR_RENEW_TEXTS=1 cargo test --release -p lab --test model");
    }
    assert_eq!(made.len(), written.len(), "docs/model.md");
}

#[test]
fn of_held_out_figures_four_of_five_are_within_a_quarter() {
    let lines = read().expect("it can be read");
    let held_out = lab::calibrate::summary(lines.iter().filter(|l| l.held_out()).map(lab::calibrate::Line::error));
    let held_out = held_out.expect("there are some");
    assert!(held_out.within_quarter >= 0.8 && held_out.median < 0.1, "{held_out:?}");
}
