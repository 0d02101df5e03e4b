//! Which reads and writes are polled: those that the kernel's block layer certainly passes on as one command.
//!
//! Before Linux 6.6 what is polled is sent with the order not to wait. One that has to be split is refused then with EAGAIN,
//! and a kernel thread tries again for ever ("block: don't make REQ_POLLED imply REQ_NOWAIT", Axboe, August 2023). So what
//! would have to be split goes without polling; it is long, and an interrupt costs it little.
//!
//! Not here: the ring that polls (`ring`).

use base::BLOCK_BYTES;

use super::limits::{Limits, pages_of};
use crate::Bytes;

/// The kernel's BIO_MAX_VECS: what lies on more pages is sent as several requests.
const PAGES_MAX: usize = 256;

/// What goes as one command, as the block layer of a drive has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OneCommand {
    limits: Limits,
    /// Multiples of this lie in no command's middle; zero: any may.
    boundary_bytes: u64,
    /// What is cut off ends at a multiple of this.
    physical_bytes: u64,
}

impl OneCommand {
    /// None when the drive says what makes no sense.
    pub(super) fn new(limits: Limits, boundary_bytes: u64, physical_bytes: u64) -> Option<OneCommand> {
        let limits = Limits { pages: limits.pages.min(PAGES_MAX), ..limits };
        physical_bytes.is_power_of_two().then_some(OneCommand { limits, boundary_bytes, physical_bytes })
    }

    /// Whether a read to `memory` of `len` bytes from byte `at` on is one.
    pub(super) fn is_read(self, at: u64, memory: *const u8, len: usize) -> bool {
        self.is_one(at, len, pages_of(memory, len))
    }

    /// Whether a write of these parts to byte `at` on is one.
    pub(super) fn is_write<'a>(self, at: u64, parts: impl ExactSizeIterator<Item = &'a Bytes>) -> bool {
        let several = parts.len() > 1;
        let (mut len, mut pages) = (0, 0);
        for part in parts {
            // Between parts that are no whole pages there are gaps, at which NVMe commands end (PRP lists have none).
            if several && !(part.as_ptr() as usize).is_multiple_of(BLOCK_BYTES) {
                return false;
            }
            len += part.len();
            pages += pages_of(part.as_ptr(), part.len());
        }
        self.is_one(at, len, pages)
    }

    fn is_one(self, at: u64, len: usize, pages: usize) -> bool {
        pages <= self.limits.pages && len as u64 <= self.bytes_from(at)
    }

    /// The longest request from byte `at` on that is not cut, as the kernel's `get_max_io_size` (block/blk-merge.c) has it;
    /// zero where none is certain.
    fn bytes_from(self, at: u64) -> u64 {
        let longest = self.limits.bytes as u64;
        let longest = match self.boundary_bytes {
            0 => longest,
            boundary => longest.min(boundary - at % boundary),
        };
        let start = at % self.physical_bytes;
        let end = start + longest;
        (end - end % self.physical_bytes).saturating_sub(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn drive(boundary_bytes: u64, physical_bytes: u64) -> OneCommand {
        OneCommand::new(Limits::new(32 * KIB, 8).unwrap(), boundary_bytes, physical_bytes).unwrap()
    }

    #[test]
    fn reads() {
        for (physical_bytes, at, memory, len, want) in [
            (512, 0, 0x1000, 4 * KIB, true),
            (512, 0, 0x1000, 32 * KIB, true),
            (512, 0, 0x1000, 36 * KIB, false),
            // Nine pages.
            (512, 0, 0x1200, 32 * KIB, false),
            (512, 124 << 10, 0x1000, 4 * KIB, true),
            (512, 124 << 10, 0x1000, 8 * KIB, false),
            (512, 96 << 10, 0x1000, 32 * KIB, true),
            (4096, 4 << 10, 0x1000, 32 * KIB, true),
            // It is cut at 32 KiB, the last multiple of 16 within reach.
            (16384, 4 << 10, 0x1000, 28 * KIB, true),
            (16384, 4 << 10, 0x1000, 32 * KIB, false),
            (16384, 16 << 10, 0x1000, 32 * KIB, true),
            // No multiple is within reach.
            (65536, 4 << 10, 0x1000, 4 * KIB, false),
            (65536, 32 << 10, 0x1000, 32 * KIB, true),
        ] {
            let drive = drive(128 << 10, physical_bytes);
            let memory = std::ptr::without_provenance(memory);
            assert_eq!(drive.is_read(at, memory, len), want, "{physical_bytes} {at} {memory:?} {len}");
        }
        assert!(drive(0, 512).is_read(124 << 10, std::ptr::without_provenance(0x1000), 8 * KIB));
    }

    #[test]
    fn writes() {
        let page = Bytes::zeroed(BLOCK_BYTES);
        let aside = Bytes::zeroed(2 * BLOCK_BYTES).slice(512..BLOCK_BYTES + 512);
        let is_one = |parts: &[&Bytes]| drive(128 << 10, 512).is_write(0, parts.iter().copied());
        assert!(is_one(&[&page]) && is_one(&[&page; 8]) && is_one(&[&aside]));
        assert!(!is_one(&[&page; 9]) && !is_one(&[&page, &aside]) && !is_one(&[&aside, &page]));
        assert!(!drive(128 << 10, 512).is_write(124 << 10, [&page, &page].into_iter()));
    }

    #[test]
    fn what_drives_say() {
        let limits = Limits::new(4 << 20, 1000).unwrap();
        assert_eq!(OneCommand::new(limits, 0, 0), None);
        let drive = OneCommand::new(limits, 0, 4096).unwrap();
        let memory = std::ptr::without_provenance(0x1000);
        assert!(drive.is_read(0, memory, 1024 * KIB) && !drive.is_read(0, memory, 1028 * KIB));
    }
}
