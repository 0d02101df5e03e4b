//! Requests in flight and errors of one member; and from when on one is suspect, or out.
//!
//! What follows is in `health`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use rt::Nanos;
use slab::Slab;

use crate::canary::{Canary, planted};
use crate::sync::Event;

/// A request that takes longer makes its member suspect: a hundred times what the slowest drives take at their worst.
pub const LATE_SUSPECT: Duration = Duration::from_secs(1);

/// A request that takes longer puts its member out: hosts give up after 30 s, and a rewrite elsewhere takes its time.
pub const LATE_OUT: Duration = Duration::from_secs(5);

/// Failed writes within [`ERRORS_WITHIN`] that put a member out.
pub const WRITE_ERRORS_OUT: usize = 3;

/// Failed reads within [`ERRORS_WITHIN`] that make a member suspect. A worn-out page or two are no more than four blocks
/// each; this many within minutes is a drive on its way out.
pub const READ_ERRORS_SUSPECT: usize = 20;

/// A member that has failed every read for so long, [`READ_ERRORS_SUSPECT`] of them at least, does not work: a controller
/// that resets takes half of it.
pub const READS_FAIL_OUT: Duration = Duration::from_secs(60);

/// Errors are counted for so long.
pub const ERRORS_WITHIN: Duration = Duration::from_secs(600);

/// A member is suspect for so long after the last reason.
pub const SUSPECT_FOR: Duration = ERRORS_WITHIN;

/// A write that goes on failing for so long does not pass: its member is out whatever the redundancy says.
pub const WRITE_GIVE_UP: Duration = Duration::from_secs(60);

/// An open, or a close, waits so long for a request of a member that it cannot do without: the kernel's own time-out, and a
/// reset of the drive.
pub const END_WAITS: Duration = Duration::from_secs(40);

/// When a request began that may take as long as it likes: drives deallocate at their leisure.
pub const NEVER_LATE: Nanos = Nanos(u64::MAX);

/// In this time a member that is asked whether it is there answers.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(1);

/// Requests in flight and errors of one member.
#[derive(Default)]
pub struct SeatHealth {
    flights: RefCell<Flights>,
    write_errors: RefCell<VecDeque<Nanos>>,
    read_errors: RefCell<VecDeque<Nanos>>,
    /// Since when every read has failed, and how many.
    reads_fail: Cell<Option<(Nanos, usize)>>,
    suspect: RefCell<Option<(Nanos, String)>>,
    /// The array cannot do without it, and it does not answer: for how long.
    waited_for: Cell<Option<Duration>>,
    /// Writes that wait for room where it lies.
    pub no_room: crate::member::no_room::Waits,
    /// Who looks at what is in flight.
    watcher: RefCell<Option<Rc<Watcher>>>,
}

/// Looks at requests in flight while there are any.
#[derive(Default)]
pub struct Watcher {
    begun: Event,
    awake: Cell<bool>,
    /// When it was woken, or looked last.
    since: Cell<Nanos>,
}

impl Watcher {
    /// It looks from now on.
    pub fn looks(&self, now: Nanos) {
        self.since.set(now);
    }

    /// When it was woken, or looked last.
    pub fn since(&self) -> Nanos {
        self.since.get()
    }

    /// Sleeps until a request begins.
    pub async fn sleep(&self) {
        self.awake.set(false);
        self.begun.until(|| self.awake.get()).await;
    }
}

#[derive(Default)]
struct Flights {
    next: u64,
    asked: Slab<Asked>,
}

/// A request that was not answered yet.
struct Asked {
    /// In the order in which they began.
    number: u64,
    begun: Nanos,
    waker: Option<Waker>,
}

/// A request in flight; it is none any more when this is dropped.
struct Flight<'a> {
    health: &'a SeatHealth,
    key: usize,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.health.flights.borrow_mut().asked.remove(self.key);
    }
}

