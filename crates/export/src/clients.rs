//! Who is connected now: hosts that have chosen something to use, on whichever thread they are served.
//!
//! Invariants: a host is on the list before it is told that it may begin, and until its last request has ended; who only
//! looks what there is, is not on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NBD: a connection uses one namespace.
    Nbd,
    /// NVMe/TCP: a controller uses all namespaces of its subsystem.
    NvmeTcp,
}

/// What a host uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Used {
    /// The namespace of this identity.
    Namespace([u8; 16]),
    /// The subsystem of this qualified name.
    Subsystem(String),
}

/// A host that is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// By which protocol.
    pub protocol: Protocol,
    /// From where: "tcp:10.0.0.1:4711" or "unix:pid 7 uid 0".
    pub peer: String,
    /// Its qualified name, where the protocol has one.
    pub host: Option<String>,
    /// What it uses.
    pub used: Used,
    /// Since when, in seconds since 1970.
    pub since_unix_seconds: u64,
    /// Connections that it has for it: one, or an admin queue and I/O queues.
    pub connections: usize,
}

/// The connected hosts of a server. Clones, on any thread, are the same list.
#[derive(Clone, Default)]
pub(crate) struct Clients(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    next: u64,
    all: BTreeMap<u64, Client>,
}

/// A host's place on the list; it leaves when this is dropped.
pub(crate) struct Present {
    clients: Clients,
    id: u64,
}

impl Clients {
    fn book(&self) -> MutexGuard<'_, Book> {
        // A book that was left half written would be our bug, and the process ends with it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a host on the list.
    pub fn enter(&self, client: Client) -> Present {
        let mut book = self.book();
        let id = book.next;
        book.next += 1;
        book.all.insert(id, client);
        drop(book);
        Present { clients: self.clone(), id }
    }

    /// All of them, the one that has been there longest first.
    pub fn list(&self) -> Vec<Client> {
        self.book().all.values().cloned().collect()
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.clients.book().all.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_listed_while_it_is_there() {
        let clients = Clients::default();
        let client = |peer: &str| Client {
            protocol: Protocol::Nbd,
            peer: peer.to_owned(),
            host: None,
            used: Used::Namespace([7; 16]),
            since_unix_seconds: 1,
            connections: 1,
        };
        let (first, second) =
            (clients.enter(client("tcp:10.0.0.1:1")), clients.clone().enter(client("tcp:10.0.0.2:2")));
        let peers = || clients.list().into_iter().map(|c| c.peer).collect::<Vec<_>>();
        assert_eq!(peers(), ["tcp:10.0.0.1:1", "tcp:10.0.0.2:2"]);
        drop(first);
        assert_eq!(peers(), ["tcp:10.0.0.2:2"]);
        drop(second);
        assert!(peers().is_empty());
    }
}
