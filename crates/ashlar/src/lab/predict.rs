//! `ashlar lab predict`: what a system would do, before it is bought.

use std::path::PathBuf;

use api::Problem;
use lab::forecast::{Forecast, forecast};
use lab::learning::{check, learn_drive, write_drive};
use lab::model::Run;
use lab::spent::{Spent, thread_cpu_seconds};
use lab::units;
use predict::{
    DriveFile, DriveState, Ended, Engine, HostFigures, Level, Load, Network, Origin, Pressure, Swing, System, Workload,
};
use serde_json::json;

use super::problem;
use crate::exit::{Finding, Outcome};
use crate::text::{self, Table};

const EXAMPLES: &str = "\
Examples:
  ashlar lab predict --drives 12xp5316 --raid 6 --workload 4k-randwrite --fill 80%
  ashlar lab predict --drives 12xp5316 --raid 6 --parts 12 --workload 4k-randwrite --fill 80%
  ashlar lab predict --drives 8xp5520 --engine in-place --raid 5 --workload 8k-70/30 --depth 8
  ashlar lab predict --system r760-perc12 --workload 4k-randread --writes-per-day 40T
  ashlar lab predict --learn lab-smoke --out mine.toml      a drive file from a run on one drive
  ashlar lab predict --check lab-other --drive mine.toml    how far off it is under other loads
  ashlar lab predict --drives 8xmine.toml --raid 5 --workload 4k-randread

Drives: p5520, p5316, gen5-tlc, s3700, s4510, nl-sas, or a file. Systems: r760-direct, r760-perc12, r760-perc12x2, h755n, \
h730p, vss2249p, s3700x24, or a file. A figure of a model is MODEL, never PASS; docs/model.md shows how far off it was.";

/// Predict rate, latency, limit and drive life of a system from a model
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Count and kind of drives: 12xp5316, or 12xFILE.toml
    #[arg(long, value_name = "NxDRIVE", conflicts_with = "system")]
    drives: Option<String>,
    /// A system that comes with the program, or a file
    #[arg(long, value_name = "NAME")]
    system: Option<String>,
    /// RAID level: 10, 5, 6, or jbod
    #[arg(long, value_name = "LEVEL")]
    raid: Option<Level>,
    /// What is between: ashlar, in-place (RAID in software), card (PERC 12, one for eight drives), direct
    /// [default: ashlar]
    #[arg(long, value_name = "ENGINE", value_parser = engine)]
    engine: Option<Engine>,
    /// Drives of a row [default: all, up to 16]
    #[arg(long, value_name = "N")]
    width: Option<u32>,
    /// Cores of the host; RAID in place has half of them [default: 32]
    #[arg(long, value_name = "N")]
    cores: Option<f64>,
    /// Parts of an Ashlar array, each on a core of its own: 1 to 16, and half of the cores at most
    #[arg(long, value_name = "N", default_value_t = 1)]
    parts: u32,
    /// Network to the hosts: 25gbe, 100gbe or 32gfc, and how many ports
    #[arg(long, value_name = "NAME:PORTS")]
    network: Option<String>,
    /// While a drive is rebuilt
    #[arg(long)]
    rebuilding: bool,
    /// Requests: SIZE-randread, SIZE-randwrite, SIZE-read, SIZE-write (in order), SIZE-70/30 (reads/writes)
    #[arg(long, value_name = "LOAD", required_unless_present_any = ["learn", "check"])]
    workload: Option<Workload>,
    /// Requests in flight for each drive
    #[arg(long, value_name = "N", default_value_t = 32.0, conflicts_with = "rate")]
    depth: f64,
    /// Requests a second instead
    #[arg(long, value_name = "IOPS")]
    rate: Option<f64>,
    /// How much of what volumes may have holds data
    #[arg(long, value_name = "PERCENT", default_value = "80%", value_parser = share)]
    fill: f64,
    /// How much of it the load works on [default: all that is filled]
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    slice: Option<f64>,
    /// How often that was overwritten since the fill [default: until it was steady]
    #[arg(long, value_name = "TIMES")]
    age: Option<f64>,
    /// Bytes that hosts write a day, for the life of drives [default: half of what volumes may have]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    writes_per_day: Option<u64>,
    /// Seed: the same one gives the same digits
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Makes a drive file from a run of the lab on one drive
    #[arg(long, value_name = "RESULT", requires = "out", conflicts_with_all = ["drives", "system", "check"])]
    learn: Option<PathBuf>,
    /// Where it goes
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Compares runs on one drive with its file; may be repeated
    #[arg(long, value_name = "RESULT", requires = "drive", conflicts_with_all = ["drives", "system"])]
    check: Vec<PathBuf>,
    /// The drive file to compare with
    #[arg(long, value_name = "FILE")]
    drive: Option<PathBuf>,
}

