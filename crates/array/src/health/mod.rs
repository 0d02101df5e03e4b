//! What becomes of members that err: written to again, suspect, out; and what the array can do without them.
//!
//! Every record goes to its drive here, because what follows from an error is decided here.

mod fail;
mod flush;
mod no_room;
mod survive;
mod watch;

use std::cell::Cell;
use std::rc::Rc;

use crate::ctx::Context;
use crate::member::Members;
use crate::member::no_room::Waits;
use crate::space::segments::Segments;
use crate::streams::Streams;
use flush::Flushes;

/// The health of all members together.
pub struct Health {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    streams: Rc<Streams>,
    /// A task looks at requests in flight.
    watched: Cell<bool>,
    /// Members went out and the generation that says so has not taken effect.
    degrading: Cell<bool>,
    /// Members that went out since the open.
    failures: Cell<u64>,
    /// Writes that wait for room where members lie.
    no_room: Waits,
    flushes: Flushes,
}

impl Health {
    /// That of members which are as they should be.
    pub fn new(members: &Rc<Members>, segments: &Rc<Segments>, streams: &Rc<Streams>) -> Rc<Health> {
        Rc::new(Health {
            ctx: members.ctx().clone(),
            members: members.clone(),
            segments: segments.clone(),
            streams: streams.clone(),
            watched: Cell::default(),
            degrading: Cell::default(),
            failures: Cell::default(),
            no_room: Waits::default(),
            flushes: Flushes::default(),
        })
    }

    /// The context.
    pub fn ctx(&self) -> &Rc<Context> {
        &self.ctx
    }

    /// The members.
    pub fn members(&self) -> &Rc<Members> {
        &self.members
    }

    /// Members that went out since the open.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Whether members went out and no generation in effect says so yet.
    pub fn is_degrading(&self) -> bool {
        self.degrading.get()
    }

    /// A generation says who is out, or none ever will.
    pub fn end_degrading(&self) {
        self.degrading.set(false);
    }
}
