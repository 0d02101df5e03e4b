//! Alarms: what needs attention now, as long as it does.

use serde::Serialize;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something to do before long.
    Warning,
    /// Hosts are refused, or the next loss loses data.
    Critical,
}

/// What an alarm is about, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmCode {
    /// More drives are gone than the redundancy covers.
    Frozen,
    /// Another server has the array.
    TakenOver,
    /// No further drive may fail.
    NoRedundancy,
    /// Fewer drives may fail than at full strength.
    Degraded,
    /// Redundancy is whole, and another loss could not be made good.
    NoRebuildPlace,
    /// A rebuild waits until it is told to go on.
    RebuildPaused,
    /// A drive failed.
    DriveFailed,
    /// A drive is not here.
    DriveMissing,
    /// A drive is late, or errs now and then.
    DriveSuspect,
    /// A drive does not answer, and the array cannot do without it.
    DriveSilent,
    /// There is no room left where a drive's file lies.
    NoRoomBelow,
    /// Hosts are refused new blocks.
    Full,
    /// Space runs short.
    SpaceLow,
    /// A scrub is late.
    ScrubOverdue,
    /// Scrubs cannot end within their interval at the rate that was set.
    ScrubTooSlow,
}

impl AlarmCode {
    /// In one word, as scripts see it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            AlarmCode::Frozen => "frozen",
            AlarmCode::TakenOver => "taken_over",
            AlarmCode::NoRedundancy => "no_redundancy",
            AlarmCode::Degraded => "degraded",
            AlarmCode::NoRebuildPlace => "no_rebuild_place",
            AlarmCode::RebuildPaused => "rebuild_paused",
            AlarmCode::DriveFailed => "drive_failed",
            AlarmCode::DriveMissing => "drive_missing",
            AlarmCode::DriveSuspect => "drive_suspect",
            AlarmCode::DriveSilent => "drive_silent",
            AlarmCode::NoRoomBelow => "no_room_below",
            AlarmCode::Full => "full",
            AlarmCode::SpaceLow => "space_low",
            AlarmCode::ScrubOverdue => "scrub_overdue",
            AlarmCode::ScrubTooSlow => "scrub_too_slow",
        }
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alarm {
    /// What it is about.
    pub code: AlarmCode,
    /// How much it matters.
    pub severity: Severity,
    /// The seat that it is about.
    pub seat: Option<u16>,
    /// What is the matter.
    pub what: String,
    /// What to do.
    pub todo: String,
}

impl Alarm {
    /// A warning about the array.
    pub fn warning(code: AlarmCode, what: impl Into<String>, todo: impl Into<String>) -> Alarm {
        Alarm { code, severity: Severity::Warning, seat: None, what: what.into(), todo: todo.into() }
    }

    /// A critical one about the array.
    pub fn critical(code: AlarmCode, what: impl Into<String>, todo: impl Into<String>) -> Alarm {
        Alarm { severity: Severity::Critical, ..Alarm::warning(code, what, todo) }
    }

    /// The same, about a seat.
    #[must_use]
    pub fn of_seat(self, seat: u16) -> Alarm {
        Alarm { seat: Some(seat), ..self }
    }
}
