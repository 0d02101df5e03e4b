//! The runtime: one thread's tasks, clock and randomness, over the real ring or the modelled world.
//!
//! ```text
//!   block_on:  run ready tasks -> due events (sleeps, modelled drives) -> sleep in the ring / jump the clock
//! ```
//!
//! The handle that [`Rt::real`] or [`Rt::modelled`] returned is the first handle: when it is dropped (or
//! [`Rt::end`] is called) every task is dropped, and the real world waits for the I/O in flight. Clones inside of
//! tasks therefore do not keep a world alive.
//!
//! Invariants: no `RefCell` here is borrowed while a future is polled or dropped; in the modelled world the next
//! task is drawn from the seed, time moves only when no task is ready, and a world in which nothing can ever run
//! again panics with "deadlock".
//!
//! Not here: what tasks wait for (`ring`, `time`, `model`).

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use rustix::time::{ClockId, clock_gettime};
use slab::Slab;

use crate::drive::{Ways, passes_through};
use crate::host::{self, Host};
use crate::lengths::{Lengths, TurnLengths};
use crate::net::Congestion;
use crate::queue::{Queue, ROOT, Tag};
use crate::random::Random;
use crate::ring::Ring;
use crate::share::{Class, Share};
use crate::task::{self, Outcome, Task};
use crate::ticks;
use crate::time::{Agenda, Event, Nanos, Sleep};
use crate::turns::Turns;

/// Tasks polled before the real world looks at the ring and the clock again: at some 100 ns each well below a
/// drive's latency.
const POLLS_PER_TURN: usize = 256;

/// A turn of the real world ends when it has lasted so long: some polls take a thousand times as long as others, and nobody looks
/// at the ring meanwhile.
const TURN_TIME: Duration = Duration::from_micros(150);

/// The longest that one [`Rt::block_on`] of the modelled world takes, in its time: whoever still waits then, while others
/// look for something now and then, waits for ever.
const MODELLED_LONGEST: Duration = Duration::from_secs(20 * 24 * 3600);

/// Wall clock of the modelled world's first instant: 2026-01-01 00:00:00 UTC.
const MODELLED_START_UNIX_SECONDS: u64 = 1_767_225_600;

type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A task between two polls.
struct Idle {
    future: TaskFuture,
    tag: Arc<Tag>,
    waker: Waker,
}

enum Slot {
    Idle(Idle),
    /// Being polled; `cancelled` while that lasted.
    Running {
        tag: Arc<Tag>,
        cancelled: bool,
    },
}

// There is one per runtime.
#[allow(clippy::large_enum_variant)]
enum World {
    Real { ring: Ring, start: Instant },
    Modelled { now: Cell<Nanos>, start_unix_seconds: Cell<u64>, machine: u64 },
}

/// What all handles of a runtime share.
pub(crate) struct Inner {
    pub(crate) queue: Arc<Queue>,
    pub(crate) agenda: RefCell<Agenda>,
    tasks: RefCell<Slab<Slot>>,
    random: RefCell<Random>,
    /// What long work may take of a turn.
    pub(crate) turns: Turns,
    share: Share,
    /// How long turns of the real world were.
    lengths: Lengths,
    world: World,
    /// The ways to drives that may be used.
    pub(crate) ways: Ways,
    /// Tells this world from another (a modelled drive outlives worlds).
    pub(crate) id: u64,
    host: OnceCell<Host>,
    /// What TCP connections get that listeners accept.
    pub(crate) congestion: RefCell<Congestion>,
    /// When what is ready now was found, in the real world.
    turned: Cell<Nanos>,
    /// The CPU's ticks then.
    turned_ticks: Cell<u64>,
    in_block_on: Cell<bool>,
    ended: Cell<bool>,
}

/// A runtime on this thread. See the module's header for the first handle.
pub struct Rt {
    pub(crate) inner: Rc<Inner>,
    first: bool,
}

impl Clone for Rt {
    fn clone(&self) -> Rt {
        Rt { inner: self.inner.clone(), first: false }
    }
}

impl Drop for Rt {
    fn drop(&mut self) {
        if self.first {
            self.end();
        }
    }
}

impl Rt {
    /// The longest look for answers, when nothing else is said: [`Rt::set_linger`].
    pub const LINGER: Duration = Duration::from_micros(60);

    /// The real world: io_uring and the machine's clocks.
    ///
    /// # Errors
    /// When the kernel refuses an io_uring (too old, forbidden by a sysctl or a container's profile, or out of
    /// locked memory).
    pub fn real() -> io::Result<Rt> {
        Rt::real_by(Ways::Plain)
    }

