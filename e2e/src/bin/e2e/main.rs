//! Runs the end-to-end cases one after the other, each in a directory of its own, and prints its name and time.
//!
//! A case that needs a program which is not installed fails, and says which Debian package has it: nothing is skipped.

mod cases;
mod fixture;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use e2e::{OrFail, Result};

use crate::cases::Case;
use crate::fixture::Lab;

/// End-to-end tests of the `ashlar` program with clients as users have them.
#[derive(Debug, Parser)]
#[command(name = "e2e", after_help = "Exit codes: 0 all passed, 1 a case failed, 2 it could not begin.")]
struct Args {
    /// Only cases whose name contains one of these
    names: Vec<String>,
    /// None whose name begins with this
    #[arg(long, value_name = "NAME")]
    except: Option<String>,
    /// Lists the cases
    #[arg(long)]
    list: bool,
    /// Decides the loads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to work [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keeps the directory of a failed case
    #[arg(long)]
    keep: bool,
    /// The `ashlar` program [default: the one beside this one]
    #[arg(long, value_name = "PROGRAM")]
    ashlar: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let all = cases::all();
    if args.list {
        all.iter().for_each(|case| println!("{:<28} {}", case.name, case.about));
        return ExitCode::SUCCESS;
    }
    let wanted = |case: &Case| {
        let excepted = args.except.as_ref().is_some_and(|n| case.name.starts_with(n.as_str()));
        !excepted && (args.names.is_empty() || args.names.iter().any(|n| case.name.contains(n.as_str())))
    };
    let chosen: Vec<&Case> = all.iter().filter(|c| wanted(c)).collect();
    if chosen.is_empty() {
        eprintln!("e2e: no case is called {}; --list shows them", args.names.join(" or "));
        return ExitCode::from(2);
    }
    let begun = Instant::now();
    let mut failed = vec![];
    for case in &chosen {
        match one(&args, case) {
            Ok(took) => println!("ok      {:<28} {:>6.1} s", case.name, took.as_secs_f64()),
            Err(failure) => {
                println!("FAILED  {:<28}", case.name);
                println!("  {}", failure.to_string().replace('\n', "\n  "));
                failed.push(case.name);
            }
        }
    }
    println!(
        "{} of {} cases passed in {:.0} s",
        chosen.len() - failed.len(),
        chosen.len(),
        begun.elapsed().as_secs_f64()
    );
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(" "));
    ExitCode::FAILURE
}

fn one(args: &Args, case: &Case) -> Result<Duration> {
    let begun = Instant::now();
    let program = e2e::ashlar::find(args.ashlar.clone())?;
    let mut builder = tempfile::Builder::new();
    builder.prefix("e2e-");
    let dir = match &args.dir {
        Some(dir) => builder.tempdir_in(dir),
        None => builder.tempdir(),
    };
    let mut dir = dir.or_fail("a temporary directory")?;
    let lab = Lab { program, dir: dir.path().to_owned(), seed: args.seed };
    let result = (case.run)(&lab);
    if result.is_err() && args.keep {
        dir.disable_cleanup(true);
        println!("kept: {}", dir.path().display());
    }
    result.map(|()| begun.elapsed())
}
