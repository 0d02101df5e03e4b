//! The pace of a rebuild: all it can while hosts are quiet, a share of that by its priority while they are at work.
//!
//! A rebuild goes on in pieces of some hundred KiB, several at once. While hosts are at work it is fewer, and after each
//! comes a rest in proportion to what it took: so busy drives slow a rebuild down as they slow down hosts. A rest is
//! [`REST_MAX`] at most: in that time, and what the drives take, a piece is written, and a rebuild always ends. A rate in bytes per second holds whether hosts are at work or not.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ondisk::Rate;
use rt::Nanos;

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::member::Members;
use crate::sync::Event;
use crate::volumes::Volumes;
use crate::volumes::counters::VolumeCounters;

/// Segments restored at once, at most.
pub const LANES: usize = 8;

/// Hosts are at work until they asked for nothing this long.
const QUIET: Duration = Duration::from_millis(50);

/// The longest rest between two pieces.
const REST_MAX: Duration = Duration::from_millis(100);

/// Between two looks while waiting: rates change, hosts go, and a rebuild is told to stop.
const LOOK: Duration = Duration::from_millis(10);

/// Time over which the speed is told.
const SPEED_NS: f64 = 5e9;

/// How fast a rebuild goes and may go.
#[derive(Default)]
pub struct RebuildPace {
    /// Requests of hosts when last looked, and when that last changed.
    requests: Cell<u64>,
    at_work: Cell<Option<Nanos>>,
    /// Turns given and not back yet, and that one came back.
    pieces: Cell<usize>,
    freed: Event,
    /// With a rate: when the next piece may begin.
    next: Cell<Nanos>,
    /// Bytes per ns, fading, and when that was.
    speed: Cell<(f64, Nanos)>,
    /// Since when the speed is told.
    since: Cell<Nanos>,
}

/// Leave to work on a piece; given back on drop.
pub struct Turn<'a> {
    pace: &'a RebuildPace,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pace.pieces.set(self.pace.pieces.get() - 1);
        self.pace.freed.wake();
    }
}

/// Of an array of so many drives: pieces at once beside hosts, and how many times as long as its work the rest after one is.
fn share(rate: Rate, drives: usize) -> (usize, f64) {
    match rate {
        Rate::Low => (1, 3.0),
        Rate::Medium => ((drives / 6).clamp(1, LANES / 2), 0.5),
        Rate::High => ((drives / 3).clamp(2, LANES), 0.0),
        Rate::Bytes(_) => (LANES, 0.0),
    }
}

impl RebuildPace {
    /// A rebuild begins.
    pub fn begin(&self, now: Nanos) {
        self.speed.set((0.0, now));
        self.since.set(now);
    }

    /// So many bytes were written to new places.
    pub fn moved(&self, bytes: u64, now: Nanos) {
        let (speed, _) = self.faded(now);
        self.speed.set((speed + bytes as f64 / SPEED_NS, now));
    }

    /// When a piece of `bytes` may begin at this rate; what comes later begins after it.
    fn reserve(&self, bytes: u64, per_second: u64, now: Nanos) -> Nanos {
        let begin = self.next.get().max(now);
        self.next.set(begin + Duration::from_secs_f64(bytes as f64 / per_second as f64));
        begin
    }

    /// The rate was set anew: what was reserved before counts no more.
    pub fn rate_changed(&self) {
        self.next.set(Nanos(0));
        self.freed.wake();
    }

    fn faded(&self, now: Nanos) -> (f64, Nanos) {
        let (speed, then) = self.speed.get();
        (speed * f64::exp(-((now - then).as_nanos() as f64) / SPEED_NS), now)
    }

    /// Bytes per second, of late.
    pub fn bytes_per_second(&self, now: Nanos) -> u64 {
        // What has faded is little at first.
        let told = 1.0 - f64::exp(-((now - self.since.get()).as_nanos() as f64) / SPEED_NS);
        (self.faded(now).0 / told.max(1e-3) * 1e9) as u64
    }
}

/// How fast the rebuild of an array may go beside its hosts.
pub struct Pacing {
    ctx: Rc<Context>,
    members: Rc<Members>,
    volumes: Rc<Volumes>,
    pace: RebuildPace,
}

impl Pacing {
    /// That of an array which was not rebuilt yet.
    pub fn new(members: &Rc<Members>, volumes: &Rc<Volumes>) -> Rc<Pacing> {
        Rc::new(Pacing {
            ctx: members.ctx().clone(),
            members: members.clone(),
            volumes: volumes.clone(),
            pace: RebuildPace::default(),
        })
    }

    /// The pace itself.
    pub fn pace(&self) -> &RebuildPace {
        &self.pace
    }

    /// Whether a rebuild may go on at all.
    pub fn may_rebuild(&self) -> bool {
        let paused = self.ctx.settings().rebuild_paused && !planted(Canary::PauseForgotten);
        self.ctx.is_open() && !self.ctx.is_closing() && !paused
    }

    /// Whether hosts asked for something a moment ago.
    pub fn hosts_at_work(&self) -> bool {
        let pace = &self.pace;
        let count = |v: &VolumeCounters| v.reads.get() + v.writes.get() + v.deallocates.get();
        let requests = self.volumes.all().values().map(|v| count(&v.counters)).sum();
        if pace.requests.replace(requests) != requests {
            pace.at_work.set(Some(self.ctx.rt.now()));
        }
        pace.at_work.get().is_some_and(|then| self.ctx.rt.now() - then < QUIET)
    }

    /// Pieces that may be under way at once, rests included.
    fn pieces_at_once(&self) -> usize {
        if self.hosts_at_work() { self.rebuild_share().0 } else { LANES }
    }

    fn rebuild_share(&self) -> (usize, f64) {
        let drives = self.members.all().iter().filter(|s| s.takes_columns()).count();
        share(self.ctx.settings().rebuild, drives)
    }

    /// Waits until a piece of `bytes` may begin; `None`: the rebuild stops.
    pub async fn rebuild_turn(&self, bytes: u64) -> Option<Turn<'_>> {
        let pace = &self.pace;
        pace.freed.until(|| !self.may_rebuild() || pace.pieces.get() < self.pieces_at_once()).await;
        pace.pieces.set(pace.pieces.get() + 1);
        let turn = Turn { pace };
        let mut mine: Option<(Rate, Nanos)> = None;
        while self.may_rebuild() {
            let (rate, now) = (self.ctx.settings().rebuild, self.ctx.rt.now());
            let Rate::Bytes(per_second) = rate else { return Some(turn) };
            let begin = match mine {
                Some((then, begin)) if then == rate => begin,
                Some(_) | None => pace.reserve(bytes, per_second, now),
            };
            mine = Some((rate, begin));
            if begin <= now {
                return Some(turn);
            }
            self.ctx.rt.sleep((begin - now).min(LOOK)).await;
        }
        None
    }

    /// Rests after a piece that took `took`, if hosts are at work, and gives the turn back.
    pub async fn rebuild_rest(&self, turn: Turn<'_>, took: Duration) {
        let since = self.ctx.rt.now();
        while self.may_rebuild() && self.hosts_at_work() {
            let (_, times) = self.rebuild_share();
            let rest = took.mul_f64(times).min(REST_MAX).saturating_sub(self.ctx.rt.now() - since);
            if rest.is_zero() {
                break;
            }
            self.ctx.rt.sleep(rest.min(LOOK)).await;
        }
        drop(turn);
    }
}
