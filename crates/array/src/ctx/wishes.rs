//! What background jobs are asked for. Who asks does not wait, and does not know who does it.

use std::cell::Cell;

/// One thing to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A checkpoint.
    Checkpoint,
    /// A generation with more spares.
    Spares,
    /// A generation without the segments that are vacated.
    Release,
    /// A flush, so that the log can go on: much is acknowledged and not durable.
    Flush,
    /// A look whether something can be rebuilt.
    Rebuild,
}

/// What is asked for and not begun.
#[derive(Default)]
pub struct Wishes(Cell<u8>);

impl Wishes {
    fn bit(wish: Wish) -> u8 {
        1 << wish as u8
    }

    /// Whether it is asked for.
    pub fn has(&self, wish: Wish) -> bool {
        self.0.get() & Self::bit(wish) != 0
    }

    /// Asks for it; whether it was asked for already.
    pub fn ask(&self, wish: Wish) -> bool {
        let before = self.has(wish);
        self.0.set(self.0.get() | Self::bit(wish));
        before
    }

    /// It is begun, or not wanted any more.
    pub fn take(&self, wish: Wish) {
        self.0.set(self.0.get() & !Self::bit(wish));
    }
}
