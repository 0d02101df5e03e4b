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

mod course;
mod rate;
mod rows;
mod system;

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::{AlarmCode, AlarmView, EventCode, Remedy, ScrubKind, ScrubRunView, ScrubScheduleView, ScrubView};
use base::SegmentId;
use futures::future::select;
use ondisk::ScrubLine;

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::fault::{Fault, Refused, RefusedCode};
use crate::generation::Generations;
use crate::jobs::On;
use crate::jobs::checkpoint::Checkpoints;
use crate::jobs::clean::Cleaner;
use crate::jobs::rebuild::{Rebuild, Uses};
use crate::jobs::restore::Restore;
use crate::jobs::survey::Surveyor;
use crate::member::Members;
use crate::room::Room;
use crate::space::segment::Seg;
use crate::space::segments::Segments;
use course::Course;
use rows::RowScrub;
use system::SystemScrub;

/// Hours from one media scrub of a new array to the next: a week, as drives' own patrol reads take.
pub const MEDIA_EVERY_HOURS: u32 = 7 * 24;

/// Hours from one parity scrub of a new array to the next: it costs more and finds what is rarer.
pub const PARITY_EVERY_HOURS: u32 = 30 * 24;

/// The position is written down at least so often.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// The schedule is looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// The scrubs of an array.
pub struct Scrubs {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    room: Rc<Room>,
    generations: Rc<Generations>,
    checkpoints: Rc<Checkpoints>,
    cleaner: Rc<Cleaner>,
    restore: Rc<Restore>,
    course: Rc<Course>,
    parts: Parts,
    wanted: Cell<Option<ScrubKind>>,
    last: RefCell<Option<ScrubRunView>>,
}

/// What a scrub looks at.
struct Parts {
    system: SystemScrub,
    rows: Rc<RowScrub>,
}

impl Scrubs {
    /// None runs.
    pub fn new(on: &On<'_>, uses: &Uses<'_>, rebuild: &Rc<Rebuild>, surveyor: &Rc<Surveyor>) -> Rc<Scrubs> {
        let (ctx, members, segments) = (on.health.ctx(), on.health.members(), &on.state.segments);
        let course = Course::new(ctx, segments, &on.state.volumes, rebuild);
        let system = SystemScrub {
            ctx: ctx.clone(),
            members: members.clone(),
            system: on.state.system.clone(),
            health: on.health.clone(),
            labels: on.labels.clone(),
            generations: on.generations.clone(),
            course: course.clone(),
        };
        let rows = Rc::new(RowScrub {
            ctx: ctx.clone(),
            members: members.clone(),
            segments: segments.clone(),
            pins: on.state.pins.clone(),
            rows: on.rows.clone(),
            surveyor: surveyor.clone(),
            cleaner: uses.cleaner.clone(),
            course: course.clone(),
        });
        Rc::new(Scrubs {
            ctx: ctx.clone(),
            members: members.clone(),
            segments: segments.clone(),
            room: on.room.clone(),
            generations: on.generations.clone(),
            checkpoints: uses.checkpoints.clone(),
            cleaner: uses.cleaner.clone(),
            restore: uses.restore.clone(),
            course,
            parts: Parts { system, rows },
            wanted: Cell::default(),
            last: RefCell::default(),
        })
    }

