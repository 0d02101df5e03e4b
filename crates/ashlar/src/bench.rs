//! `ashlar bench`: direct drives beside arrays, one generator, one run; or a load on an export of any server.

mod export;

use std::time::Duration;

use api::{Kind, Problem};
use bench::condition::Condition;
use bench::drives::{DriveFile, FILES};
use bench::{Comparison, CoreCounts, Fill, Load, Pattern, Report, State, Subject, compare, drives, table};
use ondisk::Level;
use rt::{Drive, Rt};
use server::drives::Source;
use server::drives::checks::{Checks, Purpose};
use server::size::Size;

use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::progress::Progress;
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar bench                                             eight memory drives, RAID 0, 10, 5 and 6
  ashlar bench --memory 8x512M --raid 5 --width 8 --pattern random-write --depth 256
  ashlar bench --model equal-cost --fill fresh,80          modelled drives: repeatable figures
  ashlar bench --model tlc:5x2G --raid 5 --fill 80 --pattern random-write
  ashlar bench --model qlc:8x2G --raid 10,10-in-place --fill 80 --pattern random-write --seconds 2
  ashlar bench --model equal-cost --state degraded,rebuilding --raid 6 --width 6
  ashlar bench --cores 1,2 --raid 5 --pattern random-read  what a request costs on 1 and 2 cores
  ashlar bench --force /dev/nvme*n1 --seconds 300          EVERYTHING ON THESE DRIVES IS LOST
  ashlar bench --export nvme+tcp://10.0.0.7 --pattern random-read --depth 1,32,256
  ashlar bench --export nbd+unix:///fast/db?socket=/run/nbd --pattern random-write --force
  ashlar bench --json | jq '.groups[].rows[] | [.subject, .ratio, .limit]'

Prints rates, and their ratio to the direct drives of the same round beside the theoretical limit. An export has \
nothing to compare with: it is measured as it is, by one thread, and nothing is filled before.";

/// Measure direct drives and arrays side by side
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Drives to measure on; all data on them is lost [default: memory]
    drives: Vec<String>,
    /// Uses drives in memory instead: COUNTxSIZE
    #[arg(long, value_name = "COUNTxSIZE", default_value = "8x512M", conflicts_with = "drives")]
    memory: Several,
    /// Uses modelled drives instead, in virtual time: equal-cost, tlc, qlc or a file, and how many [default: 8x512M]
    #[arg(long, value_name = "NAME[:COUNTxSIZE]", conflicts_with_all = ["drives", "memory"])]
    model: Option<Model>,
    /// Levels to compare with the direct drives: 0, 10, 10x3, 5, 6, or 10-in-place, which is plain mirroring: pairs of
    /// drives written in place [default: 0, 10, 5 and 6]
    #[arg(long, value_name = "LEVEL", value_delimiter = ',')]
    raid: Vec<Asked>,
    /// Drives in one row [default: all; all but one where arrays are rebuilt]
    #[arg(long)]
    width: Option<usize>,
    /// random-read, random-write, sequential-read, sequential-write, random-70 (70 % reads)
    #[arg(long, value_delimiter = ',')]
    pattern: Vec<Pattern>,
    /// Size of a request [default: 4K random, 128K sequential]
    #[arg(long)]
    block: Option<Size>,
    /// Requests in flight [default: 64 random, 16 sequential]
    #[arg(long, value_delimiter = ',')]
    depth: Vec<usize>,
    /// Limit of requests per second [default: none]
    #[arg(long)]
    rate: Option<u64>,
    /// fresh, or the percentage of usable space to fill and then overwrite until the rate is steady
    #[arg(long, value_delimiter = ',', default_value = "fresh")]
    fill: Vec<Fill>,
    /// optimal, degraded, rebuilding (or rebuilding-low, rebuilding-high)
    #[arg(long, value_delimiter = ',', default_value = "optimal")]
    state: Vec<State>,
    /// Numbers of cores, such as 1,2 or 1..4: each core generates its share of the load and has a part of the array, and
    /// requests to another core's part cross over; memory drives are split among the cores
    #[arg(long, value_name = "LIST", default_value = "1")]
    cores: CoreCounts,
    /// Bytes worked on when fresh [default: an eighth of the drives, at most 1G; all of an export]
    #[arg(long)]
    working_set: Option<Size>,
    /// Total time of the measurements, without filling [default: 15; with modelled drives 0.1 for each]
    #[arg(long)]
    seconds: Option<f64>,
    /// Accepts drives that hold data, and writes to an export; their data is lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    export: export::ExportArgs,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Measures.
