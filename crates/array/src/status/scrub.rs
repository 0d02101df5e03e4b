//! Scrubs: kinds, findings, schedules.

use serde::Serialize;

/// Which scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubKind {
    /// Data, headers, map nodes and the system area against their checksums.
    Media,
    /// That, and redundancy against the data.
    Parity,
}

impl ScrubKind {
    /// As people call it.
    pub fn word(self) -> &'static str {
        match self {
            ScrubKind::Media => "media scrub",
            ScrubKind::Parity => "parity scrub",
        }
    }
}

/// What a scrub found on one drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriveFindings {
    /// The drive, as people know it.
    pub drive_name: String,
    /// Its seat.
    pub seat: u16,
    /// Blocks (and generations) that were wrong or could not be read.
    pub found: u64,
    /// Of these, right again.
    pub repaired: u64,
    /// Of these, written back and not there when they were read again.
    pub not_held: u64,
    /// Of these, not repairable: redundancy does not cover it.
    pub lost: u64,
}

/// A scrub that ran, or runs.
#[derive(Clone, Debug, Serialize)]
pub struct ScrubRun {
    /// Which.
    pub kind: ScrubKind,
    /// Whether it came to its end.
    pub finished: bool,
    /// Segments read.
    pub segments_done: u64,
    /// Segments to read when it began (or went on after a restart).
    pub segments_total: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Since it began or went on.
    pub seconds: u64,
    /// Until it ends, at the rate so far.
    pub eta_seconds: Option<u64>,
    /// Drives on which something was wrong.
    pub found: Vec<DriveFindings>,
}

/// Schedule and history of one kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ScrubSchedule {
    /// Hours from one beginning to the next; 0: not by itself.
    pub every_hours: u32,
    /// When the last one began: seconds since 1970; 0: never.
    pub started_at: u64,
    /// When the last one ended: seconds since 1970; 0: never.
    pub finished_at: u64,
}

/// All that is to be said of scrubs.
#[derive(Clone, Debug, Serialize)]
pub struct ScrubStatus {
    /// The one that is running.
    pub running: Option<ScrubRun>,
    /// The last one since the array was opened.
    pub last: Option<ScrubRun>,
    /// Patrol reads.
    pub media: ScrubSchedule,
    /// Consistency checks.
    pub parity: ScrubSchedule,
    /// What it reads at most.
    pub bytes_per_second: u64,
}
