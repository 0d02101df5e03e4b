//! The server: accepts, counts, watches, and stops in order.
//!
//! Start: bind every address, then accept on each, and watch for hosts that are silent and namespaces that change. Stop,
//! as named steps: refuse (no new connections, new I/O commands are not begun), finish (commands in flight complete and
//! are answered), close (hosts reconnect and send again what was not answered).
//!
//! Other cores may serve I/O queues (`worker`).
//!
//! Invariant: after `stop` no command is in flight and no task of the server uses a namespace.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    pin::pin,
    rc::{Rc, Weak},
    time::Duration,
};

use futures::future::{Either, join_all, select};
use rt::{
    Nanos, Party, Rt, TURN_COST, Task,
    net::{Addr, Listener, Stream},
};

use super::{
    arrive::arrive,
    controller::{Common, Controller, Host, Views},
    limits::{ROOMS, SETTLE_SECONDS_MAX, SHARED_BYTES_MAX, STOP_SEND_SECONDS_MAX, WATCH_MILLIS},
    local::{Job, LocalQueue},
    subsystem::Subsystems,
    worker::{Proxy, Worker},
};
use crate::{
    clients::{Client, Protocol, Used},
    counters::Counters,
    remote::WORKERS_MAX,
    stream::{
        accept::{Arrival, accept, end_lost},
        door::{Door, Guest},
        pool::Pool,
        progress::Progress,
        rare::Rare,
        signal::Signal,
        task_pool::{TaskPool, WAITING_BYTES},
    },
};

/// A running NVMe/TCP server. Dropping the handle lets it run on; [`Server::stop`] ends it.
pub struct Server<S: Subsystems> {
    shared: Rc<Shared<S>>,
    addresses: Vec<Addr>,
    tasks: RefCell<Vec<Task<()>>>,
}

/// What its connections share.
pub struct Shared<S: Subsystems> {
    pub rt: Rt,
    pub common: Rc<Common<S>>,
    pub controllers: RefCell<BTreeMap<u16, Rc<Controller<S>>>>,
    /// All of them, and those that have ended but have commands in flight.
    settling: RefCell<Vec<Weak<Controller<S>>>>,
    pub memory: Rc<Pool>,
    pub progress: Rc<Progress>,
    pub tasks: Rc<TaskPool<Job<S>>>,
    last_controller: Cell<u16>,
    /// Lines that strangers cause.
    pub rare: Rc<Rare>,
    connections: RefCell<BTreeMap<u64, Stream>>,
    next_connection: Cell<u64>,
    closed: Signal,
    /// One for each worker; without any this core serves all I/O queues.
    proxies: Vec<Rc<Proxy<S>>>,
    deal: Deal,
    /// I/O queues that are served here.
    io_queues: Cell<usize>,
    /// This core has worked for most of the time between the last two looks.
    is_busy: Cell<bool>,
}

/// Which core serves an I/O queue, where there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deal {
    /// That of the controllers serves one while it is not busy, the others share the rest.
    #[default]
    ByLoad,
    /// Never that of the controllers.
    ToOthers,
}

/// Part of the time between two looks that the controllers' core works when it is busy.
const BUSY: f64 = 0.8;

/// For whom controllers are looked at: all together.
const WATCH: Party = Party { group: u64::MAX, member: 1 };

/// What a look at one costs: as much as a turn has.
const WATCHED_COST: u32 = TURN_COST;

/// Highest controller identifier: those above are reserved. NVMe Base 2.0, 5.17.2.1, CNTLID.
const CONTROLLER_MAX: u16 = 0xffef;

impl<S: Subsystems> Shared<S> {
    /// An identifier that was not in use lately; nothing when all are.
    pub fn free_controller_id(&self) -> Option<u16> {
        let controllers = self.controllers.borrow();
        let after = |id: u16| if id >= CONTROLLER_MAX { 1 } else { id + 1 };
        let mut id = after(self.last_controller.get());
        for _ in 0..CONTROLLER_MAX {
            if !controllers.contains_key(&id) {
                self.last_controller.set(id);
                return Some(id);
            }
            id = after(id);
        }
        None
    }

    /// Ends a controller: all its connections are closed.
    pub fn end_controller(&self, controller: &Controller<S>) {
        if self.controllers.borrow_mut().remove(&controller.id).is_some() {
            let line = || tracing::info!(id = controller.id, host = controller.host.nqn, "nvme: disconnected");
            if controller.is_discovery { self.rare.say("hosts that disconnected from discovery", line) } else { line() }
        }
        controller.queues.borrow().values().for_each(|connection| connection.cut());
        controller.events_changed.notify();
    }

    /// Begins a controller.
    pub fn begin_controller(&self, controller: &Rc<Controller<S>>) {
        self.controllers.borrow_mut().insert(controller.id, controller.clone());
        self.settling.borrow_mut().push(Rc::downgrade(controller));
    }

