//! I/O queues' connections on cores of their own: one core listens and has the controllers and namespaces.
//!
//! ```text
//!   core of the controllers                                    a worker
//!   accept -> arrive -> Proxy  ---- Serve (its end) -------->  Session: PDUs, digests, R2Ts
//!              judges, begins, executes  <---- Command ------  a command with all its data
//!                                        ----- reply ------->  PDUs
//! ```
//!
//! Invariants: a command begins on the core of the controllers, where its connection may have been cut before: what a
//! reset, a lost host or `stop` means is decided there alone, with the same order as for connections that it has itself; a
//! command that was sent is answered once, or the other core is gone.
//!
//! Not here: threads (who calls makes them, and has each serve its worker).

mod message;
mod proxy;
mod serve;

pub use proxy::Proxy;
pub use serve::Worker;
