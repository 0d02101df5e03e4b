//! Figures of one open array, since it was opened.

use std::cell::Cell;

/// Figures of an open array.
#[derive(Default)]
pub struct Figures {
    /// Payload blocks of hosts.
    pub host_blocks_written: Cell<u64>,
    /// Blocks the cleaner moved.
    pub moved_blocks: Cell<u64>,
    /// Map nodes written.
    pub node_blocks_written: Cell<u64>,
    /// Blocks of data columns, headers and padding included.
    pub data_blocks_written: Cell<u64>,
    /// Blocks of all columns: those and the redundancy.
    pub raw_blocks_written: Cell<u64>,
    /// Blocks written back after a mismatch.
    pub repaired_blocks: Cell<u64>,
    /// Checkpoints.
    pub checkpoints: Cell<u64>,
    /// Reads of a column that failed however often they were tried.
    pub columns_unread: Cell<u64>,
}

/// Adds to a figure.
pub fn add(figure: &Cell<u64>, n: u64) {
    figure.set(figure.get() + n);
}
