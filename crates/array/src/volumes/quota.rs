//! Limits of a volume: requests and bytes a second, with what was saved up.
//!
//! Each of the two is a time: when the next request may begin at the limit. A request moves it on by what it costs; it
//! never lies further back than the burst, so that is what a volume that asked for little may take at once.
//!
//! Invariants: over any time t a volume begins at most (t + burst) times its limit, and one request; requests begin in the
//! order in which they came; a changed limit counts for those that wait as well.

use std::cell::Cell;
use std::time::Duration;

use ondisk::Limits;

use super::Volumes;
use super::vol::Vol;
use crate::canary::{Canary, planted};
use crate::ctx::figures::Counter;
use crate::fault::Fault;

/// Who waits looks at least so often whether the limits changed or the array closes.
const NAP: Duration = Duration::from_millis(50);

/// How far a volume is ahead of its limits.
#[derive(Default)]
pub struct Quota {
    /// When the next request may begin, in ns: by number, and by bytes.
    next: Cell<[u64; 2]>,
    /// Counts changes of the limits.
    edition: Cell<u64>,
    /// Requests that had to wait.
    pub waited: Counter,
    /// How long they waited, together.
    pub waited_nanos: Counter,
}

impl Quota {
    /// The limits changed: nobody owes anything, nobody has saved anything.
    pub fn begin_anew(&self, now_ns: u64) {
        self.next.set([now_ns; 2]);
        self.edition.set(self.edition.get() + 1);
    }

    /// When a request that comes now may begin.
    fn book(&self, limits: Limits, bytes: u64, now_ns: u64) -> u64 {
        let floor = now_ns.saturating_sub(u64::from(limits.burst_ms) * 1_000_000);
        let costs = [cost(1, u64::from(limits.iops)), cost(bytes, limits.bytes_per_second)];
        let begins = self.next.get().map(|next| next.max(floor));
        self.next.set([begins[0].saturating_add(costs[0]), begins[1].saturating_add(costs[1])]);
        let limited = |i: usize| if costs[i] > 0 { begins[i] } else { 0 };
        limited(0).max(limited(1))
    }
}

/// What `units` take at `per_second`, in ns; 0 without a limit.
fn cost(units: u64, per_second: u64) -> u64 {
    let ns = u128::from(units) * 1_000_000_000 / u128::from(per_second.max(1));
    if per_second == 0 { 0 } else { u64::try_from(ns).unwrap_or(u64::MAX) }
}

impl Volumes {
    /// Waits until the limits of `vol` let a request of `bytes` begin.
    pub async fn within_limits(&self, vol: &Vol, bytes: u64) -> Result<(), Fault> {
        let unlimited = |l: Limits| l.iops == 0 && l.bytes_per_second == 0;
        let mut waited = false;
        while !unlimited(vol.limits()) && !planted(Canary::LimitsForgotten) {
            let (edition, begin) = (vol.quota.edition.get(), vol.quota.book(vol.limits(), bytes, self.ctx.rt.now().0));
            while self.ctx.rt.now().0 < begin && vol.quota.edition.get() == edition {
                if self.ctx.is_closing() {
                    return Err(Fault::Closed);
                }
                if !waited {
                    waited = true;
                    vol.quota.waited.add(1);
                }
                let slept = self.ctx.rt.now();
                self.ctx.rt.sleep(Duration::from_nanos(begin - slept.0).min(NAP)).await;
                vol.quota.waited_nanos.add((self.ctx.rt.now() - slept).as_nanos() as u64);
            }
            if vol.quota.edition.get() == edition {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Requests of 4 KiB, asked for all at once at `from`, that begin within `span`.
    fn begun(quota: &Quota, limits: Limits, from: u64, span: u64) -> usize {
        (0..100_000).filter(|_| quota.book(limits, 4096, from) < from + span).count()
    }

    #[test]
    fn both_limits_hold() {
        for (limits, count) in [
            (Limits { iops: 1000, ..Limits::default() }, 1000),
            (Limits { bytes_per_second: 4096 * 500, ..Limits::default() }, 500),
            (Limits { iops: 1000, bytes_per_second: 4096 * 500, burst_ms: 0 }, 500),
            (Limits { iops: 1000, burst_ms: 2000, ..Limits::default() }, 3000),
        ] {
            let quota = Quota::default();
            assert_eq!(begun(&quota, limits, 10 * SECOND, SECOND), count, "{limits:?}");
        }
    }

    #[test]
    fn nothing_is_saved_beyond_the_burst() {
        let limits = Limits { iops: 100, burst_ms: 500, ..Limits::default() };
        let quota = Quota::default();
        assert_eq!(begun(&quota, limits, 3600 * SECOND, 1), 51);
        quota.begin_anew(4000 * SECOND);
        assert_eq!(begun(&quota, limits, 4000 * SECOND, 1), 1, "after a change it begins with nothing");
    }
}
