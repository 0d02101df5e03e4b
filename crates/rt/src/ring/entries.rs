//! One io_uring with entries of either size: 64 bytes and answers of 16, or wide ones of 128 and 32 for NVMe commands.
//!
//! Invariant: a request is in the slot table, and stays there, from before its entry is queued.
//!
//! Not here: who waits for answers (`ring`).
#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

use io_uring::{IoUring, cqueue, squeue, types};

use super::{Request, WORKERS_MAX};

/// Entries queued between two submissions; a full queue submits early.
const QUEUE_ENTRIES: u32 = 256;

/// Answers that the kernel keeps in shared memory; beyond that it keeps them in its own (NODROP).
const ANSWER_ENTRIES: u32 = 4096;

/// Wide entries and answers.
type Wide = IoUring<squeue::Entry128, cqueue::Entry32>;

/// A ring of the kernel.
pub(super) enum Entries {
    Narrow(IoUring),
    Wide(Wide),
}

/// The same for both sizes.
macro_rules! either {
    ($entries:expr, $io:ident => $what:expr) => {
        match $entries {
            Entries::Narrow($io) => $what,
            Entries::Wide($io) => $what,
        }
    };
}

impl Entries {
    pub(super) fn narrow() -> io::Result<Entries> {
        set_up(&IoUring::builder()).map(Entries::Narrow)
    }

    /// Fails before Linux 5.19.
    pub(super) fn wide() -> io::Result<Entries> {
        set_up(&Wide::builder()).map(Entries::Wide)
    }

    /// Its answers come only when they are asked for: the drive does not interrupt.
    pub(super) fn polling() -> io::Result<Entries> {
        let mut builder = IoUring::builder();
        builder.setup_iopoll();
        set_up(&builder).map(Entries::Narrow)
    }

    pub(super) fn is_wide(&self) -> bool {
        matches!(self, Entries::Wide(_))
    }

    /// Queues the entry of a request under its name; false when the queue is full. One that goes `apart` is submitted by a
    /// worker of the kernel.
    pub(super) fn push(&mut self, request: &mut Request, name: u64, apart: bool) -> bool {
        let flags = if apart { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        // SAFETY, both: what the entry points to is owned by the request, which the slot table keeps until the
        // kernel's answer to this entry.
        match self {
            Entries::Narrow(io) => {
                let entry = request.entry().user_data(name).flags(flags);
                unsafe { io.submission().push(&entry) }.is_ok()
            }
            Entries::Wide(io) => {
                let entry = request.wide_entry().user_data(name).flags(flags);
                unsafe { io.submission().push(&entry) }.is_ok()
            }
        }
    }

    /// Queues an entry that points to nothing; false when the queue is full.
    pub(super) fn push_bare(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY, both: it points to nothing.
        match self {
            Entries::Narrow(io) => unsafe { io.submission().push(entry) }.is_ok(),
            Entries::Wide(io) => unsafe { io.submission().push(&entry.clone().into()) }.is_ok(),
        }
    }

    /// Whether entries wait for a submission.
    pub(super) fn has_queued(&mut self) -> bool {
        either!(self, io => !io.submission().is_empty())
    }

    /// Whether an enter has something to do: entries that wait, or answers that only an enter brings.
    pub(super) fn wants_enter(&mut self) -> bool {
        either!(self, io => {
            let queue = io.submission();
            !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
        })
    }

    /// Whether the kernel has answers, by the memory that it shares with us.
    pub(super) fn has_news(&mut self) -> bool {
        either!(self, io => {
            let queue = io.submission();
            queue.taskrun() || queue.cq_overflow()
        }) || either!(self, io => !io.completion().is_empty())
    }

    /// Submits; in a polling ring it also looks for answers, once.
    pub(super) fn submit(&self) -> io::Result<usize> {
        either!(self, io => io.submit())
    }

    /// Submits and sleeps until there is an answer, for `longest` at most.
    pub(super) fn submit_and_sleep(&self, longest: Option<Duration>) -> io::Result<usize> {
        let Some(longest) = longest else {
            return either!(self, io => io.submit_and_wait(1));
        };
        let (args, time) = (types::SubmitArgs::new(), types::Timespec::from(longest));
        either!(self, io => io.submitter().submit_with_args(1, &args.timespec(&time)))
    }

    /// The kernel's next answer: the operation's name, and the result.
    #[inline]
    pub(super) fn next_answer(&mut self) -> Option<(u64, i32)> {
        either!(self, io => io.completion().next().map(|cqe| (cqe.user_data(), cqe.result())))
    }
}

/// A ring with the flags of a single thread where the kernel has them (6.1), else without.
fn set_up<S: squeue::EntryMarker, C: cqueue::EntryMarker>(
    builder: &io_uring::Builder<S, C>,
) -> io::Result<IoUring<S, C>> {
    let mut plain = builder.clone();
    plain.setup_cqsize(ANSWER_ENTRIES).setup_clamp();
    let mut single = plain.clone();
    single.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag().setup_defer_taskrun();
    let ring = match single.build(QUEUE_ENTRIES) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => plain.build(QUEUE_ENTRIES),
        other => other,
    }?;
    // A kernel before 5.15 keeps its own number: then drives that hang may hold up others.
    let _ = ring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
    Ok(ring)
}
