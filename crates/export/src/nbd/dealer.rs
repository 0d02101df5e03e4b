//! NBD connections on threads of their own: one thread listens and has the namespaces, others serve the connections.
//!
//! ```text
//!   Dealer: accept -> the hand with the fewest connections        Hand: a Server over remote::Remote
//! ```
//!
//! Invariants: a connection goes to one hand and stays there; after `stop` no request is in flight.
//!
//! Not here: threads (who calls makes them, and has each serve its hand).

use std::{cell::RefCell, io, os::fd::OwnedFd, rc::Rc};

use rt::{
    MailReceiver, MailSender, Rt, Task,
    net::{Addr, Listener, Stream},
};

use super::{Server, limits::ROOMS};
use crate::{
    clients::{Client, Clients},
    namespace::Directory,
    remote::{GuestEnd, HANDS_MAX, Remote, way},
    stream::{
        accept::{Arrival, accept},
        door::Door,
        rare::Rare,
        signal::Signal,
    },
};

/// Listens, and deals connections to hands. Dropping it stops them.
pub struct Dealer {
    table: Rc<Table>,
    addresses: Vec<Addr>,
    acceptors: RefCell<Vec<Task<()>>>,
    clients: Clients,
}

/// What the dealer knows of its hands.
struct Table {
    places: RefCell<Vec<Place>>,
    changed: Signal,
}

struct Place {
    orders: MailSender<Order>,
    connections: usize,
    ended: bool,
}

enum Order {
    Serve(OwnedFd, Arrival),
    Stop,
}

/// What a thread needs to serve the connections that are dealt to it.
pub struct Hand {
    orders: MailReceiver<Order>,
    closed: MailSender<()>,
    namespaces: GuestEnd,
    clients: Clients,
    of: usize,
}

impl Dealer {
    /// Binds all addresses, and deals to `hands` hands, which serve what the directory holds.
    ///
    /// # Errors
    /// When an address cannot be bound; then none is served.
    ///
    /// # Panics
    /// Without a hand, or with more than [`HANDS_MAX`].
    pub fn start<D: Directory>(
        rt: &Rt,
        directory: &D,
        addresses: &[Addr],
        hands: usize,
    ) -> io::Result<(Dealer, Vec<Hand>)> {
        assert!((1..=HANDS_MAX).contains(&hands), "1 to {HANDS_MAX} hands");
        let listeners = addresses.iter().map(|a| Listener::bind(rt, a)).collect::<io::Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(Listener::local_addr).collect();
        let table = Rc::new(Table { places: RefCell::default(), changed: Signal::default() });
        let (mut dealt, clients) = (vec![], Clients::default());
        for number in 0..hands {
            let (orders, inbox) = rt.mailbox();
            let (closed, ends) = rt.mailbox();
            let (host, namespaces) = way(rt);
            host.serve(rt, directory.clone()).detach();
            rt.spawn(table.clone().watch(number, ends)).detach();
            table.places.borrow_mut().push(Place { orders, connections: 0, ended: false });
            dealt.push(Hand { orders: inbox, closed, namespaces, clients: clients.clone(), of: hands });
        }
        let (door, rare) = (Door::new(ROOMS), Rare::new(rt));
        let accept = |listener| {
            let table = table.clone();
            let deal = move |stream, arrival| table.deal(stream, arrival);
            rt.spawn(accept(rt.clone(), listener, door.clone(), rare.clone(), "nbd", deal))
        };
        let acceptors = RefCell::new(listeners.into_iter().map(accept).collect());
        Ok((Dealer { table, addresses, acceptors, clients }, dealt))
    }

    /// The addresses it listens on, with the port that a port of zero became.
    #[must_use]
    pub fn local_addrs(&self) -> &[Addr] {
        &self.addresses
    }

    /// Connections of each hand.
    #[must_use]
    pub fn connections(&self) -> Vec<usize> {
        self.table.places.borrow().iter().map(|place| place.connections).collect()
    }

    /// Hosts that are connected to any hand, and have chosen an export.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        self.clients.list()
    }

    /// Stops as [`Server::stop`] does: all hands at once.
    pub async fn stop(&self) {
        self.order_stop();
        self.table.changed.until(|| self.table.places.borrow().iter().all(|place| place.ended)).await;
    }

    fn order_stop(&self) {
        self.acceptors.borrow_mut().drain(..).for_each(|acceptor| acceptor.cancel());
        self.table.places.borrow().iter().for_each(|place| {
            place.orders.send(Order::Stop);
        });
    }
}

impl Drop for Dealer {
    fn drop(&mut self) {
        self.order_stop();
    }
}

impl Table {
    /// Gives a connection to the hand that has the fewest.
    fn deal(&self, stream: Stream, arrival: Arrival) {
        let fd = match stream.into_fd() {
            Ok(fd) => fd,
            Err(error) => return tracing::warn!(%error, "nbd: a connection is closed: it cannot be dealt"),
        };
        let mut places = self.places.borrow_mut();
        let fewest = places.iter_mut().filter(|place| !place.ended).min_by_key(|place| place.connections);
        let Some(place) = fewest else { return };
        if place.orders.send(Order::Serve(fd, arrival)) {
            place.connections += 1;
        }
    }

    /// Counts the ends of a hand's connections, and its own.
    async fn watch(self: Rc<Self>, number: usize, mut ends: MailReceiver<()>) {
        while let Some(()) = ends.recv().await {
            self.places.borrow_mut()[number].connections -= 1;
        }
        let place = &mut self.places.borrow_mut()[number];
        (place.ended, place.connections) = (true, 0);
        self.changed.notify();
    }
}

impl Hand {
    /// Serves on this thread until the dealer stops; then as [`Server::stop`].
    pub async fn serve(self, rt: &Rt) {
        self.serve_by(rt, |dealt| dealt).await;
    }

    /// The same, what is served being made of the dealer's directory: of what it has, some may be nearer to this thread.
    pub async fn serve_by<D: Directory>(self, rt: &Rt, made: impl FnOnce(Remote) -> D) {
        let Hand { mut orders, closed, namespaces, clients, of } = self;
        let server = Server::one_of(of, rt, made(namespaces.connect(rt)), clients);
        while let Some(Order::Serve(fd, arrival)) = orders.recv().await {
            let (connection, closed) = (server.connection(Stream::new(rt, fd), arrival), closed.clone());
            rt.spawn(async move {
                connection.await;
                closed.send(());
            })
            .detach();
        }
        server.stop().await;
    }
}
