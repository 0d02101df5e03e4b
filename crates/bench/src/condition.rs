//! What state a subject is in when it is measured: how full and how old, which drives it has left, on how many cores.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use api::ArrayState;
use array::{Rate, Whole};
use base::{BLOCK_BYTES, MemberId};
use rt::Rt;
use serde::{Serialize, Serializer};

use crate::error::{Error, Impossible};
use crate::figures::Sample;
use crate::generate::generate;
use crate::load::{Load, Pattern, Until};
use crate::report::Per;
use crate::target::Target;
use crate::team::CORES_MAX;

/// How much is written before anything is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The working set, once and in order: nothing is to be cleaned.
    Fresh,
    /// So many hundredths of what volumes may fill, then overwritten at random until the rate is steady. Direct drives are
    /// written wholly.
    Usable(u8),
}

impl FromStr for Fill {
    type Err = Impossible;

    fn from_str(text: &str) -> Result<Fill, Impossible> {
        let percent = text.strip_suffix('%').unwrap_or(text);
        match percent.parse() {
            _ if text == "fresh" => Ok(Fill::Fresh),
            Ok(percent @ 1..=100) => Ok(Fill::Usable(percent)),
            _ => Err(Impossible::Fill(text.to_owned())),
        }
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fill::Fresh => f.write_str("fresh"),
            Fill::Usable(percent) => write!(f, "{percent} % of usable, steady"),
        }
    }
}

impl Serialize for Fill {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Which drives an array has left. Direct drives are always whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All of them.
    Optimal,
    /// A drive is out, and the rebuild waits.
    Degraded,
    /// A drive is out, and what was on it is rebuilt to the others, at this rate.
    Rebuilding(Rate),
}

impl FromStr for State {
    type Err = Impossible;

    fn from_str(text: &str) -> Result<State, Impossible> {
        let (word, rate) = text.split_once('-').unwrap_or((text, "medium"));
        match (word, rate) {
            _ if text == "optimal" => Ok(State::Optimal),
            _ if text == "degraded" => Ok(State::Degraded),
            ("rebuilding", "low") => Ok(State::Rebuilding(Rate::Low)),
            ("rebuilding", "medium") => Ok(State::Rebuilding(Rate::Medium)),
            ("rebuilding", "high") => Ok(State::Rebuilding(Rate::High)),
            _ => Err(Impossible::State(text.to_owned())),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Optimal => f.write_str("optimal"),
            State::Degraded => f.write_str("degraded"),
            State::Rebuilding(Rate::Low) => f.write_str("rebuilding-low"),
            State::Rebuilding(Rate::Medium) => f.write_str("rebuilding-medium"),
            State::Rebuilding(Rate::High) => f.write_str("rebuilding-high"),
            State::Rebuilding(Rate::Bytes(n)) => write!(f, "rebuilding at {n} bytes a second"),
        }
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Numbers of cores to measure on, one after the other, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreCounts(pub Vec<usize>);

/// "2", "1,2", or "1..4", which has the 4.
impl FromStr for CoreCounts {
    type Err = Impossible;

    fn from_str(text: &str) -> Result<CoreCounts, Impossible> {
        let wrong = || Impossible::Cores(text.to_owned());
        let count = |text: &str| text.parse().ok().filter(|count| (1..=CORES_MAX).contains(count)).ok_or_else(wrong);
        let mut counts = vec![];
        for piece in text.split(',') {
            let (first, last) = piece.split_once("..").unwrap_or((piece, piece));
            let (first, last) = (count(first)?, count(last)?);
            if first > last {
                return Err(wrong());
            }
            counts.extend((first..=last).filter(|count| !counts.contains(count)).collect::<Vec<_>>());
        }
        Ok(CoreCounts(counts))
    }
}

/// All of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// What it holds.
    pub fill: Fill,
    /// Its drives.
    pub state: State,
    /// Cores that generate the load; an array has as many parts.
    pub cores: usize,
}

impl Default for Condition {
    fn default() -> Condition {
        Condition { fill: Fill::Fresh, state: State::Optimal, cores: 1 }
    }
}

impl Condition {
    /// Whether nothing but the number of cores may differ.
    #[must_use]
    pub fn is_same_but_for_cores(&self, other: &Condition) -> bool {
        (self.fill, self.state) == (other.fill, other.state)
    }
}

/// As a heading has it; nothing for a fresh and whole array on one core.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fill != Fill::Fresh {
            write!(f, ", {}", self.fill)?;
        }
        if self.state != State::Optimal {
            write!(f, ", {}", self.state)?;
        }
        if self.cores != 1 {
            write!(f, ", {} cores", self.cores)?;
        }
        Ok(())
    }
}

/// Overwriting goes on until the rates of so many parts in a row are near each other: those of the working set written once.
const STEADY_PARTS: usize = 4;

/// How often the working set is overwritten, at least, as the SNIA's Performance Test Specification preconditions drives: a
/// cleaner comes to rest slowly, each part hardly dearer than the one before it.
const OVERWRITTEN_MIN: f64 = 2.0;

