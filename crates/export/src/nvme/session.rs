//! One connection: PDUs in, PDUs out, many commands at once. NVMe/TCP 1.0, "Data Transfer" and "Error Handling".
//!
//! ```text
//!   receive:   header -> check -> [room for a command] -> [room for long data in its capsule] -> data -> digest
//!                CapsuleCmd: goes to the backend
//!                H2CData: goes to the command that waits for it
//!   work:      the backend has a task for each I/O command: room for its payload, R2T, the namespace, the answer
//!   send:      one task per connection; permits end when the answers have left
//! ```
//!
//! Invariants: receiving waits only for commands that end without anything more of the host, so that the data which
//! others wait for arrives; the session ends when the commands in flight have ended, however the host behaves.
//!
//! Not here: ICReq and Connect (`arrive`), what commands mean ([`Backend`]: `local` and `worker`).

use std::{
    cell::{Cell, RefCell},
    pin::pin,
    rc::Rc,
    time::Duration,
};

use futures::{
    channel::oneshot,
    future::{Either, select},
};
use rt::{Buf, Bytes, Rt, net::Stream};

use super::{
    bytes::u32_at,
    digest::{DIGEST_BYTES, digest},
    entry::{Cqe, Sqe, io},
    limits::{
        ASKED_BYTES_MAX, CAPSULE_DATA_FREE, CONNECTION_ALLOWANCE, QUEUE_ENTRIES_MAX, STALL_SECONDS_MAX,
        STOP_SEND_SECONDS_MAX, TERM_LINGER_MILLIS,
    },
    pdu::{self, COMMON_BYTES, Common, DataHeader, Fatal, Fes, Frame, Terms, To, flag, kind},
    status::Status,
    transfer::{Arrived, Next, Transfers},
};
use crate::stream::{
    budget::{Budget, Permit},
    outbox::{Message, Outbox},
    pool::Pool,
    progress::{Executing, Progress, Unanswered},
    reader::Reader,
    signal::Signal,
    task_pool::TaskPool,
};

/// With a host that others wait for.
const PATIENCE: Duration = Duration::from_secs(STALL_SECONDS_MAX);

/// What a PDU holds until it has left.
pub type Hold = Option<(Permit, Unanswered)>;

/// A command's data that the host was asked for.
pub struct FromHost {
    /// The data.
    pub data: Bytes,
    /// Whether its digests matched.
    pub intact: bool,
    /// The command has begun, if that is counted here.
    pub begun: Option<Executing>,
}

/// What is behind a connection: what knows what commands mean.
pub trait Backend: Sized + 'static {
    /// An I/O command for a task.
    type Job: 'static;

    /// A command has arrived; what came in its capsule is `intact` or not.
    ///
    /// # Errors
    /// When the connection is received from no more.
    async fn command(
        &self,
        session: &Rc<Session<Self>>,
        sqe: &Sqe,
        data: Bytes,
        intact: bool,
        permit: Permit,
    ) -> Result<(), End>;

    /// Data that a command waited for has arrived, and is given to it only then.
    ///
    /// # Errors
    /// When the connection is received from no more.
    fn may_go_on(&self) -> Result<(), End>;

    /// Longest data in a capsule.
    fn capsule_data_max(&self) -> u32;

    /// All data of a command has arrived: it has begun, if that is counted here.
    fn begins(&self) -> Option<Executing>;

    /// Nothing is received any more.
    fn leave(&self);

    /// Writes a line of the log that hosts can cause again and again.
    fn say(&self, _kind: &'static str, line: impl FnOnce()) {
        line();
    }
}

/// How far a host's queue has been taken: SQHD. NVMe Base 2.0, 3.3.3.2.1; without flow control it is not told, 6.3.
#[derive(Debug)]
pub struct Head {
    entries: u16,
    at: Option<u16>,
}

impl Head {
    /// Of a queue whose first command was its Connect.
    pub fn new(entries: u16, flow_control: bool) -> Head {
        Head { entries, at: flow_control.then_some(1 % entries) }
    }

    fn advance(&mut self) {
        self.at = self.at.map(|at| (at + 1) % self.entries);
    }
}

/// One connection that has become a queue.
pub struct Session<B: Backend> {
    pub backend: B,
    pub budget: Budget,
    pub rt: Rt,
    pub stream: Stream,
    progress: Rc<Progress>,
    terms: Terms,
    outbox: Outbox<Hold>,
    transfers: RefCell<Transfers<oneshot::Sender<FromHost>>>,
    /// What the host may be asked for at once.
    to_ask: Rc<Pool>,
    /// Commands whose data has not come whole; the host's queue bounds them.
    fetching: Cell<u16>,
    head: RefCell<Head>,
    in_flight: Cell<u64>,
    has_ended: Cell<bool>,
    ended: Signal,
    tasks: Rc<TaskPool<B::Job>>,
}

