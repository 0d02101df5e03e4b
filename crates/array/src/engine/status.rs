//! What the array says of itself: figures for people and scripts.

use std::cell::Cell;

use base::BlockCount;
use ondisk::{Limits, MemberState, VolumeState, WhyOut};
use serde::Serialize;
use uuid::Uuid;

use crate::core::Core;
use crate::ctx::Phase;
pub use crate::ctx::events::{EventLine, EventSeverity};
use crate::engine::alarm::Alarm;
use crate::engine::exposure::Exposure;
use crate::map::memtable::FACT_BYTES;
use crate::member::seat::Seat;

/// Requests of hosts to one volume.
#[derive(Default)]
pub struct VolumeCounters {
    /// Requests.
    pub reads: Cell<u64>,
    /// Requests.
    pub writes: Cell<u64>,
    /// Requests.
    pub flushes: Cell<u64>,
    /// Requests.
    pub deallocates: Cell<u64>,
    /// Bytes.
    pub bytes_read: Cell<u64>,
    /// Bytes.
    pub bytes_written: Cell<u64>,
    /// Requests that failed.
    pub errors: Cell<u64>,
}

/// What is acknowledged and not merged into the map.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemtableMemory {
    /// What it takes at most; being merged included.
    pub bytes: u64,
    /// At which a checkpoint begins.
    pub bytes_max: u64,
}

/// Map nodes in memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MapMemory {
    /// What they take.
    pub bytes: u64,
    /// What they may take.
    pub bytes_max: u64,
    /// Nodes that were there when they were asked for, since the array was opened.
    pub hits: u64,
    /// Nodes that had to be read.
    pub misses: u64,
}

/// The state of an array in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayState {
    /// Full redundancy, and no drive is out.
    Optimal,
    /// Full redundancy on the drives that are left: some are out whose place nobody has taken.
    Rebuilt,
    /// Reduced redundancy, no rebuild under way.
    Degraded,
    /// Reduced redundancy, being restored.
    Rebuilding,
    /// More members gone than the redundancy covers.
    Frozen,
    /// Opened for reading only.
    ReadOnly,
    /// Closed.
    Closed,
}

/// A seat in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SeatState {
    /// Takes part.
    In,
    /// Takes part, and its columns are being moved away.
    Leaving,
    /// Was taken out since it failed.
    Failed,
    /// Should take part, but its drive is not here; it comes back by itself.
    Missing,
    /// Is out, and another drive has its place.
    Replaced,
    /// In reserve.
    Spare,
}

impl SeatState {
    /// Whether it does not take part, and is none in reserve.
    #[must_use]
    pub const fn is_out(self) -> bool {
        matches!(self, SeatState::Failed | SeatState::Missing | SeatState::Replaced)
    }
}

/// An array.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// As created.
    pub level: String,
    /// A segment at full strength.
    pub scheme: String,
    /// Parts of the array, of which this is one, or all of them.
    pub parts: u8,
    /// In one word.
    pub state: ArrayState,
    /// This open.
    pub epoch: u32,
    /// The generation in effect.
    pub generation: u64,
    /// The parity kernel in use.
    pub kernel: String,
    /// Bytes.
    pub zone_bytes: u64,
    /// Segments that all zones would give.
    pub segments_total: u64,
    /// Segments left.
    pub segments_free: u64,
    /// Bytes of all drives.
    pub raw_bytes: u64,
    /// Bytes that volumes may fill.
    pub usable_bytes: u64,
    /// Bytes stored.
    pub used_bytes: u64,
    /// The part of it that the map of thinly written volumes takes.
    pub map_room_bytes: u64,
    /// Bytes of all volumes.
    pub provisioned_bytes: u64,
    /// Data bytes of all zones that volumes may not fill: the cleaner's room, and a rebuild's place where one is
    /// promised.
    pub reserve_bytes: u64,
    /// Live blocks (of volumes and of their map) per data block of all sealed and open segments.
    pub live_share: f64,
    /// Blocks written to data columns (moves, map, headers and padding included) per block of hosts, since the array
    /// was opened.
    pub write_amplification: f64,
    /// What was written since the array was opened.
    pub written: Written,
    /// Whether acknowledged writes need a flush to be durable.
    pub volatile_cache: bool,
    /// How bad it is.
    pub exposure: Exposure,
    /// What wants attention, the worst first.
    pub alarms: Vec<Alarm>,
    /// Seats.
    pub members: Vec<MemberStatus>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
    /// A rebuild under way, or told to wait.
    pub rebuild: Option<RebuildStatus>,
    /// How fast rebuilds may go: "low", "medium", "high", or bytes per second.
    pub rebuild_rate: String,
    /// Rebuilds wait.
    pub rebuild_paused: bool,
    /// Scrubs: the one under way, the last one, the schedule.
    pub scrub: crate::jobs::scrub::ScrubStatus,
    /// What happened, oldest first.
    pub events: Vec<EventLine>,
    /// Memory of the map.
    pub map_memory: MapMemory,
    /// What the memtable takes in memory.
    pub memtable_memory: MemtableMemory,
    /// Blocks written back since the open because they did not match their checksum.
    pub repaired_blocks: u64,
    /// Entries acknowledged and not merged.
    pub unmerged_entries: usize,
}

