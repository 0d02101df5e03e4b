//! Freed zones: they are free at once, and are deallocated in the background when nobody uses them again; a setting
//! changes that.
//!
//! Invariant: a zone that is being deallocated is not free.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{join_all, select};
use rt::Nanos;

use super::Room;
use crate::member::seat::Seat;
use crate::space::pins::Pins;

/// A zone that was not used again within this time is deallocated; sooner where most free zones of its drive wait for that. What an
/// array writes again and again gains nothing by it, and hosts would wait where drives are slow at it.
const UNUSED: Duration = Duration::from_secs(10);

/// A drive rests so many times as long as a deallocation took: it has a tenth of the drive's time at most.
const REST: u32 = 9;

/// Which freed zones are deallocated on their drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discard {
    /// Those that nobody has used again after a while, one after the other.
    #[default]
    Auto,
    /// All, before they are free: for drives whose space others share.
    All,
    /// None: for drives that do it badly.
    None,
}

/// What is done with freed zones.
pub(super) struct Freed {
    pins: Pins,
    which: Cell<Discard>,
    /// Zones are being deallocated.
    is_busy: Cell<bool>,
    /// Drives rest until then.
    rest_until: Cell<Nanos>,
}

impl Freed {
    /// Of what these pins hold.
    pub fn of(pins: &Pins) -> Freed {
        Freed { pins: pins.clone(), which: Cell::default(), is_busy: Cell::default(), rest_until: Cell::default() }
    }
}

impl Room {
    /// Which freed zones are deallocated from now on.
    pub fn set_discard(&self, which: Discard) {
        self.freed.which.set(which);
    }

    /// Zones that nobody looks at any more are free; those that nobody has used for a while are deallocated.
    pub async fn keep_zones(self: Rc<Self>) {
        loop {
            self.something_is_due().await;
            if self.ctx.over() {
                return;
            }
            self.take_freed().await;
            if !self.freed.is_busy.get() && self.next_deallocation().is_some_and(|at| at <= self.ctx.rt.now()) {
                self.freed.is_busy.set(true);
                self.ctx.rt.spawn(self.clone().deallocate()).detach();
            }
        }
    }

    /// Resolves when zones come free, when some are to be deallocated, and when that has ended.
    async fn something_is_due(&self) {
        let was_busy = self.freed.is_busy.get();
        let ends = || self.ctx.over() || (was_busy && !self.freed.is_busy.get());
        let freed = pin!(self.freed.pins.some_free(ends));
        let Some(at) = self.next_deallocation().filter(|_| !was_busy) else { return freed.await };
        let is_short = self.health.lacks_room_below();
        let short = self.ctx.changed.until(|| self.ctx.over() || (!is_short && self.health.lacks_room_below()));
        select(freed, select(pin!(short), pin!(self.ctx.rt.sleep_until(at)))).await;
    }

    /// When the zone is to be deallocated that waits longest: at once where drives have no room below them.
    fn next_deallocation(&self) -> Option<Nanos> {
        let seats = self.members.all();
        let unused = self.unused();
        let at = seats.iter().filter(|s| s.takes_columns()).filter_map(|s| s.zone_is_due(unused)).min()?;
        Some(at.max(self.freed.rest_until.get()))
    }

    /// How long a zone waits to be used again.
    fn unused(&self) -> Duration {
        if self.health.lacks_room_below() { Duration::ZERO } else { UNUSED }
    }

    /// Zones that nobody looks at any more are free.
    async fn take_freed(&self) {
        let zones = self.freed.pins.take_free();
        if zones.is_empty() {
            return;
        }
        match self.freed.which.get() {
            Discard::All => _ = join_all(zones.iter().map(|(seat, zone)| seat.deallocate_zone(*zone))).await,
            Discard::Auto => {
                let now = self.ctx.rt.now();
                zones.iter().for_each(|(seat, zone)| seat.free_zone(*zone, now));
            }
            Discard::None => zones.iter().for_each(|(seat, zone)| seat.give_zone(*zone)),
        }
        self.zones_on_their_way(-(zones.len() as i64));
        self.room_changed();
    }

    /// Deallocates the zone of each drive that waits longest.
    async fn deallocate(self: Rc<Self>) {
        let begun = self.ctx.rt.now();
        let unused = self.unused();
        let of = |seat: &Rc<Seat>| Some((seat.clone(), seat.take_due_zone(begun, unused)?));
        let zones: Vec<(Rc<Seat>, u32)> = self.members.all().iter().filter_map(of).collect();
        self.zones_on_their_way(zones.len() as i64);
        self.measure_room();
        join_all(zones.iter().map(|(seat, zone)| seat.deallocate_zone(*zone))).await;
        self.zones_on_their_way(-(zones.len() as i64));
        self.room_changed();
        let now = self.ctx.rt.now();
        self.freed.rest_until.set(now + (now - begun) * REST);
        self.freed.is_busy.set(false);
        self.freed.pins.wake();
    }
}
