//! What is written: slices of one buffer of random bytes.
//!
//! Every target gets the same bytes from the same place, so that the source costs all of them the same.

use std::cell::Cell;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::{Buf, Bytes};

/// The buffer's size: beyond a core's own cache, as a host's data would be.
const POOL_BYTES: usize = 4 << 20;

/// A source of data.
pub(crate) struct Payload {
    pool: Bytes,
    block_bytes: usize,
    at: Cell<usize>,
}

impl Payload {
    pub(crate) fn new(block_bytes: u32) -> Payload {
        let block_bytes = block_bytes as usize;
        let mut pool = Buf::zeroed((POOL_BYTES / block_bytes).max(1) * block_bytes);
        Xoshiro256PlusPlus::seed_from_u64(1).fill(&mut pool[..]);
        Payload { pool: pool.freeze(), block_bytes, at: Cell::new(0) }
    }

    /// The next block.
    pub(crate) fn next(&self) -> Bytes {
        let at = self.at.get();
        let end = at + self.block_bytes;
        self.at.set(if end == self.pool.len() { 0 } else { end });
        self.pool.slice(at..end)
    }
}
