//! Puts alarms into the log: once when they are raised, and once when they are cleared.

use std::collections::BTreeMap;
use std::rc::Weak;
use std::time::Duration;

use api::{AlarmView, Event, EventCode, EventSeverity, Severity};

use super::data::Data;
use crate::journal::Journal;

/// How often alarms are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// The first look: what an open has to say is said at once.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// Alarms of one array that were raised and not cleared.
#[derive(Default)]
struct Raised(BTreeMap<(String, Option<u16>), AlarmView>);

/// What became of an alarm.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Raised(AlarmView),
    Cleared(AlarmView),
}

impl Raised {
    /// What is new since the last time. An alarm is the same one while its code and its seat are; it is raised again when
    /// it becomes worse.
    fn change_to(&mut self, now: Vec<AlarmView>) -> Vec<Change> {
        let now: BTreeMap<_, _> = now.into_iter().map(|a| ((a.code.clone(), a.seat), a)).collect();
        let is_new = |(key, alarm): &(&(String, Option<u16>), &AlarmView)| {
            self.0.get(*key).is_none_or(|known| known.severity < alarm.severity)
        };
        let cleared = self.0.iter().filter(|(key, _)| !now.contains_key(*key)).map(|(_, a)| Change::Cleared(a.clone()));
        let raised = now.iter().filter(is_new).map(|(_, a)| Change::Raised(a.clone()));
        let changes = cleared.chain(raised).collect();
        self.0 = now;
        changes
    }
}

/// Watches an array for as long as it is served.
pub async fn watch(data: Weak<Data>, number: u64) {
    let mut raised = Raised::default();
    let mut pause = FIRST_LOOK;
    while let Some(rt) = data.upgrade().map(|data| data.world.rt.clone()) {
        rt.sleep(pause).await;
        pause = LOOK;
        let Some(data) = data.upgrade() else { return };
        let Some(opened) = data.served_as(number) else { return };
        let view = opened.view().await;
        opened.keep_scrub(&view);
        raised.change_to(view.alarms).iter().for_each(|change| log(&data.journal, &view.name, change));
    }
}

fn log(journal: &Journal, array: &str, change: &Change) {
    let (code, severity, text) = match change {
        Change::Raised(alarm) => {
            let severity = match alarm.severity {
                Severity::Critical => EventSeverity::Error,
                Severity::Warning => EventSeverity::Warning,
            };
            (EventCode::AlarmRaised, severity, format!("alarm raised: {}", alarm.line()))
        }
        Change::Cleared(alarm) => {
            (EventCode::AlarmCleared, EventSeverity::Warning, format!("alarm cleared: {}", alarm.what))
        }
    };
    let (Change::Raised(alarm) | Change::Cleared(alarm)) = change;
    match severity {
        EventSeverity::Error => tracing::error!(array, code = alarm.code, "{text}"),
        EventSeverity::Warning | EventSeverity::Info => tracing::warn!(array, code = alarm.code, "{text}"),
    }
    let text = format!("{}: {text}", alarm.code);
    journal.tell(Event::now(code, severity, Some(array), text));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(code: &str, seat: Option<u16>, severity: Severity, what: &str) -> AlarmView {
        AlarmView { code: code.into(), severity, seat, what: what.into(), todo: String::new(), acknowledged: None }
    }

    #[test]
    fn an_alarm_is_said_once_and_again_when_it_is_worse() {
        let mut raised = Raised::default();
        let full = |percent| alarm("space_low", None, Severity::Warning, percent);
        let failed = |seat| alarm("drive_failed", Some(seat), Severity::Warning, "a drive failed");
        assert_eq!(raised.change_to(vec![full("80 %")]), [Change::Raised(full("80 %"))]);
        assert_eq!(raised.change_to(vec![full("81 %")]), []);
        let two = raised.change_to(vec![full("81 %"), failed(1), failed(2)]);
        assert_eq!(two, [Change::Raised(failed(1)), Change::Raised(failed(2))]);
        let worse = AlarmView { severity: Severity::Critical, ..failed(1) };
        assert_eq!(
            raised.change_to(vec![worse.clone()]),
            [Change::Cleared(failed(2)), Change::Cleared(full("81 %")), Change::Raised(worse)]
        );
    }
}
