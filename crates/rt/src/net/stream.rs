//! A connection: one task may receive while another sends.
//!
//! A receive or send whose future is dropped is cancelled, and what it had already moved is lost: the stream is then
//! good only for `shutdown`.
//!
//! Invariant: an answer of `send_all`, `recv_exact` or `recv_rest` is about the whole.
//!
//! Not here: framing; order among several senders (the caller has one, or takes turns).

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType, sendmsg, sockopt,
};

use super::{Addr, raw_address};
use crate::ring::{Operation, PARTS_MAX, Request, SendHeader, advance};
use crate::{Buf, Bytes, Rt};

/// As many bytes are sent at once, without the ring: a lone answer, or some without data. The ring's send ends in the same
/// call of the kernel that also would have slept until the next request; without it that takes a second one. More bytes are
/// the answers of many requests, of which few still pay for a call of their own.
const AT_ONCE_BYTES: usize = 16 << 10;

/// A peer that has not confirmed what was sent for so long is gone: with a window that is open, it would have been asked some
/// eight times. With one that is closed the kernel asks every two minutes.
const LOST: Duration = Duration::from_secs(60);
const LOST_CLOSED: Duration = Duration::from_secs(300);

pub(super) struct Connection {
    pub(super) rt: Rt,
    pub(super) fd: Rc<OwnedFd>,
    peer: String,
}

/// A connected socket; clones share it, and the last one closes it.
#[derive(Clone)]
pub struct Stream(pub(super) Rc<Connection>);

impl Stream {
    /// Connects to a server.
    pub async fn connect(rt: &Rt, addr: &Addr) -> io::Result<Stream> {
        let family = match addr {
            Addr::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Addr::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Addr::Unix(_) => AddressFamily::UNIX,
        };
        let fd = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let fd = Rc::new(fd);
        let mut address = raw_address(addr)?;
        loop {
            let request = Request::Connect { fd: fd.clone(), address };
            let (answer, request) = Operation::new(&rt.inner, request, None).await;
            match -answer {
                libc::EINTR | libc::EAGAIN => {
                    let Request::Connect { address: back, .. } = request else {
                        unreachable!("a request comes back as it went")
                    };
                    address = back;
                    // A unix server whose queue is full says EAGAIN; the queue needs time to move.
                    rt.sleep(std::time::Duration::from_millis(1)).await;
                }
                error if error > 0 && error != libc::EISCONN => {
                    return Err(io::Error::from_raw_os_error(error));
                }
                _ => return Ok(Stream::from_shared(rt, fd)),
            }
        }
    }

    /// A connection that another runtime has accepted, or made.
    #[must_use]
    pub fn new(rt: &Rt, fd: OwnedFd) -> Stream {
        Stream::from_shared(rt, Rc::new(fd))
    }

