//! Carries out a plan: one call of fio for each cell (of the bench on modelled drives and NVMe/TCP), saved as it ends.
//!
//! A run is a directory: `plan.json` says what is to be measured on what, `cells/ID.json` holds what a step gave,
//! `result.json` and `cells.csv` are made of them after every step. Going on after a stop is doing the steps that have
//! no file.
//!
//! Invariants: nothing is written before the safety checks hold; a cell is in its file whole or not at all; a step is
//! never measured twice.

mod call;
mod generator;
mod journal;
mod measure;
mod over;
mod states;
mod together;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::array::{Array, Control};
use crate::bench::Bench;
use crate::error::Error;
use crate::files;
use crate::fio::Fio;
use crate::gates::mark_level;
use crate::host;
use crate::hosts::{self, Host};
use crate::model::{Cell, Check, Gate, Origin, Page, Pair, Part, Rounds, Run, Subject};
use crate::plan::{Plan, Step};
use crate::safety;
use crate::simulated;
use crate::spent::{Spent, children_cpu_seconds, thread_cpu_seconds};
use crate::steady::{Excursion, is_steady};
use crate::suite::Suite;
use crate::target::{Identity, Kind, Target};
use crate::written::Written;

use generator::Generator;
pub use journal::{Journal, Order, Taken};
pub use measure::live_iops;
pub use over::{prove, reach};

/// What the user says of the target; it holds for the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// It was written before.
    pub trusted: bool,
    /// What it is, in words.
    pub subject: Subject,
}

/// What a run is given beside its suite and its target.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// What the user says of the target.
    pub said: Said,
    /// How its array is controlled.
    pub control: Option<Control>,
    /// Hosts that make its loads; none: this machine does.
    pub hosts: Vec<Host>,
    /// Targets beside the first.
    pub beside: Vec<Target>,
}

/// Where a run stands, for whoever watches.
#[derive(Clone, Debug, PartialEq)]
pub struct Live<'a> {
    /// The step's number, from 1.
    pub step: usize,
    /// Steps there are.
    pub steps: usize,
    /// The cell.
    pub id: &'a str,
    /// Its rate just now.
    pub iops: Option<f64>,
    /// Seconds that are left, about.
    pub seconds_left: f64,
    /// The cell, when it has ended.
    pub ended: Option<&'a Cell>,
}

/// What a run may ask that the lab itself cannot.
pub struct Around<'a> {
    /// What the order's control leads to.
    pub array: Option<&'a mut dyn Array>,
    /// What is known of a range (offset, bytes) of a target that is no file.
    pub written: &'a dyn Fn(&Target, u64, u64) -> Written,
    /// Tests, or cells by their names, that are left out from now on.
    pub skip: &'a [String],
}

impl Default for Around<'_> {
    fn default() -> Self {
        Around { array: None, written: &|_, _, _| Written::Unknown, skip: &[] }
    }
}

