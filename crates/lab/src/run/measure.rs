//! One cell: a generator is started, watched, and what it measured becomes figures and verdicts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Said;
use super::call::{Call, Sight};
use super::generator::Generator;
use crate::bins::Bins;
use crate::error::Error;
use crate::fio;
use crate::fio_json::Job;
use crate::gates::{Seen, judge};
use crate::host::{self, Ticks};
use crate::hosts::Host;
use crate::model::{Cell, Part, Second};
use crate::plan::Step;
use crate::target::{Kind, Target};
use crate::written::{self, Written};

/// Between two looks at fio.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// What is needed to take it.
pub struct Measurement<'a> {
    /// The generator.
    pub by: &'a Generator,
    /// The target; of several the step's.
    pub target: &'a Target,
    /// All of them.
    pub targets: &'a [Target],
    /// All cells to be.
    pub steps: &'a [Step],
    /// The cell to be.
    pub step: &'a Step,
    /// What the user said.
    pub said: &'a Said,
    /// The run's directory.
    pub dir: &'a Path,
    /// What was measured before.
    pub cells: &'a [Cell],
    /// Hosts that make it together; none: this machine does.
    pub hosts: &'a [Host],
    /// Each of them showed that it sees the target.
    pub shown: bool,
    /// What is known of a range of a target that is no file.
    pub ask: &'a dyn Fn(&Target, u64, u64) -> Written,
}

impl Measurement<'_> {
    /// Takes it; `live` is told the rate about every second.
    ///
    /// # Errors
    /// When fio fails, or what it prints makes no sense.
    pub fn take(&self, live: &mut dyn FnMut(Option<f64>)) -> Result<Cell, Error> {
        if self.step.load.hosts.is_some() {
            return self.take_over_hosts(live);
        }
        if self.step.part == Part::Together {
            return self.take_together(live);
        }
        let scratch = self.scratch()?;
        let asked_iops = asked_iops(self.step, self.cells)?;
        let (args, command) = self.command(asked_iops, &scratch)?;
        let written = self.written()?;
        let before = Ticks::now();
        let complaints = self.call(&args, live)?;
        let busy = Ticks::now().since(&before);
        let (job, series) = self.result(&scratch, &complaints)?;
        let mut cell = self.cell(&job, asked_iops, command);
        cell.series = series;
        cell.figures.cpu_percent = busy.map(|b| b.all_percent);
        let seen = Seen {
            written,
            errors: Some((job.errors, job.short)),
            own_cpu_percent: busy.map(|b| own_cpu(&job, b.cpus)),
            busy,
            ..self.seen()
        };
        cell.gates = judge(&cell, &seen);
        Ok(cell)
    }

    /// An empty directory for what the generator writes.
    pub(super) fn scratch(&self) -> Result<PathBuf, Error> {
        let scratch = self.dir.join("fio");
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).map_err(|e| Error::file(&scratch, e))?;
        Ok(scratch)
    }

    /// The generator's arguments, and the whole command for people.
    pub(super) fn command(&self, asked_iops: Option<f64>, scratch: &Path) -> Result<(Vec<String>, String), Error> {
        let pace = self.step.pace(asked_iops);
        let job = fio::Job { target: self.target, load: &self.step.load, pace, host: 0 };
        let args = self.by.arguments(&job, scratch)?;
        let command = self.by.command_line(&args);
        Ok((args, command))
    }

    /// What was measured, and its seconds.
    pub(super) fn result(&self, scratch: &Path, complaints: &str) -> Result<(Job, Vec<Second>), Error> {
        // fio may refuse a job, say so, print no result, and end as if all were well.
        self.by.result(scratch).map_err(|e| if complaints.is_empty() { e } else { self.failed(complaints) })
    }

    /// What is seen of the machine and the target beside any cell.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            trusted: self.said.trusted,
            memory_bytes: host::memory_bytes(),
            link_bytes_per_sec: self.target.link_bytes_per_sec(),
            heat: host::temperature(self.target),
            same_device: (self.target.kind == Kind::Block).then(|| self.is_same()),
            incompressible: Some(true),
            direct_is_known: !self.is_export(),
            ..Seen::default()
        }
    }

    /// What is known of the range: files and some exports tell, of others what this run filled.
    pub(super) fn written(&self) -> Result<Option<Written>, Error> {
        self.written_of(self.step.target as usize)
    }

    /// The same of one of several targets.
    pub(super) fn written_of(&self, nth: usize) -> Result<Option<Written>, Error> {
        let (load, target) = (&self.step.load, self.targets.get(nth).unwrap_or(self.target));
        if !load.reads() {
            return Ok(None);
        }
        let (offset, bytes) = (load.offset_bytes.unwrap_or(0), load.range_bytes.unwrap_or(target.bytes));
        let told = match target.path().filter(|_| target.kind == Kind::File) {
            Some(path) => written::of_file(&path, offset, bytes).map_err(|e| Error::file(path, e))?,
            None => (self.ask)(target, offset, bytes),
        };
        let is_of = |cell: &&Cell| self.steps.iter().any(|s| s.id == cell.id && s.target as usize == nth);
        let filled = self.cells.iter().filter(|c| c.part == Part::Fill).filter(is_of).any(|c| {
            let (from, len) = (c.load.offset_bytes.unwrap_or(0), c.load.range_bytes.unwrap_or(0));
            from <= offset && offset + bytes <= from + len && c.figures.written_bytes.is_some_and(|w| w >= len)
        });
        Ok(Some(if told == Written::Unknown && filled { Written::All } else { told }))
    }

    /// Starts the generator and waits for its end; returns what it complained of all the same.
    pub(super) fn call(&self, args: &[String], live: &mut dyn FnMut(Option<f64>)) -> Result<String, Error> {
        let call = self.start(args)?;
        loop {
            match call.look(LOOK) {
                Sight::Iops(iops) => live(Some(iops)),
                Sight::Nothing => {}
                Sight::Ended => break,
            }
        }
        // A check that finds something ends as a failure; what it found is in its result.
        call.end(self.step.part == Part::Check).map_err(|why| self.failed(&why))
    }

    pub(super) fn start(&self, args: &[String]) -> Result<Call, Error> {
        Call::start(self.by.program(), self.by.name(), args)
    }

    pub(super) fn failed(&self, why: &str) -> Error {
        Error::Program { program: self.by.name(), why: format!("cell {}: {why}", self.step.id) }
    }

    pub(super) fn cell(&self, job: &Job, asked_iops: Option<f64>, command: String) -> Cell {
        let once = self.step.is_once();
        let mut subject = self.said.subject.clone();
        if subject.system.is_empty() {
            subject.system.clone_from(&self.target.name);
        }
        if self.targets.len() > 1 {
            let names: Vec<&str> = self.targets.iter().map(|t| t.name.as_str()).collect();
            let on = if self.step.part == Part::Together { names.join(" and ") } else { self.target.name.clone() };
            let said = &self.said.subject.system;
            subject.system = if said.is_empty() { on } else { format!("{said}: {on}") };
        }
        let mut load = self.step.load.clone();
        if self.is_export() {
            // The export decides whether there is a cache.
            load.cached = None;
        }
        Cell {
            id: self.step.id.clone(),
            test: self.step.test.clone(),
            part: self.step.part,
            source: None,
            subject,
            load,
            asked_iops,
            asked_seconds: (!once).then(|| self.step.seconds.ceil()),
            figures: job.figures.clone(),
            bins: Bins::pairs(&job.bins),
            series: vec![],
            gates: vec![],
            command: Some(command),
            note: String::new(),
        }
    }

    fn is_export(&self) -> bool {
        matches!(self.target.kind, Kind::Nbd | Kind::Nvme)
    }

    fn is_same(&self) -> bool {
        let is_same = |target: &Target| {
            let now = Target::look(&target.name, Some(target.bytes));
            now.is_ok_and(|t| t.serial == target.serial && t.bytes == target.bytes)
        };
        if self.step.part == Part::Together { self.targets.iter().all(is_same) } else { is_same(self.target) }
    }
}

