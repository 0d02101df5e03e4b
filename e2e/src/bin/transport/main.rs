//! A volume by every way that a machine has to it, measured by the lab's suite `transport` on one machine, and its report.
//!
//! ```text
//!   fio -> /dev/ublkb0   -> ashlar serve -> ram0 ... ram5
//!   fio -> /dev/nbd0     -> NBD on TCP, loopback -> the same
//!   fio -> /dev/nvme0n1  -> NVMe/TCP, loopback -> the same
//!   fio -> /dev/nvme0n1  -> the kernel's target over TCP, loopback -> /dev/ublkb0 -> the same
//!   fio -> /dev/nvme0n1  -> the kernel's target over soft RoCE -> /dev/ublkb0 -> the same
//!   fio -> /dev/vda      -> vhost-user -> ashlar serve outside the guest -> memory
//! ```
//!
//! The machine is a guest of QEMU, which emulates its processors: figures stand beside each other and nowhere else. The server of
//! vhost-user is outside and is not emulated, so its part of the work takes a fraction of the time that it takes the others.
//!
//! Every way has an array of its own, made when its turn comes: what one wrote is no part of the next.

mod table;
mod ways;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::Parser;
use e2e::{Failure, OrFail, Result, ashlar, tools};

use crate::ways::WAYS;
use crate::world::World;

/// Measures a volume by every way to it on one machine, and writes the lab's report.
#[derive(Debug, Parser)]
#[command(name = "transport")]
struct Args {
    /// Only ways whose name contains this
    way: Option<String>,
    /// Directory for the results, one for each way, and report.html
    #[arg(long, value_name = "DIR", default_value = "lab-transport")]
    out: PathBuf,
    /// A suite of the lab or a .toml file [default: `transport` with one thread and short times]
    #[arg(long, value_name = "SUITE")]
    suite: Option<PathBuf>,
    /// The `ashlar` program [default: the one beside this one]
    #[arg(long, value_name = "PROGRAM")]
    ashlar: Option<PathBuf>,
}

/// The suite of which nothing else is said.
const SHORT: (&str, &str) = ("transport-short.toml", include_str!("transport-short.toml"));

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let begun = Instant::now();
    let program = ashlar::find(args.ashlar.clone())?;
    tools::wanted(&["qemu-system-x86_64", "fio", "nbd-client", "nvme"])?;
    fs::create_dir_all(&args.out).or_fail(args.out.display().to_string())?;
    let out = fs::canonicalize(&args.out).or_fail(args.out.display().to_string())?;
    let dir = tempfile::Builder::new().prefix("transport-").tempdir().or_fail("a temporary directory")?;
    let suite = match &args.suite {
        // A file is seen by the guest, too; another name is one of the lab's.
        Some(suite) => fs::canonicalize(suite).unwrap_or_else(|_| suite.clone()),
        None => {
            let path = dir.path().join(SHORT.0);
            fs::write(&path, SHORT.1).or_fail("the suite")?;
            path
        }
    };
    let mut world = World::new(&program, dir.path(), &out)?;
    eprintln!("booted in {:.0} s, Linux {}", begun.elapsed().as_secs_f64(), world.kernel()?);
    let mut results = vec![];
    for way in WAYS.iter().filter(|way| args.way.as_ref().is_none_or(|name| way.name.contains(name.as_str()))) {
        let since = Instant::now();
        let device = (way.begin)(&mut world).map_err(|failure| failure.within(way.name))?;
        let said = world.measure(&suite, &device, way).map_err(|failure| failure.within(way.name))?;
        (way.end)(&mut world).map_err(|failure| failure.within(way.name))?;
        eprintln!("{:<27} {:<14} {:>4.0} s  {said}", way.name, device, since.elapsed().as_secs_f64());
        results.push(out.join(way.id));
    }
    report(&program, &out, &results)?;
    print!("{}", table::of(&results)?);
    eprintln!("{} in {:.0} s", out.join("report.html").display(), begun.elapsed().as_secs_f64());
    Ok(())
}

/// The report of all of them.
fn report(program: &Path, out: &Path, results: &[PathBuf]) -> Result<()> {
    if results.is_empty() {
        return Err(Failure::new("transport", "no way has this name"));
    }
    // Named as they lie in the directory: the names stand in the report.
    let names = results.iter().filter_map(|path| path.file_name());
    let mut command = Command::new(program);
    command.args(["lab", "report"]).args(names).args(["--out", "report.html", "--files", "files"]).current_dir(out);
    let output = command.output().or_fail("ashlar lab report")?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new("ashlar lab report", String::from_utf8_lossy(&output.stderr).into_owned()))
}
