//! What happens to an array beyond single requests: one file per verb. Nothing below calls in here.

pub mod checkpoint;
pub mod clean;
pub mod create;
pub mod degrade;
pub mod keeper;
mod newer;
pub mod open;
pub mod rebuild;
pub mod replay;
pub mod scan;
pub mod scrub;
mod victims;
