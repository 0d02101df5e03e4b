//! An array, its members and its volumes, as scripts see them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use base::human;

use crate::alarm::{AlarmView, ExposureView};
use crate::event::EventView;
use crate::scrub::ScrubView;
use crate::traffic::WorkView;

/// How an array is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArrayState {
    /// Full redundancy.
    #[default]
    Optimal,
    /// Full redundancy on the drives that are left; some are out, and nobody has taken their place.
    Rebuilt,
    /// Redundancy reduced, and no rebuild under way.
    Degraded,
    /// Redundancy reduced and on its way back.
    Rebuilding,
    /// Past its redundancy: reads what can be read, writes nothing.
    Frozen,
    /// Opened for reading only.
    ReadOnly,
    /// Closed.
    Closed,
}

/// How a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeatState {
    /// Read and written.
    #[default]
    In,
    /// Read and written, while what lies on it is moved away.
    Leaving,
    /// Taken out since it failed; its data is not used any more.
    Failed,
    /// Expected, not found; it comes back by itself.
    Missing,
    /// Out, and another drive has its place.
    Replaced,
    /// Idle, waiting to replace a member.
    Spare,
}

impl SeatState {
    /// Whether it does not take part, and is no spare.
    #[must_use]
    pub const fn is_out(self) -> bool {
        matches!(self, SeatState::Failed | SeatState::Missing | SeatState::Replaced)
    }
}

/// How a volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// There.
    #[default]
    Live,
    /// Deleted; its space is on the way back.
    Dropping,
}

/// One array.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ArrayView {
    /// Name.
    pub name: String,
    /// Identity.
    pub uuid: Uuid,
    /// "RAID 6".
    pub level: String,
    /// Data and redundancy columns: "5+2", "3x2".
    pub scheme: String,
    /// Parts that it consists of; 0 from a server that knows of none.
    #[serde(default)]
    pub parts: u8,
    /// State.
    pub state: ArrayState,
    /// Read-write opens so far.
    pub epoch: u32,
    /// The system area's generation.
    pub generation: u64,
    /// The parity kernel in use.
    pub kernel: String,
    /// Zone size.
    pub zone_bytes: u64,
    /// Segments there can be.
    pub segments_total: u64,
    /// Segments free.
    pub segments_free: u64,
    /// All zones of all members.
    pub raw_bytes: u64,
    /// What volumes can hold.
    pub usable_bytes: u64,
    /// What volumes hold.
    pub used_bytes: u64,
    /// The part of it that the map of thinly written volumes takes.
    #[serde(default)]
    pub map_room_bytes: u64,
    /// The volumes' sizes together.
    pub provisioned_bytes: u64,
    /// Data bytes of all zones that volumes may not fill.
    #[serde(default)]
    pub reserve_bytes: u64,
    /// Live blocks (of volumes and map) per data block of the segments in use, 0 to 1.
    pub live_share: f64,
    /// Bytes written to members' data columns per byte from hosts, since the array was opened.
    pub write_amplification: f64,
    /// What was written since then.
    #[serde(default)]
    pub written: WrittenView,
    /// Whether answered writes wait in drives' caches for a flush.
    pub volatile_cache: bool,
    /// Memory the map takes.
    pub map_memory_bytes: u64,
    /// What it may take.
    #[serde(default)]
    pub map_memory_bytes_max: u64,
    /// Map nodes that were in memory when they were asked for, since the array was opened.
    #[serde(default)]
    pub map_hits: u64,
    /// Map nodes that had to be read.
    #[serde(default)]
    pub map_misses: u64,
    /// Memory that what is not merged into the map takes, at most.
    #[serde(default)]
    pub memtable_bytes: u64,
    /// At which it is merged.
    #[serde(default)]
    pub memtable_bytes_max: u64,
    /// Entries acknowledged and not merged.
    #[serde(default)]
    pub unmerged_entries: usize,
    /// How much of what may wait for a checkpoint does: one begins at 1. Of an array in parts, the most.
    #[serde(default)]
    pub memtable_share: f64,
    /// When the last checkpoint was done, in seconds since 1970. None: not since the array was opened. Of an array in parts, the oldest.
    #[serde(default)]
    pub checkpoint_at: Option<u64>,
    /// Blocks written back since the array was opened because they did not match their checksum.
    #[serde(default)]
    pub repaired_blocks: u64,
    /// Features of the format that it uses.
    #[serde(default)]
    pub features: Vec<String>,
    /// Features that an upgrade would switch on.
    #[serde(default)]
    pub features_available: Vec<String>,
    /// How bad it is.
    #[serde(default)]
    pub exposure: ExposureView,
    /// What needs attention, the worst first.
    pub alarms: Vec<AlarmView>,
    /// Members, by seat.
    pub members: Vec<MemberView>,
    /// Volumes, by name.
    pub volumes: Vec<VolumeView>,
    /// The rebuild that is running, or waits.
    pub rebuild: Option<RebuildView>,
    /// How fast rebuilds may go: "low", "medium", "high", or bytes per second.
    #[serde(default)]
    pub rebuild_rate: String,
    /// Rebuilds wait until they are told to go on.
    #[serde(default)]
    pub rebuild_paused: bool,
    /// Scrubs: the one that is running, the last one, the schedule.
    #[serde(default)]
    pub scrub: ScrubView,
    /// The last events, oldest first.
    pub events: Vec<EventView>,
}

