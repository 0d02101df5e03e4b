//! `ashlar lab`: the reviewers' tests on any device, with a verdict on every number.

mod array;
mod compare;
mod export;
mod history;
mod import;
mod list;
mod plan;
mod plan_box;
mod predict;
mod report;
mod run;
mod watch;

use api::{Kind, Problem};
use clap::Subcommand;

use crate::context::Context;
use crate::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  ashlar lab report --published perc12                  published figures; needs no drives
  ashlar lab list                                       the suites, and the reviews to compare with
  ashlar lab plan raid-card /dev/md0                    cells, time and wear, before anything starts
  ashlar lab run smoke /tmp/file --size 1G              two minutes on a file
  ashlar lab run raid-card /dev/md0 --destroy SERIAL    EVERYTHING ON IT IS LOST
  ashlar lab run --resume lab-raid-card                 continues where it was stopped
  ashlar lab run array-states TARGET --array fast --array-drive nvme3n1    fails and rebuilds it
  ashlar lab run transport TARGET --hosts db1,db2       one load from two hosts
  ashlar lab run raid-card A --beside B                 one target against two
  ashlar lab compare lab-a lab-b --published perc12     side by side, or why they cannot be compared
  ashlar lab import results/ --out lab-imported         from fio, bench-fio, Vdbench, elbencho
  ashlar lab history lab-smoke                          keeps it; writes an index page
  ashlar lab predict --drives 12xp5316 --raid 6 --workload 4k-randwrite    before it is bought

The load generator is fio (package fio). A verdict is PASS, WARN or FAIL, and says why.";

/// Run the storage reviewers' tests on any device, with a verdict on every number
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// Prints an object for scripts
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    List(list::Args),
    Plan(plan::Args),
    Run(Box<run::Args>),
    Report(report::Args),
    Compare(compare::Args),
    Import(import::Args),
    History(history::Args),
    Predict(Box<predict::Args>),
    PlanBox(plan_box::Args),
}

impl Args {
    /// Whether to print an object.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether it looks at a target, and at an array behind it: both are of this machine.
    pub fn measures(&self) -> bool {
        match self.verb {
            Verb::Plan(_) | Verb::Run(_) => true,
            Verb::List(_)
            | Verb::Report(_)
            | Verb::Compare(_)
            | Verb::Import(_)
            | Verb::History(_)
            | Verb::Predict(_)
            | Verb::PlanBox(_) => false,
        }
    }
}

/// Does it.
pub fn run(context: &Context, args: Args) -> Outcome {
    let json = args.json;
    match args.verb {
        Verb::List(a) => list::run(json, &a),
        Verb::Plan(a) => plan::run(context, json, &a),
        Verb::Run(a) => run::run(context, json, *a),
        Verb::Report(a) => report::run(json, &a),
        Verb::Compare(a) => compare::run(json, &a),
        Verb::Import(a) => import::run(json, &a),
        Verb::History(a) => history::run(json, &a),
        Verb::Predict(a) => predict::run(json, &a),
        Verb::PlanBox(a) => plan_box::run(json, &a),
    }
}

/// The same kinds of "no" as everywhere.
fn problem(error: ::lab::Error) -> Problem {
    use ::lab::Error;
    use ::lab::safety::Refusal;
    match error {
        Error::File { path, error } => {
            Problem::failed(path.display().to_string(), error, "look at the path and its rights")
        }
        Error::Format { what, why } => Problem::new(Kind::Usage, "format", what, why, ""),
        Error::Usage { what, why } => Problem::usage(what, why, "ashlar lab --help has examples"),
        Error::Program { program, why } => {
            Problem::failed(program, why, "its messages are above; `ashlar lab plan` shows what it would measure")
        }
        Error::Refused(refusal) => {
            let code = match refusal {
                Refusal::InUse { .. } => "target_in_use",
                Refusal::Signature { .. } => "target_has_data",
                Refusal::NotConfirmed { .. } => "not_confirmed",
                Refusal::OtherSerial { .. } => "other_serial",
            };
            Problem::refused(code, "the target", refusal.to_string(), "nothing was written")
        }
    }
}
