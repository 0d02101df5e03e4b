//! Committing a generation: what the array is, durable on every member that takes part.
//!
//! Invariants:
//! - everything a generation relies on is flushed before its slot is written, and the slot is flushed before the
//!   generation counts;
//! - it takes effect when it is durable on all members that it marks in; a member that fails it goes out, and
//!   another generation says so;
//! - one that the redundancy does not cover is never written.

mod degrade;
mod leave;
mod riders;

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{BLOCK_BYTES, Generation as Number, MemberId, MemberLba, SegmentId};
use futures::future::{join_all, select};
use ondisk::{FormatError, Generation, MemberState, SHARDS};
use rt::{Buf, Bytes};

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::ctx::Wish;
use crate::fault::Fault;
use crate::health::Health;
use crate::in_effect::InEffect;
use crate::member::Members;
use crate::member::seat::Seat;
use crate::memtable::memory::Memory;
use crate::room::Room;
use crate::row::{READ_PAUSE, READ_TRIES};
use crate::space::pins::Pins;
use crate::space::segment::Seg;
use crate::space::segments::Segments;
use crate::state::State;
use crate::streams::Streams;
use crate::volumes::Volumes;
pub use riders::Riders;

/// Between two looks whether a member was set back.
const LOOK_FOR_SET_BACK: Duration = Duration::from_secs(10);

/// Writes generations.
pub struct Generations {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    pins: Pins,
    memory: Rc<Memory>,
    volumes: Rc<Volumes>,
    system: Rc<InEffect>,
    streams: Rc<Streams>,
    health: Rc<Health>,
    room: Rc<Room>,
    riders: Riders,
}

impl Generations {
    /// None was written yet.
    pub fn new(state: &State, health: &Rc<Health>, room: &Rc<Room>) -> Rc<Generations> {
        Rc::new(Generations {
            ctx: health.ctx().clone(),
            members: health.members().clone(),
            segments: state.segments.clone(),
            pins: state.pins.clone(),
            memory: state.memory.clone(),
            volumes: state.volumes.clone(),
            system: state.system.clone(),
            streams: state.streams.clone(),
            health: health.clone(),
            room: room.clone(),
            riders: Riders::default(),
        })
    }

    /// What the next one says besides.
    pub fn riders(&self) -> &Riders {
        &self.riders
    }

    /// Commits a generation that says what memory says now; returns when it has taken effect.
    pub async fn commit(&self) -> Result<(), Fault> {
        self.commit_as(|| false).await
    }

    /// [`Generations::commit`], marked as handed over in order if nothing is left to replay when its turn comes.
    pub async fn commit_at_the_end(&self) -> Result<(), Fault> {
        self.commit_as(|| self.memory.read().active.is_empty() && self.streams.idle()).await
    }

    async fn commit_as(&self, clean: impl Fn() -> bool) -> Result<(), Fault> {
        let _turn = self.system.turn().await;
        loop {
            self.members.writable()?;
            self.ctx.wishes.take(Wish::Spares);
            self.room.drop_broken_spares();
            self.room.replenish_spares();
            self.vacate_seats();
            self.release_members();
            let freed: Vec<SegmentId> = self.freeable();
            let generation = self.snapshot(clean(), &freed);
            let rebuilt = self.riders.take();
            let seats = self.members.seats_in();
            if !planted(Canary::CommitBeforeFlush) && !self.health.flush_all(&seats).await {
                // Nothing of it was written: the number stays free, and the slot of the one in effect untouched.
                self.riders.put_back(rebuilt);
                continue;
            }
            if planted(Canary::ReusedEarly) {
                self.give_back(&freed);
            }
            if self.write_slots(&seats, &generation).await {
                self.take_effect(&generation, &freed);
                self.rebuilt_is_named(rebuilt);
                return Ok(());
            }
            self.riders.put_back(rebuilt);
            // What a generation before the one in effect says may be on some members: the next one knows it.
            self.system.go_on(generation.number, generation.id);
        }
    }

