//! The objects that scripts see: what the API answers and `--json` prints. Version 2.
//!
//! Version 2 has alarms as objects, and members that are out as "failed", "missing" or "replaced"; version 1 had
//! sentences, and "out".
//!
//! Invariant: fields are added, never renamed, removed or given another unit; anything else is the next version. They are
//! of their own, not the engine's structs, so that the engine may change. Sizes are bytes unless the name says
//! otherwise.

mod array;
mod clients;
mod found;
mod from_array;
mod verbs;

pub use array::{
    AlarmView, ArrayState, ArrayView, EventSeverity, EventView, ExposureView, IostatView, LimitsView, MemberState,
    MemberView, RebuildView, RecoveryStepView, RecoveryView, ScrubFoundView, ScrubRunView, ScrubScheduleView,
    ScrubView, Severity, TrafficView, VolumeState, VolumeView, WrittenView,
};
pub use clients::{ClientView, Clients, Forced, WhoseClients};
pub use found::{FindRequest, FoundArrayView, FoundArrays, FoundMemberView, HeldView, Prospect};
pub use verbs::{
    Absent, Arrays, Buffers, CheckView, CreateRequest, Created, Done, DriveAdd, DriveFail, DriveLocate, DriveReplace,
    DriveRetire, ImportRequest, Imported, ImportedArray, Iostats, Placement, PlacementNode, PlanView, Range,
    RebuildSet, RescueRequest, RescueView, ScrubSchedule, ScrubStart, ServerView, VERSION, VolumeCreate, VolumeGrow,
    VolumeLimit, VolumeRename, Volumes,
};
