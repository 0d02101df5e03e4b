//! The server: accepts, counts, and stops in order.
//!
//! Start: bind every address, then accept on each. Stop, as named steps: refuse (no new connections, ESHUTDOWN for new
//! requests), finish (requests in flight complete), linger (peers learn of it), close.
//!
//! Invariant: after `stop` no request is in flight and no task of the server uses a namespace.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    io,
    pin::pin,
    rc::Rc,
    time::Duration,
};

use futures::future::{Either, select};
use rt::{
    Rt, Task,
    net::{Addr, Listener, Stream},
};

use super::{
    handshake::{self, House},
    limits::{
        CONNECTION_ALLOWANCE, HANDSHAKE_SECONDS_MAX, ROOMS, SHARED_BYTES_MAX, STOP_LINGER_MILLIS, STOP_SEND_SECONDS_MAX,
    },
    session::{Job, Session},
    wire::REQUEST_BYTES,
};
use crate::{
    clients::{Client, Clients},
    counters::{Counters, Live},
    namespace::Directory,
    stream::{
        accept::{Arrival, accept, end_lost},
        budget::Budget,
        door::{Door, Guest},
        pool::Pool,
        progress::Progress,
        rare::Rare,
        reader::Reader,
        signal::Signal,
        task_pool::{TaskPool, WAITING_BYTES},
    },
};

/// A running NBD server. Dropping the handle lets it run on; [`Server::stop`] ends it.
pub struct Server<D: Directory> {
    shared: Rc<Shared<D>>,
    addresses: Vec<Addr>,
    acceptors: RefCell<Vec<Task<()>>>,
}

struct Shared<D: Directory> {
    rt: Rt,
    directory: D,
    memory: Rc<Pool>,
    progress: Rc<Progress>,
    tasks: Rc<TaskPool<Job<D::N>>>,
    counters: RefCell<BTreeMap<String, Rc<Live>>>,
    clients: Clients,
    connections: RefCell<BTreeMap<u64, Stream>>,
    next_connection: Cell<u64>,
    closed: Signal,
    rare: Rc<Rare>,
}

impl<D: Directory> Shared<D> {
    fn new(rt: &Rt, directory: D, shared_bytes: u64, clients: Clients) -> Rc<Shared<D>> {
        let shared = Rc::new(Shared {
            rt: rt.clone(),
            rare: Rare::new(rt),
            directory,
            memory: Pool::new(shared_bytes),
            progress: Rc::default(),
            tasks: TaskPool::new(WAITING_BYTES),
            counters: RefCell::default(),
            clients,
            connections: RefCell::default(),
            next_connection: Cell::new(0),
            closed: Signal::default(),
        });
        let connections = |shared: &Self| shared.connections.borrow().values().cloned().collect();
        rt.spawn(end_lost(rt.clone(), Rc::downgrade(&shared), connections)).detach();
        shared
    }
}

impl<D: Directory> Server<D> {
    /// Binds all addresses and serves what the directory holds at each connection's time.
    ///
    /// # Errors
    /// When an address cannot be bound; then none is served.
    pub fn start(rt: &Rt, directory: D, addresses: &[Addr]) -> io::Result<Server<D>> {
        let listeners = addresses.iter().map(|a| Listener::bind(rt, a)).collect::<io::Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(Listener::local_addr).collect();
        let shared = Shared::new(rt, directory, SHARED_BYTES_MAX, Clients::default());
        let door = Door::new(ROOMS);
        let accept = |listener| {
            let (shared, rare) = (shared.clone(), shared.rare.clone());
            let serve = move |stream, arrival| shared.rt.spawn(connection(shared.clone(), stream, arrival)).detach();
            rt.spawn(accept(rt.clone(), listener, door.clone(), rare, "nbd", serve))
        };
        let acceptors = RefCell::new(listeners.into_iter().map(accept).collect());
        Ok(Server { shared, addresses, acceptors })
    }

    /// One of `of` servers that serve what [`Server::connection`] is given; each has its part of the memory for requests.
    pub(super) fn one_of(of: usize, rt: &Rt, directory: D, clients: Clients) -> Server<D> {
        Server {
            shared: Shared::new(rt, directory, SHARED_BYTES_MAX / of as u64, clients),
            addresses: vec![],
            acceptors: RefCell::default(),
        }
    }

