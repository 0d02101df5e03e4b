//! Units and ids as types: the words every other room speaks.
//!
//! Invariant: a place in a volume, in a segment and on a drive are three different types, and none converts to
//! another by `as`. Differences of places are [`BlockCount`]s.
//!
//! Not here: addresses turning into places (that is `array`), bytes on a drive (that is `ondisk`).

pub mod classes;
mod date;
pub mod ids;
pub mod units;

pub use date::utc;
pub use ids::{ArrayUuid, Epoch, Generation, MemberId, MemberUuid, SegmentId, Seq, VolumeId};
pub use units::{BLOCK_BYTES, BlockCount, Lba, MemberLba, Pba, human};
