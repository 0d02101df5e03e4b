//! The array: volumes, map, log, segments, rows, members, and their life.
//!
//! ```text
//! volume -> room, streams -> log -> health -> member -> rt
//!        -> map -> row    -> health -> member -> rt          jobs and open call all of them; rooms puts them together
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
mod ctx;
mod engine;
pub mod fault;
mod generation;
mod health;
mod in_effect;
mod jobs;
mod label;
mod log;
mod map;
mod member;
mod memtable;
mod meter;
mod notebook;
mod offline;
mod open;
pub mod owner;
pub mod parts;
mod room;
mod rooms;
mod row;
mod space;
mod state;
mod streams;
mod sync;
pub mod volume;
mod volumes;

pub use ctx::events::Listener;
pub use engine::{Array, ScrubPlan};
pub use fault::{Fault, Refused, RefusedCode};
pub use label::identify::{Identity, has_slice_of, identify};
pub use label::read::made_of;
pub use member::health as limits;
pub use member::no_room;
pub use notebook::{NOTEBOOK_BLOCKS, Notebook};
pub use offline::check::{CheckProgress, CheckReport, check};
pub use offline::inspect;
pub use offline::inspect::{Inspection, inspect};
pub use ondisk::{Limits, Rate};
pub use open::OpenHow;
pub use parts::{Survey, Surveyed, survey};
pub use parts::{Whole, wipe};
pub use room::Discard;
pub use space::plan;
pub use space::plan::{CreateSpec, plan};
pub use volume::extents::ExtentKind;
pub use volume::locate;
pub use volume::locate::{Located, RowPlace};
pub use volume::{Timed, Volume};
pub use volumes::counters::Op;
