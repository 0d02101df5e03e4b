//! Room: spares for the streams, who may take the last ones, and what volumes may fill.
//!
//! A host's request is admitted, with the room it can need at most, before it
//! locks its blocks: so one that waits for room never holds up the cleaner that makes it. Volumes fill no more than
//! `usable`, so the cleaner always finds something to free.

mod emptied;
mod small;
mod spares;
mod stored;
mod zones;

use std::cell::Cell;
use std::rc::Rc;

use base::{MemberId, SegmentId};
use ondisk::{Level, MemberState, Scheme};

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::fault::Fault;
use crate::health::Health;
use crate::member::Members;
use crate::member::seat::Seat;
use crate::memtable::memory::Memory;
use crate::space::choose::{copy_groups, group_serves, parity_scheme, scheme_for};
use crate::space::ladder::Ladder;
use crate::space::pace::Pace;
use crate::space::pins::Pins;
use crate::space::plan;
use crate::space::promise::{Promise, Promised};
use crate::space::segment::{Life, Seg};
use crate::space::segments::Segments;
use crate::streams::{StreamId, Streams};
use crate::volumes::Volumes;
use spares::Kind;
use zones::Freed;

pub use zones::Discard;

/// A new segment, for reckoning with parts of segments.
pub const SHARE: i64 = 1000;

/// What new segments are made of.
struct Units {
    /// Zones of each unit: a member, or a group that holds each other's copies.
    zones: Vec<u32>,
    /// Units that a segment takes.
    width: usize,
    /// Data columns it gets.
    k: usize,
}

/// What was measured last.
#[derive(Default)]
struct Measured {
    segments_left: Cell<u64>,
    /// Members are out and what is stored does not fit into narrower segments: new ones leave columns out instead.
    short: Cell<bool>,
    /// What is stored fits into segments of the drives that are in.
    fits: Cell<bool>,
    /// Thousandths of a segment.
    room: Cell<i64>,
    ladder: Cell<Option<Ladder>>,
    /// Map nodes that a checkpoint may write.
    nodes_max: Cell<u64>,
    /// Blocks that the log keeps for replay.
    kept_max: Cell<u64>,
    usable: Cell<u64>,
    /// What the map takes of data segments.
    map_blocks: Cell<u64>,
    small: small::Small,
}

/// What is counted between two measurements.
#[derive(Default)]
struct Counted {
    /// Zones that were freed and are not ready yet.
    on_their_way: Cell<i64>,
    /// Map nodes that the checkpoint under way has written anew: it gives back as many.
    replaced: Cell<u64>,
    /// Deallocations and fills that wait for room.
    fills_waiting: Cell<usize>,
    /// New blocks that hosts were refused last, while that may be so still.
    refused: Cell<Option<u64>>,
}

/// What hosts may still take.
pub struct Room {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    memory: Rc<Memory>,
    volumes: Rc<Volumes>,
    streams: Rc<Streams>,
    health: Rc<Health>,
    measured: Measured,
    counted: Counted,
    pace: Pace,
    promised: Rc<Promised>,
    freed: Freed,
}

/// Who asks for room.
#[derive(Clone, Copy, Debug)]
enum Rung {
    Write,
    Fill,
}

/// What may become of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They stay as they are.
    Nothing,
    /// One leaves.
    Leaves(MemberId),
    /// A drive of so many zones takes a bay.
    Takes {
        /// The bay.
        bay: u16,
        /// Its zones.
        zones: u32,
    },
}

/// What zones are worth when they are free.
pub struct Worth {
    /// Zones of each seat that a new segment takes, all its units together; none: new segments cannot use them.
    per_segment: Vec<Option<i64>>,
    /// The same, of any member that is in.
    usual: i64,
}

impl Worth {
    /// A segment's zones, in thousandths of a new segment.
    pub fn of(&self, seg: &Seg) -> i64 {
        let zones = seg.slots.iter().flatten().filter_map(|(m, _)| self.per_segment[usize::from(m.0)]);
        // As millionths: thirds add up to a whole.
        (zones.map(|n| 1_000_000 / n).sum::<i64>() + 500) / 1000
    }

    fn of_zones(&self, zones: i64) -> i64 {
        zones * 1000 / self.usual
    }
}

