//! A small NVMe/TCP host of our own: for demonstrations, measurements and tests.
//!
//! ```text
//!   Link   one connection, which becomes a queue: any command, good or bad
//!   Host   a controller: an admin link and I/O links
//!   Disk   a namespace of it, its commands dealt to the I/O links
//!   Opened a disk by its address alone
//! ```
//!
//! Invariants: an answer that answers nothing, or not what was asked, ends the connection; a command in flight when the
//! connection ends gets [`Error::Disconnected`], or [`Error::Terminated`] when the controller said why.
//!
//! Does not: reconnect, send keep-alives by itself, or limit the commands in flight (the caller does).

mod disk;
mod host;
mod open;
mod receive;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    rc::Rc,
};

use futures::channel::oneshot;
use receive::Pending;
use rt::{
    Bytes, Rt,
    net::{Addr, Stream},
};

pub use disk::Disk;
pub use host::{Host, log_command};
pub use open::Opened;

use super::{
    bytes::put,
    entry::{CONTROLLER_ANY, ConnectData, Cqe, Sgl, Sqe, fabrics},
    limits::{ADMIN_CAPSULE_DATA_MAX, QUEUE_ENTRIES_MAX},
    pdu::{self, COMMON_BYTES, Common, INITIALIZE_BYTES, Initialize, Terms, To, kind},
    status::Status,
};
use crate::stream::{outbox::Outbox, reader::Reader};

/// Why something did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The controller answers a command with an error.
    #[error("{status}, result {result:#x}")]
    Failed {
        /// The status.
        status: Status,
        /// What the completion carries beside it.
        result: u64,
    },
    /// The controller terminates the connection.
    #[error("the controller terminates the connection: FES {fes}, {information:#x}")]
    Terminated {
        /// Fatal Error Status.
        fes: u16,
        /// Fatal Error Information.
        information: u32,
    },
    /// The controller breaks the protocol.
    #[error("the controller breaks the protocol: {0}")]
    Protocol(&'static str),
    /// The connection ended.
    #[error("the connection ended")]
    Disconnected,
    /// Nobody said which, and it is not one.
    #[error("{0}")]
    Which(String),
    /// The connection cannot be made, or broke.
    #[error("the connection failed: {0}")]
    Io(io::ErrorKind),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Disconnected,
            kind => Error::Io(kind),
        }
    }
}

/// Who a host is, and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Its qualified name.
    pub host: String,
    /// Its identifier.
    pub host_id: [u8; 16],
    /// Header digests.
    pub header_digest: bool,
    /// Data digests.
    pub data_digest: bool,
    /// R2Ts of one command at once.
    pub r2ts: u32,
    /// HPDA: alignment of data to the host in units of 4 bytes, from 0 for one.
    pub alignment: u8,
    /// Entries of a queue.
    pub entries: u16,
    /// Flow control of submission queues; without, reads are answered by data alone.
    pub flow_control: bool,
    /// The keep-alive timer; 0 for none.
    pub keep_alive_millis: u32,
    /// Data of writes in their capsules, as far as the controller takes it there.
    pub in_capsule: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        Wishes {
            host: "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001".to_owned(),
            host_id: [1; 16],
            header_digest: false,
            data_digest: false,
            r2ts: 1,
            alignment: 0,
            entries: QUEUE_ENTRIES_MAX,
            flow_control: true,
            keep_alive_millis: 0,
            in_capsule: true,
        }
    }
}

/// What a command returns.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its completion; made up when data alone has answered.
    pub cqe: Cqe,
    /// Whether data alone has answered.
    pub by_data_alone: bool,
    /// Its data.
    pub data: Bytes,
}

/// One connection. Clones share it; it closes when the last is dropped.
#[derive(Clone)]
pub struct Link {
    handle: Rc<Handle>,
}

struct Handle {
    connection: Rc<Connection>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.connection.end(Error::Disconnected);
    }
}

/// What the handles and the two tasks of a connection share.
struct Connection {
    stream: Stream,
    terms: Terms,
    /// MAXH2CDATA.
    data_max: u32,
    outbox: Outbox<()>,
    pending: RefCell<BTreeMap<u16, Pending>>,
    next_command: Cell<u16>,
    ended: RefCell<Option<Error>>,
    in_capsule: bool,
    capsule_data_max: Cell<u32>,
}

