//! One cell: a generator is started, watched, and what it measured becomes figures and verdicts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Said;
use super::call::{Call, Sight};
use super::generator::{Generator, SCRATCH};
use crate::bins::Bins;
use crate::error::Error;
use crate::fio;
use crate::fio_json::Job;
use crate::gates::{Seen, judge};
use crate::host::{self, Ticks};
use crate::hosts::Host;
use crate::model::{Cell, Check, Gate, Part, Second};
use crate::plan::Step;
use crate::served::Served;
use crate::target::{Identity, Kind, Target};
use crate::written::{self, Contents, Written};

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
    /// What the targets were when the run began.
    pub first: &'a [Option<Identity>],
    /// The control sockets of servers of theirs.
    pub sockets: &'a [&'a str],
}

/// What was seen before a cell.
pub(super) struct Before {
    written: Option<Written>,
    contents: Option<Contents>,
    served: Served,
    ticks: Ticks,
}

/// A call of the generator that ended: what it measured, or why there is nothing.
type Outcome = Result<(Job, Vec<Second>), Error>;

impl Measurement<'_> {
    /// Takes it; `live` is told the rate about every second.
    ///
    /// # Errors
    /// When fio fails, or what it prints makes no sense.
    pub fn take(&self, live: &mut dyn FnMut(Option<f64>)) -> Result<Cell, Error> {
        if let Err(why) = asked_iops(self.step, self.cells) {
            return Ok(self.failed_cell(None, String::new(), &why));
        }
        if self.step.load.hosts.is_some() {
            return self.take_over_hosts(live);
        }
        if self.step.load.targets.is_some() {
            return self.take_together(live);
        }
        let scratch = self.scratch()?;
        let asked_iops = asked_iops(self.step, self.cells)?;
        let (args, command) = self.command(asked_iops, &scratch)?;
        let before = self.before();
        let call = self.start(&args)?;
        let ended = self.wait(call, live);
        let (job, series) = match self.outcome(ended, || self.by.result(&scratch)) {
            Ok(outcome) => outcome,
            Err(why) => return Ok(self.failed_cell(asked_iops, command, &why)),
        };
        let mut cell = self.cell(&job, asked_iops, command);
        cell.series = series;
        let seen = self.seen(&before, std::slice::from_ref(&job));
        cell.figures.cpu_percent = seen.busy.map(|b| b.all_percent);
        cell.gates = judge(&cell, &Seen { overwritten: self.overwritten(&cell), ..seen });
        Ok(cell)
    }

    /// What a call that ended has measured. One that ended as a failure may count nevertheless ([`counted`]).
    pub(super) fn outcome(&self, ended: Result<String, String>, result: impl FnOnce() -> Outcome) -> Outcome {
        match (ended, result()) {
            (Ok(_), Ok(outcome)) => Ok(outcome),
            // fio may refuse a job, say so, print no result, and end as if all were well.
            (Ok(words), Err(e)) => Err(if words.is_empty() { e } else { self.failed(&words) }),
            (Err(why), Ok((job, series))) => match counted(self.step.part, job) {
                Some(job) => Ok((job, series)),
                None => Err(self.failed(&why)),
            },
            (Err(why), Err(_)) => Err(self.failed(&why)),
        }
    }

    /// A cell whose generator left nothing: the run goes on.
    pub(super) fn failed_cell(&self, asked_iops: Option<f64>, command: String, why: &Error) -> Cell {
        let mut cell = self.cell(&Job::default(), asked_iops, command);
        cell.gates = vec![Gate::fail(Check::Errors, format!("nothing was measured: {why}"))];
        cell
    }

    /// An empty directory for what the generator writes.
    pub(super) fn scratch(&self) -> Result<PathBuf, Error> {
        let scratch = self.dir.join(SCRATCH);
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

    /// Looks at the targets and the machine before a cell.
    pub(super) fn before(&self) -> Before {
        let (written, contents) = (self.written_everywhere(), self.contents());
        Before { written, contents, served: Served::look(self.mine(), self.sockets), ticks: Ticks::now() }
    }

    /// What was seen of a cell that has ended, which `jobs` made on this machine; none: others did.
    pub(super) fn seen(&self, before: &Before, jobs: &[Job]) -> Seen {
        let busy = Ticks::now().since(&before.ticks).filter(|_| !jobs.is_empty());
        let cpus = busy.map_or(1, |b| b.cpus);
        let sum = |of: fn(&Job) -> u64| jobs.iter().fold(0, |sum: u64, j| sum.saturating_add(of(j)));
        let own = busy.map(|b| jobs.iter().map(|j| own_cpu(j, b.cpus)).sum());
        let one = self.step.load.targets.is_none();
        Seen {
            written: before.written,
            written_after: self.written_everywhere(),
            contents: before.contents,
            errors: (!jobs.is_empty()).then(|| (sum(|j| j.errors), sum(|j| j.short))),
            own_cpu_percent: own,
            served_cpu_percent: Served::look(self.mine(), self.sockets).percent_since(&before.served, cpus),
            busy,
            trusted: self.said.trusted,
            memory_bytes: host::memory_bytes(),
            // Each of several targets has a link, and a temperature, of its own.
            link_bytes_per_sec: self.target.link_bytes_per_sec().filter(|_| one),
            heat: host::temperature(self.target).filter(|_| one),
            changes: self.changes(),
            incompressible: Some(true),
            memory_below: self.mine().find_map(Target::memory_below).map(str::to_owned),
            direct_is_known: !self.is_export(),
            overwritten: None,
        }
    }

    /// The targets that the step works on.
    fn mine(&self) -> impl Iterator<Item = &Target> {
        let all = self.step.load.targets.is_some();
        self.targets.iter().enumerate().filter(move |(n, _)| all || *n == self.step.target as usize).map(|(_, t)| t)
    }

    /// How the step's targets differ from what they were when the run began.
    fn changes(&self) -> Option<Vec<String>> {
        let pairs = self.mine().filter_map(|target| {
            let nth = self.targets.iter().position(|t| t == target)?;
            Some((target, self.first.get(nth)?.as_ref()?, Identity::of(target)?))
        });
        let mut looked = false;
        let mut all = vec![];
        for (target, first, now) in pairs {
            looked = true;
            let of = if self.targets.len() > 1 { format!("{}: ", target.name) } else { String::new() };
            all.extend(first.changes(&now).into_iter().map(|change| format!("{of}{change}")));
        }
        looked.then_some(all)
    }

    /// What lies in the range before it is read, where that can be looked at.
    fn contents(&self) -> Option<Contents> {
        let load = &self.step.load;
        if !load.reads() || self.step.is_once() {
            return None;
        }
        let looks = self.mine().map(|target| {
            let (offset, bytes) = (load.offset_bytes.unwrap_or(0), load.range_bytes.unwrap_or(target.bytes));
            written::contents(&target.path()?, offset, bytes).ok()
        });
        looks.reduce(|a, b| {
            let (a, b) = (a?, b?);
            Some(Contents { blocks: a.blocks + b.blocks, zeros: a.zeros + b.zeros, repeats: a.repeats + b.repeats })
        })?
    }

    /// How often the range was written since its last fill, or since the run began, with this cell.
    pub(super) fn overwritten(&self, cell: &Cell) -> Option<f64> {
        let range = |c: &Cell| (c.load.offset_bytes.unwrap_or(0), c.load.range_bytes.unwrap_or(self.target.bytes));
        let (from, len) = range(cell);
        if !cell.load.writes() || len == 0 {
            return None;
        }
        let on_it = |c: &&Cell| {
            let step = self.steps.iter().find(|s| s.id == c.id || c.id.starts_with(&format!("{}-", s.id)));
            step.is_some_and(|s| s.load.targets.is_some() || s.target == self.step.target)
        };
        let before: Vec<&Cell> = self.cells.iter().filter(on_it).collect();
        let filled = before.iter().rposition(|c| c.part == Part::Fill).map_or(0, |at| at + 1);
        let times = before[filled..].iter().copied().chain([cell]).map(|c| {
            let (other, bytes) = range(c);
            let shared = (from + len).min(other + bytes).saturating_sub(from.max(other));
            let each = written_by(c) / f64::from(c.load.targets.unwrap_or(1));
            if bytes == 0 { 0.0 } else { each * (shared as f64 / bytes as f64) / len as f64 }
        });
        Some(times.sum())
    }

    /// What is known of the ranges of the step's targets.
    pub(super) fn written_everywhere(&self) -> Option<Written> {
        let (mut all, mut missing) = (Some(Written::All), 0);
        for target in self.mine() {
            // A range that cannot be looked at shows nothing.
            let nth = self.targets.iter().position(|t| t == target).unwrap_or(0);
            match self.written_of(nth).unwrap_or(Some(Written::Unknown))? {
                Written::All => {}
                Written::Missing { bytes } => missing += bytes,
                Written::Unknown => all = Some(Written::Unknown),
            }
        }
        if missing > 0 { Some(Written::Missing { bytes: missing }) } else { all }
    }

    /// What is known of the range of one of the targets: files and some exports tell, of others what this run filled.
    fn written_of(&self, nth: usize) -> Result<Option<Written>, Error> {
        let (load, target) = (&self.step.load, self.targets.get(nth).unwrap_or(self.target));
        if !load.reads() {
            return Ok(None);
        }
        let (offset, bytes) = (load.offset_bytes.unwrap_or(0), load.range_bytes.unwrap_or(target.bytes));
        let told = match target.path().filter(|_| target.kind == Kind::File) {
            Some(path) => written::of_file(&path, offset, bytes).map_err(|e| Error::file(path, e))?,
            None => (self.ask)(target, offset, bytes),
        };
        let is_of = |cell: &&Cell| {
            let of = |s: &Step| s.target as usize == nth || s.load.targets.is_some();
            self.steps.iter().any(|s| s.id == cell.id && of(s))
        };
        let filled = self.cells.iter().filter(|c| c.part == Part::Fill).filter(is_of).any(|c| {
            let (from, len) = (c.load.offset_bytes.unwrap_or(0), c.load.range_bytes.unwrap_or(0));
            let all = len * u64::from(c.load.targets.unwrap_or(1));
            from <= offset && offset + bytes <= from + len && c.figures.written_bytes.is_some_and(|w| w >= all)
        });
        Ok(Some(if told == Written::Unknown && filled { Written::All } else { told }))
    }

    /// Waits for the end of a call; what it complained of all the same, or how it failed.
    pub(super) fn wait(&self, call: Call, live: &mut dyn FnMut(Option<f64>)) -> Result<String, String> {
        loop {
            match call.look(LOOK) {
                Sight::Iops(iops) => live(Some(iops)),
                Sight::Nothing => {}
                Sight::Ended => break,
            }
        }
        call.end(false)
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
            let on = if self.step.load.targets.is_some() { names.join(" and ") } else { self.target.name.clone() };
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
            asked_seconds: (!once && self.step.until.is_none()).then(|| self.step.seconds.ceil()),
            figures: job.figures.clone(),
            bins: Bins::pairs(&job.bins),
            series: vec![],
            gates: vec![],
            command: Some(command).filter(|c| !c.is_empty()),
            note: String::new(),
        }
    }

    fn is_export(&self) -> bool {
        matches!(self.target.kind, Kind::Nbd | Kind::Nvme)
    }
}

