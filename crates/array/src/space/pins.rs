//! Who still looks at places that may be freed: eras.
//!
//! A reader holds a pin from look-up to completion. Zones freed in era E are given out again when no pin of era E
//! or before is left.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::canary::{Canary, planted};
use crate::member::seat::Seat;
use crate::sync::Event;

/// Zones that wait for readers.
pub type Zones = Vec<(Rc<Seat>, u32)>;

#[derive(Default)]
struct Inner {
    era: Cell<u64>,
    /// Pins of this era: no zones wait for these.
    now: Cell<usize>,
    /// Pins of earlier eras.
    held: RefCell<BTreeMap<u64, usize>>,
    waiting: RefCell<BTreeMap<u64, Zones>>,
    freed: Event,
}

/// The pins of one array.
#[derive(Clone, Default)]
pub struct Pins(Rc<Inner>);

/// Places looked up after this was made stay until it is dropped.
pub struct Pin {
    pins: Pins,
    era: u64,
}

impl Pins {
    /// Pins what is looked up from here on.
    pub fn pin(&self) -> Pin {
        let era = self.0.era.get();
        self.0.now.set(self.0.now.get() + 1);
        Pin { pins: self.clone(), era }
    }

    /// Hands over freed zones; they come out of [`Pins::take_free`] when nobody looks at them any more.
    pub fn free_later(&self, zones: Zones) {
        let era = self.0.era.get();
        self.0.era.set(era + 1);
        match self.0.now.take() {
            0 => {}
            pins => _ = self.0.held.borrow_mut().insert(era, pins),
        }
        self.0.waiting.borrow_mut().entry(era).or_default().extend(zones);
        self.0.freed.wake();
    }

    /// The oldest era with a pin; this one does not count, since all that waits is older.
    fn oldest(&self) -> u64 {
        let held = self.0.held.borrow().keys().next().copied();
        held.filter(|_| !planted(Canary::PinsForgotten)).unwrap_or(u64::MAX)
    }

    /// Zones that nobody looks at any more.
    pub fn take_free(&self) -> Zones {
        let oldest = self.oldest();
        let mut waiting = self.0.waiting.borrow_mut();
        let still = waiting.split_off(&oldest);
        std::mem::replace(&mut *waiting, still).into_values().flatten().collect()
    }

    /// Resolves when [`Pins::take_free`] would give zones, or `stop` says so.
    pub async fn some_free(&self, stop: impl Fn() -> bool) {
        self.0.freed.until(|| self.has_free() || stop()).await;
    }

    /// Makes [`Pins::some_free`] look at its `stop` again.
    pub fn wake(&self) {
        self.0.freed.wake();
    }

    /// Whether zones wait that [`Pins::take_free`] would give.
    pub fn has_free(&self) -> bool {
        let oldest = self.oldest();
        self.0.waiting.borrow().keys().next().is_some_and(|&era| era < oldest)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if self.era == self.pins.0.era.get() {
            self.pins.0.now.set(self.pins.0.now.get() - 1);
            return;
        }
        let mut held = self.pins.0.held.borrow_mut();
        let count = held.get_mut(&self.era).expect("a pin is counted");
        *count -= 1;
        if *count == 0 {
            held.remove(&self.era);
            drop(held);
            if self.pins.has_free() {
                self.pins.0.freed.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{MemberId, MemberUuid};
    use ondisk::{Layout, Member, MemberState};

    fn seat() -> Rc<Seat> {
        let layout = Layout { drive_blocks: 4096, slot_blocks: 256, zone_blocks: 64, zones: 8 };
        let member = Member {
            uuid: MemberUuid::default(),
            state: MemberState::Out,
            bay: 0,
            drive_blocks: 4096,
            zones: 8,
            leaving: false,
            gone_since: base::Generation(0),
            why_out: ondisk::WhyOut::Unsaid,
            drive_name: String::new(),
        };
        Seat::new(MemberId(0), &member, layout, None, &crate::member::guard::Guard::none())
    }

    #[test]
    fn zones_wait_for_older_pins_only() {
        let pins = Pins::default();
        let old = pins.pin();
        pins.free_later(vec![(seat(), 7)]);
        let new = pins.pin();
        assert!(!pins.has_free());
        assert!(pins.take_free().is_empty());
        drop(old);
        assert!(pins.has_free());
        assert_eq!(pins.take_free()[0].1, 7);
        drop(new);
        assert!(pins.take_free().is_empty());
    }
}
