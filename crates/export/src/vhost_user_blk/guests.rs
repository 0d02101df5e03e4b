//! What the guests of a server share: the memory for what is under way, and who waits for whom at a volume.
//!
//! Invariant: of the requests to one volume, those of a connection that is gone are done before the next one's begin, at whatever
//! socket that is.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use crate::stream::pool::Pool;
use crate::stream::signal::Signal;

/// Payload under way of all guests together.
const PAYLOAD_BYTES_MAX: u64 = 256 << 20;

/// All guests of a server. Clones are the same.
#[derive(Clone)]
pub struct Guests(Rc<All>);

struct All {
    payload: Rc<Pool>,
    volumes: RefCell<BTreeMap<[u8; 16], Weak<Turns>>>,
}

impl Default for Guests {
    fn default() -> Guests {
        Guests(Rc::new(All { payload: Pool::new(PAYLOAD_BYTES_MAX), volumes: RefCell::default() }))
    }
}

impl Guests {
    /// Where payload of all of them comes from.
    pub(super) fn payload(&self) -> &Rc<Pool> {
        &self.0.payload
    }

    /// Of the volume of this identity.
    pub(super) fn turns(&self, uuid: [u8; 16]) -> Rc<Turns> {
        let mut volumes = self.0.volumes.borrow_mut();
        volumes.retain(|_, turns| turns.strong_count() > 0);
        if let Some(turns) = volumes.get(&uuid).and_then(Weak::upgrade) {
            return turns;
        }
        let turns = Rc::new(Turns::default());
        volumes.insert(uuid, Rc::downgrade(&turns));
        turns
    }
}

/// Whose turn it is at a volume.
#[derive(Default)]
pub(super) struct Turns {
    /// Requests under way whose connections are gone.
    orphans: Cell<usize>,
    /// The connection that has queues which are served.
    user: Cell<Option<u64>>,
    connections: Cell<u64>,
    changed: Signal,
}

impl Turns {
    /// A number for a connection.
    pub(super) fn connection(&self) -> u64 {
        self.connections.set(self.connections.get() + 1);
        self.connections.get()
    }

    /// So many requests have lost their connection.
    pub(super) fn lose(&self, requests: usize) {
        self.orphans.set(self.orphans.get() + requests);
    }

    /// One of them is done.
    pub(super) fn done(&self) {
        self.orphans.set(self.orphans.get() - 1);
        self.changed.notify();
    }

    /// Waits until nothing of connections that are gone is under way, and no other connection has queues; then this one has.
    pub(super) async fn begin(&self, connection: u64) {
        let is_free = || self.orphans.get() == 0 && self.user.get().is_none_or(|user| user == connection);
        self.changed.until(is_free).await;
        self.user.set(Some(connection));
    }

    /// A connection has no queues any more.
    pub(super) fn end(&self, connection: u64) {
        if self.user.get() == Some(connection) {
            self.user.set(None);
            self.changed.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn one_connection_at_a_time_and_after_what_is_left_of_the_last() {
        let guests = Guests::default();
        let (here, there) = (guests.turns([1; 16]), guests.turns([1; 16]));
        let (first, second) = (here.connection(), there.connection());
        assert!(here.begin(first).now_or_never().is_some() && here.begin(first).now_or_never().is_some());
        assert!(there.begin(second).now_or_never().is_none());
        assert!(guests.turns([2; 16]).begin(1).now_or_never().is_some(), "another volume");
        here.lose(1);
        here.end(second);
        here.end(first);
        // The socket of the first is gone; what it has begun is not.
        drop(here);
        let mut waits = std::pin::pin!(there.begin(second));
        assert!(waits.as_mut().now_or_never().is_none());
        there.done();
        assert!(waits.now_or_never().is_some());
        assert!(there.begin(first).now_or_never().is_none());
    }
}
