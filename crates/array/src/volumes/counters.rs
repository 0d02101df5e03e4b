//! What hosts ask of one volume, counted.

use std::collections::BTreeMap;

use api::WorkView;
use rt::Nanos;

use crate::ctx::figures::{Busy, Counter, Histogram};
use crate::fault::Fault;

/// Requests of hosts to one volume.
#[derive(Default)]
pub struct VolumeCounters {
    /// Requests.
    pub reads: Counter,
    /// Requests.
    pub writes: Counter,
    /// Requests.
    pub flushes: Counter,
    /// Requests.
    pub deallocates: Counter,
    /// Bytes.
    pub bytes_read: Counter,
    /// Bytes.
    pub bytes_written: Counter,
    /// Requests that failed, by [`Fault::ALL`].
    faults: [Counter; Fault::ALL.len()],
    /// How long requests took that succeeded, by [`Op`].
    took: [Histogram; 4],
    busy: Busy,
}

/// What a host asks for, as times are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Data, or where it is.
    Read,
    /// Data, zeros too.
    Write,
    /// That what was written is durable.
    Flush,
    /// Blocks back.
    Deallocate,
}

impl VolumeCounters {
    /// A request begins.
    #[inline]
    pub fn begin(&self, now: Nanos) {
        self.busy.begin(now);
    }

    /// A request that was begun is not waited for any more.
    #[inline]
    pub fn end(&self, now: Nanos) {
        self.busy.end(now);
    }

    /// What became of a request.
    #[inline]
    pub fn took(&self, op: Op, nanos: u64, fault: Option<Fault>) {
        match fault {
            None => self.took[op as usize].add(nanos),
            Some(fault) => self.faults[fault as usize].add(1),
        }
    }

    /// Requests that failed.
    pub fn errors(&self) -> u64 {
        self.faults.iter().map(Counter::get).sum()
    }

    /// How they were done, up to `now`.
    pub fn work(&self, now: Nanos, limited_nanos: u64) -> WorkView {
        let [reads, writes, flushes, deallocates] = self.took.each_ref().map(Histogram::view);
        let faults = Fault::ALL.iter().map(|fault| (fault.word().to_owned(), self.faults[*fault as usize].get()));
        WorkView {
            reads,
            writes,
            flushes,
            deallocates,
            in_flight: u64::from(self.busy.in_flight()),
            busy_nanos: self.busy.nanos(now),
            parts: 1,
            limited_nanos,
            faults: faults.filter(|(_, n)| *n > 0).collect::<BTreeMap<_, _>>(),
        }
    }
}
