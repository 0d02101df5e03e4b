//! How much a peer may ask of us, with the arithmetic.
//!
//! ```text
//!   connection   128 requests, 64 MiB of payload: at the limit we stop receiving from it
//!   server       272 connections; 512 MiB shared by large requests, and 1 MiB of its own for each connection
//!                -> 512 + 272 * 1 = 784 MiB of payload, 272 * 128 = 34 816 requests
//!   places       128 of socket files; 144 of networks, of which one address has 128 at most
//!   strangers    512 of networks and 128 of socket files that have not chosen an export: of 4 KiB and what an option
//!                brings (64 KiB at most) -> 44 MiB
//! ```
//!
//! Where connections are dealt to several threads, each has its part of the 512 MiB: of four 128 MiB, which two
//! connections at their limit fill.
//!
//! A connection at rest holds its receive buffer of 64 KiB, or 256 KiB once it has filled that, which makes 68 MiB of a server
//! at most; a server, up to 4 MiB of tasks that wait for the next requests
//! (`stream::workers`), once so many were under way.
//!
//! A stalled peer holds at most its 64 MiB. It cannot stop others: small requests go on in each connection's own
//! 1 MiB, and a peer that makes no progress while others wait for shared memory is closed after `STALL_SECONDS_MAX`.

use crate::stream::{
    budget::Allowance,
    door::{Places, Rooms},
};

/// Longest read, write or structured reply: what the protocol calls never a denial of service ("Size constraints").
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Requests of one connection that have been received and not answered. Linux and QEMU use at most 128.
pub const CONNECTION_REQUESTS_MAX: u64 = 128;

/// Payload of one connection in flight: one longest request being executed while the next one arrives.
pub const CONNECTION_BYTES_MAX: u64 = 2 * REQUEST_BYTES_MAX as u64;

/// Part of the former that belongs to the connection alone: all its requests when they are of 8 KiB.
pub const CONNECTION_BYTES_OWN: u64 = CONNECTION_REQUESTS_MAX * (8 << 10);

/// What one connection may hold.
pub(super) const CONNECTION_ALLOWANCE: Allowance = Allowance {
    requests: CONNECTION_REQUESTS_MAX,
    bytes: CONNECTION_BYTES_MAX,
    own_bytes: CONNECTION_BYTES_OWN,
    reserve_bytes: 0,
};

/// Connections of socket files, and of one address of a network, that have chosen an export. More are refused.
pub const CONNECTIONS_MAX: u64 = 128;

/// Connections of networks that one address cannot take from others.
pub const CONNECTIONS_OF_OTHERS: u64 = 16;

/// All connections that have chosen an export.
pub const SERVER_CONNECTIONS_MAX: u64 = 2 * CONNECTIONS_MAX + CONNECTIONS_OF_OTHERS;

/// Connections of networks that have not chosen an export; the oldest give way to more.
pub const STRANGERS_MAX: u64 = 512;

/// Those of socket files.
pub const LOCAL_STRANGERS_MAX: u64 = 128;

/// Room of each kind.
pub(super) const ROOMS: Rooms = Rooms {
    strangers: [LOCAL_STRANGERS_MAX as usize, STRANGERS_MAX as usize],
    local: Places { all: CONNECTIONS_MAX as usize, one: CONNECTIONS_MAX as usize },
    network: Places { all: (CONNECTIONS_MAX + CONNECTIONS_OF_OTHERS) as usize, one: CONNECTIONS_MAX as usize },
    look: 0,
};

/// Payload in flight over all connections beyond their own: eight connections at their limit.
pub const SHARED_BYTES_MAX: u64 = 8 * CONNECTION_BYTES_MAX;

/// Payload in flight in all.
pub const SERVER_BYTES_MAX: u64 = SHARED_BYTES_MAX + SERVER_CONNECTIONS_MAX * CONNECTION_BYTES_OWN;

/// Requests in flight in all.
pub const SERVER_REQUESTS_MAX: u64 = SERVER_CONNECTIONS_MAX * CONNECTION_REQUESTS_MAX;

/// Data of an option: a name and a dozen queries of the longest.
pub const OPTION_BYTES_MAX: usize = 64 << 10;

/// Bytes of an oversized option or write that are received and thrown away, so that it gets an error; beyond it the
/// connection is closed.
pub const DISCARD_BYTES_MAX: u32 = 2 * REQUEST_BYTES_MAX;

/// Extents in one answer to a block status request: 8 bytes each make 32 KiB. The protocol allows 2^20.
pub const EXTENTS_MAX: usize = 4096;

/// A handshake that takes longer is closed.
pub const HANDSHAKE_SECONDS_MAX: u64 = 30;

/// A payload or an answer that takes longer ends the connection, if others wait for the memory that it holds.
pub const STALL_SECONDS_MAX: u64 = 30;

/// How long a stopping server answers with ESHUTDOWN, so that peers leave by themselves.
pub const STOP_LINGER_MILLIS: u64 = 300;

/// How long a stopping server waits for peers to take answers of requests that were in flight.
pub const STOP_SEND_SECONDS_MAX: u64 = 5;

const _: () = assert!(CONNECTION_BYTES_OWN == 1 << 20);
const _: () = assert!(SERVER_BYTES_MAX == 784 << 20);
const _: () = assert!(CONNECTION_BYTES_MAX >= REQUEST_BYTES_MAX as u64, "the longest request can be admitted");
const _: () = assert!(SHARED_BYTES_MAX >= CONNECTION_BYTES_MAX);
