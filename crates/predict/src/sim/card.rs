//! A RAID card: a link each way, ceilings, a write-back cache, and firmware that does the rest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::pipe::Pipe;
use crate::system::{Card, Level};

/// Bytes of write-back cache that are modelled. A real one has gigabytes; the rate once it is full does not depend on
/// its size, and a cell is short.
const CACHE_BYTES: f64 = 64e6;

/// One card.
#[derive(Clone)]
pub(crate) struct CardSim {
    to_host_ns_per_byte: f64,
    from_host_ns_per_byte: f64,
    random_write_ns: f64,
    write_in_order_ns_per_byte: f64,
    slow_ns: f64,
    latency_ns: f64,
    write_back: bool,
    to_host: Pipe,
    from_host: Pipe,
    writes: Pipe,
    slow: Pipe,
    cached: f64,
    /// What leaves the cache when, and how many bytes.
    leaves: BinaryHeap<Reverse<(u64, u64)>>,
}

impl CardSim {
    /// One of `card` at `level`.
    pub(crate) fn new(card: &Card, level: Level) -> CardSim {
        let ceilings = card.level(level);
        CardSim {
            to_host_ns_per_byte: 1e9 / card.to_host_bytes_per_s,
            from_host_ns_per_byte: 1e9 / card.from_host_bytes_per_s,
            random_write_ns: ceilings.random_writes_per_s.map_or(0.0, |r| 1e9 / r),
            write_in_order_ns_per_byte: ceilings.sequential_write_bytes_per_s.map_or(0.0, |r| 1e9 / r),
            slow_ns: 1e9 / card.slow_requests_per_s,
            latency_ns: card.latency_us * 1e3,
            write_back: card.write_back && level != Level::Jbod,
            to_host: Pipe::default(),
            from_host: Pipe::default(),
            writes: Pipe::default(),
            slow: Pipe::default(),
            cached: 0.0,
            leaves: BinaryHeap::new(),
        }
    }

    /// A write of a host arrives.
    pub(crate) fn write_comes(&mut self, now: f64, from: f64, bytes: f64, in_order: bool) -> f64 {
        let there = self.from_host.take(now, from, bytes * self.from_host_ns_per_byte) + self.latency_ns;
        let ns = if in_order { bytes * self.write_in_order_ns_per_byte } else { self.random_write_ns };
        self.writes.take(now, there, ns)
    }

    /// Its firmware does a request by itself.
    pub(crate) fn slowly(&mut self, now: f64, from: f64) -> f64 {
        self.slow.take(now, from, self.slow_ns)
    }

    /// A write that is on its drives at `end`: when it is answered.
    pub(crate) fn write_ends(&mut self, from: f64, end: f64, bytes: f64) -> f64 {
        if !self.write_back {
            return end;
        }
        let mut at = from;
        while let Some(&Reverse((leaves, size))) = self.leaves.peek()
            && (leaves as f64 <= at || self.cached + bytes > CACHE_BYTES)
        {
            self.leaves.pop();
            at = at.max(leaves as f64);
            self.cached -= size as f64;
        }
        self.cached += bytes;
        self.leaves.push(Reverse((end as u64, bytes as u64)));
        at
    }

    /// A read goes to the host.
    pub(crate) fn read_goes(&mut self, now: f64, from: f64, bytes: f64) -> f64 {
        self.to_host.take(now, from, bytes * self.to_host_ns_per_byte) + self.latency_ns
    }

    /// Busy ns of its busiest part.
    pub(crate) fn busy(&self) -> f64 {
        [&self.to_host, &self.from_host, &self.writes, &self.slow].into_iter().map(Pipe::busy).fold(0.0, f64::max)
    }
}
