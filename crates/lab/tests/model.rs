//! The model beside published figures: `data/model.csv` is what it says, and a figure that moves is named.
//!
//! `ASHLAR_RENEW_TEXTS=1 cargo test --release -p lab --test model` writes the file and the page instead.

use std::fs;
use std::path::Path;

use lab::calibrate::{compare, read, write};

/// A figure that moves by more has to be looked at.
const MOVED_MAX: f64 = 0.02;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_figure_of_the_model_has_moved() {
    let now = compare().expect("all rows can be modelled");
    if std::env::var_os("ASHLAR_RENEW_TEXTS").is_some() {
        let first = root().join("data/model-first-sight.csv");
        if fs::read_to_string(&first).unwrap_or_default().lines().count() < 2 {
            fs::write(&first, write(&now)).expect("it can be written");
        }
        fs::write(root().join("data/model.csv"), write(&now)).expect("it can be written");
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