/// Bytes that a cell wrote, told or by arithmetic.
fn written_by(cell: &Cell) -> f64 {
    let (load, figures) = (&cell.load, &cell.figures);
    let share = 1.0 - load.read_percent.unwrap_or(100.0) / 100.0;
    let reckoned = || Some(figures.iops? * load.block_bytes? as f64 * figures.seconds? * share);
    figures.written_bytes.map(|b| b as f64).or_else(reckoned).unwrap_or(0.0)
}

/// Of a point of a curve, and of states at a fixed rate: its share of the rate without a limit.
pub(super) fn asked_iops(step: &Step, cells: &[Cell]) -> Result<Option<f64>, Error> {
    let percent = match (step.part, step.rate_percent) {
        (Part::Curve { percent }, _) | (_, Some(percent)) => percent,
        (_, None) => return Ok(None),
    };
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

/// What counts of a call that failed: what it measured, with one error at least, as fio does where requests failed. A
/// check counts by the blocks that it found wrong; one that found none did not come to its end.
fn counted(part: Part, job: Job) -> Option<Job> {
    let counts = if part == Part::Check { job.errors > 0 } else { job.figures.iops.is_some() };
    counts.then(|| Job { errors: job.errors.max(1), ..job })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Figures;

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

    #[test]
    fn a_check_that_was_broken_off_is_not_passed() {
        let job = |iops, errors| Job { figures: Figures { iops, ..Figures::default() }, errors, ..Job::default() };
        let errors = |part, iops, errors| counted(part, job(iops, errors)).map(|j| j.errors);
        assert_eq!(errors(Part::Check, Some(1000.0), 0), None, "it ended before it found anything");
        assert_eq!(errors(Part::Check, None, 0), None);
        assert_eq!(errors(Part::Check, Some(1000.0), 3), Some(3));
        assert_eq!(errors(Part::Alone, Some(1000.0), 0), Some(1), "what failed is an error at least");
        assert_eq!(errors(Part::Alone, None, 1), None, "nothing was measured");
    }
}
