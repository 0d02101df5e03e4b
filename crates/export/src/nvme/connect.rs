//! The Connect command: from a connection to a queue of a controller. NVMe Base 2.0, 6.3.
//!
//! Invariants: nothing of a subsystem is told to a host that may not use it but that it may not; an I/O queue joins only
//! a controller of the same host and subsystem; a queue begins when nothing is in flight any more that its host sent
//! before.

use std::{rc::Rc, time::Duration};

use rt::{Bytes, net::Stream};

use super::{
    controller::{Connection, Controller, DISCOVERY_NQN, Host},
    entry::{CONNECT_DATA_BYTES, CONTROLLER_ANY, ConnectData, Sqe, connect_at, fabrics},
    limits::QUEUE_ENTRIES_MAX,
    queue::Queue,
    request::check_from_host,
    server::Shared,
    session::Head,
    status::Status,
    subsystem::{Access, Subsystem, Subsystems},
};
use crate::stream::door::Guest;

/// How long a Connect waits for the end of the queue's former connection, and how often it looks.
const FORMER_WAIT: Duration = Duration::from_millis(100);
const FORMER_LOOK: Duration = Duration::from_millis(1);

/// Where in the command fields stand, for the errors that name them.
const QUEUE_AT: u32 = 42;
const ENTRIES_AT: u32 = 44;

/// Bit of CATTR (byte 46): the host does without the submission queue's head.
pub const NO_FLOW_CONTROL: u8 = 1 << 2;

/// Why a host is not connected: status and dword 0 of the completion, and words for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: Status,
    /// Dword 0: which field is wrong.
    pub result: u32,
    /// The reason; none when it has been logged.
    why: Option<&'static str>,
}

/// One whose reason has been logged.
impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Refusal { status, result: 0, why: None }
    }
}

/// One with this reason.
fn because(status: Status, why: &'static str) -> Refusal {
    Refusal { status, result: 0, why: Some(why) }
}

/// A field of the command.
fn in_command(at: u32, why: &'static str) -> Refusal {
    Refusal { result: at, ..because(Status::CONNECT_INVALID_PARAMETERS, why) }
}

/// A field of the data: IATTR, bit 16.
fn in_data(at: u32, why: &'static str) -> Refusal {
    Refusal { result: 1 << 16 | at, ..because(Status::CONNECT_INVALID_PARAMETERS, why) }
}

/// A name in the data that is none.
fn no_name(at: u32) -> Refusal {
    let why = if at == connect_at::HOST {
        "the host's name is not an NVMe qualified name (nqn.)"
    } else {
        "the subsystem's name is not an NVMe qualified name (nqn.)"
    };
    in_data(at, why)
}

/// What the command asks for.
struct Wish {
    queue: u16,
    entries: u16,
    flow_control: bool,
    keep_alive_millis: u32,
    data: ConnectData,
}

impl Wish {
    fn parse(sqe: &Sqe, data: &Bytes) -> Result<Wish, Refusal> {
        if (sqe.opcode(), sqe.fabrics_type()) != (fabrics::OPCODE, fabrics::CONNECT) {
            return Err(because(Status::SEQUENCE_ERROR, "the first command is not Connect"));
        }
        let data_are_wrong = |status| because(status, "its 1,024 bytes of data are not in its capsule");
        check_from_host(sqe, CONNECT_DATA_BYTES as u32, data.len() as u32).map_err(data_are_wrong)?;
        // The data of this command comes in its capsule.
        let data = data[..].try_into().map_err(|_| data_are_wrong(Status::SGL_TYPE_INVALID))?;
        let half = |at: usize| u16::from_le_bytes([sqe.0[at], sqe.0[at + 1]]);
        // RECFMT.
        if half(40) != 0 {
            return Err(because(Status::CONNECT_INCOMPATIBLE_FORMAT, "its record format (RECFMT) is not 0"));
        }
        // SQSIZE counts from 0 for one; a queue of one entry holds none.
        let entries = match half(ENTRIES_AT as usize) {
            from_zero @ 1.. if from_zero < QUEUE_ENTRIES_MAX => from_zero + 1,
            _ => return Err(in_command(ENTRIES_AT, "its queue (SQSIZE) has 1 entry, or more than 128")),
        };
        Ok(Wish {
            queue: half(QUEUE_AT as usize),
            entries,
            flow_control: sqe.0[46] & NO_FLOW_CONTROL == 0,
            keep_alive_millis: sqe.dword(12),
            data: ConnectData::parse(data).map_err(no_name)?,
        })
    }
}

/// A queue, and how far it has been taken.
pub struct Connected<S: Subsystems> {
    pub queue: Rc<Queue<S>>,
    pub head: Head,
}

/// Makes the connection a queue.
///
/// # Errors
/// What the command is answered with; the host may try again on the same connection.
pub async fn connect<S: Subsystems>(
    shared: &Shared<S>,
    stream: &Stream,
    guest: &Guest,
    sqe: &Sqe,
    data: &Bytes,
) -> Result<Connected<S>, Refusal> {
    let wish = Wish::parse(sqe, data);
    let host = wish.as_ref().map_or_else(|_| String::new(), |wish| wish.data.host.clone());
    let result = match wish {
        Ok(wish) => fulfil(shared, stream, guest, wish).await,
        Err(refusal) => Err(refusal),
    };
    if let Err(Refusal { status, why: Some(why), .. }) = result {
        let line = || tracing::warn!(peer = stream.peer(), host, ?status, "nvme: a Connect command is refused: {why}");
        shared.rare.say("Connect commands refused", line);
    }
    result
}

