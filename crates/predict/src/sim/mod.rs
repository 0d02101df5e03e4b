//! The simulator: a system as servers in a row, and requests that take their time.
//!
//! ```text
//! host CPU -> network -> card -> drives (link, buffer, channel, die) -> card -> network
//! ```
//!
//! Each server keeps when it is free. A request that begins `now` and reaches a server at `from` takes the next time that
//! the server has free after `now`, so a wait elsewhere leaves no time of it unused; it ends no earlier than its
//! own way allows. So all of a request is known when it begins, and an event is one request.

mod card;
mod disk;
mod flash;
mod layout;
mod machine;
mod pipe;

pub(crate) use machine::{Counters, Machine};

/// Part of the raw space that volumes of Ashlar may fill, before redundancy.
pub(crate) fn log_usable() -> f64 {
    layout::USABLE
}

use serde::{Deserialize, Serialize};

/// A part of a system that can be the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Dies, channels and commands of the drives, or the arm of a disk.
    Flash,
    /// The link of each drive.
    DriveLinks,
    /// RAID cards: links, ceilings, cache.
    Card,
    /// CPUs.
    Cpu,
    /// The network.
    Network,
    /// Requests in flight.
    InFlight,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 6] = [Part::Flash, Part::DriveLinks, Part::Card, Part::Cpu, Part::Network, Part::InFlight];

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Part::Flash => "the flash of the drives",
            Part::DriveLinks => "the links of the drives",
            Part::Card => "the RAID card",
            Part::Cpu => "the CPUs",
            Part::Network => "the network",
            Part::InFlight => "the requests in flight",
        }
    }
}

/// An operation on a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriveOp {
    /// A read; else a write.
    pub read: bool,
    /// Bytes.
    pub bytes: f64,
    /// In the order of addresses.
    pub in_order: bool,
    /// Part of a larger command: a log gathers small writes.
    pub commands: f64,
}

impl DriveOp {
    /// One command.
    pub(crate) fn new(read: bool, bytes: f64, in_order: bool) -> DriveOp {
        DriveOp { read, bytes, in_order, commands: 1.0 }
    }
}
