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
mod moving;
mod request;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use base::{SegmentId, Seq};
use ondisk::MapRef;
pub use request::{Held, Piece, Request, What};

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::ctx::Phase;
use crate::fault::Fault;
use crate::sync::Event;
pub use form::{WINDOW_ROWS_MAX, window_rows};
pub use moving::Moving;
pub use write::Record;

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamId {
    /// Hosts' writes.
    Host,
    /// The cleaner's moves: mostly cold.
    Inner,
    /// Map nodes: hot, so that their segments empty themselves. Mirrored in an array without redundancy.
    Map,
}

/// All streams.
pub const STREAMS: [StreamId; 3] = [StreamId::Host, StreamId::Inner, StreamId::Map];

/// Times that a stream looks for what paced hosts bring at the same instant, after the last that came.
const LOOKS: usize = 4;

/// Pieces that wait while a stream wants more, besides a row: with fewer the last record of each step of moves is padded,
/// with more hosts wait longer for the locks of those behind.
const LEFT_OVER: usize = 2;

/// One stream.
#[derive(Default)]
pub struct Stream {
    queue: RefCell<VecDeque<Piece>>,
    /// The segment it appends to.
    segment: Cell<Option<SegmentId>>,
    in_flight: Cell<usize>,
    poke: Event,
    poked: Cell<bool>,
    /// More comes behind what waits: records wait until they are full.
    more: Cell<bool>,
}

/// While it lives, more nodes come to the map's stream.
pub struct MoreNodes<'a>(&'a Stream);

impl Drop for MoreNodes<'_> {
    fn drop(&mut self) {
        self.0.more.set(false);
        self.0.poke();
    }
}

/// The streams and what they have in flight.
pub struct Log {
    streams: [Stream; 3],
    /// The next entry's number.
    next_seq: Cell<Seq>,
    /// Records not acknowledged, by segment, in row order.
    unacked: RefCell<BTreeMap<SegmentId, VecDeque<Rc<Record>>>>,
    /// Moves in them.
    pub moving: Moving,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            streams: Default::default(),
            next_seq: Cell::new(Seq(1)),
            unacked: RefCell::default(),
            moving: Moving::default(),
        }
    }
}

impl Log {
    /// The next entry's number.
    pub fn next_seq(&self) -> Seq {
        self.next_seq.get()
    }

    /// Entries are numbered from `next` on.
    pub fn begin_at(&self, next: Seq) {
        self.next_seq.set(next);
    }

    /// The segment that a stream appends to.
    pub fn segment_of(&self, stream: StreamId) -> Option<SegmentId> {
        self.stream(stream).segment.get()
    }

    /// A stream goes on with a segment.
    pub fn go_on(&self, stream: StreamId, segment: SegmentId) {
        self.stream(stream).segment.set(Some(segment));
    }

    /// Two streams swap their segments.
    pub fn swap_segments(&self, one: StreamId, other: StreamId) {
        self.stream(one).segment.swap(&self.stream(other).segment);
    }

    /// No stream appends to a segment any more.
    pub fn leave(&self, segment: SegmentId) {
        for stream in self.streams.iter().filter(|s| s.segment.get() == Some(segment)) {
            stream.segment.set(None);
        }
    }

    /// A stream.
    pub fn stream(&self, id: StreamId) -> &Stream {
        &self.streams[id as usize]
    }

    /// From now on nodes come one after the other.
    pub fn more_nodes(&self) -> MoreNodes<'_> {
        let stream = self.stream(StreamId::Map);
        stream.more.set(true);
        MoreNodes(stream)
    }

    /// Makes every stream look again.
    pub fn poke(&self) {
        for stream in &self.streams {
            stream.poke();
        }
    }

    /// Whether a stream appends to `segment`.
    pub fn appends_to(&self, segment: SegmentId) -> bool {
        self.streams.iter().any(|s| s.segment.get() == Some(segment))
    }

    /// The lowest number of an entry that is not acknowledged.
    pub fn lowest_unacked(&self) -> Option<Seq> {
        self.unacked.borrow().values().flatten().map(|r| r.first_seq).min()
    }

    /// Whether a record of `segment` is still being written.
    pub fn writing_to(&self, segment: SegmentId) -> bool {
        self.unacked.borrow().get(&segment).is_some_and(|q| q.iter().any(|r| r.writing()))
    }

    /// Whether records of `segment` wait for their acknowledgement.
    pub fn unacked_in(&self, segment: SegmentId) -> bool {
        self.unacked.borrow().contains_key(&segment)
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn idle(&self) -> bool {
        self.unacked.borrow().is_empty() && self.streams.iter().all(|s| s.queue.borrow().is_empty())
    }
}

