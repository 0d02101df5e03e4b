//! Blocks, the three kinds of block address, and sizes as people read them.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a block: the unit of mapping, checksum and parity.
pub const BLOCK_BYTES: usize = 4096;

/// A number of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockCount(pub u64);

impl BlockCount {
    /// No blocks.
    pub const ZERO: BlockCount = BlockCount(0);

    /// Whole blocks in `bytes`, rounding down.
    #[must_use]
    pub const fn floor_from_bytes(bytes: u64) -> Self {
        BlockCount(bytes / BLOCK_BYTES as u64)
    }

    /// Blocks needed to hold `bytes`, rounding up.
    #[must_use]
    pub const fn ceil_from_bytes(bytes: u64) -> Self {
        BlockCount(bytes.div_ceil(BLOCK_BYTES as u64))
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 * BLOCK_BYTES as u64
    }

    /// Length in bytes as a memory size.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0 as usize * BLOCK_BYTES
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Add for BlockCount {
    type Output = BlockCount;
    fn add(self, other: BlockCount) -> BlockCount {
        BlockCount(self.0 + other.0)
    }
}

impl AddAssign for BlockCount {
    fn add_assign(&mut self, other: BlockCount) {
        self.0 += other.0;
    }
}

impl Sub for BlockCount {
    type Output = BlockCount;
    fn sub(self, other: BlockCount) -> BlockCount {
        BlockCount(self.0 - other.0)
    }
}

macro_rules! block_address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The address of the block that holds byte `offset`.
            #[must_use]
            pub const fn containing_byte(offset: u64) -> Self {
                $name(offset / BLOCK_BYTES as u64)
            }

            /// Byte offset of the block's first byte.
            #[must_use]
            pub const fn byte_offset(self) -> u64 {
                self.0 * BLOCK_BYTES as u64
            }

            /// Blocks from `earlier` to here; panics when `earlier` lies beyond.
            #[must_use]
            pub const fn since(self, earlier: Self) -> BlockCount {
                BlockCount(self.0 - earlier.0)
            }
        }

        impl Add<BlockCount> for $name {
            type Output = $name;
            fn add(self, n: BlockCount) -> $name {
                $name(self.0 + n.0)
            }
        }

        impl AddAssign<BlockCount> for $name {
            fn add_assign(&mut self, n: BlockCount) {
                self.0 += n.0;
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

block_address!(
    /// A block in a volume.
    Lba
);
block_address!(
    /// A block on one drive, counted from the drive's first byte.
    MemberLba
);

/// A block in the array: a segment and a block within it.
///
/// The block number is `column * zone_blocks + row`, so that a run down a column is a run of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pba {
    /// The segment.
    pub segment: crate::SegmentId,
    /// The block within the segment's data columns.
    pub block: u32,
}

impl fmt::Display for Pba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.block)
    }
}

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `bytes` with about three digits and a binary unit: "17 B", "4 KiB", "1.5 TiB".
#[must_use]
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        // 1023.95 would print as "1024.0".
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value >= 99.95 || value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_says_what_it_means() {
        assert_eq!(BlockCount::floor_from_bytes(8191), BlockCount(1));
        assert_eq!(BlockCount::ceil_from_bytes(8191), BlockCount(2));
        assert_eq!(BlockCount(3).bytes(), 12288);
        assert_eq!(Lba::containing_byte(4097), Lba(1));
        assert_eq!((Lba(5) + BlockCount(2)).since(Lba(4)), BlockCount(3));
    }

    #[test]
    fn sizes_print() {
        for (bytes, text) in [
            (0, "0 B"),
            (17, "17 B"),
            (4096, "4 KiB"),
            (1 << 20, "1 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1536 << 30, "1.5 TiB"),
            (345 << 20, "345 MiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}
