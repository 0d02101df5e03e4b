//! How bad it is, and what needs attention now.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How bad it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExposureView {
    /// Drives that may fail now, whichever they are, and nothing is lost.
    pub may_fail: usize,
    /// Drives that may fail when nothing is out.
    pub tolerates: usize,
    /// Whether one more loss could be rebuilt on the drives that are left, or on a spare.
    pub rebuild_place: bool,
    /// Seats whose drive failed, and that no other drive took.
    pub failed: Vec<u16>,
    /// Seats whose drive is not here, and that no other drive took.
    pub missing: Vec<u16>,
}

impl ExposureView {
    /// "1 drive failed or is missing".
    #[must_use]
    pub fn gone_words(failed: &[u16], missing: &[u16]) -> String {
        match failed.len() + missing.len() {
            1 => "1 drive failed or is missing".to_owned(),
            n => format!("{n} drives failed or are missing"),
        }
    }
}

/// Alarms that are raised now.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Alarms {
    /// Version of this object.
    pub version: u32,
    /// Each of them, the worst first.
    pub alarms: Vec<RaisedAlarm>,
}

/// An alarm, and of which array it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RaisedAlarm {
    /// Its id, by which it is acknowledged.
    #[serde(default)]
    pub id: String,
    /// The array; none: the server.
    pub array: Option<String>,
    /// The alarm.
    #[serde(flatten)]
    pub alarm: AlarmView,
}

/// How much an alarm matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something to do before long.
    #[default]
    Warning,
    /// Hosts are refused, or the next loss loses data.
    Critical,
}

/// Something that wants attention, as long as it does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlarmView {
    /// What it is about, for scripts: the word of an [`AlarmCode`], or of one that a newer server knows.
    pub code: String,
    /// How much it matters.
    pub severity: Severity,
    /// The seat that it is about.
    pub seat: Option<u16>,
    /// What is the matter.
    pub what: String,
    /// What to do.
    pub todo: String,
    /// Who acknowledged it; absent: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Box<Acknowledgement>>,
}

/// An acknowledgement of an alarm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Acknowledgement {
    /// Who.
    pub who: String,
    /// When.
    pub unix_seconds: u64,
    /// Their note.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// To acknowledge an alarm.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Acknowledge {
    /// A note, 200 characters at most.
    pub note: String,
    /// Takes an acknowledgement back instead.
    pub withdraw: bool,
}

impl AlarmView {
    /// A warning about the array.
    pub fn warning(code: AlarmCode, what: impl Into<String>, todo: impl Into<String>) -> AlarmView {
        let (severity, seat) = (Severity::Warning, None);
        let (what, todo) = (what.into(), todo.into());
        AlarmView { code: code.word().to_owned(), severity, seat, what, todo, acknowledged: None }
    }

    /// A critical one about the array.
    pub fn critical(code: AlarmCode, what: impl Into<String>, todo: impl Into<String>) -> AlarmView {
        AlarmView { severity: Severity::Critical, ..AlarmView::warning(code, what, todo) }
    }

    /// The same, about a seat.
    #[must_use]
    pub fn of_seat(self, seat: u16) -> AlarmView {
        AlarmView { seat: Some(seat), ..self }
    }

    /// Its id among those of a server: "fast:drive_failed:3", of the array `fast`; ":nbd_open", of none.
    #[must_use]
    pub fn id(&self, array: Option<&str>) -> String {
        let seat = self.seat.map(|seat| format!(":{seat}")).unwrap_or_default();
        format!("{}:{}{seat}", array.unwrap_or_default(), self.code)
    }

    /// "what (what to do: todo)", for one line of a log.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} (what to do: {})", self.what, self.todo)
    }
}

/// What an alarm is about, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// So that the code of an alarm can be compared, though it is one that only a newer server knows.
impl PartialEq<AlarmCode> for String {
    fn eq(&self, code: &AlarmCode) -> bool {
        self == code.word()
    }
}
