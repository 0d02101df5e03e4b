//! The connections' end: PDUs, digests and R2Ts of I/O queues whose controllers another thread has.
//!
//! Invariants: a command is sent to that thread when all of its data is there; a queue's connection ends after the answers
//! of all that was sent.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::pin,
    rc::Rc,
    time::Duration,
};

use futures::future::select;
use rt::{Bytes, MailReceiver, MailSender, Rt, net::Stream};

use super::letters::{Answer, Command, Handed, Key, Order, Report};
use crate::{
    nvme::{
        entry::Sqe,
        limits::{IO_CAPSULE_DATA_MAX, SHARED_BYTES_MAX, STOP_SEND_SECONDS_MAX},
        pdu::HEADERS_BYTES,
        request::announced,
        session::{Behind, End, Session},
    },
    remote::{
        letters::{Batch, Post},
        tickets::Tickets,
    },
    stream::{
        budget::Permit,
        pool::Pool,
        progress::{Executing, Progress},
        reader::Reader,
        signal::Signal,
        workers::{WAITING_BYTES, Workers},
    },
};

/// What a thread needs to serve the queues that are dealt to it.
pub struct Hand {
    inbox: MailReceiver<Batch<Order>>,
    reports: MailSender<Batch<Report>>,
    of: usize,
}

/// What its connections share.
struct Desk {
    rt: Rt,
    post: Post<Report>,
    tickets: Rc<Tickets<Answer>>,
    memory: Rc<Pool>,
    workers: Rc<Workers<Job>>,
    progress: Rc<Progress>,
    connections: RefCell<BTreeMap<Key, Stream>>,
    /// No queue is taken any more.
    stopping: Cell<bool>,
    changed: Signal,
}

impl Hand {
    pub(super) fn new(inbox: MailReceiver<Batch<Order>>, reports: MailSender<Batch<Report>>, of: usize) -> Hand {
        Hand { inbox, reports, of }
    }

    /// Serves on this thread until the server stops.
    pub async fn serve(self, rt: &Rt) {
        let desk = Rc::new(Desk {
            rt: rt.clone(),
            post: Post::new(rt, self.reports),
            tickets: Rc::default(),
            memory: Pool::new(SHARED_BYTES_MAX / self.of as u64),
            workers: Workers::new(WAITING_BYTES),
            progress: Rc::default(),
            connections: RefCell::default(),
            stopping: Cell::new(false),
            changed: Signal::default(),
        });
        let orders = rt.spawn(follow(desk.clone(), self.inbox));
        desk.changed.until(|| desk.stopping.get()).await;
        desk.stop().await;
        orders.cancel();
    }
}

/// Does what is ordered until the other thread is gone.
async fn follow(desk: Rc<Desk>, mut inbox: MailReceiver<Batch<Order>>) {
    while let Some(batch) = inbox.recv().await {
        for order in desk.post.receive(batch) {
            match order {
                Order::Serve(handed) => desk.serve(*handed),
                Order::Answer(ticket, answer) => {
                    if let Some(Answer::Done(parcels)) = desk.tickets.answered(ticket, answer) {
                        parcels.into_iter().for_each(|parcel| drop(desk.post.unpack(parcel)));
                    }
                }
                Order::Stop => desk.order_stop(),
            }
        }
    }
    desk.tickets.end();
    desk.order_stop();
}

impl Desk {
    fn order_stop(&self) {
        self.stopping.set(true);
        self.changed.notify();
    }

    /// As the server does: finish, then close.
    async fn stop(&self) {
        self.progress.executed().await;
        let patience = self.rt.sleep(Duration::from_secs(STOP_SEND_SECONDS_MAX));
        select(pin!(self.progress.answered()), pin!(patience)).await;
        self.connections.borrow().values().for_each(Stream::shutdown);
        self.changed.until(|| self.connections.borrow().is_empty()).await;
        self.workers.close();
    }

    fn serve(self: &Rc<Self>, handed: Handed) {
        let key = handed.key;
        if self.stopping.get() {
            self.post.put(Report::Left(key));
            return self.post.put(Report::Ended(key));
        }
        let stream = Stream::new(&self.rt, handed.fd);
        self.connections.borrow_mut().insert(key, stream.clone());
        let there = There { desk: self.clone(), key };
        let Handed { terms, head, connect, controller, .. } = handed;
        let session =
            Session::new(&self.rt, &stream, (terms, head), &self.memory, &self.progress, &self.workers, there);
        let reader = Reader::resumed(stream, HEADERS_BYTES, &handed.left);
        let desk = self.clone();
        self.rt
            .spawn(async move {
                session.run(reader, connect, controller).await;
                desk.connections.borrow_mut().remove(&key);
                desk.post.put(Report::Ended(key));
                desk.changed.notify();
            })
            .detach();
    }
}

/// What is behind a connection: a queue of another thread.
struct There {
    desk: Rc<Desk>,
    key: Key,
}

/// A command on its way there.
struct Job {
    session: Rc<Session<There>>,
    sqe: Sqe,
    /// What came in its capsule.
    data: Bytes,
    intact: bool,
    permit: Permit,
}

impl Behind for There {
    type Job = Job;

    async fn command(
        &self,
        session: &Rc<Session<Self>>,
        sqe: &Sqe,
        data: Bytes,
        intact: bool,
        permit: Permit,
    ) -> Result<(), End> {
        if self.desk.stopping.get() {
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
        self.desk.post.put(Report::Left(self.key));
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
    let There { desk, key } = &session.behind;
    let capsule = data.len() as u32;
    let needs = announced(&sqe, capsule);
    let payload = u64::from(needs.to_fetch) + u64::from(needs.data_read);
    if payload > 0 && intact {
        session.account.payload(&mut permit, payload).await;
    }
    let data = if needs.to_fetch == 0 || !intact {
        data
    } else {
        let Some(fetched) = session.fetch(&sqe, needs.to_fetch).await else { return };
        intact = fetched.intact;
        fetched.data
    };
    if desk.stopping.get() {
        return;
    }
    let executing = desk.progress.executing();
    let (ticket, answer) = desk.tickets.take();
    let command = Command { sqe, capsule, data: desk.post.pack(data), intact };
    desk.post.put(Report::Command(*key, ticket, Box::new(command)));
    match answer.await {
        Some(Answer::Done(parcels)) => {
            let parts = parcels.into_iter().map(|parcel| desk.post.unpack(parcel)).collect();
            session.answer(&sqe, Ok(parts), permit);
        }
        Some(Answer::Failed(status)) => session.answer(&sqe, Err(status), permit),
        Some(Answer::NotBegun) => {}
        None => session.give_up(),
    }
    drop(executing);
}
