//! One operation of the ring: what it asks, and the memory that the kernel uses meanwhile.
//!
//! A request is the keep-alive of its own operation: it owns the descriptor and every buffer that its entry points
//! to. The slot table holds it from before the entry is queued until the kernel has answered.
//!
//! Invariant: everything an entry points to is on the heap, behind the request, and does not move with it.
//!
//! Not here: continuing short transfers (`drive::file`, `net::stream`).
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use io_uring::{opcode, squeue, types};

use super::Command;
use crate::{Buf, Bytes};

/// Longest single transfer; the kernel's own limit is 2 GiB less a page.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// Parts in one send or write: the kernel's UIO_MAXIOV.
pub(crate) const PARTS_MAX: usize = 1024;

/// An operation and all it needs.
pub(crate) enum Request {
    /// Fills `buf[done..]` from byte `at + done` on.
    Read { fd: Rc<OwnedFd>, buf: Buf, done: usize, at: u64 },
    /// Writes the parts behind each other from byte `at` on.
    Write { fd: Rc<OwnedFd>, parts: VecDeque<Bytes>, vector: Vec<libc::iovec>, at: u64 },
    /// fdatasync.
    Sync { fd: Rc<OwnedFd> },
    /// Punches a hole.
    Punch { fd: Rc<OwnedFd>, at: u64, len: u64 },
    /// Receives into `buf[done..]`.
    Recv { fd: Rc<OwnedFd>, buf: Buf, done: usize },
    /// Sends the parts in their order.
    Send { fd: Rc<OwnedFd>, parts: VecDeque<Bytes>, header: Box<SendHeader> },
    /// Accepts a connection.
    Accept { fd: Rc<OwnedFd> },
    /// Connects.
    Connect { fd: Rc<OwnedFd>, address: Box<Address> },
    /// Waits until there is something to read.
    Readable { fd: Rc<OwnedFd> },
    /// Waits until the peer of a socket has closed its side.
    HangUp { fd: Rc<OwnedFd> },
    /// Takes an eventfd's count.
    Count { fd: Rc<OwnedFd>, buf: Box<[u8; 8]> },
    /// Adds to an eventfd's count.
    Tell { fd: Rc<OwnedFd>, count: Box<[u8; 8]> },
    /// An NVMe command; a wide ring's.
    Command(Box<Command>),
    /// A command of ublk that gives back a request, if one was in hand, and waits for the next one. It points to nothing.
    Fetch { fd: Rc<OwnedFd>, operation: u32, command: [u8; 16] },
}

/// The header of a sendmsg and its vector.
pub(crate) struct SendHeader {
    message: libc::msghdr,
    vector: Vec<libc::iovec>,
}

impl SendHeader {
    pub(crate) fn new() -> Box<SendHeader> {
        // SAFETY: all zeros is a valid msghdr: no name, no vector, no control data.
        let message = unsafe { std::mem::zeroed() };
        Box::new(SendHeader { message, vector: Vec::new() })
    }
}

/// A socket address as the kernel reads it.
pub(crate) struct Address {
    pub(crate) storage: libc::sockaddr_storage,
    pub(crate) len: libc::socklen_t,
}

impl Request {
    /// Whether it can wait for ever and be cancelled, which it is when it is dropped.
    pub(crate) fn is_endless(&self) -> bool {
        match self {
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Sync { .. }
            | Request::Punch { .. }
            | Request::Command(_)
            | Request::Fetch { .. } => false,
            Request::Recv { .. }
            | Request::Send { .. }
            | Request::Accept { .. }
            | Request::Connect { .. }
            | Request::Readable { .. }
            | Request::HangUp { .. }
            | Request::Count { .. }
            | Request::Tell { .. } => true,
        }
    }

    /// Whether the ring's end does not wait for it: the kernel takes no cancel for it, touches no memory of ours, and ends it with the process.
    pub(super) fn ends_with_process(&self) -> bool {
        matches!(self, Request::Fetch { .. })
    }

