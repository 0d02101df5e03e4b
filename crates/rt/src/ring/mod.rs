//! The io_uring of one runtime: a slot table of operations in flight, and the sleep of an idle thread.
//!
//! ```text
//!   Operation's first poll: slot + entry queued ... one io_uring_enter per turn ... answer: waker
//! ```
//!
//! A second ring of the kernel, made for the first drive that is polled, has the operations whose answers must be asked
//! for: the drive does not interrupt. Both share the slot table.
//!
//! Invariants:
//! - a slot, and with it every byte the kernel may touch, is freed only after the kernel's answer; also when the
//!   future was dropped, and also when a submission failed (the entry stays queued and is submitted again);
//! - EAGAIN and EBUSY from io_uring_enter mean: collect answers, then try again;
//! - the ring's end cancels what can wait for ever and waits for everything else. A drive that hangs in the kernel
//!   therefore holds up the end: its memory must not be freed. Only fetches of block devices that are served are not waited
//!   for: the ring then stays open, and the kernel ends them with the process;
//! - the thread sleeps only while no polled operation is in flight.
//!
//! Not here: registered files and buffers.
#![allow(unsafe_code)]

mod command;
mod entries;
mod linger;
mod request;

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::opcode;
use slab::Slab;

pub(crate) use command::{Command, Fields, Payload};
use entries::Entries;
use linger::{Awaited, Linger, Look};
pub(crate) use request::{Address, PARTS_MAX, Request, SendHeader, advance};

use crate::drive::Load;
use crate::executor::Inner;
use crate::queue::Queue;

/// Between two cancels of what has not ended.
const CANCEL_AGAIN: Duration = Duration::from_millis(50);

/// `user_data` of a cancellation, whose own answer says nothing.
const NOBODY: u64 = u64::MAX;

/// Pause when the kernel has no memory for a submission and no answer is there to be collected.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);

/// Looks for answers between two at the clock and at what other threads have woken: a fraction of a microsecond.
const LOOKS: u32 = 32;

/// How the answer of an operation comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answering {
    /// The drive interrupts, or whatever else the kernel waits for happens.
    Interrupt,
    /// The same, and a worker of the kernel submits it: it may block.
    Worker,
    /// This thread asks again and again. For reads and writes of a drive with queues for that.
    Polling,
}

/// Workers that the kernel keeps for requests to files and drives, at most. It makes one when one is needed; left alone it
/// makes four for each CPU, and a few drives that hang take them all.
pub(crate) const WORKERS_MAX: u32 = 1024;

struct Slot {
    request: Request,
    answering: Answering,
    /// The entry's `user_data`: it names this operation, also when the slot had others before.
    name: u64,
    answer: Option<i32>,
    waker: Option<Waker>,
    /// Its future was dropped.
    orphan: bool,
    load: Option<Rc<Load>>,
}

/// The ring.
pub(crate) struct Ring {
    io: ManuallyDrop<RefCell<Entries>>,
    /// The second ring; None inside when the kernel has none for us.
    polling: OnceCell<Option<RefCell<Entries>>>,
    /// Operations in the second ring without an answer.
    polled: Cell<usize>,
    slots: RefCell<Slab<Slot>>,
    /// Other threads ring it; None until the first sleep and after the end.
    bell: Rc<OwnedFd>,
    /// The slot of the operation that listens to the bell.
    listening: Cell<Option<usize>>,
    started: Cell<u32>,
    /// Operations of drives in the first ring without an answer.
    of_drives: Cell<usize>,
    linger: Linger,
}

impl Ring {
    /// A wide ring takes NVMe commands; a kernel before 5.19 gives none, and then it is not one.
    pub(crate) fn new(wide: bool) -> io::Result<(Ring, Arc<Queue>)> {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let queue = Queue::new(Some(bell.try_clone()?));
        let ring = Ring {
            io: ManuallyDrop::new(RefCell::new(if wide {
                Entries::wide().or_else(|_| Entries::narrow())?
            } else {
                Entries::narrow()?
            })),
            polling: OnceCell::new(),
            polled: Cell::new(0),
            slots: RefCell::default(),
            bell: Rc::new(bell),
            listening: Cell::new(None),
            started: Cell::new(0),
            of_drives: Cell::new(0),
            linger: Linger::new(),
        };
        Ok((ring, queue))
    }

