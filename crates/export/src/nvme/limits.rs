//! How much a host may ask of us, with the arithmetic.
//!
//! ```text
//!   connection   256 commands (twice the longest queue), each with at most 4 KiB in its capsule -> 1 MiB
//!                16 MiB of longer payload, 1 MiB of it of its own
//!                1 MiB more of its own for what comes in longer capsules
//!                128 KiB of data on its way into a write
//!   server       320 connections; 256 MiB of payload shared by all
//!                -> 256 + 320 * (1 + 1 + 1 + 1/8) = 1256 MiB
//!   places       288 queues of subsystems, of which one address has 256 at most; 32 of discovery, of which the oldest
//!                give way
//!   strangers    512 that have sent no Connect that was accepted: of 4 KiB, until they fill them -> 2 to 32 MiB
//! ```
//!
//! Nothing is taken before it is used: a connection at rest holds its receive buffer of 64 KiB, or 256 KiB once it has filled
//! that, which makes 80 MiB of a server at most; a server, each worker, and
//! the first core for each worker, up to 4 MiB of tasks that wait for the next commands (`stream::task_pool`), once so many
//! were under way. A host at a limit is not read from, or its command waits, until there is room: one that sends more
//! than its reserve takes in long capsules, and takes no answers meanwhile, stops itself. A host that makes no progress
//! while others wait for shared memory is closed after `STALL_SECONDS_MAX`; what is not read from it because of its own
//! long capsules does not count.

use crate::stream::{
    budget::Allowance,
    door::{Places, Rooms},
};

/// Entries of the longest queue. Linux asks for 128.
pub const QUEUE_ENTRIES_MAX: u16 = 128;

/// Commands of one connection that have been received and whose answer has not left. More than a queue's entries: a
/// host may take an answer and use its entry again before we learn that the answer has left.
pub const CONNECTION_COMMANDS_MAX: u64 = 2 * QUEUE_ENTRIES_MAX as u64;

/// Data in a capsule of an admin queue, and of what is no queue yet: the transport fixes it.
pub const ADMIN_CAPSULE_DATA_MAX: u32 = 8 << 10;

/// Data in a capsule of an I/O queue (IOCCSZ): what hosts write most often needs no R2T, which costs a round trip and a
/// wake-up of both sides.
pub const IO_CAPSULE_DATA_MAX: u32 = 128 << 10;

/// Data in a capsule that every command may have; more is counted as payload before it is received.
pub const CAPSULE_DATA_FREE: u32 = 4 << 10;

/// Payload of one connection that only commands have whose data comes in their capsules.
pub const CONNECTION_CAPSULE_BYTES: u64 = 1 << 20;

/// Longest transfer as a power of two of 4 KiB pages (MDTS): 1 MiB.
pub const MDTS: u8 = 8;

/// The same in bytes.
pub const TRANSFER_BYTES_MAX: u32 = 4096 << MDTS;

/// Longest data of one H2CData PDU (MAXH2CDATA).
pub const H2C_DATA_MAX: u32 = 128 << 10;

/// Data that the host of one connection is asked for at once, by R2Ts of all its commands: what it sends is still in
/// the caches when it is taken, and the next R2T leaves together with an answer. A round trip of 100 us lets 10 GB/s
/// through.
pub const ASKED_BYTES_MAX: u64 = 1 << 20;

/// R2Ts of one command that are outstanding, if the host allows as many.
pub const R2TS_MAX: u32 = 4;

/// Payload of one connection in flight: sixteen of the longest transfers.
pub const CONNECTION_BYTES_MAX: u64 = 16 * TRANSFER_BYTES_MAX as u64;

/// The part of it that belongs to the connection alone.
pub const CONNECTION_BYTES_OWN: u64 = 1 << 20;

/// Payload in flight over all connections beyond their own: sixteen connections at their limit.
pub const SHARED_BYTES_MAX: u64 = 16 * CONNECTION_BYTES_MAX;

/// Queues that one address may have; more are refused.
pub const CONNECTIONS_MAX: u64 = 256;

/// Queues that one address cannot take from others.
pub const CONNECTIONS_OF_OTHERS: u64 = 32;

/// Connections of the discovery subsystem, which every host may use: the oldest give way to more.
pub const DISCOVERY_CONNECTIONS_MAX: u64 = 32;

