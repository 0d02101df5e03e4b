//! What is behind a connection on the thread of the controllers: Connect, Fabrics and admin commands, which are answered at
//! once, and I/O commands, which a worker does.
//!
//! Invariants: a command whose data did not arrive whole has no effect; a command that may change something counts as begun
//! from the moment in which all of it has arrived, and none begins on a connection that was cut.

use std::{
    cell::{OnceCell, RefCell},
    rc::Rc,
};

use rt::{Bytes, net::Stream};

use super::{
    connect::{Connected, connect},
    controller::{Answer, Controller, Outcome, property::Change},
    entry::{Sqe, fabrics},
    execute,
    limits::{ADMIN_CAPSULE_DATA_MAX, IO_CAPSULE_DATA_MAX},
    pdu::Terms,
    queue::Queue,
    request::Request,
    server::Shared,
    session::{Behind, End, FromHost, Session},
    status::Status,
    subsystem::Subsystems,
};
use crate::stream::{budget::Permit, door::Guest, progress::Executing};

/// What is behind a connection here.
pub struct Here<S: Subsystems> {
    shared: Rc<Shared<S>>,
    guest: Rc<Guest>,
    queue: OnceCell<Rc<Queue<S>>>,
    /// An I/O queue for another thread from its beginning, and its Connect command.
    elsewhere: RefCell<Option<(Connected<S>, u16)>>,
}

/// An I/O command to execute.
pub struct Job<S: Subsystems> {
    session: Rc<Session<Here<S>>>,
    sqe: Sqe,
    request: Request,
    target: execute::Target<S::N>,
    /// What came in its capsule.
    data: Bytes,
    permit: Permit,
    begun: Option<Executing>,
}

impl<S: Subsystems> Here<S> {
    /// The session of a connection that is no queue yet.
    pub fn session(shared: &Rc<Shared<S>>, stream: &Stream, guest: &Rc<Guest>, terms: Terms) -> Rc<Session<Here<S>>> {
        let (queue, elsewhere) = (OnceCell::new(), RefCell::default());
        let here = Here { shared: shared.clone(), guest: guest.clone(), queue, elsewhere };
        Session::new(&shared.rt, stream, terms, &shared.memory, &shared.progress, &shared.workers, here)
    }

    /// The queue that the connection has become, if another thread is to have it, and its Connect command.
    pub fn take_elsewhere(&self) -> Option<(Connected<S>, u16)> {
        self.elsewhere.take()
    }

    /// The queue that the connection has become here.
    pub fn queue(&self) -> Option<&Rc<Queue<S>>> {
        self.queue.get()
    }
}

impl<S: Subsystems> Behind for Here<S> {
    type Job = Job<S>;

    async fn command(
        &self,
        session: &Rc<Session<Self>>,
        sqe: &Sqe,
        data: Bytes,
        intact: bool,
        permit: Permit,
    ) -> Result<(), End> {
        match self.queue.get() {
            // In memory of its own: the future of every command would have room for it.
            None => Box::pin(session.first_command(sqe, &data, intact, permit)).await,
            Some(queue) if queue.is_cut() => Err(End::Disconnected),
            Some(queue) => {
                queue.controller.heard();
                match queue.id {
                    0 => session.admin_command(queue, sqe, intact, permit),
                    _ => return session.io_command(queue, sqe, data, intact, permit),
                }
                Ok(())
            }
        }
    }

    fn may_go_on(&self) -> Result<(), End> {
        match self.queue.get() {
            Some(queue) if !queue.is_cut() => Ok(()),
            _ => Err(End::Disconnected),
        }
    }

    fn capsule_data_max(&self) -> u32 {
        match self.queue.get() {
            Some(queue) if queue.id != 0 => IO_CAPSULE_DATA_MAX,
            _ => ADMIN_CAPSULE_DATA_MAX,
        }
    }

    fn is_leaving(&self) -> bool {
        self.queue.get().is_some_and(|queue| queue.is_leaving() && self.shared.deals())
    }

    fn stays(&self) {
        if let Some(queue) = self.queue.get() {
            queue.stays();
        }
    }

    fn begins(&self) -> Option<Executing> {
        self.queue.get().map(|queue| queue.controller.begun.one())
    }

    fn say(&self, kind: &'static str, line: impl FnOnce()) {
        self.shared.rare.say(kind, line);
    }

    fn leave(&self) {
        let Some(queue) = self.queue.get() else { return };
        queue.leave();
        if queue.id == 0 {
            self.shared.end_controller(&queue.controller);
        }
    }
}

impl<S: Subsystems> Session<Here<S>> {
    /// Only Connect may be the first.
    async fn first_command(self: &Rc<Self>, sqe: &Sqe, data: &Bytes, intact: bool, permit: Permit) -> Result<(), End> {
        let shared = &self.behind.shared;
        let connected = if intact {
            connect(shared, &self.stream, &self.behind.guest, sqe, data).await
        } else {
            Err(Status::TRANSPORT_ERROR.into())
        };
        match connected {
            Ok(connected) if connected.queue.id != 0 && shared.deals_at_connect() => {
                self.behind.elsewhere.replace(Some((connected, sqe.command())));
                return Err(End::Elsewhere);
            }
            Ok(Connected { queue, head }) => {
                let (id, is_admin) = (queue.controller.id, queue.id == 0);
                assert!(self.behind.queue.set(queue).is_ok(), "a connection is connected once");
                self.connected(head);
                self.succeed_with(sqe.command(), Answer::from(u32::from(id)), permit);
                if is_admin {
                    let session = self.clone();
                    self.rt.spawn(async move { session.tell_events().await });
                }
            }
            Err(refusal) => {
                self.complete(sqe.command(), u64::from(refusal.result), refusal.status, self.hold(permit));
            }
        }
        Ok(())
    }

