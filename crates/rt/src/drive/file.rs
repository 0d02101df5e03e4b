//! A block device or regular file: the verbs as ring operations.
//!
//! Invariants: short transfers are continued and interrupted ones repeated, so an answer is about the whole; a
//! write of nothing is an error, never a loop; what may block while it is submitted does not run on this thread
//! ([`Blocking`]), and leaves the kernel's workers to others ([`AT_ONCE`]).
//!
//! Not here: opening (`open`), what sysfs knows (`sysfs`), NVMe commands (`nvme`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use rustix::fs::SeekFrom;

use super::polling::OneCommand;
use super::sysfs::is_removed;
use super::{Access, IoError, Load};
use crate::ring::{Answering, Operation, Request, advance};
use crate::{Buf, Bytes, Rt};

/// Alignment of memory that every drive takes.
const SECTOR_BYTES: usize = 512;

/// Requests that one drive whose requests may block has in the kernel at once: each takes a worker until it has its answer,
/// and the ring has [`crate::ring::WORKERS_MAX`] for all.
const AT_ONCE: usize = 16;

/// Whether a request may block the thread that submits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocking {
    /// The kernel hands on what would block: block devices, and file systems that were seen to.
    Never,
    /// It may, so a worker of the kernel submits it: FUSE, network file systems, and whatever is not known.
    Perhaps,
}

impl Blocking {
    /// That of a regular file, by the magic number of its file system.
    pub(super) fn of_file_system(magic: u64) -> Blocking {
        // linux/magic.h. Btrfs and tmpfs have no O_DIRECT writes that wait; all of these honour NOWAIT.
        const EXT4: u64 = 0xEF53;
        const XFS: u64 = 0x5846_5342;
        const BTRFS: u64 = 0x9123_683E;
        const TMPFS: u64 = 0x0102_1994;
        if [EXT4, XFS, BTRFS, TMPFS].contains(&magic) { Blocking::Never } else { Blocking::Perhaps }
    }
}

/// An open block device or file. Clones share it, and how it is used.
#[derive(Clone)]
pub(crate) struct File {
    pub(super) fd: Rc<OwnedFd>,
    /// A block device's directory in sysfs; it vanishes with the device.
    pub(super) sysfs: Option<PathBuf>,
    /// Whether the page cache is passed by.
    direct: bool,
    blocking: Blocking,
    /// Which reads and writes are polled; None inside when none are any more. What was never polled has nothing to ask.
    polled: Option<Rc<Cell<Option<OneCommand>>>>,
    /// Why it is not used in the way that was asked for.
    access_why: Rc<RefCell<Option<String>>>,
}

/// What an answer of the kernel means for the loop around it.
enum Answer {
    Bytes(usize),
    Again,
    Failed(IoError),
}

impl File {
    pub(super) fn new(fd: OwnedFd, sysfs: Option<PathBuf>, direct: bool, blocking: Blocking) -> File {
        File { fd: Rc::new(fd), sysfs, direct, blocking, polled: None, access_why: Rc::default() }
    }

    pub(super) fn blocking(&self) -> Blocking {
        self.blocking
    }

    /// How reads and writes reach it now.
    pub(super) fn access(&self) -> Access {
        match (self.direct, self.polled()) {
            (false, _) => Access::Buffered,
            (true, None) => Access::Direct,
            (true, Some(_)) => Access::DirectPolled,
        }
    }

    pub(super) fn access_why(&self) -> Option<String> {
        self.access_why.borrow().clone()
    }

    pub(super) fn set_access_why(&self, why: Option<String>) {
        *self.access_why.borrow_mut() = why;
    }

    fn polled(&self) -> Option<OneCommand> {
        self.polled.as_ref().and_then(|which| which.get())
    }

    /// Polls for the answers of these reads and writes from now on; clones that were made before do not.
    pub(super) fn poll(&mut self, which: OneCommand) {
        self.polled = Some(Rc::new(Cell::new(Some(which))));
    }

    /// Polls no more, nor do its clones.
    pub(super) fn poll_no_more(&self) {
        if let Some(which) = &self.polled {
            which.set(None);
        }
    }

    /// What the answer to a read or write means. A drive that is not polled any more (a driver may come back from a
    /// reset without the queues for it) is used without.
    fn transferred(&self, answer: i32, answering: Answering) -> Answer {
        if answer == -libc::EOPNOTSUPP && answering == Answering::Polling {
            self.poll_no_more();
            self.set_access_why(Some("no longer polled: its driver came back without poll queues".to_owned()));
            return Answer::Again;
        }
        self.judge(answer)
    }

