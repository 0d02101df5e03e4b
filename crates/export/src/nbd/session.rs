//! The transmission phase of one connection: requests in, replies out, many at once. Section "Transmission".
//!
//! ```text
//!   receive:   header -> room for a request -> check -> room for its payload -> payload -> spawn
//!   execute:   one task per request, which does others later; its reply, with its permit, goes to the outbox
//!   send:      one task per connection; permits end when the replies have left
//! ```
//!
//! Invariants: nothing is received while there is no room for it; the session ends when the requests in flight have
//! ended, however the peer behaves.

use std::{cell::Cell, pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, select};
use rt::{Bytes, Rt, net::Stream};

use super::{
    errno::Errno,
    execute,
    handshake::Agreed,
    limits::{DISCARD_BYTES_MAX, STALL_SECONDS_MAX, STOP_SEND_SECONDS_MAX},
    reply,
    request::{Command, Terms, WireRequest, check},
    wire::cmd,
};
use crate::{
    counters::Live,
    namespace::Request,
    stream::{
        budget::{Budget, Permit},
        outbox::Outbox,
        progress::{Executing, Progress, Unanswered},
        rare::Rare,
        reader::Reader,
        signal::Signal,
        task_pool::TaskPool,
    },
};

/// With a peer that others wait for.
const PATIENCE: Duration = Duration::from_secs(STALL_SECONDS_MAX);

/// One connection in transmission.
pub struct Session<N> {
    pub namespace: N,
    pub terms: Terms,
    pub live: Rc<Live>,
    rt: Rt,
    rare: Rc<Rare>,
    stream: Stream,
    budget: Budget,
    outbox: Outbox<(Permit, Unanswered)>,
    progress: Rc<Progress>,
    in_flight: Cell<u64>,
    ended: Signal,
    tasks: Rc<TaskPool<Job<N>>>,
}

/// A request to execute.
pub struct Job<N> {
    session: Rc<Session<N>>,
    request: WireRequest,
    command: Command,
    data: Bytes,
    permit: Permit,
    executing: Executing,
}

/// Why the receiving side ends.
enum End {
    /// "A disconnect request", or the stream's end.
    Disconnected,
    /// The stream makes no sense any more, or asks for too much.
    Violation(&'static str),
    /// No progress while others wait for its memory.
    Stalled,
}

impl<N: crate::Namespace> Session<N> {
    pub fn new(
        rare: &Rc<Rare>,
        stream: &Stream,
        agreed: Agreed<N>,
        live: Rc<Live>,
        budget: Budget,
        progress: &Rc<Progress>,
        tasks: &Rc<TaskPool<Job<N>>>,
    ) -> Rc<Self> {
        Rc::new(Session {
            namespace: agreed.namespace,
            terms: agreed.terms,
            live,
            rt: rare.rt().clone(),
            rare: rare.clone(),
            stream: stream.clone(),
            budget,
            outbox: Outbox::new(),
            progress: progress.clone(),
            in_flight: Cell::new(0),
            ended: Signal::default(),
            tasks: tasks.clone(),
        })
    }

    /// Serves the connection until it ends.
    pub async fn run(self: Rc<Self>, mut reader: Reader) {
        let session = self.clone();
        let sender =
            self.rt.spawn(async move { session.outbox.send_to(&session.stream, &session.budget, PATIENCE).await });
        reader.peer_is_known();
        match self.receive(&mut reader).await {
            End::Disconnected => {}
            End::Violation(why) => {
                let line = || tracing::warn!(peer = self.stream.peer(), why, "nbd: closing the connection");
                self.rare.say("connections closed", line);
            }
            End::Stalled => {
                let line = || tracing::warn!(peer = self.stream.peer(), "nbd: closing a stalled connection");
                self.rare.say("stalled connections", line);
                self.stream.shutdown();
            }
        }
        // "CMD_DISC": "The server MUST handle all outstanding requests".
        self.ended.until(|| self.in_flight.get() == 0).await;
        self.outbox.close();
        let patience = self.rt.sleep(Duration::from_secs(STOP_SEND_SECONDS_MAX));
        if let Either::Right((_, sender)) = select(pin!(sender), pin!(patience)).await {
            self.stream.shutdown();
            sender.await;
        }
        self.stream.shutdown();
    }

