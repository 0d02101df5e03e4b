//! The objects that scripts see: what the server answers and `--json` prints. Version 2.
//!
//! One model: the engine fills these types, the server sends them, the command line reads them.
//!
//! Version 2 has alarms as objects, and members that are out as "failed", "missing" or "replaced"; version 1 had
//! sentences, and "out".
//!
//! Invariants:
//! - fields are added, never renamed, removed or given another unit; anything else is the next version;
//! - sizes are bytes unless the name says otherwise;
//! - nothing here needs the engine, a drive or a socket.

mod alarm;
mod array;
mod block;
mod clients;
mod event;
mod found;
mod job;
mod problem;
mod scrub;
mod token;
mod traffic;
mod verbs;
mod wire;

pub use alarm::{Acknowledge, Acknowledgement, AlarmCode, AlarmView, Alarms, ExposureView, RaisedAlarm, Severity};
pub use array::{
    ArrayState, ArrayView, LimitsView, MemberView, RebuildView, RecoveryStepView, RecoveryView, SeatState, VolumeState,
    VolumeView, WrittenView,
};
pub use block::{BlockDeviceView, TargetView};
pub use clients::{ClientView, Clients, Forced, WhoseClients};
pub use event::{Event, EventCode, EventSeverity, EventView, Events, KeptIn, WhichArrayEvents, WhichEvents};
pub use found::{FindRequest, FoundArrayView, FoundArrays, FoundMemberView, HeldView, Prospect};
pub use job::{JobKind, JobState, JobVerb, JobView, Jobs};
pub use problem::{Details, ErrorBody, Kind, Problem, Remedy};
pub use scrub::{ScrubFoundView, ScrubKind, ScrubRunView, ScrubScheduleView, ScrubView};
pub use token::{Role, Secret, TokenCreate, TokenCreated, TokenView, Tokens};
pub use traffic::{HistogramView, IostatView, TrafficView, WorkView, add_work};
pub use verbs::{
    Absent, Arrays, Buffers, CheckView, CreateRequest, Created, Done, DriveAdd, DriveFail, DriveLocate, DriveReplace,
    DriveRetire, Drives, ImportRequest, Imported, ImportedArray, Iostats, Placement, PlacementNode, PlanView, Range,
    RebuildSet, RescueRequest, RescueView, ScrubSchedule, ScrubStart, ServerView, VERSION, VolumeCreate, VolumeLimit,
    Volumes,
};
pub use wire::{ArrayPatch, Changed, Confirmed, ProblemBody, Resource, VolumePatch, WhichArrays};