impl Stream {
    /// Whether hardly more waits than the last record of rows of `k` blocks left over.
    pub fn wants_more(&self, k: usize) -> bool {
        self.queue.borrow().len() < k + LEFT_OVER
    }

    /// Makes it look again.
    pub fn poke(&self) {
        self.poked.set(true);
        self.poke.wake();
    }
}

impl Core {
    /// The stream for a piece.
    fn stream_of(&self, piece: &Piece) -> StreamId {
        match piece.what {
            What::Data | What::Fill(_) => StreamId::Host,
            What::Node(_) if planted(Canary::MixedRecords) => StreamId::Host,
            What::Node(_) => StreamId::Map,
            What::Move => StreamId::Inner,
        }
    }

    /// Hands a piece to the log.
    pub fn submit(&self, piece: Piece) {
        let stream = self.stream_of(&piece);
        self.submit_to(stream, piece);
    }

    /// Hands a piece to a stream of the caller's choice.
    pub fn submit_to(&self, stream: StreamId, piece: Piece) {
        if let Err(fault) = self.writable() {
            piece.request.fail(fault);
            return;
        }
        let stream = self.log.stream(stream);
        let mut queue = stream.queue.borrow_mut();
        if piece.request.lone.get() {
            // Locks keep it apart from what it overtakes.
            let behind = queue.iter().take_while(|p| p.request.lone.get()).count();
            queue.insert(behind, piece);
        } else {
            queue.push_back(piece);
        }
        drop(queue);
        stream.poke();
    }

    /// Puts pieces of records that were given up back to the front of a stream, in their order. Moves are taken back.
    pub fn requeue(&self, stream: StreamId, pieces: Vec<Piece>) {
        let stream = self.log.stream(stream);
        let mut queue = stream.queue.borrow_mut();
        for piece in pieces.into_iter().rev() {
            if matches!(piece.what, What::Move) {
                // It gave its lock back: something newer may be on its way.
                self.log.moving.end(piece.volume, piece.lba);
                if !planted(Canary::MovedAgain) {
                    piece.request.take_back();
                    continue;
                }
            }
            queue.push_front(piece);
        }
        drop(queue);
        stream.poke();
    }

    /// Starts the streams.
    pub fn start_log(self: &Rc<Self>) {
        for id in STREAMS {
            let core = self.clone();
            self.ctx.rt.spawn(async move { core.run_stream(id).await }).detach();
        }
    }

    async fn run_stream(self: Rc<Self>, id: StreamId) {
        let stream = self.log.stream(id);
        loop {
            stream.poke.until(|| stream.poked.replace(false)).await;
            match self.ctx.phase() {
                Phase::Open => {}
                Phase::ReadOnly => self.fail_stream(id, Fault::ReadOnly),
                Phase::Frozen => self.fail_stream(id, self.frozen_by()),
                Phase::Closed => {
                    self.fail_stream(id, Fault::Closed);
                    return;
                }
            }
            if id == StreamId::Host && self.pace().limited() {
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
        let (mut looks, mut waiting) = (0, stream.queue.borrow().len());
        while looks < LOOKS && waiting < ondisk::ENTRIES_MAX {
            self.ctx.rt.yield_now().await;
            let now = stream.queue.borrow().len();
            (looks, waiting) = (if now > waiting { 0 } else { looks + 1 }, now);
        }
    }

    fn fail_stream(&self, id: StreamId, fault: Fault) {
        let queue = self.log.stream(id).queue.take();
        for piece in queue {
            piece.request.fail(fault);
        }
    }

    /// Tells hosts whose writes wait in the log that there is no room for them. There they stay, and may be written yet.
    pub fn refuse_hosts(&self) {
        let refuse = |piece: &Piece| match piece.what {
            What::Data | What::Fill(MapRef::Hole | MapRef::Zero) => piece.request.refuse(Fault::NoRoom),
            What::Fill(MapRef::Bad | MapRef::At(_)) | What::Move | What::Node(_) => {}
        };
        for id in STREAMS {
            self.log.stream(id).queue.borrow().iter().for_each(refuse);
        }
        for record in self.log.unacked.borrow().values().flatten() {
            record.pieces.borrow().iter().for_each(refuse);
        }
    }

    /// Answers everything that waits or is in flight with `fault`.
    pub fn fail_all(&self, fault: Fault) {
        for id in STREAMS {
            self.fail_stream(id, fault);
        }
        let unacked = self.log.unacked.take();
        for record in unacked.into_values().flatten() {
            record.abandon(fault, &self.log.moving);
        }
        self.ctx.changed.wake();
    }
}
