//! `ashlar bench` as the engine of modelled drives: one cell is one call, and its JSON is what is read from it.
//!
//! The drives are made for the call, filled, and gone after it; their time is the model's, so the same cell gives the same
//! figures to the last digit, on any machine. Threads are not modelled: threads x depth requests are in flight.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

use crate::error::Error;
use crate::gates::{Seen, judge};
use crate::model::{Access, Cell, Check, Figures, Gate, Latency, Load, Part, State, Subject};
use crate::plan::Step;
use crate::spent::children_cpu_seconds;
use crate::target::{Model, Target};
use crate::written::Written;

/// Modelled time of a measurement, in seconds: drives that repeat themselves need no more.
pub const SECONDS: f64 = 0.1;
/// Of the time that is asked for, the bench measures so much and warms up before.
const MEASURED_SHARE: f64 = 0.8;
/// What the bench measures in one call: the drives alone, and an array.
const SUBJECTS: f64 = 2.0;
/// Requests in flight that the bench takes.
pub const DEPTH_MAX: u64 = 4096;

/// A trial has so much of the time of a measurement.
const TRIED_SHARE: f64 = 0.25;
/// A measurement of next to nothing: what is left of its cost is making the drives, and filling them.
const NOTHING_SECONDS: f64 = 0.001;

/// The program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bench {
    /// Where it is.
    pub program: PathBuf,
}

/// What it prints, as far as it is read.
#[derive(Debug, Deserialize)]
struct Report {
    seconds_each: f64,
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    figures: Told,
    ratio: Option<f64>,
    limit: Option<f64>,
    unsteady: bool,
}

/// What it prints instead when it cannot measure.
#[derive(Debug, Deserialize)]
struct Complaint {
    error: Code,
}

#[derive(Debug, Deserialize)]
struct Code {
    code: String,
}

/// Its word for a rebuild that did not last as long as the measurement.
const REBUILD_OVER: &str = "rebuild_over";

#[derive(Debug, Deserialize)]
struct Told {
    iops: f64,
    bytes_per_sec: f64,
    latency_us_mean: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
    latency_us_p999: f64,
}

impl Bench {
    /// Its name and version: it is of this one.
    pub const NAME: &str = concat!("ashlar bench ", env!("CARGO_PKG_VERSION"));

    /// This program, or the one that ASHLAR_BENCH names.
    ///
    /// # Errors
    /// When the system does not tell which program this is.
    pub fn find() -> Result<Bench, Error> {
        let program = match std::env::var_os("ASHLAR_BENCH") {
            Some(named) => PathBuf::from(named),
            None => std::env::current_exe().map_err(|e| Error::file("/proc/self/exe", e))?,
        };
        Ok(Bench { program })
    }

    /// Measures a cell in a state of the array.
    ///
    /// # Errors
    /// When the program fails, or prints something else.
    pub fn cell(&self, target: &Target, step: &Step, state: State, asked_iops: Option<f64>) -> Result<Cell, Error> {
        let fail =
            |why: String| Error::Program { program: "ashlar bench".to_owned(), why: format!("{}: {why}", step.id) };
        let model = target.model()?;
        let args = arguments(&model, &step.load, state, step.part == Part::States, asked_iops).map_err(fail)?;
        let out = self.call(&args).map_err(|e| fail(e.to_string()))?;
        let complaint: Option<Complaint> = serde_json::from_slice(&out.stdout).ok();
        if complaint.is_some_and(|c| c.error.code == REBUILD_OVER) {
            return Ok(cell(target, &model, step, state, asked_iops, None, &args));
        }
        if !out.status.success() {
            let words = String::from_utf8_lossy(&out.stderr);
            return Err(fail(format!("{}: {}", out.status, words.trim())));
        }
        let report: Report = serde_json::from_slice(&out.stdout).map_err(|e| fail(e.to_string()))?;
        // The drives alone come first, then the array.
        let rows = report.groups.first().map(|g| &g.rows);
        let row = rows.and_then(|r| if model.level.is_some() { r.get(1) } else { r.first() });
        let row = row.ok_or_else(|| fail("it measured nothing".to_owned()))?;
        Ok(cell(target, &model, step, state, asked_iops, Some((row, report.seconds_each)), &args))
    }
}

