//! The real Linux initiator: a Debian kernel in QEMU uses an array over NVMe/TCP. One boot; every step prints its time,
//! and the first that fails ends it.

mod steps;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use e2e::{OrFail, Result};

use crate::world::World;

/// A Debian kernel in QEMU uses an array over NVMe/TCP.
#[derive(Debug, Parser)]
#[command(name = "kernel", after_help = "Exit codes: 0 all passed, 1 a step failed, 2 it could not begin.")]
struct Args {
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

/// One step.
struct Step {
    /// Its name.
    name: &'static str,
    /// What it shows.
    about: &'static str,
    /// The step.
    run: fn(&mut World) -> Result<()>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        steps::ALL.iter().for_each(|step| println!("{:<12} {}", step.name, step.about));
        return ExitCode::SUCCESS;
    }
    let wanted = |step: &&Step| args.names.is_empty() || args.names.iter().any(|n| step.name.contains(n.as_str()));
    let chosen: Vec<&Step> = steps::ALL.iter().filter(wanted).collect();
    if chosen.is_empty() {
        eprintln!("kernel: no step is called {}; --list shows them", args.names.join(" or "));
        return ExitCode::from(2);
    }
    match all(&args, &chosen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("FAILED\n  {}", failure.to_string().replace('\n', "\n  "));
            ExitCode::FAILURE
        }
    }
}

fn all(args: &Args, chosen: &[&Step]) -> Result<()> {
    let begun = Instant::now();
    let program = e2e::ashlar::find(args.ashlar.clone())?;
    let mut builder = tempfile::Builder::new();
    builder.prefix("kernel-");
    let dir = match &args.dir {
        Some(dir) => builder.tempdir_in(dir),
        None => builder.tempdir(),
    };
    let dir = dir.or_fail("a temporary directory")?;
    let mut world = World::new(&program, dir.path())?;
    println!(
        "ok      {:<12} {:>6.1} s  Linux {}",
        "boot",
        begun.elapsed().as_secs_f64(),
        world.guest.sh("uname -r")?.trim()
    );
    for step in chosen {
        let since = Instant::now();
        (step.run)(&mut world).map_err(|failure| failure.within(step.name))?;
        println!("ok      {:<12} {:>6.1} s  {}", step.name, since.elapsed().as_secs_f64(), step.about);
    }
    world.server.stop()?;
    println!("{} steps passed in {:.0} s", chosen.len(), begun.elapsed().as_secs_f64());
    Ok(())
}