fn engine(word: &str) -> Result<Engine, String> {
    match word {
        "ashlar" => Ok(Engine::Ashlar),
        "in-place" => Ok(Engine::InPlace),
        "card" => Ok(Engine::Card),
        "direct" => Ok(Engine::Direct),
        _ => Err("valid: ashlar, in-place, card, direct".to_owned()),
    }
}

fn share(word: &str) -> Result<f64, String> {
    let number = word.trim_end_matches('%').parse::<f64>().ok().filter(|p| (1.0..=100.0).contains(p));
    number.map(|p| p / 100.0).ok_or_else(|| "valid: 1% to 100%".to_owned())
}

/// Says what was wrong with a system or a load.
pub(super) fn usage(error: predict::Error) -> Problem {
    Problem::usage("the model", error, "`ashlar lab predict --help` has examples")
}

/// Predicts, learns or checks.
pub fn run(json: bool, args: &Args) -> Outcome {
    if let (Some(result), Some(out)) = (&args.learn, &args.out) {
        return learn(json, result, out);
    }
    if let (false, Some(file)) = (args.check.is_empty(), &args.drive) {
        return checked(json, args, file);
    }
    let Some(workload) = args.workload else {
        return Err(Problem::usage("--workload", "it is missing", "such as --workload 4k-randwrite"));
    };
    let system = args.system()?;
    let load = Load {
        pressure: args.rate.map_or(Pressure::InFlightPerDrive(args.depth), Pressure::Rate),
        fill: args.fill,
        slice: args.slice.unwrap_or(args.fill).min(args.fill),
        age: args.age.unwrap_or(f64::INFINITY),
        ..Load::new(workload)
    };
    let usable = predict::usable_bytes(&system).unwrap_or(0.0);
    let daily = args.writes_per_day.map_or(usable / 2.0, |bytes| bytes as f64);
    let begun = thread_cpu_seconds();
    let found = forecast(&system, &load, Some(daily).filter(|d| *d > 0.0), args.seed).map_err(problem)?;
    let cpu_seconds = thread_cpu_seconds() - begun;
    let spent = Spent { cpu_seconds, requests: found.requests, ..Spent::default() };
    if json {
        // What it took stands apart: the forecast has the same digits wherever it is made.
        text::print_json(&json!({ "badge": "MODEL", "workload": workload.to_string(), "fill": load.fill,
            "slice": load.slice, "forecast": found, "cpu_seconds": cpu_seconds,
            "simulated_per_cpu_second": spent.requests_per_cpu_second() }));
    } else {
        print(&found, &load);
        text::print(&spent.words());
    }
    Ok(Finding::Good)
}

impl Args {
    /// The system that was asked for.
    fn system(&self) -> Result<System, Problem> {
        let mut system = match (&self.system, &self.drives) {
            (Some(name), _) if name.ends_with(".toml") => {
                System::parse(&read(name)?).map_err(|why| Problem::usage(name, why, "see crates/predict/systems"))?
            }
            (Some(name), _) => System::named(name).map_err(usage)?,
            (None, Some(drives)) => self.of_drives(drives)?,
            (None, None) => return Err(Problem::usage("--drives", "it is missing", "such as --drives 12xp5316")),
        };
        system.level = self.raid.unwrap_or(system.level);
        system.width = self.width.unwrap_or(system.width);
        system.host.cores = self.cores.unwrap_or(system.host.cores);
        system.host.parts = self.parts;
        if let Some(engine) = self.engine {
            system.engine = engine;
        }
        if system.engine == Engine::Card && system.card.is_none() {
            let card = System::named("r760-perc12").map_err(usage)?.card;
            system.card = card.map(|c| predict::Card { count: system.count.div_ceil(8), ..c });
        }
        if self.rebuilding {
            system.state = DriveState::Rebuilding;
        }
        if let Some(network) = &self.network {
            let (name, ports) = network.split_once(':').unwrap_or((network, "1"));
            let ports = ports.parse().map_err(|_| Problem::usage("--network", network, "such as 25gbe:4"))?;
            system.network = Some(Network::named(name, ports).map_err(usage)?);
        }
        system.check().map_err(usage)?;
        Ok(system)
    }