/// Bytes written since an array was opened, by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WrittenView {
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

/// One member.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    /// The number of its seat. A drive that takes another's place has the same; while both are in, two have it.
    pub seat: u16,
    /// Its own number in the array's tables, which no other member has.
    #[serde(default)]
    pub member: u16,
    /// State.
    pub state: SeatState,
    /// Whether it is out since it was not here, not since it failed.
    #[serde(default)]
    pub missing: bool,
    /// The generation by which it went out; 0 while it is in, and of a server that does not tell.
    #[serde(default)]
    pub gone_since: u64,
    /// The drive's path.
    pub drive: String,
    /// Its serial number or stable name.
    pub drive_name: String,
    /// Its size.
    pub bytes: u64,
    /// How much of it is used: all, unless it is larger than the array has room for; 0 from a server that does not tell.
    #[serde(default)]
    pub bytes_used: u64,
    /// Its zones.
    pub zones: u64,
    /// Those that are free.
    pub zones_free: u64,
    /// Reads since the array was opened.
    pub reads: u64,
    /// Writes since then.
    pub writes: u64,
    /// Bytes read since then.
    #[serde(default)]
    pub bytes_read: u64,
    /// Bytes written since then.
    #[serde(default)]
    pub bytes_written: u64,
    /// Failed operations since then.
    pub errors: u64,
    /// Whether it has a volatile write cache.
    pub volatile_cache: bool,
    /// How requests reach it: "buffered", "direct", "direct, polled", "passthrough", "memory".
    #[serde(default)]
    pub access: Option<String>,
    /// Why not in the way that was asked for.
    #[serde(default)]
    pub access_why: Option<String>,
    /// Why it is suspect, if it is: it is late, or errs now and then.
    #[serde(default)]
    pub suspect: Option<String>,
    /// Reads that others answered because it was slow.
    #[serde(default)]
    pub reads_around: u64,
    /// Blocks whose checksum did not match.
    #[serde(default)]
    pub mismatches: u64,
    /// How its requests were done: in what counters are made of only.
    #[serde(skip)]
    pub work: Option<Box<WorkView>>,
}

impl MemberView {
    /// Puts members in the order of their seats; of two in one seat the older one is first.
    pub fn sort(members: &mut [MemberView]) {
        members.sort_by_key(|m| (m.seat, matches!(m.state, SeatState::In | SeatState::Spare)));
    }

    /// "7.0 TiB, of which 3.8 TiB are used", where not all of the drive is.
    #[must_use]
    pub fn size_sentence(&self) -> Option<String> {
        let partly = self.bytes_used > 0 && self.bytes_used < self.bytes;
        partly.then(|| format!("{}, of which {} are used", human(self.bytes), human(self.bytes_used)))
    }
}

