//! How bad it is, in one sentence, and what to do about each alarm.

use std::time::Duration;

use api::{Acknowledgement, AlarmView, ArrayState, ArrayView, ExposureView, Severity};

use super::{duration, percent};

/// "degraded: 1 of 5 drives failed (seat 2); no further drive may fail".
pub fn state_sentence(a: &ArrayView) -> String {
    let e = &a.exposure;
    match a.state {
        ArrayState::Optimal if e.tolerates == 0 => {
            "optimal: no redundancy, the failure of any drive loses data".to_owned()
        }
        ArrayState::Optimal => format!("optimal: any {} may fail", drives(e.may_fail)),
        ArrayState::Rebuilt => {
            let place =
                if e.rebuild_place { "" } else { ", but that loss cannot be rebuilt until a drive is replaced" };
            format!("rebuilt: full redundancy again without {}; any {} may fail{place}", out(e), drives(e.may_fail))
        }
        ArrayState::Degraded => format!("degraded: {}; {}", gone(a), may_still_fail(e)),
        ArrayState::Rebuilding => format!("rebuilding{}; until then {}", progress(a), may_still_fail(e)),
        ArrayState::Frozen => {
            let tolerated = format!("{} tolerates {}", a.level, e.tolerates);
            format!(
                "FROZEN: {}, {tolerated}; writes fail, and reads fail where redundancy does not cover the loss",
                gone(a)
            )
        }
        ArrayState::ReadOnly if e.tolerates == 0 => "read-only".to_owned(),
        ArrayState::ReadOnly if e.may_fail == e.tolerates => format!("read-only: any {} may fail", drives(e.may_fail)),
        ArrayState::ReadOnly => format!("read-only: {}", may_still_fail(e)),
        ArrayState::Closed => "closed".to_owned(),
    }
}

/// "Replace drive d/2 (seat 2): `ashlar drive replace fast 2 NEW`".
pub fn alarm_line(array: &ArrayView, alarm: &AlarmView) -> String {
    let todo = command(array, alarm).map_or_else(|| alarm.todo.clone(), |cmd| format!("{}: `{cmd}`", alarm.todo));
    let seen_to = alarm.acknowledged.as_ref().map(|by| format!(" ({})", acknowledged(by))).unwrap_or_default();
    format!("{}. {todo}{seen_to}", capital(&alarm.what))
}

/// "acknowledged by root (uid 0), 2026-11-27 21:00:00: a new drive comes on Monday".
pub fn acknowledged(by: &Acknowledgement) -> String {
    let note = if by.note.is_empty() { String::new() } else { format!(": {}", by.note) };
    format!("acknowledged by {}, {}{note}", by.who, base::utc(by.unix_seconds))
}

/// The command that does what an alarm asks for.
fn command(array: &ArrayView, alarm: &AlarmView) -> Option<String> {
    let name = &array.name;
    match (alarm.code.as_str(), alarm.seat) {
        ("drive_failed" | "drive_missing" | "drive_suspect", Some(seat)) => {
            Some(format!("ashlar drive replace {name} {seat} NEW-DRIVE"))
        }
        ("rebuild_paused", _) => Some(format!("ashlar rebuild {name} resume")),
        ("scrub_overdue", _) => Some(format!("ashlar scrub start {name}")),
        (_, _) => None,
    }
}

/// The word before an alarm.
pub const fn alarm_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "WARNING",
        Severity::Critical => "CRITICAL",
    }
}

/// ", 6 % done, 4 min left".
fn progress(a: &ArrayView) -> String {
    let Some(r) = &a.rebuild else { return String::new() };
    let left = r.eta_seconds.map(|s| format!(", {} left", duration(Duration::from_secs(s))));
    format!(", {} done{}", percent(r.bytes_moved, r.bytes_total), left.unwrap_or_default())
}

/// "2 of 8 drives failed (seats 2, 3), 1 is missing (seat 4)".
fn gone(a: &ArrayView) -> String {
    let e = &a.exposure;
    let all = a.members.iter().filter(|m| m.state != api::SeatState::Spare).count();
    let parts = [("failed", &e.failed), ("missing", &e.missing)].into_iter().filter(|(_, seats)| !seats.is_empty());
    let parts: Vec<String> =
        parts.map(|(word, list)| format!("{} of {all} drives {word} ({})", list.len(), seats(list))).collect();
    if parts.is_empty() { "redundancy is reduced".to_owned() } else { parts.join(", ") }
}

/// "1 failed drive (seat 2)".
fn out(e: &ExposureView) -> String {
    let parts = [("failed", &e.failed), ("missing", &e.missing)].into_iter().filter(|(_, seats)| !seats.is_empty());
    let words: Vec<String> = parts
        .map(|(word, list)| {
            let noun = if list.len() == 1 { "drive" } else { "drives" };
            format!("{} {word} {noun} ({})", list.len(), seats(list))
        })
        .collect();
    words.join(" and ")
}

fn may_still_fail(e: &ExposureView) -> String {
    match e.may_fail {
        0 => "no further drive may fail".to_owned(),
        1 => "1 more drive may fail".to_owned(),
        n => format!("{n} more drives may fail"),
    }
}

fn drives(n: usize) -> String {
    if n == 1 { "1 drive".to_owned() } else { format!("{n} drives") }
}

fn seats(list: &[u16]) -> String {
    let word = if list.len() == 1 { "seat" } else { "seats" };
    let all: Vec<String> = list.iter().map(ToString::to_string).collect();
    format!("{word} {}", all.join(", "))
}

/// With a capital letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use api::{MemberView, RebuildView};

    use super::*;

    #[test]
    fn each_state_says_what_may_fail() {
        let members = vec![MemberView::default(); 5];
        let array = |state, may_fail, failed: &[u16]| ArrayView {
            name: "fast".into(),
            level: "RAID 5".into(),
            state,
            members: members.clone(),
            exposure: ExposureView { may_fail, tolerates: 1, failed: failed.to_vec(), ..ExposureView::default() },
            ..ArrayView::default()
        };
        let said = |a: &ArrayView| state_sentence(a);
        assert_eq!(said(&array(ArrayState::Optimal, 1, &[])), "optimal: any 1 drive may fail");
        assert_eq!(
            said(&array(ArrayState::Degraded, 0, &[2])),
            "degraded: 1 of 5 drives failed (seat 2); no further drive may fail"
        );
        let rebuilt = array(ArrayState::Rebuilt, 1, &[2, 3]);
        let place = ", but that loss cannot be rebuilt until a drive is replaced";
        let words = "rebuilt: full redundancy again without 2 failed drives (seats 2, 3); any 1 drive may fail";
        assert_eq!(said(&rebuilt), format!("{words}{place}"));
        let mut rebuilding = array(ArrayState::Rebuilding, 0, &[2]);
        let run = RebuildView { bytes_moved: 6, bytes_total: 100, eta_seconds: Some(240), ..RebuildView::default() };
        rebuilding.rebuild = Some(run);
        assert_eq!(said(&rebuilding), "rebuilding, 6 % done, 4 min 00 s left; until then no further drive may fail");
        let alarm = AlarmView {
            code: "drive_failed".into(),
            seat: Some(2),
            what: "drive d/2 (seat 2) failed".into(),
            todo: "Replace it".into(),
            ..AlarmView::default()
        };
        let line = "Drive d/2 (seat 2) failed. Replace it: `ashlar drive replace fast 2 NEW-DRIVE`";
        assert_eq!(alarm_line(&rebuilding, &alarm), line);
    }
}
