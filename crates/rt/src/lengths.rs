//! How long the turns of a runtime's event loop were: what a request may wait before it is seen.
//!
//! Not here: what a turn may take (`turns`, `executor`).

use std::cell::Cell;

use base::classes::{CLASSES, class_of};

/// One turn in so many is counted: to count each made requests 1 to 3 % dearer. No loop of few turns has a length that this divides,
/// so that each of its turns has its share.
const ONE_IN: u8 = 7;

/// Turns, by class.
#[derive(Default)]
pub(crate) struct Lengths {
    /// Turns that are passed over before the next one is counted.
    left: Cell<u8>,
    counts: [Cell<u64>; CLASSES],
    nanos: Cell<u64>,
}

/// What was counted so far, of one turn in seven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnLengths {
    /// How many turns there were in each of [`base::classes`].
    pub counts: Vec<u64>,
    /// Nanoseconds of all of them together.
    pub nanos: u64,
}

impl Lengths {
    /// Whether the turn that ends now is one to [`add`](Self::add). To be asked once for each.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let left = self.left.get();
        self.left.set(if left == 0 { ONE_IN - 1 } else { left - 1 });
        left == 0
    }

    /// A turn took so many nanoseconds.
    #[inline]
    pub(crate) fn add(&self, nanos: u64) {
        let count = &self.counts[class_of(nanos)];
        count.set(count.get() + 1);
        self.nanos.set(self.nanos.get() + nanos);
    }

    pub(crate) fn so_far(&self) -> TurnLengths {
        TurnLengths { counts: self.counts.iter().map(Cell::get).collect(), nanos: self.nanos.get() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::Rt;

    /// A turn that computes is as long as that, and one in seven is counted; sleep is of no turn.
    #[test]
    fn a_turn_is_as_long_as_it_computes() {
        const LONG: Duration = Duration::from_millis(10);
        let rt = Rt::real().expect("a ring");
        rt.block_on(async {
            for _ in 0..2 * super::ONE_IN {
                rt.sleep(LONG).await;
            }
            let before = rt.turn_lengths();
            assert!(before.nanos < LONG.as_nanos() as u64, "{before:?}");
            for _ in 0..2 * super::ONE_IN {
                std::thread::sleep(LONG);
                // The next turn has counted this one.
                rt.sleep(Duration::from_millis(1)).await;
            }
            let after = rt.turn_lengths();
            let long = |lengths: &super::TurnLengths| {
                lengths.counts[super::class_of(LONG.as_nanos() as u64)..].iter().sum::<u64>()
            };
            assert!(after.nanos - before.nanos >= LONG.as_nanos() as u64, "{after:?}");
            assert!((1..=4).contains(&(long(&after) - long(&before))), "{after:?}");
        });
    }
}
