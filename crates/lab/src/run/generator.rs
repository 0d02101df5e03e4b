//! What makes the load of a cell and is watched meanwhile: fio, or the bench on an NVMe/TCP export.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bench::Bench;
use crate::error::Error;
use crate::exported;
use crate::fio::{self, Fio};
use crate::fio_json::{self, Job};
use crate::fio_log;
use crate::model::Second;

/// The directory in that of the run that takes what the generator writes for one step.
pub const SCRATCH: &str = "fio";

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

    /// Keeps what the generator printed of the step that ended last, under the step's name, in the run's directory.
    ///
    /// # Errors
    /// When it cannot be kept. A generator that printed nothing leaves nothing.
    pub fn keep_output(&self, run: &Path, step: &str) -> Result<(), Error> {
        let printed = self.output(&run.join(SCRATCH));
        if !printed.exists() {
            return Ok(());
        }
        let dir = run.join("raw");
        fs::create_dir_all(&dir).map_err(|e| Error::file(&dir, e))?;
        fs::rename(&printed, dir.join(format!("{step}.json"))).map_err(|e| Error::file(printed, e))
    }

    fn output(&self, dir: &Path) -> PathBuf {
        match self {
            Generator::Fio(_) => dir.join("fio.json"),
            Generator::Bench(_) => exported::result_path(dir),
        }
    }

    /// What a cell's call measured, and its seconds.
    ///
    /// # Errors
    /// When it left no result.
    pub fn result(&self, dir: &Path) -> Result<(Job, Vec<Second>), Error> {
        let path = self.output(dir);
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
