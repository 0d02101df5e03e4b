//! One scale for each unit over all charts of a report, so that charts can be held against each other by eye.

use super::scale::Scale;
use crate::model::{Cell, Part, Run};

/// What is largest in a report, and the range of its latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scales {
    /// Requests a second, the most.
    pub iops: f64,
    /// Bytes a second, the most.
    pub bytes: f64,
    /// Microseconds, the least and the most of means and 99th percentiles; nothing when none is known.
    pub latency_us: Option<(f64, f64)>,
}

impl Scales {
    /// Of all results of a report.
    pub fn of(runs: &[Run]) -> Scales {
        let mut scales = Scales::default();
        for cell in runs.iter().flat_map(|r| &r.cells).filter(|c| is_drawn(c)) {
            match cell.headline() {
                Some((true, n)) => scales.iops = scales.iops.max(n),
                Some((false, n)) => scales.bytes = scales.bytes.max(n),
                None => {}
            }
            let of = cell.figures.latency;
            [of.mean_us, of.p99_us].into_iter().flatten().for_each(|us| scales.see(us));
            cell.series.iter().filter_map(|s| s.mean_us).for_each(|us| scales.see(us));
        }
        for line in runs.iter().flat_map(|r| &r.timelines) {
            let rates = line.moments.iter().filter_map(|m| m.iops).chain(line.optimal_iops);
            scales.iops = rates.fold(scales.iops, f64::max);
            let tails = line.moments.iter().flat_map(|m| [m.p50_us, m.p99_us, m.p999_us]);
            tails.flatten().for_each(|us| scales.see(us));
        }
        let rounds = runs.iter().flat_map(|r| &r.rounds).flat_map(|r| &r.values);
        scales.iops = rounds.copied().fold(scales.iops, f64::max);
        scales
    }

    fn see(&mut self, us: f64) {
        if us > 0.0 {
            let (low, high) = self.latency_us.unwrap_or((us, us));
            self.latency_us = Some((low.min(us), high.max(us)));
        }
    }

    /// The most in a unit.
    pub fn most(&self, is_iops: bool) -> f64 {
        if is_iops { self.iops } else { self.bytes }.max(f64::MIN_POSITIVE)
    }

    /// An axis of rates.
    pub fn rate(&self, is_iops: bool, from: f64, to: f64) -> Scale {
        Scale::linear(self.most(is_iops), from, to)
    }

    /// An axis of latencies.
    pub fn latency(&self, from: f64, to: f64) -> Scale {
        let (low, high) = self.latency_us.unwrap_or((1.0, 10.0));
        Scale::log([low, high].into_iter(), from, to)
    }
}

/// Fills and checks are in tables only.
fn is_drawn(cell: &Cell) -> bool {
    !matches!(cell.part, Part::Fill | Part::Precondition | Part::Check)
}
