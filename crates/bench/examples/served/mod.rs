//! What a request costs a server that is a process of its own: CPU time of all its threads, as the kernel counts it.
//!
//! On loopback and unix sockets a part of what the transport costs is done in the sender's time, alike for all servers.

use std::error::Error;
use std::fs;
use std::time::Duration;

use bench::generate::fill;
use bench::{Load, Pattern, Target, Until, generate};
use futures::future::try_join_all;
use rt::Rt;

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes that are filled and worked on.
pub const WORKING_SET: u64 = 128 << 20;
/// How long one load runs.
pub const TIME: Duration = Duration::from_millis(600);
/// Rounds that medians are taken of.
pub const ROUNDS: usize = 5;

/// 4 KiB at depth 1, 32 and 128, and 128 KiB.
#[allow(dead_code, reason = "one program has loads of its own")]
pub fn loads() -> Vec<Load> {
    let small = |pattern, depth| Load::new(pattern, 4096, depth);
    let large = |pattern| Load::new(pattern, 128 << 10, 16);
    let mut loads = vec![];
    for depth in [1, 32, 128] {
        loads.extend([small(Pattern::RANDOM_READ, depth), small(Pattern::RANDOM_WRITE, depth)]);
    }
    loads.extend([Pattern::SEQUENTIAL_READ, Pattern::SEQUENTIAL_WRITE].map(large));
    loads
}

/// Random writes of 4 KiB that bring the log of an array of 2 GiB to all of its zones.
const TOUCHES: u64 = 2 << 20;

/// Writes so much that all of the drives were used, and then the working set in its order: a page of memory costs several
/// times as much when it is touched for the first time, and what has to be cleaned is no part of the first loads.
///
/// # Errors
/// When a request fails.
pub fn touch_all(rt: &Rt, target: &Target) -> Outcome<()> {
    let load = Load::new(Pattern::RANDOM_WRITE, 4096, 128);
    rt.block_on(generate(rt, target, &load, 0..WORKING_SET, Until::Requests(TOUCHES), 0))?;
    rt.block_on(fill(rt, target, WORKING_SET))?;
    Ok(())
}

/// What a load came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// CPU time of the server for each request, in microseconds.
    pub cpu_us: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// Thousands of requests a second.
    pub kiops: f64,
}

impl Cost {
    /// The one in the middle by CPU time, of at least one.
    pub fn median(mut all: Vec<Cost>) -> Cost {
        all.sort_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us));
        all[all.len() / 2]
    }
}

/// Runs `load` over the working set of each of `targets` at once: connections to the process `pid`. The latency is that of
/// the first.
///
/// # Errors
/// When a request fails, or the process is gone.
pub fn cost(rt: &Rt, pid: u32, targets: &[Target], load: &Load, seed: u64) -> Outcome<Cost> {
    costed(pid, || {
        let until = Until::Elapsed { time: TIME, bytes_max: u64::MAX };
        let runs = (seed..).zip(targets).map(|(seed, target)| generate(rt, target, load, 0..WORKING_SET, until, seed));
        let samples = rt.block_on(try_join_all(runs))?;
        let requests = samples.iter().map(|sample| sample.requests).sum();
        Ok((requests, samples[0].latency.ns_p50 as f64 / 1000.0, samples[0].elapsed))
    })
}

/// What a run came to, which says how many requests it made, their median latency in microseconds, and how long it took.
///
/// # Errors
/// When the run fails, or the process is gone.
pub fn costed(pid: u32, run: impl FnOnce() -> Outcome<(u64, f64, Duration)>) -> Outcome<Cost> {
    let before = cpu_us(pid)?;
    let (requests, p50_us, elapsed) = run()?;
    let requests = requests as f64;
    Ok(Cost { cpu_us: (cpu_us(pid)? - before) / requests, p50_us, kiops: requests / elapsed.as_secs_f64() / 1000.0 })
}

/// CPU time of all threads of a process so far, in microseconds.
fn cpu_us(pid: u32) -> Outcome<f64> {
    let mut ns = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let account = fs::read_to_string(thread?.path().join("schedstat"))?;
        ns += account.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(ns as f64 / 1000.0)
}
