//! Systems of `predict` as targets: `model:r760-perc12,raid=5,fill=80`, or `engine=ashlar` over the same drives.
//!
//! A cell is simulated in this process, in the condition that its load names: the slice, the fill of the target, steady
//! unless the target says `age=0`. It ends when its rate is known within 1 %, or after 2 virtual seconds; its note says
//! which. Its badge is MODEL.

use predict::{Answer, DriveState, Engine, Level, Limits, Load, Pressure, System, answer};

use crate::error::Error;
use crate::gates::{Seen, judge};
use crate::model::{self, Access, Cell, Check, Figures, Gate, Latency, Part, State, Subject};
use crate::plan::Step;
use crate::spent::thread_cpu_seconds;
use crate::target::{Model, Target};
use crate::written::Written;

/// What makes the load.
pub const NAME: &str = concat!("simulated, ashlar ", env!("CARGO_PKG_VERSION"));
/// The same seed for all cells: the same cell gives the same digits.
const SEED: u64 = 1;
/// Requests for which a cell is tried before its run, at most.
const TRIED_MAX: u64 = 40_000;
/// The same where these end before its buffers are full: until then a rate says little of what follows.
const TRIED_LONGER_MAX: u64 = 200_000;
/// The same where these say that the cell takes more than `TOLD_AHEAD` times as many.
const TRIED_LONGEST_MAX: u64 = 1_000_000;
const TOLD_AHEAD: f64 = 3.0;

/// The system that a model names. `None`: it names drives for the bench.
///
/// # Errors
/// When it cannot be: an unknown level, or too few drives for it.
pub fn system(model: &Model) -> Result<Option<System>, Error> {
    if !predict::SYSTEMS.iter().any(|(name, _)| *name == model.name) {
        return Ok(None);
    }
    let wrong = |e: predict::Error| Error::usage(model.name.clone(), e);
    let mut system = System::named(&model.name).map_err(wrong)?;
    if let Some(level) = &model.level {
        system.level = level.parse::<Level>().map_err(wrong)?;
    }
    system.width = model.width.map_or(system.width, |w| u32::try_from(w).unwrap_or(u32::MAX));
    match model.engine.as_deref() {
        None => {}
        Some("ashlar") => {
            (system.engine, system.card) = (Engine::Ashlar, None);
            if system.level == Level::Jbod {
                system.level = Level::Raid6;
            }
        }
        Some("in-place") => (system.engine, system.card) = (Engine::InPlace, None),
        Some(other) => {
            return Err(Error::usage(
                model.name.clone(),
                format!("unknown engine \"{other}\"; valid: ashlar, in-place"),
            ));
        }
    }
    system.check().map_err(wrong)?;
    Ok(Some(system))
}

/// What of a step a simulated system cannot do, if anything.
#[must_use]
pub fn refuses(system: &System, part: Part, load: &model::Load) -> Option<&'static str> {
    match part {
        Part::Fill | Part::Precondition => Some("a simulated system is in the condition that each load names"),
        Part::Unallocated => Some("a simulated system is filled"),
        Part::Check => Some("a simulated system keeps no data"),
        Part::Round { .. } => Some("a simulated system is steady from the beginning"),
        Part::States if system.level == Level::Jbod => Some("drives alone have no states: add raid="),
        _ if load.fsync.is_some() => Some("flushes are not modelled"),
        _ if load.cached == Some(true) => Some("the page cache is not modelled"),
        _ if load.reducible.is_some() => Some("simulated systems ignore the data"),
        _ => None,
    }
}

/// A load of the lab as one of the model.
fn load_of(model: &Model, system: &System, target_bytes: u64, load: &model::Load, asked_iops: Option<f64>) -> Load {
    let access = match load.access {
        Some(Access::Sequential) => predict::Access::Sequential,
        _ => predict::Access::Random,
    };
    let block_bytes = load.block_bytes.and_then(|b| u32::try_from(b).ok()).unwrap_or(4096);
    let workload = predict::Workload { block_bytes, access, read_percent: load.read_percent.unwrap_or(100.0) };
    let fill = f64::from(model.fill.unwrap_or(100)) / 100.0;
    let range = load.range_bytes.map(|r| r as f64 / target_bytes.max(1) as f64);
    let slice = load.slice_percent.map(|p| p / 100.0).or(range).unwrap_or(1.0);
    let in_flight = load.outstanding().unwrap_or(32.0);
    Load {
        pressure: asked_iops.map_or(Pressure::InFlightPerDrive(in_flight / f64::from(system.count)), |iops| {
            Pressure::Rate(iops.max(1.0))
        }),
        fill,
        slice: slice.min(1.0) * fill,
        age: model.age.unwrap_or(f64::INFINITY),
        ..Load::new(workload)
    }
}

