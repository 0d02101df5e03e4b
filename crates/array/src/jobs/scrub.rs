//! Scrub: reads everything before it is needed, and puts right what is wrong while the redundancy still can.
//!
//! ```text
//! media    every written row of every column, against the checksums of its record; labels and generations
//! parity   the same, and redundancy against the data
//! ```
//!
//! Segment by segment in the order of their ids. The position is in the generation, so a scrub goes on after a restart.
//! Rows that are not acknowledged are left alone; segments written after it began are not waited for.
//!
//! Invariants:
//! - a row is only ever overwritten by the same, checksum-proven content, under a pin (`rows.rs`);
//! - hosts first: while they are at work the drives belong to a scrub for a quarter of the time at most.
//!
//! Not here: what a scrub reads and mends (`rows.rs`, `system.rs`), and how fast (`rate.rs`).

mod rate;
mod rows;
mod system;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{MemberId, SegmentId};
use futures::future::select;
use ondisk::ScrubLine;
use rt::Nanos;
use serde::Serialize;

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::engine::alarm::{Alarm, AlarmCode};
use crate::fault::{Fault, Refused, RefusedCode, Remedy};
use crate::member::seat::Seat;
use crate::space::segment::Seg;

/// Hours from one media scrub of a new array to the next: a week, as drives' own patrol reads take.
pub const MEDIA_EVERY_HOURS: u32 = 7 * 24;

/// Hours from one parity scrub of a new array to the next: it costs more and finds what is rarer.
pub const PARITY_EVERY_HOURS: u32 = 30 * 24;

/// Of the time, a scrub has one part in so many while hosts are at work.
const SHARE_BESIDE_HOSTS: u32 = 4;

/// The position is written down at least so often.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// The schedule is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Events of one scrub about single places; the rest is counted.
const EVENTS_MAX: u64 = 50;

/// Which scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubKind {
    /// Data, headers, map nodes and the system area against their checksums.
    Media,
    /// That, and redundancy against the data.
    Parity,
}

impl ScrubKind {
    fn word(self) -> &'static str {
        match self {
            ScrubKind::Media => "media scrub",
            ScrubKind::Parity => "parity scrub",
        }
    }
}

/// What a scrub found on one drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriveFindings {
    /// The drive, as people know it.
    pub drive_name: String,
    /// Its seat.
    pub seat: u16,
    /// Blocks (and generations) that were wrong or could not be read.
    pub found: u64,
    /// Of these, right again.
    pub repaired: u64,
    /// Of these, written back and not there when they were read again.
    pub not_held: u64,
    /// Of these, not repairable: redundancy does not cover it.
    pub lost: u64,
}

/// A scrub that ran, or runs.
#[derive(Clone, Debug, Serialize)]
pub struct ScrubRun {
    /// Which.
    pub kind: ScrubKind,
    /// Whether it came to its end.
    pub finished: bool,
    /// Segments read.
    pub segments_done: u64,
    /// Segments to read when it began (or went on after a restart).
    pub segments_total: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Since it began or went on.
    pub seconds: u64,
    /// Until it ends, at the rate so far.
    pub eta_seconds: Option<u64>,
    /// Drives on which something was wrong.
    pub found: Vec<DriveFindings>,
}

/// Schedule and history of one kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ScrubSchedule {
    /// Hours from one beginning to the next; 0: not by itself.
    pub every_hours: u32,
    /// When the last one began: seconds since 1970; 0: never.
    pub started_at: u64,
    /// When the last one ended: seconds since 1970; 0: never.
    pub finished_at: u64,
}

/// All that is to be said of scrubs.
#[derive(Clone, Debug, Serialize)]
pub struct ScrubStatus {
    /// The one that is running.
    pub running: Option<ScrubRun>,
    /// The last one since the array was opened.
    pub last: Option<ScrubRun>,
    /// Patrol reads.
    pub media: ScrubSchedule,
    /// Consistency checks.
    pub parity: ScrubSchedule,
    /// What it reads at most.
    pub bytes_per_second: u64,
}

