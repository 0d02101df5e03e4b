//! Queues whose connection the core of the controllers has: Fabrics and admin commands, which are answered at once, and I/O
//! commands, which a task does.
//!
//! Invariants: a command whose data did not arrive whole has no effect; a command that may change something counts as begun
//! from the moment in which all of it has arrived, and none begins on a connection that was cut.

use std::rc::Rc;

use rt::{Bytes, net::Stream};

use super::{
    arrive::Arrived,
    connect::Connected,
    controller::{Answer, Controller, Outcome, property::Change},
    entry::{Sqe, fabrics},
    execute,
    limits::{ADMIN_CAPSULE_DATA_MAX, IO_CAPSULE_DATA_MAX},
    queue::Queue,
    request::Command,
    server::Shared,
    session::{Backend, End, FromHost, Session},
    status::Status,
    subsystem::Subsystems,
};
use crate::stream::{budget::Permit, progress::Executing};

/// A queue whose connection this core has.
pub struct LocalQueue<S: Subsystems> {
    shared: Rc<Shared<S>>,
    queue: Rc<Queue<S>>,
}

/// An I/O command to execute.
pub struct Job<S: Subsystems> {
    session: Rc<Session<LocalQueue<S>>>,
    sqe: Sqe,
    command: Command,
    target: execute::Target<S::N>,
    /// What came in its capsule.
    data: Bytes,
    permit: Permit,
    begun: Option<Executing>,
}

impl<S: Subsystems> LocalQueue<S> {
    /// Serves a queue until its connection ends.
    pub async fn serve(shared: &Rc<Shared<S>>, stream: &Stream, arrived: Arrived<S>) {
        let Arrived { connected: Connected { queue, head }, connect, terms, reader } = arrived;
        let (controller, is_admin) = (queue.controller.id, queue.id == 0);
        let local = LocalQueue { shared: shared.clone(), queue };
        let (memory, progress, tasks) = (&shared.memory, &shared.progress, &shared.tasks);
        let session = Session::new(&shared.rt, stream, (terms, head), memory, progress, tasks, local);
        if is_admin {
            let session = session.clone();
            shared.rt.spawn(async move { session.tell_events().await });
        }
        session.run(reader, connect, controller).await;
    }
}

impl<S: Subsystems> Backend for LocalQueue<S> {
    type Job = Job<S>;

    async fn command(
        &self,
        session: &Rc<Session<Self>>,
        sqe: &Sqe,
        data: Bytes,
        intact: bool,
        permit: Permit,
    ) -> Result<(), End> {
        let queue = &self.queue;
        if queue.is_cut() {
            return Err(End::Disconnected);
        }
        queue.controller.heard();
        if queue.id != 0 {
            return session.io_command(queue, sqe, data, intact, permit);
        }
        session.admin_command(queue, sqe, intact, permit);
        Ok(())
    }

    fn may_go_on(&self) -> Result<(), End> {
        if self.queue.is_cut() { Err(End::Disconnected) } else { Ok(()) }
    }

    fn capsule_data_max(&self) -> u32 {
        if self.queue.id == 0 { ADMIN_CAPSULE_DATA_MAX } else { IO_CAPSULE_DATA_MAX }
    }

    fn begins(&self) -> Option<Executing> {
        Some(self.queue.controller.begun.one())
    }

    fn say(&self, kind: &'static str, line: impl FnOnce()) {
        self.shared.rare.say(kind, line);
    }

    fn leave(&self) {
        self.queue.leave();
        if self.queue.id == 0 {
            self.shared.end_controller(&self.queue.controller);
        }
    }
}

impl<S: Subsystems> Session<LocalQueue<S>> {
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
        let (controller, executing) = (controller.clone(), self.backend.shared.progress.executing());
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
        if self.backend.shared.progress.is_stopping() {
            // Without an answer: the host sends it again when it has reconnected.
            return Ok(());
        }
        let (target, command) = match queue.judge(sqe, data.len() as u32, intact) {
            Ok(judged) => judged,
            Err(status) => {
                self.fail(queue, sqe, status, permit);
                return Ok(());
            }
        };
        // All of its data is in the capsule, or nothing of it: `request::check`.
        let fetches = data.is_empty() && command.data_from_host() > 0;
        let begun = (!fetches && command.changes()).then(|| queue.controller.begun.one());
        let job = Job { session: self.clone(), sqe: *sqe, command, target, data, permit, begun };
        self.begin(fetches, job, work).inspect_err(|_| queue.cut())
    }

    async fn tell_events(&self) {
        let controller = &self.backend.queue.controller;
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
    let Job { session, sqe, command, target, data, mut permit, begun } = job;
    let to_fetch = if data.is_empty() { command.data_from_host() } else { 0 };
    let payload = u64::from(to_fetch) + u64::from(command.data_read());
    if payload > 0 {
        session.budget.payload(&mut permit, payload).await;
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
    let executing = session.backend.shared.progress.executing();
    let (answer, begun) = match fetched {
        Ok((data, begun)) => (execute::run(target, command, data).await, begun),
        Err(status) => (Err(status), None),
    };
    if let Err(status) = &answer {
        session.backend.queue.failed(&sqe, *status);
    }
    session.answer(&sqe, answer, permit);
    drop((executing, begun));
}
