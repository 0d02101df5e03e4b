//! The modelled drive: a [`Disk`] that outlives the runtimes that use it, as a drive outlives a process.
//!
//! What it models:
//! - service time: `parallelism` operations at once, each a base time plus a time per byte, stretched by a seeded
//!   jitter, so that answers come out of order; or flash that has to clean (`flash`);
//! - a volatile cache: answered writes are seen by reads but durable only after a flush that began later, or when
//!   the cache overflows (64 MiB, oldest first); without the cache an answered write is durable;
//! - [`Disk::power_cut`]: every write in the cache or in flight is kept, dropped or torn at 512 B, each by itself;
//! - [`Disk::crash`]: the process died; answered writes stay, those in flight land wholly, up to some sector, or
//!   not at all;
//! - errors, latent sector errors, lost and misdirected writes, flipped bits, lying flushes, stalls, hangs,
//!   vanishing, no room where the drive lies (`fault`), and a hook that judges single operations;
//! - reservations, where it is told to have them, and several machines at once (`reserve`).
//!
//! Invariants: operations in flight belong to the `Disk`, not to the runtime: when the runtime is dropped they stay
//! in flight until `power_cut` or `crash` decides them. Same parameters, same seed, same operations: same answers
//! at the same instants.
//!
//! Not modelled: wear, caches that lose an older write but keep a newer one of the same block as the *older* content;
//! deallocated blocks that read as anything but zeros.

mod cache;
mod cut;
mod fault;
mod flash;
mod flight;
mod image;
mod reserve;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt;
use std::rc::Rc;

use base::{BLOCK_BYTES, BlockCount, MemberLba};
use slab::Slab;

use cache::{Cache, Write};
pub use cut::LateWrites;
use fault::Faults;
pub use fault::{Fault, FullFor, Op, OpKind, Verdict};
use flash::Flash;
pub use flash::{FlashCounters, FlashParams, amplification_of};
pub(crate) use flight::FlightKey;
use flight::{Ending, Flight};
use image::Image;
use reserve::Reservations;

use crate::Bytes;
use crate::drive::{DriveInfo, DriveKind};
use crate::random::Random;

/// The character of a modelled drive. The default is an NVMe drive of 1 GiB with a volatile cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskParams {
    /// Size.
    pub bytes: u64,
    /// Whether answered writes can be lost until a flush.
    pub volatile_cache: bool,
    /// Base time of a read.
    pub read_ns: u64,
    /// Base time of a write or deallocate.
    pub write_ns: u64,
    /// Time per byte read.
    pub ns_per_byte_read: f64,
    /// Time per byte written.
    pub ns_per_byte_write: f64,
    /// Time of a flush.
    pub flush_ns: u64,
    /// Operations served at once.
    pub parallelism: usize,
    /// A service time is stretched by a random factor between 1 and 1 + jitter.
    pub jitter: f64,
    /// Flash that says how long operations take, instead of the times above.
    pub flash: Option<FlashParams>,
    /// Whether other machines may reach it; see [`DriveInfo::shared`].
    pub shared: bool,
    /// Whether it can be reserved.
    pub reservable: bool,
}

impl Default for DiskParams {
    fn default() -> Self {
        DiskParams {
            bytes: 1 << 30,
            volatile_cache: true,
            read_ns: 70_000,
            write_ns: 15_000,
            ns_per_byte_read: 2.0,
            ns_per_byte_write: 4.0,
            flush_ns: 100_000,
            parallelism: 16,
            jitter: 0.5,
            flash: None,
            shared: false,
            reservable: false,
        }
    }
}

/// Operations begun, failed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Deallocates.
    pub deallocates: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// Faults that operations met, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultsMet {
    /// Reads that failed.
    pub read_errors: u64,
    /// Reads that met a bad block.
    pub bad_blocks: u64,
    /// Reads that came back with a flipped bit.
    pub corrupt_reads: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Writes that were answered and did not land.
    pub lost_writes: u64,
    /// Writes that landed elsewhere.
    pub misdirected_writes: u64,
    /// Flushes that did nothing.
    pub lying_flushes: u64,
    /// Writes that found no room.
    pub no_space: u64,
    /// Operations that took longer.
    pub stalls: u64,
    /// Operations that found every channel of the drive taken.
    pub queued: u64,
}

