//! What connections of every protocol are made of: receiving, sending, waiting, and what a peer may hold meanwhile.
//!
//! Not here: any protocol's bytes or limits.

pub mod accept;
pub mod budget;
pub mod door;
pub mod outbox;
pub mod pool;
pub mod progress;
pub mod rare;
pub mod reader;
pub mod signal;
pub mod task_pool;
