//! What a run of seeds did.

use crate::kind::{Counts, Kind};

/// Figures of a seed, or of many.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Seeds.
    pub seeds: u64,
    /// Faults by kind.
    pub faults: Counts,
    /// Opens that recovered.
    pub recoveries: u64,
    /// Blocks written back that did not match their checksum.
    pub repairs: u64,
    /// Blocks that read as lost, of arrays damaged beyond their redundancy.
    pub lost_blocks: u64,
    /// Of arrays damaged beyond their redundancy: opens that were refused, with their reason.
    pub refused: u64,
    /// Requests answered.
    pub requests: u64,
    /// Bytes written by hosts.
    pub bytes: u64,
    /// Blocks the cleaner moved.
    pub moved: u64,
    /// Requests refused for want of space.
    pub no_space: u64,
    /// A hash over everything that was decided and found.
    pub trace: u64,
}

impl Report {
    /// Adds another seed's.
    pub fn add(&mut self, o: &Report) {
        self.seeds += o.seeds;
        self.faults.add_all(&o.faults);
        self.recoveries += o.recoveries;
        self.repairs += o.repairs;
        self.lost_blocks += o.lost_blocks;
        self.refused += o.refused;
        self.requests += o.requests;
        self.bytes += o.bytes;
        self.moved += o.moved;
        self.no_space += o.no_space;
        // Whatever the order in which they ended.
        self.trace ^= o.trace;
    }

    /// Takes a value into the trace.
    pub fn mix(&mut self, value: u64) {
        self.trace = (self.trace ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    }

    /// For people; of these kinds.
    pub fn print(&self, kinds: &[Kind]) {
        println!(
            "{} seeds: {} recoveries, {} requests, {} MiB written, {} blocks moved, {} requests without space",
            self.seeds,
            self.recoveries,
            self.requests,
            self.bytes >> 20,
            self.moved,
            self.no_space
        );
        println!(
            "repairs {}; beyond the redundancy {} blocks read as lost, {} opens refused; trace {:016x}",
            self.repairs, self.lost_blocks, self.refused, self.trace
        );
        for pair in kinds.chunks(3) {
            let cells: Vec<String> =
                pair.iter().map(|k| format!("{:<18}{:>9}", format!("{k:?}"), self.faults.of(*k))).collect();
            println!("  {}", cells.join("    "));
        }
    }
}