/// A test's judge of operations.
pub type Hook = Box<dyn FnMut(&Op) -> Verdict>;

/// A modelled drive. Clones share it.
#[derive(Clone)]
pub struct Disk(Rc<Body>);

struct Body {
    name: String,
    params: DiskParams,
    state: RefCell<State>,
    hook: RefCell<HookSeat>,
}

/// The hook is out of its seat while it runs, so that it may use the disk.
#[derive(Default)]
struct HookSeat {
    hook: Option<Hook>,
    /// Counts `on_op` calls: a hook that was replaced from within is not put back.
    changes: u64,
}

struct State {
    volatile_cache: bool,
    image: Image,
    cache: Cache,
    flights: Slab<Flight>,
    flights_begun: u64,
    /// When each of the `parallelism` channels becomes free.
    channels: BinaryHeap<Reverse<u64>>,
    flash: Option<Flash>,
    /// The world whose clock `channels` speaks of.
    world: u64,
    attached: bool,
    faults: Faults,
    bad_blocks: BTreeSet<u64>,
    random: Random,
    counters: Counters,
    met: FaultsMet,
    reservations: Reservations,
}

impl Disk {
    /// A new drive, all zeros.
    #[must_use]
    pub fn new(name: &str, params: DiskParams, seed: u64) -> Disk {
        let flash = params.flash.map(|flash| Flash::new(flash, params.bytes));
        Disk::with_image(name, params, Random::from_seed(seed), Image::default(), flash)
    }

    fn with_image(name: &str, params: DiskParams, random: Random, image: Image, flash: Option<Flash>) -> Disk {
        assert!(params.parallelism > 0, "a drive serves at least one operation at a time");
        let state = State {
            volatile_cache: params.volatile_cache,
            image,
            cache: Cache::default(),
            flights: Slab::new(),
            flights_begun: 0,
            channels: idle_channels(&params),
            flash,
            world: 0,
            attached: true,
            faults: Faults::default(),
            bad_blocks: BTreeSet::new(),
            random,
            counters: Counters::default(),
            met: FaultsMet::default(),
            reservations: Reservations::default(),
        };
        Disk(Rc::new(Body { name: name.to_owned(), params, state: RefCell::new(state), hook: RefCell::default() }))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its character.
    #[must_use]
    pub fn params(&self) -> DiskParams {
        self.0.params
    }

    /// Gives it a fault; they add up until [`Fault::None`].
    pub fn set_fault(&self, fault: Fault) {
        let mut state = self.0.state.borrow_mut();
        match fault {
            Fault::None => state.bad_blocks.clear(),
            Fault::BadBlocks { at, blocks } => state.bad_blocks.extend(at.0..at.0 + blocks.0),
            _ => {}
        }
        state.faults.set(fault);
    }

    /// Pulls the drive: every operation fails with `Gone`, those in flight at once (their writes land wholly,
    /// partly or not). The contents stay.
    pub fn detach(&self) {
        let state = &mut *self.0.state.borrow_mut();
        state.attached = false;
        let writes = state.end_flights(Ending::Gone);
        let mut random = Random::from_seed(state.random.next());
        state.land_some(writes, &mut random);
    }

    /// Puts the drive back.
    pub fn attach(&self) {
        self.0.state.borrow_mut().attached = true;
    }

    /// Whether it is there.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.0.state.borrow().attached
    }

    /// What a read would see, without time, faults or counters.
    #[must_use]
    pub fn image_read(&self, at: MemberLba, n: BlockCount) -> Vec<u8> {
        let mut data = vec![0; n.len()];
        self.0.state.borrow().look(at, &mut data);
        data
    }

    /// Changes the contents, durably, without time, faults or counters.
    pub fn image_write(&self, at: MemberLba, data: &[u8]) {
        let blocks = crate::drive::whole_blocks(data.len());
        let state = &mut *self.0.state.borrow_mut();
        state.image.write(at.byte_offset(), data);
        if state.cache.covers(at, blocks) {
            let data = Some(Bytes::from_slice(data));
            state.cache.add(Write { at, blocks, data }, &mut state.image);
        }
        state.heal(at, blocks);
    }