    /// The real world, and the ways to drives that may be used. NVMe commands only where there is a drive for them now.
    ///
    /// # Errors
    /// As [`Rt::real`].
    pub fn real_by(ways: Ways) -> io::Result<Rt> {
        crate::signal::no_size_signal();
        let (ring, queue) = Ring::new(ways == Ways::Passthrough && passes_through())?;
        Ok(Rt::new(queue, Random::from_os()?, ways, World::Real { ring, start: Instant::now() }))
    }

    /// The modelled world: virtual time, and one seed that decides everything.
    #[must_use]
    pub fn modelled(seed: u64) -> Rt {
        Rt::modelled_later(seed, Duration::ZERO)
    }

    /// [`Rt::modelled`], its wall clock ahead: a world that begins when another has ended.
    #[must_use]
    pub fn modelled_later(seed: u64, ahead: Duration) -> Rt {
        Rt::modelled_on(seed, ahead, 0)
    }

    /// [`Rt::modelled_later`], on one of several machines. Runtimes that live at the same time have clocks of their own: each
    /// goes on while it is run.
    #[must_use]
    pub fn modelled_on(seed: u64, ahead: Duration, machine: u64) -> Rt {
        let start_unix_seconds = MODELLED_START_UNIX_SECONDS + ahead.as_secs();
        let start_unix_seconds = Cell::new(start_unix_seconds);
        let world = World::Modelled { now: Cell::new(Nanos(0)), start_unix_seconds, machine };
        let rt = Rt::new(Queue::new(None), Random::from_seed(seed), Ways::Plain, world);
        host::lives(rt.inner.id, true);
        rt
    }

    fn new(queue: Arc<Queue>, random: Random, ways: Ways, world: World) -> Rt {
        let inner = Inner {
            queue,
            agenda: RefCell::default(),
            tasks: RefCell::default(),
            random: RefCell::new(random),
            turns: Turns::default(),
            share: Share::default(),
            lengths: Lengths::default(),
            world,
            ways,
            id: next_world_id(),
            host: OnceCell::new(),
            congestion: RefCell::default(),
            turned: Cell::new(Nanos(0)),
            turned_ticks: Cell::new(0),
            in_block_on: Cell::new(false),
            ended: Cell::new(false),
        };
        Rt { inner: Rc::new(inner), first: true }
    }

    /// A further handle, as a clone, made by the crate's own parts.
    pub(crate) fn from_inner(inner: &Rc<Inner>) -> Rt {
        Rt { inner: inner.clone(), first: false }
    }

