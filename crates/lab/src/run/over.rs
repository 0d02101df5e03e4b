//! A cell over hosts: they are asked first, show that they see the run's target, and make the load together.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::call::{Call, Sight};
use super::measure::{LOOK, Measurement, asked_iops};
use crate::error::Error;
use crate::fio::{self, Fio};
use crate::fio_json::{self, Job, together};
use crate::fio_log;
use crate::gates::{Seen, judge};
use crate::hosts::{self, Host};
use crate::model::Cell;
use crate::target::{Kind, Target};

/// How long hosts may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
/// What is read of a target that is not written: as long as a pattern of fio's may be.
const KNOWN_BYTES: usize = 512;
/// What is written to be found by the hosts.
const TOKEN_BYTES: usize = 4096;

/// A directory for what is asked before there is a run's; gone with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ashlar-lab-{}-{nth}", std::process::id()));
        // What is there already is somebody else's.
        fs::create_dir(&path).map_err(|e| Error::file(&path, e))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left behind is small.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Asks every host whether its fio works for this one.
///
/// # Errors
/// The first that does not answer, in fio's words.
pub fn reach(fio: &Fio, hosts: &[Host]) -> Result<(), Error> {
    if hosts.is_empty() {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let nothing = ["ioengine=null", "rw=read", "bs=4096", "size=4096"].map(str::to_owned).to_vec();
    for host in hosts {
        let one = std::slice::from_ref(host);
        let (args, _) = hosts::arguments(one, std::slice::from_ref(&nothing), &scratch.0)?;
        let (jobs, complaints) = ask(fio, &args, &scratch.0)?;
        if host.job(&jobs).is_none_or(|j| j.figures.iops.is_none()) {
            let why = format!("it does not answer ({complaints}): start `fio --server=ip:ADDRESS,{}` there", host.port);
            return Err(Error::usage(format!("host {host}"), why));
        }
    }
    Ok(())
}

/// Has every host read what is known to be on the target: written here for that when `writes`, and otherwise what lies at
/// its beginning. Whether that shows that they see one target: of an export that is only read nothing is known.
///
/// # Errors
/// When a host cannot read it, or reads something else.
pub fn prove(fio: &Fio, hosts: &[Host], target: &Target, writes: bool) -> Result<bool, Error> {
    let scratch = Scratch::new()?;
    let (pattern, bytes) = if writes {
        let token = hosts::token()?;
        leave(fio, target, &token, &scratch.0)?;
        (token, TOKEN_BYTES)
    } else {
        let Some(known) = known(target)? else { return Ok(false) };
        (hosts::hex(&known), KNOWN_BYTES)
    };
    // Blocks of what is only read may be larger than the pattern: there the page cache cuts them.
    let mut lines = fio.place(target, !writes)?;
    lines.extend([
        "rw=read".to_owned(),
        format!("bs={bytes}"),
        format!("size={bytes}"),
        "verify=pattern".to_owned(),
        format!("verify_pattern={pattern}"),
        "verify_state_save=0".to_owned(),
    ]);
    let (args, _) = hosts::arguments(hosts, &vec![lines; hosts.len()], &scratch.0)?;
    let (jobs, _) = ask(fio, &args, &scratch.0)?;
    for host in hosts {
        let wrong = |why: &str| Err(Error::usage(format!("host {host}"), format!("{} {why}", target.name)));
        match host.job(&jobs) {
            Some(job) if job.errors > 0 => return wrong("is different there, or cannot be read: nothing was changed"),
            Some(job) if job.figures.iops.is_some() => {}
            Some(_) | None => return wrong("does not exist there, or cannot be read"),
        }
    }
    Ok(true)
}

/// Writes a token at the target's beginning.
fn leave(fio: &Fio, target: &Target, token: &str, dir: &Path) -> Result<(), Error> {
    let mut lines = fio.place(target, false)?;
    lines.extend(["rw=write".to_owned(), format!("bs={TOKEN_BYTES}"), format!("size={TOKEN_BYTES}")]);
    lines.extend([format!("buffer_pattern={token}"), "end_fsync=1".to_owned()]);
    let mut args = vec!["--name=token".to_owned()];
    args.extend(lines.iter().map(|line| format!("--{line}")));
    args.extend(fio::frame(dir));
    let (jobs, complaints) = ask(fio, &args, dir)?;
    match jobs.first() {
        Some(job) if job.errors == 0 && job.figures.iops.is_some() => Ok(()),
        Some(_) | None => Err(Error::Program { program: fio.version.clone(), why: complaints }),
    }
}

/// What lies at the beginning of a target, when that tells it from an empty one.
fn known(target: &Target) -> Result<Option<Vec<u8>>, Error> {
    let Some(path) = target.path() else { return Ok(None) };
    let mut bytes = vec![0; KNOWN_BYTES];
    let read = fs::File::open(&path).and_then(|mut f| f.read_exact(&mut bytes));
    read.map_err(|e| Error::file(&path, e))?;
    if bytes.iter().any(|b| *b != 0) {
        return Ok(Some(bytes));
    }
    if target.kind == Kind::File {
        // Of another length over there, fio would make it longer.
        let why = "it begins with zeros, so it is not certain that every host has the same file: let the suite fill it";
        return Err(Error::usage(&target.name, why));
    }
    Ok(None)
}

/// A short call: what the servers measured, and what fio complained of.
fn ask(fio: &Fio, args: &[String], dir: &Path) -> Result<(Vec<Job>, String), Error> {
    let path = dir.join("fio.json");
    let _ = fs::remove_file(&path);
    let call = Call::start_client(fio, args)?;
    let begun = Instant::now();
    while call.look(LOOK) != Sight::Ended {
        if begun.elapsed() > ANSWER {
            return Ok((vec![], format!("not within {} s", ANSWER.as_secs())));
        }
    }
    let (Ok(complaints) | Err(complaints)) = call.end(false);
    // Without a result there are no jobs, and the caller misses them.
    let text = fs::read_to_string(&path).unwrap_or_default();
    let jobs = fio_json::parse(&text).map(|output| output.jobs).unwrap_or_default();
    Ok((jobs, complaints))
}

impl Measurement<'_> {
    /// Takes the cell over the run's hosts; `live` is told every second that it goes on.
    pub(super) fn take_over_hosts(&self, live: &mut dyn FnMut(Option<f64>)) -> Result<Cell, Error> {
        let (fio, scratch) = (self.by.fio()?, self.scratch()?);
        let asked_iops = asked_iops(self.step, self.cells)?;
        let pace = self.step.pace(asked_iops);
        let lines = (0..self.hosts.len()).map(|nth| {
            let host = u32::try_from(nth).unwrap_or(u32::MAX);
            let job = fio::Job { target: self.target, load: &self.step.load, pace, host };
            fio.options(&job, &hosts::log(&scratch, nth))
        });
        let (args, files) = hosts::arguments(self.hosts, &lines.collect::<Result<Vec<_>, _>>()?, &scratch)?;
        let command = format!("{}{files}", fio.command_line(&args));
        let before = self.before();
        let call = Call::start_client(fio, &args)?;
        while call.look(LOOK) != Sight::Ended {
            live(None);
        }
        // It ends as a failure when a host was lost: the shares of the others are there.
        let mut jobs = vec![];
        let read = || {
            let path = scratch.join("fio.json");
            let text = fs::read_to_string(&path).map_err(|e| Error::file(path, e))?;
            jobs = fio_json::parse(&text)?.jobs;
            let job = together(&jobs).ok_or_else(|| self.failed("no host told anything"))?;
            Ok((job, vec![]))
        };
        let job = match self.outcome(call.end(true), read) {
            Ok((job, _)) => job,
            Err(why) => return Ok(self.failed_cell(asked_iops, command, &why)),
        };
        let mut cell = self.cell(&job, asked_iops, command);
        let (rates, begins) = hosts::logs(self.hosts, &scratch, "iops");
        cell.series = fio_log::series(&rates, &hosts::logs(self.hosts, &scratch, "lat").0);
        let first = cell.series.first().map_or(0.0, |s| s.at - 1.0);
        cell.series.iter_mut().for_each(|s| s.at -= first);
        cell.note = hosts::shares(self.hosts, &jobs);
        // The link is another host's, and so are the CPUs, but of servers on this machine.
        let here: Vec<Job> =
            jobs.iter().filter(|j| j.host.as_ref().is_some_and(|(name, _)| hosts::is_here(name))).cloned().collect();
        let errors = Some((job.errors, job.short));
        let overwritten = self.overwritten(&cell);
        let seen = Seen { errors, link_bytes_per_sec: None, overwritten, ..self.seen(&before, &here) };
        cell.gates = judge(&cell, &seen);
        cell.gates.push(hosts::gate(self.hosts, &jobs, &begins, self.shown));
        Ok(cell)
    }
}
