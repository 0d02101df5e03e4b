//! How much is looked at between two looks at the ring: what the tests of long requests count.
//!
//! Only with the feature `canary`; without it there is nothing to count with, and nothing is counted.

use rt::Rt;

#[cfg(feature = "canary")]
use std::cell::Cell;

/// Looks: nodes, leaves, ranges; and how many fell into one turn of the runtime.
#[derive(Default)]
pub struct Meter {
    #[cfg(feature = "canary")]
    turn: Cell<u64>,
    #[cfg(feature = "canary")]
    now: Cell<u64>,
    #[cfg(feature = "canary")]
    most: Cell<u64>,
    #[cfg(feature = "canary")]
    all: Cell<u64>,
}

impl Meter {
    /// So many more were looked at.
    #[cfg(feature = "canary")]
    pub fn looked(&self, rt: &Rt, n: u64) {
        if self.turn.replace(rt.turn()) != rt.turn() {
            self.now.set(0);
        }
        self.now.set(self.now.get() + n);
        self.all.set(self.all.get() + n);
        self.most.set(self.most.get().max(self.now.get()));
    }

    /// Nothing is counted.
    #[cfg(not(feature = "canary"))]
    #[expect(clippy::unused_self, reason = "it counts with the feature")]
    pub const fn looked(&self, _: &Rt, _: u64) {}

    /// The most in one turn, and all, since this was asked last.
    #[cfg(feature = "canary")]
    pub fn take(&self) -> (u64, u64) {
        self.now.set(0);
        (self.most.take(), self.all.take())
    }
}