pub fn run(context: &Context, args: &Args) -> Outcome {
    if args.export.is_asked_for() {
        return export::run(context, args);
    }
    let report = match &args.model {
        Some(model) => {
            // The clock of this runtime is the model's.
            let rt = Rt::modelled(1);
            let drives = drives::modelled(&rt, model.several.count, &model.file.params(model.several.size.0));
            let what = Comparison { rounds: 1, read_cost: model.file.read_cost(), ..args.comparison(drives) };
            rt.block_on(args.measure(&rt, what))?
        }
        None => context.offline(|world| async move {
            let drives = if args.drives.is_empty() {
                fits_memory(&args.memory, server::memory::available())?;
                drives::memory(&world.rt, args.memory.count, args.memory.size.0).await.map_err(problem)?
            } else {
                let sources = args.drives.iter().map(|d| d.parse::<Source>());
                let sources: Vec<Source> =
                    sources.collect::<Result<_, _>>().map_err(|e| Problem::usage("a drive", e, "name a path"))?;
                let checks = Checks {
                    rt: &world.rt,
                    registry: &world.registry,
                    purpose: Purpose::Create,
                    force: args.force,
                    take_from: &[],
                };
                checks.open_all(&sources).await?
            };
            args.measure(&world.rt, args.comparison(drives)).await
        })?,
    };
    if args.json {
        text::print_json(&report);
    } else {
        report.to_string().lines().for_each(text::print);
    }
    Ok(Finding::Good)
}

/// Modelled time of one measurement, in seconds.
const MODELLED_SECONDS: f64 = 0.1;

impl Args {
    async fn measure(&self, rt: &Rt, what: Comparison) -> Result<Report, Problem> {
        let what = self.lasting(what);
        let progress = Progress::new(false);
        let (mut step, total) = (0, (what.rounds * what.conditions.len() * what.subjects.len()) as u64);
        let shown = |round: usize, condition: Condition, subject: Subject| {
            progress.at(&format!("round {round}, {subject}{condition}"), step, total);
            step += 1;
        };
        compare(rt, &what, shown).await.map_err(problem)
    }

    fn comparison(&self, drives: Vec<Drive>) -> Comparison {
        let mut conditions = vec![];
        for &fill in &self.fill {
            for &state in &self.state {
                conditions.extend(self.cores.0.iter().map(|&cores| Condition { fill, state, cores }));
            }
        }
        let mut what = Comparison { loads: self.loads(), conditions, ..Comparison::new(drives) };
        // A rebuild wants a place.
        let place = usize::from(self.state.iter().any(|s| matches!(s, State::Rebuilding(_))));
        let most = self.width.unwrap_or(what.drives.len().saturating_sub(place));
        what.subjects = Subject::all_levels(most);
        if !self.raid.is_empty() {
            // What the drives do not allow is refused as it was asked for.
            let asked = self.raid.iter().map(|&asked| {
                let Asked::Level(level) = asked else { return Subject::InPlaceRaid10 };
                let widest = Subject::widest(level, most).filter(|_| self.width.is_none());
                widest.unwrap_or(Subject::Level { level, width: Some(most) })
            });
            what.subjects = std::iter::once(Subject::Direct).chain(asked).collect();
        }
        if let Some(size) = self.working_set {
            what.working_set_bytes = size.0;
        }
        what
    }

    /// The time asked for, within reason ("nan" is a number too).
    fn lasting(&self, what: Comparison) -> Comparison {
        let time = |seconds: f64| Duration::try_from_secs_f64(seconds.clamp(0.001, 86_400.0));
        let measurements = what.rounds * what.conditions.len() * what.subjects.len() * what.loads.len();
        let usual = if self.model.is_some() { measurements as f64 * MODELLED_SECONDS } else { 15.0 };
        what.lasting(time(self.seconds.unwrap_or(usual)).unwrap_or(Duration::from_secs(15)))
    }

