//! Random numbers: one small generator, seeded by the test's seed or by the kernel.
//!
//! Not here: secrets. The generator is predictable to whoever sees its output.
#![allow(unsafe_code)]

use std::io;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded generator with the few draws that this crate needs.
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn from_seed(seed: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Seeded by the kernel.
    pub(crate) fn from_os() -> io::Result<Random> {
        let mut seed = [0u8; 32];
        // SAFETY: the pointer and the length describe `seed`, which is writable.
        let n = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
        if n != seed.len() as isize {
            return Err(io::Error::last_os_error());
        }
        Ok(Random(Xoshiro256PlusPlus::from_seed(seed)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `limit` (which is not 0). The bias of the multiplication is below 2^-32 for our limits.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True once in `n` draws; never for 0.
    pub(crate) fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.below(u64::from(n)) == 0
    }

    /// A number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_range_and_follow_the_seed() {
        let mut a = Random::from_seed(1);
        let mut b = Random::from_seed(1);
        for _ in 0..1000 {
            let x = a.below(7);
            assert!(x < 7);
            assert_eq!(x, b.below(7));
            assert!((0.0..1.0).contains(&a.unit()));
            b.unit();
        }
        assert!(!a.one_in(0));
        assert!(a.one_in(1));
        assert_ne!(Random::from_os().unwrap().next(), Random::from_os().unwrap().next());
    }
}
