//! The controllers' end: begins what the queues of a worker ask for.
//!
//! Invariants: a command begins when its message is taken, or never; each gets one answer.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use rt::{
    Bytes, Rt,
    cross::{Call, Callee, Caller, Reply, calls},
    net::Stream,
};

use super::{
    message::{Ask, Key, Order, Outcome, Placed, Sent},
    serve::Worker,
};
use crate::{
    nvme::{
        arrive::Arrived,
        connect::Connected,
        entry::Sqe,
        execute::{self, Target},
        queue::Queue,
        request::Command,
        status::Status,
        subsystem::Subsystems,
    },
    stream::{
        progress::{Executing, Progress},
        task_pool::{TaskPool, WAITING_BYTES},
    },
};

/// What the core of the controllers does for one worker.
pub struct Proxy<S: Subsystems> {
    rt: Rt,
    progress: Rc<Progress>,
    orders: Caller<Order>,
    queues: RefCell<BTreeMap<Key, Rc<Queue<S>>>>,
    next_key: Cell<Key>,
    tasks: Rc<TaskPool<Job<S>>>,
}

/// A command to execute.
struct Job<S: Subsystems> {
    queue: Rc<Queue<S>>,
    sqe: Sqe,
    target: Target<S::N>,
    command: Command,
    data: Bytes,
    reply: Reply<Ask>,
    executing: (Executing, Option<Executing>),
}

impl<S: Subsystems> Proxy<S> {
    /// A proxy, and its worker, which is one `of` several.
    pub fn new(rt: &Rt, progress: &Rc<Progress>, of: usize) -> (Rc<Proxy<S>>, Worker) {
        let (orders, to_serve) = calls(rt);
        let (commands, asked) = calls(rt);
        let proxy = Rc::new(Proxy {
            rt: rt.clone(),
            progress: progress.clone(),
            orders: orders.start(rt),
            queues: RefCell::default(),
            next_key: Cell::new(0),
            tasks: TaskPool::new(WAITING_BYTES),
        });
        rt.spawn(attend(proxy.clone(), asked.start(rt))).detach();
        (proxy, Worker::new(to_serve, commands, of))
    }

    /// Whether it has a worker.
    pub fn is_served(&self) -> bool {
        !self.orders.is_gone()
    }

    /// Queues that its worker has.
    pub fn queues(&self) -> usize {
        self.queues.borrow().len()
    }

    /// Gives a queue to the worker, and waits for its end.
    pub async fn serve(&self, stream: &Stream, arrived: Arrived<S>) {
        let Arrived { connected: Connected { queue, head }, connect, terms, reader } = arrived;
        let fd = match stream.clone().into_fd() {
            Ok(fd) => fd,
            Err(error) => {
                tracing::warn!(%error, "nvme: a connection is closed: it cannot be given to another core");
                return queue.leave();
            }
        };
        let (key, controller) = (self.next_key.get(), queue.controller.id);
        self.next_key.set(key + 1);
        self.queues.borrow_mut().insert(key, queue.clone());
        let placed = Placed { key, fd, left: reader.into_left(), terms, head, connect, controller };
        let served = self.orders.call(Order::Serve(Box::new(placed))).await;
        self.queues.borrow_mut().remove(&key);
        if served.is_none() {
            // Its core is gone. What has crossed and not begun does not begin.
            queue.cut();
        }
        queue.leave();
    }

    /// Tells the worker to answer what is to be answered, and to end; it has when the call is answered.
    pub fn stop(&self) -> Call<Order> {
        self.orders.call(Order::Stop)
    }

    fn queue(&self, key: Key) -> Option<Rc<Queue<S>>> {
        self.queues.borrow().get(&key).cloned()
    }

    fn begin(&self, key: Key, sent: Sent, reply: Reply<Ask>) {
        let Sent { sqe, capsule, data, intact } = sent;
        let data = reply.trade().unpack(data);
        let queue = self.queue(key).filter(|queue| !queue.is_cut() && !self.progress.is_stopping());
        let Some(queue) = queue else { return reply.send(Outcome::NotBegun) };
        queue.controller.heard();
        let judged = queue.judge(&sqe, capsule, intact).and_then(|(target, command)| {
            // What was announced is what is asked for: `request::announced`.
            let whole = data.len() == command.data_from_host() as usize;
            if whole { Ok((target, command)) } else { Err(Status::DATA_LENGTH_INVALID) }
        });
        match judged {
            Ok((target, command)) => {
                let begun = command.changes().then(|| queue.controller.begun.one());
                let executing = (self.progress.executing(), begun);
                let job = Job { queue, sqe, target, command, data, reply, executing };
                self.tasks.begin(&self.rt, job, work);
            }
            Err(status) => fail(&queue, &sqe, status, reply),
        }
    }
}

/// Takes what is asked until the worker is gone.
async fn attend<S: Subsystems>(proxy: Rc<Proxy<S>>, mut asked: Callee<Ask>) {
    while let Some((ask, reply)) = asked.next().await {
        match ask {
            Ask::Command(key, sent) => proxy.begin(key, *sent, reply),
            Ask::Left(key) => {
                // Its host may come back now and send anew what did not begin.
                if let Some(queue) = proxy.queue(key) {
                    queue.end();
                    queue.leave();
                }
            }
        }
    }
    proxy.tasks.close();
}

fn fail<S: Subsystems>(queue: &Queue<S>, sqe: &Sqe, status: Status, reply: Reply<Ask>) {
    queue.failed(sqe, status);
    reply.send(Outcome::Failed(status));
}

async fn work<S: Subsystems>(job: Job<S>) {
    let Job { queue, sqe, target, command, data, reply, executing } = job;
    match execute::run(target, command, data).await {
        Ok(parts) => {
            let payloads = parts.into_iter().map(|part| reply.trade().pack(part)).collect();
            reply.send(Outcome::Done(payloads));
        }
        Err(status) => fail(&queue, &sqe, status, reply),
    }
    // When the answer is on its way: a server that stops sends it.
    drop(executing);
}