    /// Whether NVMe commands can be sent.
    pub(crate) fn is_wide(&self) -> bool {
        self.io.borrow().is_wide()
    }

    /// Whether operations can be polled; makes the second ring.
    pub(crate) fn can_poll(&self) -> bool {
        self.polling.get_or_init(|| Entries::polling().ok().map(RefCell::new)).is_some()
    }

    /// Puts an operation into the table and queues its entry.
    fn start(&self, request: Request, load: Option<Rc<Load>>, answering: Answering) -> usize {
        if let Some(load) = &load {
            load.begin();
            self.of_drives.set(self.of_drives.get() + 1);
        }
        let mut slots = self.slots.borrow_mut();
        self.started.set(self.started.get().wrapping_add(1));
        let key = slots.vacant_key();
        let name = u64::from(self.started.get()) << 32 | u64::from(slot_number(key));
        slots.insert(Slot { request, answering, name, answer: None, waker: None, orphan: false, load });
        drop(slots);
        match answering {
            Answering::Interrupt | Answering::Worker => {
                let apart = answering == Answering::Worker;
                self.push(&self.io, |io| io.push(&mut self.slots.borrow_mut()[key].request, name, apart));
            }
            Answering::Polling => {
                self.polled.set(self.polled.get() + 1);
                self.push(self.second(), |io| io.push(&mut self.slots.borrow_mut()[key].request, name, false));
            }
        }
        key
    }

    fn second(&self) -> &RefCell<Entries> {
        let ring = self.polling.get().and_then(Option::as_ref);
        ring.expect("who polls has asked before whether that can be")
    }

    /// Queues an entry; when the queue is full, after a submission.
    fn push(&self, ring: &RefCell<Entries>, queue: impl Fn(&mut Entries) -> bool) {
        loop {
            let mut io = ring.borrow_mut();
            if queue(&mut io) {
                return;
            }
            let submitted = io.submit();
            drop(io);
            self.bear(submitted);
        }
    }

    /// Whether entries wait for a submission or operations for an answer.
    pub(crate) fn is_busy(&self) -> bool {
        !self.slots.borrow().is_empty() || self.io.borrow_mut().has_queued()
    }

    /// Submits and collects, without sleeping.
    pub(crate) fn poll(&self) {
        self.submit_if_wanted();
        if self.polled.get() > 0 {
            self.ask();
        }
        self.collect();
    }

    /// Submits what is to be polled, and asks the drives once.
    fn ask(&self) {
        let submitted = self.second().borrow_mut().submit();
        self.bear(submitted);
    }

    /// One round of waiting for polled operations: asks the drives, and looks at the first ring without sleeping.
    fn spin(&self) {
        self.ask();
        self.submit_if_wanted();
        self.collect();
    }

    /// Enters the kernel when that has something to do.
    pub(crate) fn submit_if_wanted(&self) {
        let submitted = {
            let mut io = self.io.borrow_mut();
            if io.wants_enter() { io.submit() } else { Ok(0) }
        };
        self.bear(submitted);
    }

    /// No look before a sleep is longer than this; zero: there is none.
    pub(crate) fn set_linger(&self, longest: Duration) {
        self.linger.set_longest(longest);
    }

    pub(crate) fn longest_linger(&self) -> Duration {
        self.linger.longest()
    }

    /// Waits until there is an answer, other threads wake something, or the time is over; collects. It looks for a while before it
    /// sleeps: see [`linger`]. Nothing polled is in flight.
    pub(crate) fn wait(&self, longest: Option<Duration>, queue: &Queue) {
        let awaited = if self.of_drives.get() > 0 { Awaited::Drives } else { Awaited::Sockets };
        let begun = Instant::now();
        if let Some(length) = self.linger.begin(awaited)
            && self.look(awaited, begun, length, longest, queue)
        {
            return;
        }
        if queue.fall_asleep() {
            self.sleep(longest.map(|longest| longest.saturating_sub(begun.elapsed())));
            queue.wake_up();
            self.linger.slept(awaited, begun.elapsed());
        }
    }

