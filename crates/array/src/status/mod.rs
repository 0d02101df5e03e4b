//! What the array says of itself: figures for people and scripts.

pub mod alarm;
pub mod exposure;
pub mod scrub;

use ondisk::Limits;
use serde::Serialize;
use uuid::Uuid;

pub use crate::ctx::events::{EventLine, EventSeverity};
use alarm::Alarm;
use exposure::Exposure;
use scrub::ScrubStatus;

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
    pub scrub: ScrubStatus,
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
