//! A block device or regular file: the verbs as ring operations.
//!
//! Invariants: short transfers are continued and interrupted ones repeated, so an answer is about the whole; a
//! write of nothing is an error, never a loop.
//!
//! Not here: opening (`open`), what sysfs knows (`sysfs`).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use super::{IoError, Load};
use crate::ring::{Operation, Request, advance};
use crate::{Buf, Bytes, Rt};

/// Alignment of memory that every drive takes.
const SECTOR_BYTES: usize = 512;

/// An open block device or file.
pub(crate) struct File {
    pub(super) fd: Rc<OwnedFd>,
    /// A block device's directory in sysfs; it vanishes with the device.
    pub(super) sysfs: Option<PathBuf>,
}

/// What an answer of the kernel means for the loop around it.
enum Answer {
    Bytes(usize),
    Again,
    Failed(IoError),
}

impl File {
    pub(super) async fn read(&self, rt: &Rt, load: &Rc<Load>, at: u64, buf: Buf) -> (Result<(), IoError>, Buf) {
        let (mut buf, mut done) = (buf, 0);
        while done < buf.len() {
            let request = Request::Read { fd: self.fd.clone(), buf, done, at };
            let (answer, request) = Operation::new(&rt.inner, request, Some(load.clone())).await;
            let Request::Read { buf: back, .. } = request else { unreachable!("a request comes back as it went") };
            buf = back;
            match self.judge(answer) {
                // The end of the file within the drive: it was cut short behind our back.
                Answer::Bytes(0) => return (Err(IoError::Medium), buf),
                Answer::Bytes(n) => done += n,
                Answer::Again => {}
                Answer::Failed(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    pub(super) async fn write(&self, rt: &Rt, load: &Rc<Load>, at: u64, parts: Vec<Bytes>) -> Result<(), IoError> {
        // O_DIRECT refuses memory that is not aligned to a sector, as a payload behind a protocol's header is not.
        let is_aligned = |part: &Bytes| (part.as_ptr() as usize).is_multiple_of(SECTOR_BYTES);
        let aligned = |part: Bytes| if is_aligned(&part) { part } else { Bytes::from_slice(&part) };
        let mut parts: VecDeque<Bytes> = parts.into_iter().map(aligned).filter(|part| !part.is_empty()).collect();
        let mut at = at;
        while !parts.is_empty() {
            let request = Request::Write { fd: self.fd.clone(), parts, vector: Vec::new(), at };
            let (answer, request) = Operation::new(&rt.inner, request, Some(load.clone())).await;
            let Request::Write { parts: back, .. } = request else { unreachable!("a request comes back as it went") };
            parts = back;
            match self.judge(answer) {
                Answer::Bytes(0) => return Err(IoError::NoSpace),
                Answer::Bytes(n) => {
                    advance(&mut parts, n);
                    at += n as u64;
                }
                Answer::Again => {}
                Answer::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) async fn flush(&self, rt: &Rt, load: &Rc<Load>) -> Result<(), IoError> {
        loop {
            let request = Request::Sync { fd: self.fd.clone() };
            let (answer, _) = Operation::new(&rt.inner, request, Some(load.clone())).await;
            match self.judge(answer) {
                Answer::Bytes(_) => return Ok(()),
                Answer::Again => {}
                Answer::Failed(error) => return Err(error),
            }
        }
    }

    pub(super) async fn deallocate(&self, rt: &Rt, load: &Rc<Load>, at: u64, len: u64) -> Result<(), IoError> {
        if len == 0 {
            return Ok(());
        }
        loop {
            let request = Request::Punch { fd: self.fd.clone(), at, len };
            let (answer, _) = Operation::new(&rt.inner, request, Some(load.clone())).await;
            if [libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL].contains(&-answer) {
                // The drive or the file system cannot; it was a hint.
                return Ok(());
            }
            match self.judge(answer) {
                Answer::Bytes(_) => return Ok(()),
                Answer::Again => {}
                Answer::Failed(error) => return Err(error),
            }
        }
    }

    fn judge(&self, answer: i32) -> Answer {
        match usize::try_from(answer) {
            Ok(n) => Answer::Bytes(n),
            Err(_) if [libc::EINTR, libc::EAGAIN].contains(&-answer) => Answer::Again,
            Err(_) => Answer::Failed(match IoError::from_errno(-answer) {
                IoError::Medium if self.is_removed() => IoError::Gone,
                error => error,
            }),
        }
    }

    /// A pulled block device answers EIO like a bad sector, but it has left sysfs, or has no size any more.
    fn is_removed(&self) -> bool {
        let Some(sysfs) = &self.sysfs else {
            return false;
        };
        match std::fs::read_to_string(sysfs.join("size")) {
            Ok(size) => size.trim() == "0",
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }
}