    /// Looks for so long; whether there is something to do, if only that the time is over.
    fn look(
        &self,
        awaited: Awaited,
        begun: Instant,
        length: Duration,
        longest: Option<Duration>,
        queue: &Queue,
    ) -> bool {
        self.submit_if_wanted();
        if self.collect() > 0 {
            // No look was needed.
            return true;
        }
        let mut look = Look::begin(begun);
        let mut found = false;
        while !found {
            found = (0..LOOKS).any(|_| self.io.borrow_mut().has_news()) || queue.has_remote();
            let passed = look.passed();
            if !found && longest.is_some_and(|longest| passed >= longest) {
                return true;
            }
            if !found && passed >= length {
                self.linger.in_vain(awaited);
                return false;
            }
        }
        self.linger.found(awaited, &look);
        self.submit_if_wanted();
        self.collect();
        true
    }

    /// Whether a sleep would not be one: polled operations are in flight.
    pub(crate) fn is_polling(&self) -> bool {
        self.polled.get() > 0
    }

    /// Submits, sleeps until there is an answer, other threads ring, or the time is over; collects. Returns at once
    /// while polled operations are in flight.
    pub(crate) fn sleep(&self, longest: Option<Duration>) {
        if self.polled.get() > 0 {
            return self.spin();
        }
        if self.listening.get().is_none() {
            let request = Request::Count { fd: self.bell.clone(), buf: Box::new([0; 8]) };
            self.listening.set(Some(self.start(request, None, Answering::Interrupt)));
        }
        let submitted = self.io.borrow_mut().submit_and_sleep(longest);
        self.bear(submitted);
        self.collect();
    }