impl SeatHealth {
    /// Waits for a request; `None` once `left` says that its member is not asked any more. The caller pins the request: an
    /// `async fn` would have room for it twice, as its argument and where it is polled.
    pub async fn watch<T>(
        &self,
        now: Nanos,
        left: impl Fn() -> bool,
        mut request: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        if let Some(watcher) = &*self.watcher.borrow()
            && !watcher.awake.replace(true)
        {
            watcher.since.set(now);
            watcher.begun.wake();
        }
        let key = {
            let mut flights = self.flights.borrow_mut();
            flights.next += 1;
            let number = flights.next;
            flights.asked.insert(Asked { number, begun: now, waker: None })
        };
        let flight = Flight { health: self, key };
        std::future::poll_fn(|cx| {
            if let Poll::Ready(answer) = request.as_mut().poll(cx) {
                return Poll::Ready(Some(answer));
            }
            if left() {
                return Poll::Ready(None);
            }
            let waker = &mut self.flights.borrow_mut().asked[flight.key].waker;
            match waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }

    /// Makes everybody who waits look again.
    pub fn wake(&self) {
        let mut flights = self.flights.borrow_mut();
        let waiting = flights.asked.iter_mut().filter_map(|(_, asked)| Some((asked.number, asked.waker.take()?)));
        let mut waiting: Vec<(u64, Waker)> = waiting.collect();
        drop(flights);
        waiting.sort_unstable_by_key(|(number, _)| *number);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// The oldest request in flight: its number, and since when.
    pub fn oldest(&self) -> Option<(u64, Nanos)> {
        let flights = self.flights.borrow();
        let begun = flights.asked.iter().map(|(_, asked)| (asked.number, asked.begun));
        begun.min_by_key(|&(number, begun)| (begun, number))
    }

    /// Nobody looked for so long up to `now`, when something should have: what is in flight is later by that.
    pub fn forgive(&self, time: Duration, now: Nanos) {
        if planted(Canary::StandstillBlamed) {
            return;
        }
        for (_, asked) in self.flights.borrow_mut().asked.iter_mut().filter(|(_, asked)| asked.begun < now) {
            asked.begun = (asked.begun + time).min(now);
        }
    }

    /// A read was answered, or failed.
    pub fn heard_of_read(&self, failed: bool, now: Nanos) {
        if failed || self.reads_fail.get().is_some() {
            let before = self.reads_fail.get().unwrap_or((now, 0));
            self.reads_fail.set(failed.then_some((before.0, before.1 + 1)));
        }
    }

    /// For how long every read has failed, where they are enough to tell.
    pub fn reads_nothing(&self, now: Nanos) -> Option<Duration> {
        let (since, reads) = self.reads_fail.get()?;
        (reads >= READ_ERRORS_SUSPECT && now - since >= READS_FAIL_OUT).then(|| now - since)
    }

    /// Whether the request of this number is still in flight.
    pub fn in_flight(&self, number: u64) -> bool {
        self.flights.borrow().asked.iter().any(|(_, asked)| asked.number == number)
    }

    /// A write failed; how many did lately.
    pub fn write_failed(&self, now: Nanos) -> usize {
        count(&self.write_errors, now)
    }

    /// A read failed; how many did lately.
    pub fn read_failed(&self, now: Nanos) -> usize {
        count(&self.read_errors, now)
    }

    /// Whether reads fail, and none was answered since.
    pub fn fails_reads(&self) -> bool {
        self.reads_fail.get().is_some()
    }

    /// For how long the array has waited for it, where it cannot do without it.
    pub fn waited_for(&self) -> Option<Duration> {
        self.waited_for.get()
    }

    /// The array waits for it for so long; for how long it did before.
    pub fn set_waited_for(&self, late: Option<Duration>) -> Option<Duration> {
        self.waited_for.replace(late)
    }

    /// It is suspect from now on.
    pub fn make_suspect(&self, now: Nanos, why: String) {
        *self.suspect.borrow_mut() = Some((now, why));
    }

    /// It is looked at by `watcher`, unless by another already.
    pub fn watched_by(&self, watcher: &Rc<Watcher>) {
        self.watcher.borrow_mut().get_or_insert_with(|| watcher.clone());
    }

    /// Why the member is suspect, if it is.
    pub fn suspect(&self, now: Nanos) -> Option<String> {
        let suspect = self.suspect.borrow();
        suspect.as_ref().filter(|(since, _)| now - *since < SUSPECT_FOR).map(|(_, why)| why.clone())
    }
}

/// Counts an error; how many there were lately.
fn count(errors: &RefCell<VecDeque<Nanos>>, now: Nanos) -> usize {
    let mut errors = errors.borrow_mut();
    errors.push_back(now);
    while errors.front().is_some_and(|at| now - *at > ERRORS_WITHIN) {
        errors.pop_front();
    }
    errors.len()
}
