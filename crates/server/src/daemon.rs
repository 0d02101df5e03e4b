//! The running server: a data thread with the arrays and their exports, and a control thread that answers HTTP. With more
//! than one core, NBD connections and I/O queues of NVMe/TCP are on threads of their own, which ask the data thread
//! (`export::remote`, `export::nvme::Worker`), and so are the parts of arrays that have several, which the data thread asks.
//!
//! ```text
//!   control thread (tokio, axum)                    data thread (rt)
//!   unix socket -> route -> closure -- rt::cross -->   task: verb on a served array
//!                    ^                                |
//!                    +------------- oneshot ----------+        NBD and NVMe/TCP connections, arrays, drives
//! ```
//!
//! Invariants: an array, or a part of one, and its slices of the drives are touched by one thread only; a request is a
//! closure, so a verb's types are checked from the route to its answer; every request is answered, also during the stop.

mod alarms;
pub mod arrays;
mod blocks;
mod clients;
mod closed;
mod control;
mod data;
mod exports;
mod guests;
mod look;
mod notebook;
mod notify;
mod nvme;
mod nvmet;
mod reload;
mod rename;
mod socket;
mod spares;
mod start;
mod stop;

pub use blocks::detached;
pub use data::{Data, DataHandle};
pub use notify::Notify;
pub use nvme::NvmeSettings;
pub use reload::{Reread, look_at};
pub use start::{Settings, What, run};
