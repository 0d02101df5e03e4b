//! A queue that is served: requests are taken, each is done by a task of its own, and given back.
//!
//! ```text
//!   kick -> take -> note -> judge -> admit -> namespace -> data, status -> give back -> take off the note -> call
//! ```
//!
//! Invariants:
//! - what was taken is answered, or stays noted for the next server: a queue that is stopped finishes all it has taken;
//! - a queue whose connection is lost touches the guest's memory no more, and its requests go on to their end: the next connection's
//!   queues begin after it, so that an old write never comes after a new one;
//! - a guest that breaks the rules ends its own queue, and nothing else;
//! - payload under way is bounded for each connection and for all, and waits in the guest.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{Either, select};
use rt::guest::Event;
use rt::{Rt, Stream};

use super::data::{Parts, copy_in, copy_out};
use super::inflight::Notes;
use super::memory::Memory;
use super::request::{IDENTITY, Limits, Status, Verb, judge};
use super::ring::{Ring, RingError};
use super::socket::Shared;
use crate::namespace::{Answer, Fault, Namespace, Request};
use crate::stream::pool::{Loan, Pool};
use crate::stream::signal::Signal;
use crate::stream::task_pool::TaskPool;

/// Descriptors that are looked at before other tasks have their turn.
const BATCH: usize = 128;
/// What a request takes in memory beside its data, about.
const REQUEST_BYTES: u64 = 4096;
/// How long a guest that is stopped may take to be told.
const TELL_PATIENCE: Duration = Duration::from_secs(1);

/// Where a queue is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Requests are taken.
    Serving,
    /// None are taken any more; those under way are finished.
    Stopping,
    /// The guest broke the rules: as stopping.
    Broken,
    /// The connection is gone: nothing is answered.
    Lost,
}

/// What the queues of a connection share.
pub(super) struct Common<N> {
    pub(super) rt: Rt,
    pub(super) socket: Rc<Shared>,
    pub(super) stream: Stream,
    pub(super) namespace: N,
    /// None before the front end has told of it.
    pub(super) memory: RefCell<Option<Rc<Memory>>>,
    /// Whether the guest flushes.
    pub(super) flushes: Cell<bool>,
    pub(super) payload: Rc<Pool>,
    /// That of all guests.
    pub(super) payload_of_all: Rc<Pool>,
    pub(super) tasks: Rc<TaskPool<Job<N>>>,
}

/// A queue that is served.
pub(super) struct Queue<N> {
    common: Rc<Common<N>>,
    number: u16,
    ring: RefCell<Ring>,
    notes: RefCell<Option<Notes>>,
    call: RefCell<Option<Event>>,
    state: Cell<State>,
    /// A task takes requests.
    takes: Cell<bool>,
    in_flight: Cell<usize>,
    telling: Cell<bool>,
    tell_again: Cell<bool>,
    changed: Signal,
}

/// A request that was taken.
pub(super) struct Job<N> {
    queue: Rc<Queue<N>>,
    head: u16,
    parts: Parts,
    verb: Result<Verb, Status>,
    _payload: [Loan; 2],
    _in_flight: InFlight<N>,
}

impl<N: Namespace> Queue<N> {
    /// Begins to serve a ring: first what was under way when a server before was gone. That one may have given back what it did not
    /// come to tell of, so the guest is told in any case.
    pub(super) fn begin(
        common: &Rc<Common<N>>,
        number: u16,
        ring: Ring,
        notes: Option<(Notes, Vec<u16>)>,
        kick: Event,
        call: Option<Event>,
    ) -> Rc<Queue<N>> {
        let (notes, again) = notes.map_or((None, vec![]), |(notes, again)| (Some(notes), again));
        let queue = Rc::new(Queue {
            common: common.clone(),
            number,
            ring: RefCell::new(ring),
            notes: RefCell::new(notes),
            call: RefCell::new(call),
            state: Cell::new(State::Serving),
            takes: Cell::new(true),
            in_flight: Cell::new(0),
            telling: Cell::new(false),
            tell_again: Cell::new(false),
            changed: Signal::default(),
        });
        common.rt.spawn(serve(queue.clone(), kick, again)).detach();
        let told = queue.clone();
        common.rt.spawn(async move { told.tell().await }).detach();
        queue
    }

    /// Takes no more requests, and finishes those that were taken; the index of what would have been next.
    pub(super) async fn stop(&self) -> u16 {
        if self.state.get() == State::Serving {
            self.state.set(State::Stopping);
            self.changed.notify();
        }
        self.changed.until(|| !self.takes.get() && self.in_flight.get() == 0).await;
        // A guest that is moved elsewhere has heard of all that was given back; one that does not listen is not waited for.
        let told = self.changed.until(|| !self.telling.get());
        select(pin!(told), pin!(self.common.rt.sleep(TELL_PATIENCE))).await;
        self.ring.borrow().next_available()
    }