    pub async fn keep_scrubbed(self: Rc<Self>) {
        loop {
            if !self.ctx.is_open() || self.ctx.is_closing() {
                return;
            }
            match self.next_scrub() {
                Some(kind) => self.scrub(kind).await,
                None => {
                    let news = || !self.ctx.is_open() || self.ctx.is_closing() || self.wanted.get().is_some();
                    let changed = pin!(self.ctx.changed.until(news));
                    select(changed, pin!(self.ctx.rt.sleep(self.time_to_next()))).await;
                }
            }
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
        let line = self.course.scrub_line(kind);
        if line.every_hours == 0 {
            return None;
        }
        let ahead = line.started_at > self.ctx.rt.unix_seconds() && !planted(Canary::ScrubAwaitsWrongDate);
        Some(if ahead { 0 } else { line.started_at.saturating_add(u64::from(line.every_hours) * 3600) })
    }

    /// Scrubs that should have begun a whole interval ago, or have been running for two, or cannot end in time, for its alarms.
    pub fn scrub_alarms(&self) -> Vec<AlarmView> {
        let now = self.ctx.rt.unix_seconds();
        let overdue = |kind: ScrubKind| {
            let (every, due) = (self.course.scrub_line(kind).every_hours, self.due_at(kind)?);
            // Of one that began in the future it is not known how long it waits; it begins at once, or goes on.
            (due > 0 && now.saturating_sub(due) > u64::from(every) * 3600).then(|| {
                let ago = now.saturating_sub(self.course.scrub_line(kind).started_at) / 3600;
                let what = format!(
                    "the {kind} scrub is overdue: one is due every {every} hours, the last began {ago} hours ago"
                );
                AlarmView::warning(
                    AlarmCode::ScrubOverdue,
                    what,
                    "Keep the array served; scrubs run while no rebuild runs",
                )
            })
        };
        let overdue = [ScrubKind::Media, ScrubKind::Parity].into_iter().filter_map(overdue);
        overdue.chain(self.scrub_rate_alarm()).collect()
    }

    /// What was asked for, what a restart interrupted, what is due. A parity scrub does what a media scrub does.
    fn next_scrub(&self) -> Option<ScrubKind> {
        let both = [ScrubKind::Parity, ScrubKind::Media];
        let now = self.ctx.rt.unix_seconds();
        let asked = self.wanted.take();
        let interrupted = || both.into_iter().find(|k| self.course.scrub_line(*k).position > 0);
        asked.or_else(interrupted).or_else(|| both.into_iter().find(|k| self.due_at(*k).is_some_and(|at| at <= now)))
    }

    fn time_to_next(&self) -> Duration {
        let due = [ScrubKind::Media, ScrubKind::Parity].into_iter().filter_map(|k| self.due_at(k)).min();
        let left = due.map(|at| Duration::from_secs(at.saturating_sub(self.ctx.rt.unix_seconds()).max(1)));
        left.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)
    }

    /// Asks for a scrub from the beginning.
    pub fn scrub_start(&self, kind: ScrubKind, unlimited: bool) -> Result<(), Refused> {
        self.members.writable()?;
        if let Some(running) = self.course.progress.running.get().or(self.wanted.get()) {
            return Err(Refused::new(
                RefusedCode::InUse,
                format!("array \"{}\"", self.ctx.name()),
                format!("a {running} scrub is already running"),
                "Wait until it ends, or stop it",
            )
            .by(Remedy::StopScrub));
        }
        for kind in [ScrubKind::Media, ScrubKind::Parity] {
            self.set_scrub_line(kind, |line| line.position = 0);
        }
        self.course.progress.unlimited.set(unlimited);
        self.wanted.set(Some(kind));
        self.ctx.changed.wake();
        Ok(())
    }

    /// Ends the scrub under way; false when there is none. The next begins anew, when it is due or asked for.
    pub async fn scrub_stop(&self) -> bool {
        let p = &self.course.progress;
        let mut asked = self.wanted.take().is_some();
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
        let busy = || self.course.progress.running.get().is_some() || self.wanted.get().is_some();
        self.ctx.changed.until(|| !self.ctx.is_open() || !busy()).await;
    }

