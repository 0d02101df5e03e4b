//! The alarms of an open array: what needs attention now, as long as it does.

use api::{AlarmCode, AlarmView, ExposureView, SeatState};

use super::report::Report;
use crate::ctx::Phase;
use crate::member::seat::Seat;

/// Shares of usable space, in percent, at which an array that promises more than it has asks for attention.
const SPACE_STEPS: [u64; 3] = [95, 90, 80];

impl Report<'_> {
    /// What wants attention now, the worst first.
    pub fn alarms(&self, exposure: &ExposureView, usable: u64, used: u64, provisioned: u64) -> Vec<AlarmView> {
        let mut alarms = Vec::new();
        alarms.extend(self.exposure_alarm(exposure));
        alarms.extend(self.drive_alarms());
        alarms.extend(self.pause_alarm());
        alarms.extend(self.rooms.health().health_alarms());
        alarms.extend(self.rooms.scrubs().scrub_alarms());
        alarms.extend(self.space_alarm(usable, used, provisioned));
        alarms.sort_by_key(|alarm| std::cmp::Reverse(alarm.severity));
        alarms
    }

    fn exposure_alarm(&self, exposure: &ExposureView) -> Option<AlarmView> {
        if self.rooms.members().guard().is_lost() {
            let what = "frozen: another server has the array; nothing is read or written here";
            return Some(AlarmView::critical(
                AlarmCode::TakenOver,
                what,
                "Use that server, or stop it; the events name it",
            ));
        }
        let is_frozen = !self.rooms.health().survivable() || self.rooms.ctx().phase() == Phase::Frozen;
        if is_frozen {
            let gone = ExposureView::gone_words(&exposure.failed, &exposure.missing);
            let what = format!(
                "frozen: {gone}, {} tolerates {}; writes fail, and reads fail where redundancy does not cover the loss",
                self.rooms.ctx().shape.level,
                exposure.tolerates
            );
            return Some(AlarmView::critical(AlarmCode::Frozen, what, "Reconnect the drives, then restart the array"));
        }
        if exposure.tolerates == 0 || self.rooms.ctx().phase() == Phase::Closed {
            return None;
        }
        let until = if self.rooms.rebuild().is_rebuilding() {
            "Wait until the rebuild ends"
        } else {
            "Replace the drives that are out, or reconnect them"
        };
        if exposure.may_fail == 0 {
            return Some(AlarmView::critical(AlarmCode::NoRedundancy, "no further drive may fail", until));
        }
        if exposure.may_fail < exposure.tolerates {
            let what = format!("{} may fail; {} with full redundancy", drives(exposure.may_fail), exposure.tolerates);
            return Some(AlarmView::warning(AlarmCode::Degraded, what, until));
        }
        (self.rooms.members().lacks_members() && !exposure.rebuild_place).then(|| {
            let what = "redundancy is full again, but another loss cannot be rebuilt on the remaining drives";
            AlarmView::warning(AlarmCode::NoRebuildPlace, what, "Replace the drives that are out, or reconnect them")
        })
    }

    fn drive_alarms(&self) -> Vec<AlarmView> {
        let seats = self.rooms.members().all();
        let alarm = |s: &std::rc::Rc<Seat>| match self.rooms.members().seat_state(s) {
            SeatState::Failed => {
                let what = format!("{} failed", s.title());
                Some(AlarmView::warning(AlarmCode::DriveFailed, what, "Replace it").of_seat(s.bay()))
            }
            SeatState::Missing => {
                let what = format!("{} is missing", s.title());
                let todo = "Reconnect it, and it rejoins by itself; or replace it";
                Some(AlarmView::warning(AlarmCode::DriveMissing, what, todo).of_seat(s.bay()))
            }
            SeatState::In | SeatState::Leaving | SeatState::Replaced | SeatState::Spare => None,
        };
        seats.iter().filter(|s| s.state() != ondisk::MemberState::Vacant).filter_map(alarm).collect()
    }

    fn pause_alarm(&self) -> Option<AlarmView> {
        let waits = self.rooms.ctx().settings().rebuild_paused
            && self.rooms.rebuild().lacks_redundancy()
            && self.rooms.ctx().is_open();
        let what = "redundancy is reduced, and rebuilds are paused";
        waits.then(|| AlarmView::warning(AlarmCode::RebuildPaused, what, "Resume rebuilds"))
    }

    fn space_alarm(&self, usable: u64, used: u64, provisioned: u64) -> Option<AlarmView> {
        let todo = "Delete or deallocate data, or add drives";
        if self.rooms.hosts().is_full() {
            let what = "no space is left: writes to new blocks are refused";
            return Some(AlarmView::critical(AlarmCode::Full, what, todo));
        }
        let share = used * 100 / usable.max(1);
        let step = SPACE_STEPS.into_iter().find(|step| share >= *step).filter(|_| provisioned > usable)?;
        let what = format!(
            "{share} % of usable space is used (alarm at {step} %), and the volumes promise more than the array holds"
        );
        Some(AlarmView::warning(AlarmCode::SpaceLow, what, todo))
    }
}

/// "1 drive", "2 drives".
fn drives(n: usize) -> String {
    if n == 1 { "1 drive".to_owned() } else { format!("{n} drives") }
}