/// How the scrub under way stands, and what is asked of it.
#[derive(Default)]
pub struct Progress {
    running: Cell<Option<ScrubKind>>,
    wanted: Cell<Option<ScrubKind>>,
    stop: Cell<bool>,
    unlimited: Cell<bool>,
    total: Cell<u64>,
    done: Cell<u64>,
    bytes: Cell<u64>,
    began: Cell<Nanos>,
    saved: Cell<Nanos>,
    events: Cell<u64>,
    host_requests: Cell<u64>,
    /// What it reads a second at most, as of the last look.
    bytes_per_second: Cell<u64>,
    found: RefCell<BTreeMap<MemberId, DriveFindings>>,
    /// Segments with a place that does not hold what is written there.
    failing: RefCell<BTreeSet<SegmentId>>,
    last: RefCell<Option<ScrubRun>>,
}

/// What became of something that was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Repaired,
    /// It did not stay.
    NotHeld,
    /// There is no room to write it back; the next scrub tries again.
    NoRoom,
    Lost,
}

impl Core {
    pub(super) async fn keep_scrubbed(self: Rc<Self>) {
        loop {
            if !self.ctx.is_open() || self.ctx.is_closing() {
                return;
            }
            match self.next_scrub() {
                Some(kind) => self.scrub(kind).await,
                None => {
                    let news =
                        || !self.ctx.is_open() || self.ctx.is_closing() || self.jobs.scrub.wanted.get().is_some();
                    let changed = pin!(self.ctx.changed.until(news));
                    select(changed, pin!(self.ctx.rt.sleep(self.time_to_next()))).await;
                }
            }
        }
    }

    fn scrub_line(&self, kind: ScrubKind) -> ScrubLine {
        let settings = self.ctx.settings();
        match kind {
            ScrubKind::Media => settings.scrub_media,
            ScrubKind::Parity => settings.scrub_parity,
        }
    }

    fn set_scrub_line(&self, kind: ScrubKind, change: impl FnOnce(&mut ScrubLine)) {
        self.ctx.set(|settings| {
            change(match kind {
                ScrubKind::Media => &mut settings.scrub_media,
                ScrubKind::Parity => &mut settings.scrub_parity,
            });
        });
    }

    /// Seconds since 1970 at which a kind is due. One that began in the future was told so by a clock that was wrong: it is
    /// due now.
    fn due_at(&self, kind: ScrubKind) -> Option<u64> {
        let line = self.scrub_line(kind);
        if line.every_hours == 0 {
            return None;
        }
        let ahead = line.started_at > self.ctx.rt.unix_seconds() && !planted(Canary::ScrubAwaitsWrongDate);
        Some(if ahead { 0 } else { line.started_at.saturating_add(u64::from(line.every_hours) * 3600) })
    }

    /// Scrubs that should have begun a whole interval ago, or have been running for two, or cannot end in time, for its alarms.
    pub fn scrub_alarms(&self) -> Vec<Alarm> {
        let now = self.ctx.rt.unix_seconds();
        let overdue = |kind: ScrubKind| {
            let (every, due) = (self.scrub_line(kind).every_hours, self.due_at(kind)?);
            // Of one that began in the future it is not known how long it waits; it begins at once, or goes on.
            (due > 0 && now.saturating_sub(due) > u64::from(every) * 3600).then(|| {
                let ago = now.saturating_sub(self.scrub_line(kind).started_at) / 3600;
                let what = format!(
                    "the {} is overdue: one is due every {every} hours, the last began {ago} hours ago",
                    kind.word()
                );
                Alarm::warning(AlarmCode::ScrubOverdue, what, "Keep the array served; scrubs run while no rebuild runs")
            })
        };
        let overdue = [ScrubKind::Media, ScrubKind::Parity].into_iter().filter_map(overdue);
        overdue.chain(self.scrub_rate_alarm()).collect()
    }

