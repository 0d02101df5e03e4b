//! What the kernel asks: a descriptor, judged against the device. Operations of `include/uapi/linux/ublk_cmd.h`.
//!
//! | operation | becomes |
//! |---|---|
//! | READ, WRITE | the same; WRITE with its FUA flag |
//! | FLUSH | the same |
//! | DISCARD | a deallocation |
//! | WRITE_ZEROES | the same; without NOUNMAP it may deallocate |
//! | WRITE_SAME, all of zones, whatever comes | not supported |
//!
//! Invariant: what comes out lies within the device, is made of whole blocks, and is no longer than was agreed. The kernel keeps to
//! that by itself; a descriptor is judged all the same.

use crate::namespace::{Fault, Request};

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const WRITE_ZEROES: u32 = 5;

/// `UBLK_IO_F_FUA`: durable when it is answered.
const FUA: u32 = 1 << 13;
/// `UBLK_IO_F_NOUNMAP`: the range stays allocated.
const NOUNMAP: u32 = 1 << 15;

/// Error numbers of Linux.
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;

/// Why a request fails: the number of an error of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The table.
impl From<Fault> for Errno {
    fn from(fault: Fault) -> Errno {
        Errno(match fault {
            Fault::Medium | Fault::Unavailable | Fault::Gone => EIO,
            Fault::NoSpace => ENOSPC,
            Fault::ReadOnly => EROFS,
            Fault::OutOfRange | Fault::Misaligned => EINVAL,
        })
    }
}

impl From<rt::ublk::CopyError> for Errno {
    fn from(_: rt::ublk::CopyError) -> Errno {
        Errno(EIO)
    }
}

/// What requests to a device may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Length of the device.
    pub bytes: u64,
    /// Unit of addressing.
    pub block: u32,
    /// Longest read or write.
    pub request_bytes_max: u32,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// What a descriptor asks for, by operation and flags, length and first sector; a write's data comes later.
///
/// # Errors
/// When it is not supported, or does not keep to the limits.
pub fn judge(descriptor: &rt::ublk::Descriptor, limits: &Limits) -> Result<Request<u32>, Errno> {
    let (operation, flags) = (descriptor.operation & 0xff, descriptor.operation);
    let fua = flags & FUA != 0;
    if operation == FLUSH {
        return Ok(Request::Flush);
    }
    let changes = match operation {
        READ => false,
        WRITE | DISCARD | WRITE_ZEROES => true,
        _ => return Err(Errno(EOPNOTSUPP)),
    };
    if changes && limits.read_only {
        return Err(Errno(EROFS));
    }
    let bytes = u64::from(descriptor.sectors) << 9;
    let offset = descriptor.sector.checked_mul(512).ok_or(Errno(EINVAL))?;
    let block = u64::from(limits.block);
    let is_within = offset.checked_add(bytes).is_some_and(|end| end <= limits.bytes);
    if bytes == 0 || !is_within || !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        return Err(Errno(EINVAL));
    }
    let moved = u32::try_from(bytes).ok().filter(|bytes| *bytes <= limits.request_bytes_max).ok_or(Errno(EINVAL));
    Ok(match operation {
        READ => Request::Read { offset, bytes: moved? },
        WRITE => Request::Write { offset, data: moved?, fua },
        DISCARD => Request::Deallocate { offset, bytes, fua },
        _ => Request::WriteZeroes { offset, bytes, may_deallocate: flags & NOUNMAP == 0, fua },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::ublk::Descriptor;

    const LIMITS: Limits = Limits { bytes: 1 << 30, block: 4096, request_bytes_max: 256 << 10, read_only: false };

    fn judged(operation: u32, sector: u64, sectors: u32) -> Result<Request<u32>, Errno> {
        judge(&Descriptor { operation, sectors, sector, addr: 0 }, &LIMITS)
    }

    #[test]
    fn operations() {
        for (operation, expected) in [
            (READ, Ok(Request::Read { offset: 4096, bytes: 8192 })),
            // Flags of no meaning here: FAILFAST, META, SWAP.
            (READ | 0x1_0f00, Ok(Request::Read { offset: 4096, bytes: 8192 })),
            (WRITE, Ok(Request::Write { offset: 4096, data: 8192, fua: false })),
            (WRITE | FUA, Ok(Request::Write { offset: 4096, data: 8192, fua: true })),
            (FLUSH, Ok(Request::Flush)),
            (DISCARD, Ok(Request::Deallocate { offset: 4096, bytes: 8192, fua: false })),
            (WRITE_ZEROES, Ok(Request::WriteZeroes { offset: 4096, bytes: 8192, may_deallocate: true, fua: false })),
            (
                WRITE_ZEROES | NOUNMAP | FUA,
                Ok(Request::WriteZeroes { offset: 4096, bytes: 8192, may_deallocate: false, fua: true }),
            ),
            (4, Err(Errno(EOPNOTSUPP))),
            (6, Err(Errno(EOPNOTSUPP))),
            (0xff, Err(Errno(EOPNOTSUPP))),
        ] {
            assert_eq!(judged(operation, 8, 16), expected, "{operation:#x}");
        }
    }

    #[test]
    fn ranges() {
        let end = LIMITS.bytes / 512;
        for (sector, sectors, is_good) in [
            (0, 8, true),
            (end - 8, 8, true),
            (0, 512, true),
            (end, 8, false),
            (end - 8, 16, false),
            (u64::MAX, 8, false),
            (u64::MAX / 512, 8, false),
            (u64::MAX / 512 + 1, 8, false),
            (1, 8, false),
            (8, 1, false),
            (0, 0, false),
            (0, 520, false),
            (0, u32::MAX, false),
        ] {
            assert_eq!(judged(READ, sector, sectors).is_ok(), is_good, "{sector} {sectors}");
            assert_eq!(judged(WRITE, sector, sectors).is_ok(), is_good, "{sector} {sectors}");
        }
        // What moves no data may be longer.
        assert!(judged(DISCARD, 0, (LIMITS.bytes >> 9) as u32).is_ok());
        assert!(judged(DISCARD, 8, (LIMITS.bytes >> 9) as u32).is_err());
        assert!(judged(WRITE_ZEROES, 0, u32::MAX).is_err());
        // A flush has no range.
        assert_eq!(judged(FLUSH, u64::MAX, u32::MAX), Ok(Request::Flush));
    }

    #[test]
    fn what_is_read_only_is_not_changed() {
        let limits = Limits { read_only: true, ..LIMITS };
        let judged = |operation| judge(&Descriptor { operation, sectors: 8, sector: 0, addr: 0 }, &limits);
        for operation in [WRITE, DISCARD, WRITE_ZEROES] {
            assert_eq!(judged(operation), Err(Errno(EROFS)));
        }
        assert!(judged(READ).is_ok() && judged(FLUSH).is_ok());
    }
}
