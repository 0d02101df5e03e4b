//! A directory whose namespaces live on another core.
//!
//! ```text
//!   connections' core                                      namespaces' core
//!   Remote, RemoteNamespace -- messages (rt::cross) -->    far: a task for each request
//!                           <-------- replies ---------
//! ```
//!
//! Invariants: a request that was sent is answered once, or the far end is gone and it ends with [`Fault::Gone`]; messages
//! arrive in the order of sending; a namespace stays open on its core until its last handle is dropped and what was
//! asked of it before has been begun.
//!
//! Not here: threads, connections.
//!
//! [`Fault::Gone`]: crate::Fault::Gone

mod far;
mod message;
mod near;

pub use near::{Remote, RemoteNamespace};

use message::Message;
use rt::cross::{CalleeEnd, CallerEnd, calls};
use rt::{Rt, Task};

use crate::Directory;

/// Cores that connections may be dealt to; each has its part of the memory that connections share.
pub const WORKERS_MAX: usize = 4;

/// The end of the core that has the namespaces.
pub struct FarEnd(CalleeEnd<Message>);

/// The end of the core that has the connections.
pub struct NearEnd(CallerEnd<Message>);

/// The two ends of a way between two cores; `rt` may be that of either.
#[must_use]
pub fn way(rt: &Rt) -> (FarEnd, NearEnd) {
    let (caller, callee) = calls(rt);
    (FarEnd(callee), NearEnd(caller))
}

impl FarEnd {
    /// Serves the directory to the near end, until that is gone.
    pub fn serve<D: Directory>(self, rt: &Rt, directory: D) -> Task<()> {
        rt.spawn(far::serve(rt.clone(), directory, self.0.start(rt)))
    }
}

impl NearEnd {
    /// The directory at the far end.
    #[must_use]
    pub fn connect(self, rt: &Rt) -> Remote {
        Remote(self.0.start(rt))
    }
}