    fn of_drives(&self, words: &str) -> Result<System, Problem> {
        let wrong =
            || Problem::usage("--drives", format!("\"{words}\" is not a count and a drive"), "such as 12xp5316");
        let (count, name) = words.split_once('x').ok_or_else(wrong)?;
        let count: u32 = count.parse().map_err(|_| wrong())?;
        let file = if name.ends_with(".toml") { drive_file(name)? } else { DriveFile::named(name).map_err(usage)? };
        let engine = self.engine.unwrap_or(Engine::Ashlar);
        let level = if engine == Engine::Direct { Level::Jbod } else { Level::Raid6 };
        Ok(System {
            name: file.name.clone(),
            about: file.about.clone(),
            drives: file.name.clone(),
            count,
            engine,
            level,
            width: 0,
            state: DriveState::Optimal,
            host: HostFigures { cores: 32.0, request_us: 4.5, vdbench_request_us: None, parts: 0 },
            card: None,
            network: None,
            drive_file: Some(file),
        })
    }
}

fn read(path: &str) -> Result<String, Problem> {
    std::fs::read_to_string(path).map_err(|e| Problem::failed(path, e, "look at the path and its rights"))
}

fn drive_file(path: &str) -> Result<DriveFile, Problem> {
    DriveFile::parse(&read(path)?).map_err(|why| Problem::usage(path, why, "see crates/predict/drives for examples"))
}

/// Letters of the longest bar.
const BAR_LETTERS: f64 = 30.0;
/// A figure that moves the answer by less is not told.
const SWING_MIN: f64 = 0.01;

/// The answer, the range and the reason, in this order.
fn print(found: &Forecast, load: &Load) {
    let a = &found.answer;
    let rate = |iops: f64| match load.workload.block_bytes {
        b if b <= 16384 => format!("{} IOPS", text::count(iops)),
        b => units::rate(iops * f64::from(b)),
    };
    let range = format!("{} to {}", rate(found.iops_range.0), rate(found.iops_range.1));
    text::print(&format!("MODEL  {}: {}, {:.0} % full", found.system.title(), load.workload, load.fill * 100.0));
    text::print("");
    let latency = format!("mean {}, p99 {}", units::latency(a.mean_us), units::latency(a.p99_us));
    match load.pressure {
        Pressure::Rate(rate) if !a.kept => {
            text::print(&format!("{rate:.0} IOPS cannot be kept: the p99 is {} and grows", units::latency(a.p99_us)));
        }
        Pressure::Rate(_) => text::print(&format!("At {}: {latency}", rate(a.iops))),
        Pressure::InFlightPerDrive(_) => text::print(&format!("{} ({range}), {latency}", rate(a.iops))),
    }
    text::print(&match found.range_rests_on {
        0 => "Range: no published figure is of such a system; errors of this kind of load on others (docs/model.md)"
            .to_owned(),
        rows => format!("Range: errors of the model for {rows} published figures of this kind (docs/model.md)"),
    });
    text::print(&format!(
        "First minutes, drives just filled: {}, p99 {}",
        rate(found.fresh.iops),
        units::latency(found.fresh.p99_us)
    ));
    if let Some(first) = found.ladder.first() {
        let what = if first.gain > 1.05 { first.without.words() } else { "no part alone" };
        text::print(&format!("Limit: {what}"));
        print_ladder(found);
        print_sensitivity(found);
    }
    if let Some(life) = &found.life {
        text::print(&format!(
            "Drive life: {:.1} years at {} a day from hosts ({} to each drive, {} to its flash)",
            life.years,
            units::capacity(life.host_bytes_per_day as u64),
            units::capacity(life.drive_bytes_per_day as u64),
            units::capacity(life.flash_bytes_per_day as u64)
        ));
    }
    text::print(&format!("Usable: {:.1} TB; CPU {:.1} us a request", found.usable_bytes / 1e12, a.cpu_us));
    text::print("");
    let mut table = Table::new(&["OTHER LAYOUTS", ">IOPS", ">P99", ">USABLE TB", ">WRITTEN", ">LIFE"]);
    for rival in &found.rivals {
        let written = if rival.drive_bytes_per_byte > 0.0 {
            format!("{:.2}", rival.drive_bytes_per_byte)
        } else {
            "-".to_owned()
        };
        table.row(vec![
            rival.title.split_once(", ").map_or(rival.title.clone(), |(_, rest)| rest.to_owned()),
            text::count(rival.iops),
            units::latency(rival.p99_us),
            format!("{:.1}", rival.usable_bytes / 1e12),
            written,
            rival.years.map_or("-".to_owned(), |y| format!("{y:.1} years")),
        ]);
    }
    table.print();
    let ended = match a.ended {
        Ended::Known => format!("known within {:.1} %", a.known_within * 100.0),
        Ended::Seconds => "ended after 2 virtual seconds".to_owned(),
        Ended::Requests => "ended after 4 million requests".to_owned(),
    };
    text::print(&format!("Simulated {} requests, {:.3} virtual seconds: {ended}", a.requests, a.seconds));
}