    /// Serves a connection to its end.
    pub(super) fn connection(&self, stream: Stream, arrival: Arrival) -> impl Future<Output = ()> + use<D> {
        connection(self.shared.clone(), stream, arrival)
    }

    /// The addresses it listens on, with the port that a port of zero became.
    #[must_use]
    pub fn local_addrs(&self) -> &[Addr] {
        &self.addresses
    }

    /// Counters of every export that has had a connection, by name.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, Counters)> {
        self.shared.counters.borrow().iter().map(|(name, live)| (name.clone(), live.read())).collect()
    }

    /// Hosts that are connected, and have chosen an export.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        self.shared.clients.list()
    }

    /// Stops: no new connections, requests in flight are finished and answered, later ones get ESHUTDOWN, then all
    /// connections are closed. Waits as long as the namespaces need, but not for peers that do not take their answers.
    pub async fn stop(&self) {
        let shared = &self.shared;
        // Refuse.
        shared.progress.stop();
        self.acceptors.borrow_mut().drain(..).for_each(|acceptor| acceptor.cancel());
        // Finish.
        shared.progress.executed().await;
        self.at_most(Duration::from_secs(STOP_SEND_SECONDS_MAX), shared.progress.answered()).await;
        // Linger.
        let all_closed = || shared.closed.until(|| shared.connections.borrow().is_empty());
        self.at_most(Duration::from_millis(STOP_LINGER_MILLIS), all_closed()).await;
        // Close.
        shared.connections.borrow().values().for_each(Stream::shutdown);
        all_closed().await;
        shared.tasks.close();
    }

    async fn at_most(&self, patience: Duration, event: impl Future<Output = ()>) {
        select(pin!(event), pin!(self.shared.rt.sleep(patience))).await;
    }
}

/// A connection from its first byte to its last.
async fn connection<D: Directory>(shared: Rc<Shared<D>>, stream: Stream, arrival: Arrival) {
    let id = shared.next_connection.get();
    shared.next_connection.set(id + 1);
    shared.connections.borrow_mut().insert(id, stream.clone());
    tracing::debug!(id, peer = stream.peer(), "nbd: connected");
    let Arrival { guest, told } = arrival;
    Arrival::until_told(told, &stream, serve(&shared, &stream, &guest)).await;
    stream.shutdown();
    tracing::debug!(id, "nbd: disconnected");
    shared.connections.borrow_mut().remove(&id);
    drop(guest);
    shared.closed.notify();
}

async fn serve<D: Directory>(shared: &Shared<D>, stream: &Stream, guest: &Guest) {
    let mut reader = Reader::new(stream.clone(), REQUEST_BYTES);
    let house = House {
        rt: &shared.rt,
        directory: &shared.directory,
        progress: &shared.progress,
        rare: &shared.rare,
        clients: &shared.clients,
    };
    let handshake = handshake::run(&house, stream, guest, &mut reader);
    let patience = shared.rt.sleep(Duration::from_secs(HANDSHAKE_SECONDS_MAX));
    let (agreed, present) = match select(pin!(handshake), pin!(patience)).await {
        Either::Left((Ok(Some(agreed)), _)) => agreed,
        Either::Left((Ok(None) | Err(_), _)) => return,
        Either::Right(_) => {
            let line = || tracing::warn!(peer = stream.peer(), "nbd: the handshake takes too long");
            return shared.rare.say("handshakes that take too long", line);
        }
    };
    let live = shared.counters.borrow_mut().entry(agreed.name.clone()).or_default().clone();
    live.update(|c| {
        c.connections += 1;
        c.connections_total += 1;
    });
    let budget = Budget::new(&shared.rt, &CONNECTION_ALLOWANCE, &shared.memory);
    Session::new(&shared.rare, stream, agreed, live.clone(), budget, &shared.progress, &shared.tasks).run(reader).await;
    live.update(|c| c.connections -= 1);
    drop(present);
}