/// Runs what is left of an order; `destroy` are the serial numbers that the user typed.
///
/// # Errors
/// When the target must not be written or is another than that of the order, when the generator cannot be started or the
/// array not be controlled, or a file cannot be written. What was measured before is saved. A generator that fails fails
/// its cell, and the run goes on.
pub fn run(
    journal: &Journal,
    destroy: &[&str],
    mut around: Around<'_>,
    watch: &mut dyn FnMut(&Live<'_>),
) -> Result<Run, Error> {
    let order = journal.order();
    let engine = Engine::find(order.target.kind)?;
    hosts::check(&order.hosts, &order.target)?;
    if let Engine::Loads(Generator::Fio(fio)) = &engine {
        reach(fio, &order.hosts)?;
    }
    let mut taken = journal.taken()?;
    let look = |target| same_target(target, taken.is_empty());
    let targets: Vec<Target> = order.targets().map(look).collect::<Result<_, _>>()?;
    crate::together::check(&targets)?;
    let mut left = order.steps.iter().filter(|s| taken.iter().all(|(id, _)| *id != s.id));
    let writes = order.target.kind != Kind::Model && left.any(|s| s.load.writes());
    let permit = |target| permit(target, said_of(target, &targets, destroy), !taken.is_empty());
    let permits = if writes { targets.iter().map(permit).collect::<Result<Vec<_>, _>>()? } else { vec![] };
    targets.iter().try_for_each(|t| if writes { make_room(t) } else { is_long_enough(t) })?;
    let shown = match &engine {
        Engine::Loads(Generator::Fio(fio)) if !order.hosts.is_empty() => {
            over::prove(fio, &order.hosts, &targets[0], writes)?
        }
        Engine::Loads(_) | Engine::Models(_) => true,
    };
    skip(journal, around.skip, &mut taken)?;
    let first: Vec<Option<Identity>> = targets.iter().map(Identity::of).collect();
    let sockets: Vec<&str> = match &order.control {
        Some(Control::Served(served)) => vec![&served.socket],
        Some(Control::Hooks(_)) | None => vec![],
    };
    let steps: Vec<&Step> = order.steps.iter().collect();
    let before = Run::read(journal.dir()).ok().and_then(|run| run.spent);
    let mut spent = (order.target.kind == Kind::Model).then(|| before.unwrap_or_default());
    for (nth, step) in steps.iter().enumerate() {
        let target = targets.get(step.target as usize).unwrap_or(&targets[0]);
        let cells = cells(&taken);
        if taken.iter().any(|(id, _)| *id == step.id) || is_over(step, &cells) {
            continue;
        }
        let seconds_left = steps[nth..].iter().filter(|s| !s.is_perhaps()).map(|s| s.seconds_all()).sum();
        let mut live = Live { step: nth + 1, steps: steps.len(), id: &step.id, iops: None, seconds_left, ended: None };
        watch(&live);
        let started = std::time::Instant::now();
        let mut told = |iops| {
            let passed = started.elapsed().as_secs_f64();
            watch(&Live { iops, seconds_left: (seconds_left - passed).max(0.0), ..live.clone() });
        };
        let new = match &engine {
            Engine::Models(bench) => {
                let (new, took) = modelled(bench, target, step, &cells)?;
                spent = spent.map(|all| all.with(took));
                new
            }
            Engine::Loads(by) => {
                let measurement = measure::Measurement {
                    by,
                    target,
                    targets: &targets,
                    steps: &order.steps,
                    step,
                    said: &order.said,
                    dir: journal.dir(),
                    cells: &cells,
                    hosts: &order.hosts,
                    shown,
                    ask: around.written,
                    first: &first,
                    sockets: &sockets,
                };
                let array = around.array.as_deref_mut().map(|a| a as &mut dyn Array);
                measured(&measurement, array, &mut told)?
            }
        };
        journal.save(&step.id, &new)?;
        if let Engine::Loads(by) = &engine {
            by.keep_output(journal.dir(), &step.id)?;
        }
        for cell in &new.cells {
            live.ended = Some(cell);
            watch(&live);
        }
        taken.push((step.id.clone(), new));
        files::save(&Run { spent, ..result(order, &engine, &targets, &taken, false) }, journal.dir())?;
    }
    let mut result = Run { spent, ..result(order, &engine, &targets, &taken, true) };
    result.system.extend(spent.map(|s| Pair::new("simulation", s.words())));
    files::save(&result, journal.dir())?;
    drop(permits);
    Ok(result)
}

/// Writes down what is left out: a step that gave no cell.
fn skip(journal: &Journal, skip: &[String], taken: &mut Vec<(String, Taken)>) -> Result<(), Error> {
    for name in skip {
        let mut named = journal.order().steps.iter().filter(|s| s.id == *name || s.test == *name).peekable();
        if named.peek().is_none() {
            let tests: BTreeSet<&str> = journal.order().steps.iter().map(|s| s.test.as_str()).collect();
            let valid = tests.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Error::usage(format!("--skip {name}"), format!("no such test or cell; tests: {valid}")));
        }
        for step in named.filter(|s| taken.iter().all(|(id, _)| *id != s.id)).collect::<Vec<_>>() {
            journal.save(&step.id, &Taken::default())?;
            taken.push((step.id.clone(), Taken::default()));
        }
    }
    Ok(())
}

/// What makes the load.
enum Engine {
    /// On a target.
    Loads(Generator),
    /// On drives of its own, which are gone afterwards.
    Models(Bench),
}

impl Engine {
    fn find(kind: Kind) -> Result<Engine, Error> {
        match kind {
            Kind::Model => Bench::find().map(Engine::Models),
            Kind::Nvme => Bench::find().map(Generator::Bench).map(Engine::Loads),
            Kind::File | Kind::Block | Kind::Nbd => Fio::find().map(Generator::Fio).map(Engine::Loads),
        }
    }

    fn name(&self) -> String {
        match self {
            Engine::Loads(by) => by.name(),
            Engine::Models(_) => Bench::NAME.to_owned(),
        }
    }
}