async fn fulfil<S: Subsystems>(
    shared: &Shared<S>,
    stream: &Stream,
    guest: &Guest,
    wish: Wish,
) -> Result<Connected<S>, Refusal> {
    let host = Host { nqn: wish.data.host.clone(), id: wish.data.host_id };
    // It may be there again soon, so a host may retry: without DNR.
    let unknown = Refusal {
        status: Status::CONNECT_INVALID_PARAMETERS.retryable(),
        ..in_data(connect_at::SUBSYSTEM, "there is no such subsystem")
    };
    let subsystem = shared.common.find(&wish.data.subsystem).ok_or(unknown)?;
    if host.nqn.is_empty() && subsystem.access != Access::Any {
        return Err(in_data(connect_at::HOST, "the host gives no name, and the subsystem accepts named hosts only"));
    }
    if !subsystem.access.allows(&host.nqn) {
        let line = || tracing::warn!(host = host.nqn, subsystem = subsystem.nqn, "nvme: a host that is not allowed");
        shared.rare.say("hosts that are not allowed", line);
        return Err(Status::CONNECT_INVALID_HOST.into());
    }
    if let Err(full) = guest.seat(&shared.rt, subsystem.nqn == DISCOVERY_NQN).await {
        let peer = stream.peer();
        let line = || tracing::warn!(peer, host = host.nqn, %full, "nvme: a connection is refused");
        shared.rare.say("connections refused", line);
        return Err(Status::CONNECT_CONTROLLER_BUSY.into());
    }
    if !shared.is_settled(&host, &subsystem.nqn).await {
        tracing::warn!(host = host.nqn, "nvme: commands of the host's former connections are in flight");
        return Err(Status::CONNECT_CONTROLLER_BUSY.into());
    }
    let controller = if wish.queue == 0 {
        create(shared, subsystem, host, &wish)?
    } else {
        former_ends(shared, &wish).await;
        join(shared, &subsystem, &host, &wish)?
    };
    let queue = Rc::new(Queue::new(controller, Rc::new(Connection::new(stream)), wish.queue));
    Ok(Connected { queue, head: Head::new(wish.entries, wish.flow_control) })
}

/// An admin queue: a new controller.
fn create<S: Subsystems>(
    shared: &Shared<S>,
    subsystem: Subsystem,
    host: Host,
    wish: &Wish,
) -> Result<Rc<Controller<S>>, Refusal> {
    if wish.data.controller != CONTROLLER_ANY {
        return Err(in_data(connect_at::CONTROLLER, "an admin queue asks for a controller of its own choice"));
    }
    let id = shared
        .free_controller_id()
        .ok_or(because(Status::CONNECT_CONTROLLER_BUSY, "no controller identifier is free"))?;
    let line = || tracing::info!(id, host = host.nqn, subsystem = subsystem.nqn, "nvme: connected");
    if subsystem.nqn == DISCOVERY_NQN {
        shared.rare.say("hosts that connected for discovery", line)
    } else {
        line()
    }
    let now = (shared.rt.now(), shared.rt.unix_seconds());
    let controller = Controller::new(&shared.common, id, subsystem, host, wish.keep_alive_millis, now);
    shared.begin_controller(&controller);
    Ok(controller)
}

/// Waits while the queue has a connection, for a moment at most: a host that closes it and connects again at once may be
/// faster than what tells of its end.
async fn former_ends<S: Subsystems>(shared: &Shared<S>, wish: &Wish) {
    let until = shared.rt.now() + FORMER_WAIT;
    loop {
        let controller = shared.controllers.borrow().get(&wish.data.controller).cloned();
        let former = controller.and_then(|c| c.queues.borrow().get(&wish.queue).cloned());
        let Some(former) = former else { return };
        former.cut_if_left();
        if former.is_cut() || shared.rt.now() >= until {
            return;
        }
        shared.rt.sleep(FORMER_LOOK).await;
    }
}

/// An I/O queue of a controller that is there.
fn join<S: Subsystems>(
    shared: &Shared<S>,
    subsystem: &Subsystem,
    host: &Host,
    wish: &Wish,
) -> Result<Rc<Controller<S>>, Refusal> {
    let controller = shared.controllers.borrow().get(&wish.data.controller).cloned();
    let controller = controller
        .filter(|c| c.subsystem.nqn == subsystem.nqn && c.host == *host)
        .ok_or(in_data(connect_at::CONTROLLER, "an I/O queue is for a controller that the host does not have"))?;
    if wish.queue > controller.queues_allowed() {
        return Err(in_command(QUEUE_AT, "the host has not been allowed so many I/O queues"));
    }
    // One that was cut may not have left yet: its connection may be another thread's.
    let is_taken = controller.queues.borrow().get(&wish.queue).is_some_and(|connection| !connection.is_cut());
    if !controller.is_ready() || is_taken {
        return Err(because(Status::SEQUENCE_ERROR, "its controller is not enabled, or has this queue already"));
    }
    Ok(controller)
}