    pub(super) async fn read(&self, rt: &Rt, load: &Rc<Load>, at: u64, buf: Buf) -> (Result<(), IoError>, Buf) {
        let (mut buf, mut done) = (buf, 0);
        while done < buf.len() {
            let one = |c: OneCommand| c.is_read(at + done as u64, buf[done..].as_ptr(), buf.len() - done);
            let answering = self.answering(self.polled().is_some_and(one));
            self.take_turn(load).await;
            let request = Request::Read { fd: self.fd.clone(), buf, done, at };
            let operation = Operation::answering(&rt.inner, request, Some(load.clone()), answering);
            let (answer, request) = operation.await;
            let Request::Read { buf: back, .. } = request else { unreachable!("a request comes back as it went") };
            buf = back;
            match self.transferred(answer, answering) {
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
            let answering = self.answering(self.polled().is_some_and(|c| c.is_write(at, parts.iter())));
            self.take_turn(load).await;
            let request = Request::Write { fd: self.fd.clone(), parts, vector: Vec::new(), at };
            let operation = Operation::answering(&rt.inner, request, Some(load.clone()), answering);
            let (answer, request) = operation.await;
            let Request::Write { parts: back, .. } = request else { unreachable!("a request comes back as it went") };
            parts = back;
            match self.transferred(answer, answering) {
                // A limit that is no multiple of a sector lets the beginning of one in, and O_DIRECT goes on at sectors only.
                Answer::Bytes(n) if n < SECTOR_BYTES => return Err(IoError::NoSpace),
                Answer::Bytes(n) => {
                    let whole = n / SECTOR_BYTES * SECTOR_BYTES;
                    advance(&mut parts, whole);
                    at += whole as u64;
                }
                Answer::Again => {}
                Answer::Failed(IoError::NoSpace) if self.ends_before(at + 1) => return Err(IoError::Medium),
                Answer::Failed(IoError::Os(libc::EINVAL)) if self.may_not_grow_to(at, &parts) => {
                    return Err(IoError::NoSpace);
                }
                Answer::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a write of these parts goes beyond the size that files of this process may have (`ulimit -f`): cut there it
    /// is no longer one that O_DIRECT takes.
    fn may_not_grow_to(&self, at: u64, parts: &VecDeque<Bytes>) -> bool {
        let end = at + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        self.sysfs.is_none() && limit.is_some_and(|limit| end > limit)
    }

    /// Whether this is a block device that ends before byte `end` by now: then the kernel has "no space" for writes behind
    /// it, and making room elsewhere helps nothing.
    fn ends_before(&self, end: u64) -> bool {
        self.sysfs.is_some() && rustix::fs::seek(&self.fd, SeekFrom::End(0)).is_ok_and(|bytes| bytes < end)
    }

    /// Waits while as many requests are in the kernel as may be, where each takes a worker.
    async fn take_turn(&self, load: &Load) {
        if self.blocking == Blocking::Perhaps {
            load.below(AT_ONCE).await;
        }
    }

    fn answering(&self, polled: bool) -> Answering {
        match (polled, self.blocking) {
            (true, _) => Answering::Polling,
            (false, Blocking::Never) => Answering::Interrupt,
            (false, Blocking::Perhaps) => Answering::Worker,
        }
    }

    pub(super) async fn flush(&self, rt: &Rt, load: &Rc<Load>) -> Result<(), IoError> {
        loop {
            let request = Request::Sync { fd: self.fd.clone() };
            self.take_turn(load).await;
            let operation = Operation::answering(&rt.inner, request, Some(load.clone()), self.answering(false));
            let (answer, _) = operation.await;
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
            self.take_turn(load).await;
            let operation = Operation::answering(&rt.inner, request, Some(load.clone()), self.answering(false));
            let (answer, _) = operation.await;
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
                IoError::Medium if self.sysfs.as_deref().is_some_and(is_removed) => IoError::Gone,
                error => error,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_known_may_block() {
        for (magic, blocking) in [
            (0xEF53, Blocking::Never),
            (0x5846_5342, Blocking::Never),
            // FUSE, NFS, overlay, 9p, CIFS, SMB2, Ceph, none.
            (0x6573_5546, Blocking::Perhaps),
            (0x6969, Blocking::Perhaps),
            (0x794C_7630, Blocking::Perhaps),
            (0x0102_1997, Blocking::Perhaps),
            (0xFF53_4D42, Blocking::Perhaps),
            (0xFE53_4D42, Blocking::Perhaps),
            (0x00C3_6400, Blocking::Perhaps),
            (0, Blocking::Perhaps),
        ] {
            assert_eq!(Blocking::of_file_system(magic), blocking, "{magic:x}");
        }
    }
}
