//! Figures of one open array, since it was opened.

use std::cell::Cell;

use api::HistogramView;
use rt::Nanos;

/// A count that only rises.
#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Counts `n` more.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get() + n);
    }

    /// How many there were.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// How long something took, each time: two additions for each.
#[derive(Debug, Default)]
pub struct Histogram {
    /// By [`HistogramView::bucket`].
    counts: [Counter; HistogramView::BUCKETS],
    nanos: Counter,
}

impl Histogram {
    /// It took so many nanoseconds once more.
    #[inline]
    pub fn add(&self, nanos: u64) {
        self.counts[HistogramView::bucket(nanos)].add(1);
        self.nanos.add(nanos);
    }

    /// All of them so far.
    pub fn view(&self) -> HistogramView {
        HistogramView { counts: self.counts.iter().map(Counter::get).collect(), nanos: self.nanos.get() }
    }
}

/// Nanoseconds from one instant to another; 0 when that lies before. Not by a `Duration`, which is made by divisions: each
/// request asks four times.
#[inline]
pub fn since(begun: Nanos, now: Nanos) -> u64 {
    now.0.saturating_sub(begun.0)
}

/// How long something had work to do.
#[derive(Debug, Default)]
pub struct Busy {
    in_flight: Cell<u32>,
    since: Cell<Nanos>,
    nanos: Counter,
}

impl Busy {
    /// A request begins.
    #[inline]
    pub fn begin(&self, now: Nanos) {
        if self.in_flight.replace(self.in_flight.get() + 1) == 0 {
            self.since.set(now);
        }
    }

    /// A request that was begun has ended.
    #[inline]
    pub fn end(&self, now: Nanos) {
        self.in_flight.set(self.in_flight.get() - 1);
        if self.in_flight.get() == 0 {
            self.nanos.add(since(self.since.get(), now));
        }
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    /// Nanoseconds with a request in flight, up to `now`.
    pub fn nanos(&self, now: Nanos) -> u64 {
        let under_way = if self.in_flight.get() == 0 { 0 } else { since(self.since.get(), now) };
        self.nanos.get() + under_way
    }
}

/// Figures of an open array.
#[derive(Default)]
pub struct Figures {
    /// Payload blocks of hosts.
    pub host_blocks_written: Counter,
    /// Blocks the cleaner moved.
    pub moved_blocks: Counter,
    /// Map nodes written.
    pub node_blocks_written: Counter,
    /// Blocks of data columns, headers and padding included.
    pub data_blocks_written: Counter,
    /// Blocks of all columns: those and the redundancy.
    pub raw_blocks_written: Counter,
    /// Blocks written back after a mismatch.
    pub repaired_blocks: Counter,
    /// Checkpoints.
    pub checkpoints: Counter,
    /// When the last one was done, in seconds since 1970; 0: none since the open.
    checkpoint_at: Cell<u64>,
    /// Reads of a column that failed however often they were tried.
    pub columns_unread: Counter,
}

impl Figures {
    /// A checkpoint is done, at this time.
    pub fn checkpointed(&self, unix_seconds: u64) {
        self.checkpoint_at.set(unix_seconds);
    }

    /// When the last one was done, in seconds since 1970; nothing before the first.
    pub fn last_checkpoint(&self) -> Option<u64> {
        Some(self.checkpoint_at.get()).filter(|at| *at > 0)
    }
}
