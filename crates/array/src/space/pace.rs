//! The pace of hosts' writes: no limit while there is room, then what the cleaner gains, then nothing.
//!
//! Between [`Ladder::clean_below`](crate::space::ladder::Ladder) and the write floor lies a band; x is where the room lies in
//! it, 1 at the top. The topmost quarter is for the cleaner to get going. Below, hosts get x' / (1 - x') blocks for each
//! that the cleaner gains, where x' is x / 0.75: nearly all they want at first, one for one in the middle, where room
//! stays as it is, none at the floor. So the room settles where the cleaner keeps up. What it gains is spread over
//! [`MEMORY_NS`]: a write waits for its turn in an even stream, not for a step of the cleaner, nor for a checkpoint.
//!
//! Invariants: writes are admitted in the order in which they came; above the band, or when the cleaner has nothing
//! to gain, nobody is paced.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::canary::{Canary, planted};

/// Above this part of the band there is no limit.
const FREE_ABOVE: f64 = 0.75;

/// Time over which gains are spread: some segments' worth of a cleaner at work.
const MEMORY_NS: f64 = 20e6;

/// Blocks that hosts may take at once. Those who wait go on together, so that they share a record: one by one each
/// would fill a row of its own.
const AT_ONCE: f64 = 64.0;

/// How long one who waits sleeps before it looks again.
const NAP_NS: (f64, f64) = (10e3, 200e3);

/// Who may take how much.
#[derive(Default)]
pub struct Pace {
    /// Where the room lies in the band.
    band: Cell<f64>,
    /// Blocks gained per ns, when last looked.
    gain: Cell<f64>,
    /// Blocks that hosts may take now; below 0 by the last request.
    given: Cell<f64>,
    /// Those who waited are going on.
    open: Cell<bool>,
    /// When both were up to date, in ns.
    looked: Cell<u64>,
    /// Whether the cleaner has something to gain.
    cleaning: Cell<bool>,
    /// Those who wait by number, the first with them, who looks whether it may go on. Only that one looks: were all woken
    /// whenever something changed, a thousand of them would do nothing else.
    waiting: RefCell<BTreeMap<u64, Option<Waker>>>,
    /// The next one's number.
    next: Cell<u64>,
    /// Those before are woken already.
    woken: Cell<u64>,
}

/// A place in the queue; left on drop.
pub struct Turn<'a> {
    pace: &'a Pace,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pace.waiting.borrow_mut().remove(&self.number);
        self.pace.wake_first();
    }
}