    /// The connection is gone.
    pub(super) fn lose(&self) {
        if self.state.replace(State::Lost) != State::Lost {
            self.common.socket.turns.lose(self.in_flight.get());
        }
        self.changed.notify();
    }

    /// From now on this event is told, and once now: the guest may have missed one.
    pub(super) fn set_call(self: &Rc<Self>, call: Option<Event>) {
        self.call.replace(call);
        let queue = self.clone();
        self.common.rt.spawn(async move { queue.tell().await }).detach();
    }

    fn memory(&self) -> Result<Rc<Memory>, RingError> {
        self.common.memory.borrow().clone().ok_or(RingError::Address)
    }

    fn break_off(&self, error: RingError) {
        if self.state.get() == State::Serving {
            self.state.set(State::Broken);
            tracing::warn!(
                peer = self.common.stream.peer(),
                "vhost-user: queue {} of a guest is not served until it is reset: {error}",
                self.number
            );
        }
        self.changed.notify();
    }

    fn take(&self) -> Result<Option<u16>, RingError> {
        self.ring.borrow_mut().take(&*self.memory()?)
    }

    /// Notes a head that was taken, judges it, and begins it when there is room for its data. How many descriptors it has.
    async fn start(self: &Rc<Self>, head: u16) -> Result<usize, RingError> {
        if self.state.get() == State::Lost {
            return Ok(0);
        }
        let memory = self.memory()?;
        if let Some(notes) = &mut *self.notes.borrow_mut() {
            notes.begin(head)?;
        }
        let in_flight = InFlight::begin(self);
        let chain = self.ring.borrow().chain(&memory, head)?;
        let descriptors = chain.given.len() + chain.room.len();
        let parts = Parts::of(&memory, chain)?;
        let limits = Limits { durable: !self.common.flushes.get(), ..self.common.socket.limits.get() };
        let verb = judge(&parts.asked, &limits);
        let payload = match &verb {
            Ok(Verb::Namespace(request)) => u64::from(request.bytes_sent().max(request.bytes_read())),
            Ok(Verb::Identity) | Err(_) => 0,
        };
        let bytes = payload.max(REQUEST_BYTES);
        let payload = [self.common.payload.take(bytes).await, self.common.payload_of_all.take(bytes).await];
        if self.state.get() == State::Lost {
            return Ok(0);
        }
        let job = Job { queue: self.clone(), head, parts, verb, _payload: payload, _in_flight: in_flight };
        self.common.tasks.begin(&self.common.rt, job, execute);
        Ok(descriptors)
    }

    /// Writes the status and gives the head back.
    fn answer(&self, job: &Job<N>, status: Status, written: u32) -> Result<bool, RingError> {
        let memory = self.memory()?;
        memory.write(job.parts.status_at, &[status.byte()])?;
        let mut ring = self.ring.borrow_mut();
        let notes = self.notes.borrow();
        if let Some(notes) = &*notes {
            notes.ends(job.head)?;
        }
        ring.give_back(&memory, job.head, written + 1)?;
        if let Some(notes) = &*notes {
            notes.ended(job.head, ring.next_used())?;
        }
        Ok(ring.wants_call(&memory))
    }

    /// Tells the guest that requests are done. A guest whose event cannot be written delays no other.
    async fn tell(&self) {
        if self.telling.get() {
            return self.tell_again.set(true);
        }
        self.telling.set(true);
        loop {
            self.tell_again.set(false);
            let event = self.call.borrow().clone();
            if let Some(event) = event {
                let lost = self.changed.until(|| self.state.get() == State::Lost);
                select(pin!(event.tell()), pin!(lost)).await;
            }
            if !self.tell_again.get() || self.state.get() == State::Lost {
                break;
            }
        }
        self.telling.set(false);
        self.changed.notify();
    }
}

/// Takes requests until the queue is stopped, broken or lost.
async fn serve<N: Namespace>(queue: Rc<Queue<N>>, kick: Event, again: Vec<u16>) {
    let taking = Taking(queue);
    let queue = &taking.0;
    if let Err(error) = serve_until_stopped(queue, &kick, again).await {
        queue.break_off(error);
    }
}

async fn serve_until_stopped<N: Namespace>(
    queue: &Rc<Queue<N>>,
    kick: &Event,
    again: Vec<u16>,
) -> Result<(), RingError> {
    let serves = || queue.state.get() == State::Serving;
    // All of them, also when the queue is stopped meanwhile: they were taken.
    let mut looked_at = 0;
    for head in again {
        looked_at += queue.start(head).await?;
        if looked_at >= BATCH {
            queue.common.rt.yield_now().await;
            looked_at = 0;
        }
    }
    while serves() {
        let mut looked_at = 0;
        while looked_at < BATCH
            && serves()
            && let Some(head) = queue.take()?
        {
            looked_at += queue.start(head).await?;
        }
        if looked_at >= BATCH || queue.ring.borrow().ask_for_kick(&*queue.memory()?)? {
            queue.common.rt.yield_now().await;
            continue;
        }
        let stopped = queue.changed.until(|| !serves());
        if let Either::Left((Err(error), _)) = select(pin!(kick.heard()), pin!(stopped)).await {
            tracing::warn!("vhost-user: a queue's event: {error}");
            return Ok(());
        }
    }
    Ok(())
}

