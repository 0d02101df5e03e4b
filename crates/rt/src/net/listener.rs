//! A listening socket.
//!
//! Invariants: a socket file is taken over only from a dead server, and nothing but a socket is ever replaced; the
//! file is removed with the listener, unless somebody has put another one in its place; others than its owner and its group
//! cannot connect, whatever the umask is.
//!
//! Not here: limits on connections (the server counts them).

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::stream::peer_address;
use super::{Addr, Stream, bind_closed};
use crate::Rt;
use crate::ring::{Operation, Request, owned};

/// Whether this machine can listen on some port of an address.
///
/// # Errors
/// `AddrNotAvailable` when it is another machine's.
pub fn may_bind(address: IpAddr) -> io::Result<()> {
    TcpListener::bind((address, 0)).map(drop)
}

/// A listening socket.
pub struct Listener {
    rt: Rt,
    fd: Rc<OwnedFd>,
    addr: Addr,
    _file: Option<SocketFile>,
}

impl Listener {
    /// Listens at `addr`; TCP port 0 takes a free one.
    ///
    /// # Errors
    /// `AddrInUse` when a live server answers there; `AlreadyExists` when a socket's path holds something else. When the kernel does
    /// not have the congestion control that is named ([`Rt::set_congestion`]).
    pub fn bind(rt: &Rt, addr: &Addr) -> io::Result<Listener> {
        let (fd, addr, file) = match addr {
            Addr::Tcp(address) => {
                let socket = TcpListener::bind(address)?;
                let addr = Addr::Tcp(socket.local_addr()?);
                let fd = OwnedFd::from(socket);
                look_after_the_silent(&fd)?;
                rt.inner.congestion.borrow().listen(&fd)?;
                (fd, addr, None)
            }
            Addr::Unix(path) => {
                clear_path(path)?;
                let socket = bind_closed(path, close_to_others).map_err(|e| in_use(path, e))?;
                (OwnedFd::from(socket), addr.clone(), Some(SocketFile::new(path)?))
            }
        };
        // Many may come at once, and whoever finds the queue full comes again only after a second.
        rustix::net::listen(&fd, BACKLOG)?;
        Ok(Listener { rt: Rt::from_inner(&rt.inner), fd: Rc::new(fd), addr, _file: file })
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<Stream> {
        loop {
            let request = Request::Accept { fd: self.fd.clone() };
            let (answer, _) = Operation::new(&self.rt.inner, request, None).await;
            if answer >= 0 {
                let fd = owned(answer);
                if let Some(peer) = peer_address(&fd) {
                    self.rt.inner.congestion.borrow().accepted(&fd, peer.ip());
                }
                return Ok(Stream::new(&self.rt, fd));
            }
            // A client that has gone away again is not an error of the listener.
            if ![libc::EINTR, libc::EAGAIN, libc::ECONNABORTED, libc::EPROTO].contains(&-answer) {
                return Err(io::Error::from_raw_os_error(-answer));
            }
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> Addr {
        self.addr.clone()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.addr)
    }
}

/// Connections that may wait to be accepted; the kernel has a limit of its own (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// A connection on which nothing is heard for so long is asked whether its peer is there, and ends after three questions
/// without an answer: within a minute.
const ASKED_AFTER: Duration = Duration::from_secs(30);
const ASKED_EVERY: Duration = Duration::from_secs(10);
const QUESTIONS: u32 = 3;

/// Connections that are accepted end when their peers have vanished. They take these options from the listening socket.
fn look_after_the_silent(fd: &OwnedFd) -> io::Result<()> {
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, ASKED_AFTER)?;
    sockopt::set_tcp_keepintvl(fd, ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(fd, QUESTIONS)?;
    Ok(())
}

/// Who may read and write by the umask, others never: a host that connects has all of its volume.
fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = fs::symlink_metadata(path)?.permissions().mode() & 0o660;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// What came to the path since it was cleared is another server's socket.
fn in_use(path: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::AlreadyExists {
        return error;
    }
    let text = format!("{}: a server already listens there; stop it or give another path", path.display());
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

/// Removes the socket file of a dead server.
fn clear_path(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?.file_type(),
    };
    if !kind.is_socket() {
        let text = format!("{}: exists and is not a socket; give another path or remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // The kernel keeps the listening socket of a killed server until its ring is torn down, some time after the
    // process is gone: a socket that answers is asked again before it counts as alive.
    let patience = std::time::Instant::now() + DYING_SERVER;
    while somebody_answers(path)? {
        if std::time::Instant::now() > patience {
            return Err(in_use(path, io::ErrorKind::AlreadyExists.into()));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// How long a socket must answer before its server counts as alive.
const DYING_SERVER: std::time::Duration = std::time::Duration::from_secs(2);

fn somebody_answers(path: &Path) -> io::Result<bool> {
    // Without blocking: a live server whose queue is full answers EAGAIN.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// The file of our socket; removed on drop.
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<SocketFile> {
        let meta = fs::symlink_metadata(path)?;
        Ok(SocketFile { path: path.to_owned(), identity: (meta.dev(), meta.ino()) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("{}: the socket file cannot be removed: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::Mode;
    use rustix::process::umask;

    use super::*;

    /// Somebody looks all the time, and the umask forbids nothing: what is there is closed whenever it is seen.
    #[test]
    fn a_unix_listener_is_not_open_to_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("n");
        let rt = Rt::real().expect("a ring");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut seen = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    for entry in fs::read_dir(dir.path()).expect("the directory").flatten() {
                        let Ok(meta) = entry.metadata() else { continue };
                        assert_eq!(meta.mode() & 0o007, 0, "{:?}", entry.path());
                        seen += 1;
                    }
                }
                seen
            });
            let before = umask(Mode::empty());
            let modes: Vec<u32> = (0..300)
                .map(|_| {
                    let listener = Listener::bind(&rt, &Addr::Unix(path.clone())).expect("a socket");
                    let mode = fs::metadata(&path).expect("its file").mode() & 0o777;
                    drop(listener);
                    mode
                })
                .collect();
            umask(before);
            done.store(true, Ordering::Relaxed);
            assert!(modes.iter().all(|mode| *mode == 0o660), "{modes:?}");
            assert!(looking.join().expect("it looked") > 0);
        });
        assert_eq!(fs::read_dir(dir.path()).expect("the directory").count(), 0);
    }

    /// What is accepted takes what the listening socket has.
    #[test]
    fn connections_are_asked_whether_their_peers_are_there() {
        let rt = Rt::real().expect("a ring");
        rt.block_on(async {
            let any_port = "tcp:127.0.0.1:0".parse().expect("an address");
            let listener = Listener::bind(&rt, &any_port).expect("a free port");
            let here = Stream::connect(&rt, &listener.local_addr()).await.expect("it listens");
            let there = listener.accept().await.expect("somebody has come");
            let fd = there.clone().into_fd().expect("a descriptor");
            assert_eq!(sockopt::socket_keepalive(&fd), Ok(true));
            let asked = sockopt::tcp_keepidle(&fd).and_then(|idle| Ok((idle, sockopt::tcp_keepintvl(&fd)?)));
            let (after, every) = asked.expect("a TCP socket");
            assert_eq!(after + every * sockopt::tcp_keepcnt(&fd).expect("a TCP socket"), Duration::from_secs(60));
            assert!(!there.is_lost() && !here.is_lost());
            assert_eq!(there.peer_ip().map(|ip| ip.is_loopback()), Some(true));
        });
    }
}
