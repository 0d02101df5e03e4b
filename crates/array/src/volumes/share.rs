//! Fair shares: a volume with much in flight does not make those with little wait.
//!
//! ```text
//! request -> limits of its volume (quota) -> its turn (here) -> locks, log, drives
//! ```
//!
//! While one volume alone is asked for something there is no limit. With several, what they have in flight together is
//! bounded; each may always have its share of that, and what one leaves the others take. The bound follows what the quiet
//! ones see (those with less than half of their share): when one of their requests takes more than [`LATE`] times what such a
//! request takes at best, the bound shrinks by [`SHRINK`]; when not, it grows by [`GROW`]. So about one in a hundred of
//! theirs is late.
//!
//! Invariants: a volume within its share never waits here; whoever waits is looked at when a request ends; a request that is
//! dropped gives its place back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::Volumes;
use super::vol::Vol;
use crate::canary::{Canary, planted};
use crate::sync::Event;

/// A volume takes part for so long after its last request.
const REMEMBERED_NS: u64 = 10_000_000;

/// Volumes that take part are counted anew after this time.
const COUNTED_NS: u64 = 1_000_000;

/// One unit in flight for each so many bytes of a request.
const UNIT_BYTES: u64 = 64 << 10;

/// Late is what takes so many times as long as the quickest.
const LATE: u64 = 2;

/// Of the bound, for each request that is late.
const SHRINK: f64 = 0.05;

/// Of the bound, for each that is not.
const GROW: f64 = SHRINK / 100.0;

/// Units in flight for each drive: at least, and at most.
const PER_DRIVE: (f64, f64) = (1.0, 32.0);

/// Of what is known to be the quickest one part in so many is forgotten with each request.
const FORGET: u64 = 4096;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Reads.
    Read,
    /// Writes, zeroes or deallocates.
    Write,
}

/// Sizes told apart: 4, 8, 16, 32 and 64 KiB.
const SIZES: usize = 5;

/// What all volumes have in flight, and how much that may be.
#[derive(Default)]
pub struct Shares {
    in_flight: Cell<u64>,
    bound: Cell<f64>,
    /// Volumes that take part, and when they were counted.
    active: Cell<u64>,
    counted: Cell<u64>,
    /// The quickest of each kind and size, in ns; 0: none yet.
    quickest: [[Cell<u64>; SIZES]; 2],
    /// Volumes that somebody waits for, those with the least in flight first served.
    held_up: RefCell<Vec<Rc<Vol>>>,
}

/// What one volume has in flight.
#[derive(Default)]
pub struct Share {
    in_flight: Cell<u64>,
    /// When its last request began.
    last: Cell<u64>,
    waiting: RefCell<VecDeque<Rc<Waiting>>>,
}

#[derive(Default)]
struct Waiting {
    units: u64,
    granted: Cell<bool>,
    gone: Cell<bool>,
    event: Event,
}

/// A request in flight; ends when dropped.
pub struct Turn {
    volumes: Rc<Volumes>,
    vol: Rc<Vol>,
    units: u64,
    /// Where the quickest is kept, and when it began, if its time says something.
    timed: Option<(Does, usize, u64)>,
}

impl Shares {
    fn bounds(drives: usize) -> (f64, f64) {
        (PER_DRIVE.0 * drives as f64, PER_DRIVE.1 * drives as f64)
    }

    /// Whether `vol` may have `units` more; one request always.
    fn may(&self, vol: &Share, units: u64) -> bool {
        let (active, bound) = (self.active.get(), self.bound.get() as u64);
        let alone = active < 2 || vol.in_flight.get() == 0;
        alone || vol.in_flight.get() + units <= bound / active || self.in_flight.get() + units <= bound
    }

    /// Whether `vol` has less than half of its share of what is in flight.
    fn is_quiet(&self, vol: &Share) -> bool {
        let active = self.active.get();
        active > 1 && 2 * active * vol.in_flight.get() <= self.in_flight.get()
    }

    fn take(&self, vol: &Share, units: u64) {
        vol.in_flight.set(vol.in_flight.get() + units);
        self.in_flight.set(self.in_flight.get() + units);
    }
}

