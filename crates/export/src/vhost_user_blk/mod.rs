//! Volumes for guests of this machine (vhost-user-blk): a guest's driver asks in memory that it shares, a namespace answers.
//!
//! ```text
//!   guest's virtio-blk driver <-> rings in its memory <-> queue -> request::judge -> Namespace
//!   QEMU (front end) -> unix socket: socket -> session    what memory, which rings, which events
//!   ring, data     what a guest has written there: every index, chain and address is judged
//!   inflight       notes of what is under way, which the front end keeps while this server is not there
//!   message        the protocol's messages; features: what is offered
//! ```
//!
//! Invariants:
//! - whatever a guest or a front end does, there is no panic, and no memory is reached but its own;
//! - guest memory is copied once, into ours, before anything looks at it: a checksum is made of what is stored;
//! - a request that was taken is answered, or done again by the next server, and no write of a connection that is gone comes after
//!   one of the next on this socket.
//!
//! Does not yet: keep the thread free of a front end that floods it, closes slowly or shares swapped memory, nor bound what all sockets
//! take together (`docs/open-work.md`).
//!
//! Not here: which volume has a socket (`server`), migration between machines, packed rings, other devices than disks.

pub mod data;
mod features;
mod inflight;
pub mod message;
mod queue;
pub mod request;
pub mod ring;
mod session;
mod socket;

pub use socket::{Guest, GuestSocket};
