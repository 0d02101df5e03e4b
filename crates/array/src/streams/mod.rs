//! What waits for the log and what is in flight: the queue of each stream, and records that are not acknowledged.
//!
//! Not here: forming records and writing them (`log`).

mod moving;
mod record;
mod request;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use base::{SegmentId, Seq};
use ondisk::MapRef;

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::fault::Fault;
use crate::member::Members;
use crate::sync::Event;
pub use moving::Moving;
pub use record::{Made, Record};
pub use request::{Held, Piece, Request, What};

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

/// Pieces that wait while a stream wants more, besides a row: with fewer the last record of each step of moves is padded,
/// with more hosts wait longer for the locks of those behind.
const LEFT_OVER: usize = 2;

/// One stream.
#[derive(Default)]
pub struct Stream {
    queue: RefCell<VecDeque<Piece>>,
    /// The segment it appends to.
    segment: Cell<Option<SegmentId>>,
    /// The small segment beside it, for short records that nothing else would fill up.
    small: Cell<Option<SegmentId>>,
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
pub struct Streams {
    streams: [Stream; 3],
    /// The next entry's number.
    next_seq: Cell<Seq>,
    /// Records not acknowledged, by segment, in row order.
    unacked: RefCell<BTreeMap<SegmentId, VecDeque<Rc<Record>>>>,
    /// Moves in them.
    moving: Moving,
    ctx: Rc<Context>,
    members: Rc<Members>,
}

impl Streams {
    /// Empty ones.
    pub fn new(members: &Rc<Members>) -> Rc<Streams> {
        Rc::new(Streams {
            streams: Default::default(),
            next_seq: Cell::new(Seq(1)),
            unacked: RefCell::default(),
            moving: Moving::default(),
            ctx: members.ctx().clone(),
            members: members.clone(),
        })
    }

    /// Moves in flight.
    pub fn moving(&self) -> &Moving {
        &self.moving
    }

    /// Gives out `n` numbers; the first.
    pub fn number(&self, n: usize) -> Seq {
        let first = self.next_seq.get();
        self.next_seq.set(Seq(first.0 + n as u64));
        first
    }

    /// A record is formed: it is in flight, and not acknowledged.
    pub fn begin(&self, record: &Rc<Record>) {
        let stream = self.stream(record.stream);
        stream.in_flight.set(stream.in_flight.get() + 1);
        self.unacked.borrow_mut().entry(record.segment).or_default().push_back(record.clone());
        // It has its number: whatever hosts write there from now on comes behind it.
        for piece in record.pieces().iter().filter(|p| matches!(p.what, What::Move)) {
            self.moving.begin(piece.volume, piece.lba);
            piece.request.let_go();
        }
    }

    /// A record is not in flight any more.
    pub fn end(&self, record: &Record) {
        let stream = self.stream(record.stream);
        stream.in_flight.set(stream.in_flight.get() - 1);
    }

    /// The next record of a segment to be acknowledged, if it is complete; it is taken out.
    pub fn take_complete(&self, segment: SegmentId) -> Option<Rc<Record>> {
        let mut unacked = self.unacked.borrow_mut();
        let queue = unacked.get_mut(&segment)?;
        let complete = queue.iter().position(|r| r.is_complete());
        let next = complete.filter(|at| *at == 0 || planted(Canary::AckOutOfOrder))?;
        let record = queue.remove(next).expect("it is there");
        if queue.is_empty() {
            unacked.remove(&segment);
        }
        Some(record)
    }

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
        for place in self.streams.iter().flat_map(|s| [&s.segment, &s.small]) {
            if place.get() == Some(segment) {
                place.set(None);
            }
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
        self.streams.iter().any(|s| [s.segment.get(), s.small.get()].contains(&Some(segment)))
    }