    fn admin_command(self: &Rc<Self>, queue: &Queue<S>, sqe: &Sqe, intact: bool, permit: Permit) {
        if !intact {
            return self.fail(queue, sqe, Status::TRANSPORT_ERROR, permit);
        }
        if sqe.opcode() == fabrics::OPCODE {
            return self.fabrics_command(queue, sqe, permit);
        }
        if !queue.controller.is_ready() {
            return self.fail(queue, sqe, Status::SEQUENCE_ERROR, permit);
        }
        match queue.controller.admin(sqe) {
            Ok(Outcome::Now(answer)) => self.succeed_with(sqe.command(), answer, permit),
            Ok(Outcome::Later) => {}
            Ok(Outcome::Aborts(command)) => {
                self.complete(command, 0, Status::ABORT_REQUESTED, None);
                self.succeed(sqe, permit);
            }
            Err(status) => self.fail(queue, sqe, status, permit),
        }
    }

    fn fabrics_command(self: &Rc<Self>, queue: &Queue<S>, sqe: &Sqe, permit: Permit) {
        match sqe.fabrics_type() {
            fabrics::PROPERTY_GET => match queue.controller.property_get(sqe) {
                Ok(result) => self.succeed_with(sqe.command(), Answer { result, data: Vec::new() }, permit),
                Err(status) => self.fail(queue, sqe, status, permit),
            },
            fabrics::PROPERTY_SET => match queue.controller.property_set(sqe) {
                Ok(Change::None) => self.succeed(sqe, permit),
                Ok(Change::Shutdown) => {
                    self.shut_down(&queue.controller);
                    self.succeed(sqe, permit);
                }
                Ok(Change::Reset) => self.answer_when_reset(queue, sqe, permit),
                Err(status) => self.fail(queue, sqe, status, permit),
            },
            fabrics::CONNECT => self.fail(queue, sqe, Status::SEQUENCE_ERROR, permit),
            _ => self.fail(queue, sqe, Status::INVALID_OPCODE, permit),
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
        let (controller, executing) = (controller.clone(), self.behind.shared.progress.executing());
        self.rt.spawn(async move {
            execute::flush_all(&controller).await;
            controller.shutdown_done();
            drop(executing);
        });
    }

    fn io_command(
        self: &Rc<Self>,
        queue: &Queue<S>,
        sqe: &Sqe,
        data: Bytes,
        intact: bool,
        permit: Permit,
    ) -> Result<(), End> {
        if self.behind.shared.progress.is_stopping() {
            // Without an answer: the host sends it again when it has reconnected.
            return Ok(());
        }
        queue.take_one();
        let (target, request) = match queue.judge(sqe, data.len() as u32, intact) {
            Ok(judged) => judged,
            Err(status) => {
                self.fail(queue, sqe, status, permit);
                return Ok(());
            }
        };
        // All of its data is in the capsule, or nothing of it: `request::check`.
        let fetches = data.is_empty() && request.data_from_host() > 0;
        let begun = (!fetches && request.changes()).then(|| queue.controller.begun.one());
        let job = Job { session: self.clone(), sqe: *sqe, request, target, data, permit, begun };
        self.begin(fetches, job, work).inspect_err(|_| queue.cut())
    }

    async fn tell_events(&self) {
        let Some(controller) = self.behind.queue.get().map(|queue| &queue.controller) else { return };
        loop {
            let mut next = None;
            controller
                .events_changed
                .until(|| {
                    next = controller.next_event();
                    next.is_some() || self.has_ended()
                })
                .await;
            let Some((command, result)) = next else { return };
            self.complete(command, u64::from(result), Status::SUCCESS, None);
        }
    }

    fn succeed(&self, sqe: &Sqe, permit: Permit) {
        self.complete(sqe.command(), 0, Status::SUCCESS, self.hold(permit));
    }

    fn succeed_with(&self, command: u16, answer: Answer, permit: Permit) {
        let hold = self.hold(permit);
        if answer.data.is_empty() {
            return self.complete(command, answer.result, Status::SUCCESS, hold);
        }
        self.send_data(command, vec![Bytes::from_slice(&answer.data)], hold);
    }

    fn fail(&self, queue: &Queue<S>, sqe: &Sqe, status: Status, permit: Permit) {
        queue.failed(sqe, status);
        self.complete(sqe.command(), 0, status, self.hold(permit));
    }
}

async fn work<S: Subsystems>(job: Job<S>) {
    let session = job.session.clone();
    execute(job).await;
    session.end_one();
}

/// Executes a command that has been judged, and answers it.
async fn execute<S: Subsystems>(job: Job<S>) {
    let Job { session, sqe, request, target, data, mut permit, begun } = job;
    let to_fetch = if data.is_empty() { request.data_from_host() } else { 0 };
    let payload = u64::from(to_fetch) + u64::from(request.data_read());
    if payload > 0 {
        session.account.payload(&mut permit, payload).await;
    }
    let fetched = if to_fetch == 0 {
        Ok((data, begun))
    } else {
        match session.fetch(&sqe, to_fetch).await {
            Some(FromHost { data, intact: true, begun }) => Ok((data, begun)),
            Some(FromHost { intact: false, .. }) => Err(Status::TRANSPORT_ERROR),
            None => return,
        }
    };
    let executing = session.behind.shared.progress.executing();
    let (answer, begun) = match fetched {
        Ok((data, begun)) => (execute::run(target, request, data).await, begun),
        Err(status) => (Err(status), None),
    };
    if let (Err(status), Some(queue)) = (&answer, session.behind.queue.get()) {
        queue.failed(&sqe, *status);
    }
    session.answer(&sqe, answer, permit);
    drop((executing, begun));
}
