//! Alarms: what needs attention now, as long as it does.

use serde::Serialize;

use crate::core::Core;
use crate::ctx::Phase;
use crate::engine::exposure::Exposure;
use crate::engine::status::SeatState;
use crate::member::seat::Seat;

/// Shares of usable space, in percent, at which an array that promises more than it has asks for attention.
const SPACE_STEPS: [u64; 3] = [95, 90, 80];

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
    pub(crate) fn of_seat(self, seat: &Seat) -> Alarm {
        Alarm { seat: Some(seat.bay()), ..self }
    }
}

impl Core {
    /// What wants attention now, the worst first.
    pub fn alarms(&self, exposure: &Exposure, usable: u64, used: u64, provisioned: u64) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        alarms.extend(self.exposure_alarm(exposure));
        alarms.extend(self.drive_alarms());
        alarms.extend(self.pause_alarm());
        alarms.extend(self.health_alarms());
        alarms.extend(self.scrub_alarms());
        alarms.extend(self.space_alarm(usable, used, provisioned));
        alarms.sort_by_key(|alarm| std::cmp::Reverse(alarm.severity));
        alarms
    }

    fn exposure_alarm(&self, exposure: &Exposure) -> Option<Alarm> {
        if self.members.guard.is_lost() {
            let what = "frozen: another server has the array; nothing is read or written here";
            return Some(Alarm::critical(
                AlarmCode::TakenOver,
                what,
                "Use that server, or stop it; the events name it",
            ));
        }
        let is_frozen = !self.survivable() || self.ctx.phase() == Phase::Frozen;
        if is_frozen {
            let gone = Exposure::gone_words(&exposure.failed, &exposure.missing);
            let what = format!(
                "frozen: {gone}, {} tolerates {}; writes fail, and reads fail where redundancy does not cover the loss",
                self.ctx.shape.level, exposure.tolerates
            );
            return Some(Alarm::critical(AlarmCode::Frozen, what, "Reconnect the drives, then restart the array"));
        }
        if exposure.tolerates == 0 || self.ctx.phase() == Phase::Closed {
            return None;
        }
        let until = if self.is_rebuilding() {
            "Wait until the rebuild ends"
        } else {
            "Replace the drives that are out, or reconnect them"
        };
        if exposure.may_fail == 0 {
            return Some(Alarm::critical(AlarmCode::NoRedundancy, "no further drive may fail", until));
        }
        if exposure.may_fail < exposure.tolerates {
            let what = format!("{} may fail; {} with full redundancy", drives(exposure.may_fail), exposure.tolerates);
            return Some(Alarm::warning(AlarmCode::Degraded, what, until));
        }
        (self.lacks_members() && !exposure.rebuild_place).then(|| {
            let what = "redundancy is full again, but another loss cannot be rebuilt on the remaining drives";
            Alarm::warning(AlarmCode::NoRebuildPlace, what, "Replace the drives that are out, or reconnect them")
        })
    }

    fn drive_alarms(&self) -> Vec<Alarm> {
        let seats = self.members.all();
        let alarm = |s: &std::rc::Rc<Seat>| match self.seat_state(s) {
            SeatState::Failed => {
                let what = format!("{} failed", s.title());
                Some(Alarm::warning(AlarmCode::DriveFailed, what, "Replace it").of_seat(s))
            }
            SeatState::Missing => {
                let what = format!("{} is missing", s.title());
                let todo = "Reconnect it, and it rejoins by itself; or replace it";
                Some(Alarm::warning(AlarmCode::DriveMissing, what, todo).of_seat(s))
            }
            SeatState::In | SeatState::Leaving | SeatState::Replaced | SeatState::Spare => None,
        };
        seats.iter().filter(|s| s.state() != ondisk::MemberState::Vacant).filter_map(alarm).collect()
    }

    fn pause_alarm(&self) -> Option<Alarm> {
        let waits = self.ctx.settings().rebuild_paused && self.lacks_redundancy() && self.ctx.is_open();
        let what = "redundancy is reduced, and rebuilds are paused";
        waits.then(|| Alarm::warning(AlarmCode::RebuildPaused, what, "Resume rebuilds"))
    }

    fn space_alarm(&self, usable: u64, used: u64, provisioned: u64) -> Option<Alarm> {
        let todo = "Delete or deallocate data, or add drives";
        if self.is_full() {
            let what = "no space is left: writes to new blocks are refused";
            return Some(Alarm::critical(AlarmCode::Full, what, todo));
        }
        let share = used * 100 / usable.max(1);
        let step = SPACE_STEPS.into_iter().find(|step| share >= *step).filter(|_| provisioned > usable)?;
        let what = format!(
            "{share} % of usable space is used (alarm at {step} %), and the volumes promise more than the array holds"
        );
        Some(Alarm::warning(AlarmCode::SpaceLow, what, todo))
    }
}

/// "1 drive", "2 drives".
fn drives(n: usize) -> String {
    if n == 1 { "1 drive".to_owned() } else { format!("{n} drives") }
}
