//! Text for people and objects for scripts.

mod array;
mod exposure;
mod paint;
mod table;
mod units;

use api::Done;
use serde::Serialize;

use crate::output;

pub use array::{
    array_details, drives_line, losses, member_word, plan, recovery, scrub_found, scrub_run, state_word, volume_word,
};
pub use exposure::{acknowledged, alarm_line, alarm_word, state_sentence};
pub use server::size::human;
pub use table::Table;
pub use units::{count, duration, latency, per_second, percent};

/// Prints an object as one line of JSON.
pub fn print_json(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => output::line(&text),
        Err(e) => output::cannot(format!("cannot be written as JSON: {e}")),
    }
}

/// Prints a line.
pub fn print(line: &str) {
    output::line(&paint::for_stdout(line));
}

/// Prints what a verb has done.
pub fn print_done(json: bool, done: &Done) {
    if json {
        print_json(done);
        return;
    }
    print(&done.done);
    print_notes(&done.notes);
}

/// Prints notes below what they belong to.
pub fn print_notes(notes: &[String]) {
    for note in notes {
        print(&format!("  note: {note}"));
    }
}
