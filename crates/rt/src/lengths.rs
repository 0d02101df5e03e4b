//! How long the turns of a runtime's event loop were: what a request may wait before it is seen.
//!
//! Not here: what a turn may take (`turns`, `executor`).

use std::cell::Cell;

use base::classes::{CLASSES, class_of};

/// Bits of a length that ends the first class.
const FIRST_BITS: u32 = 13;

/// Turns, by class; each costs every request that it serves, so this is done in few instructions.
pub(crate) struct Lengths {
    /// By the highest bit of one nanosecond less, from the first class's on.
    counts: [Cell<u64>; (u64::BITS - FIRST_BITS) as usize + 1],
    nanos: Cell<u64>,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { counts: [const { Cell::new(0) }; (u64::BITS - FIRST_BITS) as usize + 1], nanos: Cell::new(0) }
    }
}

/// What was counted so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnLengths {
    /// How many turns there were in each of [`base::classes`].
    pub counts: Vec<u64>,
    /// Nanoseconds of all of them together.
    pub nanos: u64,
}

impl Lengths {
    /// A turn took so many nanoseconds, one at least.
    #[inline]
    pub(crate) fn add(&self, nanos: u64) {
        let highest = (nanos.wrapping_sub(1) | ((1 << FIRST_BITS) - 1)).ilog2();
        let count = &self.counts[(highest - (FIRST_BITS - 1)) as usize];
        count.set(count.get() + 1);
        self.nanos.set(self.nanos.get() + nanos);
    }

    pub(crate) fn so_far(&self) -> TurnLengths {
        let mut counts = vec![0; CLASSES];
        for (bits, count) in (FIRST_BITS..).zip(&self.counts) {
            counts[class_of(1u64.checked_shl(bits).unwrap_or(u64::MAX))] += count.get();
        }
        TurnLengths { counts, nanos: self.nanos.get() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::classes::class_of;

    use super::Lengths;
    use crate::Rt;

    #[test]
    fn each_is_in_its_class() {
        for nanos in [1, 2, 8191, 8192, 8193, 16384, 16385, 1 << 30, (1 << 36) + 1, 1 << 40, u64::MAX] {
            let lengths = Lengths::default();
            lengths.add(nanos);
            let counts = lengths.so_far().counts;
            assert_eq!(counts.iter().position(|count| *count == 1), Some(class_of(nanos)), "{nanos} ns");
        }
    }

    /// A turn that computes is as long as that; sleep is of no turn.
    #[test]
    fn a_turn_is_as_long_as_it_computes() {
        const LONG: Duration = Duration::from_millis(40);
        let rt = Rt::real().expect("a ring");
        rt.block_on(async {
            rt.sleep(LONG).await;
            let before = rt.turn_lengths();
            assert!(before.nanos < LONG.as_nanos() as u64, "{before:?}");
            std::thread::sleep(LONG);
            // The next turn has counted this one.
            rt.sleep(Duration::from_millis(1)).await;
            let after = rt.turn_lengths();
            let count = |lengths: &super::TurnLengths| lengths.counts.iter().sum::<u64>();
            assert!(after.nanos - before.nanos >= LONG.as_nanos() as u64, "{after:?}");
            assert!(count(&after) > count(&before), "{after:?}");
        });
    }
}