/// All connections that are queues.
pub const SERVER_CONNECTIONS_MAX: u64 = CONNECTIONS_MAX + CONNECTIONS_OF_OTHERS + DISCOVERY_CONNECTIONS_MAX;

/// Connections that are no queue yet; the oldest give way to more.
pub const STRANGERS_MAX: u64 = 512;

/// Room of each kind.
pub(super) const ROOMS: Rooms = Rooms {
    strangers: [STRANGERS_MAX as usize; 2],
    local: Places { all: CONNECTIONS_MAX as usize, one: CONNECTIONS_MAX as usize },
    network: Places { all: (CONNECTIONS_MAX + CONNECTIONS_OF_OTHERS) as usize, one: CONNECTIONS_MAX as usize },
    look: DISCOVERY_CONNECTIONS_MAX as usize,
};

/// I/O queues of one controller: with its admin queue, fifteen controllers fit.
pub const IO_QUEUES_MAX: u16 = 16;

/// What one connection may hold.
pub(super) const CONNECTION_ALLOWANCE: Allowance = Allowance {
    requests: CONNECTION_COMMANDS_MAX,
    bytes: CONNECTION_BYTES_MAX,
    own_bytes: CONNECTION_BYTES_OWN,
    reserve_bytes: CONNECTION_CAPSULE_BYTES,
};

/// Payload in flight in all.
pub const SERVER_BYTES_MAX: u64 = SHARED_BYTES_MAX
    + SERVER_CONNECTIONS_MAX
        * (CONNECTION_COMMANDS_MAX * CAPSULE_DATA_FREE as u64
            + CONNECTION_CAPSULE_BYTES
            + CONNECTION_BYTES_OWN
            + H2C_DATA_MAX as u64);

/// Asynchronous Event Requests that wait at one controller (AERL).
pub const EVENT_REQUESTS_MAX: u8 = 4;

/// Entries of a controller's error log (ELPE).
pub const ERROR_ENTRIES_MAX: u8 = 64;

/// Ranges of one Dataset Management command: what its field can say.
pub const RANGES_MAX: u32 = 256;

/// Largest namespace identifier (NN): identifiers are never used again, so it is far above the next one.
pub const NSID_MAX: u32 = (1 << 24) - 1;

/// Most namespaces of a subsystem (MNAN). Linux takes memory for as many.
pub const NAMESPACES_MAX: u32 = 4096;

/// A connection that is not a queue by then is closed.
pub const CONNECT_SECONDS_MAX: u64 = 10;

/// How long a queue that a host connects anew waits for what the host sent before; then the host is told to try again.
/// Less than `CONNECT_SECONDS_MAX`, so that it is told.
pub const SETTLE_SECONDS_MAX: u64 = 5;

/// Data or an answer that takes longer ends the connection, if others wait for the memory that it holds.
pub const STALL_SECONDS_MAX: u64 = 30;

/// Unit of the keep-alive timer (KAS), and what a host may be late.
pub const KEEP_ALIVE_UNIT_MILLIS: u32 = 1000;

/// Silence after which a discovery controller without a keep-alive timer is closed.
pub const DISCOVERY_SECONDS_MAX: u64 = 120;

/// Between two looks at what has changed in the subsystems.
pub const WATCH_MILLIS: u64 = 500;

/// How long a terminated host is listened to, so that it can take the C2HTermReq. The transport allows 30 s.
pub const TERM_LINGER_MILLIS: u64 = 1000;

/// How long a stopping server, or the end of a connection, waits for a host to take answers.
pub const STOP_SEND_SECONDS_MAX: u64 = 5;

const _: () = assert!(SERVER_BYTES_MAX == 1256 << 20);
const _: () = assert!(SETTLE_SECONDS_MAX < CONNECT_SECONDS_MAX);
const _: () = assert!(TRANSFER_BYTES_MAX == 1 << 20);
const _: () = assert!(2 * TRANSFER_BYTES_MAX as u64 <= CONNECTION_BYTES_MAX, "a compare holds both sides");
const _: () = assert!(2 * IO_CAPSULE_DATA_MAX as u64 <= CONNECTION_CAPSULE_BYTES, "a compare holds both sides");
const _: () = assert!(H2C_DATA_MAX >= 4096 && H2C_DATA_MAX.is_multiple_of(4), "what the transport asks for");
