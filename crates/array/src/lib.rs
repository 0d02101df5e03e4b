//! The array: volumes, map, log, segments, rows, members, and their life.
//!
//! ```text
//! volume -> log -> space -> member -> rt
//!        -> map -> row -> member -> rt                     jobs and open call all of them
//! ```
//!
//! Which room may know which is held by `tests/tidy`.
//!
//! Invariants (each argued where it is kept):
//! - rows: every row below a segment's cut is fully written with valid parity and never overwritten but by the same
//!   content (`log`);
//! - one truth: the newest generation and the valid entries of its frontier (`generation`, `open::replay`);
//! - nothing unverified leaves (`row`).
//!
//! Not here: protocols, files and names of drives, configuration.

pub mod canary;
mod core;
mod ctx;
mod engine;
pub mod fault;
mod generation;
mod jobs;
mod log;
mod map;
mod member;
mod meter;
mod offline;
mod open;
pub mod owner;
pub mod parts;
mod row;
mod space;
mod sync;
pub mod volume;

pub use engine::status::{ArrayState, EventSeverity, Iostat, SeatState, Status};
pub use engine::{Array, ScrubPlan, alarm, exposure, status};
pub use fault::{Fault, Refused, RefusedCode, Remedy};
pub use jobs::scrub::{DriveFindings, ScrubKind, ScrubRun, ScrubSchedule, ScrubStatus};
pub use member::{health, no_room};
pub use offline::check::{CheckProgress, CheckReport, check};
pub use offline::inspect::{Identity, Inspection, has_slice_of, identify, inspect, made_of};
pub use offline::locate::{Located, RowPlace};
pub use offline::{inspect, locate};
pub use ondisk::{Limits, Rate};
pub use open::survey::{Prospect, Survey, Surveyed, survey};
pub use open::{OpenHow, RecoveryReport};
pub use parts as whole;
pub use parts::{Whole, wipe};
pub use space::plan;
pub use space::plan::{CreateSpec, Plan, plan};
pub use volume::Volume;
pub use volume::extents::ExtentKind;
