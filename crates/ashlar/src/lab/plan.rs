//! `ashlar lab plan`: cells, time and wear.

use api::Problem;
use lab::array::{Control, Hooks, Served};
use lab::bench::Bench;
use lab::hosts::Host;
use lab::model::Part;
use lab::plan::{Plan, Wishes};
use lab::safety;
use lab::suite::Suite;
use lab::target::Target;
use lab::units;
use serde_json::json;

use super::{export, problem};
use crate::context::{Context, absolute_drive};
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar lab plan smoke /tmp/file --size 1G
  ashlar lab plan raid-card /dev/md0 --budget 2h          what fits into two hours
  ashlar lab plan steady-state /dev/nvme1n1 --write-rate 5G
  ashlar lab plan transport nbd+unix:///fast/db?socket=/run/lab.sock";

/// Show what a suite would measure on a target: cells, time, and the bytes that it writes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A suite of `ashlar lab list`, or a .toml file
    suite: String,
    /// A file, a block device, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH or
    /// nvme+tcp://HOST[:PORT][/SUBSYSTEM][?nsid=N]
    target: String,
    #[command(flatten)]
    wishes: WishArgs,
    #[command(flatten)]
    array: ArrayArgs,
}

/// What can be wished for, of a plan and of a run.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct WishArgs {
    /// Size of a file to create; of an export, bytes to use [default: its size]
    #[arg(long, value_parser = units::bytes)]
    pub size: Option<u64>,
    /// Time limit, such as 90m or 2h; tests that do not fit are omitted
    #[arg(long, value_parser = units::seconds)]
    pub budget: Option<f64>,
    /// Omits writes below this size, for drives with a larger indirection unit
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub write_min: Option<u64>,
    /// Write rate per second for the estimates of time and wear [default: 2e9]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub write_rate: Option<u64>,
    /// Hosts that run each load together, each with all its threads: HOST[:PORT] of a `fio --server`, separated by commas;
    /// the target has the same name on all of them
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', value_parser = str::parse::<Host>)]
    pub hosts: Vec<Host>,
    /// Another target, measured alone and together with the first, or only together where the suite says so; may be repeated
    #[arg(long, value_name = "TARGET")]
    pub beside: Vec<String>,
}

/// How the array behind the target is failed and rebuilt.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Array states")]
pub struct ArrayArgs {
    /// The array behind the target, when an Ashlar serves it
    #[arg(long, value_name = "ARRAY", requires = "array_drive", conflicts_with = "hook_fail")]
    array: Option<String>,
    /// The drive of the array to fail
    #[arg(long, value_name = "DRIVE", requires = "array")]
    array_drive: Option<String>,
    /// Its replacement, whose data is lost [default: the same drive]
    #[arg(long, value_name = "DRIVE", requires = "array")]
    array_spare: Option<String>,
    /// For other arrays: a command that fails a drive
    #[arg(long, value_name = "COMMAND", requires = "hook_replace")]
    hook_fail: Option<String>,
    /// A command that adds a drive; the rebuild starts
    #[arg(long, value_name = "COMMAND", requires = "hook_fail")]
    hook_replace: Option<String>,
    /// A command that returns when the rebuild is done
    #[arg(long, value_name = "COMMAND", requires = "hook_fail")]
    hook_wait: Option<String>,
    /// A command that prints optimal, degraded or rebuilding, and the percentage rebuilt; instead of --hook-wait
    #[arg(long, value_name = "COMMAND", requires = "hook_fail")]
    hook_state: Option<String>,
}

impl ArrayArgs {
    /// As the lab takes it.
    pub fn control(&self, context: &Context) -> Option<Control> {
        if let (Some(array), Some(drive)) = (&self.array, &self.array_drive) {
            return Some(Control::Served(Served {
                array: array.clone(),
                drive: as_member(drive),
                spare: as_member(self.array_spare.as_ref().unwrap_or(drive)),
                socket: context.control.display().to_string(),
            }));
        }
        let (fail, replace) = (self.hook_fail.clone()?, self.hook_replace.clone()?);
        Some(Control::Hooks(Hooks { fail, replace, wait: self.hook_wait.clone(), state: self.hook_state.clone() }))
    }
}

/// A drive as the server lists it: links to devices are followed.
fn as_member(name: &str) -> String {
    std::fs::canonicalize(name).map_or_else(|_| absolute_drive(name), |path| path.display().to_string())
}

impl WishArgs {
    /// As the lab takes them.
    pub fn wishes(&self, targets: &[Target], array_control: bool) -> Wishes {
        Wishes {
            array_control,
            budget_seconds: self.budget,
            write_bytes_min: self.write_min,
            write_bytes_per_sec: self.write_rate.filter(|r| *r > 0).map(|r| r as f64),
            hosts: u32::try_from(self.hosts.len()).unwrap_or(u32::MAX),
            targets: u32::try_from(targets.len()).unwrap_or(u32::MAX),
            bytes_max: targets.iter().map(|t| t.bytes).min(),
        }
    }

    /// All targets, looked at; the first is `name`.
    ///
    /// # Errors
    /// When one is none, or they cannot be measured together.
    pub fn targets(&self, context: &Context, name: &str) -> Result<Vec<Target>, Problem> {
        let names = std::iter::once(name).chain(self.beside.iter().map(String::as_str));
        let look = |name| export::target(context, name, self.size);
        let targets: Vec<Target> = names.map(look).collect::<Result<_, _>>()?;
        lab::together::check(&targets).map_err(problem)?;
        Ok(targets)
    }

