//! One load on an export of some server, told in full: both directions with their latencies, and second by second.
//!
//! The generator is one thread: `cpu_share` near 1 says that it, not the export, set the rate.

use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;
use rt::Rt;
use serde::Serialize;

use crate::error::Error;
use crate::generate::{Second, generate, generate_watched};
use crate::load::{Load, Until};
use crate::target::Target;

/// What is asked of it.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The load.
    pub load: Load,
    /// Bytes that it works on.
    pub range: Range<u64>,
    /// Load before anything is counted.
    pub ramp: Duration,
    /// How long; nothing is once through the range.
    pub time: Option<Duration>,
    /// Of the addresses.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// The load.
    pub load: Load,
    /// Bytes that it worked on.
    pub range: Range<u64>,
    /// Seconds measured.
    pub seconds: f64,
    /// Half of the requests of both directions took no longer, in microseconds.
    pub p50_us: f64,
    /// 99 % took no longer.
    pub p99_us: f64,
    /// 99.9 % took no longer.
    pub p999_us: f64,
    /// None took longer.
    pub max_us: f64,
    /// Reads.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// CPU time of the generator over time: of one core.
    pub cpu_share: Option<f64>,
    /// Second by second.
    pub series: Vec<Second>,
}

/// One direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Requests answered.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_sec: f64,
    /// Mean latency.
    pub mean_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
    /// Nanoseconds, and how many requests took about that long: three significant digits.
    pub bins: Vec<(u64, u64)>,
}

impl Side {
    fn of(latency: &Histogram<u64>, load: &Load, seconds: f64) -> Side {
        let iops = latency.len() as f64 / seconds;
        let us = |ns: f64| (!latency.is_empty()).then_some(ns / 1000.0);
        Side {
            requests: latency.len(),
            bytes: latency.len() * u64::from(load.block_bytes),
            iops,
            bytes_per_sec: iops * f64::from(load.block_bytes),
            mean_us: us(latency.mean()),
            max_us: us(latency.max() as f64),
            bins: latency.iter_recorded().map(|bin| (bin.value_iterated_to(), bin.count_at_value())).collect(),
        }
    }
}

impl Told {
    /// Requests a second, both directions.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.read.iops + self.write.iops
    }
}

/// Measures; `each` is told of every second that counts. What was written is durable when it returns.
///
/// # Errors
/// When the load does not suit the export, or a request fails.
pub async fn exported(rt: &Rt, target: &Target, what: &Exported, mut each: impl FnMut(Second)) -> Result<Told, Error> {
    let Exported { load, range, .. } = what;
    let timed = |time| Until::Elapsed { time, bytes_max: u64::MAX };
    if !what.ramp.is_zero() {
        generate(rt, target, load, range.clone(), timed(what.ramp), !what.seed).await?;
    }
    let mut series = vec![];
    let mut second = |second: Second| {
        each(second);
        series.push(second);
    };
    let requests = (range.end.saturating_sub(range.start)) / u64::from(load.block_bytes.max(1));
    let until = what.time.map_or(Until::Requests(requests), timed);
    let watched = generate_watched(
        rt,
        target,
        load,
        range.clone(),
        until,
        what.seed,
        Some(&mut second as &mut dyn FnMut(Second)),
    );
    let (sample, [reads, writes]) = watched.await?;
    if !load.pattern.only_reads() {
        target.settle().await?;
    }
    let seconds = sample.elapsed.as_secs_f64();
    let us = |ns: u64| ns as f64 / 1000.0;
    Ok(Told {
        load: *load,
        range: range.clone(),
        seconds,
        p50_us: us(sample.latency.ns_p50),
        p99_us: us(sample.latency.ns_p99),
        p999_us: us(sample.latency.ns_p999),
        max_us: us(sample.latency.ns_max),
        read: Side::of(&reads, load, seconds),
        write: Side::of(&writes, load, seconds),
        cpu_share: sample.cpu_ns.map(|ns| ns as f64 / 1e9 / seconds),
        series,
    })
}
