//! How long an idle thread looks for answers before it sleeps.
//!
//! Who sleeps has to be woken, and an idle CPU takes longer to wake than many an answer takes to come. So the thread looks first,
//! without a call of the kernel, for as long as its sleeps have lately been:
//!
//! ```text
//!   a sleep, with the look before it, took at most `longest`    the next looks are twice as long, from 10 us to `longest`
//!   it took longer                                              half as long; below 5 us none
//!   a look in vain, or one that lost its CPU to another thread  none in the next 1, 2, 4 ... 1,024 idle times
//! ```
//!
//! The last rule is for a server that shares its CPU with its client: while it looks, the client cannot ask, and when the kernel
//! lets the client have the CPU, what it asks is found at once, though a sleep would have been cheaper. Length by the rule of the
//! kernel's halt polling (`Documentation/virt/kvm/halt-polling.rst`).
//!
//! Invariant: what waits for drives and what waits for sockets alone are measured apart, since each has a pace of its own.
//!
//! Not here: the look itself (`ring`).

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::Rt;

/// The shortest look that is begun with, and the shortest that pays.
const FIRST: Duration = Duration::from_micros(10);
const SHORTEST: Duration = Duration::from_micros(5);

/// Idle times without a look after looks in vain, at most.
const RESTS_MAX: u32 = 1024;

/// A look that stood still for so long may have lost its CPU to another thread, or the CPU was interrupted: the kernel knows.
const STOOD_STILL: Duration = Duration::from_micros(2);

/// What an idle thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// A drive has something to answer.
    Drives,
    /// Nothing but what comes over sockets, from other threads, or by the clock.
    Sockets,
}

/// How long looks are.
pub(super) struct Linger {
    longest: Cell<Duration>,
    drives: Pace,
    sockets: Pace,
    /// What [`times_preempted`] said last.
    preempted: Cell<i64>,
}

/// The clock of one look.
pub(super) struct Look {
    begun: Instant,
    passed: Duration,
    longest_gap: Duration,
}

impl Look {
    pub(super) fn begin(begun: Instant) -> Look {
        Look { begun, passed: Duration::ZERO, longest_gap: Duration::ZERO }
    }

    /// How long this idle time has lasted.
    pub(super) fn passed(&mut self) -> Duration {
        let now = self.begun.elapsed();
        self.longest_gap = self.longest_gap.max(now.saturating_sub(self.passed));
        self.passed = now;
        now
    }
}

#[derive(Default)]
struct Pace {
    length: Cell<Duration>,
    /// Idle times left that have no look, and how many there will be after the next one in vain.
    rests: Cell<u32>,
    next_rests: Cell<u32>,
}

impl Linger {
    pub(super) fn new() -> Linger {
        let (drives, sockets) = (Pace::default(), Pace::default());
        Linger { longest: Cell::new(Rt::LINGER), drives, sockets, preempted: Cell::new(times_preempted()) }
    }

    /// No look is longer; zero: there is none.
    pub(super) fn set_longest(&self, longest: Duration) {
        self.longest.set(longest);
    }

    pub(super) fn longest(&self) -> Duration {
        self.longest.get()
    }

    fn pace(&self, awaited: Awaited) -> &Pace {
        match awaited {
            Awaited::Drives => &self.drives,
            Awaited::Sockets => &self.sockets,
        }
    }

    /// How long this idle time looks; `None`: it does not.
    pub(super) fn begin(&self, awaited: Awaited) -> Option<Duration> {
        let pace = self.pace(awaited);
        let length = pace.length.get().min(self.longest.get());
        if length.is_zero() {
            return None;
        }
        match pace.rests.get() {
            0 => Some(length),
            rests => {
                pace.rests.set(rests - 1);
                None
            }
        }
    }

    /// A look found something.
    pub(super) fn found(&self, awaited: Awaited, look: &Look) {
        if look.longest_gap >= STOOD_STILL && self.lost_its_cpu(times_preempted()) {
            return self.in_vain(awaited);
        }
        self.pace(awaited).next_rests.set(1);
    }

    /// Whether another thread had this one's CPU since this was last asked.
    fn lost_its_cpu(&self, times: i64) -> bool {
        self.preempted.replace(times) != times
    }

    /// A look found nothing.
    pub(super) fn in_vain(&self, awaited: Awaited) {
        let pace = self.pace(awaited);
        let rests = pace.next_rests.get().max(1);
        pace.rests.set(rests);
        pace.next_rests.set((rests * 2).min(RESTS_MAX));
    }

