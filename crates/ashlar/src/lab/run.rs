//! `ashlar lab run`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use api::Problem;
use lab::array::Control;
use lab::fio::Fio;
use lab::model::{Subject, Verdict};
use lab::plan::Plan;
use lab::run::{Around, Given, Journal, Said};
use lab::suite::Suite;
use lab::target::Target;
use serde_json::json;

use super::plan::{self, ArrayArgs, WishArgs};
use super::watch::Watch;
use super::{array, export, problem};
use crate::confirm;
use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::text;

const EXAMPLES: &str = "\
Examples:
  ashlar lab run smoke /tmp/file --size 1G                        creates the file; two minutes
  ashlar lab run raid-card /dev/md0 --destroy 7f3a --level RAID5  EVERYTHING ON IT IS LOST
  ashlar lab run qlc-slice /dev/nvme1n1 --budget 2h --write-min 64K
  ashlar lab run --resume lab-raid-card --destroy 7f3a            or with --skip TEST
  ashlar lab run raid-card /dev/md0 --beside /dev/md1 --destroy 7f3a --destroy 80c1
  ashlar lab run transport /dev/nvme1n1 --destroy 7f3a --hosts db1,db2:8801
  ashlar lab run array-states nbd://h/fast/db --destroy fast/db --array fast --array-drive nvme3n1
  ashlar lab run array-states /dev/md0 --destroy 7f3a --hook-wait 'mdadm --wait /dev/md0' \\
      --hook-fail 'mdadm /dev/md0 --fail /dev/sdb --remove /dev/sdb' \\
      --hook-replace 'mdadm --zero-superblock /dev/sdb && mdadm /dev/md0 --add /dev/sdb'

The report is report.html in the directory; result.json and cells.csv lie beside it.";

/// Run a suite on a target; each cell is saved as it ends
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A suite of `ashlar lab list`, or a .toml file
    #[arg(required_unless_present = "resume")]
    suite: Option<String>,
    /// A file, a block device, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH or
    /// nvme+tcp://HOST[:PORT][/SUBSYSTEM][?nsid=N]
    #[arg(required_unless_present = "resume")]
    target: Option<String>,
    /// Directory for the results [default: lab-SUITE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continues the run in this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["suite", "target", "out", "hosts", "beside"])]
    resume: Option<PathBuf>,
    /// Leaves out a test, or a cell by its name; may be repeated, and with --resume
    #[arg(long, value_name = "TEST")]
    skip: Vec<String>,
    /// The target's serial number (or file name), to confirm that its data will be lost; once for each target
    #[arg(long, value_name = "SERIAL")]
    destroy: Vec<String>,
    /// States that the target was written in full before; reads are then marked WARN instead of FAIL
    #[arg(long)]
    filled: bool,
    #[command(flatten)]
    wishes: WishArgs,
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    array: ArrayArgs,
}

/// What is measured, in words.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SubjectArgs {
    /// Name of the system in charts
    #[arg(long)]
    name: Option<String>,
    /// RAID level, such as RAID5 or JBOD
    #[arg(long)]
    level: Option<String>,
    /// Description of the drives
    #[arg(long)]
    drives: Option<String>,
    /// Number of drives
    #[arg(long)]
    drive_count: Option<u32>,
}

impl SubjectArgs {
    /// As the lab takes it.
    pub fn subject(&self) -> Subject {
        Subject {
            system: self.name.clone().unwrap_or_default(),
            drives: self.drives.clone().unwrap_or_default(),
            drive_count: self.drive_count,
            level: self.level.clone(),
            ..Subject::default()
        }
    }
}