    /// The lowest number of an entry that is not acknowledged.
    pub fn lowest_unacked(&self) -> Option<Seq> {
        self.unacked.borrow().values().flatten().map(|r| r.made.seqs.start).min()
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

impl Stream {
    /// Pieces that wait.
    pub fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Records that are not written yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Whether more comes behind what waits.
    pub fn expects_more(&self) -> bool {
        self.more.get()
    }

    /// The segment that it appends to.
    pub fn segment(&self) -> Option<SegmentId> {
        self.segment.get()
    }

    /// It appends to this segment from now on, or to none.
    pub fn set_segment(&self, segment: Option<SegmentId>) {
        self.segment.set(segment);
    }

    /// The small segment beside it.
    pub fn small(&self) -> Option<SegmentId> {
        self.small.get()
    }

    /// Short records go to this segment from now on, or to none of their own.
    pub fn set_small(&self, segment: Option<SegmentId>) {
        self.small.set(segment);
    }

    /// Waits until it is poked.
    pub async fn poked(&self) {
        self.poke.until(|| self.poked.replace(false)).await;
    }

    /// Payload blocks that can go into one record from the front of the queue, whether only ranges can, and
    /// payload blocks in front that do not wait for company.
    pub fn waiting(&self, entries_max: usize) -> (usize, bool, usize) {
        let queue = self.queue.borrow();
        let map = queue.front().is_some_and(Piece::is_node);
        let (mut payload, mut entries) = (0, 0);
        let is_lone = |p: &&Piece| p.request.is_lone();
        let lone = queue.iter().take_while(is_lone).map(Piece::payload_blocks).sum();
        for piece in queue.iter().take_while(|p| p.is_node() == map) {
            if entries + piece.entries() > entries_max {
                payload += piece.payload_blocks().min(entries_max - entries);
                break;
            }
            entries += piece.entries();
            payload += piece.payload_blocks();
        }
        (payload, payload == 0, lone)
    }

    /// Takes pieces with `payload` blocks off the queue, and the ranges between and right behind them.
    pub fn take(&self, payload: usize, entries_max: usize) -> Vec<Piece> {
        let mut queue = self.queue.borrow_mut();
        let map = queue.front().is_some_and(Piece::is_node);
        let (mut left, mut entries, mut taken) = (payload, 0, Vec::new());
        while let Some(front) = queue.front_mut().filter(|p| p.is_node() == map) {
            let blocks = front.payload_blocks();
            let fits = entries + front.entries() <= entries_max;
            if fits && blocks <= left {
                left -= blocks;
                entries += front.entries();
                taken.extend(queue.pop_front());
                continue;
            }
            let part = left.min(entries_max.saturating_sub(entries));
            if blocks > part && part > 0 {
                taken.push(front.split_front(part));
            }
            break;
        }
        taken
    }
}

impl Streams {
    /// Takes the records of `segment` that were not acknowledged, once none of them is being written: their
    /// pieces, by stream.
    pub fn take_unacked(&self, segment: SegmentId) -> Vec<(StreamId, Vec<Piece>)> {
        let records = self.unacked.borrow_mut().remove(&segment).unwrap_or_default();
        let taken = records.into_iter().map(|record| {
            assert!(!record.writing(), "outstanding I/O returns first");
            (record.stream, record.give_up())
        });
        taken.collect()
    }

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
        if let Err(fault) = self.members.writable() {
            piece.request.fail(fault);
            return;
        }
        let stream = self.stream(stream);
        let mut queue = stream.queue.borrow_mut();
        if piece.request.is_lone() {
            // Locks keep it apart from what it overtakes.
            let behind = queue.iter().take_while(|p| p.request.is_lone()).count();
            queue.insert(behind, piece);
        } else {
            queue.push_back(piece);
        }
        drop(queue);
        stream.poke();
    }

    /// Puts pieces of records that were given up back to the front of a stream, in their order. Moves are taken back.
    pub fn requeue(&self, stream: StreamId, pieces: Vec<Piece>) {
        let stream = self.stream(stream);
        let mut queue = stream.queue.borrow_mut();
        for piece in pieces.into_iter().rev() {
            if matches!(piece.what, What::Move) {
                // It gave its lock back: something newer may be on its way.
                self.moving.end(piece.volume, piece.lba);
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

    pub fn fail_stream(&self, id: StreamId, fault: Fault) {
        let queue = self.stream(id).queue.take();
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
            self.stream(id).queue.borrow().iter().for_each(refuse);
        }
        for record in self.unacked.borrow().values().flatten() {
            record.pieces().iter().for_each(refuse);
        }
    }

    /// Answers everything that waits or is in flight with `fault`.
    pub fn fail_all(&self, fault: Fault) {
        for id in STREAMS {
            self.fail_stream(id, fault);
        }
        let unacked = self.unacked.take();
        for record in unacked.into_values().flatten() {
            record.abandon(fault, &self.moving);
        }
        self.ctx.changed.wake();
    }
}