    async fn receive(self: &Rc<Self>, reader: &mut Reader) -> End {
        loop {
            let Ok(header) = reader.array().await else {
                return End::Disconnected;
            };
            let Some(request) = WireRequest::parse(&header) else {
                return End::Violation("a request without its magic");
            };
            let mut permit = self.budget.request().await;
            match check(&request, &self.terms) {
                Ok(Command::Disconnect) => return End::Disconnected,
                Ok(command) => {
                    let data = match self.admit(reader, command, &mut permit).await {
                        Ok(data) => data,
                        Err(end) => return end,
                    };
                    self.start(&request, command, data, permit);
                }
                Err(refusal) => {
                    let payload = request.payload_bytes();
                    if payload > DISCARD_BYTES_MAX {
                        return End::Violation("a write of more than can be thrown away");
                    }
                    if reader.discard(payload as usize).await.is_err() {
                        return End::Disconnected;
                    }
                    self.reply_error(&request, refusal.errno, refusal.why, permit);
                }
            }
        }
    }

    /// Waits for room for the command's payload, and receives it if there is one to receive.
    async fn admit(&self, reader: &mut Reader, command: Command, permit: &mut Permit) -> Result<Bytes, End> {
        let bytes = command.payload_bytes();
        if bytes > 0 {
            self.budget.payload(permit, u64::from(bytes)).await;
        }
        if !matches!(command, Command::Io(Request::Write { .. })) {
            return Ok(Bytes::default());
        }
        match self.budget.unless_in_the_way(PATIENCE, reader.bytes(bytes as usize)).await {
            Some(Ok(data)) => Ok(data.freeze()),
            Some(Err(_)) => Err(End::Disconnected),
            None => Err(End::Stalled),
        }
    }

    fn start(self: &Rc<Self>, request: &WireRequest, command: Command, data: Bytes, permit: Permit) {
        if self.progress.is_stopping() {
            // "Terminating the transmission phase": "any subsequently received requests SHOULD be NBD_ESHUTDOWN".
            return self.reply_error(request, Errno::Shutdown, "the server is being shut down", permit);
        }
        self.in_flight.set(self.in_flight.get() + 1);
        self.live.update(|c| c.in_flight += 1);
        let (session, request, executing) = (self.clone(), *request, self.progress.executing());
        self.tasks.begin(&self.rt, Job { session, request, command, data, permit, executing }, work);
    }

    /// Queues a reply: what the request holds, the data that follows its head, and what writes that.
    pub fn reply(&self, permit: Permit, data: Vec<Bytes>, head: impl FnOnce(&mut Vec<u8>)) {
        self.outbox.push((permit, self.progress.unanswered()), |message| {
            head(message.pieces());
            message.parts(data);
        });
    }

    /// Queues an error, with a message where structured replies can carry it.
    pub fn reply_error(&self, request: &WireRequest, errno: Errno, why: &str, permit: Permit) {
        tracing::debug!(kind = request.kind, offset = request.offset, length = request.length, %errno, why, "nbd");
        self.live.update(|c| c.errors += 1);
        self.reply(permit, Vec::new(), |head| {
            if self.terms.structured {
                reply::error(head, request.cookie, errno, why);
            } else {
                reply::simple(head, request.cookie, Some(errno));
            }
        });
    }

    /// Queues a reply without data that says that all is well: simple replies are allowed for all but reads.
    pub fn reply_done(&self, request: &WireRequest, permit: Permit) {
        debug_assert!(request.kind != cmd::READ, "reads have replies of their own");
        self.reply(permit, Vec::new(), |head| reply::simple(head, request.cookie, None));
    }
}

async fn work<N: crate::Namespace>(job: Job<N>) {
    let Job { session, request, command, data, permit, executing } = job;
    execute::run(&session, &request, command, data, permit).await;
    session.live.update(|c| c.in_flight -= 1);
    session.in_flight.set(session.in_flight.get() - 1);
    session.ended.notify();
    drop(executing);
}
