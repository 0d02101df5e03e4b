//! Load curves: what a curve of points says in one number.

use crate::model::{Cell, Part};

/// A point counts as served when this much of what was asked for came.
pub const SERVED: f64 = 0.98;

/// What is read off a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The highest percent whose p99 is at most twice that at 50 %, and that was served.
    pub knee_percent: Option<u32>,
    /// The most IOPS with a p99 of at most 0.5 ms.
    pub iops_at_half_ms: Option<f64>,
    /// The most IOPS with a p99 of at most 1 ms.
    pub iops_at_one_ms: Option<f64>,
}

impl Reading {
    /// Of the points of one curve.
    pub fn of(points: &[&Cell]) -> Reading {
        let at = |cell: &Cell| match cell.part {
            Part::Curve { percent } => Some(percent),
            _ => None,
        };
        let p99 = |cell: &Cell| cell.figures.latency.p99_us;
        let half = points.iter().find(|c| at(c) == Some(50)).and_then(|c| p99(c));
        let served = |c: &&&Cell| c.achieved().is_some_and(|a| a >= SERVED);
        let knee = half.and_then(|half| {
            let flat = points.iter().filter(served).filter(|c| p99(c).is_some_and(|us| us <= 2.0 * half));
            flat.filter_map(|c| at(c)).max()
        });
        let within = |bound: f64| {
            let kept = points.iter().filter(|c| p99(c).is_some_and(|us| us <= bound));
            kept.filter_map(|c| c.figures.iops).reduce(f64::max)
        };
        Reading { knee_percent: knee, iops_at_half_ms: within(500.0), iops_at_one_ms: within(1000.0) }
    }
}