/// What cells are likely to take.
impl Bench {
    /// Finds out the CPU seconds of all steps on this machine: the drives are made and filled once, with next to no load,
    /// since each cell does so; and each kind of load is tried for a quarter of its time, on drives that are not filled.
    ///
    /// # Errors
    /// When the program fails, or a load is none of its own.
    pub fn try_out(&self, target: &Target, steps: &mut [Step]) -> Result<(), Error> {
        let model = target.model()?;
        let empty = Model { fill: None, ..model.clone() };
        let nothing = Load { access: Some(Access::Random), read_percent: Some(100.0), ..Load::default() };
        let made = self.spent(&empty, &nothing, NOTHING_SECONDS)?;
        let filled = if model.fill.is_some() { self.spent(&model, &nothing, NOTHING_SECONDS)? } else { made };
        let mut kinds: Vec<(Kind, Load, f64)> = vec![];
        for step in steps.iter() {
            let kind = Kind::of(&model, &step.load)?;
            let deeper = |known: &Load| known.outstanding() < step.load.outstanding();
            match kinds.iter_mut().find(|(known, ..)| *known == kind) {
                Some((_, known, _)) if deeper(known) => known.clone_from(&step.load),
                Some(_) => {}
                None => kinds.push((kind, step.load.clone(), 0.0)),
            }
        }
        for (_, load, seconds) in &mut kinds {
            *seconds = (self.spent(&empty, load, SECONDS * TRIED_SHARE)? - made).max(0.0) / TRIED_SHARE;
        }
        for step in steps {
            let kind = Kind::of(&model, &step.load)?;
            let loaded = kinds.iter().find(|(known, ..)| *known == kind).map_or(0.0, |(.., seconds)| *seconds);
            let share = if let Part::Curve { percent } = step.part { f64::from(percent.min(100)) / 100.0 } else { 1.0 };
            step.cpu_seconds = Some((filled + loaded * share) * states(step.part).len() as f64);
        }
        Ok(())
    }

