//! Kills a served array with SIGKILL, over and over, and accounts for every sector after each start.
//!
//! A cycle: load (random writes, FUA writes, flushes, deallocations, write-zeroes, reads; many in flight, overlapping),
//! SIGKILL at a random moment, now and then `ashlar check`, start (now and then killed during recovery), all of the
//! volume read back and compared. Two arrays take turns: one of eight 1 GiB files with a small volume, and the smallest
//! array there can be, 80 % full, where the cleaner works all the time. The first has its connections on a core of their
//! own, too (`serve --cores 2`). On both, members fail and are replaced in rotation, and in one cycle of ten they are swapped for
//! older copies of themselves between the kill and the start, or the copies are put beside them.
//!
//! The seed decides the requests, the moments and the faults; it does not decide how the kernel schedules the processes.
//! A replay therefore does the same things again, not at the same nanoseconds.

mod args;
mod copies;
mod cycle;
mod members;
mod report;
mod scene;
mod swaps;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use e2e::{Failure, OrFail, Result, load};
use rt::Rt;

use crate::args::Args;
use crate::report::Report;
use crate::scene::Scene;

/// Every which cycle is one of the full array.
const FULL_EVERY: u32 = 5;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut place = match Place::new(&args) {
        Ok(place) => place,
        Err(failure) => {
            eprintln!("crashloop: {failure}");
            return ExitCode::from(2);
        }
    };
    println!("crashloop: seed {}, {} cycles in {}", args.seed, args.cycles, place.dir.display());
    let mut report = Report::new(&args);
    match all_cycles(&args, &place, &mut report) {
        Ok(()) => {
            report.summary(None);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            place.keep();
            report.summary(Some(&failure));
            println!("  kept      {}", place.dir.display());
            println!("  replay    {}", args.replay());
            ExitCode::FAILURE
        }
    }
}

fn all_cycles(args: &Args, place: &Place, report: &mut Report) -> Result<()> {
    let program = e2e::ashlar::find(args.ashlar.clone())?;
    let rt = Rt::real().or_fail("the runtime (io_uring)")?;
    let mut random = load::random(args.seed);
    let mut scenes = vec![Scene::roomy(args, &program, &place.dir)?];
    if !args.no_full {
        scenes.push(Scene::full(args, &program, &place.dir)?);
    }
    for scene in &mut scenes {
        rt.block_on(Box::pin(scene.begin(&rt)))?;
        println!("  {}", scene.describe());
    }
    report.begin();
    for number in 1..=args.cycles {
        let full = scenes.len() > 1 && number % FULL_EVERY == 0;
        let scene = &mut scenes[usize::from(full)];
        let begun = Instant::now();
        let done = rt.block_on(Box::pin(cycle::run(&rt, scene, &mut random, number, args)));
        let done = done.map_err(|failure| failure.within(&format!("cycle {number}, array {}", scene.name)))?;
        report.cycle(number, &done, begun.elapsed());
    }
    for scene in &mut scenes {
        scene.end()?;
    }
    report.swapped(args.swaps_at_least)
}

/// The directory of the run: removed at its end, unless it was named or something is to be looked at.
struct Place {
    dir: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

impl Place {
    fn new(args: &Args) -> Result<Place> {
        let temporary = match &args.dir {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("crashloop").tempdir().or_fail("a temporary directory")?),
        };
        let dir = match (&args.dir, &temporary) {
            (Some(dir), _) => std::path::absolute(dir).or_fail("the directory")?,
            (None, Some(temporary)) => temporary.path().to_owned(),
            (None, None) => return Err(Failure::new("the directory", "there is none")),
        };
        std::fs::create_dir_all(&dir).or_fail(dir.display().to_string())?;
        if std::fs::read_dir(&dir).or_fail(dir.display().to_string())?.next().is_some() {
            return Err(Failure::new(dir.display().to_string(), "it is not empty; name an empty or new directory"));
        }
        Ok(Place { dir, temporary })
    }

    fn keep(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            self.dir = temporary.keep();
        }
    }
}