    async fn write_slots(&self, seats: &[Rc<Seat>], generation: &Generation) -> bool {
        let image = Buf::from_slice(&generation.encode()).freeze();
        let fits = seats.iter().all(|s| image.len() <= s.layout.generation_bytes_max());
        assert!(fits, "slots are sized for the largest table, and what lies at their ends");
        let results = join_all(seats.iter().map(|s| self.write_slot(s, generation, image.clone()))).await;
        let mut whole = true;
        for (seat, result) in seats.iter().zip(results) {
            match result {
                Ok(()) => {}
                Err(SlotError::Io(error)) => {
                    self.health.member_erred(seat.id, "its system area could not be written", error);
                    whole = false;
                }
                Err(SlotError::Foreign) => {
                    self.health.lose("another Ashlar wrote to the drives");
                    whole = false;
                }
                Err(SlotError::SetBack) => {
                    self.health.member_set_back(seat.id);
                    whole = false;
                }
            }
        }
        whole
    }

    async fn write_slot(&self, seat: &Rc<Seat>, generation: &Generation, image: Bytes) -> Result<(), SlotError> {
        let number = generation.number.0;
        let slots = if planted(Canary::OneSlot) { 1 } else { 2 };
        if seat.holds_newest() && self.is_set_back(seat).await {
            return Err(SlotError::SetBack);
        }
        for slot in 0..2 {
            if !self.slot_may_be_written(seat, slot).await? && !planted(Canary::ForeignIgnored) {
                return Err(SlotError::Foreign);
            }
        }
        let at = seat.layout.slot((number % slots) as usize);
        self.health.write_to(seat, at, vec![image]).await.map_err(SlotError::Io)?;
        if !planted(Canary::SlotNotFlushed) {
            seat.flush().await.map_err(SlotError::Io)?;
        }
        seat.is_newest(true);
        Ok(())
    }

    /// Whether a member that was seen with the generation in effect holds an older one in its place: its contents were replaced
    /// by what they were at some time before.
    pub async fn is_set_back(&self, seat: &Seat) -> bool {
        let (number, id) = (self.system.number(), self.system.id());
        let at = seat.layout.slot((number % 2) as usize);
        let (read, block) = seat.read(at, Buf::zeroed(BLOCK_BYTES)).await;
        let older = |(n, other): (Number, u128)| n.0 < number && other != id;
        // Another may have taken effect while it was read.
        let same = number == self.system.number();
        if !same || read.is_err() || planted(Canary::SetBackUnnoticed) {
            return false;
        }
        match Generation::peek(&block) {
            // Rot in a number is not an older state.
            Ok(other) => older(other) && self.holds_generation(seat, at, other.1).await,
            // Rot may hit any place; where all are zeros the drive was emptied.
            Err(_) => self.is_blank(seat).await && number == self.system.number(),
        }
    }

    /// Whether the generation with this id is whole in a member's slot.
    async fn holds_generation(&self, seat: &Seat, at: MemberLba, id: u128) -> bool {
        let (read, image) = self.read_generation(seat, at).await;
        read.is_ok() && Generation::decode(&image).is_ok_and(|g| g.id == id)
    }

    /// A slot as far as the generation in it says that it is long; its first block where there is none. Slots have room for
    /// drives that may come: the rest of one is never read.
    pub async fn read_generation(&self, seat: &Seat, at: MemberLba) -> (Result<(), rt::IoError>, Buf) {
        let (read, first) = seat.read(at, Buf::zeroed(BLOCK_BYTES)).await;
        let blocks = Generation::total_bytes(&first).map_or(1, |bytes| bytes.div_ceil(BLOCK_BYTES));
        if read.is_err() || blocks <= 1 || blocks > self.ctx.shape.slot_blocks as usize {
            return (read, first);
        }
        seat.read(at, Buf::zeroed(blocks * BLOCK_BYTES)).await
    }

    /// Whether a member holds zeros in place of its generations and labels; of a file that was cut short, and written to since, some
    /// labels lie behind its end.
    async fn is_blank(&self, seat: &Seat) -> bool {
        let slots = [0, 1].map(|slot| (seat.layout.slot(slot), false));
        let labels = seat.layout.labels().map(|at| (at, !planted(Canary::CutShortBelieved)));
        for (at, may_fail) in slots.into_iter().chain(labels) {
            let (read, block) = seat.read(at, Buf::zeroed(BLOCK_BYTES)).await;
            let is_zero = match read {
                Ok(()) => block.iter().all(|byte| *byte == 0),
                Err(_) => may_fail,
            };
            if !is_zero {
                return false;
            }
        }
        true
    }

