//! What is handed to the log: requests, and the pieces they are cut into.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::{BLOCK_BYTES, BlockCount, Lba, VolumeId};
use ondisk::record::ALL_SHARDS;
use ondisk::{Entry, MapRef, Place};
use rt::Bytes;

use crate::canary::{Canary, planted};
use crate::fault::Fault;
use crate::space::promise::Promise;
use crate::sync::{Event, RangeGuard};

/// One request: answered when all of it is acknowledged.
#[derive(Default)]
pub struct Request {
    left: Cell<u64>,
    failed: Cell<Option<Fault>>,
    taken_back: Cell<bool>,
    place: Cell<Option<Place>>,
    held: RefCell<Option<Held>>,
    event: Event,
    /// All that its volume has in flight, beside louder ones: it does not wait for company.
    lone: Cell<bool>,
}

/// What a request holds until it is answered.
pub struct Held {
    /// Its blocks.
    pub guard: RangeGuard,
    /// Its room.
    pub promise: Option<Promise>,
}

impl Request {
    /// A request of `units` blocks or ranges; `held` is let go when the last is acknowledged.
    pub fn new(units: u64, held: Option<Held>) -> Rc<Request> {
        let request = Request { left: Cell::new(units), held: RefCell::new(held), ..Request::default() };
        Rc::new(request)
    }

    /// Whether it is all that its volume has in flight, beside louder ones.
    pub fn is_lone(&self) -> bool {
        self.lone.get()
    }

    /// Whether it is.
    pub fn set_lone(&self, lone: bool) {
        self.lone.set(lone);
    }

    /// Lets go what it holds.
    pub fn let_go(&self) {
        drop(self.held.take());
    }

    /// Waits for the answer.
    pub async fn done(&self) -> Result<(), Fault> {
        self.event.until(|| self.left.get() == 0 || self.failed.get().is_some()).await;
        self.failed.get().map_or(Ok(()), Err)
    }

    /// Where its (last) block went, once done.
    pub fn place(&self) -> Option<Place> {
        self.place.get()
    }

    /// Counts `units` as acknowledged.
    pub fn acknowledge(&self, units: u64, place: Option<Place>) {
        if place.is_some() {
            self.place.set(place);
        }
        self.left.set(self.left.get() - units);
        if self.left.get() == 0 {
            self.let_go();
            self.event.wake();
        }
    }

    /// Answers that nothing came of it: who asked may ask again.
    pub fn take_back(&self) {
        self.taken_back.set(true);
        self.left.set(0);
        self.let_go();
        self.event.wake();
    }

    /// Whether nothing came of it.
    pub fn was_taken_back(&self) -> bool {
        self.taken_back.get()
    }

    /// Answers who asked, once, with a fault, and goes on: what it holds it holds until all of it is acknowledged.
    pub fn refuse(&self, fault: Fault) {
        if self.failed.get().is_none() {
            self.failed.set(Some(fault));
            self.event.wake();
        }
    }

    /// Answers with a fault.
    pub fn fail(&self, fault: Fault) {
        if self.failed.get().is_none() {
            self.failed.set(Some(fault));
            self.let_go();
            self.event.wake();
        }
    }
}

/// What a piece says.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// A host's blocks.
    Data,
    /// A block that the cleaner moves.
    Move,
    /// A map node of this level.
    Node(u8),
    /// Blocks of one fill: hole, zero or bad.
    Fill(MapRef),
}

/// A run of blocks that one kind of fact is about.
#[derive(Clone)]
pub struct Piece {
    /// The fact.
    pub what: What,
    /// Whose blocks.
    pub volume: VolumeId,
    /// First block.
    pub lba: Lba,
    /// Blocks: of payload, or of the range.
    pub blocks: u32,
    /// The payload.
    pub data: Option<Bytes>,
    /// The checksum that a block has had since a host wrote it: it goes with what is moved.
    pub crc: Option<u32>,
    /// Whose piece it is.
    pub request: Rc<Request>,
}

impl Piece {
    /// Payload blocks it brings.
    pub fn payload_blocks(&self) -> usize {
        if self.data.is_some() { self.blocks as usize } else { 0 }
    }

    /// Entries it makes.
    pub fn entries(&self) -> usize {
        self.payload_blocks().max(1)
    }

    /// Appends its payload, block by block, with the checksum where it is known.
    pub fn add_blocks<'a>(&'a self, out: &mut Vec<(&'a [u8], Option<u32>)>) {
        let blocks = self.data.iter().flat_map(|data| data.chunks_exact(BLOCK_BYTES));
        out.extend(blocks.map(|block| (block, self.crc)));
    }

    /// Whether it belongs to the map (host and map entries never share a record).
    pub fn is_node(&self) -> bool {
        matches!(self.what, What::Node(_)) && !planted(Canary::MixedRecords)
    }

    /// Cuts off the first `n` payload blocks.
    pub fn split_front(&mut self, n: usize) -> Piece {
        assert!(n < self.payload_blocks(), "something is left");
        let data = self.data.take().expect("only payload is split");
        let front = Piece {
            blocks: n as u32,
            data: Some(data.slice(0..n * BLOCK_BYTES)),
            request: self.request.clone(),
            ..*self
        };
        self.data = Some(data.slice(n * BLOCK_BYTES..data.len()));
        self.lba += BlockCount(n as u64);
        self.blocks -= n as u32;
        front
    }

    /// Appends its entries, with the checksums of its payload, which are the next of `crcs`.
    pub fn to_entries(&self, out: &mut Vec<Entry>, crcs: &mut impl Iterator<Item = u32>) {
        let (volume, lba, blocks) = (self.volume, self.lba, self.blocks);
        if self.data.is_none() {
            out.push(match self.what {
                What::Fill(MapRef::Hole) => Entry::Hole { volume, lba, blocks, shard: ALL_SHARDS },
                What::Fill(MapRef::Zero) => Entry::Zero { volume, lba, blocks, shard: ALL_SHARDS },
                What::Fill(MapRef::Bad) => Entry::Bad { volume, lba, blocks },
                What::Fill(MapRef::At(_)) | What::Data | What::Move | What::Node(_) => {
                    unreachable!("a piece without payload is a fill")
                }
            });
            return;
        }
        for (i, crc) in (0..u64::from(blocks)).zip(crcs) {
            let lba = lba + BlockCount(i);
            out.push(match self.what {
                What::Data => Entry::Data { volume, lba, crc },
                What::Move => Entry::Move { volume, lba, crc },
                What::Node(level) => Entry::MapNode { volume, lba, level, crc },
                What::Fill(_) => unreachable!("a fill brings no payload"),
            });
        }
    }
}
