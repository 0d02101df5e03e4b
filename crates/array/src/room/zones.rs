//! Freed zones: free at once; deallocated in the background where nobody has written them again. Or as people set it.
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
use crate::sync::Event;

/// What was not used again within so long is deallocated: what an array writes again and again gains nothing by it, and waits
/// where drives are slow at it.
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
#[derive(Default)]
pub(super) struct Discards {
    which: Cell<Discard>,
    /// Zones were freed that wait to be deallocated; or the array is not written any more.
    freed: Event,
}

impl Room {
    /// Which freed zones are deallocated from now on.
    pub fn set_discard(&self, which: Discard) {
        self.discards.which.set(which);
    }

    /// Zones that nobody looks at any more are free.
    pub async fn keep_freed(self: Rc<Self>) {
        loop {
            self.pins.some_free(|| self.ctx.over()).await;
            if self.ctx.over() {
                return self.discards.freed.wake();
            }
            let zones = self.pins.take_free();
            let count = zones.len() as i64;
            match self.discards.which.get() {
                Discard::All => _ = join_all(zones.iter().map(|(seat, zone)| seat.deallocate_zone(*zone))).await,
                Discard::Auto => {
                    let now = self.ctx.rt.now();
                    zones.iter().for_each(|(seat, zone)| seat.free_zone(*zone, now));
                }
                Discard::None => zones.iter().for_each(|(seat, zone)| seat.give_zone(*zone)),
            }
            self.zones_on_their_way(-count);
            self.room_changed();
            self.discards.freed.wake();
        }
    }

    /// Deallocates what nobody has used for a while: one zone of each drive at a time.
    pub async fn keep_deallocated(self: Rc<Self>) {
        loop {
            self.discards.freed.until(|| self.ctx.over() || self.oldest_freed().is_some()).await;
            let Some(oldest) = self.oldest_freed() else { return };
            // Where drives have no room below them, they get it now.
            let is_short = || self.ctx.over() || self.health.lacks_room_below();
            select(pin!(self.ctx.changed.until(is_short)), pin!(self.ctx.rt.sleep_until(oldest + UNUSED))).await;
            if self.ctx.over() {
                return;
            }
            let begun = self.ctx.rt.now();
            let then = if self.health.lacks_room_below() {
                begun
            } else {
                Nanos(begun.0.saturating_sub(UNUSED.as_nanos() as u64))
            };
            let of = |seat: &Rc<Seat>| Some((seat.clone(), seat.take_freed_by(then)?));
            let zones: Vec<(Rc<Seat>, u32)> = self.members.all().iter().filter_map(of).collect();
            let count = zones.len() as i64;
            self.zones_on_their_way(count);
            self.measure_room();
            join_all(zones.iter().map(|(seat, zone)| seat.deallocate_zone(*zone))).await;
            self.zones_on_their_way(-count);
            self.room_changed();
            let rest = (self.ctx.rt.now() - begun) * REST;
            let over = self.ctx.changed.until(|| self.ctx.over());
            select(pin!(over), pin!(self.ctx.rt.sleep(rest))).await;
        }
    }

    /// When the zone was freed that waits longest to be deallocated.
    fn oldest_freed(&self) -> Option<Nanos> {
        self.members.all().iter().filter(|seat| seat.takes_columns()).filter_map(|seat| seat.zone_waits_since()).min()
    }
}
