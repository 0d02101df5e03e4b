//! A program that goes through steps with one world: every step prints its time, and the first that fails ends it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::{OrFail, Result, ashlar};

/// What such a program is asked.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Only steps whose name contains one of these
    names: Vec<String>,
    /// Lists the steps
    #[arg(long)]
    list: bool,
    /// Where to work [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The `ashlar` program [default: the one beside this one]
    #[arg(long, value_name = "PROGRAM")]
    ashlar: Option<PathBuf>,
}

/// What `--help` says of exit codes.
pub const EXIT_CODES: &str = "Exit codes: 0 all passed, 1 a step failed, 2 it could not begin.";

/// One step.
pub struct Step<W> {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The step.
    pub run: fn(&mut W) -> Result<()>,
}

/// A program of steps.
pub struct Program<W: 'static> {
    /// Its name.
    pub name: &'static str,
    /// All, in order.
    pub steps: &'static [Step<W>],
    /// Makes the world: of the `ashlar` program, and an empty directory.
    pub begin: fn(&Path, &Path) -> Result<W>,
    /// Says in which kernel it is.
    pub kernel: fn(&mut W) -> Result<String>,
    /// Ends the world in order.
    pub end: fn(W) -> Result<()>,
}

impl<W> Program<W> {
    /// Runs those steps that are asked for.
    #[must_use]
    pub fn run(&self, args: &Args) -> ExitCode {
        if args.list {
            self.steps.iter().for_each(|step| println!("{:<12} {}", step.name, step.about));
            return ExitCode::SUCCESS;
        }
        let wanted =
            |step: &&Step<W>| args.names.is_empty() || args.names.iter().any(|n| step.name.contains(n.as_str()));
        let chosen: Vec<&Step<W>> = self.steps.iter().filter(wanted).collect();
        if chosen.is_empty() {
            eprintln!("{}: no step is called {}; --list shows them", self.name, args.names.join(" or "));
            return ExitCode::from(2);
        }
        match self.all(args, &chosen) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                println!("FAILED\n  {}", failure.to_string().replace('\n', "\n  "));
                ExitCode::FAILURE
            }
        }
    }

    fn all(&self, args: &Args, chosen: &[&Step<W>]) -> Result<()> {
        let begun = Instant::now();
        let program = ashlar::find(args.ashlar.clone())?;
        let (mut builder, prefix) = (tempfile::Builder::new(), format!("{}-", self.name));
        builder.prefix(&prefix);
        let dir = match &args.dir {
            Some(dir) => builder.tempdir_in(dir),
            None => builder.tempdir(),
        };
        let dir = dir.or_fail("a temporary directory")?;
        let mut world = (self.begin)(&program, dir.path())?;
        let kernel = (self.kernel)(&mut world)?;
        println!("ok      {:<12} {:>6.1} s  Linux {}", "boot", begun.elapsed().as_secs_f64(), kernel.trim());
        for step in chosen {
            let since = Instant::now();
            (step.run)(&mut world).map_err(|failure| failure.within(step.name))?;
            println!("ok      {:<12} {:>6.1} s  {}", step.name, since.elapsed().as_secs_f64(), step.about);
        }
        (self.end)(world)?;
        println!("{} steps passed in {:.0} s", chosen.len(), begun.elapsed().as_secs_f64());
        Ok(())
    }
}
