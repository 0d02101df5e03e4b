//! Protocols over one small boundary: a [`Namespace`] is a run of bytes that can be read, written, flushed and
//! deallocated; a protocol serves it, a back end keeps it.
//!
//! ```text
//!   nbd::Server   nvme::Server   ublk::BlockDevice   vhost_user_blk::GuestSocket
//!         \          /                                       front ends: bytes on a wire, the kernel's requests, a guest's
//!       Namespace, Directory, Subsystems, Fault                the boundary
//!         /        |        \
//!     Memory     Null     array volumes (in server)            back ends
//!       any of them behind remote::Remote, on another thread; several as one: Striped
//! ```
//!
//! Invariants: a front end hands on only requests that are aligned, in range and permitted; each protocol has one table
//! from [`Fault`] to its status; every back end that keeps its contents passes [`conformance::run`].
//!
//! Not here: redundancy, caching, who may connect.

mod clients;
pub mod conformance;
mod counters;
mod either;
mod exports;
mod memory;
mod namespace;
pub mod nbd;
mod null;
pub mod nvme;
pub mod remote;
mod stream;
mod striped;
pub mod ublk;
pub mod uri;
pub mod vhost_user_blk;

pub use clients::{Client, Protocol, Used};
pub use counters::Counters;
pub use either::Either;
pub use exports::Exports;
pub use memory::Memory;
pub use namespace::{Answer, Directory, Extent, ExtentState, Fault, Namespace, NamespaceInfo, Request};
pub use null::Null;
pub use striped::Striped;
pub use uri::Uri;
