//! A prediction: the answer, a range from the errors of the model so far, what limits it, and what else could be built.

use predict::{
    Answer, Card, Engine, Level, Life, Limits, Load, Pressure, Rung, Swing, System, answer, fresh_twin, ladder, life,
    sensitivity, usable_bytes,
};
use serde::Serialize;

use crate::calibrate::{class_of, ratios};
use crate::error::Error;

/// What is predicted of a system.
#[derive(Clone, Debug, Serialize)]
pub struct Forecast {
    /// The system.
    pub system: System,
    /// The answer.
    pub answer: Answer,
    /// Requests a second: what published figures were to the model's, for loads of this class.
    pub iops_range: (f64, f64),
    /// Held-out rows of this class that the range rests on; 0: none is near, so all systems' rows of this kind of load.
    pub range_rests_on: usize,
    /// Each part made infinite in turn, the largest gain first.
    pub ladder: Vec<Rung>,
    /// Each figure of the drive and of the CPUs a fifth smaller and larger, the largest change first.
    pub sensitivity: Vec<Swing>,
    /// The optimistic twin: just filled, spare room still free.
    pub fresh: Answer,
    /// Drive life at the daily writes that were given.
    pub life: Option<Life>,
    /// Bytes that volumes may have.
    pub usable_bytes: f64,
    /// The same drives in other layouts: title, requests a second, p99 in us, usable bytes.
    pub rivals: Vec<Rival>,
    /// Requests simulated for all of it.
    pub requests: u64,
}

/// Another layout of the same drives.
#[derive(Clone, Debug, Serialize)]
pub struct Rival {
    /// What it is.
    pub title: String,
    /// What it does.
    pub iops: f64,
    /// Its p99.
    pub p99_us: f64,
    /// Bytes that drives are given for a byte of hosts.
    pub drive_bytes_per_byte: f64,
    /// Bytes that volumes may have.
    pub usable_bytes: f64,
    /// Years at the daily writes that were given.
    pub years: Option<f64>,
}

/// Predicts.
///
/// # Errors
/// When the system cannot be.
pub fn forecast(system: &System, load: &Load, writes_per_day: Option<f64>, seed: u64) -> Result<Forecast, Error> {
    let wrong = |e: predict::Error| Error::usage(system.title(), e);
    let found = answer(system, load, &Limits::default(), seed, None).map_err(wrong)?;
    let (low, high, rests_on) = ratios(&class_of(system, load))?;
    let few = Limits { known_within: 0.02, requests_max: 800_000, ..Limits::default() };
    let (mut rivals, mut requests) = (vec![], found.requests);
    for other in others(system).map_err(wrong)? {
        let a = answer(&other, load, &few, seed, None).map_err(wrong)?;
        requests += a.requests;
        let years = writes_per_day.map(|w| life(&other, &a, w)).transpose().map_err(wrong)?.flatten().map(|l| l.years);
        rivals.push(Rival {
            title: other.title(),
            iops: a.iops,
            p99_us: a.p99_us,
            drive_bytes_per_byte: a.drive_bytes_per_byte,
            usable_bytes: usable_bytes(&other).map_err(wrong)?,
            years,
        });
    }
    rivals.sort_by(|a, b| b.iops.total_cmp(&a.iops));
    let ladder = ladder(system, load, &found, seed).map_err(wrong)?;
    let sensitivity = sensitivity(system, load, seed).map_err(wrong)?;
    let fresh = answer(system, &fresh_twin(load), &few, seed, None).map_err(wrong)?;
    requests += ladder.iter().map(|r| r.requests).chain(sensitivity.iter().map(|s| s.requests)).sum::<u64>();
    let fixed = matches!(load.pressure, Pressure::Rate(_));
    Ok(Forecast {
        iops_range: if fixed { (found.iops, found.iops) } else { (found.iops * low, found.iops * high) },
        range_rests_on: rests_on,
        ladder,
        sensitivity,
        requests: requests + fresh.requests,
        fresh,
        life: writes_per_day.map(|w| life(system, &found, w)).transpose().map_err(wrong)?.flatten(),
        usable_bytes: usable_bytes(system).map_err(wrong)?,
        rivals,
        system: system.clone(),
        answer: found,
    })
}

/// The same drives without redundancy, in place, behind cards, and as Ashlar at other levels.
fn others(system: &System) -> Result<Vec<System>, predict::Error> {
    let level = if system.level == Level::Jbod { Level::Raid6 } else { system.level };
    let card = System::named("r760-perc12")?.card.map(|c| Card { count: system.count.div_ceil(8), ..c });
    let mut all = vec![];
    for (engine, level) in [
        (Engine::Direct, Level::Jbod),
        (Engine::InPlace, level),
        (Engine::Card, level),
        (Engine::Ashlar, Level::Raid10),
        (Engine::Ashlar, Level::Raid5),
        (Engine::Ashlar, Level::Raid6),
    ] {
        let card = if engine == Engine::Card { system.card.clone().or_else(|| card.clone()) } else { None };
        let other = System { engine, level, card, ..system.clone() };
        if other.check().is_ok() && (engine, level) != (system.engine, system.level) {
            all.push(other);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_has_a_range_around_it_and_a_limit() {
        let mut system = System::named("r760-direct").expect("it is there");
        (system.engine, system.level) = (Engine::Ashlar, Level::Raid6);
        let load = Load { fill: 0.8, slice: 0.8, ..Load::new("4k-randwrite".parse().expect("a workload")) };
        let f = forecast(&system, &load, Some(8e12), 1).expect("it can be");
        assert!(f.iops_range.0 < f.answer.iops && f.answer.iops < f.iops_range.1);
        assert_eq!(f.range_rests_on, 0, "nothing published is of Ashlar");
        assert!(f.requests > f.answer.requests + f.fresh.requests, "{}", f.requests);
        let limits = f.ladder.iter().map(|rung| rung.without).collect::<Vec<_>>();
        assert!(limits.contains(&predict::Part::Flash) && limits.contains(&predict::Part::Cpu), "{limits:?}");
        assert!(f.sensitivity.len() > 8 && f.sensitivity[0].most() > 0.05, "{:?}", f.sensitivity);
        assert!(f.ladder[0].gain >= f.ladder[1].gain && f.ladder[0].gain > 1.02, "{:?}", f.ladder);
        assert!(f.fresh.iops > f.answer.iops && f.rivals.len() == 5, "{:?}", f.rivals);
        assert!(f.life.is_some_and(|l| l.years > 1.0) && f.usable_bytes > 30e12);
    }
}
