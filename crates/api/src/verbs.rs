//! What verbs are asked and what they answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Problem;
use crate::{AlarmView, ArrayView, MemberView, RecoveryView, VolumeView};

/// The version of every object here.
pub const VERSION: u32 = 2;

/// A server.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServerView {
    /// Version of this object.
    pub version: u32,
    /// The program's version.
    pub program: String,
    /// Its process.
    pub pid: u32,
    /// Names of the arrays it serves.
    pub arrays: Vec<String>,
    /// Addresses of its NBD export.
    pub nbd: Vec<String>,
    /// Addresses of its NVMe/TCP export.
    #[serde(default)]
    pub nvme: Vec<String>,
    /// The directory of the sockets for guests (vhost-user), where guests are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<String>,
    /// Addresses of the API over TLS.
    #[serde(default)]
    pub api: Vec<String>,
    /// The SHA-256 of the certificate that it shows there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_sha256: Option<String>,
}

/// Arrays, and those that should be there and are not.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Arrays {
    /// Version of this object.
    pub version: u32,
    /// Whether a running Ashlar answered.
    pub served: bool,
    /// Addresses of the NBD export.
    pub nbd: Vec<String>,
    /// Addresses of the NVMe/TCP export.
    #[serde(default)]
    pub nvme: Vec<String>,
    /// The directory of the sockets for guests (vhost-user), where guests are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<String>,
    /// Buffers that the server keeps for its next requests.
    #[serde(default)]
    pub buffers: Option<Buffers>,
    /// Microseconds that its idle cores look for answers before they sleep, at most.
    #[serde(default)]
    pub linger_us: Option<u64>,
    /// The congestion control of its TCP connections: auto, system or a name.
    #[serde(default)]
    pub congestion: Option<String>,
    /// The arrays, by name.
    pub arrays: Vec<ArrayView>,
    /// Arrays that could not be opened.
    pub absent: Vec<Absent>,
    /// What wants attention in the server itself.
    #[serde(default)]
    pub alarms: Vec<AlarmView>,
    /// Drives that belong to no array, for the first that lacks one.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Arrays that are known on this machine, and that the running Ashlar was not told to serve.
    #[serde(default)]
    pub not_served: Vec<String>,
}

/// Freed buffers that are kept.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Buffers {
    /// What they take.
    pub bytes: u64,
    /// What they may take.
    pub bytes_max: u64,
    /// Buffers that were there when they were asked for.
    pub hits: u64,
    /// Those that were not.
    pub misses: u64,
}

/// Where the first core of a server runs, and where its drives are.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Placement {
    /// Version of this object.
    pub version: u32,
    /// Whether what it brings was ever measured.
    pub measured: bool,
    /// The node that the first core is kept to; none: it runs on any CPU that the process may use.
    pub data_node: Option<u32>,
    /// CPUs that it may run on: "0-31,64-95".
    pub data_cpus: String,
    /// Why.
    pub why: String,
    /// The CPU of each core, that of the first core first; none when cores are not pinned.
    #[serde(default)]
    pub pinned: Vec<u32>,
    /// The machine's nodes.
    pub nodes: Vec<PlacementNode>,
    /// Drives of which the node is not known, or that are attached to several.
    pub elsewhere: Vec<String>,
    /// Connections of each core that has nothing else (of NBD, and I/O queues of NVMe/TCP); none when the first core has
    /// them.
    #[serde(default)]
    pub connections: Vec<usize>,
    /// Parts of arrays on each core, those of the first core first; an array in one piece is one part.
    #[serde(default)]
    pub parts: Vec<usize>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PlacementNode {
    /// Its number.
    pub node: u32,
    /// Its CPUs; none for memory alone.
    pub cpus: String,
    /// Drives of the server that are attached to it.
    pub drives: Vec<String>,
}

/// An array that could not be opened.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Absent {
    /// Its name.
    pub name: String,
    /// Why.
    pub problem: Problem,
}

/// A verb that has nothing to tell but that it is done.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// Version of this object.
    pub version: u32,
    /// What was done, as a sentence.
    pub done: String,
    /// What else a person wants to know.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Done {
    /// Done: `what`.
    pub fn new(what: impl Into<String>) -> Done {
        Done { version: VERSION, done: what.into(), notes: vec![] }
    }
}

