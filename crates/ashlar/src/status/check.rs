//! `ashlar status --check`: one line and an exit code for monitoring.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use api::{ArrayState, ArrayView, Arrays, Problem, Severity};

use crate::context::Context;
use crate::exit::{Finding, Health};
use crate::text;

/// Monitoring waits no longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks, and says what was found.
pub fn run(context: &Context, array: Option<&str>, json: bool) -> Finding {
    let health = match within_time(context, array) {
        Ok(arrays) => {
            let health = of_all(&arrays);
            if json {
                text::print_json(&arrays);
            } else {
                text::print(&line(health, &arrays));
            }
            health
        }
        Err(problem) => {
            text::print(&format!("{}: {}", Health::Unknown.word(), problem.line()));
            Health::Unknown
        }
    };
    Finding::Health(health)
}

/// What `status` finds, or that it did not within [`PATIENCE`]. Who asked is left behind then, and ends with the process.
fn within_time(context: &Context, array: Option<&str>) -> Result<Arrays, Problem> {
    let (answer, wait) = channel();
    let (context, array) = (context.clone(), array.map(str::to_owned));
    thread::spawn(move || _ = answer.send(super::fetch(&context, array.as_deref())));
    wait.recv_timeout(PATIENCE).unwrap_or_else(|e| {
        let why = match e {
            RecvTimeoutError::Timeout => format!("no answer within {} s", PATIENCE.as_secs()),
            RecvTimeoutError::Disconnected => "the connection ended without an answer".to_owned(),
        };
        Err(Problem::failed("ashlar status", why, "check that the server runs and its drives answer"))
    })
}

/// The worst of all.
fn of_all(all: &Arrays) -> Health {
    let absent = all.absent.iter().map(|_| Health::Critical);
    let server = all.alarms.iter().map(|alarm| of(alarm.severity));
    all.arrays.iter().map(of_array).chain(absent).chain(server).max().unwrap_or(Health::Good)
}

fn of_array(a: &ArrayView) -> Health {
    let state = match a.state {
        ArrayState::Optimal | ArrayState::ReadOnly => Health::Good,
        ArrayState::Rebuilt | ArrayState::Degraded | ArrayState::Rebuilding => Health::Warning,
        ArrayState::Frozen | ArrayState::Closed => Health::Critical,
    };
    a.alarms.iter().map(|alarm| of(alarm.severity)).chain([state]).max().unwrap_or(state)
}

const fn of(severity: Severity) -> Health {
    match severity {
        Severity::Warning => Health::Warning,
        Severity::Critical => Health::Critical,
    }
}

/// "CRITICAL: fast: no further drive may fail; fast: drive d/2 (seat 2) failed".
fn line(health: Health, all: &Arrays) -> String {
    let mut found: Vec<String> = Vec::new();
    for a in &all.arrays {
        let alarms = a.alarms.iter().map(|alarm| format!("{}: {}", a.name, alarm.what));
        found.extend(alarms);
        if a.alarms.is_empty() && of_array(a) != Health::Good {
            found.push(format!("{}: {}", a.name, text::state_word(a.state)));
        }
    }
    found.extend(all.absent.iter().map(|absent| format!("{}: absent: {}", absent.name, absent.problem.why)));
    found.extend(all.alarms.iter().map(|alarm| alarm.what.clone()));
    if found.is_empty() {
        found.push(match all.arrays.len() {
            0 => "no arrays".to_owned(),
            1 => format!("{}: {}", all.arrays[0].name, text::state_sentence(&all.arrays[0])),
            n => format!("{n} arrays are OK"),
        });
    }
    format!("{}: {}", health.word(), found.join("; "))
}

#[cfg(test)]
mod tests {
    use api::AlarmView;

    use super::*;

    #[test]
    fn every_alarm_counts() {
        let alarm = |severity| AlarmView { severity, what: "something".into(), ..AlarmView::default() };
        let array = |state, alarms: &[Severity]| ArrayView {
            name: "fast".into(),
            state,
            alarms: alarms.iter().map(|s| alarm(*s)).collect(),
            ..ArrayView::default()
        };
        let all = |a: ArrayView| Arrays { arrays: vec![a], ..Arrays::default() };
        let health = |state, alarms: &[Severity]| of_all(&all(array(state, alarms)));
        assert_eq!(health(ArrayState::Optimal, &[]), Health::Good);
        assert_eq!(health(ArrayState::Optimal, &[Severity::Warning]), Health::Warning);
        assert_eq!(health(ArrayState::Optimal, &[Severity::Warning, Severity::Critical]), Health::Critical);
        assert_eq!(health(ArrayState::Rebuilt, &[]), Health::Warning);
        assert_eq!(health(ArrayState::Frozen, &[]), Health::Critical);
        let server = Arrays { alarms: vec![alarm(Severity::Warning)], ..all(array(ArrayState::Optimal, &[])) };
        assert_eq!((of_all(&server), line(Health::Warning, &server)), (Health::Warning, "WARNING: something".into()));
        assert_eq!(line(Health::Good, &Arrays::default()), "OK: no arrays");
    }
}
