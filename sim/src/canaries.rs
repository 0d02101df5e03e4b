//! Planted bugs: each is planted in the seeds that come to its place in the engine, until one notices it.
//!
//! ```text
//! seeds without a bug -> which bugs' places each comes to -> for each bug, each of these with it, in a process of its own
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use array::canary::{Canary, take_reached};
use sim::parts::{self, PART_NOT_FLUSHED};

use crate::seeds::Seeds;
use crate::{PARTS, PLAIN, SEED, Subject, abort_on_panic, child};

/// A seed with a planted bug takes a second; on a busy machine a few more.
const SEED_ENDS: Duration = Duration::from_secs(60);
/// Seeds that were ended, after which a bug is given up: it may make all of them wait for ever.
const ENDED_MAX: usize = 5;

/// What became of a planted bug.
enum Outcome {
    /// What the seed said that noticed it.
    Noticed(String),
    /// Seeds came to its place, and passed.
    Missed,
    /// No seed came to its place.
    Unreached,
    /// None noticed it, and one was ended before it said anything: of the bug nothing is known.
    Undecided,
}

/// The seeds of a kind of array, and the places that each came to.
struct Survey {
    subject: Subject,
    seeds: Seeds,
    reached: Vec<(u64, Vec<Canary>)>,
}

impl Survey {
    /// Runs the seeds as they are. An error when one fails: nothing can be said of a bug then.
    fn of(subject: Subject, seeds: &Seeds, jobs: usize) -> Result<Self, String> {
        let (left, found) = (Mutex::new(seeds.iter()), Mutex::new(Vec::new()));
        let work = || {
            loop {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(seed) = next else { return Ok(()) };
                SEED.set(seed);
                let _of_the_seed_before = take_reached();
                (subject.run)(seed).map_err(|wrong| format!("seed {seed} FAILED without a planted bug: {wrong}"))?;
                found.lock().unwrap_or_else(PoisonError::into_inner).push((seed, take_reached()));
            }
        };
        std::thread::scope(|s| {
            let threads: Vec<_> = (0..jobs).map(|_| s.spawn(work)).collect();
            threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a seed panicked".to_owned())))
        })?;
        let mut reached = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        reached.sort_unstable_by_key(|(seed, _)| *seed);
        Ok(Self { subject, seeds: seeds.clone(), reached })
    }

    /// The seeds that come to a bug's place; all, of a bug that is not the engine's.
    fn seeds_for(&self, name: &str) -> Seeds {
        match Canary::ALL.iter().find(|c| format!("{c:?}") == name) {
            None => self.seeds.clone(),
            Some(bug) => self.reached.iter().filter(|(_, bugs)| bugs.contains(bug)).map(|(seed, _)| *seed).collect(),
        }
    }
}

