//! What simulating takes: CPU seconds that were planned and that were spent, and requests simulated in them.
//!
//! It is of this machine and of this moment, so it is beside the figures of a model, never among them.

use std::fs;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::units;

/// Of all steps so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// CPU seconds that the plan gave these steps.
    pub planned_cpu_seconds: f64,
    /// CPU seconds that they took.
    pub cpu_seconds: f64,
    /// Requests simulated in them. 0: drives of the bench, whose requests of fills are not counted.
    pub requests: u64,
}

impl Spent {
    /// With another step.
    #[must_use]
    pub fn with(self, step: Spent) -> Spent {
        Spent {
            planned_cpu_seconds: self.planned_cpu_seconds + step.planned_cpu_seconds,
            cpu_seconds: self.cpu_seconds + step.cpu_seconds,
            requests: self.requests + step.requests,
        }
    }

    /// Requests simulated in a second of CPU.
    #[must_use]
    pub fn requests_per_cpu_second(&self) -> Option<f64> {
        (self.requests > 0 && self.cpu_seconds > 0.0).then(|| self.requests as f64 / self.cpu_seconds)
    }

    /// Seconds that were spent, to those planned.
    #[must_use]
    pub fn to_plan(&self) -> Option<f64> {
        (self.planned_cpu_seconds > 0.0).then(|| self.cpu_seconds / self.planned_cpu_seconds)
    }

    /// "Simulated 12.4 M I/Os in 10.1 s of CPU: 1.23 M each CPU second; planned 9.8 s (x 1.03)".
    #[must_use]
    pub fn words(&self) -> String {
        let mut text = match self.requests_per_cpu_second() {
            Some(rate) => format!(
                "Simulated {} I/Os in {:.1} s of CPU: {} each CPU second",
                units::si(self.requests as f64),
                self.cpu_seconds,
                units::si(rate)
            ),
            None => format!("Simulated in {:.1} s of CPU", self.cpu_seconds),
        };
        if let Some(times) = self.to_plan() {
            text.push_str(&format!("; planned {:.1} s (x {times:.2})", self.planned_cpu_seconds));
        }
        text
    }
}

/// CPU time of this thread so far, in seconds.
#[must_use]
pub fn thread_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU time of programs that this one started and that have ended, in seconds, to a hundredth.
#[must_use]
pub fn children_cpu_seconds() -> f64 {
    children(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or(0.0)
}

/// Ticks of a second in /proc, which Linux has kept at 100 for programs on all machines that this one runs on.
const USER_HZ: f64 = 100.0;

/// From /proc/PID/stat, proc(5): `cutime` and `cstime`, in ticks.
fn children(stat: &str) -> Option<f64> {
    // The name of a program may hold anything; the state follows the last bracket, and is the third field.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut ticks = rest.split_whitespace().skip(13).map(str::parse::<u64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((user + system) as f64 / USER_HZ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_to_a_rate_and_a_factor() {
        let step = Spent { planned_cpu_seconds: 2.0, cpu_seconds: 2.5, requests: 4_000_000 };
        let both = step.with(step);
        assert_eq!((both.requests_per_cpu_second(), both.to_plan()), (Some(1.6e6), Some(1.25)));
        assert_eq!(
            both.words(),
            "Simulated 8.00 M I/Os in 5.0 s of CPU: 1.60 M each CPU second; planned 4.0 s (x 1.25)"
        );
        assert_eq!(Spent::default().words(), "Simulated in 0.0 s of CPU");
    }

    #[test]
    fn ticks_of_children_are_read_past_any_name() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 0 1 2 3 4 50 60 200 100 20 0 1";
        assert_eq!(children(stat), Some(300.0 / USER_HZ));
        assert_eq!(children(""), None);
    }
}
