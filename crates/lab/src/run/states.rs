//! One load through the states of an array: fio runs all the while, a drive is failed and replaced under it, and what it
//! logged second by second is cut where the states changed.
//!
//! Invariants: it begins with a whole array; a cell holds only seconds that lie wholly in its state; an array that nobody
//! asks is marked in the run's directory while it may be anything but whole.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::call::{Call, Sight};
use super::journal::Taken;
use super::measure::{Measurement, asked_iops, own_cpu};
use crate::array::{Array, Standing};
use crate::bins::Bins;
use crate::error::Error;
use crate::fio_json::Job;
use crate::fio_log;
use crate::gates::{Seen, judge};
use crate::host::{Busy, Ticks};
use crate::model::{Cell, Check, Event, Figures, Gate, Latency, Moment, Second, State, Timeline};

/// Between two looks at the array.
const LOOK: Duration = Duration::from_secs(1);
/// How long fio may take until its first request is answered.
const START: Duration = Duration::from_secs(120);
/// How long an array may take to say what was done to it.
const SETTLE: Duration = Duration::from_secs(60);

/// A time in one state.
struct Phase {
    state: State,
    /// Seconds since 1970.
    from: f64,
    to: f64,
    busy: Option<Busy>,
    /// What the array said at the end.
    found: State,
}

/// A load on its way through the states.
pub struct Passage<'a> {
    /// The load.
    pub measurement: &'a Measurement<'a>,
    /// The array.
    pub array: &'a mut dyn Array,
    /// Is there while the array may be anything but whole.
    pub mark: PathBuf,
}

/// What fio logged of the whole call.
struct Logs<'a> {
    series: &'a [Second],
    histograms: &'a BTreeMap<u64, Bins>,
}

/// What was seen on the way.
#[derive(Default)]
struct Log {
    phases: Vec<Phase>,
    events: Vec<(f64, &'static str)>,
    rebuilt: Vec<(f64, f64)>,
}

impl Passage<'_> {
    /// Takes it; `live` is told the rate about every second.
    ///
    /// # Errors
    /// When the array cannot be controlled, fio fails, or what it prints makes no sense. The array then stays as it is:
    /// [`Passage::make_whole`].
    pub fn take(&mut self, live: &mut dyn FnMut(Option<f64>)) -> Result<Taken, Error> {
        self.make_whole()?;
        let scratch = self.measurement.scratch()?;
        let asked_iops = asked_iops(self.measurement.step, self.measurement.cells)?;
        let (args, command) = self.measurement.command(asked_iops, &scratch)?;
        let before = self.measurement.before();
        let call = self.measurement.start(&args)?;
        let begun = now();
        let log = self.walk(&call, live)?;
        call.stop()?;
        let (job, series) = self.measurement.outcome(call.end(true), || self.measurement.by.result(&scratch))?;
        let read = |name: &str| fs::read_to_string(scratch.join(name)).unwrap_or_default();
        let histograms = fio_log::histograms(&read("log_clat_hist.log"));
        let seen = self.measurement.seen(&before, std::slice::from_ref(&job));
        let logs = Logs { series: &series, histograms: &histograms };
        let mut cells: Vec<Cell> = vec![];
        for phase in &log.phases {
            let cell = self.measurement.cell(&job, asked_iops, command.clone());
            cells.push(self.cell(cell, phase, &logs, &job, &seen, &cells));
        }
        mark_base(&mut cells);
        let timeline = timeline(&self.measurement.step.test, begun, &series, &histograms, &log, &cells);
        Ok(Taken { cells, timeline: Some(timeline) })
    }

