//! Taking connections off a listener.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, sleep};

use super::places::Key;
use super::{Ends, Listen, Listening, key_of};
use crate::http::User;
use crate::tokens::network;

/// Between two tries to accept when that fails.
const RETRY: Duration = Duration::from_millis(50);

/// Between two tries to have an address.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);

/// The log is told again after so long.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// What somebody is told for whom there is no place.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
    /// TCP, once the address can be had.
    Later(Listen),
}

/// A connection, and whose it is.
pub enum Arrived {
    /// Of a user of this machine.
    Unix(UnixStream, User),
    /// Over TCP.
    Tcp(TcpStream, Ends),
}

impl Arrived {
    /// By whom it is counted.
    pub fn key(&self) -> Key {
        match self {
            Arrived::Unix(_, user) => key_of(user),
            Arrived::Tcp(_, ends) => Key::Address(network(ends.from.ip())),
        }
    }

    /// Whether the kernel says that it is root's, or of who runs the server.
    pub fn is_root_or_own(&self) -> bool {
        match self {
            Arrived::Unix(_, user) => user.is_root_or_own(),
            Arrived::Tcp(..) => false,
        }
    }

    /// Closes it; who does not expect TLS is told why.
    pub fn refuse(self, is_tls: bool) {
        // What does not fit into the socket's buffer at once is not waited for.
        let _told = match self {
            Arrived::Unix(stream, _) => stream.try_write(BUSY),
            Arrived::Tcp(stream, _) if !is_tls => stream.try_write(BUSY),
            Arrived::Tcp(..) => Ok(0),
        };
    }
}

/// A listener that keeps a descriptor for whoever asks what is wrong when there are no others.
pub struct Accepting {
    what: &'static str,
    listener: Listener,
    kept: Option<File>,
    /// When the log was told last.
    told: Option<Instant>,
}

impl Accepting {
    /// The control socket.
    pub fn unix(listener: UnixListener) -> Accepting {
        Accepting { what: "control socket", listener: Listener::Unix(listener), kept: spare(), told: None }
    }

    /// A listener for TCP, called `what` in the log.
    ///
    /// # Errors
    /// When its socket is none.
    pub fn tcp(what: &'static str, listening: Listening) -> io::Result<Accepting> {
        let listener = match listening {
            Listening::Now(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
            Listening::Later(listen) => Listener::Later(listen),
        };
        Ok(Accepting { what, listener, kept: spare(), told: None })
    }

    /// The next that comes. Nothing is lost when this is dropped while it waits.
    pub async fn next(&mut self) -> Arrived {
        loop {
            match self.listener.accept().await {
                Ok(arrived) => {
                    if self.kept.is_none() {
                        self.kept = spare();
                    }
                    return arrived;
                }
                Err(e) => {
                    if self.told.is_none_or(|told| told.elapsed() > TOLD_AGAIN) {
                        self.told = Some(Instant::now());
                        tracing::warn!("{}: cannot accept: {e}; raise the limit (ulimit -n)", self.what);
                    }
                    // What it gives back is for the next try.
                    if self.kept.take().is_none() {
                        sleep(RETRY).await;
                        self.kept = spare();
                    }
                }
            }
        }
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Listener {
    async fn accept(&mut self) -> io::Result<Arrived> {
        while let Listener::Later(listen) = self {
            sleep(LISTEN_AGAIN).await;
            if let Some(listener) = listen() {
                *self = Listener::Tcp(TcpListener::from_std(listener)?);
            }
        }
        match self {
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let who = stream.peer_cred().ok();
                let user = User { uid: who.as_ref().map(|who| who.uid()), gid: who.as_ref().map(|who| who.gid()) };
                Ok(Arrived::Unix(stream, user))
            }
            Listener::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                // One that is gone already has none: its first read ends it.
                let to: SocketAddr = stream.local_addr().unwrap_or(from);
                // An answer is written at once.
                let _at_once = stream.set_nodelay(true);
                Ok(Arrived::Tcp(stream, Ends { from, to }))
            }
            // Not behind the loop above.
            Listener::Later(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_is_had_once_it_can_be() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let first = AtomicBool::new(true);
        let listen = move || (!first.swap(false, Ordering::Relaxed)).then(|| listener.try_clone().unwrap());
        let mut accepting = Accepting::tcp("API", Listening::Later(Box::new(listen))).unwrap();
        let begun = Instant::now();
        let _client = std::net::TcpStream::connect(at).unwrap();
        assert!(matches!(accepting.next().await, Arrived::Tcp(..)));
        assert_eq!(begun.elapsed().as_secs(), 10, "the second try");
    }
}
