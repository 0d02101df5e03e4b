//! Waiting for room under the drives: what [`crate::member::no_room`] says of members, done.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use api::{AlarmCode, AlarmView, EventCode};
use futures::future::{Either, select};

use super::Health;
use crate::canary::{Canary, planted};
use crate::fault::{Fault, Refused, RefusedCode};
use crate::member::no_room::WRITES_WAIT;
use crate::member::seat::Seat;

/// Before the first try again; then twice as long each time, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A member that has room and has none in turn is told of so often at most.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// A write that waits for room; it waits no more when this is dropped.
pub struct Short<'a> {
    health: &'a Health,
    seat: &'a Seat,
    hosts: bool,
    pause: Duration,
}

impl Drop for Short<'_> {
    fn drop(&mut self) {
        self.health.no_room.end(self.hosts);
        self.seat.health.no_room.end(self.hosts);
        if !self.health.no_room.any() {
            self.health.note_room();
        }
        self.health.ctx.changed.wake();
    }
}

impl Short<'_> {
    /// Waits before the next try; at once over when the member, or the array, is not written any more.
    pub async fn pause(&mut self) {
        let over = || !self.seat.is_in() || self.health.members.writable().is_err();
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        select(pin!(self.health.ctx.changed.until(over)), pin!(self.health.ctx.rt.sleep(pause))).await;
        if self.health.no_room_for_long() && !planted(Canary::HostsWaitForRoom) {
            self.health.streams.refuse_hosts();
            self.health.ctx.changed.wake();
        }
    }
}

impl Health {
    /// A write to a member finds no room. `hosts` wait for it.
    pub fn runs_short<'a>(&'a self, seat: &'a Seat, hosts: bool) -> Short<'a> {
        let (now, waits) = (self.ctx.rt.now(), &seat.health.no_room);
        if !waits.any() && waits.told().is_none_or(|told| now - told >= TOLD_EVERY) {
            waits.tell(Some(now));
            self.no_room.tell(Some(now));
            let text = "cannot be written: the file system or thin pool under it is full; writes wait, reads continue";
            self.ctx.error(EventCode::NoRoomBelow, format!("{} {text}", seat.title()));
        }
        waits.begin(hosts, now);
        self.no_room.begin(hosts, now);
        // Zones that are free give room back.
        self.ctx.changed.wake();
        Short { health: self, seat, hosts, pause: PAUSE }
    }

    fn note_room(&self) {
        if self.no_room.tell(None) && self.members.writable().is_ok() {
            self.ctx.note(EventCode::RoomBelow, "there is space under the drives again: writes continue".to_owned());
        }
    }

    /// Whether a member's write waits for room below it.
    pub fn lacks_room_below(&self) -> bool {
        self.no_room.any()
    }

    /// Whether hosts have waited for room as long as they should.
    pub fn no_room_for_long(&self) -> bool {
        self.no_room.hosts_wait_for(WRITES_WAIT, self.ctx.rt.now())
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
            Err(Refused::new(RefusedCode::NotWritable, format!("array \"{}\"", self.ctx.name()), why, todo))
        })
    }

    /// The drives that have no room.
    fn without_room(&self) -> String {
        let seats = self.members.all();
        let names = seats.iter().filter(|s| s.is_in() && s.health.no_room.any()).map(|s| s.drive_name());
        names.collect::<Vec<_>>().join(", ")
    }

    /// For the alarms.
    pub fn room_alarm(&self) -> Option<AlarmView> {
        let names = self.without_room();
        if names.is_empty() {
            return None;
        }
        let writes = if self.no_room_for_long() { "writes are refused" } else { "writes wait" };
        let what =
            format!("the file system or thin pool under these drives is full: {names}; {writes}, reads continue");
        Some(AlarmView::critical(AlarmCode::NoRoomBelow, what, "Free space there; writes then continue by themselves"))
    }
}
