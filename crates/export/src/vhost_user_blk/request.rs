//! What a guest asks: the head of its request and the room around it, judged against the device. Virtio 1.2, 5.2.6.
//!
//! | type | becomes |
//! |---|---|
//! | IN, OUT | a read, a write |
//! | FLUSH | the same |
//! | GET_ID | the identity |
//! | DISCARD, WRITE_ZEROES | the same, of one range |
//! | whatever else | not supported |
//!
//! Invariant: what comes out lies within the device, is made of whole blocks, and is no longer than was agreed. A guest that keeps to
//! what it was told never sees a refusal for its length.

use crate::namespace::{Fault, Request};

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
pub(super) const DISCARD: u32 = 11;
pub(super) const WRITE_ZEROES: u32 = 13;
/// Of a range that is to be zero: it need not stay allocated.
const UNMAP: u32 = 1;

/// Bytes of a request's head, and of a range.
pub const HEAD: usize = 16;
/// Parts of a request's data, and the longest: together the longest request. A guest merges pages that lie behind each other.
pub(super) const SEGMENTS_MAX: u32 = 64;
pub(super) const SEGMENT_BYTES_MAX: u32 = 64 << 10;
/// Longest read or write.
pub const REQUEST_BYTES_MAX: u32 = SEGMENTS_MAX * SEGMENT_BYTES_MAX;
/// Longest discard or write of zeroes: one takes no longer than a large write does, also where zeroes are written.
pub(super) const ZERO_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the identity.
pub const IDENTITY: usize = 20;

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is done.
    Ok,
    /// It failed, or does not keep to the limits.
    IoErr,
    /// It is not known here.
    Unsupp,
}

impl Status {
    /// As the guest reads it.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Status::Ok => 0,
            Status::IoErr => 1,
            Status::Unsupp => 2,
        }
    }
}

/// The table.
impl From<Fault> for Status {
    fn from(fault: Fault) -> Status {
        match fault {
            Fault::Medium
            | Fault::Unavailable
            | Fault::Gone
            | Fault::NoSpace
            | Fault::ReadOnly
            | Fault::OutOfRange
            | Fault::Misaligned => Status::IoErr,
        }
    }
}

/// What requests may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Length of the device.
    pub bytes: u64,
    /// Unit of addressing.
    pub block: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether writes are durable when they are answered: the guest does not flush.
    pub durable: bool,
}

/// What a guest gave: copies, which it cannot change any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The head: type, priority, sector.
    pub head: [u8; HEAD],
    /// Bytes that it gives beside the head.
    pub sent: u64,
    /// Bytes that it has room for, beside the status.
    pub room: u64,
    /// The first of them that it gives, of a request for ranges.
    pub range: [u8; HEAD],
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// By the namespace.
    Namespace(Request<u32>),
    /// The identity is told.
    Identity,
}

/// Whether requests of this type give ranges.
#[must_use]
pub fn gives_ranges(head: &[u8; HEAD]) -> bool {
    matches!(u32_at(head, 0), DISCARD | WRITE_ZEROES)
}

/// What a guest asks for; a write's data comes later.
///
/// # Errors
/// When it is not supported, or does not keep to the limits.
pub fn judge(asked: &Asked, limits: &Limits) -> Result<Verb, Status> {
    let (kind, sector) = (u32_at(&asked.head, 0), u64_at(&asked.head, 8));
    let changes = matches!(kind, OUT | DISCARD | WRITE_ZEROES);
    if changes && limits.read_only {
        return Err(Status::IoErr);
    }
    let fua = limits.durable;
    Ok(Verb::Namespace(match kind {
        IN => Request::Read { offset: within(sector, asked.room, limits)?, bytes: moved(asked.room)? },
        OUT => Request::Write { offset: within(sector, asked.sent, limits)?, data: moved(asked.sent)?, fua },
        FLUSH => Request::Flush,
        GET_ID => return Ok(Verb::Identity),
        DISCARD | WRITE_ZEROES => {
            let (sector, sectors, flags) = (u64_at(&asked.range, 0), u32_at(&asked.range, 8), u32_at(&asked.range, 12));
            let known = if kind == WRITE_ZEROES { UNMAP } else { 0 };
            if flags & !known != 0 {
                return Err(Status::Unsupp);
            }
            let bytes = u64::from(sectors) * 512;
            if asked.sent != HEAD as u64 || bytes > ZERO_BYTES_MAX {
                return Err(Status::IoErr);
            }
            let offset = within(sector, bytes, limits)?;
            match kind {
                DISCARD => Request::Deallocate { offset, bytes, fua },
                _ => Request::WriteZeroes { offset, bytes, may_deallocate: flags & UNMAP != 0, fua },
            }
        }
        _ => return Err(Status::Unsupp),
    }))
}

/// The first byte of a range that the device has.
fn within(sector: u64, bytes: u64, limits: &Limits) -> Result<u64, Status> {
    let offset = sector.checked_mul(512).ok_or(Status::IoErr)?;
    let block = u64::from(limits.block);
    let is_within = offset.checked_add(bytes).is_some_and(|end| end <= limits.bytes);
    if bytes == 0 || !is_within || !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        return Err(Status::IoErr);
    }
    Ok(offset)
}

fn moved(bytes: u64) -> Result<u32, Status> {
    u32::try_from(bytes).ok().filter(|bytes| *bytes <= REQUEST_BYTES_MAX).ok_or(Status::IoErr)
}

