//! Waiting within one executor: an event that tasks watch with a condition, locks on ranges of blocks, and long work that
//! lets others run.
//!
//! Invariant: whoever changes what a condition looks at calls [`Event::wake`] afterwards.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::channel::oneshot;
use rt::{Nanos, Rt};

/// Something happened; look again.
#[derive(Default)]
pub struct Event {
    /// Who came first; most events have one who waits.
    first: Cell<Option<Waker>>,
    others: RefCell<Vec<Waker>>,
    /// How often those who wait were woken.
    woken: Cell<u64>,
}

impl Event {
    /// Wakes everyone who waits.
    pub fn wake(&self) {
        let Some(first) = self.first.take() else { return };
        self.woken.set(self.woken.get() + 1);
        let others = self.others.take();
        first.wake();
        others.into_iter().for_each(Waker::wake);
    }

    /// Resolves when `ready` says so; asked at once and after every [`Event::wake`].
    pub async fn until(&self, mut ready: impl FnMut() -> bool) {
        // Whom it waits for already: who polls it for another reason is not remembered twice.
        let mut known = None;
        poll_fn(|cx| {
            if ready() {
                return Poll::Ready(());
            }
            let now = Some((self.woken.get(), cx.waker().data()));
            if std::mem::replace(&mut known, now) == now {
                return Poll::Pending;
            }
            let waker = cx.waker().clone();
            match self.first.take() {
                None => self.first.set(Some(waker)),
                first => {
                    self.first.set(first);
                    self.others.borrow_mut().push(waker);
                }
            }
            Poll::Pending
        })
        .await;
    }
}

/// Long work of one task in pieces, between which the others run. A piece is so many steps, and lasts at least as long as the
/// others took before it, so that deep queues do not starve it, or [`PIECE_MAX`]. In a modelled world, whose time stands still
/// meanwhile, steps alone count.
pub struct Pieces<'a> {
    rt: &'a Rt,
    each: usize,
    done: Cell<usize>,
    /// When it went on, and how long the others had before.
    since: Cell<Nanos>,
    others: Cell<Duration>,
}

/// What the others took may have been such pieces too: without an end they would grow by each other.
const PIECE_MAX: Duration = Duration::from_micros(200);

impl<'a> Pieces<'a> {
    /// So many steps make a piece.
    pub fn of(each: usize, rt: &'a Rt) -> Pieces<'a> {
        Pieces { rt, each, done: Cell::new(0), since: Cell::new(rt.now()), others: Cell::default() }
    }

    /// So many steps more are done.
    pub async fn did(&self, steps: usize) {
        let done = self.done.get() + steps;
        if done < self.each {
            self.done.set(done);
            return;
        }
        self.done.set(0);
        let stopped = self.rt.now();
        if stopped - self.since.get() >= self.others.get() {
            self.rt.yield_turn().await;
            self.since.set(self.rt.now());
            self.others.set((self.since.get() - stopped).min(PIECE_MAX));
        }
    }
}

/// Some holders at a time; those who wait are let in as they came.
pub struct Gate(Rc<Places>);

struct Places {
    all: Cell<usize>,
    taken: Cell<usize>,
    waiting: RefCell<VecDeque<oneshot::Sender<Passed>>>,
}

/// A place behind a gate; given back on drop.
pub struct Passed(Rc<Places>);

impl Default for Gate {
    /// For one at a time.
    fn default() -> Gate {
        Gate::new(1)
    }
}

impl Gate {
    /// A gate for so many at a time.
    #[must_use]
    pub fn new(places: usize) -> Gate {
        let waiting = RefCell::default();
        Gate(Rc::new(Places { all: Cell::new(places), taken: Cell::new(0), waiting }))
    }

    /// So many at a time from now on; nobody has to leave.
    pub fn set_places(&self, places: usize) {
        self.0.all.set(places);
        Places::let_in(&self.0);
    }

    /// Waits for its turn.
    pub async fn pass(&self) -> Passed {
        let (give, take) = oneshot::channel();
        self.0.waiting.borrow_mut().push_back(give);
        Places::let_in(&self.0);
        take.await.expect("places are given, never thrown away")
    }
}

impl Places {
    fn let_in(this: &Rc<Places>) {
        while this.taken.get() < this.all.get() {
            let Some(next) = this.waiting.borrow_mut().pop_front() else { return };
            if !next.is_canceled() {
                this.taken.set(this.taken.get() + 1);
                // Who leaves just now gives it back at once.
                drop(next.send(Passed(this.clone())));
            }
        }
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get() - 1);
        Places::let_in(&self.0);
    }
}

/// Locks on ranges of one volume: writes that overlap take turns in the order they came.
#[derive(Default)]
pub struct RangeLocks {
    inner: RefCell<Ranges>,
}

#[derive(Default)]
struct Ranges {
    /// Start to end of the ranges held; they do not overlap.
    held: BTreeMap<u64, u64>,
    waiting: VecDeque<Rc<Waiting>>,
}

struct Waiting {
    start: u64,
    end: u64,
    granted: Cell<bool>,
    gone: Cell<bool>,
    event: Event,
}

/// A place in the queue; given up when the wait is dropped.
struct Turn<'a> {
    locks: &'a Rc<RangeLocks>,
    waiting: Rc<Waiting>,
    taken: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.taken {
            if self.waiting.granted.get() {
                self.locks.inner.borrow_mut().held.remove(&self.waiting.start);
            }
            self.waiting.gone.set(true);
            self.locks.let_in();
        }
    }
}

