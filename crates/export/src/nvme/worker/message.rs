//! What crosses between the core of the controllers and a worker.

use std::os::fd::OwnedFd;

use rt::{
    Payload,
    cross::{Caller, Message},
};

use crate::nvme::{entry::Sqe, pdu::Terms, session::Head, status::Status};

/// Which queue: the proxy's number for it, which no other had or will have.
pub type Key = u64;

/// To a worker.
pub enum Order {
    /// Answered when the connection has ended and none of its commands is in flight.
    Serve(Box<Placed>),
    /// Every command that was sent has been answered or will be; no queue follows. Answered when all queues have ended.
    Stop,
}

impl Message for Order {
    type Answer = ();

    fn discard((): (), _: &Caller<Order>) {}
}

/// A connection that has become an I/O queue.
pub struct Placed {
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

/// From a worker.
pub enum Ask {
    /// A command, all of whose data has arrived.
    Command(Key, Box<Sent>),
    /// Nothing is received from a queue any more; not answered.
    Left(Key),
}

/// A command with its data.
pub struct Sent {
    pub sqe: Sqe,
    /// Length of the data in its capsule.
    pub capsule: u32,
    pub data: Payload,
    /// Whether the digests of its data matched.
    pub intact: bool,
}

/// What a command comes to.
pub enum Outcome {
    /// Data of a read, nothing of others.
    Done(Vec<Payload>),
    Failed(Status),
    /// It was not begun, and gets no answer: the host sends it again when it has reconnected.
    NotBegun,
}

impl Message for Ask {
    type Answer = Outcome;

    fn discard(outcome: Outcome, caller: &Caller<Ask>) {
        if let Outcome::Done(payloads) = outcome {
            payloads.into_iter().for_each(|payload| drop(caller.trade().unpack(payload)));
        }
    }
}
