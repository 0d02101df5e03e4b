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
use std::time::Duration;

use rt::Nanos;

/// Hosts wait so long for room: the kernel's own NVMe initiator gives up a request after 30 s.
pub const WRITES_WAIT: Duration = Duration::from_secs(20);

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

    /// One more does.
    pub fn begin(&self, hosts: bool, now: Nanos) {
        self.all.set(self.all.get() + 1);
        if hosts {
            if self.hosts.get() == 0 {
                self.since.set(now);
            }
            self.hosts.set(self.hosts.get() + 1);
        }
    }

    /// One does not any more.
    pub fn end(&self, hosts: bool) {
        self.all.set(self.all.get() - 1);
        self.hosts.set(self.hosts.get() - usize::from(hosts));
    }

    /// Whether hosts have waited for so long.
    pub fn hosts_wait_for(&self, time: Duration, now: Nanos) -> bool {
        self.hosts.get() > 0 && now - self.since.get() >= time
    }

    /// When somebody was told of it last.
    pub fn told(&self) -> Option<Nanos> {
        self.told.get()
    }

    /// Somebody is told of it now; or that it has ended, and then whether they were told of it.
    pub fn tell(&self, when: Option<Nanos>) -> bool {
        self.told.replace(when).is_some()
    }
}
