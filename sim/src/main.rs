//! `sim`: runs seeds, scenarios and canaries.

mod canaries;
mod seeds;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use array::canary::{Canary, plant};
use clap::Parser;
use serde::{Deserialize, Serialize};
use sim::kind::Kind;
use sim::parts::{self, PART_NOT_FLUSHED, plant_part_not_flushed};
use sim::plan::Plan;
use sim::report::Report;
use sim::run::run;
use sim::shrink::shrink;

use crate::seeds::Seeds;

/// Runs the shipped engine in a world where one seed decides everything
#[derive(Parser)]
#[command(after_help = "Exit codes: 0 nothing was wrong, 1 something was, 2 the command line makes no sense")]
struct Args {
    /// One seed, with what happens in it
    #[arg(long, conflicts_with_all = ["minutes", "scenario", "canary"])]
    seed: Option<u64>,
    /// Seeds from A up to, not including, B; several ranges or seeds with commas
    #[arg(long, value_name = "A..B", default_value = "0..200")]
    seeds: Seeds,
    /// Seeds of arrays in parts, or one (then with what happens in it), instead of those in one piece
    #[arg(long, value_name = "A..B", conflicts_with_all = ["seed", "scenario", "seeds"])]
    parts: Option<Seeds>,
    /// Seeds from A on for so long
    #[arg(long)]
    minutes: Option<u64>,
    /// A plan by name, from sim/scenarios, or by path; "all" of them
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Plants a bug by name (several with commas) and expects a seed to notice it; "all" of them
    #[arg(long, value_name = "NAME")]
    canary: Option<String>,
    /// Keeps the plan of --seed as a scenario with this name
    #[arg(long, value_name = "NAME", requires = "seed", requires = "why")]
    keep: Option<String>,
    /// What that scenario is kept for
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Seeds at once
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Each kind of fault must have happened this often
    #[arg(long, default_value_t = 0)]
    at_least: u64,
    /// A failing seed is made smaller in at most so many tries
    #[arg(long, default_value_t = 150)]
    shrink: usize,
    /// Goes on after a seed that fails
    #[arg(long)]
    keep_going: bool,
    /// Only the result
    #[arg(long)]
    quiet: bool,
}

/// A plan kept because it found something.
#[derive(Serialize, Deserialize)]
struct Scenario {
    /// What it found.
    why: String,
    plan: Plan,
}

/// What seeds are of.
#[derive(Clone, Copy)]
struct Subject {
    /// The argument that repeats one.
    replay: &'static str,
    /// The argument that runs several.
    range: &'static str,
    run: fn(u64) -> Result<Report, String>,
    /// What can happen.
    kinds: &'static [Kind],
}

/// Arrays in one piece.
const PLAIN: Subject =
    Subject { replay: "--seed", range: "--seeds", run: |seed| run(&Plan::of(seed), false), kinds: Kind::ALL };

/// Arrays in parts.
const PARTS: Subject =
    Subject { replay: "--parts", range: "--parts", run: |seed| parts::run(seed, false), kinds: Kind::IN_PARTS };

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match (&args.scenario, &args.canary, args.seed) {
        (Some(name), None, _) => scenarios(name, args.quiet),
        (_, Some(name), _) => canaries::canaries(name, &args.seeds, args.parts.as_ref(), args.jobs.max(1)),
        (None, None, Some(seed)) => match (&args.keep, &args.why) {
            (Some(name), Some(why)) => {
                write_scenario(&folder().join(name).with_extension("toml"), why, &Plan::of(seed))
            }
            _ => one(&Plan::of(seed), &args),
        },
        (None, None, None) => match &args.parts {
            Some(seeds) => match seeds.only().filter(|_| args.minutes.is_none() && !args.quiet) {
                Some(seed) => one_in_parts(seed),
                None => many(&args, PARTS, seeds),
            },
            None => many(&args, PLAIN, &args.seeds),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Plants the bug that this process was told to have, in this thread.
fn plant_as_told() {
    let name = std::env::var("SIM_PLANTED").unwrap_or_default();
    plant(Canary::ALL.iter().copied().find(|c| format!("{c:?}") == name));
    plant_part_not_flushed(name == PART_NOT_FLUSHED);
}

fn one(plan: &Plan, args: &Args) -> Result<(), String> {
    plant_as_told();
    let report = run(plan, !args.quiet).map_err(|wrong| format!("seed {} FAILED: {wrong}", plan.seed))?;
    if !args.quiet {
        report.print(Kind::ALL);
    }
    Ok(())
}

fn one_in_parts(seed: u64) -> Result<(), String> {
    plant_as_told();
    parts::run(seed, true).map_err(|wrong| format!("seed {seed} FAILED: {wrong}"))?.print(Kind::IN_PARTS);
    Ok(())
}

/// Runs seeds on several threads, until one fails if they are not to go on.
fn many(args: &Args, subject: Subject, seeds: &Seeds) -> Result<(), String> {
    let begun = Instant::now();
    let limit = args.minutes.map(|m| Duration::from_secs(60 * m));
    let seeds = if limit.is_some() { seeds.on_from_first() } else { seeds.clone() };
    let left = Mutex::new(seeds.iter());
    let stop = AtomicBool::new(false);
    let total = Mutex::new((Report::default(), None::<(u64, String)>));
    let quiet = args.quiet;
    let work = || {
        plant_as_told();
        while !stop.load(Ordering::Relaxed) && limit.is_none_or(|l| begun.elapsed() < l) {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(seed) = next else { break };
            SEED.set(seed);
            let result = (subject.run)(seed);
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(report) => total.0.add(&report),
                Err(wrong) => {
                    if args.keep_going {
                        println!("seed {seed} FAILED: {wrong}");
                    } else {
                        stop.store(true, Ordering::Relaxed);
                    }
                    if total.1.as_ref().is_none_or(|(other, _)| seed < *other) {
                        total.1 = Some((seed, wrong));
                    }
                }
            }
            if !quiet && total.0.seeds.is_multiple_of(500) && total.0.seeds > 0 {
                println!("{} seeds, {} s", total.0.seeds, begun.elapsed().as_secs());
            }
        }
    };
    abort_on_panic(subject.replay, quiet);
    std::thread::scope(|s| {
        (0..args.jobs.max(1)).for_each(|_| drop(s.spawn(work)));
    });
    let (report, failed) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !quiet {
        report.print(subject.kinds);
        println!("{} s", begun.elapsed().as_secs());
    }
    if let Some((seed, wrong)) = failed {
        let replay = subject.replay;
        println!("seed {seed} FAILED: {wrong}\nreplay: cargo run --release -p sim -- {replay} {seed}");
        if args.shrink > 0 && !quiet && args.parts.is_none() {
            keep_smallest(seed, &wrong, args.shrink);
        }
        return Err("a seed failed".to_owned());
    }
    let rare: Vec<&Kind> = subject.kinds.iter().filter(|k| report.faults.of(**k) < args.at_least).collect();
    if rare.is_empty() { Ok(()) } else { Err(format!("too rare: {rare:?}")) }
}

/// Ends the program when a seed panics, and says how to repeat it.
fn abort_on_panic(replay: &'static str, quiet: bool) {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let seed = SEED.get();
        println!("seed {seed} FAILED: panic\nreplay: cargo run --release -p sim -- {replay} {seed}");
        if !quiet {
            usual(info);
        }
        std::process::abort();
    }));
}

