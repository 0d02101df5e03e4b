//! How long the turns of a runtime's event loop were: what a request may wait before it is seen.
//!
//! Not here: what a turn may take (`turns`, `executor`).

use std::cell::Cell;

use base::classes::{CLASSES, class_of};

/// Turns, by class: two additions for each.
#[derive(Default)]
pub(crate) struct Lengths {
    counts: [Cell<u64>; CLASSES],
    nanos: Cell<u64>,
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
