//! Time: the monotonic instant [`Nanos`], and the list of what happens at which instant.
//!
//! Invariants: events at one instant fire in the order in which they were made; an event that was taken back
//! never fires.
//!
//! Not here: the clock (`executor` has it: real, or moved by the modelled world).

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

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

/// The place of an event in the list.
pub(crate) type EventKey = (Nanos, u64);

/// Everything that will happen, soonest first.
#[derive(Default)]
pub(crate) struct Agenda {
    events: BTreeMap<EventKey, Event>,
    made: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: Nanos, event: Event) -> EventKey {
        self.made += 1;
        let key = (at, self.made);
        self.events.insert(key, event);
        key
    }

    pub(crate) fn take_back(&mut self, key: EventKey) -> Option<Event> {
        self.events.remove(&key)
    }

    pub(crate) fn soonest(&self) -> Option<Nanos> {
        self.events.first_key_value().map(|(key, _)| key.0)
    }

    /// The soonest event, when it is due by `now`.
    pub(crate) fn due(&mut self, now: Nanos) -> Option<Event> {
        let first = self.events.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Replaces the waker of a sleeper.
    fn rewake(&mut self, key: EventKey, waker: &Waker) {
        if let Some(Event::Wake(old)) = self.events.get_mut(&key) {
            old.clone_from(waker);
        }
    }

    pub(crate) fn clear(&mut self) -> BTreeMap<EventKey, Event> {
        std::mem::take(&mut self.events)
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
        if self.rt.now() >= self.until {
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
        let late = agenda.add(Nanos(9), wake());
        let first = agenda.add(Nanos(3), wake());
        let second = agenda.add(Nanos(3), wake());
        assert!(first < second && second < late);
        assert_eq!(agenda.soonest(), Some(Nanos(3)));
        agenda.take_back(first);
        assert!(agenda.due(Nanos(2)).is_none());
        assert!(agenda.due(Nanos(5)).is_some());
        assert!(agenda.due(Nanos(5)).is_none());
        assert_eq!(agenda.soonest(), Some(Nanos(9)));
    }
}