/// How near: (largest - smallest) / mean.
const STEADY_SPREAD: f64 = 0.1;

/// A part, in bytes per byte of the working set.
const PART: f64 = 0.25;

/// Parts until it is given up: then the last rate is what there is.
const PARTS_MAX: usize = 16;

/// Overwrites the working set at random until the rate is steady; whether it came to be.
///
/// # Errors
/// As [`generate`].
pub async fn age(rt: &Rt, target: &Target, working_set: u64, seed: u64, per: Per) -> Result<bool, Error> {
    let load = Load::usual(Pattern::RANDOM_WRITE);
    let part = Until::Requests((working_set as f64 * PART) as u64 / BLOCK_BYTES as u64);
    let mut rates: Vec<f64> = Vec::new();
    while rates.len() < PARTS_MAX {
        let sample: Sample = generate(rt, target, &load, 0..working_set, part, seed + rates.len() as u64).await?;
        rates.push(sample.rate(per));
        if is_steady(&rates) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_steady(rates: &[f64]) -> bool {
    let Some(last) = rates.len().checked_sub(STEADY_PARTS).map(|from| &rates[from..]) else { return false };
    let (least, most) = last.iter().fold((f64::MAX, f64::MIN), |(l, m), &r| (l.min(r), m.max(r)));
    rates.len() as f64 * PART >= OVERWRITTEN_MIN
        && (most - least) / (last.iter().sum::<f64>() / last.len() as f64) <= STEADY_SPREAD
}

/// How long a rebuild may take to begin.
const REBUILD_BEGINS: Duration = Duration::from_secs(2);

/// Brings a filled array into a state.
///
/// # Errors
/// When the array cannot do without the drive, or has no place to rebuild to.
pub async fn bring_into(rt: &Rt, array: &Whole, state: State) -> Result<(), Error> {
    let rate = match state {
        State::Optimal => return Ok(()),
        State::Degraded => None,
        State::Rebuilding(rate) => Some(rate),
    };
    array.rebuild_pause(rate.is_none()).await?;
    if let Some(rate) = rate {
        array.rebuild_rate(rate).await?;
    }
    array.drive_fail(MemberId(0)).await?;
    let until = rt.now() + REBUILD_BEGINS;
    while rate.is_some() && !is_rebuilding(array).await? {
        if rt.now() > until {
            return Err(Impossible::NoPlace.into());
        }
        rt.sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Whether a rebuild is under way, in all parts.
///
/// # Errors
/// When the core of a part has ended.
pub async fn is_rebuilding(array: &Whole) -> Result<bool, Error> {
    Ok(array.states().await?.iter().all(|state| *state == ArrayState::Rebuilding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_parse() {
        for (text, fill) in [("fresh", Fill::Fresh), ("80", Fill::Usable(80)), ("5%", Fill::Usable(5))] {
            assert_eq!(text.parse(), Ok(fill));
        }
        for text in ["", "0", "101", "full", "-1"] {
            assert!(text.parse::<Fill>().is_err(), "{text}");
        }
        for text in ["optimal", "degraded", "rebuilding-low", "rebuilding-medium", "rebuilding-high"] {
            assert_eq!(text.parse::<State>().map(|s| s.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("rebuilding".parse(), Ok(State::Rebuilding(Rate::Medium)));
        for text in ["broken", "optimal-low", "rebuilding-9", ""] {
            assert!(text.parse::<State>().is_err(), "{text}");
        }
    }

    #[test]
    fn steady_is_what_was_written_twice_and_stays() {
        assert!(!is_steady(&[1.0; 7]), "not written twice");
        assert!(is_steady(&[1.0; 8]));
        assert!(is_steady(&[9.0, 9.0, 9.0, 9.0, 1.0, 1.05, 1.0, 1.0]), "what was before the last pass does not count");
        let falling: Vec<f64> = (0..12).map(|i| 1.0 - 0.04 * f64::from(i)).collect();
        assert!(!is_steady(&falling));
        assert!(is_steady(&[falling, vec![0.56, 0.55, 0.55]].concat()));
    }

    #[test]
    fn numbers_of_cores_parse() {
        for (text, counts) in
            [("1", vec![1]), ("1,2", vec![1, 2]), ("1..4", vec![1, 2, 3, 4]), ("2,1..3", vec![2, 1, 3])]
        {
            assert_eq!(text.parse(), Ok(CoreCounts(counts)), "{text}");
        }
        for text in ["", "0", "6", "x", "1,", "3..1", "1..", "0..2", "1..2..3", "-1"] {
            assert_eq!(text.parse::<CoreCounts>(), Err(Impossible::Cores(text.to_owned())));
        }
        let two = Condition { cores: 2, ..Condition::default() };
        assert_eq!((Condition::default().to_string(), two.to_string()), (String::new(), ", 2 cores".to_owned()));
    }
}
