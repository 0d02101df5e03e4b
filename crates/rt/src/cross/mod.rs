//! Work for another core, and what comes of it.
//!
//! ```text
//!   one core                                          another core
//!   Submitter::submit(closure) ---- its own wake ---> Submitted::serve: a task for each
//!   Caller::call(request) -> outbox ---- batches ---> Callee::next, in the order of sending
//!          Call <---------- batches ---- outbox <---- Reply::send
//! ```
//!
//! Two forms of one thing: give another core something to do, and await what it says. A closure is anything, and costs two
//! allocations and a wake: for what people and start-up ask. Requests are values of one type, which cross without an
//! allocation each, and all that a turn of one core has for the other crosses with one wake: for what hosts ask.
//!
//! Invariants: what was given is begun in the order of giving; it is done to its end, also when nobody awaits it any more; who
//! awaits hears of the end of the other core.
//!
//! Not here: threads.

mod calls;
mod outbox;
mod submit;

pub use calls::{Call, Callee, CalleeEnd, Caller, CallerEnd, Message, Reply, calls};
pub use submit::{Submission, Submitted, Submitter, submissions};
