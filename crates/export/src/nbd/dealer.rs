//! NBD connections on cores of their own: one core listens and has the namespaces, others serve the connections.
//!
//! ```text
//!   Dealer: accept -> the worker with the fewest connections      Worker: a Server over remote::Remote
//! ```
//!
//! Invariants: a connection goes to one worker and stays there; after `stop` no request is in flight.
//!
//! Not here: threads (who calls makes them, and has each serve its worker).

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::OwnedFd,
    rc::Rc,
};

use futures::future::join_all;
use rt::{
    Rt, Task,
    cross::{CalleeEnd, Caller, Message, calls},
    net::{Addr, Listener, Stream},
};

use super::{Server, limits::ROOMS};
use crate::{
    clients::{Client, Clients},
    namespace::Directory,
    remote::{NearEnd, Remote, WORKERS_MAX, way},
    stream::{
        accept::{Arrival, accept},
        door::Door,
        rare::Rare,
    },
};

/// Listens, and deals connections to workers. Dropping it stops them.
pub struct Dealer {
    workers: Rc<[Dealt]>,
    addresses: Vec<Addr>,
    acceptors: RefCell<Vec<Task<()>>>,
    clients: Clients,
}

/// What the dealer knows of a worker.
struct Dealt {
    orders: Caller<Order>,
    connections: Cell<usize>,
}

/// What a worker is told.
enum Order {
    /// Answered when the connection has ended.
    Serve(OwnedFd, Arrival),
    /// Answered when every connection has; no other order follows.
    Stop,
}

impl Message for Order {
    type Answer = ();

    fn discard((): (), _: &Caller<Order>) {}
}

/// What a core needs to serve the connections that are dealt to it.
pub struct Worker {
    orders: CalleeEnd<Order>,
    namespaces: NearEnd,
    clients: Clients,
    of: usize,
}

impl Dealer {
    /// Binds all addresses, and deals to so many workers, which serve what the directory holds.
    ///
    /// # Errors
    /// When an address cannot be bound; then none is served.
    ///
    /// # Panics
    /// Without a worker, or with more than [`WORKERS_MAX`].
    pub fn start<D: Directory>(
        rt: &Rt,
        directory: &D,
        addresses: &[Addr],
        workers: usize,
    ) -> io::Result<(Dealer, Vec<Worker>)> {
        assert!((1..=WORKERS_MAX).contains(&workers), "1 to {WORKERS_MAX} workers");
        let listeners = addresses.iter().map(|a| Listener::bind(rt, a)).collect::<io::Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(Listener::local_addr).collect();
        let clients = Clients::default();
        let one = |_| {
            let (caller, orders) = calls(rt);
            let (far, namespaces) = way(rt);
            far.serve(rt, directory.clone()).detach();
            let dealt = Dealt { orders: caller.start(rt), connections: Cell::new(0) };
            (dealt, Worker { orders, namespaces, clients: clients.clone(), of: workers })
        };
        let (dealt, ends): (Vec<Dealt>, Vec<Worker>) = (0..workers).map(one).unzip();
        let workers: Rc<[Dealt]> = dealt.into();
        let (door, rare) = (Door::new(ROOMS), Rare::new(rt));
        let accept = |listener| {
            let (workers, of_deal) = (workers.clone(), rt.clone());
            let deal = move |stream, arrival| deal(&of_deal, &workers, stream, arrival);
            rt.spawn(accept(rt.clone(), listener, door.clone(), rare.clone(), "nbd", deal))
        };
        let acceptors = RefCell::new(listeners.into_iter().map(accept).collect());
        Ok((Dealer { workers, addresses, acceptors, clients }, ends))
    }

    /// The addresses it listens on, with the port that a port of zero became.
    #[must_use]
    pub fn local_addrs(&self) -> &[Addr] {
        &self.addresses
    }

    /// Connections of each worker.
    #[must_use]
    pub fn connections(&self) -> Vec<usize> {
        self.workers.iter().map(|worker| worker.connections.get()).collect()
    }

    /// Hosts that are connected to any worker, and have chosen an export.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        self.clients.list()
    }

    /// Stops as [`Server::stop`] does: all workers at once.
    pub async fn stop(&self) {
        self.accept_no_more();
        join_all(self.workers.iter().map(|worker| worker.orders.call(Order::Stop))).await;
    }

    fn accept_no_more(&self) {
        self.acceptors.borrow_mut().drain(..).for_each(|acceptor| acceptor.cancel());
    }
}

impl Drop for Dealer {
    fn drop(&mut self) {
        self.accept_no_more();
        self.workers.iter().for_each(|worker| worker.orders.tell(Order::Stop));
    }
}

/// Gives a connection to the worker that has the fewest, to its end.
fn deal(rt: &Rt, workers: &Rc<[Dealt]>, stream: Stream, arrival: Arrival) {
    let fd = match stream.into_fd() {
        Ok(fd) => fd,
        Err(error) => return tracing::warn!(%error, "nbd: a connection is closed: it cannot be dealt"),
    };
    let there = (0..workers.len()).filter(|number| !workers[*number].orders.is_gone());
    let Some(fewest) = there.min_by_key(|number| workers[*number].connections.get()) else { return };
    let workers = workers.clone();
    let served = workers[fewest].orders.call(Order::Serve(fd, arrival));
    let count = move |change| {
        let connections = &workers[fewest].connections;
        connections.set(connections.get().strict_add_signed(change));
    };
    count(1);
    rt.spawn(async move {
        // Also when the worker is gone.
        let _ended = served.await;
        count(-1);
    })
    .detach();
}

impl Worker {
    /// Serves on this core until the dealer stops; then as [`Server::stop`]. What is served is made of the dealer's directory: of what that
    /// has, some may be nearer to this core.
    pub async fn serve<D: Directory>(self, rt: &Rt, made: impl FnOnce(Remote) -> D) {
        let Worker { orders, namespaces, clients, of } = self;
        let server = Server::one_of(of, rt, made(namespaces.connect(rt)), clients);
        let mut orders = orders.start(rt);
        let mut stopped = None;
        while let Some((order, reply)) = orders.next().await {
            match order {
                Order::Serve(fd, arrival) => {
                    let connection = server.connection(Stream::new(rt, fd), arrival);
                    rt.spawn(async move {
                        connection.await;
                        reply.send(());
                    })
                    .detach();
                }
                Order::Stop => {
                    stopped = Some(reply);
                    break;
                }
            }
        }
        server.stop().await;
        if let Some(stopped) = stopped {
            stopped.send(());
        }
    }
}
