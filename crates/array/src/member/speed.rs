//! How long reads of one member take: a high quantile that follows what they have taken lately.

use std::cell::Cell;
use std::time::Duration;

/// The share of reads that take longer than the high quantile.
const ABOVE: f64 = 0.05;

/// How much one read moves the quantile.
const STEP: f64 = 0.05;

/// A quantile this many times above a read comes down faster, the drive being itself again, and goes up faster this many
/// times below one.
const FAR: f64 = 4.0;

/// How long reads of one member take.
#[derive(Default)]
pub struct Speed {
    high_ns: Cell<f64>,
    asked: Cell<u64>,
    /// Reads answered by others.
    around: Cell<u64>,
}

impl Speed {
    /// A read took so long, or at least so long.
    pub fn took(&self, time: Duration) {
        let (ns, high) = (time.as_nanos() as f64, self.high_ns.get());
        let next = match () {
            () if high == 0.0 => ns,
            () if ns > high * FAR => high * (1.0 + 5.0 * STEP),
            () if ns > high => (high * (1.0 + STEP * (1.0 - ABOVE))).min(ns),
            () if ns * FAR < high => high * (1.0 - 2.0 * STEP),
            () => high * (1.0 - STEP * ABOVE),
        };
        self.high_ns.set(next);
    }

    /// The high quantile in nanoseconds; 0: not known yet.
    #[inline]
    pub fn high_ns(&self) -> f64 {
        self.high_ns.get()
    }

    /// Another read; whether it is one of those, one in `every`, by which a slow member is tried.
    #[inline]
    pub fn probes(&self, every: u64) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.asked.get().is_multiple_of(every)
    }

    /// A read was answered by others.
    pub fn went_around(&self) {
        self.around.set(self.around.get() + 1);
    }

    /// Reads answered by others.
    pub fn around(&self) -> u64 {
        self.around.get()
    }
}
