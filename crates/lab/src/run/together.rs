//! A cell of several targets at once: one call of fio with a job for each.

use std::fs;

use super::measure::{Measurement, asked_iops};
use crate::error::Error;
use crate::fio;
use crate::fio_json::{self, together};
use crate::fio_log;
use crate::gates::{Seen, judge};
use crate::model::{Cell, Part};
use crate::together;

impl Measurement<'_> {
    /// Takes the cell on all targets; `live` is told the rate about every second.
    pub(super) fn take_together(&self, live: &mut dyn FnMut(Option<f64>)) -> Result<Cell, Error> {
        let (fio, scratch) = (self.by.fio()?, self.scratch()?);
        let asked_iops = asked_iops(self.step, self.cells)?;
        let pace = self.step.pace(asked_iops);
        let jobs = self.targets.iter().enumerate().map(|(nth, target)| {
            let job = fio::Job { target, load: &self.step.load, pace, host: 0 };
            fio.options(&job, &scratch.join(format!("log-{nth}")))
        });
        let args = fio::arguments_of(&jobs.collect::<Result<Vec<_>, _>>()?, &self.step.load, &scratch);
        let command = fio.command_line(&args);
        let before = self.before();
        let call = self.start(&args)?;
        let ended = self.wait(call, live);
        let mut each = vec![];
        let read = || {
            let path = scratch.join("fio.json");
            let text = fs::read_to_string(&path).map_err(|e| Error::file(path, e))?;
            each = fio_json::parse(&text)?.jobs;
            let job = together(&each).ok_or_else(|| self.failed("it told of no job"))?;
            Ok((job, vec![]))
        };
        let job = match self.outcome(ended, read) {
            Ok((job, _)) if each.len() == self.targets.len() && each.iter().all(|j| j.figures.iops.is_some()) => job,
            Ok(_) => return Ok(self.failed_cell(asked_iops, command, &self.failed("one target has no figures"))),
            Err(why) => return Ok(self.failed_cell(asked_iops, command, &why)),
        };
        let jobs = each;
        let mut cell = self.cell(&job, asked_iops, command);
        let logs = |what: &str| {
            let read = |nth| fs::read_to_string(scratch.join(format!("log-{nth}_{what}.log"))).unwrap_or_default();
            (0..jobs.len()).map(read).collect::<String>()
        };
        cell.series = fio_log::series(&logs("iops"), &logs("lat"));
        let shares = self.targets.iter().zip(&jobs).map(|(target, job)| {
            let rate = job.figures.iops.map_or("nothing".to_owned(), crate::units::grouped);
            format!("{} {rate} IOPS", target.name)
        });
        cell.note = shares.collect::<Vec<_>>().join("; ");
        // What failed of the call as a whole counts, too.
        let mut seen = self.seen(&before, &jobs);
        seen.errors = seen.errors.map(|(errors, short)| (errors.max(job.errors), short));
        cell.figures.cpu_percent = seen.busy.map(|b| b.all_percent);
        cell.gates = judge(&cell, &Seen { overwritten: self.overwritten(&cell), ..seen });
        let wants_each = self.steps.iter().any(|s| s.test == self.step.test && matches!(s.part, Part::OneOf { .. }));
        cell.gates.extend(wants_each.then(|| together::gate(&cell, self.cells)));
        Ok(cell)
    }
}