    /// CPU seconds of one call.
    fn spent(&self, model: &Model, load: &Load, seconds: f64) -> Result<f64, Error> {
        let fail = |why: String| Error::Program { program: "ashlar bench".to_owned(), why };
        let mut args = arguments(model, load, State::Optimal, false, None).map_err(fail)?;
        args.retain(|arg| !arg.starts_with("--seconds="));
        args.push(format!("--seconds={}", seconds / MEASURED_SHARE * SUBJECTS));
        let begun = children_cpu_seconds();
        let out = self.call(&args).map_err(|e| fail(e.to_string()))?;
        match out.status.success() {
            true => Ok(children_cpu_seconds() - begun),
            false => Err(fail(format!("{}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim()))),
        }
    }

    fn call(&self, args: &[String]) -> std::io::Result<Output> {
        Command::new(&self.program).args(args).stdin(Stdio::null()).output()
    }
}

/// Loads that take about as long: the same requests, with a few or with many in flight.
#[derive(PartialEq)]
struct Kind {
    pattern: String,
    block_bytes: Option<u64>,
    is_deep: bool,
}

impl Kind {
    fn of(model: &Model, load: &Load) -> Result<Kind, Error> {
        let pattern = pattern(load).map_err(|why| Error::usage(load.name(), why))?;
        let is_deep = load.outstanding().is_some_and(|n| n > model.count() as f64);
        Ok(Kind { pattern, block_bytes: load.block_bytes, is_deep })
    }
}

/// States that a step has cells of.
pub fn states(part: Part) -> &'static [State] {
    match part {
        Part::States => &[State::Optimal, State::Degraded, State::Rebuilding],
        _ => &[State::Optimal],
    }
}

/// What of a step the bench cannot do, if anything.
pub fn refuses(target: &Target, part: Part, load: &Load) -> Option<&'static str> {
    let in_flight = u64::from(load.threads.unwrap_or(1)) * u64::from(load.depth.unwrap_or(1));
    let mix = load.reads() && load.writes();
    match part {
        Part::Fill | Part::Precondition => Some("modelled drives are filled before each cell"),
        Part::Unallocated => Some("modelled drives are filled before each cell"),
        Part::Check => Some("modelled drives are gone after each cell"),
        Part::Round { .. } => Some("modelled drives are aged with fill=PERCENT until they are steady"),
        Part::States if target.model().is_ok_and(|m| m.level.is_none()) => {
            Some("drives alone have no states: add raid=")
        }
        _ if load.fsync.is_some() => Some("modelled drives do not flush"),
        _ if load.cached == Some(true) => Some("modelled drives have no page cache"),
        _ if load.reducible.is_some() => Some("modelled drives ignore the data"),
        _ if load.access == Some(Access::Sequential) && mix => Some("the bench has no sequential mix"),
        _ if in_flight > DEPTH_MAX => Some("more requests in flight than the bench supports"),
        _ => None,
    }
}

/// The bench's word for a load.
///
/// # Errors
/// When it has none.
pub fn pattern(load: &Load) -> Result<String, String> {
    let reads = load.read_percent.unwrap_or(100.0).round() as u64;
    match (load.access, reads) {
        (Some(Access::Sequential), 100) => Ok("sequential-read".to_owned()),
        (Some(Access::Sequential), 0) => Ok("sequential-write".to_owned()),
        (Some(Access::Sequential), _) => Err("the bench has no sequential mix".to_owned()),
        (_, reads) => Ok(format!("random-{reads}")),
    }
}

fn arguments(
    model: &Model,
    load: &Load,
    state: State,
    states: bool,
    asked_iops: Option<f64>,
) -> Result<Vec<String>, String> {
    let depth = u64::from(load.threads.unwrap_or(1)) * u64::from(load.depth.unwrap_or(1));
    let pattern = pattern(load)?;
    let mut args: Vec<String> = vec![
        "bench".to_owned(),
        "--json".to_owned(),
        format!("--model={}:{}", model.name, model.drives),
        format!("--pattern={pattern}"),
        format!("--block={}", load.block_bytes.unwrap_or(4096)),
        format!("--depth={depth}"),
        format!("--seconds={}", SECONDS / MEASURED_SHARE * SUBJECTS),
    ];
    // The drives alone are measured beside any level.
    args.push(format!("--raid={}", model.level.as_deref().unwrap_or("0")));
    // A rebuild wants a place, and all states the same array.
    let width = model.width.or_else(|| states.then(|| model.count().saturating_sub(1)));
    args.extend(width.map(|width| format!("--width={width}")));
    args.extend(model.fill.map(|percent| format!("--fill={percent}")));
    match state {
        State::Optimal | State::Rebuilt => {}
        State::Degraded | State::Rebuilding => args.push(format!("--state={state}")),
    }
    args.extend(asked_iops.map(|iops| format!("--rate={}", (iops.round() as u64).max(1))));
    Ok(args)
}

/// The cell of what was measured, in so many seconds; or of a rebuild that did not last.
fn cell(
    target: &Target,
    model: &Model,
    step: &Step,
    state: State,
    asked_iops: Option<f64>,
    measured: Option<(&Row, f64)>,
    args: &[String],
) -> Cell {
    let subject = Subject {
        system: target.name.clone(),
        drives: format!("{} modelled drives {}", model.drives, model.name),
        drive_count: u32::try_from(model.count()).ok(),
        level: model.level.as_ref().map_or_else(|| Some("JBOD".to_owned()), |l| Some(format!("RAID{l}"))),
        state,
        ..Subject::default()
    };
    let states = step.part == Part::States;
    let mut cell = Cell {
        id: if states { format!("{}-{state}", step.id) } else { step.id.clone() },
        test: step.test.clone(),
        part: if states { Part::Alone } else { step.part },
        source: None,
        subject,
        // What the bench works on is its own choice: an eighth of the drives, or the share that is filled.
        load: Load { offset_bytes: None, range_bytes: None, slice_percent: None, cached: None, ..step.load.clone() },
        asked_iops,
        asked_seconds: Some(SECONDS),
        figures: Figures::default(),
        bins: vec![],
        series: vec![],
        gates: vec![],
        command: Some(format!("ashlar {}", args.join(" "))),
        note: "virtual time of modelled drives".to_owned(),
    };
    let Some((row, seconds)) = measured else {
        let why = "the rebuild was over before the measurement: larger drives, or filled ones, take longer";
        cell.gates = vec![Gate::fail(Check::State, why)];
        return cell;
    };
    cell.figures = row.figures(seconds);
    let beside = row.ratio.map(|ratio| format!("; {ratio:.2} of the drives alone")).unwrap_or_default();
    let limit = row.limit.map(|limit| format!(", limit {limit:.2}")).unwrap_or_default();
    cell.note.push_str(&format!("{beside}{limit}"));
    cell.gates = judge(&cell, &Seen { written: Some(Written::All), errors: Some((0, 0)), ..Seen::default() });
    cell.gates.retain(|g| g.check != Check::Steady);
    cell.gates.extend(steady(model, &cell.load, row.unsteady));
    cell.gates.push(Gate::model("modelled drives, in virtual time"));
    cell.gates.extend(states.then(|| Gate::pass(Check::State, format!("the model was {state} to the end"))));
    cell
}

impl Row {
    fn figures(&self, seconds: f64) -> Figures {
        let told = &self.figures;
        Figures {
            iops: Some(told.iops),
            bytes_per_sec: Some(told.bytes_per_sec),
            latency: Latency {
                mean_us: Some(told.latency_us_mean),
                p50_us: Some(told.latency_us_p50),
                p99_us: Some(told.latency_us_p99),
                p999_us: Some(told.latency_us_p999),
                ..Latency::default()
            },
            seconds: Some(seconds),
            ..Figures::default()
        }
    }
}

fn steady(model: &Model, load: &Load, unsteady: bool) -> Option<Gate> {
    let gate = match (model.fill, unsteady) {
        (Some(_), true) => Gate::warn(Check::Steady, "overwritten four times, and still not steady"),
        (Some(_), false) => Gate::pass(Check::Steady, "overwritten until the rate was steady"),
        (None, _) => Gate::warn(Check::Steady, "fresh drives: there is no garbage to clean yet; fill=80 ages them"),
    };
    load.writes().then_some(gate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_call() {
        let target = Target::look("model:tlc:5x2G,raid=5,fill=80", None).unwrap();
        let load = Load {
            access: Some(Access::Random),
            read_percent: Some(70.0),
            block_bytes: Some(8192),
            threads: Some(4),
            depth: Some(8),
            ..Load::default()
        };
        let model = target.model().unwrap();
        let args =
            |load: &Load, state, states| arguments(&model, load, state, states, Some(5000.0)).map(|a| a.join(" "));
        let text = args(&load, State::Optimal, false).unwrap();
        for part in ["--model=tlc:5x2G", "--pattern=random-70", "--depth=32", "--raid=5", "--fill=80", "--rate=5000"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("--width") && !text.contains("--state"), "{text}");
        let text = args(&load, State::Degraded, true).unwrap();
        assert!(text.contains("--width=4") && text.contains("--state=degraded"), "{text}");
        let mix = Load { access: Some(Access::Sequential), ..load.clone() };
        assert!(args(&mix, State::Optimal, false).is_err());
        assert!(refuses(&target, Part::Alone, &mix).is_some() && refuses(&target, Part::Alone, &load).is_none());
        assert!(refuses(&target, Part::Fill, &load).is_some());
    }

    /// A program that does what lines of sh say.
    fn script(dir: &std::path::Path, lines: &str) -> PathBuf {
        let (program, text) = (dir.join("bench"), dir.join("text"));
        std::fs::write(&text, format!("#!/bin/sh\n{lines}\n")).unwrap();
        // Written by another process: one that a test beside this one starts meanwhile would hold it open, and a program
        // that is open for writing cannot be run.
        let made = std::process::Command::new("install").args(["-m", "755"]).args([&text, &program]).status();
        assert!(made.is_ok_and(|status| status.success()));
        program
    }

    #[test]
    fn drives_are_filled_once_and_each_kind_of_load_is_tried_once() {
        use crate::plan::{Plan, Wishes};
        let dir = tempfile::tempdir().unwrap();
        let calls = dir.path().join("calls");
        let program = script(dir.path(), &format!("echo \"$@\" >> {}", calls.display()));
        let target = Target::look("model:tlc:5x512M,raid=5,fill=80", None).unwrap();
        let mut plan = Plan::of(&crate::suite::Suite::find("smoke").unwrap(), &target, Wishes::default());
        assert_eq!(plan.cpu_seconds(), None);
        Bench { program: program.clone() }.try_out(&target, &mut plan.steps).unwrap();
        assert!(plan.cpu_seconds().is_some() && plan.steps.len() > 20, "{}", plan.steps.len());
        let calls = std::fs::read_to_string(&calls).unwrap();
        // Made, filled, and six kinds: 128K in order either way, 4K at random either way with one and with many in flight.
        assert_eq!((calls.lines().count(), calls.matches("--fill=80").count()), (8, 1), "{calls}");
        script(dir.path(), "exit 1");
        assert!(Bench { program }.try_out(&target, &mut plan.steps).is_err());
    }

    #[test]
    fn a_rebuild_that_does_not_last_fails_its_cell_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let says = |code: &str| script(dir.path(), &format!("echo '{{\"error\":{{\"code\":\"{code}\"}}}}'\nexit 2"));
        let target = Target::look("model:equal-cost:5x512M,raid=5", None).unwrap();
        let step = Step {
            id: "s".to_owned(),
            test: "t".to_owned(),
            part: Part::States,
            target: 0,
            load: Load { access: Some(Access::Random), read_percent: Some(0.0), ..Load::default() },
            seconds: SECONDS,
            ramp_seconds: 0.0,
            rebuild_seconds: 0.0,
            rate_percent: None,
            until: None,
            cpu_seconds: None,
        };
        let bench = Bench { program: says(REBUILD_OVER) };
        let cell = bench.cell(&target, &step, State::Rebuilding, None).unwrap();
        assert_eq!((cell.figures.iops, cell.gates.len()), (None, 1));
        assert_eq!((cell.gates[0].check, cell.verdict()), (Check::State, crate::model::Verdict::Fail));
        says("usage");
        assert!(bench.cell(&target, &step, State::Rebuilding, None).is_err());
    }
}