impl Connection {
    /// Ends the connection; all commands in flight fail.
    fn end(&self, why: Error) {
        self.ended.borrow_mut().get_or_insert(why);
        self.outbox.discard();
        self.stream.shutdown();
        let pending = std::mem::take(&mut *self.pending.borrow_mut());
        drop(pending);
    }

    fn error(&self) -> Error {
        self.ended.borrow().clone().unwrap_or(Error::Disconnected)
    }

    async fn send(&self) {
        while let Some(batch) = self.outbox.batch().await {
            if self.stream.send_all(batch.parts).await.is_err() {
                // The receiving task learns why.
                return self.outbox.discard();
            }
        }
    }
}

/// A command that was sent.
pub struct Submitted {
    connection: Rc<Connection>,
    answer: oneshot::Receiver<Result<Done, Error>>,
    /// Its identifier.
    pub command: u16,
}

impl Submitted {
    /// What it is answered with, whatever its status.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn completion(self) -> Result<Done, Error> {
        match self.answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.connection.error()),
        }
    }
}

impl Link {
    /// Connects to an address and exchanges ICReq and ICResp.
    ///
    /// # Errors
    /// When it cannot be reached, or answers with something else.
    pub async fn open(rt: &Rt, address: &Addr, wishes: &Wishes) -> Result<Link, Error> {
        let stream = Stream::connect(rt, address).await?;
        let digests = u8::from(wishes.header_digest) | u8::from(wishes.data_digest) << 1;
        let request = Initialize { version: 0, alignment: wishes.alignment, digests, limit: wishes.r2ts - 1 };
        stream.send_all(vec![Bytes::from_slice(&request.encode(kind::IC_REQ))]).await?;
        let mut reader = Reader::new(stream.clone(), pdu::HEADERS_BYTES);
        let response = receive_response(&mut reader).await?;
        let terms = Terms {
            header_digest: response.digests & 1 != 0,
            data_digest: response.digests & 2 != 0,
            alignment: (u32::from(wishes.alignment) + 1) * 4,
            r2ts_max: wishes.r2ts,
        };
        let connection = Rc::new(Connection {
            stream,
            terms,
            data_max: response.limit,
            outbox: Outbox::new(),
            pending: RefCell::default(),
            next_command: Cell::new(0),
            ended: RefCell::default(),
            in_capsule: wishes.in_capsule,
            capsule_data_max: Cell::new(ADMIN_CAPSULE_DATA_MAX),
        });
        let (sender, receiver) = (connection.clone(), connection.clone());
        rt.spawn(async move { sender.send().await });
        rt.spawn(async move {
            let why = receive::receive(&receiver, reader).await;
            if let Error::Protocol(why) = why {
                tracing::warn!(why, "nvme host: the controller breaks the protocol");
            }
            receiver.end(why);
        });
        Ok(Link { handle: Rc::new(Handle { connection }) })
    }

    /// Opens a link and makes it a queue; an admin queue gets a new controller, whose identifier is returned.
    ///
    /// # Errors
    /// As [`Link::open`] and [`Link::run`].
    pub async fn connect(
        rt: &Rt,
        address: &Addr,
        wishes: &Wishes,
        subsystem: &str,
        queue: u16,
        controller: Option<u16>,
    ) -> Result<(Link, u16), Error> {
        let link = Link::open(rt, address, wishes).await?;
        let (sqe, data) = connect_command(wishes, subsystem, queue, controller);
        let done = link.run(sqe, Some(data), 0).await?;
        Ok((link, done.cqe.result as u16))
    }

    /// An I/O queue's commands take this much data in their capsules.
    fn set_capsule_data_max(&self, bytes: u32) {
        self.handle.connection.capsule_data_max.set(bytes);
    }

    /// What was agreed on.
    #[must_use]
    pub fn terms(&self) -> Terms {
        self.handle.connection.terms
    }

