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
}

impl Connection {
    /// A connection that goes on.
    pub fn new(stream: &Stream) -> Self {
        Connection { stream: stream.clone(), is_cut: Cell::new(false) }
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

    /// Ends it if the host has closed it: what it sent before, and what was not begun, it sends again.
    pub fn cut_if_left(&self) {
        if self.stream.is_closed_by_peer() {
            self.cut();
        }
    }
}