impl Volumes {
    /// Waits for the turn of a request of `vol` for `bytes`.
    pub async fn turn(self: &Rc<Self>, vol: &Rc<Vol>, does: Does, bytes: u64) -> Turn {
        let share = &vol.share;
        let units = bytes.div_ceil(UNIT_BYTES).max(1);
        if self.all().len() < 2 {
            self.shares.active.set(0);
            self.shares.take(share, units);
            return Turn { volumes: self.clone(), vol: vol.clone(), units, timed: None };
        }
        let now = self.ctx.rt.now().0;
        share.last.set(now);
        self.count_active(now);
        let size = (bytes.max(4096).next_power_of_two().ilog2() - 12) as usize;
        if share.waiting.borrow().is_empty() && self.shares.may(share, units) {
            self.shares.take(share, units);
            let timed = (self.shares.is_quiet(share) && size < SIZES).then_some((does, size, now));
            return Turn { volumes: self.clone(), vol: vol.clone(), units, timed };
        }
        let waiting = Rc::new(Waiting { units, ..Waiting::default() });
        share.waiting.borrow_mut().push_back(waiting.clone());
        let listed = self.shares.held_up.borrow().iter().any(|v| Rc::ptr_eq(v, vol));
        if !listed {
            self.shares.held_up.borrow_mut().push(vol.clone());
        }
        let mut place = Place { volumes: self, vol, waiting: &waiting, left: false };
        waiting.event.until(|| waiting.granted.get()).await;
        place.left = true;
        Turn { volumes: self.clone(), vol: vol.clone(), units, timed: None }
    }

    /// Counts who takes part, from time to time.
    fn count_active(&self, now: u64) {
        let shares = &self.shares;
        if now < shares.counted.get() + COUNTED_NS && shares.active.get() > 0 {
            return;
        }
        shares.counted.set(now);
        let takes_part = |s: &Share| s.in_flight.get() > 0 || now < s.last.get() + REMEMBERED_NS;
        let active = self.all().values().filter(|v| takes_part(&v.share)).count();
        shares.active.set(active as u64);
        let (least, most) = Shares::bounds(self.members.all().len());
        let bound = shares.bound.get();
        // One alone: the next one to come finds no bound.
        shares.bound.set(if active < 2 || bound == 0.0 { most } else { bound.clamp(least, most) });
        self.let_in();
    }

    /// Lets in who may go on: the volume with the least in flight first.
    fn let_in(&self) {
        let shares = &self.shares;
        if planted(Canary::TurnKept) || shares.held_up.borrow().is_empty() {
            return;
        }
        loop {
            let mut held_up = shares.held_up.borrow_mut();
            held_up.retain(|v| {
                v.share.waiting.borrow_mut().retain(|w| !w.gone.get());
                !v.share.waiting.borrow().is_empty()
            });
            let next = held_up.iter().min_by_key(|v| v.share.in_flight.get()).cloned();
            drop(held_up);
            let Some(vol) = next else { return };
            let units = vol.share.waiting.borrow().front().expect("it is not empty").units;
            if !shares.may(&vol.share, units) {
                return;
            }
            let waiting = vol.share.waiting.borrow_mut().pop_front().expect("it is not empty");
            shares.take(&vol.share, units);
            waiting.granted.set(true);
            waiting.event.wake();
        }
    }

    fn turn_ended(&self, turn: &Turn) {
        let (shares, share) = (&self.shares, &turn.vol.share);
        share.in_flight.set(share.in_flight.get() - turn.units);
        shares.in_flight.set(shares.in_flight.get() - turn.units);
        if let Some((does, size, began)) = turn.timed
            && shares.active.get() > 1
        {
            let now = self.ctx.rt.now().0;
            let quickest = &shares.quickest[does as usize][size];
            let (took, before) = ((now - began).max(1), quickest.get());
            let kept = if before == 0 { took } else { took.min(before + before / FORGET + 1) };
            quickest.set(kept);
            let factor = if took > LATE * kept { 1.0 - SHRINK } else { 1.0 + GROW };
            let (least, most) = Shares::bounds(self.members.all().len());
            shares.bound.set((shares.bound.get() * factor).clamp(least, most));
        }
        self.let_in();
    }
}

impl Turn {
    /// Whether it is all that a volume has in flight beside louder ones.
    pub fn is_lone(&self) -> bool {
        self.timed.is_some() && self.vol.share.in_flight.get() == self.units
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.volumes.turn_ended(self);
    }
}

/// A place in a volume's queue; given up when the wait is dropped.
struct Place<'a> {
    volumes: &'a Rc<Volumes>,
    vol: &'a Rc<Vol>,
    waiting: &'a Rc<Waiting>,
    left: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        self.waiting.gone.set(true);
        if self.waiting.granted.get() {
            drop(Turn { volumes: self.volumes.clone(), vol: self.vol.clone(), units: self.waiting.units, timed: None });
        } else {
            self.volumes.let_in();
        }
    }
}