/// Make an array.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateRequest {
    /// Its name.
    pub name: String,
    /// "0", "10", "10x3", "5" or "6".
    pub raid: String,
    /// Zones in a segment; the array chooses when absent.
    #[serde(default)]
    pub width: Option<usize>,
    /// Zone size; the array chooses when absent.
    #[serde(default)]
    pub zone_bytes: Option<u64>,
    /// Size of files that are not there yet.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Absolute paths, or "mem:4G".
    pub drives: Vec<String>,
    /// Parts, which may be on cores of their own.
    #[serde(default = "one_part")]
    pub parts: u8,
    /// Overrides what may be overridden.
    #[serde(default)]
    pub force: bool,
    /// Arrays known on this machine of which members may be taken.
    #[serde(default)]
    pub take_from: Vec<String>,
}

/// An array is in one piece when nothing is said.
fn one_part() -> u8 {
    1
}

impl Default for CreateRequest {
    fn default() -> Self {
        CreateRequest {
            name: String::new(),
            raid: String::new(),
            width: None,
            zone_bytes: None,
            size_bytes: None,
            drives: vec![],
            parts: one_part(),
            force: false,
            take_from: vec![],
        }
    }
}

/// What an array of these drives is like.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PlanView {
    /// "RAID 6".
    pub level: String,
    /// "5+2".
    pub scheme: String,
    /// Zones in a segment.
    pub width: usize,
    /// Drives.
    pub drives: usize,
    /// Zone size.
    pub zone_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// All zones.
    pub raw_bytes: u64,
    /// All data blocks.
    pub data_bytes: u64,
    /// What volumes can hold.
    pub usable_bytes: u64,
    /// Drives that may fail, whichever they are.
    pub tolerates: usize,
    /// Whether a rebuild has a place without a new drive.
    pub rebuild_place: bool,
    /// What drives hold that is lost.
    #[serde(default)]
    pub losses: Vec<crate::HeldView>,
    /// The largest drive all of which can be used later.
    #[serde(default)]
    pub largest_drive_bytes: u64,
    /// What to know before saying yes, as sentences.
    pub notes: Vec<String>,
}

/// An array was made, or would be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Created {
    /// Version of this object.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// Its identity; absent after a dry run.
    pub uuid: Option<Uuid>,
    /// Whether it is being served now.
    pub served: bool,
    /// What it is like.
    pub plan: PlanView,
}

/// Find arrays and open them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// Directories and drives, absolute; all block devices when empty.
    pub places: Vec<String>,
    /// The array of this name or identity.
    #[serde(default)]
    pub array: Option<String>,
    /// All that are found, when no array is named.
    #[serde(default)]
    pub all: bool,
    /// Writes nothing.
    #[serde(default)]
    pub read_only: bool,
    /// Accepts half or fewer of the members.
    #[serde(default)]
    pub degraded: bool,
    /// Leaves out members with a history of their own.
    #[serde(default)]
    pub force_diverged: bool,
    /// Goes on over writes that are lost beyond repair.
    #[serde(default)]
    pub accept_loss: bool,
    /// Gives up the newest generation, and what was written since the one before.
    #[serde(default)]
    pub previous_generation: bool,
    /// The array of this name is taken from another server that has it.
    #[serde(default)]
    pub take_over: Option<String>,
}

/// Copy out what can be read of a volume.
#[derive(Clone, Debug, Default)]
pub struct RescueRequest {
    /// The volume.
    pub volume: String,
    /// A file or a block device.
    pub to: std::path::PathBuf,
    /// Writes over what is there.
    pub force: bool,
    /// Copies what the map says, though it may be old: the newest records are on drives that are not here.
    pub accept_old: bool,
    /// Reads as of the generation before the newest.
    pub previous_generation: bool,
}

/// Some bytes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Range {
    /// The first.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// What a rescue copied.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RescueView {
    /// Version of this object.
    pub version: u32,
    /// The array.
    pub array: String,
    /// The volume.
    pub volume: String,
    /// Its size.
    pub bytes: u64,
    /// Bytes copied; what was never written is not among them.
    pub copied_bytes: u64,
    /// Bytes that could not be read; zeros in the copy.
    pub lost_bytes: u64,
    /// Where.
    pub lost: Vec<Range>,
    /// What a person wants to know.
    pub notes: Vec<String>,
}

/// What an import found.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Imported {
    /// Version of this object.
    pub version: u32,
    /// Whether they are being served now.
    pub served: bool,
    /// The arrays that were opened.
    pub arrays: Vec<ImportedArray>,
    /// Those that could not be, and drives that were named and cannot be used.
    pub problems: Vec<Problem>,
}