/// Bytes written since the array was opened, by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Hosts' data.
    pub host_bytes: u64,
    /// Live blocks that the cleaner moved.
    pub moved_bytes: u64,
    /// Map nodes.
    pub map_bytes: u64,
    /// Record headers, and padding of rows.
    pub header_bytes: u64,
    /// Parity or copies of all these.
    pub redundancy_bytes: u64,
}

/// A seat.
#[derive(Clone, Debug, Serialize)]
pub struct MemberStatus {
    /// Its number in the tables, which no other member has.
    pub seat: u16,
    /// The number of its place, which people know it by: a drive that takes another's place has the same.
    pub bay: u16,
    /// In one word.
    pub state: SeatState,
    /// Out since it was not there, not since it failed: it comes back by itself.
    pub missing: bool,
    /// The path it was opened by.
    pub drive: String,
    /// Serial number or stable name.
    pub drive_name: String,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of it that are used: all, unless the slots list no more zones of so large a drive.
    pub bytes_used: u64,
    /// Zones.
    pub zones: u32,
    /// Zones in no segment.
    pub zones_free: u64,
    /// Requests.
    pub reads: u64,
    /// Requests.
    pub writes: u64,
    /// Bytes.
    pub bytes_read: u64,
    /// Bytes.
    pub bytes_written: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Blocks whose checksum did not match.
    pub mismatches: u64,
    /// Whether what it completed can be lost in a power cut until a flush.
    pub volatile_cache: bool,
    /// How requests reach the drive, in words; None when it is not there.
    pub access: Option<&'static str>,
    /// Why not in the way that was asked for.
    pub access_why: Option<String>,
    /// Why it is suspect, if it is.
    pub suspect: Option<String>,
    /// Reads that others answered because it was slow.
    pub reads_around: u64,
}

/// A volume.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// Size.
    pub bytes: u64,
    /// Bytes stored; what was overwritten since the last checkpoint may count twice.
    pub mapped_bytes: u64,
    /// "live" or "dropping".
    pub state: &'static str,
    /// What its hosts may take.
    #[serde(skip)]
    pub limits: Limits,
    /// Requests that waited for the limits since the array was opened.
    pub limited: u64,
    /// Requests.
    pub reads: u64,
    /// Requests.
    pub writes: u64,
    /// Requests.
    pub flushes: u64,
    /// Requests.
    pub deallocates: u64,
    /// Bytes.
    pub bytes_read: u64,
    /// Bytes.
    pub bytes_written: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// A rebuild.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RebuildStatus {
    /// Segments restored, and those that are to be.
    pub segments_total: u64,
    /// Segments restored.
    pub segments_done: u64,
    /// Bytes written to new places, and those that are to be.
    pub bytes_total: u64,
    /// Bytes written to their new places.
    pub bytes_moved: u64,
    /// Of late.
    pub bytes_per_second: u64,
    /// Rows that could not be made whole: blocks in them are lost.
    pub rows_lost: u64,
    /// Since it began.
    pub seconds: u64,
    /// Until it ends, as fast as of late.
    pub eta_seconds: Option<u64>,
    /// Told to wait.
    pub paused: bool,
}