/// The rate as it is, and with each part made infinite in turn, as bars of one scale.
fn print_ladder(found: &Forecast) {
    let most = found.ladder.iter().map(|rung| rung.iops).fold(found.answer.iops, f64::max);
    let mut table = Table::new(&["WITHOUT THE LIMIT OF", ">IOPS", ">GAIN", ""]);
    let mut row = |what: &str, iops: f64, gain: String| {
        table.row(vec![what.to_owned(), text::count(iops), gain, bar(iops / most)]);
    };
    row("nothing: as it is", found.answer.iops, String::new());
    for rung in &found.ladder {
        row(rung.without.words(), rung.iops, format!("x {:.2}", rung.gain));
    }
    table.print();
}

/// A share as a bar.
fn bar(share: f64) -> String {
    let letters = (share.clamp(0.0, 1.0) * BAR_LETTERS).round() as usize;
    "#".repeat(letters.max(1))
}

/// What a fifth more or less of each figure does to the answer.
fn print_sensitivity(found: &Forecast) {
    let (told, still): (Vec<&Swing>, Vec<&Swing>) = found.sensitivity.iter().partition(|s| s.most() >= SWING_MIN);
    let percent = |to_whole: f64| format!("{:+.0} %", (to_whole - 1.0) * 100.0);
    if !told.is_empty() {
        let mut table = Table::new(&["IF THIS FIGURE IS WRONG", ">20 % LESS", ">20 % MORE", "IT IS"]);
        for swing in &told {
            let origin = match swing.origin {
                Some(Origin::Sheet) => "the maker's",
                Some(Origin::Derived) => "derived from the maker's",
                Some(Origin::Assumed) => "assumed",
                None => "-",
            };
            table.row(vec![swing.figure.clone(), percent(swing.smaller), percent(swing.larger), origin.to_owned()]);
        }
        table.print();
    }
    if !still.is_empty() {
        text::print(&format!("A fifth more or less of {} other figures moves it by less than 1 %", still.len()));
    }
}

fn learn(json: bool, result: &std::path::Path, out: &std::path::Path) -> Outcome {
    let run = Run::read(result).map_err(problem)?;
    let name = out.file_stem().map_or("learnt".to_owned(), |s| s.to_string_lossy().into_owned());
    let file = learn_drive(&name, &run).map_err(problem)?;
    write_drive(&file, result, out).map_err(problem)?;
    if json {
        text::print_json(&file);
    } else {
        text::print(&format!("{}: {} ({})", out.display(), file.name, file.about));
    }
    Ok(Finding::Good)
}

fn checked(json: bool, args: &Args, file: &std::path::Path) -> Outcome {
    let drive = drive_file(&file.display().to_string())?;
    let runs: Vec<Run> = args.check.iter().map(|p| Run::read(p)).collect::<Result<_, _>>().map_err(problem)?;
    let all = check(&drive, &runs, args.seed).map_err(problem)?;
    if json {
        text::print_json(&all);
        return Ok(Finding::Good);
    }
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{:.0} %", s * 100.0));
    let mut table =
        Table::new(&["CELL", "LOAD", ">IN FLIGHT", ">MEASURED", ">MODEL", ">ERROR", ">WITHIN A CELL", ">RUN TO RUN"]);
    for c in &all {
        table.row(vec![
            c.cell.clone(),
            c.load.clone(),
            format!("{:.0}", c.in_flight),
            text::count(c.measured_iops),
            text::count(c.modelled_iops),
            format!("{:+.0} %", c.error * 100.0),
            percent(c.spread_within),
            percent(c.spread_runs),
        ]);
    }
    table.print();
    let mut errors: Vec<f64> = all.iter().map(|c| c.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let (median, largest) = (errors.get(errors.len() / 2), errors.last());
    if let (Some(median), Some(largest)) = (median, largest) {
        text::print(&format!(
            "Error: median {:.0} %, largest {:.0} %. The last two columns are the machine's own spread.",
            median * 100.0,
            largest * 100.0
        ));
    }
    Ok(Finding::Good)
}
