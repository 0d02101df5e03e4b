//! Descriptors that are passed over a unix socket (`SCM_RIGHTS`).
//!
//! Invariants: a descriptor that was received is owned at once, so none is lost when its message is refused; more than
//! [`PASSED_MAX`] with one message are closed by the kernel.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::Stream;
use crate::guest::Foreign;
use crate::ring::{Operation, Request};

/// Descriptors that come with one message, at most.
pub const PASSED_MAX: usize = 32;

impl Stream {
    /// Fills `into`; what was passed with it is added to `passed`. `UnexpectedEof` when the end comes first.
    ///
    /// # Errors
    /// When the connection ends or fails.
    pub async fn recv_passed(&self, into: &mut [u8], passed: &mut Vec<Foreign>) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            match receive(self, &mut into[done..], passed) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => done += bytes,
                Err(Errno::AGAIN) => self.readable().await?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn readable(&self) -> io::Result<()> {
        let request = Request::Readable { fd: self.0.fd.clone() };
        let (answer, _) = Operation::new(&self.0.rt.inner, request, None).await;
        if answer < 0 && ![libc::EINTR, libc::EAGAIN].contains(&-answer) {
            return Err(io::Error::from_raw_os_error(-answer));
        }
        Ok(())
    }

    /// Sends a short message and descriptors with it, at once.
    ///
    /// # Errors
    /// When the socket does not take all of it at once: its peer does not listen.
    pub fn send_passing(&self, data: &[u8], passed: &[OwnedFd]) -> io::Result<()> {
        assert!(passed.len() <= PASSED_MAX, "descriptors of one message");
        let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !passed.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&passed)), "there is space for them");
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = sendmsg(&self.0.fd, &[IoSlice::new(data)], &mut control, flags)?;
        if sent < data.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }
}

fn receive(stream: &Stream, into: &mut [u8], passed: &mut Vec<Foreign>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(&stream.0.fd, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            passed.extend(descriptors.map(Foreign::from));
        }
    }
    // A message may come in many pieces, each with descriptors: those that cannot belong to it are closed.
    passed.truncate(PASSED_MAX);
    if Foreign::are_too_many() {
        return Err(Errno::MFILE);
    }
    Ok(received.bytes)
}
