//! A queue's connection as its controller knows it.
//!
//! Invariant: of a connection that has been cut no command begins any more, also not one that was received before: a
//! socket that is shut down still gives what has arrived.

use std::cell::Cell;

use rt::net::Stream;

/// A queue's connection.
pub struct Connection {
    stream: Stream,
    is_cut: Cell<bool>,
    place: Cell<Place>,
    /// Commands taken on the thread of the controllers since [`Connection::load`].
    taken: Cell<u64>,
}

/// Which thread receives from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// That of the controllers.
    Here,
    /// The same, and another as soon as may be.
    Leaving,
    /// Another.
    There,
}

impl Connection {
    /// A connection that goes on.
    pub fn new(stream: &Stream) -> Self {
        Connection {
            stream: stream.clone(),
            is_cut: Cell::new(false),
            place: Cell::new(Place::Here),
            taken: Cell::new(0),
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> String {
        self.stream.peer()
    }

    /// Ends it.
    pub fn cut(&self) {
        self.is_cut.set(true);
        self.stream.shutdown();
    }

    /// Nothing of it begins any more, but what is to be sent is sent.
    pub fn end(&self) {
        self.is_cut.set(true);
    }

    /// Whether it was ended.
    pub fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// A command was taken on the thread of the controllers.
    pub fn take_one(&self) {
        self.taken.set(self.taken.get() + 1);
    }

    /// Commands taken there since this was asked last; none when it is received from elsewhere.
    pub fn load(&self) -> u64 {
        let taken = self.taken.take();
        if self.place.get() == Place::Here { taken } else { 0 }
    }

    /// Another thread is to have it.
    pub fn order_away(&self) {
        self.place.set(Place::Leaving);
    }

    /// Whether another thread is to have it.
    pub fn is_leaving(&self) -> bool {
        self.place.get() == Place::Leaving
    }

    /// That of the controllers keeps it.
    pub fn stays(&self) {
        self.place.set(Place::Here);
    }

    /// Another thread has it.
    pub fn gone(&self) {
        self.place.set(Place::There);
    }

    /// Ends it if the host has closed it: what it sent before, and what was not begun, it sends again.
    pub fn cut_if_left(&self) {
        if self.stream.is_closed_by_peer() {
            self.cut();
        }
    }
}
