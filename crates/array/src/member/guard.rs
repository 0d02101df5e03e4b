//! What a server knows of its right to write: asked by seats before a write, and after a conflict.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use rt::{Drive, Nanos};

use crate::canary::{Canary, planted};
use crate::ctx::{Context, Phase};
use crate::member::carried::Carried;
use crate::sync::{Gate, Passed};

/// Members that do not answer are given twice as long each time, so often.
const SILENT_MAX: u32 = 5;

/// When the right to write runs out that never does.
const NEVER: Nanos = Nanos(u64::MAX);

/// Who looks after the marks and reservations of an array.
pub trait Owner {
    /// Returns when it is known again whether the drives are this server's.
    fn look_for_others(&self) -> LocalBoxFuture<'_, ()>;

    /// Takes the reservation of a drive again, where the own one, by `key`, still holds; else the array is frozen when this
    /// returns false.
    fn hold_again<'a>(&'a self, drive: &'a Drive, key: Option<u64>) -> LocalBoxFuture<'a, bool>;
}

/// A time at which every look is old.
const STALE: Nanos = Nanos(0);

/// A member is given so long to answer a look at its mark.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the drives are still this server's.
pub struct Guard {
    /// None: the guard of nothing.
    ctx: Option<Rc<Context>>,
    /// Who looks after the marks and the reservations.
    owner: OnceCell<Weak<dyn Owner>>,
    /// Another server has them.
    lost: Cell<bool>,
    /// By which they are reserved.
    key: Cell<Option<u64>>,
    /// Until when nothing has to be looked at before a write.
    fresh_until: Cell<Nanos>,
    /// One conflict at a time is looked into.
    gate: Gate,
    /// What its marks say; none where it carries none.
    carried: Cell<Option<Carried>>,
    beat: Cell<u64>,
    /// Marks of owners before that were seen: session and beat.
    late: RefCell<BTreeSet<(u128, u64)>>,
    /// Looks in a row at which no member answered in time.
    silent: Cell<u32>,
    /// One look at the marks at a time.
    marks_gate: Gate,
}

impl Guard {
    /// The guard of an array.
    pub fn new(ctx: &Rc<Context>) -> Rc<Guard> {
        Guard::of(Some(ctx.clone()))
    }

    fn of(ctx: Option<Rc<Context>>) -> Rc<Guard> {
        Rc::new(Guard {
            ctx,
            owner: OnceCell::new(),
            lost: Cell::default(),
            key: Cell::default(),
            fresh_until: Cell::new(NEVER),
            gate: Gate::default(),
            carried: Cell::default(),
            beat: Cell::default(),
            late: RefCell::default(),
            silent: Cell::default(),
            marks_gate: Gate::default(),
        })
    }

    /// The guard of nothing.
    #[cfg(test)]
    pub fn none() -> Rc<Guard> {
        Guard::of(None)
    }

    /// Whether another server has the drives.
    pub fn is_lost(&self) -> bool {
        self.lost.get()
    }

    /// Another server has the drives.
    pub fn lost(&self) {
        self.lost.set(true);
    }

    /// By which key the drives are reserved.
    pub fn key(&self) -> Option<u64> {
        self.key.get()
    }

    /// The same for a part that may end the reservation of a drive which it does not write any more: that of an array in several may
    /// not, since a reservation is of the whole drive, and the others may write there.
    pub fn key_to_end(&self) -> Option<u64> {
        let alone = || self.ctx.as_ref().is_some_and(|ctx| ctx.shape.part.of == 1);
        self.key.get().filter(|_| alone() || planted(Canary::PartEndsReservation))
    }

    /// The drives are reserved by `key` from now on, or not any more.
    pub fn set_key(&self, key: Option<u64>) {
        self.key.set(key);
    }

    /// Whether a write may begin without a look at the marks.
    pub fn is_fresh(&self, now: Nanos) -> bool {
        now <= self.fresh_until.get()
    }

    /// Writes may begin until then.
    pub fn set_fresh(&self, until: Nanos) {
        self.fresh_until.set(until);
    }

    /// Marks say this from now on; before the next write they are looked at.
    pub fn carry(&self, carried: Carried) {
        self.carried.set(Some(carried));
        self.fresh_until.set(STALE);
    }

    /// What the next mark says, its beat, and the turn to write it; none when none is written any more.
    pub async fn next_beat(&self) -> Option<(Carried, u64, Passed)> {
        self.carried.get()?;
        let turn = self.marks_gate.pass().await;
        let carried = self.carried.get().filter(|_| !self.lost.get())?;
        self.beat.set(self.beat.get() + 1);
        Some((Carried { key: self.key.get(), ..carried }, self.beat.get(), turn))
    }

    /// How long a member may take to answer: longer while all are slow, since nothing is written before one has.
    pub fn patience(&self) -> Duration {
        PATIENCE * (1 << self.silent.get())
    }

    /// No member answered in time.
    pub fn all_silent(&self) {
        self.silent.set((self.silent.get() + 1).min(SILENT_MAX));
    }

    /// A member answered after so long: whoever is as slow is waited for as long from now on, until one is quick again.
    pub fn answered_after(&self, took: Duration) {
        if took < PATIENCE {
            self.silent.set(0);
        }
    }

    /// A mark of an owner before was seen: whether it may have been in flight to a drive, or there, when this open looked. Who goes
    /// on writes ever new ones.
    pub fn lands_late(&self, session: u128, beat: u64, at_most: usize) -> bool {
        let mut late = self.late.borrow_mut();
        late.insert((session, beat));
        late.len() <= at_most
    }

    /// From now on `owner` is asked.
    pub fn is_kept_by(&self, owner: Weak<dyn Owner>) {
        assert!(self.owner.set(owner).is_ok(), "a guard has one owner");
    }

    fn owner(&self) -> Option<Rc<dyn Owner>> {
        self.owner.get().and_then(Weak::upgrade)
    }

    /// Before a write, when the own mark was not seen for long: looks whether the drives are still this server's.
    pub async fn freshen(&self) {
        if let Some(owner) = self.owner() {
            owner.look_for_others().await;
        }
    }

    /// A drive answered that another host has reserved it: true when the own reservation still holds (a reset had made the
    /// drive forget whose it is), and is taken again. Else the array is frozen when this returns.
    pub async fn conflict(&self, drive: &Drive) -> bool {
        if planted(Canary::ConflictCounted) {
            return false;
        }
        let Some(owner) = self.owner() else { return false };
        let _turn = self.gate.pass().await;
        let closed = self.ctx.as_ref().is_none_or(|ctx| ctx.phase() == Phase::Closed);
        if self.lost.get() || closed {
            return false;
        }
        owner.hold_again(drive, self.key.get()).await
    }
}
