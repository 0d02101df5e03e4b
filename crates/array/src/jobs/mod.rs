//! Background jobs: what happens to an open array beyond single requests.

pub mod checkpoint;
pub mod clean;
pub mod degrade;
pub mod keeper;
pub mod leave;
pub mod move_reads;
pub mod rebuild;
pub mod rebuild_pace;
pub mod restore;
pub mod scrub;
pub mod victims;
