//! `ashlar bench --export`: loads on an export of any server, one after the other.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::Problem;
use bench::Target;
use bench::exported::{Exported, Told, exported};
use lab::model::replace;
use serde::Serialize;

use super::problem;
use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::output;
use crate::text::{self, Table};

/// What is asked of an export.
#[derive(clap::Args)]
#[command(next_help_heading = "Exports")]
pub struct ExportArgs {
    /// Measures an export instead: nvme+tcp://HOST[:PORT][/SUBSYSTEM][?nsid=N&hostnqn=NQN], nbd://HOST/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH
    #[arg(long, value_name = "URI", conflicts_with_all = ["drives", "memory", "model", "raid", "width", "fill", "state", "cores"])]
    export: Option<String>,
    /// Offset of the bytes to work on
    #[arg(long, requires = "export", value_name = "SIZE", value_parser = lab::units::bytes)]
    offset: Option<u64>,
    /// Seconds of load before each measurement
    #[arg(long, requires = "export", value_name = "SECONDS")]
    ramp: Option<f64>,
    /// Covers the bytes once instead, however long that takes
    #[arg(long, requires = "export", conflicts_with = "seconds")]
    once: bool,
    /// Writes the object for scripts to this file, and prints the rate every second
    #[arg(long, requires = "export", value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ExportArgs {
    /// Whether an export is to be measured.
    pub fn is_asked_for(&self) -> bool {
        self.export.is_some()
    }
}

/// All of it, for scripts.
#[derive(Serialize)]
struct Report {
    program: &'static str,
    export: String,
    bytes: u64,
    loads: Vec<Told>,
}

/// Measures.
pub fn run(context: &Context, all: &super::Args) -> Outcome {
    let args = &all.export;
    let name = args.export.clone().unwrap_or_default();
    let wrong = |why: String, hint: &str| Problem::usage("--export", why, hint);
    let uri: ::export::Uri = name.parse().map_err(|why| wrong(why, "see `ashlar bench --help`"))?;
    let loads = all.loads();
    if !all.force && loads.iter().any(|l| !l.pattern.only_reads()) {
        let hint = "--force writes nevertheless; --pattern random-read,sequential-read only reads";
        return Err(wrong(format!("the data of {name} would be overwritten"), hint));
    }
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds.clamp(0.0, 86_400.0)).unwrap_or_default();
    let each = seconds(all.seconds.unwrap_or(15.0)).max(Duration::from_millis(1)) / loads.len().max(1) as u32;
    let depth = loads.iter().map(|l| l.depth).max().unwrap_or(1);
    let report = context.offline(|world| async move {
        let target = Target::connect(&world.rt, &uri, depth).await.map_err(|e| unreachable(&name, &e))?;
        let bytes = target.bytes();
        let start = args.offset.unwrap_or(0);
        let mut told = vec![];
        for load in loads {
            let block = u64::from(load.block_bytes.max(1));
            let end = all.working_set.map_or(bytes, |size| start.saturating_add(size.0));
            // Of a range that is no multiple of a request the end is left out.
            let range = start..start + end.saturating_sub(start) / block * block;
            let time = (!args.once).then_some(each);
            let what = Exported { load, range, ramp: seconds(args.ramp.unwrap_or(0.0)), time, seed: seed() };
            let shown = |second: bench::generate::Second| {
                if args.output.is_some() {
                    output::line(&format!("[{:.0} IOPS]", second.iops));
                }
            };
            told.push(exported(&world.rt, &target, &what, shown).await.map_err(problem)?);
        }
        target.close().await.map_err(problem)?;
        Ok(Report { program: concat!("ashlar bench ", env!("CARGO_PKG_VERSION")), export: name, bytes, loads: told })
    })?;
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        replace(path, text.as_bytes())
            .map_err(|e| Problem::failed(path.display().to_string(), e, "give another file"))?;
    } else if all.json {
        text::print_json(&report);
    } else {
        print(&report);
    }
    Ok(Finding::Good)
}

fn unreachable(name: &str, error: &bench::Error) -> Problem {
    let hint = match error {
        bench::Error::Namespace(::export::nvme::client::Error::Which(_)) => {
            "`ashlar bench --help` shows how to name it"
        }
        _ => "check that it is served and that this host may use it",
    };
    Problem::failed(name, error, hint)
}

/// Other addresses each time: what one run left in a cache is not what the next one asks for.
fn seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// Above this the generator's thread is the limit.
const CPU_SHARE_MAX: f64 = 0.9;

/// For people.
fn print(report: &Report) {
    text::print(&format!("{}: {}", report.export, text::human(report.bytes)));
    let mut table = Table::new(&["LOAD", ">IOPS", ">RATE", ">P50 us", ">P99 us", ">P99.9 us", ">LONGEST us", ">CPU"]);
    for told in &report.loads {
        let bytes_per_sec = told.read.bytes_per_sec + told.write.bytes_per_sec;
        let us = |us: f64| format!("{us:.1}");
        table.row(vec![
            told.load.to_string(),
            text::count(told.iops()),
            format!("{}/s", text::human(bytes_per_sec as u64)),
            us(told.p50_us),
            us(told.p99_us),
            us(told.p999_us),
            us(told.max_us),
            told.cpu_share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        ]);
    }
    table.lines().iter().for_each(|line| text::print(line));
    if report.loads.iter().any(|told| told.cpu_share.is_some_and(|share| share > CPU_SHARE_MAX)) {
        text::print(
            "CPU is the share of its core that the load generator used: near 100 % the generator is the limit, not \
             the export.",
        );
    }
}