    async fn scrub(self: &Rc<Self>, kind: ScrubKind) {
        let p = &self.course.progress;
        p.found.borrow_mut().clear();
        p.running.set(Some(kind));
        [&p.done, &p.bytes, &p.events].iter().for_each(|c| c.set(0));
        p.began.set(self.ctx.rt.now());
        p.bytes_per_second.set(self.course.scrub_rate_now());
        p.saved.set(self.ctx.rt.now());
        p.stop.set(false);
        let resumed = if planted(Canary::ScrubForgetsPosition) { 0 } else { self.course.scrub_line(kind).position };
        let now = self.ctx.rt.unix_seconds();
        // A start in the future is none: the clock was wrong.
        if resumed > 0 && self.course.scrub_line(kind).started_at > now {
            self.set_scrub_line(kind, |line| line.started_at = now);
        }
        if resumed == 0 {
            self.set_scrub_line(kind, |line| (line.position, line.started_at) = (1, now));
        }
        let from = self.course.scrub_line(kind).position;
        let end = self.segments.read().next;
        let how = if resumed == 0 { "begins".to_owned() } else { format!("resumes at segment {resumed}") };
        self.ctx.note(EventCode::ScrubBegan, format!("{kind} scrub {how}"));
        let result = self.scrub_all(kind, from, end).await;
        let finished = result.is_ok() && self.course.scrub_goes_on();
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
            let _ = self.generations.commit().await;
            let summary = self.scrub_summary(kind, finished);
            if p.found.borrow().is_empty() {
                self.ctx.note(EventCode::ScrubEnded, summary)
            } else {
                self.ctx.warn(EventCode::ScrubFound, summary)
            }
        }
        *self.last.borrow_mut() = self.scrub_run().map(|run| ScrubRunView { finished, ..run });
        p.running.set(None);
        p.unlimited.set(false);
        self.ctx.changed.wake();
    }

    async fn scrub_all(self: &Rc<Self>, kind: ScrubKind, from: u64, end: u64) -> Result<(), Fault> {
        let p = &self.course.progress;
        // Begun, durably: a restart goes on with it.
        self.generations.commit().await?;
        self.parts.system.scrub_system_areas().await?;
        let written = |s: &&Seg| !s.is_spare();
        let next = |from: u64| {
            let table = self.segments.read();
            let mut left = table.segments.range(SegmentId(from)..SegmentId(end)).map(|(_, s)| s).filter(written);
            left.next().map(|s| (s.id, 1 + left.count() as u64))
        };
        let mut at = from;
        while self.course.scrub_goes_on() {
            let Some((id, left)) = next(at) else { return Ok(()) };
            p.total.set(p.done.get() + left);
            self.parts.rows.scrub_segment(id, kind).await?;
            if !self.course.scrub_goes_on() {
                break;
            }
            at = id.0 + 1;
            p.done.set(p.done.get() + 1);
            self.set_scrub_line(kind, |line| line.position = at);
            if self.ctx.rt.now() - p.saved.get() >= SAVE_EVERY {
                p.saved.set(self.ctx.rt.now());
                p.bytes_per_second.set(self.course.scrub_rate_now());
                self.generations.commit().await?;
            }
        }
        Ok(())
    }

    /// Empties segments that do not hold what is written to them, where there is room.
    async fn clean_failing(self: &Rc<Self>) {
        let failing = self.course.failing.take();
        if failing.is_empty() {
            return;
        }
        for &id in &failing {
            // The last ones that are open make room; the next scrub finds them again.
            let may_go = self.room.another_can_be_had(&self.segments.read());
            if may_go {
                self.restore.make_sealed(id).await;
            }
        }
        // What is not merged cannot be moved.
        self.checkpoints.checkpoint_and_wait().await;
        for id in failing {
            if !self.ctx.is_open() || !self.segments.read().segments.contains_key(&id) {
                continue;
            }
            self.ctx.warn(
                EventCode::Mismatch,
                format!("segment {id} returns other data than was written: its blocks are moved"),
            );
            if !self.cleaner.clean_now(id).await {
                self.ctx.warn(
                    EventCode::Mismatch,
                    format!("segment {id} could not be emptied now; the next scrub retries"),
                );
            }
        }
        self.ctx.want_checkpoint();
    }

    fn scrub_summary(&self, kind: ScrubKind, finished: bool) -> String {
        let p = &self.course.progress;
        let how = if finished { "done" } else { "ended early" };
        let mut text = format!("{kind} scrub {how}: {} segments", p.done.get());
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

    fn scrub_run(&self) -> Option<ScrubRunView> {
        let p = &self.course.progress;
        let kind = p.running.get()?;
        let seconds = (self.ctx.rt.now() - p.began.get()).as_secs();
        let (done, total) = (p.done.get(), p.total.get());
        Some(ScrubRunView {
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
    pub fn scrub_status(&self) -> ScrubView {
        let schedule = |kind| {
            let line = self.course.scrub_line(kind);
            let ScrubLine { every_hours, started_at, finished_at, .. } = line;
            ScrubScheduleView { every_hours, started_at, finished_at }
        };
        ScrubView {
            running: self.scrub_run(),
            last: self.last.borrow().clone(),
            media: schedule(ScrubKind::Media),
            parity: schedule(ScrubKind::Parity),
            bytes_per_second: self.course.scrub_rate_now(),
        }
    }
}