    /// Whether what was asked for of several targets can be had.
    ///
    /// # Errors
    /// When it cannot: what, and why.
    pub fn check_beside(&self, plan: &Plan, array_control: bool) -> Result<(), Problem> {
        let refused =
            |why: &str, other: &str| Err(Problem::usage("--beside", why, format!("omit --beside, or {other}")));
        if self.beside.is_empty() {
            return Ok(());
        }
        if !self.hosts.is_empty() {
            return refused("several hosts can load one target only", "--hosts");
        }
        if array_control {
            return refused("array states can be measured on one target only", "--array and the hooks");
        }
        if plan.steps.iter().all(|s| s.load.targets.is_none()) {
            let why = "this suite has only array states and checks, which are of one target";
            return refused(why, "take another suite");
        }
        Ok(())
    }

    /// Whether its hosts can do anything of a plan.
    ///
    /// # Errors
    /// When they cannot: what, and why.
    pub fn check_hosts(&self, plan: &Plan, target: &Target, array_control: bool) -> Result<(), Problem> {
        if self.hosts.is_empty() {
            return Ok(());
        }
        lab::hosts::check(&self.hosts, target).map_err(problem)?;
        let refused = |why: &str| Err(Problem::usage("--hosts", why, "omit one of them"));
        if array_control {
            return refused("array states need the logs of one machine");
        }
        if plan.steps.iter().all(|s| s.load.hosts.is_none()) {
            let not_run = plan.not_run.iter().filter(|p| p.value.starts_with("not run"));
            let why: Vec<String> = not_run.map(|p| format!("{}: {}", p.name, p.value)).collect();
            return refused(&format!("no load of this suite can run on hosts ({})", why.join("; ")));
        }
        Ok(())
    }
}

/// Shows it.
pub fn run(context: &Context, json: bool, args: &Args) -> Outcome {
    let suite = Suite::find(&args.suite).map_err(problem)?;
    let targets = args.wishes.targets(context, &args.target)?;
    let target = &targets[0];
    let control = args.array.control(context);
    let mut plan = Plan::of(&suite, target, args.wishes.wishes(&targets, control.is_some()));
    if plan.is_modelled && plan.cpu_seconds().is_none() {
        if !json {
            text::print("Trying the modelled drives; with fill= that takes as long as a cell");
        }
        Bench::find().and_then(|bench| bench.try_out(target, &mut plan.steps)).map_err(problem)?;
    }
    args.wishes.check_beside(&plan, control.is_some())?;
    args.wishes.check_hosts(&plan, target, control.is_some())?;
    // A plan writes nothing; it says beforehand whether a run would.
    let against = targets.iter().filter(|_| plan.writes()).find_map(|t| safety::check(t).err().map(|e| e.to_string()));
    if json {
        let (exact, timed) = plan.written_bytes();
        let (least, most) = plan.seconds();
        text::print_json(&json!({
            "suite": suite.name, "target": target.name, "serial": target.serial, "beside": targets[1..], "steps": plan.steps,
            "not_run": plan.not_run, "seconds_min": least, "seconds_max": most, "fill_bytes": exact,
            "timed_write_bytes_max": timed, "refused": against, "cpu_seconds": plan.cpu_seconds(),
        }));
        return Ok(Finding::Good);
    }
    let mut last = "";
    for step in &plan.steps {
        if step.test != last {
            let cells = plan.steps.iter().filter(|s| s.test == step.test);
            let seconds: f64 = cells.clone().map(|s| s.seconds_all()).sum();
            text::print(&format!("{:>5} cells  {:>8}  {}", cells.count(), units::time(seconds), step.test));
        }
        last = &step.test;
    }
    summary(&plan, &targets);
    if let Some(why) = against {
        text::print(&format!("A run would be refused: {why}"));
    }
    Ok(Finding::Good)
}

/// Time, wear, and what is left out.
pub fn summary(plan: &Plan, targets: &[Target]) {
    let ((least, most), (exact, timed)) = (plan.seconds(), plan.written_bytes());
    let time =
        if most > least { format!("{} to {}", units::time(least), units::time(most)) } else { units::time(least) };
    let states = plan.steps.iter().filter(|s| s.part == Part::States).count();
    // A load through the states gives four cells.
    let cells = plan.steps.len() + 3 * states;
    text::print(&match plan.cpu_seconds() {
        Some(_) => format!("{cells} cells at most, about {time} of CPU"),
        // A run plans without a trial, which takes as long as a cell.
        None if plan.is_modelled => format!("{cells} cells at most; `ashlar lab plan` tries out what they take"),
        None => format!("{cells} cells at most, about {time}"),
    });
    if states > 0 && !plan.is_modelled {
        text::print(&format!("plus {states} rebuilds of the array: each time a drive is failed and replaced"));
    }
    if plan.writes() {
        text::print(&format!(
            "writes {} to fill {}, and up to {} more at {} ({:.1} times its size)",
            units::capacity(exact),
            targets.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(" and "),
            units::capacity(timed),
            units::rate(plan.write_bytes_per_sec),
            (exact + timed) as f64 / targets.iter().map(|t| t.bytes).sum::<u64>().max(1) as f64,
        ));
    } else {
        text::print("writes nothing");
    }
    for left_out in &plan.not_run {
        text::print(&format!("  {}: {}", left_out.name, left_out.value));
    }
}