    /// Runs `f`, and meanwhile every spawned task, to the end of `f`.
    ///
    /// # Panics
    /// Within another `block_on` of this runtime; after its end; and in the modelled world with "deadlock" when
    /// nothing can ever run again, or after 20 days of its time.
    pub fn block_on<F: Future>(&self, f: F) -> F::Output {
        let inner = &*self.inner;
        assert!(!inner.ended.get(), "block_on after the runtime's first handle was dropped");
        let _running = Running::begin(&inner.in_block_on);
        let mut root = pin!(f);
        let tag = Tag::new(ROOT, Class::Usual, &inner.queue);
        let waker = Waker::from(tag.clone());
        tag.enqueue();
        inner.turned_now();
        let begun = inner.modelled_now();
        loop {
            let (mut polls, mut looked) = (0, ticks::now());
            while polls < POLLS_PER_TURN {
                let ticks = ticks::now();
                if inner.has_lasted(ticks, &mut looked) {
                    break;
                }
                let Some(next) = inner.next_ready(ticks) else { break };
                polls += 1;
                if next.key != ROOT {
                    inner.run(&next);
                    if next.is_background() {
                        inner.share.had(ticks, ticks::now());
                    }
                } else if Arc::ptr_eq(&next, &tag) {
                    tag.taken();
                    if let Poll::Ready(output) = root.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return output;
                    }
                }
            }
            assert!(!inner.ended.get(), "the runtime was ended from within its own block_on");
            inner.turn();
            let took = inner.modelled_now() - begun;
            assert!(took <= MODELLED_LONGEST, "deadlock: this has not ended after {} days", took.as_secs() / 86_400);
        }
    }

    /// Starts a task. It runs inside of `block_on`.
    pub fn spawn<F, T>(&self, f: F) -> Task<T>
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        self.spawn_as(Class::Usual, f)
    }

    /// Starts a task of the background. While other tasks are ready, all of the background together has no more time than they,
    /// and one poll more. Tasks that it starts by [`Rt::spawn`] are no part of it. In the modelled world no task goes first.
    pub fn spawn_background<F, T>(&self, f: F) -> Task<T>
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        self.spawn_as(if self.is_modelled() { Class::Usual } else { Class::Background }, f)
    }

    fn spawn_as<F, T>(&self, class: Class, f: F) -> Task<T>
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        let outcome = Rc::new(RefCell::new(Outcome::Running(None)));
        let result = outcome.clone();
        // Not an async block: that would have room for `f` twice, and move it when it is polled first.
        let future: TaskFuture = Box::pin(f.map(move |output| task::finish(&result, output)));
        let tag = self.inner.insert(class, future);
        Task::new(Rc::downgrade(&self.inner), tag, outcome)
    }

    /// The monotonic clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.inner.now()
    }

    /// The monotonic clock when this turn of the runtime began: before `now`, by what the tasks have computed since. For
    /// times of requests to drives, which are found done between turns: looking at the clock costs more than a choice
    /// of columns.
    #[must_use]
    pub fn turned(&self) -> Nanos {
        self.inner.turned()
    }

    /// The monotonic clock, 50 us old at most: what must not be older than a standstill in the middle of a turn.
    #[must_use]
    pub fn recent(&self) -> Nanos {
        self.inner.recent()
    }

    /// CPU time that this thread has taken; none in the modelled world.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        match &self.inner.world {
            World::Real { .. } => {
                let time = clock_gettime(ClockId::ThreadCPUTime);
                Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
            }
            World::Modelled { .. } => Duration::ZERO,
        }
    }

    /// How long turns of the real world were, from one look at the ring to the next, or to a sleep: one in seven is counted.
    #[must_use]
    pub fn turn_lengths(&self) -> TurnLengths {
        self.inner.lengths.so_far()
    }

    /// The wall clock.
    #[must_use]
    pub fn unix_seconds(&self) -> u64 {
        match &self.inner.world {
            // A clock before 1970 reads as 1970.
            World::Real { .. } => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            World::Modelled { now, start_unix_seconds, .. } => start_unix_seconds.get() + now.get().0 / 1_000_000_000,
        }
    }

    /// The process of the modelled world stands still for so long, and finds then what drives have done meanwhile: as after
    /// SIGSTOP, or when a virtual machine was paused.
    ///
    /// # Panics
    /// In the real world.
    pub fn stand_still(&self, time: Duration) {
        match &self.inner.world {
            World::Real { .. } => panic!("only the modelled world stands still at will"),
            World::Modelled { now, .. } => now.set(now.get() + time),
        }
    }

    /// Sets the modelled world's wall clock, as an operator or a time server does.
    ///
    /// # Panics
    /// In the real world.
    pub fn set_unix_seconds(&self, seconds: u64) {
        match &self.inner.world {
            World::Real { .. } => panic!("the machine's clock is not ours"),
            World::Modelled { now, start_unix_seconds, .. } => {
                start_unix_seconds.set(seconds.saturating_sub(now.get().0 / 1_000_000_000));
            }
        }
    }

    /// Resolves `d` from now.
    pub fn sleep(&self, d: Duration) -> Sleep {
        self.sleep_until(self.now() + d)
    }

    /// Resolves at `until`.
    pub fn sleep_until(&self, until: Nanos) -> Sleep {
        Sleep::new(self.inner.clone(), until)
    }

    /// Lets the other ready tasks run. In the modelled world time stands still meanwhile: a task that only ever
    /// yields stops it for good.
    pub fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        let mut yielded = false;
        std::future::poll_fn(move |cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }

    /// What `work` comes to, on a thread of its own: for what may block for long, as each call to a file system may that is
    /// not the machine's own. In the modelled world, and where no thread is to be had, on this one.
    pub async fn apart<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        if self.is_modelled() {
            return work();
        }
        let (sender, mut answer) = self.mailbox();
        let work = Arc::new(Mutex::new(Some(work)));
        let theirs = work.clone();
        let take = |work: &Mutex<Option<_>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let there = move || {
            if let Some(work) = take(&theirs) {
                sender.send(work());
            }
        };
        if std::thread::Builder::new().name("apart".into()).spawn(there).is_ok()
            && let Some(done) = answer.recv().await
        {
            return done;
        }
        let work = take(&work).expect("nobody else has taken it");
        work()
    }

    /// A random number; not for secrets.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.inner.random.borrow_mut().next()
    }

    /// How long an idle thread looks for answers before it sleeps, at most; zero: it sleeps at once. In the modelled world it means
    /// nothing.
    pub fn set_linger(&self, longest: Duration) {
        match &self.inner.world {
            World::Real { ring, .. } => ring.set_linger(longest),
            World::Modelled { .. } => {}
        }
    }

    /// The longest look that was set.
    #[must_use]
    pub fn linger(&self) -> Duration {
        match &self.inner.world {
            World::Real { ring, .. } => ring.longest_linger(),
            World::Modelled { .. } => Duration::ZERO,
        }
    }

    /// The congestion control that was set.
    #[must_use]
    pub fn congestion(&self) -> Congestion {
        self.inner.congestion.borrow().clone()
    }

    /// The congestion control of TCP connections that listeners accept which are bound from now on.
    pub fn set_congestion(&self, congestion: Congestion) {
        self.inner.congestion.replace(congestion);
    }

    /// Whether time is virtual.
    #[must_use]
    pub fn is_modelled(&self) -> bool {
        matches!(self.inner.world, World::Modelled { .. })
    }

    /// Ends the runtime: drops every task where it stands and waits for the real I/O in flight. Done by the drop
    /// of the first handle too.
    pub fn end(&self) {
        self.inner.end();
    }
}