    /// A drive of its own with the contents that a read would see now, attached and without faults.
    #[must_use]
    pub fn fork(&self) -> Disk {
        let state = &mut *self.0.state.borrow_mut();
        let mut image = state.image.clone();
        state.cache.writes().for_each(|write| write.apply(&mut image));
        let random = Random::from_seed(state.random.next());
        let flash = state.flash.clone();
        Disk::with_image(&self.0.name, self.0.params, random, image, flash)
    }

    /// What was asked of it so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.state.borrow().counters
    }

    /// What its flash did so far, if it has one.
    #[must_use]
    pub fn flash_counters(&self) -> Option<FlashCounters> {
        self.0.state.borrow().flash.as_ref().map(Flash::counters)
    }

    /// Which faults operations met so far.
    #[must_use]
    pub fn faults_met(&self) -> FaultsMet {
        self.0.state.borrow().met
    }

    /// Answered writes that a power cut could lose.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.0.state.borrow().cache.len()
    }

    /// Operations in flight, those of ended runtimes included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.state.borrow().flights.iter().filter(|(_, f)| f.answer.is_none()).count()
    }

    /// Sets or removes the judge of every operation, called when it begins. The hook may use the disk.
    pub fn on_op(&self, hook: Option<Hook>) {
        let mut seat = self.0.hook.borrow_mut();
        seat.changes += 1;
        let old = std::mem::replace(&mut seat.hook, hook);
        drop(seat);
        drop(old);
    }

    pub(crate) fn info(&self) -> DriveInfo {
        DriveInfo {
            name: self.0.name.clone(),
            kind: DriveKind::Modelled,
            blocks: BlockCount::floor_from_bytes(self.0.params.bytes),
            sector_bytes: 512,
            volatile_cache: self.0.params.volatile_cache,
            shared: self.0.params.shared,
            serial: Some(self.0.name.clone()),
            place: None,
            stable_name: format!("model:{}", self.0.name),
            optimal_write_bytes: self.0.params.flash.map_or(4096, |flash| flash.unit_bytes),
        }
    }

    /// A world begins to use it: its clock starts anew.
    pub(crate) fn enter(&self, world: u64) {
        let mut state = self.0.state.borrow_mut();
        if state.world != world {
            state.world = world;
            state.channels = idle_channels(&self.0.params);
            if let Some(flash) = &mut state.flash {
                flash.restart();
            }
        }
    }

    fn judge(&self, op: &Op) -> Verdict {
        let mut seat = self.0.hook.borrow_mut();
        let changes = seat.changes;
        let Some(mut hook) = seat.hook.take() else {
            return Verdict::Proceed;
        };
        drop(seat);
        let verdict = hook(op);
        let mut seat = self.0.hook.borrow_mut();
        if seat.changes == changes {
            seat.hook = Some(hook);
        }
        verdict
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({})", self.0.name)
    }
}

impl State {
    /// Whether all of these blocks have a place where the drive lies.
    fn is_there(&self, at: MemberLba, n: BlockCount) -> bool {
        let mut next = at.0;
        for range in self.image.written(at.byte_offset(), n.bytes()) {
            let (from, to) = (range.start / BLOCK_BYTES as u64, range.end / BLOCK_BYTES as u64);
            if !(next..from).all(|block| self.cache.holds(block)) {
                return false;
            }
            next = to;
        }
        (next..at.0 + n.0).all(|block| self.cache.holds(block))
    }

    /// What a read sees.
    fn look(&self, at: MemberLba, into: &mut [u8]) {
        self.image.read(at.byte_offset(), into);
        self.cache.overlay(at, into);
    }

    /// A write reaches the drive: its cache, or the medium.
    fn land(&mut self, write: Write) {
        self.heal(write.at, write.blocks);
        if self.volatile_cache {
            self.cache.add(write, &mut self.image);
        } else {
            write.apply(&mut self.image);
        }
    }

    fn heal(&mut self, at: MemberLba, n: BlockCount) {
        if self.bad_blocks.is_empty() {
            return;
        }
        let healed: Vec<u64> = self.bad_blocks.range(at.0..at.0 + n.0).copied().collect();
        for block in healed {
            self.bad_blocks.remove(&block);
        }
    }
}

fn idle_channels(params: &DiskParams) -> BinaryHeap<Reverse<u64>> {
    (0..params.parallelism).map(|_| Reverse(0)).collect()
}