impl Pace {
    /// Queues up, and waits until all who came before are gone.
    pub async fn queue(&self) -> Turn<'_> {
        let number = self.next.replace(self.next.get() + 1);
        self.waiting.borrow_mut().insert(number, None);
        let turn = Turn { pace: self, number };
        poll_fn(|cx| {
            let mut waiting = self.waiting.borrow_mut();
            if waiting.first_key_value().is_some_and(|(first, _)| *first == number) {
                return Poll::Ready(());
            }
            waiting.insert(number, Some(cx.waker().clone()));
            self.woken.set(self.woken.get().min(number));
            Poll::Pending
        })
        .await;
        turn
    }

    /// Wakes whose turn it is, and those behind: they come to their turns in the same round, so that they share a record.
    fn wake_first(&self) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.first_key_value().is_none_or(|(first, _)| *first < self.woken.get()) {
            return;
        }
        for (number, waker) in waiting.iter_mut().take(AT_ONCE as usize) {
            self.woken.set(number + 1);
            if let Some(waker) = waker.take() {
                waker.wake();
            }
        }
    }

    /// Whether somebody waits.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// The room was measured: it lies here in the band.
    pub fn measured(&self, band: f64) {
        self.band.set(band);
    }

    /// The cleaner has, or has no more, something to gain.
    pub fn set_cleaning(&self, cleaning: bool) {
        self.cleaning.set(cleaning);
    }

    /// Whether the cleaner has something to gain, or had when it was last at work.
    pub fn is_cleaning(&self) -> bool {
        self.cleaning.get()
    }

    /// Blocks that hosts get for one that is gained.
    fn factor(&self) -> f64 {
        let x = (self.band.get() / FREE_ABOVE).clamp(0.0, 0.999);
        x / (1.0 - x)
    }

    /// Brings the gain and what is given up to `now`.
    fn look(&self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.looked.replace(now_ns)) as f64;
        let still = f64::exp(-passed / MEMORY_NS);
        // What a gain that fades gives meanwhile.
        let gained = self.gain.get() * MEMORY_NS * (1.0 - still);
        self.gain.set(self.gain.get() * still);
        self.given.set((self.given.get() + gained * self.factor()).min(AT_ONCE));
    }

    /// The cleaner gained so many blocks.
    pub fn gained(&self, blocks: f64, now_ns: u64) {
        self.look(now_ns);
        self.gain.set(self.gain.get() + blocks / MEMORY_NS);
    }

    /// Whether writes are paced at all.
    pub fn limited(&self) -> bool {
        self.band.get() < FREE_ABOVE && self.cleaning.get() && !planted(Canary::FloorForgotten)
    }

    /// How long the next write should wait before it looks again; `None`: it may go on.
    pub fn wait(&self, now_ns: u64) -> Option<Duration> {
        self.look(now_ns);
        let all = (self.waiting.borrow().len() as f64).min(AT_ONCE);
        let enough = if self.open.get() { f64::MIN_POSITIVE } else { all.max(f64::MIN_POSITIVE) };
        self.open.set(!self.limited() || self.given.get() >= enough);
        if self.open.get() {
            return None;
        }
        let rate = self.gain.get() * self.factor();
        let ns = ((enough - self.given.get()) / rate.max(1e-12)).clamp(NAP_NS.0, NAP_NS.1);
        Some(Duration::from_nanos(ns as u64))
    }

    /// It took so many blocks; headers and padding of its records are told later.
    pub fn take(&self, blocks: u64) {
        if self.limited() {
            self.given.set(self.given.get() - blocks as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const MS: u64 = 1_000_000;

    /// Blocks that hosts get from `from` on for a second, when the cleaner gains 100 each millisecond.
    fn taken(pace: &Pace, from: u64) -> u64 {
        let mut taken = 0;
        for ms in 0..1000 {
            pace.gained(100.0, from + ms * MS);
            for us in 0..1000 {
                while taken < 1_000_000 && pace.wait(from + ms * MS + us * 1000).is_none() {
                    pace.take(1);
                    taken += 1;
                }
            }
        }
        taken
    }

    #[test]
    fn hosts_get_what_the_cleaner_gains() {
        let pace = Pace::default();
        pace.set_cleaning(true);
        // One for one in the middle; a third of that, three times that.
        for (i, (x, about)) in [(0.375, 100_000), (0.1875, 33_333), (0.5625, 300_000), (0.0, 0)].into_iter().enumerate()
        {
            pace.measured(x);
            let taken = taken(&pace, (i as u64 + 1) * 1000 * MS);
            assert!(taken.abs_diff(about) <= about / 20 + 64, "{taken} at {x}");
        }
        pace.measured(0.8);
        assert_eq!(taken(&pace, 9000 * MS), 1_000_000, "above there is no limit");
        pace.measured(0.1);
        pace.set_cleaning(false);
        assert_eq!(taken(&pace, 10_000 * MS), 1_000_000, "who gains nothing holds up nobody");
    }

    #[test]
    fn a_pause_of_the_cleaner_is_bridged() {
        let pace = Pace::default();
        pace.set_cleaning(true);
        pace.measured(0.375);
        for ms in 1..100 {
            pace.gained(100.0, ms * MS);
        }
        // Three milliseconds without a gain: what is given goes on, and fades.
        let (mut given, mut longest, mut last) = (0, 0, 100 * MS);
        for us in 0..3000 {
            let now = 100 * MS + us * 1000;
            while pace.wait(now).is_none() {
                pace.take(1);
                given += 1;
                (longest, last) = (longest.max(now - last), now);
            }
        }
        assert!((250..370).contains(&given), "{given}");
        assert!(longest < 50_000, "{longest} ns");
    }

    #[test]
    fn writes_go_in_their_order() {
        let pace = Pace::default();
        let first = pace.queue().now_or_never().unwrap();
        let (mut second, mut third, mut fourth) =
            (Box::pin(pace.queue()), Box::pin(pace.queue()), Box::pin(pace.queue()));
        for turn in [&mut second, &mut third, &mut fourth] {
            assert!(turn.as_mut().now_or_never().is_none());
        }
        assert_eq!(pace.waiting(), 4);
        // One who goes before its turn holds up nobody.
        drop(third);
        drop(first);
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(second.as_mut().now_or_never().unwrap());
        drop(fourth.as_mut().now_or_never().unwrap());
        drop((second, fourth));
        assert!(!pace.is_waited_for());
    }
}
