//! What happens to an array beyond single requests: one file per verb. Nothing below calls in here.

pub mod checkpoint;
pub mod clean;
pub mod create;
pub mod degrade;
pub mod keeper;
mod labels;
mod leave;
mod move_reads;
mod newer;
pub mod open;
pub mod previous;
pub mod rebuild;
pub mod rebuild_pace;
pub mod replay;
mod restore;
pub mod returning;
pub mod scan;
pub mod scrub;
mod settle;
pub mod survey;
mod victims;
