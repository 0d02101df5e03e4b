//! Requests of one device: each tag is served by a task of its own, so none waits for another.
//!
//! ```text
//!   fetch -> judge -> data of a write -> namespace -> data of a read -> commit and fetch -> ...
//! ```
//!
//! Invariants:
//! - a request that was fetched is answered once, or not at all and then waits in the kernel for the next server;
//! - a namespace that is gone answers nothing: an error would make a file system give up what the next server can do;
//! - what each tag is at outlives its task: who left can go on, with another namespace, where it was;
//! - a queue that the kernel has ended is closed when the last task has ended.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use rt::ublk::{DEPTH, Descriptor, Fetch, Fetched, Queue};
use rt::{Bytes, Rt, Task};

use super::request::{Errno, Limits, judge};
use crate::namespace::{Answer, Fault, Namespace, Request};
use crate::stream::signal::Signal;

/// Where a service is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Requests are begun.
    Serving,
    /// None are begun any more; those under way are finished.
    Leaving,
    /// Nothing is done; what was fetched, and what the kernel still gives, waits for who goes on.
    Left,
    /// The kernel has ended the queue.
    Ended,
}

/// What a tag is at.
enum Held {
    /// The kernel is asked for a request.
    Fetching(Fetch),
    /// This one is to be done, or is being done.
    Request(Descriptor),
    /// The kernel asks no more.
    Nothing,
}

/// What the tasks of a device share with its handle.
pub(super) struct Service {
    rt: Rt,
    pub(super) state: Cell<State>,
    in_flight: Cell<usize>,
    requests: Cell<u64>,
    /// Tags whose tasks go on.
    tags: Cell<u16>,
    pub(super) limits: Cell<Limits>,
    /// The kernel does not know that writes need a flush: each one is durable when it is answered.
    durable: Cell<bool>,
    changed: Signal,
    /// None when it is closed.
    queue: RefCell<Option<Rc<Queue>>>,
    held: Vec<RefCell<Held>>,
    tasks: RefCell<Vec<Task<()>>>,
}

impl Service {
    /// Begins to fetch.
    pub(super) fn begin<N: Namespace>(
        rt: &Rt,
        queue: Queue,
        namespace: &N,
        limits: Limits,
        durable: bool,
    ) -> Rc<Service> {
        let queue = Rc::new(queue);
        let service = Rc::new(Service {
            rt: rt.clone(),
            state: Cell::new(State::Left),
            in_flight: Cell::new(0),
            requests: Cell::new(0),
            tags: Cell::new(0),
            limits: Cell::new(limits),
            durable: Cell::new(false),
            changed: Signal::default(),
            held: queue.fetch_all().into_iter().map(|fetch| RefCell::new(Held::Fetching(fetch))).collect(),
            queue: RefCell::new(Some(queue)),
            tasks: RefCell::default(),
        });
        service.go_on(namespace, durable);
        service
    }