/// A step on a target.
fn measured(
    measurement: &measure::Measurement<'_>,
    array: Option<&mut dyn Array>,
    told: &mut dyn FnMut(Option<f64>),
) -> Result<Taken, Error> {
    match (measurement.step.part, array) {
        (Part::States, Some(array)) => {
            let mark = measurement.dir.join("array-touched");
            let mut passage = states::Passage { measurement, array, mark };
            match passage.take(told) {
                Err(why @ Error::Program { .. }) => {
                    // What comes next is measured on a whole array, or not at all.
                    passage.make_whole()?;
                    let cell = measurement.failed_cell(None, String::new(), &why);
                    Ok(Taken { cells: vec![cell], timeline: None })
                }
                taken => taken,
            }
        }
        (Part::States, None) => Err(Error::usage(&measurement.step.id, "nothing controls the array")),
        (_, _) => Ok(Taken { cells: vec![measurement.take(told)?], timeline: None }),
    }
}

/// A step on modelled drives, and what it took; of an array's states each has drives of its own.
fn modelled(bench: &Bench, target: &Target, step: &Step, cells: &[Cell]) -> Result<(Taken, Spent), Error> {
    let asked_iops = measure::asked_iops(step, cells)?;
    let mut spent = Spent { planned_cpu_seconds: step.cpu_seconds.unwrap_or(0.0), ..Spent::default() };
    let mut new = Taken::default();
    if let Some(system) = simulated::system(&target.model()?)? {
        let begun = thread_cpu_seconds();
        for state in simulated::states(step) {
            let simulated = simulated::cell(target, &system, step, *state, asked_iops)?;
            spent.requests += simulated.requests;
            new.cells.push(simulated.cell);
        }
        spent.cpu_seconds = thread_cpu_seconds() - begun;
        return Ok((new, spent));
    }
    let begun = children_cpu_seconds();
    for state in crate::bench::states(step.part) {
        new.cells.push(bench.cell(target, step, *state, asked_iops)?);
    }
    spent.cpu_seconds = children_cpu_seconds() - begun;
    Ok((new, spent))
}

/// All cells, in their order.
fn cells(taken: &[(String, Taken)]) -> Vec<Cell> {
    taken.iter().flat_map(|(_, t)| t.cells.iter().cloned()).collect()
}

/// The target as it is now; of a run that goes on it must be the one it was.
fn same_target(ordered: &Target, first: bool) -> Result<Target, Error> {
    let now = Target::look(&ordered.name, Some(ordered.bytes))?;
    if now.serial != ordered.serial || now.kind != ordered.kind || now.bytes != ordered.bytes {
        let why =
            format!("it was {} with {} bytes, it is {} with {}", ordered.serial, ordered.bytes, now.serial, now.bytes);
        return Err(Error::usage(&ordered.name, why));
    }
    if first && now.exists != ordered.exists {
        return Err(Error::usage(&ordered.name, "it was created meanwhile: check it, and plan again"));
    }
    // What a namespace said of itself when it was asked.
    let facts = if now.kind == Kind::Nvme { ordered.facts.clone() } else { now.facts };
    Ok(Target { facts, ..now })
}

/// What the user said of a target: its serial number, or one that is no target's.
pub fn said_of<'a>(target: &Target, targets: &[Target], destroy: &[&'a str]) -> Option<&'a str> {
    let own = destroy.iter().find(|said| **said == target.serial);
    let nobodys = || destroy.iter().find(|said| targets.iter().all(|t| t.serial != **said));
    own.or_else(nobodys).copied()
}

/// Leave to write. A file that this run made itself is its own.
fn permit(target: &Target, destroy: Option<&str>, going_on: bool) -> Result<safety::Permit, Error> {
    let own = going_on && target.kind == Kind::File;
    let said = if own { Some(target.serial.as_str()) } else { destroy };
    safety::permit(target, said)
}

/// A file is made, or made long enough; nothing is allocated.
fn make_room(target: &Target) -> Result<(), Error> {
    let (Some(path), Kind::File) = (target.path(), target.kind) else { return Ok(()) };
    let open = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let grow = |file: std::fs::File| {
        if file.metadata()?.len() < target.bytes { file.set_len(target.bytes) } else { Ok(()) }
    };
    open.and_then(grow).map_err(|e| Error::file(path, e))
}

/// A file that is only read is as long as it is.
fn is_long_enough(target: &Target) -> Result<(), Error> {
    let (Some(path), Kind::File) = (target.path(), target.kind) else { return Ok(()) };
    let len = std::fs::metadata(&path).map_err(|e| Error::file(&path, e))?.len();
    if len >= target.bytes {
        return Ok(());
    }
    Err(Error::usage(
        &target.name,
        format!("it has {len} bytes, --size is {}: a test that only reads does not enlarge it", target.bytes),
    ))
}