/// Of a point of a curve: its share of the rate without a limit.
pub(super) fn asked_iops(step: &Step, cells: &[Cell]) -> Result<Option<f64>, Error> {
    let Part::Curve { percent } = step.part else { return Ok(None) };
    let max = cells.iter().find(|c| c.test == step.test && c.part == Part::CurveMax);
    let iops = max.and_then(|c| c.figures.iops);
    let why = "the rate without a limit was not measured";
    iops.map(|n| Some(n * f64::from(percent) / 100.0)).ok_or_else(|| Error::format(&step.id, why))
}

/// The generator's share of all CPUs: fio tells hundredths of one CPU, the mean over its threads.
pub(super) fn own_cpu(job: &Job, cpus: usize) -> f64 {
    job.cpu_percent * f64::from(job.load.threads.unwrap_or(1)) / cpus.max(1) as f64
}

/// The rate in a piece of fio's status line, such as "[r=1538MiB/s,w=2MiB/s][r=12.3k,w=104 IOPS]".
pub fn live_iops(text: &str) -> Option<f64> {
    let (before, _) = text.rsplit_once(" IOPS]")?;
    let (_, rates) = before.rsplit_once('[')?;
    let mut sum = 0.0;
    for rate in rates.split(',') {
        let number = rate.split_once('=').map_or(rate, |(_, n)| n).trim();
        let (digits, factor) = match number.chars().last()? {
            'k' => (&number[..number.len() - 1], 1e3),
            'M' => (&number[..number.len() - 1], 1e6),
            _ => (number, 1.0),
        };
        sum += digits.parse::<f64>().ok()? * factor;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_tells_the_rate() {
        for (text, want) in [
            ("Jobs: 1 (f=1): [W(1)][-.-%][w=1538MiB/s][w=12.3k IOPS][eta 00m:00s]", Some(12_300.0)),
            ("Jobs: 2 (f=2): [m(2)][50.0%][r=98MiB/s,w=42MiB/s][r=12.5k,w=5360 IOPS][eta 00m:01s]", Some(17_860.0)),
            ("[r=1.2M IOPS]", Some(1_200_000.0)),
            ("Jobs: 1 (f=1)", None),
            ("[ IOPS]", None),
        ] {
            assert_eq!(live_iops(text), want, "{text}");
        }
    }
}