/// Why the receiving side ends.
pub enum End {
    /// The stream's end.
    Disconnected,
    /// The host has terminated the connection.
    Terminated(u16),
    /// The stream makes no sense any more; the header in error.
    Violation(Fatal, Vec<u8>),
}

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> Self {
        End::Disconnected
    }
}

impl<B: Backend> Session<B> {
    pub fn new(
        rt: &Rt,
        stream: &Stream,
        (terms, head): (Terms, Head),
        memory: &Rc<Pool>,
        progress: &Rc<Progress>,
        tasks: &Rc<TaskPool<B::Job>>,
        backend: B,
    ) -> Rc<Self> {
        Rc::new(Session {
            backend,
            budget: Budget::new(rt, &CONNECTION_ALLOWANCE, memory),
            rt: rt.clone(),
            stream: stream.clone(),
            progress: progress.clone(),
            terms,
            outbox: Outbox::new(),
            transfers: RefCell::new(Transfers::new(terms.r2ts_max)),
            to_ask: Pool::new(ASKED_BYTES_MAX),
            fetching: Cell::new(0),
            head: RefCell::new(head),
            in_flight: Cell::new(0),
            has_ended: Cell::new(false),
            ended: Signal::default(),
            tasks: tasks.clone(),
        })
    }

    /// Whether nothing is received any more.
    pub fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Answers the Connect command of this identifier, and serves the connection until it ends.
    pub async fn run(self: Rc<Self>, mut reader: Reader, connect: u16, controller: u16) {
        self.complete(connect, u64::from(controller), Status::SUCCESS, None);
        let session = self.clone();
        let sender =
            self.rt.spawn(async move { session.outbox.send_to(&session.stream, &session.budget, PATIENCE).await });
        reader.peer_is_known();
        let end = self.receive(&mut reader).await;
        self.leave();
        match &end {
            End::Disconnected => {}
            End::Terminated(status) => {
                let peer = self.stream.peer();
                let line = || tracing::warn!(peer, status, "nvme: the host terminates the connection");
                self.backend.say("connections that hosts terminate", line);
                self.outbox.discard();
            }
            End::Violation(fatal, header) => {
                let line = || tracing::warn!(peer = self.stream.peer(), ?fatal, "nvme: terminating the connection");
                self.backend.say("connections terminated", line);
                let term = pdu::encode_term(kind::C2H_TERM_REQ, *fatal, header);
                self.outbox.push(None, |message| message.pieces().extend(term));
                self.outbox.close();
            }
        }
        self.ended.until(|| self.in_flight.get() == 0).await;
        self.outbox.close();
        let patience = self.rt.sleep(Duration::from_secs(STOP_SEND_SECONDS_MAX));
        if let Either::Right((_, sender)) = select(pin!(sender), pin!(patience)).await {
            self.stream.shutdown();
            sender.await;
        }
        if let End::Violation(..) = end {
            linger(&self.rt, &mut reader).await;
        }
        self.stream.shutdown();
    }

    /// Commands that wait for data are forgotten.
    fn leave(&self) {
        self.has_ended.set(true);
        self.transfers.borrow_mut().clear();
        self.backend.leave();
    }

