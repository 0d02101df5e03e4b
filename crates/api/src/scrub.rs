//! Scrubs: which one runs, what the last one found, when the next one is due.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Scrubs of an array.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ScrubView {
    /// The one that is running.
    pub running: Option<ScrubRunView>,
    /// The last one; of before the array was opened here, as this machine wrote it down.
    pub last: Option<ScrubRunView>,
    /// Patrol reads.
    pub media: ScrubScheduleView,
    /// Consistency checks.
    pub parity: ScrubScheduleView,
    /// What a scrub reads at most.
    pub bytes_per_second: u64,
}

/// Which scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubKind {
    /// Data, headers, map nodes and the system area against their checksums.
    #[default]
    Media,
    /// That, and redundancy against the data.
    Parity,
}

impl fmt::Display for ScrubKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScrubKind::Media => "media",
            ScrubKind::Parity => "parity",
        })
    }
}

/// A scrub that runs, or ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScrubRunView {
    /// Which.
    pub kind: ScrubKind,
    /// Whether it came to its end.
    pub finished: bool,
    /// Segments read.
    pub segments_done: u64,
    /// Segments to read.
    pub segments_total: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Since it began, or went on after a restart.
    pub seconds: u64,
    /// To its end, once that can be told.
    pub eta_seconds: Option<u64>,
    /// Drives on which something was wrong.
    pub found: Vec<ScrubFoundView>,
}

/// What a scrub found on one drive: blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScrubFoundView {
    /// The drive's serial number or stable name.
    pub drive_name: String,
    /// Its seat.
    pub seat: u16,
    /// Wrong, or not to be read.
    pub found: u64,
    /// Of these, right again.
    pub repaired: u64,
    /// Of these, written back and not there when they were read again.
    pub not_held: u64,
    /// Of these, beyond the redundancy.
    pub lost: u64,
}

/// How often scrubs run, and when they did.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ScrubScheduleView {
    /// Hours from one beginning to the next; 0: not by itself.
    pub every_hours: u32,
    /// When the last one began (or the array was made): seconds since 1970.
    pub started_at: u64,
    /// When the last one ended: seconds since 1970; 0: never.
    pub finished_at: u64,
}
