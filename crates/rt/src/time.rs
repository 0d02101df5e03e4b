//! Time: the monotonic instant [`Nanos`], and the list of what happens at which instant.
//!
//! Invariants: events at one instant fire in the order in which they were made; an event that was taken back
//! never fires.
//!
//! Not here: the clock (`executor` has it: real, or moved by the modelled world).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;

use crate::executor::Inner;
use crate::model;

/// A monotonic instant: nanoseconds since the runtime began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Add<Duration> for Nanos {
    type Output = Nanos;
    /// Saturates, 584 years after the start.
    fn add(self, d: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Nanos {
    type Output = Duration;
    /// The time since `earlier`; zero when that lies ahead.
    fn sub(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// What an instant brings.
pub(crate) enum Event {
    /// A sleeper's end.
    Wake(Waker),
    /// A modelled drive has done an operation.
    Served(model::Disk, model::FlightKey),
}

/// An event in the list.
#[derive(Clone, Copy)]
pub(crate) struct EventKey {
    slot: usize,
    made: u64,
}

/// Everything that will happen, soonest first.
///
/// Nearly all sleeps are taken back before their end: their lines stay where they are until they come first, or until they
/// are half of all, so that taking one back costs next to nothing. Nearly all are made in the order of their ends, too:
/// such lines queue up, and cost no heap.
///
/// Invariants: the first line is of an event; the queue is in order.
#[derive(Default)]
pub(crate) struct Agenda {
    queue: VecDeque<Line>,
    /// Lines that came out of order, or that others came before.
    others: BinaryHeap<Reverse<Line>>,
    /// With its number, since slots are used again.
    events: Slab<(u64, Event)>,
    made: u64,
}

/// When, in which order, and which slot.
type Line = (Nanos, u64, usize);

/// Fewer lines than these are not gone through.
const LINES_MIN: usize = 64;

fn is_of_event(events: &Slab<(u64, Event)>, (_, made, slot): Line) -> bool {
    events.get(slot).is_some_and(|(number, _)| *number == made)
}

impl Agenda {
    pub(crate) fn add(&mut self, at: Nanos, event: Event) -> EventKey {
        self.made += 1;
        let slot = self.events.insert((self.made, event));
        let line = (at, self.made, slot);
        // One that lies far ahead gives way once, and lets the queue be one of nearer ones.
        while let Some(later) = self.queue.pop_back_if(|last| *last > line) {
            self.others.push(Reverse(later));
        }
        self.queue.push_back(line);
        EventKey { slot, made: self.made }
    }

    pub(crate) fn take_back(&mut self, key: EventKey) -> Option<Event> {
        let event = self.take(key.slot, key.made)?;
        if self.lines() > LINES_MIN && self.lines() / 2 > self.events.len() {
            self.others.retain(|Reverse(line)| is_of_event(&self.events, *line));
            self.queue.retain(|line| is_of_event(&self.events, *line));
        }
        self.skip_lines();
        Some(event)
    }

    pub(crate) fn soonest(&self) -> Option<Nanos> {
        self.first().map(|(at, ..)| at)
    }

    fn lines(&self) -> usize {
        self.queue.len() + self.others.len()
    }

    fn first(&self) -> Option<Line> {
        match (self.queue.front(), self.others.peek()) {
            (Some(queued), Some(Reverse(other))) => Some(*queued.min(other)),
            (Some(line), None) | (None, Some(Reverse(line))) => Some(*line),
            (None, None) => None,
        }
    }

    /// Takes the first line away.
    fn pop(&mut self, first: Line) {
        if self.queue.front() == Some(&first) {
            self.queue.pop_front();
        } else {
            self.others.pop();
        }
    }

    /// The soonest event, when it is due by `now`.
    pub(crate) fn due(&mut self, now: Nanos) -> Option<Event> {
        let first = self.first().filter(|(at, ..)| *at <= now)?;
        self.pop(first);
        let event = self.take(first.2, first.1);
        self.skip_lines();
        event
    }

    /// Replaces the waker of a sleeper.
    fn rewake(&mut self, key: EventKey, waker: &Waker) {
        if let Some((made, Event::Wake(old))) = self.events.get_mut(key.slot)
            && *made == key.made
        {
            old.clone_from(waker);
        }
    }

    pub(crate) fn clear(&mut self) -> Slab<(u64, Event)> {
        self.queue.clear();
        self.others.clear();
        std::mem::take(&mut self.events)
    }

    fn take(&mut self, slot: usize, made: u64) -> Option<Event> {
        let there = self.events.get(slot).is_some_and(|(number, _)| *number == made);
        there.then(|| self.events.remove(slot).1)
    }

    /// Drops the lines of no event before the next one.
    fn skip_lines(&mut self) {
        while let Some(line) = self.first().filter(|line| !is_of_event(&self.events, *line)) {
            self.pop(line);
        }
    }
}

/// The future of [`Rt::sleep`](crate::Rt::sleep).
#[must_use = "a sleep does nothing until it is awaited"]
pub struct Sleep {
    rt: Rc<Inner>,
    until: Nanos,
    key: Option<EventKey>,
}

impl Sleep {
    pub(crate) fn new(rt: Rc<Inner>, until: Nanos) -> Sleep {
        Sleep { rt, until, key: None }
    }
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.rt.turned() >= self.until {
            return Poll::Ready(());
        }
        let mut agenda = self.rt.agenda.borrow_mut();
        match self.key {
            Some(key) => agenda.rewake(key, cx.waker()),
            None => {
                let key = agenda.add(self.until, Event::Wake(cx.waker().clone()));
                drop(agenda);
                self.key = Some(key);
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let taken = self.rt.agenda.borrow_mut().take_back(key);
            drop(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Nanos(5) + Duration::from_nanos(7), Nanos(12));
        assert_eq!(Nanos(12) - Nanos(5), Duration::from_nanos(7));
        assert_eq!(Nanos(5) - Nanos(12), Duration::ZERO);
        assert_eq!(Nanos(5) + Duration::MAX, Nanos(u64::MAX));
        assert_eq!(Nanos(1_000_000_002).to_string(), "1.000000002 s");
    }

    #[test]
    fn one_instant_fires_in_order_and_taken_back_never() {
        let mut agenda = Agenda::default();
        let wake = || Event::Wake(Waker::noop().clone());
        agenda.add(Nanos(9), wake());
        let first = agenda.add(Nanos(3), wake());
        agenda.add(Nanos(3), wake());
        assert_eq!(agenda.soonest(), Some(Nanos(3)));
        agenda.take_back(first);
        assert!(agenda.due(Nanos(2)).is_none());
        assert!(agenda.due(Nanos(5)).is_some());
        assert!(agenda.due(Nanos(5)).is_none());
        assert_eq!(agenda.soonest(), Some(Nanos(9)));
    }

    proptest! {
        #[test]
        fn whatever_comes_fires_in_order(ops in prop::collection::vec((0u64..50, 0u8..4), 1..200)) {
            let mut agenda = Agenda::default();
            let mut plain: Vec<(u64, EventKey)> = vec![];
            for (at, what) in ops {
                match what {
                    // The last made is taken back, as most are.
                    0 if !plain.is_empty() => {
                        let (_, key) = plain.pop().unwrap();
                        prop_assert!(agenda.take_back(key).is_some());
                    }
                    1 => {
                        let due = plain.iter().enumerate().filter(|(_, (t, _))| *t <= at);
                        let first = due.min_by_key(|(i, (t, _))| (*t, *i)).map(|(i, _)| i);
                        prop_assert_eq!(agenda.due(Nanos(at)).is_some(), first.is_some());
                        first.map(|i| plain.remove(i));
                    }
                    _ => plain.push((at, agenda.add(Nanos(at), Event::Wake(Waker::noop().clone())))),
                }
                prop_assert_eq!(agenda.soonest().map(|n| n.0), plain.iter().map(|(t, _)| *t).min());
            }
        }
    }

    #[test]
    fn what_is_taken_back_leaves_no_lines_behind() {
        let mut agenda = Agenda::default();
        let wake = || Event::Wake(Waker::noop().clone());
        let kept = agenda.add(Nanos(500), wake());
        for at in 0..10_000 {
            let key = agenda.add(Nanos(1000 + at), wake());
            assert!(agenda.take_back(key).is_some());
            assert!(agenda.take_back(key).is_none(), "a slot that is used again is another's");
            assert!(agenda.lines() <= LINES_MIN + 1);
        }
        // Those that came before are gone with the first that is taken back.
        let soon = agenda.add(Nanos(3), wake());
        agenda.add(Nanos(7), wake());
        agenda.take_back(soon);
        assert_eq!(agenda.soonest(), Some(Nanos(7)));
        agenda.take_back(kept);
        assert!(agenda.due(Nanos(7)).is_some());
        assert_eq!((agenda.soonest(), agenda.due(Nanos(u64::MAX)).is_none()), (None, true));
    }
}
