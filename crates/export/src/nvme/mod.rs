//! NVMe/TCP: a server for any [`Subsystems`], and a client of our own.
//!
//! The protocol is NVMe Base 2.0, NVM Command Set 1.0 and NVMe/TCP Transport 1.0; comments cite their clauses, for the
//! transport by title. What is supported, refused and absent stands in `docs/conformance.md`.
//!
//! ```text
//!   server      accept -> arrive -> session             session, one task per connection, which is a queue:
//!   arrive      ICReq, Connect                             reader -> pdu::check -> command or data
//!   connect     a queue joins a controller                 outbox: answers of many commands in one send
//!   controller  properties, identify, logs, features    local: Fabrics, admin: answered at once; I/O: execute
//!   queue       what an I/O command asks for            worker: I/O queues whose connection another core has
//!   transfer    R2Ts and the data that answers them
//! ```
//!
//! Invariants: parsing and the state of controllers and transfers are pure ([`pdu`], [`entry`], [`request`],
//! [`transfer`], `controller`); nothing a host sends panics; memory for a host is taken from [`limits`] before it is
//! allocated and given back when the answer has been sent.
//!
//! Not here: authentication, TLS, reservations, several ANA groups, zoned namespaces, metadata.

mod arrive;
pub mod bytes;
pub mod client;
mod connect;
mod controller;
pub mod digest;
pub mod entry;
mod execute;
pub mod limits;
mod local;
pub mod log;
pub mod pdu;
mod queue;
pub mod request;
mod server;
mod session;
pub mod status;
pub mod subsystem;
pub mod transfer;
mod worker;

pub use controller::{
    DISCOVERY_NQN, event::config as event_config, feature::id as feature_id, identify::cns, property,
};
pub use server::{Deal, Server};
pub use status::Status;
pub use subsystem::{Access, Health, Mark, Subsystem, SubsystemList, Subsystems};
pub use worker::Worker;