/// Counters per volume and drive since the array was opened.
#[derive(Clone, Debug, Serialize)]
pub struct Iostat {
    /// When.
    pub unix_seconds: u64,
    /// Drives.
    pub members: Vec<MemberStatus>,
    /// Volumes.
    pub volumes: Vec<VolumeStatus>,
}

impl Core {
    /// The array, now.
    pub fn status(&self) -> Status {
        let table = self.segments.read();
        let used_segments = table.segments.values().filter(|s| !s.is_spare());
        let blocks_in: u64 = used_segments.map(|s| s.scheme.k() as u64 * u64::from(s.rows.acked)).sum();
        let live: u64 = table.segments.values().map(|s| u64::from(s.live)).sum();
        drop(table);
        let volumes = self.volume_lines();
        let usable_bytes = BlockCount(self.usable_blocks()).bytes();
        let map_room = self.room_taken_by_map();
        let used_bytes = BlockCount(self.mapped_blocks() + self.pending_blocks() + map_room).bytes();
        let provisioned_bytes = volumes.iter().map(|v| v.bytes).sum();
        let members = self.member_lines();
        let exposure = self.exposure();
        Status {
            name: self.ctx.name.clone(),
            uuid: self.ctx.shape.array.0,
            level: self.ctx.shape.level.to_string(),
            scheme: self.ctx.shape.scheme.to_string(),
            parts: self.ctx.shape.part.of,
            state: self.state_word(),
            epoch: self.ctx.epoch().0,
            generation: self.system.number(),
            kernel: self.ctx.kernel.name().to_owned(),
            zone_bytes: BlockCount(u64::from(self.ctx.shape.zone_blocks)).bytes(),
            segments_total: self.segments_possible(),
            segments_free: self.segments_left(),
            raw_bytes: members.iter().map(|m| m.bytes).sum(),
            usable_bytes,
            used_bytes: used_bytes.min(usable_bytes.max(BlockCount(self.mapped_blocks() + map_room).bytes())),
            map_room_bytes: BlockCount(map_room).bytes(),
            provisioned_bytes,
            reserve_bytes: BlockCount(self.segments_possible() * self.segment_blocks_now())
                .bytes()
                .saturating_sub(usable_bytes),
            live_share: ratio(live, blocks_in),
            write_amplification: self.write_amplification(),
            written: self.written(),
            volatile_cache: !self.members.no_volatile_cache(),
            alarms: self.alarms(&exposure, usable_bytes, used_bytes, provisioned_bytes),
            exposure,
            members,
            volumes,
            rebuild: self.rebuild_status(),
            rebuild_rate: rate_word(self.ctx.settings().rebuild),
            rebuild_paused: self.ctx.settings().rebuild_paused,
            scrub: self.scrub_status(),
            events: self.ctx.events(),
            repaired_blocks: self.ctx.figures.repaired_blocks.get(),
            map_memory: self.nodes.status(),
            memtable_memory: self.memtable_memory(),
            unmerged_entries: self.memory.read().len(),
        }
    }

    fn memtable_memory(&self) -> MemtableMemory {
        let bytes = self.memory.read().weight() * FACT_BYTES;
        MemtableMemory { bytes, bytes_max: self.memory.facts_max() * FACT_BYTES }
    }

    fn write_amplification(&self) -> f64 {
        ratio(self.ctx.figures.data_blocks_written.get(), self.ctx.figures.host_blocks_written.get()).max(1.0)
    }

    /// What was written since the open.
    pub fn written(&self) -> Written {
        let t = &self.ctx.figures;
        let (host, moved, map) = (t.host_blocks_written.get(), t.moved_blocks.get(), t.node_blocks_written.get());
        // Counted when they are begun, the others when they are acknowledged.
        let data = t.data_blocks_written.get();
        Written {
            host_bytes: BlockCount(host).bytes(),
            moved_bytes: BlockCount(moved).bytes(),
            map_bytes: BlockCount(map).bytes(),
            header_bytes: BlockCount(data.saturating_sub(host + moved + map)).bytes(),
            redundancy_bytes: BlockCount(t.raw_blocks_written.get().saturating_sub(data)).bytes(),
        }
    }

    /// Counters, now.
    pub fn iostat(&self) -> Iostat {
        Iostat { unix_seconds: self.ctx.rt.unix_seconds(), members: self.member_lines(), volumes: self.volume_lines() }
    }

