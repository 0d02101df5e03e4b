//! `sim`: runs seeds, scenarios and canaries.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// Runs the shipped engine in a world where one seed decides everything
#[derive(Parser)]
#[command(after_help = "Exit codes: 0 nothing was wrong, 1 something was, 2 the command line makes no sense")]
struct Args {
    /// One seed, with what happens in it
    #[arg(long, conflicts_with_all = ["minutes", "scenario", "canary"])]
    seed: Option<u64>,
    /// Seeds from A up to, not including, B
    #[arg(long, value_name = "A..B", default_value = "0..200", value_parser = seeds)]
    seeds: (u64, u64),
    /// Seeds of arrays in parts, or one (then with what happens in it), instead of those in one piece
    #[arg(long, value_name = "A..B", value_parser = seeds_or_one, conflicts_with_all = ["seed", "scenario", "seeds"])]
    parts: Option<(u64, u64)>,
    /// Seeds from A on for so long
    #[arg(long)]
    minutes: Option<u64>,
    /// A plan by name, from sim/scenarios, or by path; "all" of them
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Plants a bug by name and expects a seed to notice it; "all" of them
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

fn seeds(text: &str) -> Result<(u64, u64), String> {
    match text.split_once("..").map(|(a, b)| (a.parse(), b.parse())) {
        Some((Ok(a), Ok(b))) if a < b => Ok((a, b)),
        _ => Err("give a range such as 0..200".to_owned()),
    }
}

fn seeds_or_one(text: &str) -> Result<(u64, u64), String> {
    text.parse().map(|seed: u64| (seed, seed + 1)).or_else(|_| seeds(text))
}

/// What seeds are of.
#[derive(Clone, Copy)]
struct Subject {
    /// The argument that repeats one.
    replay: &'static str,
    run: fn(u64) -> Result<Report, String>,
    /// What can happen.
    kinds: &'static [Kind],
}

/// Arrays in one piece.
const PLAIN: Subject = Subject { replay: "--seed", run: |seed| run(&Plan::of(seed), false), kinds: Kind::ALL };

/// Arrays in parts.
const PARTS: Subject = Subject { replay: "--parts", run: |seed| parts::run(seed, false), kinds: Kind::IN_PARTS };

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match (&args.scenario, &args.canary, args.seed) {
        (Some(name), None, _) => scenarios(name, args.quiet),
        (_, Some(name), _) => canaries(name, args.seeds, args.parts),
        (None, None, Some(seed)) => match (&args.keep, &args.why) {
            (Some(name), Some(why)) => {
                write_scenario(&folder().join(name).with_extension("toml"), why, &Plan::of(seed))
            }
            _ => one(&Plan::of(seed), &args),
        },
        (None, None, None) => match args.parts {
            Some((seed, end)) if seed + 1 == end && args.minutes.is_none() => one_in_parts(seed, &args),
            Some(range) => many(&args, PARTS, range),
            None => many(&args, PLAIN, args.seeds),
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

fn one_in_parts(seed: u64, args: &Args) -> Result<(), String> {
    plant_as_told();
    let report = parts::run(seed, !args.quiet).map_err(|wrong| format!("seed {seed} FAILED: {wrong}"))?;
    if !args.quiet {
        report.print(Kind::IN_PARTS);
    }
    Ok(())
}

/// Runs seeds on several threads, until one fails if they are not to go on.
fn many(args: &Args, subject: Subject, (from, to): (u64, u64)) -> Result<(), String> {
    let begun = Instant::now();
    let limit = args.minutes.map(|m| Duration::from_secs(60 * m));
    let to = if limit.is_some() { u64::MAX } else { to };
    let next = AtomicU64::new(from);
    let stop = AtomicBool::new(false);
    let total = Mutex::new((Report::default(), None::<(u64, String)>));
    let quiet = args.quiet;
    let work = || {
        plant_as_told();
        while !stop.load(Ordering::Relaxed) && limit.is_none_or(|l| begun.elapsed() < l) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                break;
            }
            SEED.set(seed);
            let result = (subject.run)(seed);
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let seed = SEED.get();
        let replay = subject.replay;
        println!("seed {seed} FAILED: panic\nreplay: cargo run --release -p sim -- {replay} {seed}");
        if !quiet {
            usual(info);
        }
        std::process::abort();
    }));
    std::thread::scope(|s| {
        (0..args.jobs.max(1)).for_each(|_| drop(s.spawn(work)));
    });
    let (report, failed) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
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

thread_local! {
    static SEED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Makes a failing seed smaller, each try in a process of its own, and writes what is left down.
fn keep_smallest(seed: u64, wrong: &str, tries: usize) {
    let path = std::env::temp_dir().join(format!("sim-{}.toml", std::process::id()));
    let fails = |plan: &Plan| {
        if write_scenario(&path, wrong, plan).is_err() {
            return false;
        }
        let name = path.display().to_string();
        child(&["--quiet", "--scenario", &name], None) == Some(false)
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

/// Runs this program once more; whether nothing was wrong, `None` when it could not be run or takes for ever.
fn child(args: &[&str], planted: Option<&str>) -> Option<bool> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(name) = planted {
        command.env("SIM_PLANTED", name);
    }
    let mut child = command.spawn().ok()?;
    let begun = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.success());
        }
        if begun.elapsed() > Duration::from_secs(600) {
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

/// Plants bugs, one at a time, and runs seeds until one notices: those of arrays in parts where it is one of theirs.
fn canaries(name: &str, plain: (u64, u64), in_parts: Option<(u64, u64)>) -> Result<(), String> {
    let of_parts: Vec<String> = parts::CANARIES.iter().map(|c| format!("{c:?}")).collect();
    let own = of_parts.iter().cloned().chain([PART_NOT_FLUSHED.to_owned()]);
    let others = Canary::ALL.iter().map(|c| format!("{c:?}")).filter(|c| !of_parts.contains(c));
    let all: Vec<(String, bool)> = others.map(|c| (c, false)).chain(own.map(|c| (c, true))).collect();
    let chosen: Vec<_> = all.iter().filter(|(c, _)| name == "all" || c == name).collect();
    if chosen.is_empty() {
        let names: Vec<&String> = all.iter().map(|(c, _)| c).collect();
        return Err(format!("no canary is called {name}; there are {names:?}"));
    }
    let (mut missed, mut undecided) = (Vec::new(), Vec::new());
    for (canary, is_of_parts) in chosen {
        let begun = Instant::now();
        let (flag, (from, to)) = match in_parts {
            Some(range) => ("--parts", range),
            None if *is_of_parts => ("--parts", plain),
            None => ("--seeds", plain),
        };
        let range = format!("{from}..{to}");
        // One that was ended before its time shows nothing: on a busy machine that is what the machine does.
        let how = match child(&["--quiet", "--shrink", "0", flag, &range], Some(canary)) {
            Some(false) => "noticed",
            Some(true) => {
                missed.push(canary);
                "MISSED"
            }
            None => {
                undecided.push(canary);
                "UNDECIDED"
            }
        };
        println!("{canary:<24} {how:<9} {:>6.1} s", begun.elapsed().as_secs_f64());
    }
    match (missed.is_empty(), undecided.is_empty()) {
        (true, true) => Ok(()),
        _ => Err(format!("no seed noticed {missed:?}; ended before they said anything: {undecided:?}")),
    }
}
