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
//! - it answers also when there are no more descriptors.
//!
//! Not here: what a request is allowed ([`crate::http`]).

mod accept;
mod connection;
mod places;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::front::Front;
use crate::http::User;
use accept::Accepting;
pub use places::Guest;
use places::{Key, Places};

/// A handshake may take so long.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// A connection may be without a request for so long, and the head of one may take as long.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Connections of the control socket, and those of one user: command lines that wait, streams of events.
const CONTROL: (usize, usize) = (128, 64);

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

/// One way in.
pub struct Door {
    accepting: Accepting,
    router: Router,
    places: Arc<Places>,
    front: Option<Arc<Front>>,
}

impl Door {
    /// The control socket.
    #[must_use]
    pub fn control(listener: UnixListener, router: Router) -> Door {
        let accepting = Accepting::unix(listener);
        Door { accepting, router, places: Places::new(CONTROL), front: None }
    }

    /// The address of the metrics.
    #[must_use]
    pub fn metrics(listener: TcpListener, router: Router) -> Door {
        let accepting = Accepting::tcp("metrics", listener);
        Door { accepting, router, places: Places::new(METRICS), front: None }
    }

    /// The addresses of the API, which share their places.
    #[must_use]
    pub fn tls(listeners: Vec<TcpListener>, router: &Router, front: &Arc<Front>) -> Vec<Door> {
        let places = Places::new(TLS);
        let door = |listener| Door {
            accepting: Accepting::tcp("API", listener),
            router: router.clone(),
            places: places.clone(),
            front: Some(front.clone()),
        };
        listeners.into_iter().map(door).collect()
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
                    let key = arrived.key();
                    match self.places.take(key) {
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
fn key_of(user: &User) -> Key {
    Key::User(user.uid.unwrap_or(u32::MAX))
}