    /// The entry for the kernel. It points into this request's heap memory.
    pub(super) fn entry(&mut self) -> squeue::Entry {
        match self {
            Request::Read { fd, buf, done, at } => {
                let rest = &mut buf[*done..];
                let len = rest.len().min(TRANSFER_BYTES_MAX) as u32;
                opcode::Read::new(raw(fd), rest.as_mut_ptr(), len).offset(*at + *done as u64).build()
            }
            Request::Write { fd, parts, vector, at } => {
                fill(vector, parts);
                opcode::Writev::new(raw(fd), vector.as_ptr(), vector.len() as u32).offset(*at).build()
            }
            Request::Sync { fd } => opcode::Fsync::new(raw(fd)).flags(types::FsyncFlags::DATASYNC).build(),
            Request::Punch { fd, at, len } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(raw(fd), *len).offset(*at).mode(mode).build()
            }
            Request::Recv { fd, buf, done } => {
                let rest = &mut buf[*done..];
                let len = rest.len().min(TRANSFER_BYTES_MAX) as u32;
                opcode::Recv::new(raw(fd), rest.as_mut_ptr(), len).build()
            }
            Request::Send { fd, parts, header } => {
                fill(&mut header.vector, parts);
                header.message.msg_iov = header.vector.as_mut_ptr();
                header.message.msg_iovlen = header.vector.len() as _;
                opcode::SendMsg::new(raw(fd), &raw const header.message).flags(libc::MSG_NOSIGNAL as u32).build()
            }
            Request::Accept { fd } => {
                let flags = libc::SOCK_CLOEXEC;
                opcode::Accept::new(raw(fd), std::ptr::null_mut(), std::ptr::null_mut()).flags(flags).build()
            }
            Request::Connect { fd, address } => {
                opcode::Connect::new(raw(fd), (&raw const address.storage).cast(), address.len).build()
            }
            Request::Readable { fd } => opcode::PollAdd::new(raw(fd), libc::POLLIN as u32).build(),
            Request::HangUp { fd } => opcode::PollAdd::new(raw(fd), libc::POLLRDHUP as u32).build(),
            Request::Count { fd, buf } => opcode::Read::new(raw(fd), buf.as_mut_ptr(), 8).build(),
            Request::Tell { fd, count } => opcode::Write::new(raw(fd), count.as_ptr(), 8).build(),
            Request::Fetch { fd, operation, command } => {
                opcode::UringCmd16::new(raw(fd), *operation).cmd(*command).build()
            }
            Request::Command(_) => unreachable!("only a drive that was proven in a wide ring sends commands"),
        }
    }

    /// The same for a wide ring.
    pub(super) fn wide_entry(&mut self) -> squeue::Entry128 {
        match self {
            Request::Command(command) => command.entry(),
            other => other.entry().into(),
        }
    }
}

/// Makes the vector name the parts, as many as the kernel takes at once.
fn fill(vector: &mut Vec<libc::iovec>, parts: &VecDeque<Bytes>) {
    vector.clear();
    vector.extend(parts.iter().take(PARTS_MAX).map(named));
}

/// A part as the kernel names it.
pub(super) fn named(part: &Bytes) -> libc::iovec {
    libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() }
}

/// Takes the first `done` bytes off.
pub(crate) fn advance(parts: &mut VecDeque<Bytes>, done: usize) {
    let mut done = done;
    while done > 0 {
        let first = parts.pop_front().expect("no more bytes are moved than there were");
        if done < first.len() {
            parts.push_front(first.slice(done..first.len()));
            return;
        }
        done -= first.len();
    }
}

pub(super) fn raw(fd: &OwnedFd) -> types::Fd {
    types::Fd(fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advancing_over_parts() {
        let parts = || VecDeque::from([Bytes::from_slice(b"abc"), Bytes::from_slice(b"de"), Bytes::from_slice(b"f")]);
        for (done, left) in [(0, "abcdef"), (1, "bcdef"), (3, "def"), (4, "ef"), (5, "f"), (6, "")] {
            let mut parts = parts();
            advance(&mut parts, done);
            let bytes: Vec<u8> = parts.iter().flat_map(|p| p.to_vec()).collect();
            assert_eq!(bytes, left.as_bytes());
        }
    }
}