/// Runs.
pub fn run(context: &Context, json: bool, args: Args) -> Outcome {
    let (journal, confirmed) = match &args.resume {
        Some(dir) => (Journal::open(dir.clone()).map_err(problem)?, vec![]),
        None => begin(context, json, &args)?,
    };
    let destroy: Vec<&str> = args.destroy.iter().chain(&confirmed).map(String::as_str).collect();
    let mut array = journal.order().control.as_ref().map(array::of).transpose()?;
    let array = array.as_deref_mut().map(|a| a as &mut dyn lab::array::Array);
    let written = |target: &Target, offset, bytes| export::written(context, &target.name, offset, bytes);
    let around = Around { array, written: &written, skip: &args.skip };
    let mut watch = Watch::new(json);
    let result = lab::run::run(&journal, &destroy, around, &mut |live| watch.at(live));
    watch.done();
    let result = result.map_err(problem)?;
    let page = lab::report::page(std::slice::from_ref(&result), &lab::report::Extra::default());
    let path = journal.dir().join("report.html");
    lab::model::replace(&path, page.as_bytes()).map_err(problem)?;
    let count = |v: Verdict| result.cells.iter().filter(|c| c.verdict() == v).count();
    let (pass, warn, fail) = (count(Verdict::Pass), count(Verdict::Warn), count(Verdict::Fail));
    let model = count(Verdict::Model);
    if json {
        let report = path.display().to_string();
        text::print_json(&json!({ "report": report, "pass": pass, "warn": warn, "fail": fail, "model": model,
            "spent": result.spent,
            "simulated_per_cpu_second": result.spent.and_then(|s| s.requests_per_cpu_second()) }));
    } else {
        let modelled = if model > 0 { format!("{model} MODEL, ") } else { String::new() };
        text::print(&format!("{modelled}{pass} PASS, {warn} WARN, {fail} FAIL: {}", path.display()));
        if let Some(spent) = &result.spent {
            text::print(&spent.words());
        }
    }
    Ok(Finding::Good)
}

/// Plans, asks, and makes the directory.
fn begin(context: &Context, json: bool, args: &Args) -> Result<(Journal, Vec<String>), Problem> {
    let (suite, target) = (args.suite.as_deref().unwrap_or_default(), args.target.as_deref().unwrap_or_default());
    let suite = Suite::find(suite).map_err(problem)?;
    let targets = args.wishes.targets(context, target)?;
    let target = &targets[0];
    let control = args.array.control(context);
    let plan = Plan::of(&suite, target, args.wishes.wishes(&targets, control.is_some()));
    args.wishes.check_beside(&plan, control.is_some())?;
    args.wishes.check_hosts(&plan, target, control.is_some())?;
    if !json {
        plan::summary(&plan, &targets);
    }
    if !args.wishes.hosts.is_empty() {
        // Before anybody is asked for a serial number.
        Fio::find().and_then(|fio| lab::run::reach(&fio, &args.wishes.hosts)).map_err(problem)?;
    }
    let mut confirmed = vec![];
    if plan.writes() {
        targets.iter().try_for_each(lab::safety::check).map_err(problem)?;
        let destroy: Vec<&str> = args.destroy.iter().map(String::as_str).collect();
        for target in &targets {
            let said = lab::run::said_of(target, &targets, &destroy);
            if target.exists && said.is_none() && io::stdin().is_terminal() {
                let loss = format!("Everything on {} will be lost.", target.name);
                confirm::by_name(false, &loss, &target.serial)?;
                confirmed.push(target.serial.clone());
            } else {
                // What would be refused leaves no directory behind.
                lab::safety::permit(target, said).map_err(problem)?;
            }
        }
    }
    let dir = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("lab-{}", suite.name)));
    let mut said = Said { trusted: args.filled, subject: args.subject.subject() };
    if let Some(Control::Served(served)) = &control {
        array::ServedArray::find(served)?.describe(&mut said.subject)?;
    }
    let given = Given { said, control, hosts: args.wishes.hosts.clone(), beside: targets[1..].to_vec() };
    Ok((lab::run::begin(dir, &suite, target, &plan, given).map_err(problem)?, confirmed))
}