    /// Looks now and then whether members are what they were: until one commits, nothing else would tell.
    pub async fn keep_current(self: Rc<Self>) {
        loop {
            let over = self.ctx.changed.until(|| !self.ctx.is_open());
            select(pin!(over), pin!(self.ctx.rt.sleep(LOOK_FOR_SET_BACK))).await;
            if !self.ctx.is_open() {
                return;
            }
            self.health.look_for_dead().await;
            self.look_for_set_back().await;
        }
    }

    /// Members that are not what they were go out.
    pub async fn look_for_set_back(&self) {
        let _turn = self.system.turn().await;
        for seat in self.members.seats_in().into_iter().filter(|s| s.holds_newest()) {
            if self.is_set_back(&seat).await {
                self.health.member_set_back(seat.id);
            }
        }
    }

    /// Whether a slot holds nothing of another process that goes on.
    async fn slot_may_be_written(&self, seat: &Seat, slot: usize) -> Result<bool, SlotError> {
        let Some(block) = self.read_slot(seat, slot, 1).await? else { return Ok(true) };
        if Generation::peek(&block).map_or(true, |(number, id)| self.system.is_history(number, id)) {
            return Ok(true);
        }
        // Perhaps the beginning of one whose writing was cut short.
        let length = Generation::total_bytes(&block).map_or(1, |bytes| bytes.div_ceil(BLOCK_BYTES).max(1));
        let blocks =
            u32::try_from(length).map_or(1, |blocks| if blocks > self.ctx.shape.slot_blocks { 1 } else { blocks });
        let Some(image) = self.read_slot(seat, slot, blocks).await? else { return Ok(true) };
        Ok(self.may_overwrite(&image))
    }

    /// Whether what is in a slot is not a generation that somebody else goes on from. One of an earlier epoch, no further on
    /// than a process may have been that this one took over from, was in flight to the drive when that process ended.
    pub fn may_overwrite(&self, image: &[u8]) -> bool {
        let next = self.system.number() + 1;
        let landed_late =
            |g: &Generation| g.epoch < self.ctx.epoch() && g.number.0 <= next && !planted(Canary::LateSlotForeign);
        match Generation::decode(image) {
            Ok(g) => self.system.is_history(g.number, g.id) || landed_late(&g),
            // Whole, and of a program that knows more.
            Err(FormatError::Feature(_)) => planted(Canary::FeatureIgnored),
            Err(_) => true,
        }
    }

    /// The first blocks of a slot, tried more than once; `None` when they cannot be read on a member that the array cannot
    /// do without: they are about to be written.
    async fn read_slot(&self, seat: &Seat, slot: usize, blocks: u32) -> Result<Option<Buf>, SlotError> {
        let mut failed = rt::IoError::Gone;
        for _ in 0..READ_TRIES {
            let (result, block) = seat.read(seat.layout.slot(slot), Buf::zeroed(blocks as usize * BLOCK_BYTES)).await;
            match result {
                Ok(()) => return Ok(Some(block)),
                Err(error @ (rt::IoError::Gone | rt::IoError::Conflict)) => return Err(SlotError::Io(error)),
                Err(error) => {
                    failed = error;
                    self.health.read_failed(seat);
                    self.ctx.rt.sleep(READ_PAUSE).await;
                }
            }
        }
        if self.health.survives_without(seat.id) { Err(SlotError::Io(failed)) } else { Ok(None) }
    }

    fn take_effect(&self, generation: &Generation, freed: &[SegmentId]) {
        self.system.go_on(generation.number, generation.id);
        self.segments.mark_listed(&generation.segments.iter().map(|s| s.id).collect());
        self.give_back(freed);
        for line in &generation.volumes {
            if self.volumes.get(line.id).is_some_and(|vol| vol.is_agreed(line.blocks)) {
                self.volumes.have_changed();
            }
        }
        self.volumes.forget_gone();
        self.room.room_changed();
        if self.room.enough_emptied(true) {
            self.ctx.wishes.ask(Wish::Release);
        } else {
            self.ctx.wishes.take(Wish::Release);
        }
    }

