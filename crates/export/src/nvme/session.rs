//! One connection: PDUs in, PDUs out, many commands at once. NVMe/TCP 1.0, "Data Transfer" and "Error Handling".
//!
//! ```text
//!   receive:   header -> check -> [room for a command] -> data -> digest
//!                CapsuleCmd: Connect, Fabrics and admin commands are answered at once; I/O commands are spawned
//!                H2CData: goes to the command that waits for it
//!   execute:   one task per I/O command, which does others later; room for its payload, R2T, the namespace, the answer
//!   send:      one task per connection; permits end when the answers have left
//! ```
//!
//! Invariants: receiving never waits for the memory of a command, so that data of other commands behind it arrives; the
//! session ends when the commands in flight have ended, however the host behaves; a command whose data did not arrive
//! whole has no effect; a command that may change something counts as begun from the moment in which all of it has arrived,
//! and none begins on a connection that was cut.

use std::{
    cell::{Cell, OnceCell, RefCell},
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
    connect::connect,
    controller::{Answer, Connection, Controller, Outcome, property::Change},
    digest::{DIGEST_BYTES, digest},
    entry::{Cqe, Sqe, fabrics},
    execute,
    limits::{
        ASKED_BYTES_MAX, CONNECTION_ALLOWANCE, QUEUE_ENTRIES_MAX, STALL_SECONDS_MAX, STOP_SEND_SECONDS_MAX,
        TERM_LINGER_MILLIS,
    },
    pdu::{self, COMMON_BYTES, Common, DataHeader, Fatal, Fes, Frame, Terms, To, flag, kind},
    request,
    server::Shared,
    status::Status,
    subsystem::Subsystems,
    transfer::{Arrived, Next, Transfers},
};
use crate::stream::{
    budget::{Account, Permit},
    outbox::{Message, Outbox},
    pool::Pool,
    progress::{Executing, Unanswered},
    reader::Reader,
    signal::Signal,
    workers::{CONNECTION_WAITING_BYTES, Workers},
};

/// With a host that others wait for.
const PATIENCE: Duration = Duration::from_secs(STALL_SECONDS_MAX);

/// What a PDU holds until it has left.
type Hold = Option<(Permit, Unanswered)>;

/// A command's data that the host was asked for.
pub struct FromHost {
    /// The data.
    pub data: Bytes,
    /// Whether its digests matched.
    pub intact: bool,
    /// The command has begun.
    pub begun: Executing,
}

/// A queue of a controller.
pub struct Queue<S: Subsystems> {
    /// Its controller.
    pub controller: Rc<Controller<S>>,
    connection: Rc<Connection>,
    /// Its identifier; 0 for admin.
    pub id: u16,
    entries: u16,
    /// How far the host's queue has been taken; nothing without flow control.
    head: Option<Cell<u16>>,
}

impl<S: Subsystems> Queue<S> {
    /// The queue of a Connect command, which was its first.
    pub fn new(
        controller: Rc<Controller<S>>,
        connection: Rc<Connection>,
        id: u16,
        entries: u16,
        flow_control: bool,
    ) -> Self {
        Queue { controller, connection, id, entries, head: flow_control.then(|| Cell::new(1 % entries)) }
    }

    fn advance(&self) {
        if let Some(head) = &self.head {
            head.set((head.get() + 1) % self.entries);
        }
    }

    /// SQHD. 6.3: FFFFh in the answer to Connect when there is no flow control, reserved later.
    fn head(&self) -> u16 {
        self.head.as_ref().map_or(0xffff, Cell::get)
    }
}

/// One connection after its ICReq.
pub struct Session<S: Subsystems> {
    pub shared: Rc<Shared<S>>,
    pub account: Account,
    rt: Rt,
    stream: Stream,
    terms: Terms,
    outbox: Outbox<Hold>,
    transfers: RefCell<Transfers<oneshot::Sender<FromHost>>>,
    /// What the host may be asked for at once.
    to_ask: Rc<Pool>,
    /// Commands whose data has not come; the host's queue bounds them.
    fetching: Cell<u16>,
    queue: OnceCell<Queue<S>>,
    in_flight: Cell<u64>,
    has_ended: Cell<bool>,
    ended: Signal,
    workers: Rc<Workers<Job<S>>>,
}

