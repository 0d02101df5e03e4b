//! The context that every room of an open array has: its world, its shape, its phase, its events, its figures, and what is asked
//! of background jobs. It knows no other room.

pub mod events;
pub mod figures;
pub mod life;
pub mod said;
pub mod wishes;

use std::cell::{Cell, Ref};

use base::{ArrayUuid, Epoch};
use ondisk::{Level, PartOf, Scheme, Settings};
use rt::Rt;

pub use life::Phase;
pub use wishes::Wish;

use crate::meter::Meter;
use crate::sync::Event;
use events::Events;
use figures::Figures;
use life::Life;
use said::Said;
use wishes::Wishes;

/// What never changes while the array is open.
pub struct Shape {
    /// Identity.
    pub array: ArrayUuid,
    /// Which part of it this is.
    pub part: PartOf,
    /// As created.
    pub level: Level,
    /// A segment at full strength.
    pub scheme: Scheme,
    /// Blocks of a zone.
    pub zone_blocks: u32,
    /// Blocks of a system-area slot.
    pub slot_blocks: u32,
    /// Whether `create` promised a place for a rebuild.
    pub rebuild_place: bool,
    /// Per mille of the data blocks that volumes may fill.
    pub usable_permille: u16,
}

/// The context of one open array.
pub struct Context {
    /// The world.
    pub rt: Rt,
    /// What never changes.
    pub shape: Shape,
    /// The parity kernel in use.
    pub kernel: erasure::Kernel,
    /// Something changed: space, members, phase, checkpoints.
    pub changed: Event,
    /// Figures.
    pub figures: Figures,
    /// What is looked at in a turn.
    pub meter: Meter,
    /// What background jobs are asked for.
    pub wishes: Wishes,
    /// What the next generation says of the array.
    pub said: Said,
    life: Life,
    epoch: Cell<Epoch>,
    events: Events,
}

impl Context {
    /// That of an array that is made or opened.
    pub fn new(rt: &Rt, name: String, shape: Shape, phase: Phase) -> Context {
        Context {
            rt: rt.clone(),
            shape,
            kernel: erasure::Kernel::detect(),
            changed: Event::default(),
            figures: Figures::default(),
            meter: Meter::default(),
            wishes: Wishes::default(),
            said: Said::of(name),
            life: Life::new(phase),
            epoch: Cell::default(),
            events: Events::default(),
        }
    }

    /// This open.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch.get()
    }

    /// Which open this is, once that is known.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.epoch.set(epoch);
    }

    /// The array's name.
    pub fn name(&self) -> String {
        self.said.name()
    }

    /// What people set; not across an `.await`.
    #[inline]
    pub fn settings(&self) -> Ref<'_, Settings> {
        self.said.settings()
    }

    /// Sets something; the next generation says it.
    pub fn set(&self, set: impl FnOnce(&mut Settings)) {
        self.said.set(set);
    }

    /// Asks for a job to be done, unless that is asked already.
    pub fn wish(&self, wish: Wish) {
        if !self.wishes.ask(wish) {
            self.changed.wake();
        }
    }

    /// Asks for a checkpoint.
    pub fn want_checkpoint(&self) {
        self.wish(Wish::Checkpoint);
    }

    /// Whether nothing is written any more.
    pub fn over(&self) -> bool {
        !self.is_open()
    }
}