/// Whether a round is not needed any more.
fn is_over(step: &Step, cells: &[Cell]) -> bool {
    matches!(step.part, Part::Round { .. }) && is_steady(&tracked(&step.test, cells))
}

/// Rates of the rounds of a test.
fn tracked(test: &str, cells: &[Cell]) -> Vec<f64> {
    let rounds = cells.iter().filter(|c| c.test == test && matches!(c.part, Part::Round { .. }));
    rounds.filter_map(|c| c.figures.iops).collect()
}

/// Everything that is known so far.
fn result(order: &Order, engine: &Engine, targets: &[Target], taken: &[(String, Taken)], ended: bool) -> Run {
    let cells = cells(taken);
    let mut run = Run::new(&order.suite, &order.about, Origin::Measured);
    run.for_publication = order.for_publication;
    run.begun = Some(order.begun.clone());
    run.ended = ended.then(host::now);
    run.system = host::facts();
    let is_simulated = |t: &Target| t.model().is_ok_and(|m| simulated::system(&m).is_ok_and(|s| s.is_some()));
    let generator = if targets.iter().any(is_simulated) { simulated::NAME.to_owned() } else { engine.name() };
    run.system.push(Pair::new("load generator", generator));
    if !order.hosts.is_empty() {
        run.system.push(Pair::new("load from", hosts::names(&order.hosts)));
    }
    for target in targets {
        run.system.push(Pair::new("target", &target.name));
        run.system.push(Pair::new("size", crate::units::capacity(target.bytes)));
        run.system.extend(target.facts.clone());
    }
    let subject = &order.said.subject;
    run.system.push(Pair::new("drives", &subject.drives));
    run.system.push(Pair::new("level", subject.level.clone().unwrap_or_default()));
    run.not_run.clone_from(&order.not_run);
    let skipped = taken.iter().filter(|(_, t)| t.cells.is_empty());
    run.not_run.extend(skipped.map(|(id, _)| Pair::new(id, "not run: left out by --skip")));
    run.cells.clone_from(&cells);
    mark_level(&mut run.cells);
    run.timelines = taken.iter().filter_map(|(_, t)| t.timeline.clone()).collect();
    let mut tests: Vec<&str> = vec![];
    for cell in cells.iter().filter(|c| matches!(c.part, Part::Round { .. })) {
        if !tests.contains(&cell.test.as_str()) {
            tests.push(&cell.test);
        }
    }
    for test in tests {
        let values = tracked(test, &cells);
        let steady = is_steady(&values);
        judge_rounds(&mut run.cells, test, &values);
        run.rounds.push(Rounds { test: test.to_owned(), tracked: "IOPS".to_owned(), values, steady });
    }
    if let Some(control) = &order.control {
        run.disclosure.push(Page { title: "Array control".to_owned(), text: control.text() });
    }
    if let Some(text) = Suite::text(&order.suite) {
        run.disclosure.push(Page { title: format!("Suite {}.toml", order.suite), text: text.to_owned() });
    }
    run
}

/// Every round carries the badge of all.
fn judge_rounds(cells: &mut [Cell], test: &str, values: &[f64]) {
    let gate = match Excursion::of(values) {
        Some(e) if e.is_steady() => {
            Gate::pass(Check::Steady, format!("steady after {} rounds (PTS-derived)", values.len()))
        }
        Some(e) => Gate::warn(
            Check::Steady,
            format!(
                "NOT STEADY after {} rounds: range {:.1} %, trend {:+.1} %",
                values.len(),
                e.range * 100.0,
                e.slope * 100.0
            ),
        ),
        None => Gate::warn(Check::Steady, format!("NOT STEADY: {} rounds are too few", values.len())),
    };
    for cell in cells.iter_mut().filter(|c| c.test == test) {
        cell.gates.retain(|g| g.check != Check::Steady);
        cell.gates.push(gate.clone());
    }
}

/// A new run in a directory.
///
/// # Errors
/// When there is one already, or it cannot be written.
pub fn begin(dir: PathBuf, suite: &Suite, target: &Target, plan: &Plan, given: Given) -> Result<Journal, Error> {
    let Given { said, control, hosts, beside } = given;
    Journal::create(
        dir,
        Order {
            suite: suite.name.clone(),
            about: suite.about.clone(),
            for_publication: suite.for_publication,
            begun: host::now(),
            said,
            target: target.clone(),
            steps: plan.steps.clone(),
            not_run: plan.not_run.clone(),
            control,
            hosts,
            beside,
        },
    )
}
