//! The log: streams of records, each into its own open segment.
//!
//! ```text
//! submit -> queue -> form (whole rows, what waits) -> write all columns -> acknowledge in row order -> memtable
//! ```
//!
//! Invariants:
//! - a record is whole rows and is acknowledged only when every member of its segment has completed it;
//! - within a segment records are acknowledged in row order;
//! - a segment is written only if a generation that lists it has taken effect.

mod form;
mod swept;
mod write;

use std::rc::Rc;

use crate::ctx::{Context, Phase};
use crate::fault::Fault;
use crate::health::Health;
use crate::in_effect::InEffect;
use crate::member::Members;
use crate::memtable::memory::Memory;
use crate::room::Room;
use crate::space::segments::Segments;
use crate::streams::{STREAMS, Stream, StreamId, Streams};
pub use form::{WINDOW_ROWS_MAX, window_rows};

/// Times that a stream looks for what paced hosts bring at the same instant, after the last that came.
const LOOKS: usize = 4;

/// The log of an open array.
pub struct Log {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    memory: Rc<Memory>,
    system: Rc<InEffect>,
    streams: Rc<Streams>,
    health: Rc<Health>,
    room: Rc<Room>,
}

impl Log {
    /// A log that appends what waits in `streams`.
    pub fn new(
        segments: &Rc<Segments>,
        memory: &Rc<Memory>,
        system: &Rc<InEffect>,
        streams: &Rc<Streams>,
        health: &Rc<Health>,
        room: &Rc<Room>,
    ) -> Rc<Log> {
        Rc::new(Log {
            ctx: health.ctx().clone(),
            members: health.members().clone(),
            segments: segments.clone(),
            memory: memory.clone(),
            system: system.clone(),
            streams: streams.clone(),
            health: health.clone(),
            room: room.clone(),
        })
    }

    /// Starts the streams.
    pub fn start_log(self: &Rc<Self>) {
        for id in STREAMS {
            let log = self.clone();
            self.ctx.rt.spawn(async move { log.run_stream(id).await }).detach();
        }
    }

    async fn run_stream(self: Rc<Self>, id: StreamId) {
        let stream = self.streams.stream(id);
        loop {
            stream.poked().await;
            match self.ctx.phase() {
                Phase::Open => {}
                Phase::ReadOnly => self.streams.fail_stream(id, Fault::ReadOnly),
                Phase::Frozen => self.streams.fail_stream(id, self.members.frozen_by()),
                Phase::Closed => {
                    self.streams.fail_stream(id, Fault::Closed);
                    return;
                }
            }
            if id == StreamId::Host && self.room.pace().limited() {
                self.gather(stream).await;
            }
            while let Some(record) = self.form(id) {
                self.start_record(record);
            }
            if id == StreamId::Inner && stream.wants_more(self.ctx.shape.scheme.k()) {
                self.ctx.changed.wake();
            }
        }
    }

    /// Waits, at the same instant, for what comes right behind: paced hosts go on together, one after the other, and share
    /// a record.
    async fn gather(&self, stream: &Stream) {
        let (mut looks, mut waiting) = (0, stream.len());
        while looks < LOOKS && waiting < ondisk::ENTRIES_MAX {
            self.ctx.rt.yield_now().await;
            let now = stream.len();
            (looks, waiting) = (if now > waiting { 0 } else { looks + 1 }, now);
        }
    }
}
