//! What a run gave, and the medians of several.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::error::Impossible;
use crate::report::Per;
use crate::target::Written;

/// Latencies of one run in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Mean.
    pub ns_mean: u64,
    /// Half of the requests took no longer.
    pub ns_p50: u64,
    /// 99 % took no longer.
    pub ns_p99: u64,
    /// 99.9 % took no longer.
    pub ns_p999: u64,
    /// None took longer.
    pub ns_max: u64,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Latency {
        Latency {
            ns_mean: histogram.mean() as u64,
            ns_p50: histogram.value_at_quantile(0.5),
            ns_p99: histogram.value_at_quantile(0.99),
            ns_p999: histogram.value_at_quantile(0.999),
            ns_max: histogram.max(),
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Requests answered.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Cores that generated it.
    pub cores: usize,
    /// The CPU time of these threads meanwhile; `None` in virtual time.
    pub cpu_ns: Option<u64>,
    /// Latencies.
    pub latency: Latency,
    /// Bytes the drives were given per byte that hosts wrote; `None` where nothing was written or nobody knows.
    pub drive_bytes_per_host_byte: Option<f64>,
}

impl Sample {
    /// Bytes per second.
    #[must_use]
    pub fn bytes_per_sec(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }

    /// Bytes per second of CPU time; per second where that is not known.
    ///
    /// On memory drives nothing waits for anything: this is the rate of a core that nobody else uses, also while
    /// others do.
    #[must_use]
    pub fn bytes_per_cpu_sec(&self) -> f64 {
        self.cpu_ns.map_or_else(|| self.bytes_per_sec(), |ns| self.bytes as f64 * 1e9 / ns as f64)
    }

    /// CPU time in seconds; the time that passed where that is not known.
    pub(crate) fn cpu_secs(&self) -> f64 {
        self.cpu_ns.map_or_else(|| self.elapsed.as_secs_f64(), |ns| ns as f64 / 1e9)
    }

    /// Bytes in the time that counts.
    pub(crate) fn rate(&self, per: Per) -> f64 {
        match per {
            Per::Second => self.bytes_per_sec(),
            Per::CoreSecond => self.bytes_per_cpu_sec(),
        }
    }

    /// CPU time over the time of all cores: below 1 the threads waited, or others used their cores.
    fn cpu_share(&self) -> Option<f64> {
        self.cpu_ns.map(|ns| ns as f64 / 1e9 / self.elapsed.as_secs_f64() / self.cores as f64)
    }

    fn iops(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    pub(crate) fn cpu_us_per_request(&self) -> Option<f64> {
        self.cpu_ns.map(|ns| ns as f64 / 1000.0 / self.requests as f64)
    }
}

impl Written {
    /// Drive bytes per host byte since `before`; `None` when hosts wrote nothing.
    pub(crate) fn since(self, before: Written) -> Option<f64> {
        let host = self.host_bytes - before.host_bytes;
        (host > 0).then(|| (self.drive_bytes - before.drive_bytes) as f64 / host as f64)
    }
}

/// Medians of several runs, figure by figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Runs.
    pub runs: usize,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_sec: f64,
    /// Mean latency.
    pub latency_us_mean: f64,
    /// Half of the requests took no longer.
    pub latency_us_p50: f64,
    /// 99 % took no longer.
    pub latency_us_p99: f64,
    /// 99.9 % took no longer.
    pub latency_us_p999: f64,
    /// CPU time of the measuring threads, generator and memory drives included; `None` in virtual time.
    pub cpu_us_per_request: Option<f64>,
    /// That CPU time over the time of all cores: below 1 the threads waited, or others used their cores.
    pub cpu_share: Option<f64>,
    /// Write amplification, redundancy included.
    pub drive_bytes_per_host_byte: Option<f64>,
    /// (Fastest - slowest run) / median: how far to trust it.
    pub spread: f64,
}

impl Figures {
    /// The medians.
    ///
    /// # Errors
    /// When a run answered nothing.
    pub fn of(samples: &[Sample]) -> Result<Figures, Impossible> {
        if samples.is_empty() || samples.iter().any(|s| s.requests == 0 || s.elapsed.is_zero()) {
            return Err(Impossible::NothingAnswered);
        }
        let over = |f: &dyn Fn(&Sample) -> f64| median(samples.iter().map(f));
        let over_known = |f: &dyn Fn(&Sample) -> Option<f64>| {
            let known: Vec<f64> = samples.iter().filter_map(f).collect();
            (!known.is_empty()).then(|| median(known))
        };
        let us = |ns: u64| ns as f64 / 1000.0;
        let iops = over(&Sample::iops);
        let fastest = samples.iter().map(Sample::iops).fold(f64::MIN, f64::max);
        let slowest = samples.iter().map(Sample::iops).fold(f64::MAX, f64::min);
        Ok(Figures {
            runs: samples.len(),
            iops,
            bytes_per_sec: over(&Sample::bytes_per_sec),
            latency_us_mean: over(&|s| us(s.latency.ns_mean)),
            latency_us_p50: over(&|s| us(s.latency.ns_p50)),
            latency_us_p99: over(&|s| us(s.latency.ns_p99)),
            latency_us_p999: over(&|s| us(s.latency.ns_p999)),
            cpu_us_per_request: over_known(&Sample::cpu_us_per_request),
            cpu_share: over_known(&Sample::cpu_share),
            drive_bytes_per_host_byte: over_known(&|s| s.drive_bytes_per_host_byte),
            spread: (fastest - slowest) / iops,
        })
    }
}

/// The middle one; of an even number the mean of the two in the middle.
///
/// # Panics
/// Of nothing there is no median.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    assert!(!values.is_empty(), "a median of nothing");
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests: u64) -> Sample {
        Sample {
            requests,
            bytes: requests * 4096,
            elapsed: Duration::from_secs(2),
            cores: 2,
            cpu_ns: Some(requests * 3000),
            latency: Latency { ns_mean: 1100, ns_p50: 1000, ns_p99: 2000, ns_p999: 3000, ns_max: 4000 },
            drive_bytes_per_host_byte: None,
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        let figures = Figures::of(&[sample(100), sample(400), sample(200)]).unwrap();
        assert_eq!((figures.iops, figures.bytes_per_sec, figures.spread), (100.0, 409_600.0, 1.5));
        assert_eq!(figures.latency_us_mean, 1.1);
        assert_eq!((figures.latency_us_p999, figures.cpu_us_per_request), (3.0, Some(3.0)));
        assert_eq!(figures.cpu_share, Some(200.0 * 3000.0 / 1e9 / 4.0), "of two cores");
        assert_eq!(Figures::of(&[sample(0)]), Err(Impossible::NothingAnswered));
    }
}