impl fmt::Debug for Rt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = if self.is_modelled() { "modelled" } else { "real" };
        write!(f, "Rt({world}, {} tasks)", self.inner.tasks.borrow().len())
    }
}

impl Inner {
    pub(crate) fn now(&self) -> Nanos {
        match &self.world {
            World::Real { start, .. } => Nanos(0) + start.elapsed(),
            World::Modelled { now, .. } => now.get(),
        }
    }

    /// Modelled time stands still during a turn.
    pub(crate) fn turned(&self) -> Nanos {
        match &self.world {
            World::Real { .. } => self.turned.get(),
            World::Modelled { now, .. } => now.get(),
        }
    }

    pub(crate) fn recent(&self) -> Nanos {
        let is_recent = ticks::now().wrapping_sub(self.turned_ticks.get()) < ticks::FEW;
        if is_recent { self.turned() } else { self.now() }
    }

    /// What is ready now was found now.
    fn turned_now(&self) {
        self.turned.set(self.now());
        self.turned_ticks.set(ticks::now());
    }

    /// Who this process is.
    pub(crate) fn host(&self) -> Host {
        let ask = || match &self.world {
            World::Real { .. } => Host::this(),
            World::Modelled { machine, .. } => Host::modelled(*machine, self.id),
        };
        self.host.get_or_init(ask).clone()
    }

    /// Which machine of the modelled world this is on.
    pub(crate) fn machine(&self) -> u64 {
        match &self.world {
            World::Real { .. } => 0,
            World::Modelled { machine, .. } => *machine,
        }
    }

    /// The ring of the real world.
    pub(crate) fn ring(&self) -> &Ring {
        match &self.world {
            World::Real { ring, .. } => ring,
            World::Modelled { .. } => panic!("files and sockets belong to the real world"),
        }
    }

    /// The modelled world's time; the real one's stands still.
    fn modelled_now(&self) -> Nanos {
        match &self.world {
            World::Real { .. } => Nanos(0),
            World::Modelled { now, .. } => now.get(),
        }
    }

    /// Whether this turn has lasted as long as it may. `ticks`: the CPU's now; `looked`: when that was last asked of the
    /// clock.
    fn has_lasted(&self, ticks: u64, looked: &mut u64) -> bool {
        let World::Real { .. } = &self.world else { return false };
        if ticks.wrapping_sub(*looked) < ticks::FEW {
            return false;
        }
        *looked = ticks;
        self.now() - self.turned.get() >= TURN_TIME
    }

    fn insert(&self, class: Class, future: TaskFuture) -> Arc<Tag> {
        let mut tasks = self.tasks.borrow_mut();
        let entry = tasks.vacant_entry();
        let tag = Tag::new(entry.key(), class, &self.queue);
        if self.ended.get() {
            // Spawned by a destructor while everything ends: it never runs.
            drop(tasks);
            drop(future);
            return tag;
        }
        entry.insert(Slot::Idle(Idle { future, tag: tag.clone(), waker: Waker::from(tag.clone()) }));
        drop(tasks);
        tag.enqueue();
        tag
    }

    fn next_ready(&self, ticks: u64) -> Option<Arc<Tag>> {
        match &self.world {
            World::Real { .. } => self.queue.pop_first(self.share.is_its_turn(ticks)),
            World::Modelled { .. } => match self.queue.len() {
                0 => None,
                1 => self.queue.pop_first(false),
                n => {
                    let i = self.random.borrow_mut().below(n as u64);
                    self.queue.pop_at(i as usize)
                }
            },
        }
    }