/// The load with all its requests in flight, where a rate that was asked for would need more of them than there are: the
/// generator waits for one that ends.
fn all_in_flight(system: &System, step: &Step, load: &Load, found: &Answer) -> Option<Load> {
    let all = step.load.outstanding()?;
    let waits = matches!(load.pressure, Pressure::Rate(_)) && found.in_flight > all;
    waits.then(|| Load { pressure: Pressure::InFlightPerDrive(all / f64::from(system.count)), ..*load })
}

/// What a step is likely to take, and its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// CPU seconds, of all its cells.
    pub cpu_seconds: f64,
    /// Requests to simulate, of all its cells.
    pub requests: f64,
    /// Requests a second of the first.
    pub iops: f64,
}

/// What a step is likely to take on this machine: its cells are tried for a few requests.
///
/// # Errors
/// When the system cannot be.
pub fn expected(target: &Target, system: &System, step: &Step, asked_iops: Option<f64>) -> Result<Expected, Error> {
    let wrong = |e: predict::Error| Error::usage(step.id.clone(), e);
    let model = target.model()?;
    let mut sum = Expected { cpu_seconds: 0.0, requests: 0.0, iops: 0.0 };
    for (nth, state) in states(step).iter().enumerate() {
        let system = in_state(system, *state);
        let load = load_of(&model, &system, target.bytes, &step.load, asked_iops);
        let mut tried = Tried::of(&system, &load).map_err(wrong)?;
        if let Some(closed) = all_in_flight(&system, step, &load, &tried.answer) {
            let open = tried;
            tried = Tried::of(&system, &closed).map_err(wrong)?;
            tried.cpu_seconds += open.cpu_seconds;
            tried.requests += open.requests;
        }
        sum.cpu_seconds += tried.cpu_seconds;
        sum.requests += tried.requests;
        if nth == 0 {
            sum.iops = tried.answer.iops;
        }
    }
    Ok(sum)
}

/// A cell that was tried.
struct Tried {
    answer: Answer,
    /// CPU seconds and requests that the whole cell is likely to take.
    cpu_seconds: f64,
    requests: f64,
}

impl Tried {
    /// For a few requests; for more where buffers fill first, and where what is left would be long: while a rate drifts, it
    /// looks as if it took long to be known, and then the drift ends.
    fn of(system: &System, load: &Load) -> Result<Tried, predict::Error> {
        let whole = predict::requests_before(system, load, &Limits::default())?;
        let few = Limits { requests_max: TRIED_MAX, ..Limits::default() };
        let fills_first = predict::requests_before(system, load, &few)? != whole;
        let most = if fills_first { TRIED_LONGER_MAX } else { TRIED_MAX };
        let tried = Tried::within(system, load, most)?;
        if tried.requests <= TOLD_AHEAD * most as f64 {
            return Ok(tried);
        }
        Tried::within(system, load, TRIED_LONGEST_MAX)
    }

    fn within(system: &System, load: &Load, requests_max: u64) -> Result<Tried, predict::Error> {
        let whole = Limits::default();
        let few = Limits { requests_max, ..whole };
        let begun = thread_cpu_seconds();
        let tried = answer(system, load, &few, SEED, None)?;
        let took = thread_cpu_seconds() - begun;
        let begins = |limits| predict::requests_before(system, load, limits);
        let is_whole = tried.ended != predict::Ended::Requests && begins(&few)? == begins(&whole)?;
        let requests = match is_whole {
            true => tried.requests as f64,
            false => predict::requests_expected(system, load, &whole, &tried)?,
        };
        let times = (requests / tried.requests.max(1) as f64).max(1.0);
        Ok(Tried { answer: tried, cpu_seconds: took * times, requests })
    }
}

/// States that are simulated: a drive that is gone is being replaced.
pub fn states(step: &Step) -> &'static [State] {
    if step.part == Part::States { &[State::Optimal, State::Rebuilding] } else { &[State::Optimal] }
}

fn in_state(system: &System, state: State) -> System {
    let state = if state == State::Rebuilding { DriveState::Rebuilding } else { system.state };
    System { state, ..system.clone() }
}

/// A cell that was simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// It.
    pub cell: Cell,
    /// Requests simulated for it.
    pub requests: u64,
}

