//! Who may connect to the control thread, and for how long: the control socket, the metrics, the API over TLS.
//!
//! ```text
//!   accept -> a place (places) -> handshake (TLS) -> requests (connection) -> the end
//! ```
//!
//! Invariants:
//! - everything has a limit: connections, those of one peer, the time of a handshake, of a header and of a body, the time without
//!   a request, and the time in which a client takes nothing of its answer;
//! - a connection that nobody has proved to be anybody's on keeps no other out;
//! - nobody keeps root and the server's own user out of the control socket, but they themselves;
//! - it answers also when there are no more descriptors.
//!
//! Not here: what a request is allowed ([`crate::http`]).

mod accept;
mod connection;
pub mod metrics;
mod places;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::front::Front;
use crate::http::User;
use accept::{Accepting, Arrived};
pub use places::{Guest, Key};
use places::{Place, Places};

/// A handshake may take so long.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// A connection may be without a request for so long, and the head of one may take as long.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Connections of the control socket, and those of one user: command lines that wait, streams of events.
const CONTROL: (usize, usize) = (128, 64);

/// Those of root and of the server's own user, beside these: whatever others do, somebody can stop the server.
const OWN: (usize, usize) = (128, 64);

/// Connections of the metrics, all of this machine.
const METRICS: (usize, usize) = (16, 16);

/// Connections over TLS, and those of one address.
const TLS: (usize, usize) = (128, 32);

/// The two ends of a connection over TCP.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The other side.
    pub from: SocketAddr,
    /// This side.
    pub to: SocketAddr,
}

/// Has an address, once that can be done.
pub type Listen = Box<dyn Fn() -> Option<std::net::TcpListener> + Send + Sync>;

/// Where connections over TCP come from.
pub enum Listening {
    /// This socket.
    Now(std::net::TcpListener),
    /// One that could not be had yet; it is asked for again and again.
    Later(Listen),
}

impl Listening {
    /// Where it listens, if it does.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listening::Now(listener) => listener.local_addr().ok(),
            Listening::Later(_) => None,
        }
    }
}

/// One way in.
pub struct Door {
    accepting: Accepting,
    router: Router,
    places: Arc<Places>,
    /// For root and the server's own user, where the kernel says who somebody is.
    own: Option<Arc<Places>>,
    front: Option<Arc<Front>>,
}

impl Door {
    /// The control socket.
    #[must_use]
    pub fn control(listener: UnixListener, router: Router) -> Door {
        let accepting = Accepting::unix(listener);
        Door { accepting, router, places: Places::new(CONTROL), own: Some(Places::new(OWN)), front: None }
    }

    /// The address of the metrics.
    ///
    /// # Errors
    /// When its socket is none.
    pub fn metrics(listening: Listening, router: Router) -> io::Result<Door> {
        let accepting = Accepting::tcp("metrics", listening)?;
        Ok(Door { accepting, router, places: Places::new(METRICS), own: None, front: None })
    }

    /// The addresses of the API, which share their places.
    ///
    /// # Errors
    /// When one of its sockets is none.
    pub fn tls(listening: Vec<Listening>, router: &Router, front: &Arc<Front>) -> io::Result<Vec<Door>> {
        let places = Places::new(TLS);
        let door = |listening| {
            Ok(Door {
                accepting: Accepting::tcp("API", listening)?,
                router: router.clone(),
                places: places.clone(),
                own: None,
                front: Some(front.clone()),
            })
        };
        listening.into_iter().map(door).collect()
    }

    /// A place for who has come, if there is one.
    fn place(&self, arrived: &Arrived) -> Option<Place> {
        let own = self.own.as_ref().filter(|_| arrived.is_root_or_own());
        own.unwrap_or(&self.places).take(arrived.key())
    }

    /// Lets in whoever comes, until the stop; then answers what was asked.
    pub async fn serve(mut self, mut stopped: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        let stop = stopped.clone();
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => break,
                Some(_ended) = connections.join_next() => {}
                arrived = self.accepting.next() => {
                    match self.place(&arrived) {
                        Some(place) => {
                            let (router, front, stop) = (self.router.clone(), self.front.clone(), stop.clone());
                            connections.spawn(connection::serve(arrived, router, front, place, stop));
                        }
                        None => arrived.refuse(self.front.is_some()),
                    }
                }
            }
        }
        while connections.join_next().await.is_some() {}
    }
}

/// By whom places are counted.
pub fn key_of(user: &User) -> Key {
    Key::User(user.uid.unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn root_has_places_that_others_cannot_take() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("control.sock")).unwrap();
        let door = Door::control(listener, Router::new());
        let place = |uid: u32| {
            let stream = UnixStream::pair().unwrap().0;
            let place = door.place(&Arrived::Unix(stream, User { uid: Some(uid), gid: None }))?;
            place.guest().is_known_now();
            Some(place)
        };
        // Nobody has these numbers.
        let many = |uid: u32| (0..70).filter_map(|_| place(uid)).collect::<Vec<_>>();
        let others = [3_000_000_000, 3_000_000_001, 3_000_000_002].map(many);
        assert_eq!(others.each_ref().map(Vec::len), [64, 64, 0]);
        assert_eq!(many(0).len(), 64);
        assert_eq!(many(rustix::process::geteuid().as_raw()).len(), 64);
    }
}
