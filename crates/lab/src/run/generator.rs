//! What makes the load of a cell and is watched meanwhile: fio, or the bench on an NVMe/TCP export.

use std::fs;
use std::path::Path;

use crate::bench::Bench;
use crate::error::Error;
use crate::exported;
use crate::fio::{self, Fio};
use crate::fio_json::{self, Job};
use crate::fio_log;
use crate::model::Second;

/// One of them.
pub enum Generator {
    /// For files, block devices and NBD.
    Fio(Fio),
    /// For NVMe/TCP.
    Bench(Bench),
}

impl Generator {
    /// Its program.
    pub fn program(&self) -> &Path {
        match self {
            Generator::Fio(fio) => &fio.program,
            Generator::Bench(bench) => &bench.program,
        }
    }

    /// Its name and version.
    pub fn name(&self) -> String {
        match self {
            Generator::Fio(fio) => fio.version.clone(),
            Generator::Bench(_) => Bench::NAME.to_owned(),
        }
    }

    /// fio, for what only it does; a plan asks the bench for nothing of that.
    ///
    /// # Errors
    /// When it is the bench.
    pub fn fio(&self) -> Result<&Fio, Error> {
        match self {
            Generator::Fio(fio) => Ok(fio),
            Generator::Bench(_) => Err(Error::usage("the bench", "only fio can generate this load")),
        }
    }

    /// The arguments of one cell; `dir` takes what it writes.
    ///
    /// # Errors
    /// When it has no such load.
    pub fn arguments(&self, job: &fio::Job<'_>, dir: &Path) -> Result<Vec<String>, Error> {
        match self {
            Generator::Fio(fio) => fio.arguments(job, dir),
            Generator::Bench(_) => exported::arguments(job.target, job.load, job.pace, dir),
        }
    }

    /// The whole command as people would type it.
    pub fn command_line(&self, args: &[String]) -> String {
        fio::command_line(self.program(), args)
    }

    /// What a cell's call measured, and its seconds.
    ///
    /// # Errors
    /// When it left no result.
    pub fn result(&self, dir: &Path) -> Result<(Job, Vec<Second>), Error> {
        let path = match self {
            Generator::Fio(_) => dir.join("fio.json"),
            Generator::Bench(_) => exported::result_path(dir),
        };
        let text = fs::read_to_string(&path).map_err(|e| Error::file(path, e))?;
        match self {
            Generator::Fio(_) => {
                let jobs = fio_json::parse(&text)?.jobs;
                let count = jobs.len();
                let mut jobs = jobs.into_iter();
                let (Some(job), None) = (jobs.next(), jobs.next()) else {
                    return Err(Error::format("fio's output", format!("{count} jobs instead of one")));
                };
                let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
                Ok((job, fio_log::series(&read("log_iops.log"), &read("log_lat.log"))))
            }
            Generator::Bench(_) => exported::parse(&text),
        }
    }
}
