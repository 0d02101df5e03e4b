//! I/O queues' connections on threads of their own: one thread listens and has the controllers and namespaces.
//!
//! ```text
//!   thread of the controllers                                  a hand
//!   accept -> ICReq -> Connect -> Clerk  ------- Serve ------> Session: PDUs, digests, R2Ts
//!              judges, begins, executes  <------ Command ----- a command with all its data
//!                                        ------- Answer -----> PDUs
//! ```
//!
//! Invariants: a command begins on the thread of the controllers, where its connection may have been cut before: what a
//! reset, a lost host or `stop` means is decided there alone, with the same order as for connections that stay; a command
//! that was sent is answered once, or the other thread is gone.
//!
//! Not here: threads (who calls makes them, and has each serve its hand).

mod clerk;
mod letters;
mod there;

pub use clerk::Clerk;
pub use there::Hand;
