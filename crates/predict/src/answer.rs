//! The rate and the latencies of a system under a load.
//!
//! A run begins with what fills buffers, and then counts in batches until the mean rate is known within 1 % (95 %, by
//! Student's t over the batches), for 2 virtual seconds, or for as many requests as a run may have.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hdrhistogram::Histogram;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::load::{Access, Load, Pressure};
use crate::sim::{Counters, Machine, Part};
use crate::system::System;

/// What bounds a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Half of the interval of confidence, as a part of the rate.
    pub known_within: f64,
    /// Virtual seconds counted, at most.
    pub seconds_max: f64,
    /// Requests simulated, at most, those before the count included.
    pub requests_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { known_within: 0.01, seconds_max: 2.0, requests_max: 4_000_000 }
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The rate was known within the limit.
    Known,
    /// After as many virtual seconds as a run may have.
    Seconds,
    /// After as many requests as a run may have.
    Requests,
}

/// What a system does under a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Latencies, microseconds.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p999_us: f64,
    /// Mean requests in flight.
    pub in_flight: f64,
    /// Half of the 95 % interval of the rate, as a part of it.
    pub known_within: f64,
    /// Virtual seconds counted.
    pub seconds: f64,
    /// Requests simulated.
    pub requests: u64,
    /// Why it ended.
    pub ended: Ended,
    /// At a fixed rate: the latencies stay bounded, so the rate can be kept.
    pub kept: bool,
    /// CPU microseconds of a request, all hosts and software RAID.
    pub cpu_us: f64,
    /// Bytes that drives were given for each byte that hosts wrote; 0: nothing was written.
    pub drive_bytes_per_byte: f64,
    /// Bytes that flash programmed for each byte that drives were given.
    pub flash_amplification: f64,
    /// Busy shares: inside the drives, their links, cards, CPUs, the network.
    pub busy: [f64; 5],
}

/// Runs with fewer batches have no interval.
const BATCHES_MIN: usize = 10;
/// Virtual nanoseconds before the count, at most.
const BEFORE_NS_MAX: f64 = 0.7e9;
/// Write-back cache of cards, as the simulator has it.
const CARD_CACHE_BYTES: f64 = 64e6;
/// How often buffers are written before the count.
const FILLS: f64 = 8.0;
/// Microseconds above which a fixed rate is not kept.
const KEPT_US_MAX: f64 = 1e6;

/// What `system` does under `load`; with `without`, as if that part took no time.
///
/// # Errors
/// When the system cannot be.
pub fn answer(
    system: &System,
    load: &Load,
    limits: &Limits,
    seed: u64,
    without: Option<Part>,
) -> Result<Answer, Error> {
    let mut load = *load;
    if let (Some(Part::InFlight), Pressure::InFlightPerDrive(n)) = (without, load.pressure) {
        load.pressure = Pressure::InFlightPerDrive((n * 8.0).max(512.0));
    }
    let mut machine = Machine::new(system, &load, seed, without)?;
    let mut run = Run::new(system, &load, limits)?;
    match load.pressure {
        Pressure::InFlightPerDrive(each) if each > 0.0 => {
            let all = (each * f64::from(system.count)).round().clamp(1.0, 1e6) as usize;
            run.closed(&mut machine, all);
        }
        Pressure::InFlightPerDrive(each) => {
            return Err(Error::Impossible(format!("{each} requests in flight for each drive: they are above zero")));
        }
        Pressure::Rate(rate) if rate > 0.0 => run.open(&mut machine, rate, seed),
        Pressure::Rate(rate) => return Err(Error::Impossible(format!("a rate of {rate}: it is above zero"))),
    }
    Ok(run.answer(&machine, &load))
}