/// Plants bugs by name, or all, one at a time: in arrays of parts where only these notice it, or where `in_parts` says so.
///
/// # Errors
/// Which bugs no seed noticed; a name that there is not.
pub fn canaries(name: &str, plain: &Seeds, in_parts: Option<&Seeds>, jobs: usize) -> Result<(), String> {
    let of_parts: Vec<String> = parts::CANARIES.iter().map(|c| format!("{c:?}")).collect();
    let own = of_parts.iter().cloned().chain([PART_NOT_FLUSHED.to_owned()]);
    let others = Canary::ALL.iter().map(|c| format!("{c:?}")).filter(|c| !of_parts.contains(c));
    let all: Vec<(String, bool)> = others.map(|c| (c, in_parts.is_some())).chain(own.map(|c| (c, true))).collect();
    let names: Vec<&str> = name.split(',').collect();
    if let Some(unknown) = names.iter().find(|n| **n != "all" && !all.iter().any(|(c, _)| c == *n)) {
        let names: Vec<&String> = all.iter().map(|(c, _)| c).collect();
        return Err(format!("no canary is called {unknown}; there are {names:?}"));
    }
    let chosen = all.iter().filter(|(c, _)| name == "all" || names.contains(&c.as_str()));
    let (mut surveys, mut failed): ([Option<Survey>; 2], _) = ([None, None], Vec::new());
    for (canary, is_of_parts) in chosen {
        let (subject, seeds) = if *is_of_parts { (PARTS, in_parts.unwrap_or(plain)) } else { (PLAIN, plain) };
        let kept = &mut surveys[usize::from(*is_of_parts)];
        if kept.is_none() {
            abort_on_panic(subject.replay, true);
            let begun = Instant::now();
            *kept = Some(Survey::of(subject, seeds, jobs)?);
            println!("{} {seeds} without a planted bug: {:.0} s", subject.range, begun.elapsed().as_secs_f64());
        }
        let Some(survey) = kept else { continue };
        let (begun, reaching) = (Instant::now(), survey.seeds_for(canary));
        let outcome = try_one(canary, survey.subject, &reaching, jobs);
        let how = match &outcome {
            Outcome::Noticed(_) => "noticed",
            Outcome::Missed => "MISSED",
            Outcome::Unreached => "UNREACHED",
            Outcome::Undecided => "UNDECIDED",
        };
        let said = if let Outcome::Noticed(said) = &outcome { said.as_str() } else { "" };
        let (reaching, seconds) = (reaching.iter().count(), begun.elapsed().as_secs_f64());
        println!("{canary:<24} {how:<9} {seconds:>6.1} s; seeds that come to it: {reaching:>3}; {said}");
        if !matches!(outcome, Outcome::Noticed(_)) {
            failed.push(format!("{canary} ({how})"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("no seed noticed {}", failed.join(", "))) }
}

/// Runs seeds with a planted bug, each in a process of its own, until one notices it: what a bug makes wait for ever may take
/// hours to end, and hides nothing of the others.
fn try_one(canary: &str, subject: Subject, seeds: &Seeds, jobs: usize) -> Outcome {
    if seeds.iter().next().is_none() {
        return Outcome::Unreached;
    }
    let (left, ended) = (Mutex::new(seeds.iter()), AtomicUsize::new(0));
    let noticed: Mutex<Option<String>> = Mutex::default();
    let work = || {
        loop {
            let is_noticed = noticed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            if is_noticed || ended.load(Ordering::Relaxed) >= ENDED_MAX {
                return;
            }
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(seed) = next else { return };
            let one = format!("{seed}..{}", seed + 1);
            match child(&["--quiet", "--shrink", "0", "--jobs", "1", subject.range, &one], Some(canary), SEED_ENDS) {
                Some((true, _)) => {}
                Some((false, said)) if said.contains("FAILED") => {
                    noticed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(said);
                }
                // It ended for another reason, or was ended.
                Some((false, _)) | None => drop(ended.fetch_add(1, Ordering::Relaxed)),
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 0..jobs {
            s.spawn(work);
        }
    });
    match noticed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(said) => Outcome::Noticed(said),
        None if ended.into_inner() > 0 => Outcome::Undecided,
        None => Outcome::Missed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use array::canary::plant;

    #[test]
    fn a_bug_whose_place_no_seed_comes_to_changes_nothing() {
        let seeds: Seeds = "0".parse().unwrap();
        let survey = Survey::of(PLAIN, &seeds, 1).unwrap();
        let is_reached = |bug: &Canary| survey.seeds_for(&format!("{bug:?}")).only().is_some();
        assert!(is_reached(&Canary::OneSlot), "each generation asks for it");
        let trace = |bug: Option<Canary>| {
            plant(bug);
            (PLAIN.run)(0).map(|report| report.trace)
        };
        let without = trace(None);
        assert!(without.is_ok());
        for bug in Canary::ALL.iter().filter(|bug| !is_reached(bug)).take(3) {
            assert_eq!(trace(Some(*bug)), without, "{bug:?}");
        }
        assert_ne!(trace(Some(Canary::OneSlot)), without);
        plant(None);
    }
}
