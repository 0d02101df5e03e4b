//! Mutations of an input by a seed: what a replay does where there is no fuzzer.
//!
//! Invariant: the same input and the same seed give the same bytes.

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Values at which arithmetic goes wrong.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 48, u64::MAX];

/// A generator of mutations.
pub struct Mutator(Xoshiro256PlusPlus);

impl Mutator {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Mutator {
        Mutator(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// One of `n`, which is not 0.
    pub fn pick(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    /// `input` with one to eight changes, a part of `other` among them now and then.
    #[must_use]
    pub fn mutate(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..self.0.random_range(1..=8) {
            self.change(&mut bytes, other);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        if bytes.is_empty() {
            bytes.push(self.0.random());
            return;
        }
        let at = self.pick(bytes.len());
        let room = bytes.len() - at;
        match self.pick(8) {
            0 | 1 => bytes[at] ^= 1 << self.pick(8),
            2 => bytes[at] = self.0.random(),
            3 | 4 => {
                let width = [1, 2, 4, 8][self.pick(4)].min(room);
                let value = EDGES[self.pick(EDGES.len())].wrapping_add(self.0.next_u64() % 3).wrapping_sub(1);
                let (le, be) = (value.to_le_bytes(), value.to_be_bytes());
                let value = if self.0.random() { &le[..width] } else { &be[8 - width..] };
                bytes[at..at + width].copy_from_slice(value);
            }
            5 if !other.is_empty() => {
                let from = self.pick(other.len());
                let n = self.pick(64).min(room).min(other.len() - from);
                bytes[at..at + n].copy_from_slice(&other[from..from + n]);
            }
            6 => {
                let n = self.pick(32).min(room);
                let part = bytes[at..at + n].to_vec();
                let to = self.pick(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            _ => {
                let n = self.pick(32).min(room);
                bytes.drain(at..at + n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let run = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..100).map(|_| mutator.mutate(b"input of some length", b"other")).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