/// Requests that [`answer`] is likely to simulate within `limits`, those before the count included, by a `trial`: an
/// answer to the same load within fewer requests.
///
/// # Errors
/// When the system's drive does not exist.
pub fn requests_expected(system: &System, load: &Load, limits: &Limits, trial: &Answer) -> Result<f64, Error> {
    let run = Run::new(system, load, limits)?;
    // The trial counted for as long as this, in batches as long as those of the whole run.
    let batches = (trial.iops * trial.seconds / run.batch as f64).floor();
    let before = (run.before as f64).min(trial.iops * BEFORE_NS_MAX / 1e9);
    // The interval narrows as the root of the batches.
    let narrows = (trial.known_within / limits.known_within).powi(2);
    let wanted = if trial.known_within < 1.0 { batches * narrows } else { 0.0 };
    let counted = (wanted.max(BATCHES_MIN as f64) * run.batch as f64).min(trial.iops * limits.seconds_max);
    Ok((before + counted).min(limits.requests_max as f64))
}

/// Requests before [`answer`] begins to count: they fill buffers.
///
/// # Errors
/// When the system's drive does not exist.
pub fn requests_before(system: &System, load: &Load, limits: &Limits) -> Result<u64, Error> {
    Ok(Run::new(system, load, limits)?.before)
}

/// The optimistic twin of a load: drives that were just filled, and spare room that is still free.
#[must_use]
pub fn fresh_twin(load: &Load) -> Load {
    Load { age: 0.0, ..*load }
}

struct Run {
    limits: Limits,
    /// Requests before the count, at least.
    before: u64,
    batch: u64,
    latencies: Histogram<u64>,
    mean: f64,
    requests: u64,
    counted: u64,
    begun: Option<(f64, Counters)>,
    batch_begun: f64,
    now: f64,
    rates: Vec<f64>,
    known_within: f64,
    ended: Option<Ended>,
}

impl Run {
    fn new(system: &System, load: &Load, limits: &Limits) -> Result<Run, Error> {
        let all = match load.pressure {
            Pressure::InFlightPerDrive(each) => (each * f64::from(system.count)) as u64,
            Pressure::Rate(_) => 1000,
        };
        let flash = system.drive()?.flash;
        let buffer = flash.map_or(0.0, |f| f.buffer_bytes as f64) * f64::from(system.count);
        let cache = if system.card.is_some() { CARD_CACHE_BYTES } else { 0.0 };
        let writes = 1.0 - load.workload.read_percent / 100.0;
        // A random write takes the room of a whole unit.
        let unit = if load.workload.access == Access::Random { flash.map_or(0, |f| f.unit_bytes) } else { 0 };
        let room = f64::from(load.workload.block_bytes.max(unit));
        // Where hosts are hardly faster than drives, buffers fill slowly.
        let fills = if writes > 0.0 { FILLS * (buffer + cache) / room / writes } else { 0.0 };
        let before = (fills as u64).max(10 * all).max(5000).min(limits.requests_max / 2);
        let latencies = Histogram::new_with_bounds(1, 1_000_000_000_000, 3)
            .map_err(|e| Error::Impossible(format!("a histogram: {e}")))?;
        Ok(Run {
            limits: *limits,
            before,
            batch: (2 * all).max(2000),
            latencies,
            mean: 0.0,
            requests: 0,
            counted: 0,
            begun: None,
            batch_begun: 0.0,
            now: 0.0,
            rates: vec![],
            known_within: f64::INFINITY,
            ended: None,
        })
    }

    /// As many in flight as there are; each that ends is followed by another one.
    fn closed(&mut self, machine: &mut Machine, all: usize) {
        let mut heap: BinaryHeap<Reverse<(u64, usize, u64)>> = BinaryHeap::with_capacity(all);
        for slot in 0..all {
            let begins = slot as f64 * 20.0;
            heap.push(Reverse((machine.request(begins, slot) as u64, slot, begins as u64)));
        }
        while self.ended.is_none() {
            let Some(Reverse((end, slot, begun))) = heap.pop() else { return };
            self.done(machine, end as f64, (end - begun) as f64);
            heap.push(Reverse((machine.request(end as f64, slot) as u64, slot, end)));
        }
    }