    fn loads(&self) -> Vec<Load> {
        let mut loads: Vec<Load> = if self.pattern.is_empty() {
            table::LOADS.to_vec()
        } else {
            self.pattern.iter().map(|&p| Load::usual(p)).collect()
        };
        if let Some(block) = self.block {
            let block_bytes = u32::try_from(block.0).unwrap_or(u32::MAX);
            loads.iter_mut().for_each(|l| l.block_bytes = block_bytes);
        }
        loads.iter_mut().for_each(|l| l.iops_max = self.rate);
        if self.depth.is_empty() {
            return loads;
        }
        loads.iter().flat_map(|l| self.depth.iter().map(|&d| l.at_depth(d))).collect()
    }
}

/// What is asked for beside direct drives.
#[derive(Clone, Copy)]
enum Asked {
    Level(Level),
    InPlaceRaid10,
}

impl std::str::FromStr for Asked {
    type Err = <Level as std::str::FromStr>::Err;

    fn from_str(text: &str) -> Result<Asked, Self::Err> {
        if text == "10-in-place" { Ok(Asked::InPlaceRaid10) } else { text.parse().map(Asked::Level) }
    }
}

/// COUNTxSIZE.
#[derive(Clone, Copy)]
struct Several {
    count: usize,
    size: Size,
}

impl std::str::FromStr for Several {
    type Err = String;

    fn from_str(text: &str) -> Result<Several, String> {
        let wrong = || format!("\"{text}\" is not valid: write COUNTxSIZE, such as 8x512M");
        let (count, size) = text.split_once('x').ok_or_else(wrong)?;
        Ok(Several { count: count.parse().map_err(|_| wrong())?, size: size.parse()? })
    }
}

/// Refuses drives in memory for which there is none: the kernel would end the process in the middle.
fn fits_memory(memory: &Several, available: Option<u64>) -> Result<(), Problem> {
    let wanted = (memory.count as u64).saturating_mul(memory.size.0);
    match available {
        Some(available) if wanted > available => Err(Problem::usage(
            "--memory",
            format!("the drives need {}, {} of memory are available", Size(wanted), Size(available)),
            "use fewer or smaller drives, such as --memory 8x512M",
        )),
        Some(_) | None => Ok(()),
    }
}

/// What modelled drives are like, and how many there are.
#[derive(Clone)]
struct Model {
    file: DriveFile,
    several: Several,
}

impl std::str::FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Model, String> {
        // A path may hold colons; what follows the last one is a number of drives, or part of the path.
        let (name, several) = match text.rsplit_once(':').map(|(name, several)| (name, several.parse())) {
            Some((name, Ok(several))) => (name, several),
            _ => (text, "8x512M".parse()?),
        };
        let file = match DriveFile::named(name) {
            Some(file) => file,
            None => {
                let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
                let wrong = |e: &dyn std::fmt::Display| format!("{name}: {e}; use {} or a file", names.join(", "));
                let text = std::fs::read_to_string(name).map_err(|e| wrong(&e))?;
                DriveFile::parse(&text).map_err(|e| wrong(&e))?
            }
        };
        Ok(Model { file, several })
    }
}

/// The same kinds of "no" as everywhere; the demo's table uses it too.
pub fn problem(error: bench::Error) -> Problem {
    match error {
        bench::Error::Refused(refused) => Problem::from(*refused),
        bench::Error::Array(fault) => server::problem::fault("bench", fault),
        bench::Error::Impossible(why) => {
            // The lab tells this one from the others.
            let code = if why == bench::Impossible::RebuildOver { "rebuild_over" } else { "usage" };
            Problem::new(Kind::Usage, code, "bench", why.to_string(), "")
        }
        error @ (bench::Error::NoCore(_) | bench::Error::CoreEnded | bench::Error::NotSent { .. }) => {
            Problem::failed("bench", error, "measure on one core")
        }
        error @ (bench::Error::Drive { .. }
        | bench::Error::Part(_)
        | bench::Error::Export(_)
        | bench::Error::Namespace(_)) => Problem::failed("bench", error, "the kernel log (`dmesg`) may say more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_drives_fit_the_memory() {
        let drives: Several = "8x512M".parse().unwrap();
        assert!(fits_memory(&drives, Some(4 << 30)).is_ok() && fits_memory(&drives, None).is_ok());
        let refused = fits_memory(&drives, Some((4 << 30) - 1)).unwrap_err();
        assert!(refused.why.contains("4 GiB") && refused.todo.contains("--memory"), "{refused}");
    }
}
