//! The simulator: the shipped engine in a world where one seed decides workload, scheduling, faults and time.
//!
//! ```text
//! seed -> plan (what is decided before) -> world (drives) -> rounds: disturb, open, compare, work, disturb, end
//! ```
//!
//! Invariant: the same plan gives the same trace, whatever runs beside it.

pub mod back;
mod below;
mod beyond;
pub mod census;
pub mod disturb;
pub mod drives;
mod exposed;
pub mod full;
pub mod health;
pub mod kind;
mod late;
pub mod lives;
pub mod lone;
pub mod model;
mod noted;
mod older;
pub mod own;
pub mod parts;
pub mod plan;
pub mod probes;
pub mod report;
pub mod run;
pub mod scrubs;
pub mod service;
pub mod shrink;
pub mod spoil;
mod trials;
pub mod two;
pub mod volumes;
pub mod workload;
pub mod world;