    /// Requests come at a rate, independently of each other.
    fn open(&mut self, machine: &mut Machine, rate: f64, seed: u64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x9e37_79b9_7f4a_7c15);
        let (mut at, mut slot) = (0.0, 0);
        while self.ended.is_none() {
            let end = machine.request(at, slot);
            self.done(machine, at, end - at);
            at += -(1.0 - rng.random_range(0.0..1.0f64)).ln() * 1e9 / rate;
            slot += 1;
        }
    }

    fn done(&mut self, machine: &Machine, now: f64, latency: f64) {
        self.now = now;
        self.requests += 1;
        let Some((begun, _)) = self.begun else {
            if self.requests >= self.before || now > BEFORE_NS_MAX {
                self.begun = Some((now, machine.counters()));
                self.batch_begun = now;
            }
            return;
        };
        self.counted += 1;
        self.mean += latency;
        self.latencies.saturating_record(latency.max(1.0) as u64);
        if self.counted.is_multiple_of(self.batch) {
            let took = (now - self.batch_begun).max(1.0);
            self.rates.push(self.batch as f64 * 1e9 / took);
            self.batch_begun = now;
            self.known_within = interval(&self.rates);
            if self.known_within <= self.limits.known_within {
                self.ended = Some(Ended::Known);
            }
        }
        if self.ended.is_none() && now - begun > self.limits.seconds_max * 1e9 {
            self.ended = Some(Ended::Seconds);
        }
        if self.ended.is_none() && self.requests >= self.limits.requests_max {
            self.ended = Some(Ended::Requests);
        }
    }

    fn answer(mut self, machine: &Machine, load: &Load) -> Answer {
        let (begun, before) = self.begun.take().unwrap_or((0.0, Counters::default()));
        let after = machine.counters();
        let ns = (self.now - begun).max(1.0);
        let counted = self.counted.max(1) as f64;
        let iops = self.counted as f64 * 1e9 / ns;
        let mean_us = self.mean / counted / 1e3;
        let at = |q: f64| self.latencies.value_at_quantile(q) as f64 / 1e3;
        let host = after.host_written - before.host_written;
        let drives = after.drives.written - before.drives.written;
        let programmed = after.drives.programmed - before.drives.programmed;
        let share = |a: f64, b: f64| (a - b) / ns;
        Answer {
            iops,
            bytes_per_s: iops * f64::from(load.workload.block_bytes),
            mean_us,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            in_flight: iops * mean_us / 1e6,
            known_within: self.known_within.min(1.0),
            seconds: ns / 1e9,
            requests: self.requests,
            ended: self.ended.unwrap_or(Ended::Requests),
            kept: at(0.99) < KEPT_US_MAX && matches!(load.pressure, Pressure::Rate(_)),
            cpu_us: (after.cpu_us - before.cpu_us) / counted,
            drive_bytes_per_byte: if host > 0.0 { drives / host } else { 0.0 },
            flash_amplification: if drives > 0.0 { programmed / drives } else { 0.0 },
            busy: [
                share(after.flash_ns, before.flash_ns),
                share(after.drive_link_ns, before.drive_link_ns),
                share(after.card_ns, before.card_ns),
                share(after.cpu_ns, before.cpu_ns),
                share(after.network_ns, before.network_ns),
            ],
        }
    }
}

/// Half of the 95 % interval of the mean, as a part of it. Student's t for ten batches and more is at most 2.26.
fn interval(rates: &[f64]) -> f64 {
    if rates.len() < BATCHES_MIN {
        return f64::INFINITY;
    }
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let variance = rates.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / (n - 1.0);
    2.26 * (variance / n).sqrt() / mean
}

impl Access {
    /// "random", "in order".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Access::Random => "random",
            Access::Sequential => "in order",
        }
    }
}