    /// A sleep, and the look before it, took so long.
    pub(super) fn slept(&self, awaited: Awaited, took: Duration) {
        let (pace, longest) = (self.pace(awaited), self.longest.get());
        let now = pace.length.get();
        let next = if took <= longest { (now * 2).max(FIRST).min(longest) } else { now / 2 };
        pace.length.set(if next < SHORTEST { Duration::ZERO } else { next });
    }
}

/// How often this thread lost its CPU to another that was to have it (involuntary context switches, getrusage(2)).
fn times_preempted() -> i64 {
    // SAFETY: all zeros are a valid rusage, which is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to a struct of ours that outlives the call.
    let asked = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    if asked == 0 { usage.ru_nivcsw } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn awake(linger: &Linger, awaited: Awaited) {
        (0..4).for_each(|_| linger.slept(awaited, 20 * US));
    }

    #[test]
    fn looks_grow_with_short_sleeps_and_go_with_long_ones() {
        let linger = Linger::new();
        assert_eq!(linger.begin(Awaited::Sockets), None, "nobody knows yet");
        for length in [10, 20, 40, 60, 60] {
            linger.slept(Awaited::Sockets, 50 * US);
            assert_eq!(linger.begin(Awaited::Sockets), Some(length * US));
        }
        for length in [Some(30 * US), Some(15 * US), Some(7 * US + US / 2), None, None] {
            linger.slept(Awaited::Sockets, 61 * US);
            assert_eq!(linger.begin(Awaited::Sockets), length);
        }
    }

    #[test]
    fn after_looks_in_vain_there_are_fewer() {
        let linger = Linger::new();
        awake(&linger, Awaited::Sockets);
        for rests in [1, 2, 4, 8] {
            assert!(linger.begin(Awaited::Sockets).is_some());
            linger.in_vain(Awaited::Sockets);
            (0..rests).for_each(|_| assert_eq!(linger.begin(Awaited::Sockets), None, "of {rests}"));
        }
        assert!(linger.begin(Awaited::Sockets).is_some());
        linger.found(Awaited::Sockets, &undisturbed());
        linger.in_vain(Awaited::Sockets);
        assert_eq!(linger.begin(Awaited::Sockets), None);
        assert!(linger.begin(Awaited::Sockets).is_some(), "one that found something begins anew");
        (0..20).for_each(|_| linger.in_vain(Awaited::Sockets));
        (0..1024).for_each(|_| assert_eq!(linger.begin(Awaited::Sockets), None));
        assert!(linger.begin(Awaited::Sockets).is_some(), "it looks again after all");
    }

    fn undisturbed() -> Look {
        Look { begun: Instant::now(), passed: Duration::ZERO, longest_gap: US }
    }

    #[test]
    fn looks_that_lose_their_cpu_are_in_vain() {
        let linger = Linger::new();
        awake(&linger, Awaited::Sockets);
        let stood_still = Look { longest_gap: STOOD_STILL, ..undisturbed() };
        for rests in [1, 2, 4] {
            assert!(linger.begin(Awaited::Sockets).is_some());
            // What the kernel will say is another number.
            linger.preempted.set(-1);
            linger.found(Awaited::Sockets, &stood_still);
            (0..rests).for_each(|_| assert_eq!(linger.begin(Awaited::Sockets), None, "of {rests}"));
        }
        linger.preempted.set(-1);
        linger.found(Awaited::Sockets, &undisturbed());
        assert!(linger.begin(Awaited::Sockets).is_some(), "nobody asked the kernel");
    }

    #[test]
    fn drives_and_sockets_are_apart() {
        let linger = Linger::new();
        awake(&linger, Awaited::Sockets);
        linger.slept(Awaited::Drives, 80 * US);
        assert_eq!(linger.begin(Awaited::Drives), None);
        linger.in_vain(Awaited::Drives);
        assert!(linger.begin(Awaited::Sockets).is_some());
    }

    #[test]
    fn none_is_none() {
        let linger = Linger::new();
        linger.set_longest(Duration::ZERO);
        awake(&linger, Awaited::Sockets);
        assert_eq!(linger.begin(Awaited::Sockets), None);
        linger.set_longest(8 * US);
        (0..4).for_each(|_| linger.slept(Awaited::Sockets, 8 * US));
        assert_eq!(linger.begin(Awaited::Sockets), Some(8 * US));
    }
}
