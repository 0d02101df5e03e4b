//! Background jobs: what happens to an open array beyond single requests.

pub mod background;
pub mod checkpoint;
pub mod clean;
pub mod degrade;
pub mod leave;
pub mod move_reads;
pub mod rebuild;
pub mod rebuild_pace;
pub mod restore;
pub mod scrub;
pub mod victims;

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use base::SegmentId;

use crate::sync::{Gate, Passed};

/// How the background jobs of an array go.
#[derive(Default)]
pub struct Jobs {
    /// Rebuilds.
    pub rebuild: rebuild::Progress,
    /// Scrubs.
    pub scrub: scrub::Progress,
    /// What the cleaner has under way.
    pub cleaner: Cleaner,
    /// Checkpoints.
    pub checkpoints: Checkpoints,
}

/// What the cleaner has under way.
#[derive(Default)]
pub struct Cleaner {
    /// Segments that are being emptied, and what their blocks take elsewhere, in thousandths of a segment.
    emptying: RefCell<BTreeMap<SegmentId, i64>>,
    /// Segments that could not be emptied lately.
    hard: RefCell<BTreeSet<SegmentId>>,
    /// One step of moves at a time takes locks.
    moves: Gate,
}

impl Cleaner {
    /// Segments that are being emptied; not across an `.await`.
    pub fn emptying(&self) -> Ref<'_, BTreeMap<SegmentId, i64>> {
        self.emptying.borrow()
    }

    /// Whether none is.
    pub fn is_idle(&self) -> bool {
        self.emptying().is_empty()
    }

    /// What the blocks of all of them take elsewhere, in thousandths of a segment.
    fn takes(&self) -> i64 {
        self.emptying().values().sum()
    }

    /// A segment is being emptied from here on, and its blocks take so much elsewhere.
    fn begins(&self, id: SegmentId, takes: i64) {
        self.emptying.borrow_mut().insert(id, takes);
    }

    /// It is not any more.
    fn ends(&self, id: SegmentId) {
        self.emptying.borrow_mut().remove(&id);
    }

    /// Whether a segment could not be emptied lately.
    fn is_hard(&self, id: SegmentId) -> bool {
        self.hard.borrow().contains(&id)
    }

    /// A segment could not be emptied: it is not chosen again before the others had their turn.
    fn found_hard(&self, id: SegmentId) {
        self.hard.borrow_mut().insert(id);
    }

    /// All had their turn.
    fn tries_all_again(&self) {
        self.hard.borrow_mut().clear();
    }

    /// Waits for the turn of a step of moves to take its locks.
    async fn turn(&self) -> Passed {
        self.moves.pass().await
    }
}

/// Checkpoints, one at a time.
#[derive(Default)]
pub struct Checkpoints {
    gate: Gate,
    /// Those that were tried.
    tried: Cell<u64>,
}