    /// Polls one task, unless it is gone.
    fn run(&self, tag: &Arc<Tag>) {
        let mut idle = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(slot) = tasks.get_mut(tag.key) else {
                return;
            };
            match slot {
                Slot::Idle(idle) if Arc::ptr_eq(&idle.tag, tag) => {}
                Slot::Idle(_) | Slot::Running { .. } => return,
            }
            match std::mem::replace(slot, Slot::Running { tag: tag.clone(), cancelled: false }) {
                Slot::Idle(idle) => idle,
                Slot::Running { .. } => unreachable!("matched above"),
            }
        };
        tag.taken();
        let done = idle.future.as_mut().poll(&mut Context::from_waker(&idle.waker)).is_ready();
        let mut tasks = self.tasks.borrow_mut();
        let cancelled = match tasks.get(tag.key) {
            Some(Slot::Running { cancelled, .. }) => *cancelled,
            Some(Slot::Idle(_)) | None => unreachable!("a running task keeps its slot"),
        };
        if done || cancelled {
            tasks.remove(tag.key);
            drop(tasks);
            drop(idle);
        } else {
            tasks[tag.key] = Slot::Idle(idle);
        }
    }

    /// Drops a task's future; a running one is dropped at the end of its poll.
    pub(crate) fn remove(&self, tag: &Arc<Tag>) {
        let mut tasks = self.tasks.borrow_mut();
        match tasks.get_mut(tag.key) {
            Some(Slot::Idle(idle)) if Arc::ptr_eq(&idle.tag, tag) => {
                let gone = tasks.remove(tag.key);
                drop(tasks);
                drop(gone);
            }
            Some(Slot::Running { tag: running, cancelled }) if Arc::ptr_eq(running, tag) => *cancelled = true,
            Some(_) | None => {}
        }
    }

    /// Between two rounds of polls: lets due events happen; when nothing is ready, sleeps or jumps.
    fn turn(&self) {
        self.queue.take_remote();
        match &self.world {
            World::Real { ring, .. } => {
                let soonest = self.agenda.borrow().soonest();
                let has_ready = self.queue.len() > 0 || self.turns.is_waited_for();
                let now = if has_ready || soonest.is_none() { Nanos(0) } else { self.now() };
                if has_ready || soonest.is_some_and(|at| at <= now) {
                    if ring.is_busy() {
                        ring.poll();
                    }
                } else if ring.is_polling() {
                    ring.sleep(None);
                } else {
                    ring.wait(soonest.map(|at| at - now), &self.queue);
                }
                let begun = self.turned();
                self.turned_now();
                if self.lengths.is_due() {
                    // The clock was asked before a sleep where somebody waits for a time, as always in a server; else that is not
                    // known.
                    let ended = if has_ready { self.turned() } else { now };
                    if ended > begun {
                        self.lengths.add(ended.0 - begun.0);
                    }
                }
                if soonest.is_some() {
                    self.fire(self.turned());
                }
                self.turns.begin();
            }
            World::Modelled { now, .. } => {
                if self.queue.len() > 0 || self.turns.is_waited_for() {
                    return self.turns.begin();
                }
                let Some(at) = self.agenda.borrow().soonest() else {
                    panic!(
                        "deadlock: at {} nothing can ever run again; {} spawned tasks are waiting",
                        now.get(),
                        self.tasks.borrow().len()
                    );
                };
                now.set(at.max(now.get()));
                self.fire(now.get());
                self.turns.begin();
            }
        }
    }

    /// Lets everything happen that is due.
    fn fire(&self, now: Nanos) {
        loop {
            let due = self.agenda.borrow_mut().due(now);
            match due {
                Some(Event::Wake(waker)) => waker.wake(),
                Some(Event::Served(disk, key)) => disk.served(key),
                None => return,
            }
        }
    }

    fn end(&self) {
        if self.ended.replace(true) {
            return;
        }
        host::lives(self.id, false);
        self.queue.close();
        // A destructor may cancel other tasks, so take one at a time and hold no borrow.
        loop {
            let mut tasks = self.tasks.borrow_mut();
            let idle = tasks.iter().find(|(_, slot)| matches!(slot, Slot::Idle(_))).map(|(key, _)| key);
            let Some(key) = idle else { break };
            let gone = tasks.remove(key);
            drop(tasks);
            drop(gone);
        }
        let events = self.agenda.borrow_mut().clear();
        drop(events);
        if let World::Real { ring, .. } = &self.world {
            ring.end();
        }
    }
}

/// Guards against a `block_on` within a `block_on`.
struct Running<'a>(&'a Cell<bool>);

impl<'a> Running<'a> {
    fn begin(flag: &'a Cell<bool>) -> Running<'a> {
        assert!(!flag.replace(true), "block_on within block_on");
        Running(flag)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

fn next_world_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