/// A range held; let go on drop.
pub struct RangeGuard {
    locks: Rc<RangeLocks>,
    start: u64,
}

impl Ranges {
    fn free(&self, start: u64, end: u64) -> bool {
        self.held.range(..end).next_back().is_none_or(|(_, &held_end)| held_end <= start)
    }
}

impl RangeLocks {
    /// Waits until no earlier request overlaps `start..end` (blocks, not empty), then holds it.
    pub async fn lock(self: &Rc<Self>, start: u64, end: u64) -> RangeGuard {
        assert!(start < end, "a range to lock has blocks");
        if let Some(guard) = self.try_lock(start, end) {
            return guard;
        }
        let waiting =
            Rc::new(Waiting { start, end, granted: Cell::new(false), gone: Cell::new(false), event: Event::default() });
        self.inner.borrow_mut().waiting.push_back(waiting.clone());
        let mut turn = Turn { locks: self, waiting, taken: false };
        turn.waiting.event.until(|| turn.waiting.granted.get()).await;
        turn.taken = true;
        RangeGuard { locks: self.clone(), start }
    }

    /// Holds `start..end` if nobody does and nobody who overlaps it waits.
    pub fn try_lock(self: &Rc<Self>, start: u64, end: u64) -> Option<RangeGuard> {
        let mut ranges = self.inner.borrow_mut();
        let wanted = |w: &Rc<Waiting>| w.start < end && start < w.end;
        if !ranges.free(start, end) || ranges.waiting.iter().any(wanted) {
            return None;
        }
        ranges.held.insert(start, end);
        Some(RangeGuard { locks: self.clone(), start })
    }

    /// The first block of `start..end` that a request holds.
    pub fn first_held(&self, start: u64, end: u64) -> Option<u64> {
        let held = &self.inner.borrow().held;
        let over_start = held.range(..=start).next_back().is_some_and(|(_, &held_end)| held_end > start);
        if over_start { Some(start) } else { held.range(start..end).next().map(|(&first, _)| first) }
    }

    fn let_in(&self) {
        let mut ranges = self.inner.borrow_mut();
        if ranges.waiting.is_empty() {
            return;
        }
        let mut still: VecDeque<Rc<Waiting>> = VecDeque::new();
        for w in std::mem::take(&mut ranges.waiting) {
            if w.gone.get() {
                continue;
            }
            // Most are not free: then it does not matter who else waits.
            let free = ranges.free(w.start, w.end);
            let behind_another = free && still.iter().any(|s| s.start < w.end && w.start < s.end);
            if free && !behind_another {
                ranges.held.insert(w.start, w.end);
                w.granted.set(true);
                w.event.wake();
            } else {
                still.push_back(w);
            }
        }
        ranges.waiting = still;
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.locks.inner.borrow_mut().held.remove(&self.start);
        self.locks.let_in();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn others_run_between_pieces() {
        let rt = Rt::modelled(1);
        rt.block_on(async {
            let ran = Rc::new(Cell::new(false));
            let other = ran.clone();
            rt.spawn(async move { other.set(true) }).detach();
            let pieces = Pieces::of(3, &rt);
            pieces.did(2).await;
            assert!(!ran.get(), "not within a piece");
            // The model decides by dice who runs first.
            for _ in 0..64 {
                pieces.did(3).await;
            }
            assert!(ran.get());
        });
    }

    #[test]
    fn overlapping_ranges_take_turns_in_order() {
        let locks = Rc::new(RangeLocks::default());
        let first = locks.lock(0, 4).now_or_never().unwrap();
        let mut second = Box::pin(locks.lock(2, 8));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(locks.try_lock(6, 7).is_none(), "nobody overtakes one who waits");
        assert!(locks.try_lock(8, 9).is_some());
        let firsts = [(0, 1), (3, 9), (4, 9), (9, 12)].map(|(start, end)| locks.first_held(start, end));
        assert_eq!(firsts, [Some(0), Some(3), None, None]);
        drop(first);
        let held = second.now_or_never().unwrap();
        assert!(locks.try_lock(2, 3).is_none());
        drop(held);
        assert!(locks.try_lock(2, 3).is_some());
    }

    #[test]
    fn one_who_leaves_blocks_nobody() {
        let locks = Rc::new(RangeLocks::default());
        let first = locks.lock(0, 4).now_or_never().unwrap();
        let mut second = Box::pin(locks.lock(0, 8));
        assert!(second.as_mut().now_or_never().is_none());
        let mut third = Box::pin(locks.lock(6, 7));
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        assert!(third.now_or_never().is_some());
        drop(first);
    }

    #[test]
    fn a_gate_lets_as_many_through_as_it_has_places() {
        let gate = Gate::new(1);
        let first = gate.pass().now_or_never().unwrap();
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(gate.pass())).collect();
        assert!(waiting.iter_mut().all(|w| w.as_mut().now_or_never().is_none()));
        // One who leaves before its turn, and one to whom it has just come.
        drop(waiting.remove(1));
        drop(first);
        drop(waiting.remove(0));
        let third = waiting.remove(0).now_or_never().unwrap();
        assert!(waiting[0].as_mut().now_or_never().is_none(), "in their order");
        drop(third);
        drop(waiting.remove(0).now_or_never().unwrap());
        assert!(gate.pass().now_or_never().is_some());
    }
}
