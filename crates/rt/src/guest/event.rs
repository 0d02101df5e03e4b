//! An eventfd that another process has given us.
//!
//! Invariants: it is one, not a file that is always ready; it is waited for by polling, read without waiting, and written in the
//! ring: the other process decides at any time whether its file blocks.

use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::foreign::Foreign;
use crate::Rt;
use crate::ring::{Operation, Request};

/// No place: a file without places is read on.
const NO_PLACE: u64 = u64::MAX;

/// An event that two processes share. Clones are the same one.
#[derive(Clone)]
pub struct Event {
    rt: Rt,
    fd: Rc<OwnedFd>,
}

impl Event {
    /// An event of our own.
    ///
    /// # Errors
    /// When the kernel has none.
    pub fn new(rt: &Rt) -> io::Result<Event> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        Ok(Event { rt: rt.clone(), fd: Rc::new(rustix::event::eventfd(0, flags)?) })
    }

    /// The event behind a descriptor that was passed.
    ///
    /// # Errors
    /// When it is no eventfd.
    pub fn passed(rt: &Rt, fd: impl Into<Foreign>) -> io::Result<Event> {
        let fd = fd.into();
        let what = fd.kind()?;
        if what != "anon_inode:[eventfd]" {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{what} is no eventfd")));
        }
        Ok(Event { rt: rt.clone(), fd: Rc::new(fd.into_owned()) })
    }

    /// A descriptor to pass.
    ///
    /// # Errors
    /// When there are no more descriptors.
    pub fn to_pass(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Waits until the other side has told something since the last time, however often.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn heard(&self) -> io::Result<()> {
        loop {
            let request = Request::Readable { fd: self.fd.clone() };
            let (answer, _) = Operation::new(&self.rt.inner, request, None).await;
            if answer < 0 && ![libc::EINTR, libc::EAGAIN].contains(&-answer) {
                return Err(io::Error::from_raw_os_error(-answer));
            }
            let mut count = [0; 8];
            match preadv2(&*self.fd, &mut [IoSliceMut::new(&mut count)], NO_PLACE, ReadWriteFlags::NOWAIT) {
                Ok(_) => return Ok(()),
                // Another reader was first.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tells the other side. One that has been told very often and never listened is not told once more.
    pub async fn tell(&self) {
        let request = Request::Tell { fd: self.fd.clone(), count: Box::new(1_u64.to_ne_bytes()) };
        let (answer, _) = Operation::new(&self.rt.inner, request, None).await;
        if answer < 0 {
            tracing::debug!("an event is not told: {}", io::Error::from_raw_os_error(-answer));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    #[test]
    fn what_is_told_is_heard_once() {
        let rt = Rt::real().expect("a ring");
        rt.block_on(async {
            let here = Event::new(&rt).expect("an event");
            let there = Event::passed(&rt, here.to_pass().expect("a descriptor")).expect("it is one");
            here.tell().await;
            here.tell().await;
            there.heard().await.expect("it was told");
            let again = there.heard();
            let patience = rt.sleep(Duration::from_millis(20));
            futures::select! {
                _ = std::pin::pin!(again.fuse()) => panic!("heard what was not told"),
                () = std::pin::pin!(patience.fuse()) => {}
            }
        });
    }

    #[test]
    fn what_is_always_ready_is_no_event() {
        let rt = Rt::real().expect("a ring");
        for path in ["/dev/zero", "/proc/self/exe"] {
            let file = fs::File::open(path).expect("a file");
            assert_eq!(
                Event::passed(&rt, OwnedFd::from(file)).err().map(|e| e.kind()),
                Some(io::ErrorKind::InvalidInput)
            );
        }
    }

    /// Its count is full, and its file blocks: neither this thread nor the end of the ring waits for it.
    #[test]
    fn one_that_takes_nothing_holds_nothing_up() {
        let rt = Rt::real().expect("a ring");
        rt.block_on(async {
            let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
            rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).expect("there is room");
            let event = Event::passed(&rt, fd).expect("it is one");
            let patience = rt.sleep(Duration::from_millis(50));
            futures::select! {
                () = std::pin::pin!(event.tell().fuse()) => panic!("told what takes nothing"),
                () = std::pin::pin!(patience.fuse()) => {}
            }
        });
    }
}