    /// Takes empty segments out of the table; their zones are free when nobody looks at them any more.
    fn give_back(&self, freed: &[SegmentId]) {
        let places = self.segments.remove_empty(freed).into_iter();
        let zones: Vec<_> = places.filter_map(|(m, zone)| Some((self.members.seat(m)?, zone))).collect();
        if !zones.is_empty() {
            self.room.zones_on_their_way(zones.len() as i64);
            self.pins.free_later(zones);
        }
    }

    /// Segments that hold nothing and whose entries are all merged: when a generation without them has taken effect, their zones
    /// are free.
    fn freeable(&self) -> Vec<SegmentId> {
        let table = self.segments.read();
        let empty = |s: &&Seg| s.is_empty() && !self.room.in_use_by_log(s.id);
        table.segments.values().filter(empty).map(|s| s.id).collect()
    }

    /// Seats that are out and that no segment names any more are nobody's.
    fn vacate_seats(&self) {
        self.members.all().iter().filter(|s| self.is_nobodys(s)).for_each(|s| s.is_given_up());
    }

    /// Whether a seat's drive is out, another has its place, and no segment names it any more.
    pub fn is_nobodys(&self, seat: &Seat) -> bool {
        let named = |m: MemberId| self.segments.read().segments.values().any(|s| s.uses(m));
        let replaced = |bay: u16| self.members.all().iter().any(|s| s.bay() == bay && s.state() == MemberState::In);
        seat.state() == MemberState::Out && replaced(seat.bay()) && !named(seat.id)
    }

    /// The generation that says what memory says now.
    fn snapshot(&self, clean: bool, freed: &[SegmentId]) -> Generation {
        let (number, id, ancestors) = self.system.next();
        self.members.all().iter().for_each(|s| s.gone_with(number));
        let table = self.segments.read();
        let listed = |s: &&Seg| !freed.contains(&s.id) || planted(Canary::FreedListed);
        Generation {
            array: self.ctx.shape.array,
            name: self.ctx.name(),
            number,
            id,
            ancestors,
            epoch: self.ctx.epoch(),
            written_at: self.ctx.rt.unix_seconds(),
            clean,
            features: self.ctx.said.features(),
            level: self.ctx.shape.level,
            width: self.ctx.shape.scheme.width() as u8,
            rebuild_place: self.ctx.shape.rebuild_place,
            zone_blocks: self.ctx.shape.zone_blocks,
            usable_permille: self.ctx.shape.usable_permille,
            next_segment: table.next,
            next_volume: self.volumes.next(),
            replay_from: [self.system.replay_from(); SHARDS],
            settings: *self.ctx.settings(),
            members: self.members.all().iter().map(|s| s.line()).collect(),
            volumes: self.volumes.all().values().map(|v| v.line()).collect(),
            segments: table.segments.values().filter(listed).map(Seg::line).collect(),
        }
    }
}

enum SlotError {
    Io(rt::IoError),
    /// A generation that we did not write.
    Foreign,
    /// An older one in the place of that in effect.
    SetBack,
}

impl Generations {
    /// Commits for somebody who waits for it, unless that waits too long for room: then it goes on without them.
    pub async fn commit_if_there_is_room(self: &Rc<Self>) -> Result<(), Fault> {
        let this = self.clone();
        let commit = self.ctx.rt.spawn(async move { this.commit().await });
        self.health.if_there_is_room(commit).await.unwrap_or(Err(Fault::NoRoom))
    }

    /// Generations that are wanted for their own sake: members out, spares, room.
    pub async fn keep_generations(self: Rc<Self>) {
        loop {
            let wanted = || self.health.is_degrading() || self.room.spares_help() || self.ctx.wishes.has(Wish::Release);
            self.ctx.changed.until(|| self.ctx.over() || wanted()).await;
            if self.ctx.over() {
                return;
            }
            if self.health.is_degrading() {
                self.degrade().await;
            } else if self.commit().await.is_err() && self.ctx.over() {
                return;
            }
        }
    }
}
