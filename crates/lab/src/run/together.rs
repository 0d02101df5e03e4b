//! A cell of several targets at once: one call of fio with a job for each.

use std::fs;

use super::measure::{Measurement, own_cpu};
use crate::error::Error;
use crate::fio;
use crate::fio_json::{self, together};
use crate::fio_log;
use crate::gates::{Seen, judge};
use crate::host::Ticks;
use crate::model::Cell;
use crate::together;
use crate::written::Written;

impl Measurement<'_> {
    /// Takes the cell on all targets; `live` is told the rate about every second.
    pub(super) fn take_together(&self, live: &mut dyn FnMut(Option<f64>)) -> Result<Cell, Error> {
        let (fio, scratch) = (self.by.fio()?, self.scratch()?);
        let pace = self.step.pace(None);
        let jobs = self.targets.iter().enumerate().map(|(nth, target)| {
            let job = fio::Job { target, load: &self.step.load, pace, host: 0 };
            fio.options(&job, &scratch.join(format!("log-{nth}")))
        });
        let args = fio::arguments_of(&jobs.collect::<Result<Vec<_>, _>>()?, &self.step.load, &scratch);
        let command = fio.command_line(&args);
        let written = self.written_everywhere()?;
        let before = Ticks::now();
        let complaints = self.call(&args, live)?;
        let busy = Ticks::now().since(&before);
        let path = scratch.join("fio.json");
        let text = fs::read_to_string(&path).map_err(|e| Error::file(path, e))?;
        let jobs = fio_json::parse(&text).map_err(|_| self.failed(&complaints))?.jobs;
        if jobs.len() != self.targets.len() || jobs.iter().any(|j| j.figures.iops.is_none()) {
            return Err(self.failed(&format!("one target has no figures; {complaints}")));
        }
        let job = together(&jobs).ok_or_else(|| self.failed(&complaints))?;
        let mut cell = self.cell(&job, None, command);
        let logs = |what: &str| {
            let read = |nth| fs::read_to_string(scratch.join(format!("log-{nth}_{what}.log"))).unwrap_or_default();
            (0..jobs.len()).map(read).collect::<String>()
        };
        cell.series = fio_log::series(&logs("iops"), &logs("lat"));
        cell.figures.cpu_percent = busy.map(|b| b.all_percent);
        let shares = self.targets.iter().zip(&jobs).map(|(target, job)| {
            let rate = job.figures.iops.map_or("nothing".to_owned(), crate::units::grouped);
            format!("{} {rate} IOPS", target.name)
        });
        cell.note = shares.collect::<Vec<_>>().join("; ");
        let seen = Seen {
            written,
            errors: Some((job.errors, job.short)),
            own_cpu_percent: busy.map(|b| jobs.iter().map(|j| own_cpu(j, b.cpus)).sum()),
            busy,
            // Each target has a link, and a temperature, of its own.
            link_bytes_per_sec: None,
            heat: None,
            ..self.seen()
        };
        cell.gates = judge(&cell, &seen);
        cell.gates.push(together::gate(&cell, self.cells));
        Ok(cell)
    }

    /// What is known of the ranges of all targets.
    fn written_everywhere(&self) -> Result<Option<Written>, Error> {
        let (mut all, mut missing) = (Some(Written::All), 0);
        for nth in 0..self.targets.len() {
            match self.written_of(nth)? {
                None => return Ok(None),
                Some(Written::All) => {}
                Some(Written::Missing { bytes }) => missing += bytes,
                Some(Written::Unknown) => all = Some(Written::Unknown),
            }
        }
        Ok(if missing > 0 { Some(Written::Missing { bytes: missing }) } else { all })
    }
}
