//! Which request comes next.
//!
//! Invariant: same seed, same load: same requests.

use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::load::{Load, Order, Pattern};

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) reads: bool,
    pub(crate) offset: u64,
}

/// The requests of one run.
pub(crate) struct Addresses {
    pattern: Pattern,
    block_bytes: u64,
    /// Where the working set begins.
    start: u64,
    /// Places in the working set.
    places: u64,
    /// The next place of a sequential load.
    next: u64,
    random: Xoshiro256PlusPlus,
}

impl Addresses {
    pub(crate) fn new(load: &Load, working_set: &Range<u64>, seed: u64) -> Addresses {
        let block_bytes = u64::from(load.block_bytes);
        Addresses {
            pattern: load.pattern,
            block_bytes,
            start: working_set.start,
            places: (working_set.end - working_set.start) / block_bytes,
            next: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    pub(crate) fn next(&mut self) -> Op {
        let place = match self.pattern.order {
            Order::Random => self.random.random_range(0..self.places),
            Order::Skewed => {
                // A set of one or two places has no fifth.
                let hot = (self.places / 5).max(1);
                if hot == self.places || self.random.random_range(0..100) < 80 {
                    self.random.random_range(0..hot)
                } else {
                    self.random.random_range(hot..self.places)
                }
            }
            Order::Sequential => {
                let place = self.next;
                self.next = if place + 1 == self.places { 0 } else { place + 1 };
                place
            }
        };
        let reads = match self.pattern.read_percent {
            100 => true,
            0 => false,
            percent => self.random.random_range(0..100) < percent,
        };
        Op { reads, offset: self.start + place * self.block_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_load_wraps() {
        let load = Load::new(Pattern::SEQUENTIAL_WRITE, 4096, 1);
        let mut addresses = Addresses::new(&load, &(4096..4 * 4096 + 100), 1);
        let offsets: Vec<u64> = (0..4).map(|_| addresses.next().offset).collect();
        assert_eq!(offsets, [4096, 8192, 12288, 4096]);
    }

    #[test]
    fn a_skewed_load_prefers_a_fifth() {
        let mut addresses = Addresses::new(&Load::new(Pattern::SKEWED_WRITE, 4096, 1), &(0..100 * 4096), 1);
        let hot = (0..10_000).filter(|_| addresses.next().offset < 20 * 4096).count();
        assert!((7_800..8_200).contains(&hot), "{hot}");
        let mut one = Addresses::new(&Load::new(Pattern::SKEWED_WRITE, 4096, 1), &(0..4096), 1);
        assert_eq!(one.next().offset, 0);
    }

    #[test]
    fn a_random_load_covers_the_set_and_mixes() {
        let load = Load::new(Pattern { order: Order::Random, read_percent: 70 }, 4096, 1);
        let mut addresses = Addresses::new(&load, &(0..64 * 4096), 1);
        let ops: Vec<Op> = (0..10_000).map(|_| addresses.next()).collect();
        for place in 0..64 {
            let hits = ops.iter().filter(|op| op.offset == place * 4096).count();
            assert!((80..250).contains(&hits), "place {place}: {hits}");
        }
        let reads = ops.iter().filter(|op| op.reads).count();
        assert!((6_800..7_200).contains(&reads), "{reads}");
    }
}
