//! What a load at a fixed rate takes in each state of an array: what an application would notice.
//!
//! Invariant: nothing here is a rate. What was asked for says nothing of what a system can do.

use super::Finding;
use super::about::{About, Unit, is_quotable, list, noun};
use crate::model::{Cell, Part, Run};
use crate::units::latency;

/// "At a fixed 172 k IOPS, 4K random writes take 20.9 us (p99 20.9 us) optimal, and 23.6 us (p99 26.1 us) rebuilding."
pub fn states(run: &Run, about: &About<'_>) -> Vec<Finding> {
    let mut tests: Vec<Vec<&Cell>> = vec![];
    let is_here = |c: &&Cell| c.part == Part::Alone && Some(c.subject.system.as_str()) == about.system;
    for cell in run.cells.iter().filter(|c| is_quotable(c) && c.asked_iops.is_some()).filter(is_here) {
        match tests.iter_mut().find(|t| t[0].test == cell.test && t[0].load == cell.load) {
            Some(states) => states.push(cell),
            None => tests.push(vec![cell]),
        }
    }
    tests.iter().filter_map(|cells| one(cells)).collect()
}

fn one(cells: &[&Cell]) -> Option<Finding> {
    let first = cells.first()?;
    if cells.iter().all(|c| c.subject.state == first.subject.state) {
        return None;
    }
    let words: Vec<String> = cells
        .iter()
        .filter_map(|c| {
            let of = c.figures.latency;
            let tail = of.p99_us.map_or(String::new(), |us| format!(" (p99 {})", latency(us)));
            Some(format!("{}{tail} {}", latency(of.mean_us?), c.subject.state))
        })
        .collect();
    let rate = Unit::Iops.text(first.asked_iops?);
    let text = format!("At a fixed {rate}, {} take {}.", noun(first), list(&words));
    (words.len() > 1).then(|| Finding::new(text, cells.iter().map(|c| c.id.clone())))
}