thread_local! {
    static SEED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A plan that fails says so within this time, or is none that does.
const SMALLER_WITHIN: Duration = Duration::from_secs(600);

/// Makes a failing seed smaller, each try in a process of its own, and writes what is left down.
fn keep_smallest(seed: u64, wrong: &str, tries: usize) {
    let path = std::env::temp_dir().join(format!("sim-{}.toml", std::process::id()));
    let fails = |plan: &Plan| {
        if write_scenario(&path, wrong, plan).is_err() {
            return false;
        }
        let name = path.display().to_string();
        child(&["--quiet", "--scenario", &name], None, SMALLER_WITHIN).is_some_and(|(passed, _)| !passed)
    };
    let least = shrink(&Plan::of(seed), tries, fails);
    match write_scenario(&path, wrong, &least) {
        Ok(()) => println!("smaller: cargo run --release -p sim -- --scenario {}", path.display()),
        Err(why) => println!("it could not be kept: {why}"),
    }
}

fn write_scenario(path: &Path, why: &str, plan: &Plan) -> Result<(), String> {
    let first = why.lines().next().unwrap_or("").to_owned();
    let text = toml::to_string(&Scenario { why: first, plan: plan.clone() }).map_err(|e| e.to_string())?;
    std::fs::write(path, text).map_err(|e| e.to_string())
}

/// Runs this program once more: whether nothing was wrong, and the first line it printed; `None` when it could not be run
/// or takes longer than `limit`.
fn child(args: &[&str], planted: Option<&str>, limit: Duration) -> Option<(bool, String)> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(name) = planted {
        command.env("SIM_PLANTED", name);
    }
    let mut child = command.spawn().ok()?;
    let begun = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            let said = child.stdout.take().map(std::io::read_to_string)?.ok()?;
            return Some((status.success(), said.lines().next().unwrap_or("").to_owned()));
        }
        if begun.elapsed() > limit {
            let _gone = child.kill();
            let _status = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where scenarios are kept.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn scenarios(name: &str, quiet: bool) -> Result<(), String> {
    let mut paths: Vec<PathBuf> = match name {
        "all" => {
            let entries = std::fs::read_dir(folder()).map_err(|e| format!("{}: {e}", folder().display()))?;
            entries
                .filter_map(|e| Some(e.ok()?.path()))
                .filter(|p| p.extension().is_some_and(|e| e == "toml"))
                .collect()
        }
        path if path.contains('/') => vec![path.into()],
        name => vec![folder().join(name).with_extension("toml")],
    };
    paths.sort();
    plant_as_told();
    for path in &paths {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let scenario: Scenario = toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let result = run(&scenario.plan, !quiet && paths.len() == 1);
        let name = path.file_stem().unwrap_or_default().display();
        match result {
            Ok(_) if quiet => {}
            Ok(_) => println!("ok      {name}: {}", scenario.why),
            Err(wrong) => return Err(format!("FAILED  {name}: {wrong}\n        it once found: {}", scenario.why)),
        }
    }
    Ok(())
}
