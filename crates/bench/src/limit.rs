//! The theoretical limit of each ratio: what drives that do nothing but our work would allow.
//!
//! From the design, sections 3 and 8. With n equal drives, and segments of k data columns of `width` in all (spread
//! over the n drives evenly), a drive that gives 1 alone gives the array:
//!
//! | load | limit | why |
//! |---|---|---|
//! | reads | 1 | a block is read from one place; all n drives hold data |
//! | writes | k / width | each k blocks of data cost `width` blocks of drives, nothing is read, nothing to clean |
//! | of which RAID 10 | 1 / copies | width = k * copies |
//! | sequential write per data drive | 1 | (k / width) * n / (n * k / width) |
//! | a mix with a share r of reads | 1 / (r + (1 - r) * width / k) | times add up, not rates |
//!
//! Small parts left out: the header (one block of a record of up to 240), map nodes. Where the CPU and not the drives
//! is the bottleneck, as on memory drives, checksums and parity keep the ratio below these.

use ondisk::Scheme;

use crate::load::Pattern;

/// The limit of a level's rate over that of the direct drives.
#[must_use]
pub fn ratio(pattern: Pattern, scheme: Scheme) -> f64 {
    let reads = f64::from(pattern.read_percent) / 100.0;
    1.0 / (reads + (1.0 - reads) * drive_bytes_per_host_byte(scheme))
}

/// The limit per data drive: (rate of the array / its data drives) / (rate of the direct drives / n).
#[must_use]
pub fn ratio_per_data_drive(pattern: Pattern, scheme: Scheme) -> f64 {
    ratio(pattern, scheme) * drive_bytes_per_host_byte(scheme)
}

/// Bytes the drives get per byte of hosts, at least.
#[must_use]
pub fn drive_bytes_per_host_byte(scheme: Scheme) -> f64 {
    scheme.width() as f64 / scheme.k() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Order;

    #[test]
    fn as_in_the_design() {
        let wide = Scheme::Parity { k: 7, m: 1 };
        assert_eq!(ratio(Pattern::RANDOM_WRITE, wide), 0.875);
        assert_eq!(ratio(Pattern::RANDOM_READ, wide), 1.0);
        assert_eq!(ratio_per_data_drive(Pattern::SEQUENTIAL_WRITE, wide), 1.0);
        assert_eq!(ratio(Pattern::RANDOM_WRITE, Scheme::Copies { k: 4, copies: 2 }), 0.5);
        assert_eq!(ratio(Pattern::RANDOM_WRITE, Scheme::Parity { k: 8, m: 0 }), 1.0);
        let half = Pattern { order: Order::Random, read_percent: 50 };
        assert!((ratio(half, Scheme::Copies { k: 4, copies: 2 }) - 2.0 / 3.0).abs() < 1e-9);
    }
}
