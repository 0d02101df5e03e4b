//! Results of other tools, as the lab imports them.

use lab::import::import_text;
use lab::model::{Run, Subject};
use lab::report::{Extra, page};

/// A file of any tool: importing never panics, and what is let through is a result like any other: it comes back from its
/// own file the same, a report can be made of it, and no chart has a coordinate that is no number.
///
/// # Panics
/// When one of these does not hold.
pub fn import(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(run) = import_text("input", &text, &Subject::default()) else { return };
    let stored = serde_json::to_string(&run).expect("a result can be written");
    let back: Run = serde_json::from_str(&stored).expect("what was written can be read");
    assert_eq!(back, run, "a result comes back from its file");
    let report = page(&[run.clone(), run], &Extra::default());
    // What a file says in words is its own.
    if !text.contains("NaN") {
        assert!(!report.contains("NaN"), "a chart has a coordinate that is no number");
    }
}
