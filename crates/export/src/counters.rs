//! What an export has done since the server started: plain numbers that `iostat` subtracts.
//!
//! Invariant: numbers only grow, but for `connections` and `in_flight`, which are present values.

use std::cell::Cell;

use crate::namespace::Request;

/// A reading of an export's counters. Failed requests count as errors and not as reads or writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes they returned.
    pub bytes_read: u64,
    /// Writes that succeeded, write zeroes not included.
    pub writes: u64,
    /// Bytes they wrote.
    pub bytes_written: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Deallocations and write zeroes that succeeded.
    pub deallocates: u64,
    /// Bytes they covered.
    pub bytes_deallocated: u64,
    /// Requests of any kind that were answered with an error.
    pub errors: u64,
    /// Those of them that were medium errors.
    pub medium_errors: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections since the start.
    pub connections_total: u64,
    /// Requests now being executed.
    pub in_flight: u64,
}

impl Counters {
    /// Counts a request that succeeded.
    pub(crate) fn add(&mut self, request: &Request<u32>) {
        match *request {
            Request::Read { bytes, .. } => {
                self.reads += 1;
                self.bytes_read += u64::from(bytes);
            }
            Request::Write { data, .. } => {
                self.writes += 1;
                self.bytes_written += u64::from(data);
            }
            Request::Flush => self.flushes += 1,
            Request::WriteZeroes { bytes, .. } | Request::Deallocate { bytes, .. } => {
                self.deallocates += 1;
                self.bytes_deallocated += bytes;
            }
            Request::Extents { .. } => {}
        }
    }
}

/// The live counters of one export.
#[derive(Default)]
pub(crate) struct Live(Cell<Counters>);

impl Live {
    pub(crate) fn read(&self) -> Counters {
        self.0.get()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.0.get();
        change(&mut counters);
        self.0.set(counters);
    }
}
