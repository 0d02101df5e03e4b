//! The connections' end: PDUs, digests and R2Ts of I/O queues whose controllers another core has.
//!
//! Invariants: a command is sent to that core when all of its data is there; a queue's connection ends after the answers
//! of all that was sent.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::pin,
    rc::Rc,
    time::Duration,
};

use futures::future::select;
use rt::{
    Bytes, Rt,
    cross::{Callee, CalleeEnd, Caller, CallerEnd, Reply},
    net::Stream,
};

use super::message::{Ask, Key, Order, Outcome, Placed, Sent};
use crate::{
    nvme::{
        entry::Sqe,
        limits::{IO_CAPSULE_DATA_MAX, SHARED_BYTES_MAX, STOP_SEND_SECONDS_MAX},
        pdu::HEADERS_BYTES,
        request::announced,
        session::{Backend, End, Session},
    },
    stream::{
        budget::Permit,
        pool::Pool,
        progress::{Executing, Progress},
        reader::Reader,
        signal::Signal,
        task_pool::{TaskPool, WAITING_BYTES},
    },
};

/// What a core needs to serve the queues that are given to it.
pub struct Worker {
    orders: CalleeEnd<Order>,
    commands: CallerEnd<Ask>,
    of: usize,
}

/// What its connections share.
struct State {
    rt: Rt,
    commands: Caller<Ask>,
    memory: Rc<Pool>,
    tasks: Rc<TaskPool<Job>>,
    progress: Rc<Progress>,
    connections: RefCell<BTreeMap<Key, Stream>>,
    /// No queue is taken any more.
    stopping: Cell<bool>,
    changed: Signal,
}

impl Worker {
    pub(super) fn new(orders: CalleeEnd<Order>, commands: CallerEnd<Ask>, of: usize) -> Worker {
        Worker { orders, commands, of }
    }

    /// Serves on this core until the server stops.
    pub async fn serve(self, rt: &Rt) {
        let state = Rc::new(State {
            rt: rt.clone(),
            commands: self.commands.start(rt),
            memory: Pool::new(SHARED_BYTES_MAX / self.of as u64),
            tasks: TaskPool::new(WAITING_BYTES),
            progress: Rc::default(),
            connections: RefCell::default(),
            stopping: Cell::new(false),
            changed: Signal::default(),
        });
        let stopped = follow(&state, self.orders.start(rt)).await;
        state.stop().await;
        if let Some(stopped) = stopped {
            stopped.send(());
        }
    }
}

/// Does what is ordered until there is a stop, or the other core is gone; where a stop is answered.
async fn follow(state: &Rc<State>, mut orders: Callee<Order>) -> Option<Reply<Order>> {
    while let Some((order, reply)) = orders.next().await {
        match order {
            Order::Serve(placed) => state.serve(*placed, reply),
            Order::Stop => return Some(reply),
        }
    }
    None
}

impl State {
    /// As the server does: finish, then close.
    async fn stop(&self) {
        self.stopping.set(true);
        self.progress.executed().await;
        let patience = self.rt.sleep(Duration::from_secs(STOP_SEND_SECONDS_MAX));
        select(pin!(self.progress.answered()), pin!(patience)).await;
        self.connections.borrow().values().for_each(Stream::shutdown);
        self.changed.until(|| self.connections.borrow().is_empty()).await;
        self.tasks.close();
    }

    fn serve(self: &Rc<Self>, placed: Placed, ended: Reply<Order>) {
        let Placed { key, fd, left, terms, head, connect, controller } = placed;
        let stream = Stream::new(&self.rt, fd);
        self.connections.borrow_mut().insert(key, stream.clone());
        let queue = RemoteQueue { worker: self.clone(), key };
        let session = Session::new(&self.rt, &stream, (terms, head), &self.memory, &self.progress, &self.tasks, queue);
        let reader = Reader::resumed(stream, HEADERS_BYTES, &left);
        let state = self.clone();
        self.rt
            .spawn(async move {
                session.run(reader, connect, controller).await;
                state.connections.borrow_mut().remove(&key);
                ended.send(());
                state.changed.notify();
            })
            .detach();
    }
}

/// A queue whose controller another core has.
struct RemoteQueue {
    worker: Rc<State>,
    key: Key,
}

/// A command on its way there.
struct Job {
    session: Rc<Session<RemoteQueue>>,
    sqe: Sqe,
    /// What came in its capsule.
    data: Bytes,
    intact: bool,
    permit: Permit,
}

impl Backend for RemoteQueue {
    type Job = Job;

    async fn command(
        &self,
        session: &Rc<Session<Self>>,
        sqe: &Sqe,
        data: Bytes,
        intact: bool,
        permit: Permit,
    ) -> Result<(), End> {
        if self.worker.stopping.get() {
            // Without an answer, as `here`: else hosts that go on and on would keep us from stopping.
            return Ok(());
        }
        let fetches = intact && announced(sqe, data.len() as u32).to_fetch > 0;
        session.begin(fetches, Job { session: session.clone(), sqe: *sqe, data, intact, permit }, work)
    }

    fn may_go_on(&self) -> Result<(), End> {
        Ok(())
    }

    fn capsule_data_max(&self) -> u32 {
        IO_CAPSULE_DATA_MAX
    }

    fn begins(&self) -> Option<Executing> {
        None
    }

    fn leave(&self) {
        self.worker.commands.tell(Ask::Left(self.key));
    }
}

async fn work(job: Job) {
    let session = job.session.clone();
    ask(job).await;
    session.end_one();
}

/// Fetches what a command needs, has it executed, and answers it.
async fn ask(job: Job) {
    let Job { session, sqe, data, mut intact, mut permit } = job;
    let RemoteQueue { worker, key } = &session.backend;
    let capsule = data.len() as u32;
    let needs = announced(&sqe, capsule);
    let payload = u64::from(needs.to_fetch) + u64::from(needs.data_read);
    if payload > 0 && intact {
        session.budget.payload(&mut permit, payload).await;
    }
    let data = if needs.to_fetch == 0 || !intact {
        data
    } else {
        let Some(fetched) = session.fetch(&sqe, needs.to_fetch).await else { return };
        intact = fetched.intact;
        fetched.data
    };
    if worker.stopping.get() {
        return;
    }
    let executing = worker.progress.executing();
    let sent = Sent { sqe, capsule, data: worker.commands.trade().pack(data), intact };
    match worker.commands.call(Ask::Command(*key, Box::new(sent))).await {
        Some(Outcome::Done(payloads)) => {
            let parts = payloads.into_iter().map(|payload| worker.commands.trade().unpack(payload)).collect();
            session.answer(&sqe, Ok(parts), permit);
        }
        Some(Outcome::Failed(status)) => session.answer(&sqe, Err(status), permit),
        Some(Outcome::NotBegun) => {}
        None => session.give_up(),
    }
    drop(executing);
}
