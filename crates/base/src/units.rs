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

/// Bytes from a size as people write it: "4096", "4K", "512M", "4 GiB", "1.5T"; always binary units. One with a fraction means
/// "about": it is rounded up to a thousandth of its unit, and to whole MiB from G on.
///
/// # Errors
/// What is wrong with it, and what is valid.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        |why: &str| format!("\"{text}\" is not a size: {why}; write for instance 512M, 4G or 1.5T (binary units)");
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let shift: u32 = match unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit) {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err(wrong(&format!("unit \"{unit}\" is unknown (valid: K, M, G, T, P)"))),
    };
    if number.is_empty() {
        return Err(wrong("it must begin with a number"));
    }
    if !number.contains('.') {
        let whole: u64 = number.parse().map_err(|_| wrong("the number is too large"))?;
        return whole.checked_shl(shift).filter(|b| b >> shift == whole).ok_or_else(|| wrong("it is too large"));
    }
    if shift == 0 {
        return Err(wrong("bytes have no fraction"));
    }
    let number: f64 = number.parse().map_err(|_| wrong("its number is not valid"))?;
    let bytes = number * (1u64 << shift) as f64;
    if bytes >= (u64::MAX >> 1) as f64 {
        return Err(wrong("it is too large"));
    }
    Ok((bytes as u64).next_multiple_of(1 << (shift - 10).min(20)))
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

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("1.5K", 1536),
            ("1.5M", 3 << 19),
            ("512M", 512 << 20),
            ("4GiB", 4 << 30),
            ("4 gb", 4 << 30),
            ("2T", 2 << 40),
            ("1.5G", 3 << 29),
            ("0.3G", 308 << 20),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "G", "-4G", "4X", "1.5", "99999999P", "9999.5P", "4G4", "1.2.3G", "18446744073709551616", "nan"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
