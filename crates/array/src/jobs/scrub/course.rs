//! The scrub under way: how far it is, how fast it goes, what it has found.
//!
//! It reads so fast that a scrub ends well within its interval, however much is stored. The rate follows what is stored when
//! the scrub begins, and is looked at again each minute. A rate that a person has set is kept.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::{EventCode, ScrubFoundView, ScrubKind};
use base::{MemberId, SegmentId};
use futures::future::select;
use ondisk::ScrubLine;
use rt::Nanos;

use crate::ctx::Context;
use crate::jobs::rebuild::Rebuild;
use crate::member::seat::Seat;
use crate::space::segments::Segments;
use crate::volumes::Volumes;

/// Of the time, a scrub has one part in so many while hosts are at work.
const SHARE_BESIDE_HOSTS: u32 = 4;

/// Events of one scrub about single places; the rest is counted.
const EVENTS_MAX: u64 = 50;

/// Bytes a second at least: one NVMe drive reads twenty times as much.
const BYTES_PER_SECOND_MIN: u64 = 64 << 20;

/// A scrub has one part in so many of its interval: the rest is for rebuilds, hosts, and time in which nobody serves the
/// array.
const PART_OF_INTERVAL: u64 = 2;

/// How the scrub under way stands, and what is asked of it.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) running: Cell<Option<ScrubKind>>,
    pub(super) stop: Cell<bool>,
    pub(super) unlimited: Cell<bool>,
    pub(super) total: Cell<u64>,
    pub(super) done: Cell<u64>,
    pub(super) bytes: Cell<u64>,
    pub(super) began: Cell<Nanos>,
    pub(super) saved: Cell<Nanos>,
    pub(super) events: Cell<u64>,
    host_requests: Cell<u64>,
    /// What it reads a second at most, as of the last look.
    pub(super) bytes_per_second: Cell<u64>,
    pub(super) found: RefCell<BTreeMap<MemberId, ScrubFoundView>>,
}

/// The scrub under way: how far it is, how fast it goes, what it has found.
pub(super) struct Course {
    ctx: Rc<Context>,
    segments: Rc<Segments>,
    volumes: Rc<Volumes>,
    rebuild: Rc<Rebuild>,
    pub(super) progress: Progress,
    /// Segments with a place that does not hold what is written there.
    pub(super) failing: RefCell<BTreeSet<SegmentId>>,
}

/// What became of something that was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Repaired,
    /// It did not stay.
    NotHeld,
    /// There is no room to write it back; the next scrub tries again.
    NoRoom,
    Lost,
}

impl Course {
    pub(super) fn new(
        ctx: &Rc<Context>,
        segments: &Rc<Segments>,
        volumes: &Rc<Volumes>,
        rebuild: &Rc<Rebuild>,
    ) -> Rc<Course> {
        Rc::new(Course {
            ctx: ctx.clone(),
            segments: segments.clone(),
            volumes: volumes.clone(),
            rebuild: rebuild.clone(),
            progress: Progress::default(),
            failing: RefCell::default(),
        })
    }

    pub fn scrub_line(&self, kind: ScrubKind) -> ScrubLine {
        let settings = self.ctx.settings();
        match kind {
            ScrubKind::Media => settings.scrub_media,
            ScrubKind::Parity => settings.scrub_parity,
        }
    }

    /// Whether the scrub under way goes on.
    pub fn scrub_goes_on(&self) -> bool {
        self.ctx.is_open() && !self.ctx.is_closing() && !self.progress.stop.get()
    }

    /// Waits as long as the limit and hosts ask for, after `bytes` were read since `begun`.
    pub async fn scrub_pause(&self, bytes: u64, begun: Nanos) {
        let p = &self.progress;
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
        let rebuilding = || self.rebuild.rebuild_status().is_some();
        self.ctx.changed.until(|| !rebuilding() || !self.scrub_goes_on()).await;
    }

    fn host_requests(&self) -> u64 {
        self.volumes.all().values().map(|v| v.counters.reads.get() + v.counters.writes.get()).sum()
    }

    /// Counts and tells one thing that was wrong.
    pub fn scrub_found(&self, seat: &Seat, text: &str, outcome: Outcome) {
        let p = &self.progress;
        let mut found = p.found.borrow_mut();
        let line = found.entry(seat.id).or_insert_with(|| ScrubFoundView {
            drive_name: seat.drive_name().to_owned(),
            seat: seat.bay(),
            ..ScrubFoundView::default()
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
            self.ctx.warn(EventCode::ScrubFound, format!("scrub: {}: {text}: {what}", seat.title()));
        }
    }

    /// Bytes that a scrub of all that is written now reads.
    pub fn bytes_to_scrub(&self) -> u64 {
        let table = self.segments.read();
        let written = table.segments.values().filter(|s| !s.is_spare());
        let blocks: u64 = written.map(|s| u64::from(s.rows.acked) * s.slots.iter().flatten().count() as u64).sum();
        base::BlockCount(blocks).bytes()
    }

    /// Seconds from one beginning of a scrub to the next; `None` when none begins by itself.
    pub fn scrub_interval(&self) -> Option<u64> {
        let hours = [ScrubKind::Media, ScrubKind::Parity].map(|kind| self.scrub_line(kind).every_hours);
        hours.into_iter().filter(|hours| *hours > 0).min().map(|hours| u64::from(hours) * 3600)
    }

    /// What a scrub reads a second at most: as was set, else enough for what is stored now.
    pub fn scrub_rate_now(&self) -> u64 {
        match self.ctx.settings().scrub_bytes_per_second {
            0 => rate_for(self.bytes_to_scrub(), self.scrub_interval()),
            rate => rate,
        }
    }

    /// The same, as the scrub that runs has seen it last.
    pub fn scrub_pace(&self) -> u64 {
        match self.ctx.settings().scrub_bytes_per_second {
            0 => self.progress.bytes_per_second.get(),
            rate => rate,
        }
    }
}

/// Bytes a second at which so many are read well within an interval.
fn rate_for(bytes: u64, interval: Option<u64>) -> u64 {
    let suffices = interval.map_or(0, |seconds| bytes / (seconds / PART_OF_INTERVAL).max(1));
    suffices.max(BYTES_PER_SECOND_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_ends_within_half_its_interval() {
        const TB: u64 = 1_000_000_000_000;
        const WEEK: u64 = 7 * 24 * 3600;
        for (bytes, interval) in [(0, WEEK), (10 * TB, WEEK), (61 * TB, WEEK), (24 * 61 * TB, WEEK), (TB, 3600)] {
            let rate = rate_for(bytes, Some(interval));
            assert!(bytes / rate <= interval / 2 + 1 && rate >= BYTES_PER_SECOND_MIN, "{bytes} in {interval}: {rate}");
        }
        assert_eq!(rate_for(10 * TB, Some(WEEK)), BYTES_PER_SECOND_MIN, "slower than before is none");
        assert_eq!(rate_for(61 * TB, None), BYTES_PER_SECOND_MIN);
    }
}
