//! Volumes for guests of this machine (vhost-user-blk): a guest's driver asks in memory that it shares, a namespace answers.
//!
//! ```text
//!   guest's virtio-blk driver <-> rings in its memory <-> queue -> request::judge -> Namespace
//!   QEMU (front end) -> unix socket: socket -> session    what memory, which rings, which events
//!   ring, data     what a guest has written there: every index, chain and address is judged
//!   inflight       notes of what is under way, which the front end keeps while this server is not there
//!   memory         the guest's memory, and which pages were written while the guest moves
//!   message        the protocol's messages; features: what is offered
//!   guests         what all of a server share: memory for payload, and whose turn it is at a volume
//! ```
//!
//! Invariants:
//! - whatever a guest or a front end does, there is no panic, and no memory is reached but its own;
//! - guest memory is copied once, into ours, before anything looks at it: a checksum is made of what is stored;
//! - a request that was taken is answered, or done again by the next server, and no write of a connection that is gone comes after
//!   one of the next to this volume;
//! - one connection at a time has queues of a volume.
//!
//! Does not: keep the thread free of a guest whose memory is swapped out (`docs/open-work.md`).
//!
//! Not here: which volume has a socket (`server`), packed rings, other devices than disks.

pub mod data;
mod features;
mod guests;
mod inflight;
pub mod memory;
pub mod message;
mod queue;
pub mod request;
pub mod ring;
mod session;
mod socket;

pub use guests::Guests;
pub use socket::{Guest, GuestSocket};
