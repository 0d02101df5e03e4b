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
//! | a mix with a share r of reads | (r R + 1 - r) / (r R + (1 - r) * width / k) | times add up, not rates; a read costs R writes |
//! | random writes, live share u | as writes, each A times, and A - 1 reads | A as [`crate::overwrite::theory`] says of u |
//! | a drive is out | (n - 1) / n of it | of reads one in n wants k others, or a copy |
//!
//! Without a drive, and with rows as wide as the drives were many, rows have one data column less.
//!
//! Small parts left out: the header (one block of a record of up to 240), map nodes. Where the CPU and not the drives
//! is the bottleneck, as on memory drives, checksums and parity keep the ratio below these.

use ondisk::Scheme;

use crate::load::{Order, Pattern};
use crate::overwrite::theory;

/// What an array is, for the limit of its rate.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its segments.
    pub scheme: Scheme,
    /// Its drives.
    pub drives: usize,
    /// One of them is out.
    pub degraded: bool,
    /// Live blocks per data block of all zones, where cleaning goes on.
    pub live_share: Option<f64>,
    /// What a read costs the drives, in writes; where nobody knows: nothing beside cleaning, 1 among hosts' requests.
    pub read_cost: Option<f64>,
}

impl Case {
    /// A whole array with nothing to clean.
    #[must_use]
    pub const fn new(scheme: Scheme, drives: usize) -> Case {
        Case { scheme, drives, degraded: false, live_share: None, read_cost: None }
    }

    /// The limit of its rate over that of the direct drives.
    #[must_use]
    pub fn ratio(&self, pattern: Pattern) -> f64 {
        let reads = f64::from(pattern.read_percent) / 100.0;
        let read_cost = self.read_cost.unwrap_or(1.0);
        let direct = reads * read_cost + (1.0 - reads);
        let array = reads * read_cost * self.reads_per_read() + (1.0 - reads) * self.write(pattern.order);
        self.drives_left() * direct / array
    }

    /// The drives that are left, as a part of all.
    fn drives_left(&self) -> f64 {
        let n = self.drives as f64;
        if self.degraded { (n - 1.0) / n } else { 1.0 }
    }

    fn reads_per_read(&self) -> f64 {
        match self.scheme {
            Scheme::Parity { k, .. } if self.degraded => {
                let n = self.drives as f64;
                (n - 1.0 + f64::from(k)) / n
            }
            _ => 1.0,
        }
    }

    /// What a block of hosts costs the drives, in writes.
    fn write(&self, order: Order) -> f64 {
        let cleaning = if order == Order::Sequential { 1.0 } else { self.live_share.map_or(1.0, theory) };
        let (k, width) = (self.scheme.k() as f64, self.scheme.width() as f64);
        let narrower = self.degraded && self.scheme.width() == self.drives;
        let redundancy = match self.scheme {
            Scheme::Parity { .. } if narrower && k > 1.0 => (width - 1.0) / (k - 1.0),
            _ => width / k,
        };
        cleaning * redundancy + (cleaning - 1.0) * self.read_cost.unwrap_or(0.0)
    }
}

/// Bytes the drives get per byte of hosts, at least.
#[must_use]
pub fn drive_bytes_per_host_byte(scheme: Scheme) -> f64 {
    scheme.width() as f64 / scheme.k() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Case = Case::new(Scheme::Parity { k: 7, m: 1 }, 8);

    #[test]
    fn as_in_the_design() {
        assert_eq!(WIDE.ratio(Pattern::RANDOM_WRITE), 0.875);
        assert_eq!(WIDE.ratio(Pattern::RANDOM_READ), 1.0);
        assert_eq!(Case::new(Scheme::Copies { k: 4, copies: 2 }, 8).ratio(Pattern::RANDOM_WRITE), 0.5);
        assert_eq!(Case::new(Scheme::Parity { k: 8, m: 0 }, 8).ratio(Pattern::RANDOM_WRITE), 1.0);
        let half = Pattern { order: Order::Random, read_percent: 50 };
        assert!((Case::new(Scheme::Copies { k: 4, copies: 2 }, 8).ratio(half) - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn full_arrays_clean() {
        let full = Case { live_share: Some(0.68), read_cost: Some(1.0 / 3.0), ..WIDE };
        let limit = full.ratio(Pattern::RANDOM_WRITE);
        assert!((0.42..0.44).contains(&limit), "{limit}");
        assert_eq!(full.ratio(Pattern::SEQUENTIAL_WRITE), 0.875);
    }

    #[test]
    fn without_a_drive() {
        let degraded = |k, drives| Case { degraded: true, ..Case::new(Scheme::Parity { k, m: 1 }, drives) };
        assert_eq!(degraded(7, 8).ratio(Pattern::RANDOM_READ), 0.5);
        let spread = degraded(7, 24).ratio(Pattern::RANDOM_READ);
        assert!((spread - 23.0 / 30.0).abs() < 1e-9, "{spread}");
        assert_eq!(degraded(7, 8).ratio(Pattern::RANDOM_WRITE), 0.875 * 6.0 / 7.0);
    }
}
