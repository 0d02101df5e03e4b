//! NBD: a server for any [`Directory`](crate::Directory), and a client of our own.
//!
//! The protocol is the one of `doc/proto.md` of the NetworkBlockDevice/nbd project (read in its version of 2026 with
//! "Size constraints" and "cookie"); comments cite its section titles. What is supported, refused and absent stands in
//! `docs/conformance.md`.
//!
//! ```text
//!   server    accept -> handshake -> session            session, one task per connection:
//!                                                         reader -> request::parse -> check -> limits -> [payload]
//!   handshake   option::parse                               spawns execute(command) per request, out of order
//!   session     request, execute                            outbox: replies of many requests in one send
//! ```
//!
//! Invariants: parsing is pure functions over bytes ([`option`], [`request`], [`reply`]); nothing a peer sends panics;
//! memory for a peer is taken from [`limits`] before it is allocated and given back when the answer has been sent.
//!
//! Not here: TLS, extended headers, resize, other metadata contexts than `base:allocation`.

pub mod client;
mod dealer;
mod errno;
mod execute;
mod handshake;
pub mod limits;
pub mod option;
pub mod reply;
pub mod request;
mod server;
mod session;
pub mod wire;

pub use dealer::{Dealer, Worker};
pub use errno::Errno;
pub use server::Server;