    /// Waits until the array is whole; what is missing is replaced.
    ///
    /// # Errors
    /// When it cannot be controlled, is not whole in time, or has no hook that tells its state.
    pub fn make_whole(&mut self) -> Result<(), Error> {
        let wrong = |why: &str| Err(Error::usage("the array", why));
        if self.mark.exists() && !self.array.tells() {
            let why = "the run was stopped while a drive was out, and there is no hook `state` to \
                       ask for its state: repair it, remove the file `array-touched` of the run, and continue";
            return wrong(why);
        }
        let begun = Instant::now();
        let mut replaced: Option<Instant> = None;
        loop {
            match (self.array.standing()?.state, replaced) {
                (State::Optimal | State::Rebuilt, _) => return Ok(()),
                (State::Degraded, None) => {
                    self.array.replace()?;
                    replaced = Some(Instant::now());
                }
                (State::Degraded, Some(at)) if at.elapsed() > SETTLE => {
                    return wrong("it stays degraded after a drive was replaced");
                }
                (State::Degraded | State::Rebuilding, _) => {}
            }
            if begun.elapsed().as_secs_f64() > self.measurement.step.rebuild_seconds {
                return wrong("it was not rebuilt in time: wait for its rebuild, then continue with --resume");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Fails and replaces while fio runs.
    fn walk(&mut self, call: &Call, live: &mut dyn FnMut(Option<f64>)) -> Result<Log, Error> {
        let (seconds, rebuild) = (self.measurement.step.seconds, self.measurement.step.rebuild_seconds);
        let mut log = Log::default();
        self.under_way(call, live)?;
        self.last(call, State::Optimal, self.measurement.step.ramp_seconds, &mut log, live)?;
        log.phases.clear();
        self.last(call, State::Optimal, seconds, &mut log, live)?;
        fs::write(&self.mark, "").map_err(|e| Error::file(&self.mark, e))?;
        log.events.push((now(), "fail"));
        self.array.fail()?;
        self.settle(State::Optimal)?;
        self.last(call, State::Degraded, seconds, &mut log, live)?;
        log.events.push((now(), "replace"));
        self.array.replace()?;
        self.settle(State::Degraded)?;
        let after = self.last(call, State::Rebuilding, rebuild, &mut log, live)?;
        if matches!(after, State::Optimal | State::Rebuilt) {
            log.events.push((now(), "rebuilt"));
            if !log.rebuilt.is_empty() {
                log.rebuilt.push((now(), 100.0));
            }
            fs::remove_file(&self.mark).map_err(|e| Error::file(&self.mark, e))?;
            self.last(call, State::Rebuilt, seconds, &mut log, live)?;
        }
        Ok(log)
    }

    /// Waits until requests are answered: a program takes its time to start, and none of that is a state's.
    fn under_way(&self, call: &Call, live: &mut dyn FnMut(Option<f64>)) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < START {
            match call.look(LOOK) {
                Sight::Iops(iops) if iops > 0.0 => {
                    live(Some(iops));
                    return Ok(());
                }
                Sight::Iops(_) | Sight::Nothing => {}
                Sight::Ended => return Err(self.measurement.failed("it ended before a request was answered")),
            }
        }
        Err(self.measurement.failed(&format!("no request was answered within {} s", START.as_secs())))
    }

    /// Waits until the array says something else than `before`.
    fn settle(&mut self, before: State) -> Result<(), Error> {
        let begun = Instant::now();
        while self.array.standing()?.state == before && begun.elapsed() < SETTLE {
            std::thread::sleep(LOOK / 10);
        }
        Ok(())
    }

    /// Lets a state last for `seconds`, or until it is over; returns the array's own word at the end.
    fn last(
        &mut self,
        call: &Call,
        state: State,
        seconds: f64,
        log: &mut Log,
        live: &mut dyn FnMut(Option<f64>),
    ) -> Result<State, Error> {
        let (from, before) = (now(), Ticks::now());
        let mut looked: Option<Instant> = None;
        let mut found = state;
        while now() - from < seconds {
            match call.look(LOOK / 5) {
                Sight::Iops(iops) => live(Some(iops)),
                Sight::Nothing => {}
                Sight::Ended => {
                    let why = format!("it ended by itself while the array was {state}; the array stays as it is");
                    return Err(self.measurement.failed(&why));
                }
            }
            if looked.is_some_and(|at| at.elapsed() < LOOK) {
                continue;
            }
            looked = Some(Instant::now());
            let Standing { state: told, rebuilt_percent } = self.array.standing()?;
            log.rebuilt.extend(rebuilt_percent.map(|percent| (now(), percent)));
            found = told;
            if !is_same(state, told) {
                break;
            }
        }
        log.phases.push(Phase { state, from, to: now(), busy: Ticks::now().since(&before), found });
        Ok(found)
    }

    /// The cell of one state.
    fn cell(&self, whole: Cell, phase: &Phase, logs: &Logs<'_>, job: &Job, seen: &Seen, earlier: &[Cell]) -> Cell {
        let inside = |end: f64| phase.from <= end - 1.5 && end + 0.5 <= phase.to;
        let seconds: Vec<&Second> = logs.series.iter().filter(|s| inside(s.at)).collect();
        let mut bins = Bins::default();
        logs.histograms.iter().filter(|(end, _)| inside(**end as f64)).for_each(|(_, part)| bins.merge(part));
        let rate = seconds.iter().map(|s| s.iops).sum::<f64>() / seconds.len() as f64;
        let iops = Some(rate).filter(|r| r.is_finite());
        let told = || seconds.iter().filter_map(|s| Some((s.mean_us?, s.iops)));
        let requests: f64 = told().map(|(_, n)| n).sum();
        let mean_us = (requests > 0.0).then(|| told().map(|(us, n)| us * n).sum::<f64>() / requests);
        let mut cell = Cell {
            id: format!("{}-{}", self.measurement.step.id, phase.state),
            asked_seconds: (phase.state != State::Rebuilding).then_some(self.measurement.step.seconds),
            figures: Figures {
                iops,
                bytes_per_sec: iops.zip(whole.load.block_bytes).map(|(n, block)| n * block as f64),
                latency: bins.latency(mean_us, None),
                seconds: iops.map(|_| phase.to - phase.from),
                cpu_percent: phase.busy.map(|b| b.all_percent),
                ..Figures::default()
            },
            bins: bins.pairs(),
            series: seconds.iter().map(|s| Second { at: (s.at - phase.from).round(), ..**s }).collect(),
            note: "one call of fio for all states, cut by its logs; percentiles are from the hand-over on".to_owned(),
            ..whole
        };
        cell.subject.state = phase.state;
        let own_cpu_percent = phase.busy.map(|b| own_cpu(job, b.cpus));
        // The states before this one wrote, too.
        let own: f64 = earlier.iter().filter_map(|c| self.measurement.overwritten(c)).sum();
        let before = earlier.len() as f64 * self.measurement.overwritten(&nothing(&cell)).unwrap_or(0.0);
        let overwritten = self.measurement.overwritten(&cell).map(|times| times + own - before);
        cell.gates = judge(&cell, &Seen { busy: phase.busy, own_cpu_percent, overwritten, ..seen.clone() });
        cell.gates.push(self.state_gate(phase, iops.is_some()));
        cell
    }

    fn state_gate(&self, phase: &Phase, measured: bool) -> Gate {
        let held = is_same(phase.state, phase.found);
        // A rebuild lasts until it is over.
        let over = phase.state == State::Rebuilding && is_same(State::Optimal, phase.found);
        match (measured, held || over, self.array.tells()) {
            (false, _, _) => Gate::fail(Check::State, format!("it was not {} for whole seconds", phase.state)),
            (true, false, _) => Gate::fail(Check::State, format!("it was {} before the time was over", phase.found)),
            (true, true, true) => Gate::pass(Check::State, format!("the array reported {} all the time", phase.state)),
            (true, true, false) => {
                Gate::warn(Check::State, "the array was not asked: the state is the one that was caused")
            }
        }
    }
}

/// A cell of this load that did nothing.
fn nothing(cell: &Cell) -> Cell {
    Cell { figures: Figures::default(), ..cell.clone() }
}

/// Of the rate before: a rebuilt array that makes less or more was not steady before, or is not what it was.
const BASE_MAX: f64 = 0.10;

/// Marks a rebuilt array whose rate is not that of the optimal one: what is kept while it rebuilds is told of neither.
fn mark_base(cells: &mut [Cell]) {
    let rate = |state| cells.iter().find(|c| c.subject.state == state).and_then(|c| c.figures.iops);
    let (Some(optimal), Some(rebuilt)) = (rate(State::Optimal), rate(State::Rebuilt)) else { return };
    let share = rebuilt / optimal;
    if (share - 1.0).abs() <= BASE_MAX {
        return;
    }
    let text = format!("rebuilt, it makes {:.0} % of the optimal rate", share * 100.0);
    let gate = Gate::warn(Check::Steady, format!("{text}: the optimal one was not steady, or the array is another"));
    cells.iter_mut().for_each(|c| c.gates.push(gate.clone()));
}

/// Whether the array's word is that of the phase: one that was rebuilt is optimal.
fn is_same(phase: State, told: State) -> bool {
    let whole = |s: State| if s == State::Rebuilt { State::Optimal } else { s };
    whole(phase) == whole(told)
}

/// Everything on one axis.
fn timeline(
    name: &str,
    begun: f64,
    series: &[Second],
    histograms: &BTreeMap<u64, Bins>,
    log: &Log,
    cells: &[Cell],
) -> Timeline {
    let end = log.phases.last().map_or(begun, |p| p.to);
    let moment = |s: &Second| {
        let rebuilt = log.rebuilt.iter().rev().find(|(at, _)| *at <= s.at).map(|(_, percent)| *percent);
        let told = histograms.get(&(s.at as u64)).map(|b| b.latency(None, None)).unwrap_or_default();
        let p99_us = histograms.get(&(s.at as u64)).and_then(|b| b.quantile_us(0.99));
        let Latency { p50_us, p95_us, p999_us, .. } = told;
        Moment { at: s.at - begun, iops: Some(s.iops), p50_us, p95_us, p99_us, p999_us, rebuilt_percent: rebuilt }
    };
    let optimal = cells.iter().find(|c| c.subject.state == State::Optimal);
    Timeline {
        name: format!("{name} through the states"),
        optimal_iops: optimal.and_then(|c| c.figures.iops),
        moments: series.iter().filter(|s| (begun..=end).contains(&s.at)).map(moment).collect(),
        events: log.events.iter().map(|(at, what)| Event { at: at - begun, what: (*what).to_owned() }).collect(),
    }
}

/// Seconds since 1970: fio's logs are put on the same clock.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}