fn u32_at(raw: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes(raw[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(raw: &[u8; HEAD], at: usize) -> u64 {
    u64::from_le_bytes(raw[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bytes: 1 << 30, block: 4096, read_only: false, durable: false };

    fn head(kind: u32, sector: u64) -> [u8; HEAD] {
        let mut raw = [0; HEAD];
        raw[..4].copy_from_slice(&kind.to_le_bytes());
        raw[8..].copy_from_slice(&sector.to_le_bytes());
        raw
    }

    fn range(sector: u64, sectors: u32, flags: u32) -> [u8; HEAD] {
        let mut raw = [0; HEAD];
        raw[..8].copy_from_slice(&sector.to_le_bytes());
        raw[8..12].copy_from_slice(&sectors.to_le_bytes());
        raw[12..].copy_from_slice(&flags.to_le_bytes());
        raw
    }

    fn judged(kind: u32, sector: u64, sent: u64, room: u64) -> Result<Verb, Status> {
        judge(&Asked { head: head(kind, sector), sent, room, range: [0; HEAD] }, &LIMITS)
    }

    fn ranged(kind: u32, range: [u8; HEAD], limits: &Limits) -> Result<Verb, Status> {
        judge(&Asked { head: head(kind, u64::MAX), sent: 16, room: 0, range }, limits)
    }

    #[test]
    fn types() {
        let namespace = |request| Ok(Verb::Namespace(request));
        assert_eq!(judged(IN, 8, 0, 8192), namespace(Request::Read { offset: 4096, bytes: 8192 }));
        assert_eq!(judged(OUT, 8, 8192, 0), namespace(Request::Write { offset: 4096, data: 8192, fua: false }));
        assert_eq!(judged(FLUSH, u64::MAX, 0, 0), namespace(Request::Flush));
        assert_eq!(judged(GET_ID, 0, 0, 20), Ok(Verb::Identity));
        for kind in [2, 3, 5, 9, 10, 12, 14, 15, 0x8000_0000, u32::MAX] {
            assert_eq!(judged(kind, 8, 4096, 4096), Err(Status::Unsupp), "{kind}");
        }
        let (offset, bytes, fua) = (4096, 8192, false);
        for (kind, flags, expected) in [
            (DISCARD, 0, namespace(Request::Deallocate { offset, bytes, fua })),
            (DISCARD, 1, Err(Status::Unsupp)),
            (WRITE_ZEROES, 0, namespace(Request::WriteZeroes { offset, bytes, may_deallocate: false, fua })),
            (WRITE_ZEROES, 1, namespace(Request::WriteZeroes { offset, bytes, may_deallocate: true, fua })),
            (WRITE_ZEROES, 2, Err(Status::Unsupp)),
        ] {
            assert_eq!(ranged(kind, range(8, 16, flags), &LIMITS), expected, "{kind} {flags}");
        }
    }

    #[test]
    fn ranges() {
        let end = LIMITS.bytes / 512;
        for (sector, bytes, is_good) in [
            (0, 4096, true),
            (end - 8, 4096, true),
            (0, 4 << 20, true),
            (0, (4 << 20) + 4096, false),
            (end, 4096, false),
            (end - 8, 8192, false),
            (u64::MAX, 4096, false),
            (u64::MAX / 512, 4096, false),
            (u64::MAX / 512 + 1, 4096, false),
            (1, 4096, false),
            (8, 512, false),
            (8, 4097, false),
            (0, 0, false),
            (0, u64::MAX, false),
            (8, 1 << 32, false),
        ] {
            assert_eq!(judged(IN, sector, 0, bytes).is_ok(), is_good, "{sector} {bytes}");
            assert_eq!(judged(OUT, sector, bytes, 0).is_ok(), is_good, "{sector} {bytes}");
        }
        assert!(ranged(DISCARD, range(0, 2 << 20, 0), &LIMITS).is_ok());
        assert!(ranged(DISCARD, range(0, (2 << 20) + 8, 0), &LIMITS).is_err());
        assert!(ranged(WRITE_ZEROES, range(0, u32::MAX, 0), &LIMITS).is_err());
        assert!(ranged(WRITE_ZEROES, range(0, 0, 0), &LIMITS).is_err());
        assert!(ranged(WRITE_ZEROES, range(u64::MAX, 8, 0), &LIMITS).is_err());
        for sent in [0, 15, 17, 32] {
            let asked = Asked { head: head(DISCARD, 0), sent, room: 0, range: range(8, 8, 0) };
            assert_eq!(judge(&asked, &LIMITS), Err(Status::IoErr), "{sent}");
        }
    }

    #[test]
    fn what_is_read_only_is_not_changed() {
        let limits = Limits { read_only: true, ..LIMITS };
        for kind in [OUT, DISCARD, WRITE_ZEROES] {
            let asked = Asked { head: head(kind, 0), sent: 16, room: 0, range: range(0, 8, 0) };
            assert_eq!(judge(&asked, &limits), Err(Status::IoErr));
        }
        let durable = Limits { durable: true, ..LIMITS };
        assert!(matches!(
            ranged(DISCARD, range(0, 8, 0), &durable),
            Ok(Verb::Namespace(Request::Deallocate { fua: true, .. }))
        ));
    }
}