/// One who waits; counted until it is dropped.
struct Waiting<'a>(&'a Cell<usize>);

impl Waiting<'_> {
    fn new(count: &Cell<usize>) -> Waiting<'_> {
        count.set(count.get() + 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Room {
    /// That of an array which was not measured yet.
    pub fn new(
        segments: &Rc<Segments>,
        pins: &Pins,
        memory: &Rc<Memory>,
        volumes: &Rc<Volumes>,
        streams: &Rc<Streams>,
        health: &Rc<Health>,
    ) -> Rc<Room> {
        Rc::new(Room {
            ctx: health.ctx().clone(),
            members: health.members().clone(),
            segments: segments.clone(),
            memory: memory.clone(),
            volumes: volumes.clone(),
            streams: streams.clone(),
            health: health.clone(),
            measured: Measured::default(),
            counted: Counted::default(),
            pace: Pace::default(),
            promised: Promised::new(health.ctx()),
            freed: Freed::of(pins),
        })
    }

    /// New blocks that hosts were refused last, while that may be so still.
    pub fn refused(&self) -> Option<u64> {
        self.counted.refused.get()
    }

    /// Hosts were refused so many new blocks; whether that is news.
    pub fn refuse(&self, blocks: u64) -> bool {
        self.counted.refused.replace(Some(blocks)).is_none()
    }

    /// As many fit again.
    pub fn end_refusal(&self) {
        self.counted.refused.set(None);
    }

    /// Whether new segments leave columns out, as last measured.
    pub fn short(&self) -> bool {
        self.measured.short.get()
    }

    /// Segments left for `rung`, as last measured.
    fn above(&self, rung: Rung) -> u64 {
        let Some(ladder) = self.measured.ladder.get() else { return 0 };
        let left = self.measured.segments_left.get();
        if planted(Canary::FloorForgotten) {
            return left;
        }
        let room = u64::try_from(self.measured.room.get() / 1000).unwrap_or(0);
        match rung {
            Rung::Write => left.saturating_sub(ladder.stop_floor).min(room.saturating_sub(ladder.write_floor)),
            Rung::Fill => left.saturating_sub(ladder.free_floor),
        }
    }

    /// Looks anew at what is left.
    pub fn measure_room(&self) {
        self.measured.segments_left.set(self.segments_left());
        let ladder = self.ladder();
        self.measured.room.set(self.room_in_all(self.measured.segments_left.get()));
        let band = (ladder.clean_below - ladder.write_floor) as f64;
        let in_band = (self.measured.room.get() as f64 / 1000.0 - ladder.write_floor as f64) / band;
        self.pace.measured(in_band);
        // What a checkpoint may write takes no more of the map's own segments.
        let copies = if matches!(self.map_scheme(), Some(Scheme::Copies { .. })) { 2 } else { 1 };
        self.measured.nodes_max.set((ladder.nodes * self.segment_blocks_now() as f64) as u64 / copies);
        self.measured.kept_max.set(ladder.replayed * self.segment_blocks_now());
        self.measured.usable.set(self.usable_blocks());
        self.measured.map_blocks.set(self.count_map_blocks());
        self.measured.ladder.set(Some(ladder));
        let narrow = self.units(false, false);
        let shape = &self.ctx.shape;
        let segments = plan::segments_of(&narrow.zones, narrow.width);
        let segments = segments.saturating_sub(Ladder::of(segments).held);
        let fits = segments * narrow.k as u64 * u64::from(shape.zone_blocks) * u64::from(shape.usable_permille) / 1000;
        let fits = self.stored_at_least() <= fits;
        self.measured.fits.set(fits);
        self.measured.short.set(self.members.lacks_members() && !fits);
        self.measure_small();
    }

    /// Blocks that volumes may fill, as last measured.
    pub fn room_usable(&self) -> u64 {
        self.measured.usable.get()
    }

    /// What the map takes, as last measured.
    pub fn map_blocks(&self) -> u64 {
        self.measured.map_blocks.get()
    }

    /// How full the active memtable is: at 1 a checkpoint begins, at 2 hosts wait. Bounded by memory, by the map
    /// nodes that a checkpoint may write ([`Ladder::nodes`]), and by what the log keeps for replay ([`Ladder::replayed`]).
    pub fn memtable_share(&self) -> f64 {
        let memory = self.memory.read();
        let facts = memory.active.weight() as f64 / self.memory.facts_max() as f64;
        let nodes = memory.active.nodes() as f64 / self.measured.nodes_max.get().max(1) as f64;
        let kept = memory.active.kept as f64 / self.measured.kept_max.get().max(1) as f64;
        facts.max(nodes).max(kept)
    }

    /// Room in thousandths of a segment, as last measured: what is left, and what comes back with the next generation.
    pub fn room_now(&self) -> i64 {
        self.measured.room.get()
    }

    /// The rungs, as last measured.
    pub fn rungs(&self) -> Ladder {
        self.measured.ladder.get().unwrap_or_else(|| self.ladder())
    }

    /// The pace of hosts' writes.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Segments left, as last measured.
    pub fn room_left(&self) -> u64 {
        self.measured.segments_left.get()
    }

    /// Blocks that a request of `n` payload blocks can take at most: headers and padding of its records.
    fn cost(&self, n: u64) -> u64 {
        let k = self.ctx.shape.scheme.k() as u64;
        n + (n / 128 + 1) * (k + 1)
    }

    /// Waits until a write of `n` payload blocks has room and its turn.
    pub async fn admit_write(self: &Rc<Self>, n: u64) -> Result<Promise, Fault> {
        let pace = &self.pace;
        // Most writes: nobody waits, and nobody has to.
        if !pace.limited() && !pace.is_waited_for() && !self.is_over() && self.fits(self.cost(n), Rung::Write) {
            self.members.writable()?;
            return Ok(self.promised.promise(self.cost(n)));
        }
        let turn = pace.queue().await;
        let promise = loop {
            let promise = self.admit(n, Rung::Write).await;
            match pace.wait(self.ctx.rt.now().0) {
                Some(nap) if promise.is_ok() => {
                    drop(promise);
                    self.ctx.rt.sleep(nap).await;
                }
                Some(_) | None => break promise,
            }
        };
        if promise.is_ok() {
            pace.take(n);
        }
        drop(turn);
        promise
    }

    /// Waits until a deallocation or fill has room.
    pub async fn admit_fill(self: &Rc<Self>) -> Result<Promise, Fault> {
        let _waiting = Waiting::new(&self.counted.fills_waiting);
        self.admit(1, Rung::Fill).await
    }

    /// Whether a host waits for room.
    pub fn room_is_waited_for(&self) -> bool {
        self.pace.is_waited_for() || self.counted.fills_waiting.get() > 0
    }

    /// Whether `cost` more blocks have room.
    fn fits(&self, cost: u64, rung: Rung) -> bool {
        let wanted = self.promised.blocks() + cost;
        let spare = self.above(rung);
        // A segment has one zone of data at least: mostly that is enough to know.
        let has_room =
            wanted <= spare * u64::from(self.ctx.shape.zone_blocks) || wanted <= spare * self.segment_blocks_now();
        // Twice what begins a checkpoint: wait for it.
        has_room && self.memtable_share() < 2.0
    }

    /// Whether nobody waits for room any more.
    fn is_over(&self) -> bool {
        !self.ctx.is_open() || self.ctx.is_closing() || self.health.no_room_for_long()
    }

    async fn admit(self: &Rc<Self>, n: u64, rung: Rung) -> Result<Promise, Fault> {
        let cost = self.cost(n);
        self.ctx.changed.until(|| self.is_over() || self.fits(cost, rung)).await;
        self.members.writable()?;
        if self.health.no_room_for_long() && !planted(Canary::HostsWaitForRoom) {
            return Err(Fault::NoRoom);
        }
        if self.ctx.is_closing() {
            return Err(Fault::Closed);
        }
        Ok(self.promised.promise(cost))
    }

    /// The rungs for this array's size.
    pub fn ladder(&self) -> Ladder {
        Ladder::of(self.segments_possible())
    }

    /// What new segments are made of: units that give one zone to a segment at most.
    fn units(&self, free: bool, short: bool) -> Units {
        let full = self.ctx.shape.scheme;
        let seats = self.members.all();
        let zones_of = |s: &Rc<Seat>| if free { s.zones_free() as u32 } else { s.layout.zones };
        let members = || seats.iter().filter(|s| s.takes_columns()).map(zones_of).collect::<Vec<u32>>();
        match full {
            Scheme::Parity { .. } => {
                let zones = members();
                let scheme = parity_scheme(full, zones.len(), short);
                Units { width: scheme.width().min(zones.len()).max(1), k: scheme.k(), zones }
            }
            Scheme::Copies { copies, .. } => match copy_groups(&seats, usize::from(copies)) {
                Some(groups) => {
                    let serving = groups.iter().filter(|g| group_serves(&groups, g, short));
                    let zones: Vec<u32> =
                        serving.map(|g| g.iter().flatten().map(zones_of).min().unwrap_or(0)).collect();
                    let k = zones.len().clamp(1, full.k());
                    Units { width: k, k, zones }
                }
                None => {
                    let zones = members();
                    let k = (zones.len() / usize::from(copies)).clamp(1, full.k());
                    Units { width: (k * usize::from(copies)).min(zones.len()).max(1), k, zones }
                }
            },
        }
    }

    /// Segments that all zones would give, as members are now.
    pub fn segments_possible(&self) -> u64 {
        let units = self.units(false, self.measured.short.get());
        plan::segments_of(&units.zones, units.width)
    }

    /// Data blocks of a new segment.
    pub fn segment_blocks_now(&self) -> u64 {
        self.units(false, self.measured.short.get()).k as u64 * u64::from(self.ctx.shape.zone_blocks)
    }

    /// What zones are worth when they are free, as members are now.
    pub fn zones_worth(&self) -> Worth {
        let seats = self.members.all();
        let short = self.measured.short.get();
        let width = self.units(false, short).width as i64;
        let copies = self.ctx.shape.scheme.tolerates() + 1;
        let groups = match self.ctx.shape.scheme {
            Scheme::Copies { .. } => copy_groups(&seats, copies),
            Scheme::Parity { .. } => None,
        };
        let Some(groups) = groups else {
            let per_segment = seats.iter().map(|s| s.takes_columns().then_some(width)).collect();
            return Worth { per_segment, usual: width };
        };
        let mut per_segment = vec![None; seats.len()];
        let mut usual = width * copies as i64;
        for group in groups.iter().filter(|g| group_serves(&groups, g, short)) {
            // One zone of each that is in makes a unit.
            let left = group.iter().flatten().count();
            let zones = width * if planted(Canary::PairsReckonedWhole) { copies } else { left } as i64;
            group.iter().flatten().for_each(|s| per_segment[usize::from(s.id.0)] = Some(zones));
            usual = usual.min(zones);
        }
        Worth { per_segment, usual }
    }

    /// Room in thousandths of a segment: segments left, what is left of those being written, what is emptied and
    /// comes back with a generation, and freed zones that somebody still looks at.
    fn room_in_all(&self, left: u64) -> i64 {
        let worth = self.zones_worth();
        let table = self.segments.read();
        let small = self.streams.stream(StreamId::Host).small();
        let zone = i64::from(self.ctx.shape.zone_blocks);
        let of = |s: &Seg| match s.life {
            Life::Spare => 0,
            Life::Open if self.streams.appends_to(s.id) && small != Some(s.id) => {
                worth.of(s) * (zone - i64::from(s.rows.append)) / zone
            }
            Life::Open => 0,
            Life::Sealed | Life::Emptying(_) | Life::Emptied { .. } | Life::Vacated { .. } if s.is_empty() => {
                worth.of(s)
            }
            Life::Sealed | Life::Emptying(_) | Life::Emptied { .. } | Life::Vacated { .. } => {
                worth.of(s) * i64::from(s.emptied()) / 1000
            }
        };
        let coming: i64 = table.segments.values().map(of).sum();
        let replaced = self.counted.replaced.get() * 1000 / self.segment_blocks_now().max(1);
        left as i64 * 1000 + coming + worth.of_zones(self.counted.on_their_way.get()) + replaced as i64
    }

    /// A checkpoint wrote a map node anew.
    pub fn node_replaced(&self) {
        self.counted.replaced.set(self.counted.replaced.get() + 1);
    }

    /// The checkpoint under way has given back what it replaced, or failed.
    pub fn none_replaced(&self) {
        self.counted.replaced.set(0);
    }

    /// Zones were freed that are not ready yet, or became ready (then `zones` is negative).
    pub fn zones_on_their_way(&self, zones: i64) {
        self.counted.on_their_way.set(self.counted.on_their_way.get() + zones);
    }

    /// Whether there is more room than the cleaner and the map need, as last measured.
    pub fn has_room_for_rebuild(&self) -> bool {
        let ladder = self.rungs();
        // Where there is too much for the drives that are left, room that a rebuild takes does not come back.
        if !self.measured.fits.get() || planted(Canary::RebuildLeftShort) {
            return self.room_left() > ladder.clean_below;
        }
        self.room_now() > ladder.rebuild_above as i64 * 1000 && self.room_left() > ladder.stop_floor + 1
    }

    /// Whether a zone of `seat` can go to a rebuild without taking the room of the cleaner and the map.
    pub fn may_rebuild_on(&self, seat: &Seat) -> bool {
        if self.has_room_for_rebuild() {
            return true;
        }
        let before = self.segments_left();
        seat.with_a_zone_less(|| self.segments_left()) == Some(before)
    }

    /// Segments left: spares, and those that free zones would give.
    pub fn segments_left(&self) -> u64 {
        let units = self.units(true, self.measured.short.get());
        let kinds = self.kinds();
        let table = self.segments.read();
        let spares = table.segments.values().filter(|s| s.is_spare() && kinds.of(s) == Kind::Data);
        plan::segments_of(&units.zones, units.width) + spares.count() as u64
    }

    /// Blocks that volumes may fill.
    pub fn usable_blocks(&self) -> u64 {
        self.usable_blocks_if(Change::Nothing)
    }

    /// The same after a change.
    pub fn usable_blocks_if(&self, change: Change) -> u64 {
        let shape = &self.ctx.shape;
        let leaves = |s: &Seat| s.leaves() || change == Change::Leaves(s.id);
        let counts = |s: &&Rc<Seat>| matches!(s.state(), MemberState::In | MemberState::Out) && !leaves(s);
        let mut by_bay = std::collections::BTreeMap::new();
        for s in self.members.all().iter().filter(counts) {
            // Of two seats in one bay the one that is in counts.
            let zones = by_bay.entry(s.bay()).or_insert(s.layout.zones);
            if s.is_in() {
                *zones = s.layout.zones;
            }
        }
        if let Change::Takes { bay, zones } = change {
            by_bay.insert(bay, zones);
        }
        let zones: Vec<u32> = by_bay.into_values().collect();
        // A member that left took its bay with it.
        let bays = zones.len() - usize::from(shape.rebuild_place && zones.len() > 1);
        let scheme = scheme_for(shape.scheme, bays);
        plan::usable_blocks(&zones, scheme, shape.zone_blocks, shape.rebuild_place, shape.usable_permille)
    }

    /// The scheme of the map's own segments, where it has them.
    pub fn map_scheme(&self) -> Option<Scheme> {
        match self.ctx.shape.level {
            Level::Raid0 if planted(Canary::MapNotMirrored) => None,
            Level::Raid0 if self.ctx.shape.scheme.k() > 1 => Some(Scheme::Copies { k: 1, copies: 2 }),
            Level::Raid0 => Some(Scheme::Parity { k: 1, m: 0 }),
            Level::Raid10 { .. } | Level::Raid5 | Level::Raid6 => None,
        }
    }

    /// Whether a segment is one of the map's own.
    pub fn is_maps_own(&self, seg: &Seg) -> bool {
        match self.map_scheme() {
            Some(Scheme::Copies { .. }) => matches!(seg.scheme, Scheme::Copies { .. }),
            // One drive: map and data segments look alike; either serves.
            Some(Scheme::Parity { .. }) | None => false,
        }
    }

    /// Whether `segment` is being appended to by some stream, or has unfinished records.
    pub fn in_use_by_log(&self, segment: SegmentId) -> bool {
        self.streams.appends_to(segment) || self.streams.unacked_in(segment)
    }

    /// Lets a stream wait no longer than needed: pokes all that may have waited for room.
    pub fn room_changed(&self) {
        self.measure_room();
        self.streams.poke();
        self.ctx.changed.wake();
    }
}
