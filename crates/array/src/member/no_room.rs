//! Members whose drives have no room: the file system of a file, or the pool of a thin volume, is full.
//!
//! ```text
//!   write finds no room -> it waits and tries again; its record stays unfinished, so nothing of it is acknowledged
//!   for WRITES_WAIT     -> hosts' writes that wait get NoRoom, and so do those that come: their hosts know what to do
//!   room is made        -> the waiting writes go through, and all goes on by itself
//! ```
//!
//! That is no failure of the drive: it keeps what it has, reads go on, and all members on one file system have it at once.
//! So nobody goes out for it. A write whose host was told NoRoom may still be written: what waits in the log stays there,
//! with its locks, so a later write of the same blocks comes behind it.
//!
//! Not here: a flush that finds no room: what the drive holds is not known then, as after any other failed flush.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};
use rt::Nanos;

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::engine::alarm::{Alarm, AlarmCode};
use crate::fault::{Fault, Refused, RefusedCode};
use crate::member::seat::Seat;

/// Hosts wait so long for room: the kernel's own NVMe initiator gives up a request after 30 s.
pub const WRITES_WAIT: Duration = Duration::from_secs(20);

/// Before the first try again; then twice as long each time, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A member that has room and has none in turn is told of so often at most.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Writes of one member, or of all, that wait for room.
#[derive(Default)]
pub struct Waits {
    all: Cell<usize>,
    /// Of these, hosts wait for.
    hosts: Cell<usize>,
    /// Since when hosts wait without a pause.
    since: Cell<Nanos>,
    told: Cell<Option<Nanos>>,
}

impl Waits {
    /// Whether any does.
    pub fn any(&self) -> bool {
        self.all.get() > 0
    }

    fn begin(&self, hosts: bool, now: Nanos) {
        self.all.set(self.all.get() + 1);
        if hosts {
            if self.hosts.get() == 0 {
                self.since.set(now);
            }
            self.hosts.set(self.hosts.get() + 1);
        }
    }

    fn end(&self, hosts: bool) {
        self.all.set(self.all.get() - 1);
        self.hosts.set(self.hosts.get() - usize::from(hosts));
    }
}

/// A write that waits for room; it waits no more when this is dropped.
pub struct Short<'a> {
    core: &'a Core,
    seat: &'a Seat,
    hosts: bool,
    pause: Duration,
}

impl Drop for Short<'_> {
    fn drop(&mut self) {
        self.core.members.no_room.end(self.hosts);
        self.seat.health.no_room.end(self.hosts);
        if !self.core.members.no_room.any() {
            self.core.note_room();
        }
        self.core.ctx.changed.wake();
    }
}

impl Short<'_> {
    /// Waits before the next try; at once over when the member, or the array, is not written any more.
    pub async fn pause(&mut self) {
        let over = || !self.seat.is_in() || self.core.writable().is_err();
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        select(pin!(self.core.ctx.changed.until(over)), pin!(self.core.ctx.rt.sleep(pause))).await;
        if self.core.no_room_for_long() && !planted(Canary::HostsWaitForRoom) {
            self.core.refuse_hosts();
            self.core.ctx.changed.wake();
        }
    }
}

impl Core {
    /// A write to a member finds no room. `hosts` wait for it.
    pub fn runs_short<'a>(&'a self, seat: &'a Seat, hosts: bool) -> Short<'a> {
        let (now, waits) = (self.ctx.rt.now(), &seat.health.no_room);
        if !waits.any() && waits.told.get().is_none_or(|told| now - told >= TOLD_EVERY) {
            waits.told.set(Some(now));
            self.members.no_room.told.set(Some(now));
            let text = "cannot be written: the file system or thin pool under it is full; writes wait, reads continue";
            self.ctx.error(format!("{} {text}", seat.title()));
        }
        waits.begin(hosts, now);
        self.members.no_room.begin(hosts, now);
        Short { core: self, seat, hosts, pause: PAUSE }
    }

    fn note_room(&self) {
        if self.members.no_room.told.take().is_some() && self.writable().is_ok() {
            self.ctx.note("there is space under the drives again: writes continue".to_owned());
        }
    }

    /// Whether hosts have waited for room as long as they should.
    pub fn no_room_for_long(&self) -> bool {
        let waits = &self.members.no_room;
        waits.hosts.get() > 0 && self.ctx.rt.now() - waits.since.get() >= WRITES_WAIT
    }

    /// What `wait` comes to, unless a host that waits for it has to be told that there is no room.
    pub async fn while_room<T>(&self, wait: impl Future<Output = T>) -> Result<T, Fault> {
        let mut wait = pin!(wait);
        if let Poll::Ready(done) = futures::poll!(wait.as_mut()) {
            return Ok(done);
        }
        loop {
            match select(wait.as_mut(), pin!(self.ctx.rt.sleep(PAUSE_MAX))).await {
                Either::Left((done, _)) => return Ok(done),
                Either::Right(_) if self.no_room_for_long() => return Err(Fault::NoRoom),
                Either::Right(_) => {}
            }
        }
    }

    /// A step of an open, or of a close, unless it waits too long for room: then the drives that have none.
    pub async fn if_there_is_room<T>(&self, step: impl Future<Output = T>) -> Result<T, String> {
        let gives_up = || self.no_room_for_long() && !planted(Canary::EndWaitsForRoom);
        match select(pin!(step), pin!(self.ctx.changed.until(gives_up))).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(self.without_room()),
        }
    }

    /// The same of an open, and what to do.
    pub async fn open_with_room<T>(&self, step: impl Future<Output = Result<T, Refused>>) -> Result<T, Refused> {
        self.if_there_is_room(step).await.unwrap_or_else(|drives| {
            let why = format!(
                "the file system or thin pool under {drives} is full, and opening the array has to write there"
            );
            let todo = "Free space there and open it again, or open it for reading only";
            Err(Refused::new(RefusedCode::NotWritable, format!("array \"{}\"", self.ctx.name), why, todo))
        })
    }

    /// Commits for somebody who waits for it, unless that waits too long for room: then it goes on without them.
    pub async fn commit_if_there_is_room(self: &Rc<Self>) -> Result<(), Fault> {
        let core = self.clone();
        let commit = self.ctx.rt.spawn(async move { core.commit().await });
        self.if_there_is_room(commit).await.unwrap_or(Err(Fault::NoRoom))
    }

    /// The drives that have no room.
    fn without_room(&self) -> String {
        let seats = self.members.all();
        let names = seats.iter().filter(|s| s.is_in() && s.health.no_room.any()).map(|s| s.drive_name());
        names.collect::<Vec<_>>().join(", ")
    }

    /// For the alarms.
    pub fn room_alarm(&self) -> Option<Alarm> {
        let names = self.without_room();
        if names.is_empty() {
            return None;
        }
        let writes = if self.no_room_for_long() { "writes are refused" } else { "writes wait" };
        let what =
            format!("the file system or thin pool under these drives is full: {names}; {writes}, reads continue");
        Some(Alarm::critical(AlarmCode::NoRoomBelow, what, "Free space there; writes then continue by themselves"))
    }
}
