//! The array: volumes, map, log, segments, rows, members, and their life.
//!
//! ```text
//! volume -> map, log -> segment -> row -> seat -> rt        lifecycle calls all of them, none calls lifecycle
//! ```
//!
//! Invariants (each argued where it is kept):
//! - rows: every row below a segment's cut is fully written with valid parity and never overwritten but by the same
//!   content (`log`);
//! - one truth: the newest generation and the valid entries of its frontier (`system`, `lifecycle::replay`);
//! - nothing unverified leaves (`row`).
//!
//! Not here: protocols, files and names of drives, configuration.

pub mod alarm;
mod array;
pub mod canary;
pub mod check;
mod core;
mod detour;
mod drives;
pub mod exposure;
mod extents;
pub mod fault;
mod flush;
pub mod health;
pub mod inspect;
mod ladder;
mod lifecycle;
pub mod locate;
mod log;
mod map;
mod members;
mod memtable;
mod merge;
mod meter;
pub mod no_room;
mod node_cache;
pub mod owner;
mod pace;
mod packed;
mod pins;
pub mod plan;
mod quota;
mod row;
mod seat;
mod segment;
mod share;
mod sizes;
mod space;
mod spans;
pub mod status;
mod stored;
mod sync;
mod system;
pub mod volume;
pub mod whole;

pub use array::{Array, ScrubPlan};
pub use check::{CheckProgress, CheckReport, check};
pub use extents::ExtentKind;
pub use fault::{Fault, Refused, RefusedCode, Remedy};
pub use inspect::{Identity, Inspection, has_slice_of, identify, inspect, made_of};
pub use lifecycle::open::{OpenHow, RecoveryReport};
pub use lifecycle::scrub::{DriveFindings, ScrubKind, ScrubRun, ScrubSchedule, ScrubStatus};
pub use lifecycle::survey::{Prospect, Survey, Surveyed, survey};
pub use locate::{Located, RowPlace};
pub use ondisk::{Limits, Rate};
pub use plan::{CreateSpec, Plan, plan};
pub use status::{ArrayState, EventSeverity, Iostat, SeatState, Status};
pub use volume::Volume;
pub use whole::{Whole, wipe};