    /// The connection, for another runtime. Nothing may be in flight on it here.
    ///
    /// # Errors
    /// When clones are left and no further descriptor can be had.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        let shared = match Rc::try_unwrap(self.0) {
            Ok(connection) => Rc::try_unwrap(connection.fd),
            Err(connection) => Err(connection.fd.clone()),
        };
        shared.or_else(|fd| fd.try_clone())
    }

    fn from_shared(rt: &Rt, fd: Rc<OwnedFd>) -> Stream {
        let peer = describe_peer(&fd);
        if peer.starts_with("tcp:") {
            // Answers are small and must not wait for more. Failing costs only speed.
            let _ = sockopt::set_tcp_nodelay(&fd, true);
        }
        Stream(Rc::new(Connection { rt: Rt::from_inner(&rt.inner), fd, peer }))
    }

    /// Receives what is there, at least a byte; 0 is the end.
    pub async fn recv(&self, buf: Buf) -> (io::Result<usize>, Buf) {
        self.recv_into(buf, 0).await
    }

    /// Fills `buf`; `UnexpectedEof` when the end comes first.
    pub async fn recv_exact(&self, buf: Buf) -> (io::Result<()>, Buf) {
        self.recv_rest(buf, 0).await
    }

    /// Fills `buf` from `done` on; what lies before stays.
    pub async fn recv_rest(&self, buf: Buf, done: usize) -> (io::Result<()>, Buf) {
        let (mut buf, mut done) = (buf, done);
        while done < buf.len() {
            let (answer, back) = self.recv_into(buf, done).await;
            buf = back;
            match answer {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(n) => done += n,
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    /// Receives what is there now, without the ring; `None` when nothing is, 0 is the end. A call of the kernel for little or
    /// nothing costs more than one that brings much.
    pub fn recv_now(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::net::recv(&self.0.fd, into, RecvFlags::DONTWAIT) {
            Ok((received, _)) => Ok(Some(received)),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn recv_into(&self, buf: Buf, done: usize) -> (io::Result<usize>, Buf) {
        let mut buf = buf;
        if done == buf.len() {
            return (Ok(0), buf);
        }
        loop {
            let request = Request::Recv { fd: self.0.fd.clone(), buf, done };
            let (answer, request) = Operation::new(&self.0.rt.inner, request, None).await;
            let Request::Recv { buf: back, .. } = request else { unreachable!("a request comes back as it went") };
            buf = back;
            if let Some(answer) = judge(answer) {
                return (answer, buf);
            }
        }
    }

    /// Sends every part, in order.
    pub async fn send_all(&self, parts: Vec<Bytes>) -> io::Result<()> {
        let mut parts = VecDeque::from(parts);
        parts.retain(|part| !part.is_empty());
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        if (1..=AT_ONCE_BYTES).contains(&bytes) {
            self.send_at_once(&mut parts)?;
        }
        if parts.is_empty() {
            return Ok(());
        }
        let mut header = SendHeader::new();
        while !parts.is_empty() {
            let request = Request::Send { fd: self.0.fd.clone(), parts, header };
            let (answer, request) = Operation::new(&self.0.rt.inner, request, None).await;
            let Request::Send { parts: back, header: back_header, .. } = request else {
                unreachable!("a request comes back as it went")
            };
            (parts, header) = (back, back_header);
            match judge(answer) {
                Some(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Some(Ok(n)) => advance(&mut parts, n),
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        Ok(())
    }

    /// Sends what the socket takes without waiting, and leaves the rest.
    fn send_at_once(&self, parts: &mut VecDeque<Bytes>) -> io::Result<()> {
        let vector: Vec<IoSlice<'_>> = parts.iter().take(PARTS_MAX).map(|part| IoSlice::new(part)).collect();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&self.0.fd, &vector, &mut SendAncillaryBuffer::default(), flags) {
            Ok(sent) => advance(parts, sent),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Ends both directions: a pending receive gets the end, the peer too.
    pub fn shutdown(&self) {
        // Fails only when the peer has done it already.
        let _ = rustix::net::shutdown(&self.0.fd, Shutdown::Both);
    }

    /// Whether the peer has closed its side, also while bytes that it sent before wait to be received.
    #[must_use]
    pub fn is_closed_by_peer(&self) -> bool {
        let mut socket = [PollFd::new(&self.0.fd, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // What cannot be asked is no connection.
        poll(&mut socket, Some(&now)).map_or(true, |ready| ready > 0)
    }

    /// Waits until the peer has closed its side, also while bytes that it sent before wait to be received.
    pub async fn closed_by_peer(&self) {
        let request = Request::HangUp { fd: self.0.fd.clone() };
        // What cannot be asked is no connection.
        let _answer = Operation::new(&self.0.rt.inner, request, None).await;
    }

    /// Whether nothing has been heard of the peer for too long, though it should have answered: data that was sent is not
    /// confirmed. A peer that takes no data, and says so, is given longer: its answers come seldom. One of whom nothing is
    /// expected is looked after by the kernel (`listener`).
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let Some(info) = tcp_info(&self.0.fd) else { return false };
        let expected = info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0;
        let patience = if info.tcpi_probes > 0 { LOST_CLOSED } else { LOST };
        expected && Duration::from_millis(u64::from(info.tcpi_last_ack_recv)) >= patience
    }

    /// The address of the other end; none of a socket file.
    #[must_use]
    pub fn peer_ip(&self) -> Option<IpAddr> {
        peer_address(&self.0.fd).map(|address| address.ip())
    }

    /// The number of its descriptor.
    pub(super) fn descriptor(&self) -> u64 {
        u64::from(self.0.fd.as_raw_fd().unsigned_abs())
    }

    /// Who is at the other end, for logs: "tcp:10.0.0.1:4711" or "unix:pid 7 uid 0".
    #[must_use]
    pub fn peer(&self) -> String {
        self.0.peer.clone()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.0.peer)
    }
}

/// What the kernel knows of a TCP connection; none of another.
fn tcp_info(fd: &OwnedFd) -> Option<libc::tcp_info> {
    // SAFETY: all zeros is a valid tcp_info, which consists of numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes, which `info` has.
    let asked = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast::<libc::c_void>(),
            &raw mut len,
        )
    };
    (asked == 0).then_some(info)
}

/// None: try again.
fn judge(answer: i32) -> Option<io::Result<usize>> {
    match usize::try_from(answer) {
        Ok(n) => Some(Ok(n)),
        Err(_) if [libc::EINTR, libc::EAGAIN].contains(&-answer) => None,
        Err(_) => Some(Err(io::Error::from_raw_os_error(-answer))),
    }
}

pub(super) fn peer_address(fd: &OwnedFd) -> Option<SocketAddr> {
    rustix::net::getpeername(fd).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok())
}

fn describe_peer(fd: &OwnedFd) -> String {
    match peer_address(fd) {
        Some(address) => format!("tcp:{address}"),
        None => match sockopt::socket_peercred(fd) {
            Ok(who) => format!("unix:pid {} uid {}", who.pid.as_raw_nonzero(), who.uid.as_raw()),
            Err(_) => "gone".to_owned(),
        },
    }
}