/// One array that was opened.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ImportedArray {
    /// The array.
    pub array: ArrayView,
    /// What opening it took.
    pub recovery: RecoveryView,
    /// What a person wants to know.
    pub notes: Vec<String>,
}

/// The volumes of one array.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Volumes {
    /// Version of this object.
    pub version: u32,
    /// The array.
    pub array: String,
    /// Its volumes, by name.
    pub volumes: Vec<VolumeView>,
}

/// The drives of one array.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Drives {
    /// Version of this object.
    pub version: u32,
    /// The array.
    pub array: String,
    /// Its drives, by seat.
    pub drives: Vec<MemberView>,
}

/// Make a volume.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// Limit what a volume's hosts may take. What is not said stays as it is; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VolumeLimit {
    /// Requests a second.
    pub iops: Option<u32>,
    /// Bytes a second.
    pub bytes_per_second: Option<u64>,
    /// What may be saved up, in milliseconds at the limit.
    pub burst_ms: Option<u32>,
}

/// Take a drive out.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveFail {
    /// Its seat, path, stable name or serial number.
    pub drive: String,
    /// Also when hosts are connected and no redundancy is left then.
    #[serde(default)]
    pub force: bool,
}

/// Start a scrub.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrubStart {
    /// Redundancy against the data, too.
    #[serde(default)]
    pub parity: bool,
}

/// Say how often scrubs run by themselves; what is not given stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScrubSchedule {
    /// Hours from one media scrub to the next; 0: never.
    #[serde(default)]
    pub media_every_hours: Option<u32>,
    /// Hours from one parity scrub to the next; 0: never.
    #[serde(default)]
    pub parity_every_hours: Option<u32>,
    /// What a scrub reads at most; 0: as Ashlar thinks right.
    #[serde(default)]
    pub bytes_per_second: Option<u64>,
}

/// Put a drive in another's place.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveReplace {
    /// The drive to replace: seat, path, stable name or serial number.
    pub drive: String,
    /// The new one: an absolute path.
    pub with: String,
    /// Makes `with` a sparse file of this size if it is not there.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Overrides what may be overridden.
    #[serde(default)]
    pub force: bool,
    /// Arrays known on this machine of which members may be taken.
    #[serde(default)]
    pub take_from: Vec<String>,
}

/// Let a drive go for good.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveRetire {
    /// Its seat, path, stable name or serial number.
    pub drive: String,
}

/// Light a drive's lamp, or put it out.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveLocate {
    /// Its seat, path, stable name or serial number.
    pub drive: String,
    /// Puts it out.
    #[serde(default)]
    pub off: bool,
}

/// Set how rebuilds go. What is absent stays as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebuildSet {
    /// "low", "medium", "high", or bytes per second ("200M").
    #[serde(default)]
    pub priority: Option<String>,
    /// Rebuilds wait, or go on.
    #[serde(default)]
    pub paused: Option<bool>,
}

/// Add a drive.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveAdd {
    /// An absolute path.
    pub with: String,
    /// It takes part at once, instead of waiting for another to fail.
    #[serde(default)]
    pub grow: bool,
    /// Makes `with` a sparse file of this size if it is not there.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Overrides what may be overridden.
    #[serde(default)]
    pub force: bool,
    /// Arrays known on this machine of which members may be taken.
    #[serde(default)]
    pub take_from: Vec<String>,
}

/// Counters of all arrays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Iostats {
    /// Version of this object.
    pub version: u32,
    /// When they were read, in milliseconds since some fixed moment of the server's life.
    pub at_millis: u64,
    /// Per array.
    pub arrays: Vec<crate::IostatView>,
}

/// What a check found.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CheckView {
    /// Version of this object.
    pub version: u32,
    /// The array.
    pub array: String,
    /// Whether nothing is wrong.
    pub ok: bool,
    /// How much is wrong.
    pub errors_total: u64,
    /// What is wrong, as sentences: the first hundred.
    pub errors: Vec<String>,
    /// Members that are not here; what they held was reconstructed.
    pub members_missing: u64,
    /// Records of the log read.
    pub records: u64,
    /// Map leaves read.
    pub leaves: u64,
    /// Map nodes read.
    pub nodes: u64,
    /// Blocks checked against their checksums.
    pub blocks: u64,
    /// Segments read.
    pub segments: u64,
    /// Rows whose parity was checked.
    pub rows: u64,
    /// Bytes read from drives.
    pub bytes_read: u64,
    /// What a person wants to know.
    pub notes: Vec<String>,
}
