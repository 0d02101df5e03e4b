//! The generation in effect, and those that it came from.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use base::Generation as Number;
use ondisk::generation::{ANCESTORS, generation_id, is_same_or_before};
use ondisk::{Generation, ReplayFrom};

use crate::sync::{Gate, Passed};

/// The last generation that took effect.
pub struct InEffect {
    number: Cell<u64>,
    id: Cell<u128>,
    /// Ids before it, newest first.
    ancestors: RefCell<VecDeque<u128>>,
    /// Drawn at random by this open: in the ids of all generations that it writes.
    session: u64,
    /// One commit at a time.
    gate: Gate,
    /// Where replay begins once the published trees are used.
    replay_from: Cell<ReplayFrom>,
}

impl InEffect {
    /// None yet, of an open that draws `session`.
    pub fn none(session: u64) -> InEffect {
        InEffect {
            number: Cell::default(),
            id: Cell::default(),
            ancestors: RefCell::default(),
            session,
            gate: Gate::default(),
            replay_from: Cell::default(),
        }
    }

    /// As it was found on the drives.
    pub fn found(&self, generation: &Generation) {
        self.number.set(generation.number.0);
        self.id.set(generation.id);
        *self.ancestors.borrow_mut() = generation.ancestors.iter().copied().collect();
        self.replay_from.set(generation.replay_from[0]);
    }

    /// Waits for the turn to commit, or to look at what is committed.
    pub async fn turn(&self) -> Passed {
        self.gate.pass().await
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number.get()
    }

    /// Its id.
    pub fn id(&self) -> u128 {
        self.id.get()
    }

    /// The id of the one before it.
    pub fn predecessor(&self) -> Option<u128> {
        self.ancestors.borrow().front().copied()
    }

    /// The next number, its id in this open, and the ids of those before it, newest first.
    pub fn next(&self) -> (Number, u128, Vec<u128>) {
        let number = Number(self.number() + 1);
        let mut ancestors = self.ancestors.borrow().clone();
        remember(&mut ancestors, self.id());
        (number, generation_id(self.session, number), ancestors.into())
    }

    /// Another one is in effect, or may be on some members.
    pub fn go_on(&self, number: Number, id: u128) {
        remember(&mut self.ancestors.borrow_mut(), self.id());
        self.id.set(id);
        self.number.set(number.0);
    }

    /// Whether a generation is this one, or has a smaller number: it says nothing new.
    pub fn is_history(&self, number: Number, id: u128) -> bool {
        let in_effect = self.number();
        number.0 < in_effect || (number.0 == in_effect && id == self.id())
    }

    /// Whether a generation is this one, or came before it.
    pub fn descends_from(&self, id: u128) -> bool {
        let ancestors = self.ancestors.borrow();
        is_same_or_before(id, self.id()) || ancestors.iter().any(|&later| is_same_or_before(id, later))
    }

    /// Where replay begins once the published trees are used.
    pub fn replay_from(&self) -> ReplayFrom {
        self.replay_from.get()
    }

    /// Replay begins there once the published trees are used.
    pub fn set_replay_from(&self, from: ReplayFrom) {
        self.replay_from.set(from);
    }
}

/// Adds the id of the newest generation to those of before, newest first. Of one open the last one tells of all.
fn remember(ancestors: &mut VecDeque<u128>, id: u128) {
    if ancestors.front().is_some_and(|&before| is_same_or_before(before, id)) {
        ancestors.pop_front();
    }
    ancestors.push_front(id);
    ancestors.truncate(ANCESTORS);
}
