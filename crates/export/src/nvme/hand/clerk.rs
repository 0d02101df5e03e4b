//! The controllers' end: begins what a hand's queues ask for.
//!
//! Invariants: a command begins when its letter is opened, or never; each gets one answer.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use futures::channel::oneshot;
use rt::{MailReceiver, Rt, net::Stream};
use slab::Slab;

use super::{
    letters::{Answer, Command, Handed, Key, Order, Report},
    there::Hand,
};
use crate::{
    nvme::{
        arrive::Arrived,
        connect::Connected,
        entry::Sqe,
        execute::{self, Target},
        queue::Queue,
        request::Command as Judged,
        status::Status,
        subsystem::Subsystems,
    },
    remote::letters::{Batch, Post, Ticket},
    stream::{
        progress::{Executing, Progress},
        signal::Signal,
        workers::{WAITING_BYTES, Workers},
    },
};

/// Who does for one hand what it cannot.
pub struct Clerk<S: Subsystems> {
    rt: Rt,
    progress: Rc<Progress>,
    post: Post<Order>,
    queues: RefCell<Slab<Served<S>>>,
    workers: Rc<Workers<Job<S>>>,
    /// The hand is gone.
    gone: Cell<bool>,
    ended: Signal,
}

/// A queue that a hand has.
struct Served<S: Subsystems> {
    queue: Rc<Queue<S>>,
    /// Dropped when its connection has ended.
    _ended: oneshot::Sender<()>,
}

/// A command to execute.
struct Job<S: Subsystems> {
    clerk: Rc<Clerk<S>>,
    queue: Rc<Queue<S>>,
    ticket: Ticket,
    sqe: Sqe,
    target: Target<S::N>,
    command: Judged,
    data: rt::Bytes,
    executing: (Executing, Option<Executing>),
}

impl<S: Subsystems> Clerk<S> {
    /// A clerk, and its hand, which is one `of` several.
    pub fn new(rt: &Rt, progress: &Rc<Progress>, of: usize) -> (Rc<Clerk<S>>, Hand) {
        let (orders, orders_inbox) = rt.mailbox();
        let (reports, inbox) = rt.mailbox();
        let clerk = Rc::new(Clerk {
            rt: rt.clone(),
            progress: progress.clone(),
            post: Post::new(rt, orders),
            queues: RefCell::default(),
            workers: Workers::new(WAITING_BYTES),
            gone: Cell::new(false),
            ended: Signal::default(),
        });
        rt.spawn(attend(clerk.clone(), inbox)).detach();
        (clerk, Hand::new(orders_inbox, reports, of))
    }

    /// Whether it has a hand.
    pub fn is_served(&self) -> bool {
        !self.gone.get()
    }

    /// Queues that its hand has.
    pub fn queues(&self) -> usize {
        self.queues.borrow().len()
    }

    /// Gives a queue to the hand, and waits for its end.
    pub async fn serve(&self, stream: &Stream, arrived: Arrived<S>) {
        let Arrived { connected: Connected { queue, head }, connect, terms, reader } = arrived;
        let left = reader.into_left();
        let fd = match stream.clone().into_fd() {
            Ok(fd) if self.is_served() => fd,
            Ok(_) => return queue.leave(),
            Err(error) => {
                tracing::warn!(%error, "nvme: a connection is closed: it cannot be dealt");
                return queue.leave();
            }
        };
        let (ended, end) = oneshot::channel();
        let controller = queue.controller.id;
        let key = self.queues.borrow_mut().insert(Served { queue, _ended: ended });
        self.post.put(Order::Serve(Box::new(Handed { key, fd, left, terms, head, connect, controller })));
        let _dropped = end.await;
    }

    /// Tells the hand to answer what is to be answered, and to end.
    pub fn order_stop(&self) {
        self.post.put(Order::Stop);
    }

    /// Waits until the hand is gone.
    pub async fn ended(&self) {
        self.ended.until(|| self.gone.get()).await;
    }

    fn open(self: &Rc<Self>, report: Report) {
        match report {
            Report::Command(key, ticket, command) => self.begin(key, ticket, *command),
            Report::Left(key) => {
                // Its host may come back now and send anew what did not begin.
                let queue = self.queue(key);
                queue.end();
                queue.leave();
            }
            Report::Ended(key) => {
                let served = self.queues.borrow_mut().remove(key);
                drop(served);
            }
        }
    }

    fn queue(&self, key: Key) -> Rc<Queue<S>> {
        self.queues.borrow()[key].queue.clone()
    }

    fn begin(self: &Rc<Self>, key: Key, ticket: Ticket, command: Command) {
        let queue = self.queue(key);
        let Command { sqe, capsule, data, intact } = command;
        let data = self.post.unpack(data);
        if queue.is_cut() || self.progress.is_stopping() {
            return self.post.put(Order::Answer(ticket, Answer::NotBegun));
        }
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
                let clerk = self.clone();
                let job = Job { clerk, queue, ticket, sqe, target, command, data, executing };
                self.workers.begin(&self.rt, job, work);
            }
            Err(status) => self.fail(&queue, &sqe, ticket, status),
        }
    }

    fn fail(&self, queue: &Queue<S>, sqe: &Sqe, ticket: Ticket, status: Status) {
        queue.failed(sqe, status);
        self.post.put(Order::Answer(ticket, Answer::Failed(status)));
    }
}

/// Opens letters until the hand is gone.
async fn attend<S: Subsystems>(clerk: Rc<Clerk<S>>, mut inbox: MailReceiver<Batch<Report>>) {
    while let Some(batch) = inbox.recv().await {
        clerk.post.receive(batch).into_iter().for_each(|report| clerk.open(report));
    }
    clerk.gone.set(true);
    clerk.ended.notify();
    clerk.workers.close();
    let queues = clerk.queues.take();
    queues.iter().for_each(|(_, served)| {
        served.queue.cut();
        served.queue.leave();
    });
}

async fn work<S: Subsystems>(job: Job<S>) {
    let Job { clerk, queue, ticket, sqe, target, command, data, executing } = job;
    match execute::run(target, command, data).await {
        Ok(parts) => {
            let parcels = parts.into_iter().map(|part| clerk.post.pack(part)).collect();
            clerk.post.put(Order::Answer(ticket, Answer::Done(parcels)));
        }
        Err(status) => clerk.fail(&queue, &sqe, ticket, status),
    }
    // When the answer is on its way: a server that stops sends it.
    drop(executing);
}
