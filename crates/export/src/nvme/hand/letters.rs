//! What crosses between the thread of the controllers and those that have I/O queues' connections.

use std::os::fd::OwnedFd;

use rt::Parcel;

use crate::{
    nvme::{entry::Sqe, pdu::Terms, session::Head, status::Status},
    remote::letters::Ticket,
};

/// Which queue: the clerk's number for it.
pub type Key = usize;

/// To a hand.
pub enum Order {
    Serve(Box<Handed>),
    Answer(Ticket, Answer),
    /// Every command that was sent has been answered or will be; no queue follows.
    Stop,
}

/// A connection that has become an I/O queue.
pub struct Handed {
    pub key: Key,
    pub fd: OwnedFd,
    /// What was received and not taken.
    pub left: Vec<u8>,
    pub terms: Terms,
    pub head: Head,
    /// Identifier of its Connect command, which is not answered yet.
    pub connect: u16,
    /// Identifier of its controller.
    pub controller: u16,
}

/// Of a command.
pub enum Answer {
    /// Data of a read, nothing of others.
    Done(Vec<Parcel>),
    Failed(Status),
    /// It was not begun, and gets no answer: the host sends it again when it has reconnected.
    NotBegun,
}

/// From a hand.
pub enum Report {
    /// A command, all of whose data has arrived.
    Command(Key, Ticket, Box<Command>),
    /// Nothing is received any more.
    Left(Key),
    /// No command of it is in flight, and its connection was closed.
    Ended(Key),
}

/// A command with its data.
pub struct Command {
    pub sqe: Sqe,
    /// Length of the data in its capsule.
    pub capsule: u32,
    pub data: Parcel,
    /// Whether the digests of its data matched.
    pub intact: bool,
}
