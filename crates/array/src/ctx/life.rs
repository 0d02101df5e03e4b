//! What an array can do now.

use std::cell::Cell;

use super::Context;

/// What the array can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Everything.
    Open,
    /// Reads; nothing is written to any drive.
    ReadOnly,
    /// Reads of what is left; more members are gone than the redundancy covers.
    Frozen,
    /// Nothing.
    Closed,
}

/// The phase, and what stands beside it.
pub(super) struct Life {
    phase: Cell<Phase>,
    /// It is being opened: what the log says is not known yet.
    recovering: Cell<bool>,
    /// Newest records are missing: what the map says may be old, so nothing is read.
    uncertain: Cell<bool>,
    /// Hosts' requests are not taken any more.
    closing: Cell<bool>,
}

impl Life {
    pub fn new(phase: Phase) -> Life {
        Life {
            phase: Cell::new(phase),
            recovering: Cell::default(),
            uncertain: Cell::default(),
            closing: Cell::default(),
        }
    }
}

impl Context {
    /// What the array can do now.
    #[inline]
    pub fn phase(&self) -> Phase {
        self.life.phase.get()
    }

    /// Whether it can do everything.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.phase() == Phase::Open
    }

    /// Nothing is written any more.
    pub fn freeze(&self) {
        self.life.phase.set(Phase::Frozen);
    }

    /// Nothing is done any more.
    pub fn close(&self) {
        self.life.phase.set(Phase::Closed);
    }

    /// Whether it is being opened, and what the log says is not known yet.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        self.life.recovering.get()
    }

    /// Recovery begins, or is over.
    pub fn set_recovering(&self, recovering: bool) {
        self.life.recovering.set(recovering);
    }

    /// Whether what the map says may be old.
    #[inline]
    pub fn is_uncertain(&self) -> bool {
        self.life.uncertain.get()
    }

    /// What the map says may be old: nothing is read.
    pub fn doubt(&self) {
        self.life.uncertain.set(true);
    }

    /// Whether hosts' requests are not taken any more.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.life.closing.get()
    }

    /// Hosts' requests are not taken any more.
    pub fn begin_to_close(&self) {
        self.life.closing.set(true);
    }
}
