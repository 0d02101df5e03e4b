//! Latency bins: merged over jobs and hosts, then read as percentiles. Percentiles themselves are never averaged.

use std::collections::BTreeMap;

use crate::model::Latency;

/// Nanoseconds, and how many requests took about that long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bins(BTreeMap<u64, u64>);

impl Bins {
    /// Of a cell.
    pub fn of(pairs: &[(u64, u64)]) -> Bins {
        let mut bins = Bins::default();
        pairs.iter().for_each(|&(ns, count)| bins.add(ns, count));
        bins
    }

    /// Counts requests.
    pub fn add(&mut self, ns: u64, count: u64) {
        if count > 0 {
            let sum = self.0.entry(ns).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Takes those of `other` in.
    pub fn merge(&mut self, other: &Bins) {
        other.0.iter().for_each(|(&ns, &count)| self.add(ns, count));
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.0.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// In a cell's form.
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(&ns, &count)| (ns, count)).collect()
    }

    /// The latency that a share of the requests kept to, in microseconds.
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        let total = self.count();
        let wanted = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        self.0.iter().find_map(|(&ns, &count)| {
            seen = count.saturating_add(seen);
            (seen >= wanted).then_some(ns as f64 / 1e3)
        })
    }

    /// The percentiles of a cell. One that fewer than ten requests lie beyond is not told.
    pub fn latency(&self, mean_us: Option<f64>, max_us: Option<f64>) -> Latency {
        let total = self.count() as f64;
        let told = |share: f64| self.quantile_us(share).filter(|_| total * (1.0 - share) >= 9.999);
        Latency {
            mean_us,
            p50_us: self.quantile_us(0.5),
            p95_us: told(0.95),
            p99_us: told(0.99),
            p999_us: told(0.999),
            p9999_us: told(0.9999),
            p99999_us: told(0.99999),
            max_us,
        }
    }

    /// Share of requests that took longer than each latency, in microseconds; the last point is the last above zero.
    pub fn exceedance(&self) -> Vec<(f64, f64)> {
        let total = self.count() as f64;
        let mut left = self.count();
        let mut points = vec![];
        for (&ns, &count) in &self.0 {
            left = left.saturating_sub(count);
            if left > 0 {
                points.push((ns as f64 / 1e3, left as f64 / total));
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_bins_are_not_the_mean_of_percentiles() {
        let mut quick = Bins::of(&[(1000, 990), (2000, 10)]);
        let slow = Bins::of(&[(100_000, 10)]);
        quick.merge(&slow);
        assert_eq!(quick.count(), 1010);
        assert_eq!(quick.quantile_us(0.5), Some(1.0));
        assert_eq!(quick.quantile_us(0.995), Some(100.0));
        assert_eq!(quick.exceedance(), vec![(1.0, 20.0 / 1010.0), (2.0, 10.0 / 1010.0)]);
    }

    #[test]
    fn what_too_few_requests_show_is_not_told() {
        let latency = Bins::of(&[(1000, 999), (9000, 1)]).latency(None, None);
        assert_eq!((latency.p50_us, latency.p99_us, latency.p999_us), (Some(1.0), Some(1.0), None));
        assert_eq!(Bins::default().quantile_us(0.5), None);
    }
}