    /// Who serves a new queue: the core with the fewest, for as long as the queue lasts; none: this one. It has the controllers and what
    /// all commands are for, so it serves admin queues, and one I/O queue unless it is busy: a lone request crosses to no
    /// other core.
    fn place(&self, queue: u16) -> Option<&Rc<Proxy<S>>> {
        if queue == 0 {
            return None;
        }
        let stays = match self.deal {
            Deal::ByLoad => !self.is_busy.get() && self.io_queues.get() == 0,
            Deal::ToOthers => false,
        };
        let others = self.proxies.iter().filter(|proxy| !stays && proxy.is_served());
        others.min_by_key(|proxy| proxy.queues())
    }

    /// Looks how much of the time since the last look this core has worked: by the CPU time of its thread, since a virtual CPU
    /// that others hold does not count.
    fn look_how_busy(&self, looked: &mut Option<(Nanos, Duration)>) {
        let now = (self.rt.now(), self.rt.cpu_time());
        if let Some(before) = looked.replace(now) {
            let worked = (now.1 - before.1).as_secs_f64();
            self.is_busy.set(worked > BUSY * (now.0 - before.0).as_secs_f64());
        }
    }

    /// Waits until what this host has sent to the subsystem over other connections is done or will never be; whether it
    /// is.
    pub async fn is_settled(&self, host: &Host, subsystem: &str) -> bool {
        self.settling.borrow_mut().retain(|controller| controller.strong_count() > 0);
        let before: Vec<_> = self.settling.borrow().iter().filter_map(Weak::upgrade).collect();
        let before = before.iter().filter(|c| c.host == *host && c.subsystem.nqn == subsystem);
        let settled = join_all(before.map(|controller| controller.settled()));
        let patience = self.rt.sleep(Duration::from_secs(SETTLE_SECONDS_MAX));
        matches!(select(pin!(settled), pin!(patience)).await, Either::Left(_))
    }
}

impl<S: Subsystems> Server<S> {
    /// Binds all addresses and serves the subsystems. `advertised` is where the discovery log says that they are: the
    /// TCP addresses that are bound, when there is none.
    ///
    /// # Errors
    /// When an address cannot be bound; then none is served.
    pub fn start(rt: &Rt, subsystems: S, addresses: &[Addr], advertised: &[SocketAddr]) -> io::Result<Server<S>> {
        Server::dealing(rt, subsystems, addresses, advertised, (0, Deal::default())).map(|(server, _none)| server)
    }

    /// The same with I/O queues served by so many workers, too. Each is to be served or dropped: a stop
    /// waits for it.
    ///
    /// # Errors
    /// As [`Server::start`].
    ///
    /// # Panics
    /// With more than [`WORKERS_MAX`].
    pub fn dealing(
        rt: &Rt,
        subsystems: S,
        addresses: &[Addr],
        advertised: &[SocketAddr],
        (workers, deal): (usize, Deal),
    ) -> io::Result<(Server<S>, Vec<Worker>)> {
        assert!(workers <= WORKERS_MAX, "at most {WORKERS_MAX} workers");
        let listeners = addresses.iter().map(|a| Listener::bind(rt, a)).collect::<io::Result<Vec<_>>>()?;
        let addresses: Vec<Addr> = listeners.iter().map(Listener::local_addr).collect();
        let bound = addresses.iter().filter_map(|addr| match addr {
            Addr::Tcp(address) => Some(*address),
            Addr::Unix(_) => None,
        });
        let advertised = if advertised.is_empty() { bound.collect() } else { advertised.to_vec() };
        let common = Rc::new(Common {
            subsystems,
            advertised,
            generation: Cell::new(1),
            counters: RefCell::default(),
            views: Views::default(),
        });
        let progress = Rc::<Progress>::default();
        let (proxies, dealt) = (0..workers).map(|_| Proxy::new(rt, &progress, workers)).unzip();
        let shared = Rc::new(Shared {
            rt: rt.clone(),
            common,
            controllers: RefCell::default(),
            settling: RefCell::default(),
            memory: Pool::new(SHARED_BYTES_MAX),
            progress,
            tasks: TaskPool::new(WAITING_BYTES),
            last_controller: Cell::new(0),
            rare: Rare::new(rt),
            connections: RefCell::default(),
            next_connection: Cell::new(0),
            closed: Signal::default(),
            proxies,
            deal,
            io_queues: Cell::new(0),
            is_busy: Cell::new(false),
        });
        let door = Door::new(ROOMS);
        let accept = |listener| {
            let (shared, rare) = (shared.clone(), shared.rare.clone());
            let serve = move |stream, arrival| shared.rt.spawn(connection(shared.clone(), stream, arrival)).detach();
            rt.spawn(accept(rt.clone(), listener, door.clone(), rare, "nvme", serve))
        };
        let mut tasks: Vec<Task<()>> = listeners.into_iter().map(accept).collect();
        tasks.push(rt.spawn(watch(shared.clone())));
        let connections = |shared: &Shared<S>| shared.connections.borrow().values().cloned().collect();
        tasks.push(rt.spawn(end_lost(rt.clone(), Rc::downgrade(&shared), connections)));
        Ok((Server { shared, addresses, tasks: RefCell::new(tasks) }, dealt))
    }