    /// Takes the result of an enter: what can be tried again is tried again by the next turn.
    fn bear(&self, submitted: io::Result<usize>) {
        let Err(error) = submitted else { return };
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME) => {}
            Some(libc::EAGAIN | libc::EBUSY) => {
                if self.collect() == 0 {
                    std::thread::sleep(SHORTAGE_PAUSE);
                }
            }
            _ => panic!("io_uring_enter: {error}"),
        }
    }

    /// Hands the kernel's answers to their slots; how many there were.
    fn collect(&self) -> usize {
        let first = self.collect_from(&self.io);
        if self.polled.get() == 0 { first } else { first + self.collect_from(self.second()) }
    }

    fn collect_from(&self, ring: &RefCell<Entries>) -> usize {
        let mut answers = 0;
        loop {
            let Some((name, answer)) = ring.borrow_mut().next_answer() else {
                return answers;
            };
            answers += 1;
            if name != NOBODY {
                self.answered(name, answer);
            }
        }
    }

    fn answered(&self, name: u64, answer: i32) {
        let key = (name & u64::from(u32::MAX)) as usize;
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[key];
        assert!(slot.name == name && slot.answer.is_none(), "one answer per operation");
        slot.answer = Some(answer);
        if slot.answering == Answering::Polling {
            self.polled.set(self.polled.get() - 1);
        }
        let waker = slot.waker.take();
        let load = slot.load.take();
        let is_bell = self.listening.get() == Some(key);
        let gone = (slot.orphan || is_bell).then(|| slots.remove(key));
        drop(slots);
        if is_bell {
            self.listening.set(None);
        }
        if let Some(Slot { request: Request::Accept { .. }, .. }) = &gone
            && answer >= 0
        {
            // Nobody wants the connection that was accepted after all.
            drop(owned(answer));
        }
        drop(gone);
        if let Some(load) = load {
            self.of_drives.set(self.of_drives.get() - 1);
            load.done();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn cancel(&self, name: u64) {
        // What can wait for ever is in the first ring.
        let entry = opcode::AsyncCancel::new(name).build().user_data(NOBODY);
        self.push(&self.io, |io| io.push_bare(&entry));
    }

    /// The end: cancels what can wait for ever, waits for every answer.
    ///
    /// A worker of the kernel that is about to sleep may miss a cancel, and then sleeps for ever: it is told again after a while.
    pub(crate) fn end(&self) {
        let mut cancels = true;
        // What a fetch gives back is not lost, though nothing waits for what it fetches.
        self.submit_if_wanted();
        loop {
            self.collect();
            // Answered slots belong to futures that outlive the runtime; they only wait to be collected.
            if self.slots.borrow().iter().all(|(_, s)| s.answer.is_some() || s.request.ends_with_process()) {
                return;
            }
            if cancels {
                let waits = |s: &Slot| s.request.is_endless() && s.answer.is_none();
                let all: Vec<u64> = self.slots.borrow().iter().filter(|(_, s)| waits(s)).map(|(_, s)| s.name).collect();
                all.into_iter().for_each(|name| self.cancel(name));
            }
            if self.polled.get() > 0 {
                cancels = false;
                self.spin();
                continue;
            }
            let submitted = self.io.borrow_mut().submit_and_sleep(Some(CANCEL_AGAIN));
            cancels = matches!(&submitted, Err(error) if error.raw_os_error() == Some(libc::ETIME));
            self.bear(submitted);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.end();
        // Linux before 6.15 ends a fetch twice when a request has come for it and the ring is closed while its thread lives.
        if self.slots.borrow().iter().all(|(_, slot)| slot.answer.is_some()) {
            // SAFETY: nothing uses it any more.
            unsafe { ManuallyDrop::drop(&mut self.io) };
        }
    }
}

fn slot_number(key: usize) -> u32 {
    // u32::MAX itself is left out, so that no name equals NOBODY.
    u32::try_from(key).ok().filter(|k| *k != u32::MAX).expect("operations in flight fit in memory, so in 32 bits")
}

/// A descriptor that the kernel has just answered with.
pub(crate) fn owned(fd: i32) -> OwnedFd {
    use std::os::fd::FromRawFd;
    assert!(fd >= 0, "a descriptor");
    // SAFETY: the kernel made this descriptor for us in the operation whose answer it is; nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// An operation in the ring. It is queued by its first poll; dropped early it runs on without its caller.
pub(crate) struct Operation {
    rt: Rc<Inner>,
    state: State,
}

enum State {
    New(Request, Option<Rc<Load>>, Answering),
    Started(usize),
    Collected,
}

impl Operation {
    pub(crate) fn new(rt: &Rc<Inner>, request: Request, load: Option<Rc<Load>>) -> Operation {
        Operation::answering(rt, request, load, Answering::Interrupt)
    }

    pub(crate) fn answering(
        rt: &Rc<Inner>,
        request: Request,
        load: Option<Rc<Load>>,
        answering: Answering,
    ) -> Operation {
        Operation { rt: rt.clone(), state: State::New(request, load, answering) }
    }

    /// Queues it now instead of at its first poll.
    pub(crate) fn begin(&mut self) {
        if !matches!(self.state, State::New(..)) {
            return;
        }
        if let State::New(request, load, answering) = std::mem::replace(&mut self.state, State::Collected) {
            self.state = State::Started(self.rt.ring().start(request, load, answering));
        }
    }
}

impl Future for Operation {
    /// The kernel's answer (negative: an error number) and the request with its buffers.
    type Output = (i32, Request);
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.begin();
        let ring = this.rt.ring();
        match std::mem::replace(&mut this.state, State::Collected) {
            State::New(..) => unreachable!("it is begun"),
            State::Started(key) => {
                let mut slots = ring.slots.borrow_mut();
                let slot = &mut slots[key];
                if let Some(answer) = slot.answer {
                    let slot = slots.remove(key);
                    return Poll::Ready((answer, slot.request));
                }
                match &mut slot.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => slot.waker = Some(cx.waker().clone()),
                }
                this.state = State::Started(key);
                Poll::Pending
            }
            State::Collected => panic!("an operation was polled after its end"),
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let State::Started(key) = self.state else {
            return;
        };
        let ring = self.rt.ring();
        let mut slots = ring.slots.borrow_mut();
        let slot = &mut slots[key];
        if let Some(answer) = slot.answer {
            let slot = slots.remove(key);
            if matches!(slot.request, Request::Accept { .. }) && answer >= 0 {
                drop(owned(answer));
            }
            return;
        }
        slot.orphan = true;
        slot.waker = None;
        let (endless, name) = (slot.request.is_endless(), slot.name);
        drop(slots);
        if endless {
            ring.cancel(name);
        }
    }
}
