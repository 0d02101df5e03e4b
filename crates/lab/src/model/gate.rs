//! Gates: what was checked of a number, and how it came out.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a check came out; ordered by how bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// It holds.
    Pass,
    /// It cannot be shown, or holds in part: read the reason before the number.
    Warn,
    /// The number is a model's: nothing was measured.
    Model,
    /// It does not hold: the number says something else than its name.
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Pass => "PASS",
            Verdict::Warn => "WARN",
            Verdict::Model => "MODEL",
            Verdict::Fail => "FAIL",
        })
    }
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// It was measured for as long as was asked.
    Duration,
    /// The range that was read had been written.
    Written,
    /// The page cache was left out, or was meant.
    Cache,
    /// The range is larger than caches behind the host.
    Range,
    /// The rate was steady.
    Steady,
    /// No request failed or fell short.
    Errors,
    /// Rate x latency is the number of requests in flight (Little's law).
    Little,
    /// Rate x block size is the bandwidth.
    Bandwidth,
    /// The link was not the limit.
    Link,
    /// The host's CPUs were not the limit.
    Host,
    /// The rate that was asked for was reached.
    Achieved,
    /// All hosts made their share of it, at the same time, on the same target.
    Hosts,
    /// Targets under one load do what each does alone, added.
    Scaling,
    /// The device was the same at the beginning and at the end.
    Identity,
    /// What was written cannot be compressed, unless stated.
    Data,
    /// Nobody else used the machine.
    Noise,
    /// The device was not hot.
    Heat,
    /// The array was in the state that is named.
    State,
    /// What is needed to repeat it is told.
    Disclosure,
    /// The number is a model's.
    Model,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Check::Duration => "duration",
            Check::Written => "written",
            Check::Cache => "cache",
            Check::Range => "range",
            Check::Steady => "steady",
            Check::Errors => "errors",
            Check::Little => "Little",
            Check::Bandwidth => "bandwidth",
            Check::Link => "link",
            Check::Host => "host",
            Check::Achieved => "achieved",
            Check::Hosts => "hosts",
            Check::Scaling => "scaling",
            Check::Identity => "identity",
            Check::Data => "data",
            Check::Noise => "noise",
            Check::Heat => "heat",
            Check::State => "state",
            Check::Disclosure => "disclosure",
            Check::Model => "model",
        })
    }
}

/// One check of one number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// What was checked.
    pub check: Check,
    /// How it came out.
    pub verdict: Verdict,
    /// Why, with the numbers.
    pub reason: String,
}

impl Gate {
    /// It holds.
    pub fn pass(check: Check, reason: impl Into<String>) -> Gate {
        Gate { check, verdict: Verdict::Pass, reason: reason.into() }
    }

    /// It cannot be shown, or holds in part.
    pub fn warn(check: Check, reason: impl Into<String>) -> Gate {
        Gate { check, verdict: Verdict::Warn, reason: reason.into() }
    }

    /// It does not hold.
    pub fn fail(check: Check, reason: impl Into<String>) -> Gate {
        Gate { check, verdict: Verdict::Fail, reason: reason.into() }
    }

    /// The figure is a model's, so it has no verdict of a measurement.
    pub fn model(reason: impl Into<String>) -> Gate {
        Gate { check: Check::Model, verdict: Verdict::Model, reason: reason.into() }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.verdict, self.check, self.reason)
    }
}

/// The worst of `gates`; what was never checked is no pass.
pub fn worst(gates: &[Gate]) -> Verdict {
    gates.iter().map(|g| g.verdict).max().unwrap_or(Verdict::Warn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts_and_nothing_checked_is_no_pass() {
        assert_eq!(worst(&[]), Verdict::Warn);
        let gates = [Gate::pass(Check::Errors, ""), Gate::fail(Check::Written, ""), Gate::warn(Check::Noise, "")];
        assert_eq!(worst(&gates), Verdict::Fail);
        assert_eq!(worst(&gates[..1]), Verdict::Pass);
    }
}
