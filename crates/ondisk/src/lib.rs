//! Every byte that Ashlar stores: structs, checks, versions.
//!
//! Invariants:
//! - bytes from a drive become a value only through a function that checks them (`decode`, `verify`), and such a
//!   function never panics, whatever the bytes are;
//! - all numbers are little-endian, every variable part carries its length, reserved bytes are zero and checked;
//! - a changed layout changes [`FORMAT_VERSION`] (the golden images in `tests/` hold it still).
//!
//! Not here: what the values mean for an array's life (that is `array`).

pub mod bytes;
pub mod crc;
pub mod generation;
pub mod journal;
pub mod label;
pub mod layout;
pub mod map;
pub mod member;
pub mod owner;
pub mod record;
pub mod scheme;
pub mod segment;
pub mod settings;
pub mod volume;

pub use crc::crc32c;
pub use generation::{Features, Generation, ReplayFrom};
pub use label::{Label, PartOf};
pub use layout::Layout;
pub use map::{MapRef, NODE_REFS, Node, Place};
pub use member::{Member, MemberState, WhyOut};
pub use owner::{OwnerMark, OwnerState};
pub use record::{ENTRIES_MAX, Entry, RecordHeader};
pub use scheme::{Level, Scheme};
pub use segment::{CUTS_MAX, Cut, Segment, SegmentState, Slot};
pub use settings::{Limits, Rate, ScrubLine, Settings};
pub use volume::{Volume, VolumeKind, VolumeState};

/// The version of everything on the drives.
pub const FORMAT_VERSION: u16 = 2;

/// Slices of the LBA space; each has its own trees and is attached to one log.
pub const SHARDS: usize = 16;

/// Why bytes were not taken for what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Not one of ours at all.
    #[error("no {0} here")]
    Absent(&'static str),
    /// One of ours, but the checksum does not match.
    #[error("{0}: checksum mismatch")]
    Checksum(&'static str),
    /// Written by a version this program does not know.
    #[error("{what}: format version {found}, this program knows {FORMAT_VERSION}")]
    Version {
        /// Which structure.
        what: &'static str,
        /// The version found.
        found: u16,
    },
    /// Needs a feature this program does not know.
    #[error("it uses features of the format that this Ashlar does not know (bits {0:#x})")]
    Feature(u64),
    /// Checksum right, contents impossible.
    #[error("{0}: impossible value in field {1}")]
    Field(&'static str, &'static str),
    /// Ends before its contents do.
    #[error("{0}: cut short")]
    Short(&'static str),
}