    /// The addresses it listens on, with the port that a port of zero became.
    #[must_use]
    pub fn local_addrs(&self) -> &[Addr] {
        &self.addresses
    }

    /// Counters of every namespace that a host has connected to, by name.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, Counters)> {
        self.shared.common.counters.borrow().iter().map(|(name, live)| (name.clone(), live.read())).collect()
    }

    /// Controllers that hosts have now.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.shared.controllers.borrow().len()
    }

    /// Hosts that have a controller, but for those that only look what there is.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        let controllers = self.shared.controllers.borrow();
        let client = |controller: &Rc<Controller<S>>| Client {
            protocol: Protocol::NvmeTcp,
            peer: controller.peer(),
            host: Some(controller.host.nqn.clone()).filter(|name| !name.is_empty()),
            used: Used::Subsystem(controller.subsystem.nqn.clone()),
            since_unix_seconds: controller.since_unix_seconds,
            connections: controller.queues.borrow().len(),
        };
        controllers.values().filter(|controller| !controller.is_discovery).map(client).collect()
    }

    /// Connections now, queues or not yet.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.borrow().len()
    }

    /// I/O queues that each worker has.
    #[must_use]
    pub fn dealt(&self) -> Vec<usize> {
        self.shared.proxies.iter().map(|proxy| proxy.queues()).collect()
    }

    /// Stops: no new connections, commands in flight are finished and answered, later ones are not begun, then all
    /// connections are closed. Waits as long as the namespaces need, but not for hosts that do not take their answers.
    pub async fn stop(&self) {
        let shared = &self.shared;
        // Refuse.
        shared.progress.stop();
        self.tasks.borrow_mut().drain(..).for_each(|task| task.cancel());
        // Finish.
        shared.progress.executed().await;
        let patience = shared.rt.sleep(Duration::from_secs(STOP_SEND_SECONDS_MAX));
        let stopped: Vec<_> = shared.proxies.iter().map(|proxy| proxy.stop()).collect();
        select(pin!(shared.progress.answered()), pin!(patience)).await;
        join_all(stopped).await;
        // Close.
        shared.connections.borrow().values().for_each(Stream::shutdown);
        shared.closed.until(|| shared.connections.borrow().is_empty()).await;
        // Shutdowns that hosts have asked for meanwhile.
        shared.progress.executed().await;
        shared.tasks.close();
    }
}

/// Ends controllers whose hosts are silent; tells the others what has changed.
async fn watch<S: Subsystems>(shared: Rc<Shared<S>>) {
    let names = || shared.common.subsystems.all().into_iter().map(|s| s.nqn).collect::<Vec<_>>();
    let mut known = names();
    let mut looked = None;
    loop {
        shared.rt.sleep(Duration::from_millis(WATCH_MILLIS)).await;
        if shared.deal == Deal::ByLoad && !shared.proxies.is_empty() {
            shared.look_how_busy(&mut looked);
        }
        let present = names();
        if present != known {
            known = present;
            shared.common.generation.set(shared.common.generation.get() + 1);
        }
        let controllers: Vec<_> = shared.controllers.borrow().values().cloned().collect();
        let used: BTreeSet<_> =
            controllers.iter().filter(|c| !c.is_discovery).map(|c| c.subsystem.nqn.clone()).collect();
        shared.common.views.keep(&used);
        used.iter().for_each(|nqn| drop(shared.common.view(nqn)));
        for controller in controllers {
            if controller.is_silent(shared.rt.now()) {
                tracing::warn!(id = controller.id, host = controller.host.nqn, "nvme: keep-alive timeout");
                shared.end_controller(&controller);
            } else if controller.is_behind() {
                // Of thousands of namespaces and hundreds of controllers: others go on between.
                shared.rt.step(WATCH, WATCHED_COST).await;
                controller.refresh();
            }
        }
    }
}

/// A connection from its first byte to its last.
async fn connection<S: Subsystems>(shared: Rc<Shared<S>>, stream: Stream, arrival: Arrival) {
    let id = shared.next_connection.get();
    shared.next_connection.set(id + 1);
    shared.connections.borrow_mut().insert(id, stream.clone());
    let Arrival { guest, told } = arrival;
    Arrival::until_told(told, &stream, serve(&shared, &stream, &guest)).await;
    stream.shutdown();
    shared.connections.borrow_mut().remove(&id);
    drop(guest);
    shared.closed.notify();
}

async fn serve<S: Subsystems>(shared: &Rc<Shared<S>>, stream: &Stream, guest: &Guest) {
    let Some(arrived) = arrive(shared, stream, guest).await else { return };
    let queue = arrived.connected.queue.id;
    match shared.place(queue) {
        Some(proxy) => proxy.serve(stream, arrived).await,
        None => {
            let count = |change: isize| shared.io_queues.set(shared.io_queues.get().strict_add_signed(change));
            let one = isize::from(queue != 0);
            count(one);
            LocalQueue::serve(shared, stream, arrived).await;
            count(-one);
        }
    }
}