/// Simulates a cell in a state of the array.
///
/// # Errors
/// When the system cannot be.
pub fn cell(
    target: &Target,
    system: &System,
    step: &Step,
    state: State,
    asked_iops: Option<f64>,
) -> Result<Simulated, Error> {
    let model = target.model()?;
    let system = in_state(system, state);
    let load = load_of(&model, &system, target.bytes, &step.load, asked_iops);
    let (mut load, mut requests) = (load, 0);
    let mut simulate = |load: &Load| -> Result<Answer, predict::Error> {
        let found = answer(&system, load, &Limits::default(), SEED, None)?;
        requests += found.requests;
        Ok(found)
    };
    let wrong = |e: predict::Error| Error::usage(step.id.clone(), e);
    let mut found = simulate(&load).map_err(wrong)?;
    if let Some(closed) = all_in_flight(&system, step, &load, &found) {
        load = closed;
        found = simulate(&load).map_err(wrong)?;
    }
    let cards = system.card.as_ref().filter(|_| system.engine == Engine::Card);
    let states = step.part == Part::States;
    let ended = match found.ended {
        predict::Ended::Known => format!("ended when the rate was known within {:.1} %", found.known_within * 100.0),
        predict::Ended::Seconds => "ended after 2 virtual seconds".to_owned(),
        predict::Ended::Requests => "ended after as many requests as a cell may have".to_owned(),
    };
    let mut cell = Cell {
        id: if states { format!("{}-{state}", step.id) } else { step.id.clone() },
        test: step.test.clone(),
        part: if states { Part::Alone } else { step.part },
        source: None,
        subject: Subject {
            system: target.name.clone(),
            drives: format!("{} modelled drives {}", system.count, system.drives),
            drive_count: Some(system.count),
            level: Some(system.level.to_string().replace(' ', "")),
            controllers: cards.map(|c| format!("{}x {}", c.count, c.name)),
            controller_count: Some(cards.map_or(0, |c| c.count)),
            state,
        },
        load: model::Load { cached: None, ..step.load.clone() },
        asked_iops,
        asked_seconds: None,
        figures: Figures {
            iops: Some(found.iops),
            bytes_per_sec: Some(found.bytes_per_s),
            latency: Latency {
                mean_us: Some(found.mean_us),
                p50_us: Some(found.p50_us),
                p99_us: Some(found.p99_us),
                p999_us: Some(found.p999_us),
                ..Latency::default()
            },
            seconds: Some(found.seconds),
            ..Figures::default()
        },
        bins: vec![],
        series: vec![],
        gates: vec![],
        command: None,
        note: format!(
            "{} of {}, {:.0} % full; {:.3} virtual seconds: {ended}; {} requests",
            load.workload,
            system.title(),
            load.fill * 100.0,
            found.seconds,
            found.requests
        ),
    };
    // The condition is the model's own; what is left is arithmetic of the figures.
    cell.gates = judge(&cell, &Seen { written: Some(Written::All), errors: Some((0, 0)), ..Seen::default() });
    cell.gates.retain(|g| matches!(g.check, Check::Little | Check::Bandwidth | Check::Achieved));
    cell.gates.push(Gate::model("simulated: docs/model.md shows how far off such figures were"));
    Ok(Simulated { cell, requests })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Verdict;
    use crate::plan::{Plan, Wishes};
    use crate::suite::{BUILT_IN, Suite};

    fn look(name: &str) -> (Target, System) {
        let target = Target::look(name, None).expect("it is a model");
        let system = system(&target.model().expect("it is one")).expect("it can be").expect("a system");
        (target, system)
    }

    #[test]
    fn every_suite_has_something_to_do_on_every_system_and_no_cell_is_pass() {
        for (name, _) in predict::SYSTEMS.iter().filter(|(n, _)| *n != "h730p") {
            let (target, system) = look(&format!("model:{name}"));
            for (suite, _) in BUILT_IN {
                let suite = Suite::find(suite).expect("it comes with the program");
                let plan = Plan::of(&suite, &target, Wishes::default());
                let Some(step) = plan.steps.iter().find(|s| s.part != Part::States) else { continue };
                let cell = cell(&target, &system, step, State::Optimal, None).expect("it can be simulated").cell;
                assert_ne!(cell.verdict(), Verdict::Pass, "{name}");
                assert!(
                    cell.figures.iops.is_some_and(|i| i > 0.0) && cell.note.contains("virtual seconds"),
                    "{}",
                    cell.note
                );
            }
        }
    }

    #[test]
    fn ashlar_stands_over_the_same_drives() {
        let (_, system) = look("model:r760-perc12,engine=ashlar,raid=5,fill=80");
        assert_eq!((system.engine, system.level, system.count), (Engine::Ashlar, Level::Raid5, 8));
        assert!(system.card.is_none());
        for wrong in ["model:r760-direct,raid=5", "model:r760-perc12,raid=7", "model:r760-direct,engine=zfs"] {
            let target = Target::look(wrong, None);
            let made = target.and_then(|t| super::system(&t.model()?));
            assert!(made.is_err(), "{wrong}");
        }
    }
}
