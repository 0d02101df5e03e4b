//! A directory whose namespaces live on another thread: requests cross as letters, and what one turn has to say crosses
//! with one wake.
//!
//! ```text
//!   connections' thread                                    namespaces' thread
//!   Remote, RemoteNamespace -> Post -- batch of Asks -->   host: a task for each request
//!                     ^                                      |
//!                     +------------- batch of Replies -- Post
//! ```
//!
//! Invariants: a request that was sent is answered once, or the host is gone and it ends with [`Fault::Gone`]; letters
//! arrive in the order of sending; a namespace stays open on its thread until its last handle is dropped and what was
//! asked of it before has been begun.
//!
//! Not here: threads, connections.
//!
//! [`Fault::Gone`]: crate::Fault::Gone

mod guest;
mod host;
pub(crate) mod letters;
pub(crate) mod tickets;

pub use guest::{Remote, RemoteNamespace};

use letters::{Ask, Batch, Post, Reply};
use rt::{MailReceiver, MailSender, Rt, Task};

use crate::Directory;

/// Threads that connections may be dealt to; each has its part of the memory that connections share.
pub const HANDS_MAX: usize = 4;

/// The end of the thread that has the namespaces.
pub struct HostEnd {
    inbox: MailReceiver<Batch<Ask>>,
    to: MailSender<Batch<Reply>>,
}

/// The end of the thread that has the connections.
pub struct GuestEnd {
    inbox: MailReceiver<Batch<Reply>>,
    to: MailSender<Batch<Ask>>,
}

/// The two ends of a way between two threads; `rt` may be that of either.
#[must_use]
pub fn way(rt: &Rt) -> (HostEnd, GuestEnd) {
    let (asks, host_inbox) = rt.mailbox();
    let (replies, guest_inbox) = rt.mailbox();
    (HostEnd { inbox: host_inbox, to: replies }, GuestEnd { inbox: guest_inbox, to: asks })
}

impl HostEnd {
    /// Serves the directory to the other end, until that is gone.
    pub fn serve<D: Directory>(self, rt: &Rt, directory: D) -> Task<()> {
        rt.spawn(host::serve(rt.clone(), directory, self.inbox, Post::new(rt, self.to)))
    }
}

impl GuestEnd {
    /// The directory at the other end.
    #[must_use]
    pub fn connect(self, rt: &Rt) -> Remote {
        Remote::new(rt, self.inbox, Post::new(rt, self.to))
    }
}