    /// What was asked for, what a restart interrupted, what is due. A parity scrub does what a media scrub does.
    fn next_scrub(&self) -> Option<ScrubKind> {
        let both = [ScrubKind::Parity, ScrubKind::Media];
        let now = self.ctx.rt.unix_seconds();
        let asked = self.jobs.scrub.wanted.take();
        let interrupted = || both.into_iter().find(|k| self.scrub_line(*k).position > 0);
        asked.or_else(interrupted).or_else(|| both.into_iter().find(|k| self.due_at(*k).is_some_and(|at| at <= now)))
    }

    fn time_to_next(&self) -> Duration {
        let due = [ScrubKind::Media, ScrubKind::Parity].into_iter().filter_map(|k| self.due_at(k)).min();
        let left = due.map(|at| Duration::from_secs(at.saturating_sub(self.ctx.rt.unix_seconds()).max(1)));
        left.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)
    }

    /// Asks for a scrub from the beginning.
    pub fn scrub_start(&self, kind: ScrubKind, unlimited: bool) -> Result<(), Refused> {
        self.writable()?;
        if let Some(running) = self.jobs.scrub.running.get().or(self.jobs.scrub.wanted.get()) {
            return Err(Refused::new(
                RefusedCode::InUse,
                format!("array \"{}\"", self.ctx.name),
                format!("a {} is already running", running.word()),
                "Wait until it ends, or stop it",
            )
            .by(Remedy::StopScrub));
        }
        for kind in [ScrubKind::Media, ScrubKind::Parity] {
            self.set_scrub_line(kind, |line| line.position = 0);
        }
        self.jobs.scrub.unlimited.set(unlimited);
        self.jobs.scrub.wanted.set(Some(kind));
        self.ctx.changed.wake();
        Ok(())
    }

    /// Ends the scrub under way; false when there is none. The next begins anew, when it is due or asked for.
    pub async fn scrub_stop(&self) -> bool {
        let p = &self.jobs.scrub;
        let mut asked = p.wanted.take().is_some();
        if p.running.get().is_none() {
            // One that a restart interrupted, and that has not gone on yet.
            for kind in [ScrubKind::Media, ScrubKind::Parity] {
                self.set_scrub_line(kind, |line| asked |= std::mem::take(&mut line.position) > 0);
            }
            return asked;
        }
        p.stop.set(true);
        self.ctx.changed.wake();
        self.ctx.changed.until(|| p.running.get().is_none() || !self.ctx.is_open()).await;
        true
    }

    /// Resolves when no scrub runs or is about to.
    pub async fn scrub_over(&self) {
        let busy = || self.jobs.scrub.running.get().is_some() || self.jobs.scrub.wanted.get().is_some();
        self.ctx.changed.until(|| !self.ctx.is_open() || !busy()).await;
    }

    /// Whether the scrub under way goes on.
    fn scrub_goes_on(&self) -> bool {
        self.ctx.is_open() && !self.ctx.is_closing() && !self.jobs.scrub.stop.get()
    }

    async fn scrub(self: &Rc<Self>, kind: ScrubKind) {
        let p = &self.jobs.scrub;
        p.found.borrow_mut().clear();
        p.running.set(Some(kind));
        [&p.done, &p.bytes, &p.events].iter().for_each(|c| c.set(0));
        p.began.set(self.ctx.rt.now());
        p.bytes_per_second.set(self.scrub_rate_now());
        p.saved.set(self.ctx.rt.now());
        p.stop.set(false);
        let resumed = if planted(Canary::ScrubForgetsPosition) { 0 } else { self.scrub_line(kind).position };
        let now = self.ctx.rt.unix_seconds();
        // A start in the future is none: the clock was wrong.
        if resumed > 0 && self.scrub_line(kind).started_at > now {
            self.set_scrub_line(kind, |line| line.started_at = now);
        }
        if resumed == 0 {
            self.set_scrub_line(kind, |line| (line.position, line.started_at) = (1, now));
        }
        let from = self.scrub_line(kind).position;
        let end = self.segments.read().next;
        let how = if resumed == 0 { "begins".to_owned() } else { format!("resumes at segment {resumed}") };
        self.ctx.note(format!("{} {how}", kind.word()));
        let result = self.scrub_all(kind, from, end).await;
        let finished = result.is_ok() && self.scrub_goes_on();
        if finished {
            let now = self.ctx.rt.unix_seconds();
            self.set_scrub_line(kind, |line| (line.position, line.finished_at) = (0, now));
            if kind == ScrubKind::Parity {
                self.set_scrub_line(ScrubKind::Media, |line| (line.started_at, line.finished_at) = (now, now));
            }
        } else if p.stop.get() {
            self.set_scrub_line(kind, |line| line.position = 0);
        }
        if self.ctx.is_open() && !self.ctx.is_closing() {
            self.clean_failing().await;
            // The blocks put right are durable with it. It fails when the array froze.
            let _ = self.commit().await;
            let summary = self.scrub_summary(kind, finished);
            if p.found.borrow().is_empty() { self.ctx.note(summary) } else { self.ctx.warn(summary) }
        }
        *p.last.borrow_mut() = self.scrub_run().map(|run| ScrubRun { finished, ..run });
        p.running.set(None);
        p.unlimited.set(false);
        self.ctx.changed.wake();
    }

    async fn scrub_all(self: &Rc<Self>, kind: ScrubKind, from: u64, end: u64) -> Result<(), Fault> {
        let p = &self.jobs.scrub;
        // Begun, durably: a restart goes on with it.
        self.commit().await?;
        self.scrub_system_areas().await?;
        let written = |s: &&Seg| !s.is_spare();
        let next = |from: u64| {
            let table = self.segments.read();
            let mut left = table.segments.range(SegmentId(from)..SegmentId(end)).map(|(_, s)| s).filter(written);
            left.next().map(|s| (s.id, 1 + left.count() as u64))
        };
        let mut at = from;
        while self.scrub_goes_on() {
            let Some((id, left)) = next(at) else { return Ok(()) };
            p.total.set(p.done.get() + left);
            self.scrub_segment(id, kind).await?;
            if !self.scrub_goes_on() {
                break;
            }
            at = id.0 + 1;
            p.done.set(p.done.get() + 1);
            self.set_scrub_line(kind, |line| line.position = at);
            if self.ctx.rt.now() - p.saved.get() >= SAVE_EVERY {
                p.saved.set(self.ctx.rt.now());
                p.bytes_per_second.set(self.scrub_rate_now());
                self.commit().await?;
            }
        }
        Ok(())
    }

    /// Waits as long as the limit and hosts ask for, after `bytes` were read since `begun`.
    async fn scrub_pause(&self, bytes: u64, begun: Nanos) {
        let p = &self.jobs.scrub;
        p.bytes.set(p.bytes.get() + bytes);
        let took = self.ctx.rt.now() - begun;
        let mut whole = Duration::ZERO;
        if !p.unlimited.get() {
            whole = Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(self.scrub_pace())) as u64);
        }
        let requests = self.host_requests();
        if p.host_requests.replace(requests) != requests {
            whole = whole.max(took * SHARE_BESIDE_HOSTS);
        }
        let stopped = pin!(self.ctx.changed.until(|| !self.scrub_goes_on()));
        select(stopped, pin!(self.ctx.rt.sleep(whole.saturating_sub(took)))).await;
        // A rebuild comes first.
        let rebuilding = || self.rebuild_status().is_some();
        self.ctx.changed.until(|| !rebuilding() || !self.scrub_goes_on()).await;
    }

    fn host_requests(&self) -> u64 {
        self.volumes.all().values().map(|v| v.counters.reads.get() + v.counters.writes.get()).sum()
    }

    /// Counts and tells one thing that was wrong.
    fn scrub_found(&self, seat: &Seat, text: &str, outcome: Outcome) {
        let p = &self.jobs.scrub;
        let mut found = p.found.borrow_mut();
        let line = found.entry(seat.id).or_insert_with(|| DriveFindings {
            drive_name: seat.drive_name().to_owned(),
            seat: seat.bay(),
            ..DriveFindings::default()
        });
        line.found += 1;
        let what = match outcome {
            Outcome::Repaired => {
                line.repaired += 1;
                "repaired"
            }
            Outcome::NotHeld => {
                line.not_held += 1;
                "written back, but it is wrong again"
            }
            Outcome::NoRoom => "left as it is: the file system or thin pool under the drive is full",
            Outcome::Lost => {
                line.lost += 1;
                "not repairable: redundancy does not cover it"
            }
        };
        drop(found);
        p.events.set(p.events.get() + 1);
        if p.events.get() <= EVENTS_MAX {
            self.ctx.warn(format!("scrub: {}: {text}: {what}", seat.title()));
        }
    }

    /// Empties segments that do not hold what is written to them, where there is room.
    async fn clean_failing(self: &Rc<Self>) {
        let failing = self.jobs.scrub.failing.take();
        if failing.is_empty() {
            return;
        }
        for &id in &failing {
            // The last ones that are open make room; the next scrub finds them again.
            let may_go = self.another_can_be_had(&self.segments.read());
            if may_go {
                self.make_sealed(id).await;
            }
        }
        // What is not merged cannot be moved.
        self.checkpoint_and_wait().await;
        for id in failing {
            if !self.ctx.is_open() || !self.segments.read().segments.contains_key(&id) {
                continue;
            }
            self.ctx.warn(format!("segment {id} returns other data than was written: its blocks are moved"));
            if !self.clean_now(id).await {
                self.ctx.warn(format!("segment {id} could not be emptied now; the next scrub retries"));
            }
        }
        self.want_checkpoint();
    }

    fn scrub_summary(&self, kind: ScrubKind, finished: bool) -> String {
        let p = &self.jobs.scrub;
        let how = if finished { "done" } else { "ended early" };
        let mut text = format!("{} {how}: {} segments", kind.word(), p.done.get());
        let found = p.found.borrow();
        if found.is_empty() {
            text.push_str(", nothing wrong");
        }
        for f in found.values() {
            text.push_str(&format!(
                "; drive {}: {} wrong, {} repaired, {} lost",
                f.drive_name, f.found, f.repaired, f.lost
            ));
        }
        text
    }

    fn scrub_run(&self) -> Option<ScrubRun> {
        let p = &self.jobs.scrub;
        let kind = p.running.get()?;
        let seconds = (self.ctx.rt.now() - p.began.get()).as_secs();
        let (done, total) = (p.done.get(), p.total.get());
        Some(ScrubRun {
            kind,
            finished: false,
            segments_done: done,
            segments_total: total,
            bytes_read: p.bytes.get(),
            seconds,
            eta_seconds: (done > 0).then(|| seconds * total.saturating_sub(done) / done),
            found: p.found.borrow().values().cloned().collect(),
        })
    }

    /// All that is to be said of scrubs.
    pub fn scrub_status(&self) -> ScrubStatus {
        let schedule = |kind| {
            let line = self.scrub_line(kind);
            let ScrubLine { every_hours, started_at, finished_at, .. } = line;
            ScrubSchedule { every_hours, started_at, finished_at }
        };
        ScrubStatus {
            running: self.scrub_run(),
            last: self.jobs.scrub.last.borrow().clone(),
            media: schedule(ScrubKind::Media),
            parity: schedule(ScrubKind::Parity),
            bytes_per_second: self.scrub_rate_now(),
        }
    }
}