/// An I/O command to execute.
struct Job<S: Subsystems> {
    session: Rc<Session<S>>,
    sqe: Sqe,
    request: request::Request,
    target: execute::Target<S::N>,
    /// What came in its capsule.
    data: Bytes,
    permit: Permit,
    begun: Option<Executing>,
}

/// Why the receiving side ends.
enum End {
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

impl<S: Subsystems> Session<S> {
    pub fn new(shared: &Rc<Shared<S>>, stream: &Stream, terms: Terms) -> Rc<Self> {
        Rc::new(Session {
            shared: shared.clone(),
            account: Account::new(&CONNECTION_ALLOWANCE, &shared.memory),
            rt: shared.rt.clone(),
            stream: stream.clone(),
            terms,
            outbox: Outbox::new(),
            transfers: RefCell::new(Transfers::new(terms.r2ts_max)),
            to_ask: Pool::new(ASKED_BYTES_MAX),
            fetching: Cell::new(0),
            queue: OnceCell::new(),
            in_flight: Cell::new(0),
            has_ended: Cell::new(false),
            ended: Signal::default(),
            workers: Workers::new(CONNECTION_WAITING_BYTES),
        })
    }

    /// Whether the connection has become a queue.
    pub fn is_connected(&self) -> bool {
        self.queue.get().is_some()
    }