/// One volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct VolumeView {
    /// Name.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Identity.
    pub uuid: Uuid,
    /// Size.
    pub bytes: u64,
    /// What of it is written: as of the last checkpoint, with what came since at most.
    pub mapped_bytes: u64,
    /// State.
    pub state: VolumeState,
    /// What its hosts may take.
    pub limits: LimitsView,
    /// Requests that waited for the limits since the array was opened.
    pub limited: u64,
    /// Reads since then.
    #[serde(default)]
    pub reads: u64,
    /// Writes since then.
    #[serde(default)]
    pub writes: u64,
    /// Flushes since then.
    #[serde(default)]
    pub flushes: u64,
    /// Deallocations since then.
    #[serde(default)]
    pub deallocates: u64,
    /// Bytes read since then.
    #[serde(default)]
    pub bytes_read: u64,
    /// Bytes written since then.
    #[serde(default)]
    pub bytes_written: u64,
    /// Requests that failed since then.
    #[serde(default)]
    pub errors: u64,
    /// How its requests were done: in what counters are made of only.
    #[serde(skip)]
    pub work: Option<Box<WorkView>>,
    /// The block device that it is on the server's machine (ublk).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_device: Option<String>,
    /// The socket at which guests of the server's machine find it (vhost-user).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_socket: Option<String>,
    /// Where the kernel's NVMe target brings it: "rdma:10.0.0.5:4420".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exported_at: Vec<String>,
}

/// Limits of a volume; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitsView {
    /// Requests a second.
    pub iops: u32,
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// What may be saved up, in milliseconds at the limit.
    pub burst_ms: u32,
}

/// A rebuild under way.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RebuildView {
    /// Segments to do.
    pub segments_total: u64,
    /// Segments done.
    pub segments_done: u64,
    /// Bytes written for it.
    pub bytes_moved: u64,
    /// Bytes to write for it: those, and what is left.
    #[serde(default)]
    pub bytes_total: u64,
    /// Bytes written per second, of late.
    #[serde(default)]
    pub bytes_per_second: u64,
    /// Rows that could not be made whole: blocks in them are lost.
    #[serde(default)]
    pub rows_lost: u64,
    /// It waits until it is told to go on.
    #[serde(default)]
    pub paused: bool,
    /// What it waits for, when it goes on by itself later.
    #[serde(default)]
    pub waits: Option<String>,
    /// Since it began.
    pub seconds: u64,
    /// To its end, once that can be told.
    pub eta_seconds: Option<u64>,
}

/// What the last open of an array had to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RecoveryView {
    /// Its steps, in order.
    pub steps: Vec<RecoveryStepView>,
    /// Records taken from the log.
    pub replayed_records: u64,
    /// Entries in them.
    pub replayed_entries: u64,
    /// Segments cut.
    pub cut_segments: u64,
    /// Blocks repaired.
    pub repaired_blocks: u64,
    /// Records that were durable and could not be read.
    #[serde(default)]
    pub damaged_records: u64,
    /// Whether the array had been closed in order.
    #[serde(default)]
    pub clean: bool,
}

/// One step of a recovery.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RecoveryStepView {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub millis: u64,
    /// What it found.
    pub detail: String,
}

impl WrittenView {
    /// Adds what was written elsewhere.
    pub fn add(&mut self, other: WrittenView) {
        self.host_bytes += other.host_bytes;
        self.moved_bytes += other.moved_bytes;
        self.map_bytes += other.map_bytes;
        self.header_bytes += other.header_bytes;
        self.redundancy_bytes += other.redundancy_bytes;
    }

    /// Bytes written to data columns for each byte of hosts; 1 at least.
    #[must_use]
    pub fn amplification(&self) -> f64 {
        let data = self.host_bytes + self.moved_bytes + self.map_bytes + self.header_bytes;
        let ratio = if self.host_bytes == 0 { 0.0 } else { data as f64 / self.host_bytes as f64 };
        ((ratio * 1000.0).round() / 1000.0).max(1.0)
    }
}
