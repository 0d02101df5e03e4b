//! Figures of one open array, since it was opened.

use std::cell::Cell;

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
    /// Reads of a column that failed however often they were tried.
    pub columns_unread: Counter,
}
