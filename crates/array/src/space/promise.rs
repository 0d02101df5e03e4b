//! Room that is promised to requests: what they can need at most, until they are answered.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use crate::ctx::Context;

/// All of it.
pub struct Promised {
    ctx: Rc<Context>,
    blocks: Cell<u64>,
}

impl Promised {
    /// Nothing yet.
    pub fn new(ctx: &Rc<Context>) -> Rc<Promised> {
        Rc::new(Promised { ctx: ctx.clone(), blocks: Cell::default() })
    }

    /// Blocks that are promised.
    pub fn blocks(&self) -> u64 {
        self.blocks.get()
    }

    /// Promises so many more.
    pub fn promise(self: &Rc<Self>, blocks: u64) -> Promise {
        self.blocks.set(self.blocks.get() + blocks);
        Promise { all: Rc::downgrade(self), blocks }
    }
}

/// Room promised to one request; given back on drop.
pub struct Promise {
    /// Not an owner: promises lie in the log.
    all: Weak<Promised>,
    blocks: u64,
}

impl Drop for Promise {
    fn drop(&mut self) {
        let Some(all) = self.all.upgrade() else { return };
        all.blocks.set(all.blocks.get() - self.blocks);
        all.ctx.changed.wake();
    }
}