    /// Sends a command with an identifier of the link's. Without a descriptor in `sqe` it gets one for `data`, or for
    /// `expected` bytes of data from the controller.
    #[must_use]
    pub fn submit(&self, sqe: Sqe, data: Option<Bytes>, expected: u32) -> Submitted {
        let connection = &self.handle.connection;
        let command = connection.next_command.get();
        connection.next_command.set(command.wrapping_add(1));
        let mut sqe = sqe.with(2, &command.to_le_bytes());
        let bytes = data.as_ref().map_or(expected, |d| d.len() as u32);
        let wanted = connection.in_capsule || matches!(sqe.sgl(), Ok(Sgl::Capsule { .. }));
        let in_capsule = data.is_some() && wanted && bytes <= connection.capsule_data_max.get();
        if sqe.0[24..40] == [0; 16] {
            sqe = sqe.with_sgl(if in_capsule { Sgl::Capsule { offset: 0, bytes } } else { Sgl::Transport { bytes } });
        }
        let (sender, answer) = oneshot::channel();
        let (now, later) = if in_capsule { (data, None) } else { (None, data) };
        if connection.ended.borrow().is_none() {
            connection.pending.borrow_mut().insert(command, Pending::new(later, expected, sender));
            let parts: Vec<Bytes> = now.into_iter().collect();
            let terms = &connection.terms;
            connection.outbox.push((), |m| pdu::append(m, kind::CAPSULE_CMD, 0, &sqe.0, parts, To::Controller, terms));
        }
        Submitted { connection: connection.clone(), answer, command }
    }

    /// Sends a command and waits for its success.
    ///
    /// # Errors
    /// Another status, or what ended the connection.
    pub async fn run(&self, sqe: Sqe, data: Option<Bytes>, expected: u32) -> Result<Done, Error> {
        let done = self.submit(sqe, data, expected).completion().await?;
        match done.cqe.status {
            Status::SUCCESS => Ok(done),
            status => Err(Error::Failed { status, result: done.cqe.result }),
        }
    }

    /// Sends any bytes between PDUs, for tests of controllers.
    pub fn send_raw(&self, bytes: &[u8]) {
        self.handle.connection.outbox.push((), |message| message.pieces().extend_from_slice(bytes));
    }

    /// Waits until the connection has ended; why it did.
    pub async fn ended(&self, rt: &Rt) -> Error {
        loop {
            if let Some(why) = self.handle.connection.ended.borrow().clone() {
                return why;
            }
            rt.sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// Commands that wait for their answers.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.handle.connection.pending.borrow().len()
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.handle.connection.ended.borrow().is_some()
    }
}

/// A Connect command and its data, in its capsule.
#[must_use]
pub fn connect_command(wishes: &Wishes, subsystem: &str, queue: u16, controller: Option<u16>) -> (Sqe, Bytes) {
    let data = ConnectData {
        host_id: wishes.host_id,
        controller: controller.unwrap_or(CONTROLLER_ANY),
        subsystem: subsystem.to_owned(),
        host: wishes.host.clone(),
    };
    let data = Bytes::from_slice(&data.encode());
    let mut sqe = Sqe::new(fabrics::OPCODE, 0).with_sgl(Sgl::Capsule { offset: 0, bytes: data.len() as u32 });
    sqe.0[4] = fabrics::CONNECT;
    put(&mut sqe.0, 42, &queue.to_le_bytes());
    put(&mut sqe.0, 44, &wishes.entries.wrapping_sub(1).to_le_bytes());
    sqe.0[46] = if wishes.flow_control { 0 } else { super::connect::NO_FLOW_CONTROL };
    put(&mut sqe.0, 48, &wishes.keep_alive_millis.to_le_bytes());
    (sqe, data)
}

async fn receive_response(reader: &mut Reader) -> Result<Initialize, Error> {
    let header: [u8; COMMON_BYTES] = reader.array().await?;
    let common = Common::parse(&header);
    if common.kind == kind::C2H_TERM_REQ {
        return Err(receive::terminated(reader, &common).await);
    }
    if Initialize::check_common(kind::IC_RESP, &common).is_err() {
        return Err(Error::Protocol("no ICResp"));
    }
    let rest: [u8; INITIALIZE_BYTES - COMMON_BYTES] = reader.array().await?;
    match Initialize::parse(kind::IC_RESP, &common, &rest) {
        // CPDA: our data is aligned to 4 bytes, which every header is.
        Ok(response) if response.alignment == 0 && response.limit >= 4096 => Ok(response),
        _ => Err(Error::Protocol("an ICResp that cannot be kept")),
    }
}