    /// Goes on where it was left.
    pub(super) fn go_on<N: Namespace>(self: &Rc<Self>, namespace: &N, durable: bool) {
        assert!(self.state.get() == State::Left && self.tags.get() == 0, "it was left");
        let queue = self.queue.borrow().clone().expect("what was left is open");
        self.state.set(State::Serving);
        self.durable.set(durable);
        self.tags.set(DEPTH);
        let tasks =
            (0..DEPTH).map(|tag| self.rt.spawn(serve(Tag(self.clone()), queue.clone(), namespace.clone(), tag)));
        *self.tasks.borrow_mut() = tasks.collect();
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// Waits until nothing is under way.
    pub(super) async fn idle(&self) {
        self.changed.until(|| self.in_flight.get() == 0).await;
    }

    /// Waits until the kernel has ended the queue, or it was left.
    pub(super) async fn ended(&self) {
        self.changed.until(|| matches!(self.state.get(), State::Left | State::Ended)).await;
    }

    /// Waits until the queue is closed, which the kernel has ended.
    pub(super) async fn closed(&self) {
        self.changed.until(|| self.queue.borrow().is_none()).await;
    }

    /// Drops all tasks where they stand.
    pub(super) fn abandon(&self) {
        if self.state.get() != State::Ended {
            self.state.set(State::Left);
        }
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        tasks.iter().for_each(Task::cancel);
        self.changed.notify();
    }

    /// Waits for a tag's request; nothing when there will be none.
    async fn request_of(&self, tag: u16) -> Option<Descriptor> {
        let held = &self.held[usize::from(tag)];
        let fetched = poll_fn(|cx| match &mut *held.borrow_mut() {
            Held::Fetching(fetch) => Pin::new(fetch).poll(cx),
            Held::Request(descriptor) => Poll::Ready(Fetched::Request(*descriptor)),
            Held::Nothing => Poll::Ready(Fetched::Ended),
        });
        let (now, request) = match fetched.await {
            Fetched::Request(descriptor) => (Held::Request(descriptor), Some(descriptor)),
            Fetched::Ended => (Held::Nothing, None),
            Fetched::Refused(errno) => {
                tracing::warn!(tag, errno, "ublk: the kernel refuses a fetch");
                (Held::Nothing, None)
            }
        };
        held.replace(now);
        request
    }

    /// Does what a descriptor asks for; what the kernel is told of it. Nothing, where the namespace is gone: its array was closed, and
    /// the next server has it again.
    async fn execute<N: Namespace>(
        &self,
        queue: &Queue,
        namespace: &N,
        tag: u16,
        descriptor: &Descriptor,
    ) -> Option<i32> {
        let answer = async {
            let request = judge(descriptor, &self.limits.get())?;
            let moved = request.bytes_sent().max(request.bytes_read()).cast_signed();
            let data = match request.bytes_sent() {
                0 => Bytes::default(),
                bytes => queue.data(tag, bytes as usize)?.freeze(),
            };
            let answer = match namespace.submit(self.made_durable(request).with(|_| data)).await {
                Err(Fault::Gone) => return Ok(None),
                answer => answer?,
            };
            match answer {
                Answer::Data(parts) => {
                    let returned: usize = parts.iter().map(Bytes::len).sum();
                    let asked = request.bytes_read() as usize;
                    assert_eq!(returned, asked, "a namespace returns the bytes that were asked for");
                    queue.give(tag, &parts)?;
                }
                Answer::Done => {}
                Answer::Extents(_) => unreachable!("the kernel asks for no extents"),
            }
            Ok::<Option<i32>, Errno>(Some(moved))
        };
        match answer.await {
            Ok(moved) => moved,
            Err(Errno(errno)) => {
                tracing::debug!(tag, ?descriptor, errno, "ublk: a request fails");
                Some(-errno)
            }
        }
    }

    fn made_durable(&self, request: Request<u32>) -> Request<u32> {
        match request {
            Request::Write { offset, data, fua } => Request::Write { offset, data, fua: fua || self.durable.get() },
            Request::WriteZeroes { offset, bytes, may_deallocate, fua } => {
                Request::WriteZeroes { offset, bytes, may_deallocate, fua: fua || self.durable.get() }
            }
            Request::Deallocate { offset, bytes, fua } => {
                Request::Deallocate { offset, bytes, fua: fua || self.durable.get() }
            }
            Request::Read { .. } | Request::Flush | Request::Extents { .. } => request,
        }
    }
}

/// A request under way, until dropped.
struct InFlight<'a>(&'a Service);

impl<'a> InFlight<'a> {
    fn begin(service: &'a Service) -> InFlight<'a> {
        service.in_flight.set(service.in_flight.get() + 1);
        service.requests.set(service.requests.get() + 1);
        InFlight(service)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
        if self.0.in_flight.get() == 0 {
            self.0.changed.notify();
        }
    }
}

/// The task of a tag, until it ends.
struct Tag(Rc<Service>);

impl Drop for Tag {
    fn drop(&mut self) {
        let service = &self.0;
        service.tags.set(service.tags.get() - 1);
        if service.tags.get() == 0 && service.state.get() == State::Ended {
            drop(service.queue.take());
        }
        service.changed.notify();
    }
}

/// Serves a tag until the kernel ends the queue, or it is left.
async fn serve<N: Namespace>(task: Tag, queue: Rc<Queue>, namespace: N, tag: u16) {
    // The last to be dropped.
    let task = task;
    let (service, queue) = (&*task.0, queue);
    loop {
        let Some(descriptor) = service.request_of(tag).await else {
            service.state.set(State::Ended);
            return;
        };
        if service.state.get() != State::Serving {
            return;
        }
        let result = {
            let _in_flight = InFlight::begin(service);
            service.execute(&queue, &namespace, tag, &descriptor).await
        };
        let Some(result) = result else {
            service.state.set(State::Leaving);
            return;
        };
        service.held[usize::from(tag)].replace(Held::Fetching(queue.commit(tag, result)));
    }
}
