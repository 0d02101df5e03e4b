//! The queue of a device: fetches of requests, their descriptors, and their data.
//!
//! Data is copied at once, by preadv and pwritev: the driver copies from and to memory of the kernel and waits for nothing. In the
//! ring such a copy would go to a worker of the kernel, since the character device cannot say that it does not block.
//!
//! Invariants: the descriptors are mapped after the fetches were sent (a process that dies between would leave the kernel with its
//! own memory as the only one that may map them), and read only for a request that was fetched; a mapping lives as long as its
//! queue.
#![allow(unsafe_code)]

use std::cell::OnceCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::ControlError;
use super::wire::{self, Descriptor};
use super::{DEPTH, wire::data_at};
use crate::ring::{Operation, PARTS_MAX, Request};
use crate::{Buf, Bytes, Rt};

/// How long the character device may take to appear, and udev to let this user open it.
const APPEARS_WITHIN: Duration = Duration::from_secs(10);
/// Of linux/prctl.h.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What a fetch comes back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// A request has this tag.
    Request(Descriptor),
    /// The kernel has ended the queue: the device was stopped.
    Ended,
    /// It refuses, with this error number.
    Refused(i32),
}

/// A copy that the kernel cut short or refused, with its error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyError(pub i32);

/// The open queue of a device.
pub struct Queue {
    rt: Rt,
    fd: Rc<OwnedFd>,
    descriptors: OnceCell<Mapping>,
}

/// A fetch. The first ones are begun when they are made, all others by their first poll. Dropped, it runs on, and what it brings waits in the kernel for the next server.
pub struct Fetch {
    operation: Operation,
    queue: Rc<Queue>,
    tag: u16,
}

impl Future for Fetch {
    type Output = Fetched;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Fetched> {
        let answer = Pin::new(&mut self.operation).poll(cx);
        answer.map(|(answer, _)| self.queue.fetched(self.tag, answer))
    }
}

impl Queue {
    /// Opens it. A device that was added just now appears a moment later, and may belong to root alone for another one.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn open(rt: &Rt, number: u32) -> Result<Queue, ControlError> {
        let path = format!("/dev/ublkc{number}");
        let since = rt.now();
        loop {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let errno = match rustix::fs::open(Path::new(&path), flags, Mode::empty()) {
                Ok(fd) => {
                    frees_memory_for_others();
                    return Ok(Queue { rt: rt.clone(), fd: Rc::new(fd), descriptors: OnceCell::new() });
                }
                Err(errno) => errno,
            };
            let may_pass = matches!(errno, Errno::NOENT | Errno::NXIO | Errno::ACCESS | Errno::PERM | Errno::BUSY);
            if !may_pass || rt.now() - since > APPEARS_WITHIN {
                return Err(ControlError::of("open of /dev/ublkcN", errno.raw_os_error()));
            }
            rt.sleep(LOOK_AGAIN).await;
        }
    }

    /// Fetches the first request of each tag, all in one submission: the kernel never ends the queue of a process that dies after a part of
    /// them.
    #[must_use]
    pub fn fetch_all(self: &Rc<Self>) -> Vec<Fetch> {
        // An empty ring has room for all.
        self.rt.inner.ring().submit_if_wanted();
        let begun = |tag| {
            let mut fetch = self.command(wire::FETCH_REQ, tag, 0);
            fetch.operation.begin();
            fetch
        };
        (0..DEPTH).map(begun).collect()
    }

    /// Answers the request of this tag with `result`: bytes that were moved, or a negative error number. Waits for the next one.
    #[must_use]
    pub fn commit(self: &Rc<Self>, tag: u16, result: i32) -> Fetch {
        self.command(wire::COMMIT_AND_FETCH_REQ, tag, result)
    }

    fn command(self: &Rc<Self>, operation: u32, tag: u16, result: i32) -> Fetch {
        assert!(tag < DEPTH, "a tag of the queue");
        let request = Request::Fetch { fd: self.fd.clone(), operation, command: wire::fetch(tag, result) };
        Fetch { operation: Operation::new(&self.rt.inner, request, None), queue: self.clone(), tag }
    }

    fn fetched(&self, tag: u16, answer: i32) -> Fetched {
        match answer {
            0 => match self.descriptor(tag) {
                Ok(descriptor) => Fetched::Request(descriptor),
                Err(errno) => Fetched::Refused(errno),
            },
            answer if answer == -libc::ENODEV => Fetched::Ended,
            answer => Fetched::Refused(-answer),
        }
    }

    /// The descriptor of a request that was fetched.
    fn descriptor(&self, tag: u16) -> Result<Descriptor, i32> {
        let mapping = match self.descriptors.get() {
            Some(mapping) => mapping,
            None => {
                let mapping = Mapping::new(&self.fd)?;
                self.descriptors.get_or_init(|| mapping)
            }
        };
        Ok(mapping.read(tag))
    }

    /// The data of a request that writes.
    ///
    /// # Errors
    /// When the kernel does not give all of it.
    pub fn data(&self, tag: u16, bytes: usize) -> Result<Buf, CopyError> {
        let mut buf = Buf::for_overwrite(bytes);
        let mut done = 0;
        while done < bytes {
            done += copied(rustix::io::pread(&*self.fd, &mut buf[done..], data_at(0, tag) + done as u64))?;
        }
        Ok(buf)
    }

    /// Gives a request that reads its data.
    ///
    /// # Errors
    /// When the kernel does not take all of it.
    pub fn give(&self, tag: u16, parts: &[Bytes]) -> Result<(), CopyError> {
        let mut at = data_at(0, tag);
        for parts in parts.chunks(PARTS_MAX) {
            let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut rest = &mut slices[..];
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                let done = copied(rustix::io::pwritev(&*self.fd, rest, at))?;
                at += done as u64;
                IoSlice::advance_slices(&mut rest, done);
            }
        }
        Ok(())
    }
}

/// Tells the kernel that this thread writes what others wait for when memory is short: it must not wait for itself.
fn frees_memory_for_others() {
    // SAFETY: it takes numbers only.
    if unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } != 0 {
        tracing::debug!("PR_SET_IO_FLUSHER: {}", io::Error::last_os_error());
    }
}

/// What a copy has moved: nothing is an error, or it would never end.
fn copied(answer: Result<usize, Errno>) -> Result<usize, CopyError> {
    match answer {
        Ok(0) => Err(CopyError(libc::EFAULT)),
        Ok(bytes) => Ok(bytes),
        Err(errno) => Err(CopyError(errno.raw_os_error())),
    }
}

/// The descriptors, one for each tag, in memory that the kernel writes.
struct Mapping {
    start: NonNull<Descriptor>,
    bytes: usize,
}

impl Mapping {
    fn new(fd: &OwnedFd) -> Result<Mapping, i32> {
        // SAFETY: it only answers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned() as usize;
        let bytes = (usize::from(DEPTH) * size_of::<Descriptor>()).next_multiple_of(page);
        // SAFETY: a new mapping at an address that the kernel chooses; the driver refuses any other length.
        let start = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, fd.as_raw_fd(), 0)
        };
        match NonNull::new(start.cast::<Descriptor>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Mapping { start, bytes }),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM)),
        }
    }

    fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < DEPTH, "a tag of the queue");
        // SAFETY: the mapping has DEPTH descriptors and lives; any bytes are a descriptor. The kernel does not write this one: its
        // request is ours until it is answered, which the ring's answer, that was read before, tells.
        unsafe { self.start.as_ptr().add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, and nothing refers to.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