    /// Serves the connection until it ends.
    pub async fn run(self: Rc<Self>, mut reader: Reader) {
        let session = self.clone();
        let sender = self.rt.spawn(async move { session.send().await });
        let end = self.receive(&mut reader).await;
        self.leave();
        match &end {
            End::Disconnected => {}
            End::Terminated(status) => {
                tracing::warn!(peer = self.stream.peer(), status, "nvme: the host terminates the connection");
                self.outbox.discard();
            }
            End::Violation(fatal, header) => {
                tracing::warn!(peer = self.stream.peer(), ?fatal, "nvme: terminating the connection");
                let term = pdu::encode_term(kind::C2H_TERM_REQ, *fatal, header);
                self.outbox.push(None, |message| message.pieces().extend(term));
                self.outbox.close();
            }
        }
        self.ended.until(|| self.in_flight.get() == 0).await;
        self.workers.close();
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

    /// Takes the queue from its controller; commands that wait for data are forgotten.
    fn leave(&self) {
        self.has_ended.set(true);
        self.transfers.borrow_mut().clear();
        if let Some(queue) = self.queue.get() {
            let mut queues = queue.controller.queues.borrow_mut();
            // After a reset another connection may be this queue.
            if queues.get(&queue.id).is_some_and(|c| Rc::ptr_eq(c, &queue.connection)) {
                queues.remove(&queue.id);
            }
            drop(queues);
            if queue.id == 0 {
                self.shared.end_controller(&queue.controller);
            }
        }
    }

    async fn receive(self: &Rc<Self>, reader: &mut Reader) -> End {
        loop {
            let header: [u8; COMMON_BYTES] = match reader.array().await {
                Ok(header) => header,
                Err(error) => return error.into(),
            };
            let common = Common::parse(&header);
            let done = match common.kind {
                kind::H2C_TERM_REQ => self.terminated(reader, &common).await,
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

    async fn terminated(&self, reader: &mut Reader, common: &Common) -> Result<(), End> {
        match pdu::check_term(common) {
            Ok(_) => Err(End::Terminated(pdu::parse_term(&reader.array().await?).0)),
            Err(fatal) => Err(End::Violation(fatal, common.encode().to_vec())),
        }
    }

    /// Receives the rest of a header, and its digest.
    async fn rest<const N: usize>(&self, reader: &mut Reader, header: &[u8; COMMON_BYTES]) -> Result<[u8; N], End> {
        let rest: [u8; N] = reader.array().await?;
        if self.terms.header_digest {
            let received = u32::from_le_bytes(reader.array().await?);
            let whole = [&header[..], &rest].concat();
            if received != digest(&whole) {
                return Err(End::Violation(Fatal { fes: Fes::HeaderDigest, information: received }, whole));
            }
        }
        Ok(rest)
    }

    /// Receives padding, data and its digest; whether that matched.
    async fn data(&self, reader: &mut Reader, frame: Frame) -> std::io::Result<(Buf, bool)> {
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

    async fn receive_command(
        self: &Rc<Self>,
        reader: &mut Reader,
        header: &[u8; COMMON_BYTES],
        frame: Frame,
    ) -> Result<(), End> {
        let sqe = Sqe(self.rest(reader, header).await?);
        // Waits only for answers to leave: no more commands wait for data than the queue has entries (`start`), half as many.
        let permit = self.account.request().await;
        let (data, intact) = self.data(reader, frame).await?;
        match self.queue.get() {
            None => self.first_command(&sqe, &data.freeze(), intact, permit).await,
            Some(queue) if queue.connection.is_cut() => return Err(End::Disconnected),
            Some(queue) => self.command(queue, &sqe, data.freeze(), intact, permit),
        }
        Ok(())
    }

    async fn receive_data(
        self: &Rc<Self>,
        reader: &mut Reader,
        header: &[u8; COMMON_BYTES],
        frame: Frame,
    ) -> Result<(), End> {
        let rest = self.rest(reader, header).await?;
        let data_header = DataHeader::parse(&rest);
        let last = header[1] & flag::LAST != 0;
        let violation = |fatal| End::Violation(fatal, [&header[..], &rest].concat());
        // A frame without data: PLEN.
        if frame.data == 0 {
            return Err(violation(Fatal::field(4)));
        }
        self.transfers.borrow().expect(&data_header, frame.data, last).map_err(violation)?;
        let (part, intact) = self.data(reader, frame).await?;
        let queue = self.queue.get().ok_or(End::Disconnected)?;
        if queue.connection.is_cut() {
            return Err(End::Disconnected);
        }
        let next = self.transfers.borrow_mut().put(&data_header, part, intact);
        match next {
            Next::Wait => {}
            Next::Ask(r2t) => self.ask(&r2t),
            // The command may have been forgotten meanwhile.
            Next::Done(Arrived { data, intact, owner }) => {
                let begun = queue.controller.begun.one();
                drop(owner.send(FromHost { data, intact, begun }));
            }
        }
        Ok(())
    }

    fn command(self: &Rc<Self>, queue: &Queue<S>, sqe: &Sqe, data: Bytes, intact: bool, permit: Permit) {
        queue.advance();
        queue.controller.heard();
        if !intact {
            return self.fail(sqe, Status::TRANSPORT_ERROR, permit);
        }
        match (sqe.opcode(), queue.id) {
            (fabrics::OPCODE, _) => self.fabrics_command(queue, sqe, permit),
            _ if !queue.controller.is_ready() => self.fail(sqe, Status::SEQUENCE_ERROR, permit),
            (_, 0) => match queue.controller.admin(sqe) {
                Ok(Outcome::Now(answer)) => self.succeed_with(sqe.command(), answer, permit),
                Ok(Outcome::Later) => {}
                Ok(Outcome::Aborts(command)) => {
                    self.complete(command, 0, Status::ABORT_REQUESTED, None);
                    self.succeed(sqe, permit);
                }
                Err(status) => self.fail(sqe, status, permit),
            },
            _ => self.start(queue, sqe, data, permit),
        }
    }

    /// Only Connect may be the first.
    async fn first_command(self: &Rc<Self>, sqe: &Sqe, data: &Bytes, intact: bool, permit: Permit) {
        let connected = if intact {
            connect(&self.shared, &self.stream, sqe, data).await
        } else {
            Err(Status::TRANSPORT_ERROR.into())
        };
        match connected {
            Ok(queue) => {
                let (id, is_admin) = (queue.controller.id, queue.id == 0);
                assert!(self.queue.set(queue).is_ok(), "a connection is connected once");
                self.succeed_with(sqe.command(), Answer::from(u32::from(id)), permit);
                if is_admin {
                    let session = self.clone();
                    self.rt.spawn(async move { session.tell_events().await });
                }
            }
            Err(refusal) => {
                let hold = Some((permit, self.shared.progress.unanswered()));
                self.complete(sqe.command(), u64::from(refusal.result), refusal.status, hold);
            }
        }
    }

    fn fabrics_command(self: &Rc<Self>, queue: &Queue<S>, sqe: &Sqe, permit: Permit) {
        match (sqe.fabrics_type(), queue.id) {
            (fabrics::PROPERTY_GET, 0) => match queue.controller.property_get(sqe) {
                Ok(result) => self.succeed_with(sqe.command(), Answer { result, data: Vec::new() }, permit),
                Err(status) => self.fail(sqe, status, permit),
            },
            (fabrics::PROPERTY_SET, 0) => match queue.controller.property_set(sqe) {
                Ok(Change::None) => self.succeed(sqe, permit),
                Ok(Change::Shutdown) => {
                    self.shut_down(&queue.controller);
                    self.succeed(sqe, permit);
                }
                Ok(Change::Reset) => self.answer_when_reset(queue, sqe, permit),
                Err(status) => self.fail(sqe, status, permit),
            },
            (fabrics::CONNECT, _) => self.fail(sqe, Status::SEQUENCE_ERROR, permit),
            _ => self.fail(sqe, Status::INVALID_OPCODE, permit),
        }
    }

    /// A reset is complete when nothing that came before it may still change something.
    fn answer_when_reset(self: &Rc<Self>, queue: &Queue<S>, sqe: &Sqe, permit: Permit) {
        let (session, controller, sqe) = (self.clone(), queue.controller.clone(), *sqe);
        self.rt.spawn(async move {
            controller.begun.done().await;
            session.succeed(&sqe, permit);
        });
    }

    /// Makes all that was answered durable, then says so in CSTS.
    fn shut_down(&self, controller: &Rc<Controller<S>>) {
        let (controller, executing) = (controller.clone(), self.shared.progress.executing());
        self.rt.spawn(async move {
            execute::flush_all(&controller).await;
            controller.shutdown_done();
            drop(executing);
        });
    }

    /// Begins an I/O command.
    fn start(self: &Rc<Self>, queue: &Queue<S>, sqe: &Sqe, data: Bytes, permit: Permit) {
        if self.shared.progress.is_stopping() {
            // Without an answer: the host sends it again when it has reconnected.
            return;
        }
        let target = match execute::target(&queue.controller, sqe) {
            Ok(target) => target,
            Err(status) => return self.fail(sqe, status, permit),
        };
        let request = match request::check(sqe, target.info(), data.len() as u32) {
            Ok(request) => request,
            Err(status) => {
                target.count_error();
                return self.fail(sqe, status, permit);
            }
        };
        self.in_flight.set(self.in_flight.get() + 1);
        // All of its data is in the capsule, or nothing of it: `request::check`.
        let to_fetch = if data.is_empty() { request.data_from_host() } else { 0 };
        if to_fetch > 0 {
            self.fetching.set(self.fetching.get() + 1);
            if self.fetching.get() > QUEUE_ENTRIES_MAX {
                // No host has more commands than its queue has entries. They would keep us from reading that it has left.
                tracing::warn!(
                    peer = self.stream.peer(),
                    "nvme: closing a connection with too many writes without data"
                );
                queue.connection.cut();
                self.give_up();
            }
        }
        let begun = (to_fetch == 0 && request.changes()).then(|| queue.controller.begun.one());
        let (session, sqe) = (self.clone(), *sqe);
        self.workers.begin(&self.rt, Job { session, sqe, request, target, data, permit, begun }, work);
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
        let arrived = self.account.unless_in_the_way(&self.rt, PATIENCE, arriving).await;
        self.fetching.set(self.fetching.get() - 1);
        arrived.unwrap_or_else(|| {
            tracing::warn!(peer = self.stream.peer(), "nvme: closing a stalled connection");
            self.give_up();
            None
        })
    }

    /// Ends the connection, and all commands that wait for data.
    fn give_up(&self) {
        self.has_ended.set(true);
        self.transfers.borrow_mut().clear();
        self.stream.shutdown();
    }

    fn ask(&self, r2t: &DataHeader) {
        self.outbox.push(None, |message| self.append(message, kind::R2T, 0, &r2t.encode(), Vec::new()));
    }

    async fn tell_events(&self) {
        let Some(Queue { controller, .. }) = self.queue.get() else { return };
        loop {
            let mut next = None;
            controller
                .events_changed
                .until(|| {
                    next = controller.next_event();
                    next.is_some() || self.has_ended.get()
                })
                .await;
            let Some((command, result)) = next else { return };
            self.complete(command, u64::from(result), Status::SUCCESS, None);
        }
    }

    async fn send(&self) {
        while let Some(batch) = self.outbox.batch().await {
            let sending = self.stream.send_all(batch.parts);
            let sent = self.account.unless_in_the_way(&self.rt, PATIENCE, sending).await;
            if !matches!(sent, Some(Ok(()))) {
                // The host is gone or stalls: nothing more can be answered, and the receiving side ends too.
                self.stream.shutdown();
                self.outbox.discard();
                return;
            }
            drop(batch.holds);
        }
    }

    /// Answers that all is well.
    pub fn succeed(&self, sqe: &Sqe, permit: Permit) {
        let hold = Some((permit, self.shared.progress.unanswered()));
        self.complete(sqe.command(), 0, Status::SUCCESS, hold);
    }

    fn succeed_with(&self, command: u16, answer: Answer, permit: Permit) {
        let hold = Some((permit, self.shared.progress.unanswered()));
        if answer.data.is_empty() {
            return self.complete(command, answer.result, Status::SUCCESS, hold);
        }
        self.send_data(command, vec![Bytes::from_slice(&answer.data)], hold);
    }

    /// Answers with data.
    pub fn succeed_with_data(&self, sqe: &Sqe, data: Vec<Bytes>, permit: Permit) {
        self.send_data(sqe.command(), data, Some((permit, self.shared.progress.unanswered())));
    }

    /// One C2HData PDU. Without flow control it says by itself that the command succeeded; else a response tells the
    /// queue's head.
    fn send_data(&self, command: u16, data: Vec<Bytes>, hold: Hold) {
        let bytes: usize = data.iter().map(Bytes::len).sum();
        let header = DataHeader { command, tag: 0, offset: 0, length: bytes as u32 };
        let alone = self.queue.get().is_some_and(|q| q.head.is_none());
        let flags = if alone { flag::LAST | flag::SUCCESS } else { flag::LAST };
        self.outbox.push(hold, |message| {
            self.append(message, kind::C2H_DATA, flags, &header.encode(), data);
            if !alone {
                self.respond(message, command, 0, Status::SUCCESS);
            }
        });
    }

    /// Answers with an error, and keeps it for the error log.
    pub fn fail(&self, sqe: &Sqe, status: Status, permit: Permit) {
        if let Some(queue) = self.queue.get() {
            tracing::debug!(queue = queue.id, opcode = sqe.opcode(), %status, "nvme");
            queue.controller.failed(queue.id, sqe, status);
        }
        self.complete(sqe.command(), 0, status, Some((permit, self.shared.progress.unanswered())));
    }

    fn complete(&self, command: u16, result: u64, status: Status, hold: Hold) {
        self.outbox.push(hold, |message| self.respond(message, command, result, status));
    }

    fn respond(&self, message: &mut Message, command: u16, result: u64, status: Status) {
        let head = self.queue.get().map_or(0, Queue::head);
        let cqe = Cqe { result, head, command, status };
        self.append(message, kind::CAPSULE_RESP, 0, &cqe.encode(), Vec::new());
    }

    fn append(&self, message: &mut Message, kind: u8, flags: u8, specific: &[u8], data: Vec<Bytes>) {
        pdu::append(message, kind, flags, specific, data, To::Host, &self.terms);
    }
}

async fn work<S: Subsystems>(job: Job<S>) {
    let Job { session, sqe, request, target, data, permit, begun } = job;
    execute::run(&session, &sqe, request, target, data, permit).await;
    drop(begun);
    session.in_flight.set(session.in_flight.get() - 1);
    session.ended.notify();
}

/// Taken from a terminated host at once.
const LINGER_BYTES: usize = 64 << 10;

/// Takes what a terminated host still sends, so that closing does not cost it the TermReq.
pub async fn linger(rt: &Rt, reader: &mut Reader) {
    let patience = rt.sleep(Duration::from_millis(TERM_LINGER_MILLIS));
    let rest = async { while reader.discard(LINGER_BYTES).await.is_ok() {} };
    select(pin!(rest), pin!(patience)).await;
}