    async fn receive(self: &Rc<Self>, reader: &mut Reader) -> End {
        loop {
            let header: [u8; COMMON_BYTES] = match reader.at_hand() {
                Some(header) => header,
                None => match reader.array().await {
                    Ok(header) => header,
                    Err(error) => return error.into(),
                },
            };
            let common = Common::parse(&header);
            let done = match common.kind {
                kind::H2C_TERM_REQ => Err(terminated(reader, &common).await),
                _ => match pdu::check(&common, To::Controller, &self.terms) {
                    Ok(frame) if common.kind == kind::CAPSULE_CMD => self.receive_command(reader, &header, frame).await,
                    Ok(frame) => self.receive_data(reader, &header, frame).await,
                    Err(fatal) => Err(End::Violation(fatal, header.to_vec())),
                },
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    async fn receive_command(
        self: &Rc<Self>,
        reader: &mut Reader,
        header: &[u8; COMMON_BYTES],
        frame: Frame,
    ) -> Result<(), End> {
        if frame.data > self.backend.capsule_data_max() {
            return Err(End::Violation(Fatal { fes: Fes::LimitExceeded, information: 4 }, header.to_vec()));
        }
        let sqe = Sqe(rest(reader, header, &self.terms).await?);
        let mut permit = match self.budget.try_request() {
            Some(permit) => permit,
            // What has all the room may be waiting for data, and while nothing is received none comes.
            None if self.fetching.get() > 0 => return Err(self.too_many("commands")),
            // For answers to leave.
            None => self.budget.request().await,
        };
        let (data, intact) = if frame.data <= CAPSULE_DATA_FREE {
            data(reader, frame).await?
        } else {
            // In memory of its own: the future of every command would have room for it.
            Box::pin(self.long_capsule_data(reader, &sqe, frame, &mut permit)).await?
        };
        self.head.borrow_mut().advance();
        self.backend.command(self, &sqe, data.freeze(), intact, permit).await
    }

    /// Receives the data in a capsule that is more than every command may have. Room for it is waited for: only for
    /// commands that have their data, so that no data behind it is waited for meanwhile.
    async fn long_capsule_data(
        &self,
        reader: &mut Reader,
        sqe: &Sqe,
        frame: Frame,
        permit: &mut Permit,
    ) -> Result<(Buf, bool), End> {
        // A compare reads as much.
        let sides = if sqe.opcode() == io::COMPARE { 2 } else { 1 };
        self.budget.payload_of_last(permit, sides * u64::from(frame.data)).await;
        match self.budget.unless_in_the_way(PATIENCE, data(reader, frame)).await {
            Some(received) => Ok(received?),
            None => Err(self.stalled()),
        }
    }

    fn stalled(&self) -> End {
        let line = || tracing::warn!(peer = self.stream.peer(), "nvme: closing a stalled connection");
        self.backend.say("stalled connections", line);
        self.give_up();
        End::Disconnected
    }

    async fn receive_data(
        self: &Rc<Self>,
        reader: &mut Reader,
        header: &[u8; COMMON_BYTES],
        frame: Frame,
    ) -> Result<(), End> {
        let rest = rest(reader, header, &self.terms).await?;
        let data_header = DataHeader::parse(&rest);
        let last = header[1] & flag::LAST != 0;
        let violation = |fatal| End::Violation(fatal, [&header[..], &rest].concat());
        // A frame without data: PLEN.
        if frame.data == 0 {
            return Err(violation(Fatal::field(4)));
        }
        self.transfers.borrow().expect(&data_header, frame.data, last).map_err(violation)?;
        let (part, intact) = data(reader, frame).await?;
        self.backend.may_go_on()?;
        let next = self.transfers.borrow_mut().put(&data_header, part, intact);
        match next {
            Next::Wait => {}
            Next::Ask(r2t) => self.ask(&r2t),
            // The command may have been forgotten meanwhile.
            Next::Done(Arrived { data, intact, owner }) => {
                if owner.send(FromHost { data, intact, begun: self.backend.begins() }).is_ok() {
                    self.fetching.set(self.fetching.get() - 1);
                }
            }
        }
        Ok(())
    }

    /// Begins an I/O command, whose data the host will be asked for or not.
    ///
    /// # Errors
    /// When the host has sent too many of those.
    pub fn begin<F>(
        self: &Rc<Self>,
        fetches: bool,
        job: B::Job,
        work: impl Fn(B::Job) -> F + 'static,
    ) -> Result<(), End>
    where
        F: Future<Output = ()> + 'static,
    {
        if fetches {
            self.fetching.set(self.fetching.get() + 1);
            if self.fetching.get() > QUEUE_ENTRIES_MAX {
                return Err(self.too_many("writes without data"));
            }
        }
        self.in_flight.set(self.in_flight.get() + 1);
        self.tasks.begin(&self.rt, job, work);
        Ok(())
    }

    /// No host has more commands than its queue has entries. They would keep us from reading that it has left.
    fn too_many(&self, what: &str) -> End {
        tracing::warn!(peer = self.stream.peer(), "nvme: closing a connection with too many {what}");
        self.give_up();
        End::Disconnected
    }

    /// An I/O command is done.
    pub fn end_one(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.ended.notify();
    }

    /// A command's data, which the host is asked for. Nothing when the connection ends before, also for this: a host
    /// that does not send it while others wait for the memory is closed.
    pub async fn fetch(&self, sqe: &Sqe, bytes: u32) -> Option<FromHost> {
        // The turn to ask is waited for within the patience: the memory is held meanwhile.
        let arriving = async {
            let _asked = self.to_ask.take(u64::from(bytes).min(ASKED_BYTES_MAX)).await;
            if self.has_ended.get() {
                return None;
            }
            let (owner, arrived) = oneshot::channel();
            let r2ts = self.transfers.borrow_mut().begin(sqe.command(), bytes, owner);
            r2ts.iter().for_each(|r2t| self.ask(r2t));
            arrived.await.ok()
        };
        let arrived = self.budget.unless_in_the_way(PATIENCE, arriving).await;
        if !matches!(arrived, Some(Some(_))) {
            self.fetching.set(self.fetching.get() - 1);
        }
        arrived.unwrap_or_else(|| {
            self.stalled();
            None
        })
    }

    /// Ends the connection, and all commands that wait for data.
    pub fn give_up(&self) {
        self.has_ended.set(true);
        self.transfers.borrow_mut().clear();
        self.stream.shutdown();
    }

    fn ask(&self, r2t: &DataHeader) {
        self.outbox.push(None, |message| self.append(message, kind::R2T, 0, &r2t.encode(), Vec::new()));
    }

    /// Answers with data, of which there may be none.
    pub fn answer(&self, sqe: &Sqe, answer: Result<Vec<Bytes>, Status>, permit: Permit) {
        let hold = self.hold(permit);
        match answer {
            Ok(data) if data.is_empty() => self.complete(sqe.command(), 0, Status::SUCCESS, hold),
            Ok(data) => self.send_data(sqe.command(), data, hold),
            Err(status) => self.complete(sqe.command(), 0, status, hold),
        }
    }

    /// What an answer holds until it has left.
    pub fn hold(&self, permit: Permit) -> Hold {
        Some((permit, self.progress.unanswered()))
    }

    /// One C2HData PDU. Without flow control it says by itself that the command succeeded; else a response tells the
    /// queue's head.
    pub fn send_data(&self, command: u16, data: Vec<Bytes>, hold: Hold) {
        let bytes: usize = data.iter().map(Bytes::len).sum();
        let header = DataHeader { command, tag: 0, offset: 0, length: bytes as u32 };
        let alone = self.head.borrow().at.is_none();
        let flags = if alone { flag::LAST | flag::SUCCESS } else { flag::LAST };
        self.outbox.push(hold, |message| {
            self.append(message, kind::C2H_DATA, flags, &header.encode(), data);
            if !alone {
                self.respond(message, command, 0, Status::SUCCESS);
            }
        });
    }

    /// Answers without data.
    pub fn complete(&self, command: u16, result: u64, status: Status, hold: Hold) {
        self.outbox.push(hold, |message| self.respond(message, command, result, status));
    }

    fn respond(&self, message: &mut Message, command: u16, result: u64, status: Status) {
        // FFFFh in the answer to Connect when there is no flow control, reserved later.
        let head = self.head.borrow().at.unwrap_or(0xffff);
        let cqe = Cqe { result, head, command, status };
        self.append(message, kind::CAPSULE_RESP, 0, &cqe.encode(), Vec::new());
    }

    fn append(&self, message: &mut Message, kind: u8, flags: u8, specific: &[u8], data: Vec<Bytes>) {
        pdu::append(message, kind, flags, specific, data, To::Host, &self.terms);
    }
}

/// The end of a connection that its host terminates.
pub async fn terminated(reader: &mut Reader, common: &Common) -> End {
    match pdu::check_term(common) {
        Ok(_) => reader.array().await.map_or_else(End::from, |rest| End::Terminated(pdu::parse_term(&rest).0)),
        Err(fatal) => End::Violation(fatal, common.encode().to_vec()),
    }
}

/// Receives the rest of a header, and its digest.
pub async fn rest<const N: usize>(
    reader: &mut Reader,
    header: &[u8; COMMON_BYTES],
    terms: &Terms,
) -> Result<[u8; N], End> {
    let rest: [u8; N] = match reader.at_hand() {
        Some(rest) => rest,
        None => reader.array().await?,
    };
    if terms.header_digest {
        let received = u32::from_le_bytes(reader.array().await?);
        let whole = [&header[..], &rest].concat();
        if received != digest(&whole) {
            return Err(End::Violation(Fatal { fes: Fes::HeaderDigest, information: received }, whole));
        }
    }
    Ok(rest)
}

/// Receives padding, data and its digest; whether that matched.
pub async fn data(reader: &mut Reader, frame: Frame) -> std::io::Result<(Buf, bool)> {
    if frame.data == 0 {
        return Ok((Buf::default(), true));
    }
    reader.discard(frame.padding as usize).await?;
    let data = reader.bytes(frame.data as usize).await?;
    if !frame.data_digest {
        return Ok((data, true));
    }
    let received: [u8; DIGEST_BYTES] = reader.array().await?;
    let intact = u32_at(&received, 0) == digest(&data);
    Ok((data, intact))
}

/// Taken from a terminated host at once.
const LINGER_BYTES: usize = 64 << 10;

/// Takes what a terminated host still sends, so that closing does not cost it the TermReq.
pub async fn linger(rt: &Rt, reader: &mut Reader) {
    let patience = rt.sleep(Duration::from_millis(TERM_LINGER_MILLIS));
    let rest = async { while reader.discard(LINGER_BYTES).await.is_ok() {} };
    select(pin!(rest), pin!(patience)).await;
}
