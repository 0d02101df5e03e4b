//! What another process has passed to us: descriptors, and memory that was mapped of them.
//!
//! Invariant: the thread that serves everybody closes and unmaps nothing of it. A file decides how long its close takes, and memory of
//! a large guest takes seconds to unmap; a thread for that does both, one after the other.
//!
//! Not here: what is passed in messages that the kernel still has.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::net::SendFlags;

/// Descriptors of other processes that this one has open at a time; more are closed, and their connection ends.
pub const FOREIGN_MAX: usize = 16_384;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A descriptor of a file that another process has opened.
#[derive(Debug)]
pub struct Foreign(Option<OwnedFd>);

impl From<OwnedFd> for Foreign {
    fn from(fd: OwnedFd) -> Foreign {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Foreign(Some(fd))
    }
}

impl Foreign {
    /// Whether there are as many as there may be.
    pub(crate) fn are_too_many() -> bool {
        OPEN.load(Ordering::Relaxed) > FOREIGN_MAX
    }

    /// The descriptor of a file that was seen to be harmless.
    ///
    /// # Panics
    /// Never: it is taken once.
    #[must_use]
    pub fn into_owned(mut self) -> OwnedFd {
        OPEN.fetch_sub(1, Ordering::Relaxed);
        self.0.take().expect("a descriptor until it is dropped")
    }

    /// What the kernel calls the file; its file system is not asked.
    ///
    /// # Errors
    /// When /proc is not there.
    pub fn kind(&self) -> io::Result<String> {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", self.as_raw_fd()))?;
        Ok(name.display().to_string())
    }

    /// Sends a short message to a socket, at once or not at all.
    ///
    /// # Errors
    /// When it is no socket, or does not take it now.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let sent = rustix::net::send(self, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        if sent < message.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("a descriptor until it is dropped").as_fd()
    }
}

impl AsRawFd for Foreign {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            drop_elsewhere(Counted(fd));
        }
    }
}

/// Counts until it is closed.
struct Counted(#[expect(dead_code, reason = "it is closed")] OwnedFd);

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Drops something on the thread for that; here, where the machine has no more threads.
pub(super) fn drop_elsewhere(what: impl Send + 'static) {
    static THREAD: OnceLock<Option<Sender<Box<dyn Send>>>> = OnceLock::new();
    let way = THREAD.get_or_init(|| {
        let (way, all) = channel::<Box<dyn Send>>();
        let run = move || all.into_iter().for_each(drop);
        thread::Builder::new().name("foreign".to_owned()).spawn(run).ok().map(|_| way)
    });
    match way {
        Some(way) => drop(way.send(Box::new(what))),
        None => drop(what),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::RecvTimeoutError;
    use std::time::Duration;

    use super::*;

    struct Slow(std::sync::mpsc::Receiver<()>, Sender<thread::ThreadId>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _gone = self.0.recv();
            let _gone = self.1.send(thread::current().id());
        }
    }

    #[test]
    fn what_is_slow_to_end_ends_elsewhere() {
        let (go, wait) = channel();
        let (done, ended) = channel();
        drop_elsewhere(Slow(wait, done));
        assert_eq!(ended.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
        // Behind it.
        let before = Foreign::from(OwnedFd::from(io::pipe().unwrap().0));
        let name = before.kind().unwrap();
        assert!(name.starts_with("pipe:"), "{name}");
        assert!(before.send(b"x").is_err(), "no socket");
        drop(before);
        go.send(()).unwrap();
        assert_ne!(ended.recv().unwrap(), thread::current().id());
    }
}
