//! `ashlar bench`: direct drives beside arrays, one generator, one run.

use std::time::Duration;

use bench::{Comparison, Load, Pattern, Subject, compare, drives, table};
use ondisk::Level;
use server::drives::Source;
use server::drives::checks::{Checks, Purpose};
use server::size::Size;
use server::{Kind, Problem};

use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::progress::Progress;
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar bench                                             eight drives in memory, RAID 0, 10, 5 and 6
  ashlar bench --memory 8x512M --raid 5 --width 8 --pattern random-write --depth 256
  ashlar bench --force /dev/nvme*n1 --seconds 300          EVERYTHING ON THESE DRIVES IS LOST
  ashlar bench --json | jq '.groups[].rows[] | [.subject, .ratio, .limit]'

Prints rates, and the ratio to the direct drives of the same round beside the limit that theory sets.";

/// Measure direct drives and arrays side by side
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Drives to measure on; everything on them is lost [default: memory]
    drives: Vec<String>,
    /// Drives in memory instead: COUNTxSIZE
    #[arg(long, value_name = "COUNTxSIZE", default_value = "8x512M", conflicts_with = "drives")]
    memory: Memory,
    /// Levels beside the direct drives: 0, 10, 10x3, 5, 6 [default: 0, 10, 5 and 6]
    #[arg(long, value_name = "LEVEL", value_delimiter = ',')]
    raid: Vec<Level>,
    /// Drives that one row goes over [default: all]
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
    /// Bytes worked on [default: an eighth of the drives, at most 1G]
    #[arg(long)]
    working_set: Option<Size>,
    /// Time of all measurements; filling comes on top
    #[arg(long, default_value_t = 15.0)]
    seconds: f64,
    /// Takes drives that hold something; it will be lost
    #[arg(long)]
    force: bool,
    /// Prints an object for scripts
    #[arg(long)]
    pub json: bool,
}

/// Measures.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let report = context.offline(|world| async move {
        let drives = if args.drives.is_empty() {
            drives::memory(&world.rt, args.memory.count, args.memory.size.0).await.map_err(problem)?
        } else {
            let sources = args.drives.iter().map(|d| d.parse::<Source>());
            let sources: Vec<Source> =
                sources.collect::<Result<_, _>>().map_err(|e| Problem::usage("a drive", e, "name a path"))?;
            let checks =
                Checks { rt: &world.rt, registry: &world.registry, purpose: Purpose::Create, force: args.force };
            checks.open_all(&sources).await?
        };
        let mut what = Comparison { loads: args.loads(), ..Comparison::new(drives) };
        if !args.raid.is_empty() {
            let width = args.width.or(Some(what.drives.len()));
            let arrays = args.raid.iter().map(|&level| Subject::Level { level, width });
            what.subjects = std::iter::once(Subject::Direct).chain(arrays).collect();
        } else if let Some(width) = args.width {
            for subject in &mut what.subjects {
                if let Subject::Level { width: w, .. } = subject {
                    *w = Some(width);
                }
            }
        }
        if let Some(size) = args.working_set {
            what.working_set_bytes = size.0;
        }
        let what = what.lasting(args.time());
        let progress = Progress::new(false);
        let (mut step, total) = (0, (what.rounds * what.subjects.len()) as u64);
        let shown = |round: usize, subject: Subject| {
            progress.at(&format!("round {round}, {subject}"), step, total);
            step += 1;
        };
        compare(&world.rt, &what, shown).await.map_err(problem)
    })?;
    if args.json {
        text::print_json(&report);
    } else {
        report.to_string().lines().for_each(text::print);
    }
    Ok(Finding::Good)
}

impl Args {
    /// The time asked for, within reason ("nan" is a number too).
    fn time(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds.clamp(0.1, 86_400.0)).unwrap_or(Duration::from_secs(15))
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
        if self.depth.is_empty() {
            return loads;
        }
        loads.iter().flat_map(|l| self.depth.iter().map(|&d| l.at_depth(d))).collect()
    }
}

/// COUNTxSIZE.
#[derive(Clone, Copy)]
struct Memory {
    count: usize,
    size: Size,
}

impl std::str::FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Memory, String> {
        let wrong = || format!("\"{text}\" is not COUNTxSIZE, such as 8x512M");
        let (count, size) = text.split_once('x').ok_or_else(wrong)?;
        Ok(Memory { count: count.parse().map_err(|_| wrong())?, size: size.parse()? })
    }
}

/// The same kinds of "no" as everywhere; the demo's table uses it too.
pub fn problem(error: bench::Error) -> Problem {
    match error {
        bench::Error::Refused(refused) => Problem::from(*refused),
        bench::Error::Array(fault) => Problem::fault("bench", fault),
        bench::Error::Impossible(why) => Problem::new(Kind::Usage, "usage", "bench", why.to_string(), ""),
        error @ (bench::Error::Drive { .. } | bench::Error::Export(_)) => {
            Problem::failed("bench", error, "the kernel log (`dmesg`) may tell more")
        }
    }
}