/// Does a request and answers it.
async fn execute<N: Namespace>(job: Job<N>) {
    let queue = job.queue.clone();
    if queue.state.get() == State::Lost {
        return;
    }
    let Some((status, written)) = outcome(&job).await else {
        // The next server has its array again, and does it.
        queue.common.stream.shutdown();
        return;
    };
    if queue.state.get() == State::Lost {
        return;
    }
    let wants_call = queue.answer(&job, status, written).unwrap_or_else(|error| {
        queue.break_off(error);
        false
    });
    drop(job);
    if wants_call {
        queue.tell().await;
    }
}

/// How a request ended, and how many bytes it has written to the guest; None where its namespace is gone.
async fn outcome<N: Namespace>(job: &Job<N>) -> Option<(Status, u32)> {
    let common = &job.queue.common;
    let request = match &job.verb {
        Ok(Verb::Namespace(request)) => *request,
        Ok(Verb::Identity) => return Some(identity(job)),
        Err(status) => {
            common.socket.live.update(|counters| counters.errors += 1);
            return Some((*status, 0));
        }
    };
    let out_of_memory = Some((Status::IoErr, 0));
    let Ok(memory) = job.queue.memory() else { return out_of_memory };
    let data = match request.bytes_sent() {
        0 => rt::Bytes::default(),
        bytes => match copy_in(&memory, &job.parts.given, bytes) {
            Ok(data) => data,
            Err(_) => return out_of_memory,
        },
    };
    match common.namespace.submit(request.with(|_| data)).await {
        Err(Fault::Gone) => None,
        Err(fault) => {
            common.socket.live.update(|counters| {
                counters.errors += 1;
                counters.medium_errors += u64::from(fault == Fault::Medium);
            });
            tracing::debug!(?request, %fault, "vhost-user: a request fails");
            Some((fault.into(), 0))
        }
        Ok(answer) => Some(done(job, &request, &answer)),
    }
}

/// Gives what was read to the guest; nothing to one whose connection is lost.
fn done<N: Namespace>(job: &Job<N>, request: &Request<u32>, answer: &Answer) -> (Status, u32) {
    let written = match answer {
        Answer::Data(_) if job.queue.state.get() == State::Lost => Ok(0),
        Answer::Data(parts) => {
            let returned: usize = parts.iter().map(rt::Bytes::len).sum();
            assert_eq!(returned, request.bytes_read() as usize, "a namespace returns the bytes that were asked for");
            // The memory as it is now: a front end may have told of another.
            job.queue.memory().and_then(|memory| Ok(copy_out(&memory, parts, &job.parts.room)?))
        }
        Answer::Done => Ok(0),
        Answer::Extents(_) => unreachable!("a guest asks for no extents"),
    };
    match written {
        Ok(written) => {
            job.queue.common.socket.live.update(|counters| counters.add(request));
            (Status::Ok, written)
        }
        Err(_) => (Status::IoErr, 0),
    }
}

fn identity<N: Namespace>(job: &Job<N>) -> (Status, u32) {
    let uuid = job.queue.common.socket.uuid;
    let text: String = uuid.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).take(IDENTITY).collect();
    let parts = [rt::Bytes::from_slice(text.as_bytes())];
    match job.queue.memory().and_then(|memory| Ok(copy_out(&memory, &parts, &job.parts.room)?)) {
        Ok(written) => (Status::Ok, written),
        Err(_) => (Status::IoErr, 0),
    }
}

fn digit(half: u8) -> char {
    char::from_digit(u32::from(half), 16).unwrap_or('0')
}

/// A request under way, until dropped.
struct InFlight<N>(Rc<Queue<N>>);

impl<N> InFlight<N> {
    fn begin(queue: &Rc<Queue<N>>) -> InFlight<N> {
        queue.in_flight.set(queue.in_flight.get() + 1);
        queue.common.socket.live.update(|counters| counters.in_flight += 1);
        InFlight(queue.clone())
    }
}

impl<N> Drop for InFlight<N> {
    fn drop(&mut self) {
        let queue = &self.0;
        queue.in_flight.set(queue.in_flight.get() - 1);
        let socket = &queue.common.socket;
        socket.live.update(|counters| counters.in_flight -= 1);
        if queue.state.get() == State::Lost {
            socket.turns.done();
        }
        if queue.in_flight.get() == 0 {
            queue.changed.notify();
        }
    }
}

/// The task that takes requests, until dropped.
struct Taking<N>(Rc<Queue<N>>);

impl<N> Drop for Taking<N> {
    fn drop(&mut self) {
        self.0.takes.set(false);
        self.0.changed.notify();
    }
}