    /// The state in one word.
    pub fn state_word(&self) -> ArrayState {
        match self.ctx.phase() {
            Phase::ReadOnly if !self.survivable() => ArrayState::Frozen,
            Phase::ReadOnly => ArrayState::ReadOnly,
            Phase::Frozen => ArrayState::Frozen,
            Phase::Closed => ArrayState::Closed,
            Phase::Open if !self.lacks_members() && !self.lacks_redundancy() => ArrayState::Optimal,
            Phase::Open if !self.lacks_redundancy() && self.may_fail() >= self.ctx.shape.scheme.tolerates() => {
                ArrayState::Rebuilt
            }
            Phase::Open if self.is_rebuilding() => ArrayState::Rebuilding,
            Phase::Open if self.lacks_members() || self.broken_segments().next().is_some() => ArrayState::Degraded,
            // Only a generation is missing.
            Phase::Open => ArrayState::Rebuilding,
        }
    }

    /// A seat in one word.
    pub fn seat_state(&self, s: &Seat) -> SeatState {
        match s.state() {
            MemberState::In if s.drive.is_none() => SeatState::Missing,
            MemberState::In if s.leaves() => SeatState::Leaving,
            MemberState::In => SeatState::In,
            MemberState::Spare => SeatState::Spare,
            MemberState::Out | MemberState::Vacant if self.bay_filled(s.bay()) => SeatState::Replaced,
            MemberState::Out if s.why_out() == WhyOut::Missing => SeatState::Missing,
            MemberState::Out | MemberState::Vacant => SeatState::Failed,
        }
    }

    fn member_lines(&self) -> Vec<MemberStatus> {
        let seats = self.members.all();
        let shown = seats.iter().filter(|s| s.state() != MemberState::Vacant);
        shown
            .map(|s| MemberStatus {
                seat: s.id.0,
                state: self.seat_state(s),
                bay: s.bay(),
                missing: s.state() == MemberState::Out && s.why_out() == WhyOut::Missing,
                drive: s.path().to_owned(),
                drive_name: s.drive_name().to_owned(),
                bytes: BlockCount(s.layout.drive_blocks).bytes(),
                bytes_used: BlockCount(s.layout.used_blocks()).bytes(),
                zones: s.layout.zones,
                zones_free: s.zones_free() as u64,
                reads: s.counters.reads.get(),
                writes: s.counters.writes.get(),
                bytes_read: s.counters.bytes_read.get(),
                bytes_written: s.counters.bytes_written.get(),
                errors: s.counters.errors.get(),
                mismatches: s.counters.mismatches.get(),
                volatile_cache: s.volatile(),
                access: s.drive.as_ref().map(|d| d.access().words()),
                access_why: s.drive.as_ref().and_then(|d| d.access_why()),
                suspect: s.health.suspect(self.ctx.rt.now()),
                reads_around: s.speed.around.get(),
            })
            .collect()
    }

    /// The volumes.
    pub fn volume_lines(&self) -> Vec<VolumeStatus> {
        let volumes = self.volumes.all();
        volumes
            .values()
            .filter(|v| v.agreed_blocks() > 0)
            .map(|v| VolumeStatus {
                name: v.name().clone(),
                uuid: v.uuid,
                bytes: BlockCount(v.agreed_blocks()).bytes(),
                mapped_bytes: BlockCount(self.stored_in(v)).bytes(),
                state: if v.state() == VolumeState::Live { "live" } else { "dropping" },
                limits: v.limits(),
                limited: v.quota.waited.get(),
                reads: v.counters.reads.get(),
                writes: v.counters.writes.get(),
                flushes: v.counters.flushes.get(),
                deallocates: v.counters.deallocates.get(),
                bytes_read: v.counters.bytes_read.get(),
                bytes_written: v.counters.bytes_written.get(),
                errors: v.counters.errors.get(),
            })
            .collect()
    }
}

/// A rate in one word.
fn rate_word(rate: ondisk::Rate) -> String {
    match rate {
        ondisk::Rate::Low => "low".to_owned(),
        ondisk::Rate::Medium => "medium".to_owned(),
        ondisk::Rate::High => "high".to_owned(),
        ondisk::Rate::Bytes(n) => n.to_string(),
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { (a as f64 / b as f64 * 1000.0).round() / 1000.0 }
}
