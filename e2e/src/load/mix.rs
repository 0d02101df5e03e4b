//! What a load is made of: shares of the requests, their sizes and places.

use std::ops::Range;

use rand::RngExt;

use super::Random;
use crate::model::{Kind, SECTOR};

/// The longest write: 1 MiB.
const WRITE_SECTORS_MAX: u64 = (1 << 20) / SECTOR as u64;
/// The longest deallocation and write of zeroes: 4 MiB.
const CLEAR_SECTORS_MAX: u64 = (4 << 20) / SECTOR as u64;
/// Sectors of a block of the array.
const BLOCK_SECTORS: u64 = 8;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Something changes.
    Change {
        /// What it leaves.
        kind: Kind,
        /// Durable when answered.
        fua: bool,
        /// Zeroes stay allocated.
        keep: bool,
        /// Where.
        sectors: Range<u64>,
    },
    /// A read, compared with the model.
    Read {
        /// Where.
        sectors: Range<u64>,
    },
    /// A flush.
    Flush,
}

/// Shares in percent, the rest are plain writes.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Its name, for reports.
    pub name: &'static str,
    /// Requests in flight.
    pub in_flight: usize,
    /// Sectors of the volume.
    sectors: u64,
    /// Most requests meet here, so that they overlap.
    hot: Range<u64>,
    hot_percent: u32,
    flush: u32,
    fua: u32,
    deallocate: u32,
    zeroes: u32,
    read: u32,
    write_sectors_max: u64,
    aligned_percent: u32,
}

impl Mix {
    /// A bit of everything.
    #[must_use]
    pub fn plain(sectors: u64) -> Mix {
        Mix {
            name: "plain",
            in_flight: 16,
            sectors,
            hot: 0..sectors.min(4096),
            hot_percent: 30,
            flush: 4,
            fua: 8,
            deallocate: 8,
            zeroes: 6,
            read: 6,
            write_sectors_max: WRITE_SECTORS_MAX,
            aligned_percent: 60,
        }
    }

    /// Mostly large writes all over: the log turns over, and the cleaner works.
    #[must_use]
    pub fn churn(sectors: u64) -> Mix {
        Mix {
            name: "churn",
            hot_percent: 5,
            deallocate: 3,
            zeroes: 2,
            flush: 1,
            fua: 1,
            read: 2,
            ..Mix::plain(sectors)
        }
    }

    /// Any of several, drawn.
    #[must_use]
    pub fn drawn(random: &mut Random, sectors: u64) -> Mix {
        let plain = Mix::plain(sectors);
        let mut mix = match random.random_range(0..8) {
            0 => Mix { name: "small", write_sectors_max: 32, aligned_percent: 80, in_flight: 32, ..plain },
            1 => Mix { name: "sectors", write_sectors_max: 24, aligned_percent: 0, hot_percent: 80, ..plain },
            2 => Mix { name: "durable", fua: 40, flush: 20, write_sectors_max: 128, ..plain },
            3 => Mix { name: "clearing", deallocate: 30, zeroes: 20, ..plain },
            4 => Mix { name: "lone", in_flight: 1, write_sectors_max: 256, ..plain },
            5 => Mix { name: "meeting", hot_percent: 100, in_flight: 32, read: 15, ..plain },
            _ => plain,
        };
        let hot = 1u64 << random.random_range(3..13);
        let hot = hot.min(sectors);
        let first = random.random_range(0..=sectors - hot);
        mix.hot = first..first + hot;
        if mix.in_flight == 16 {
            mix.in_flight = random.random_range(2..=32);
        }
        mix
    }

    /// The next request.
    pub fn draw(&self, random: &mut Random) -> Request {
        let dice = random.random_range(0..100u32);
        let mut edge = self.flush;
        if dice < edge {
            return Request::Flush;
        }
        edge += self.read;
        if dice < edge {
            return Request::Read { sectors: self.place(random, 256) };
        }
        let fua = random.random_ratio(self.fua, 100);
        edge += self.deallocate;
        if dice < edge {
            let sectors = self.place(random, CLEAR_SECTORS_MAX);
            return Request::Change { kind: Kind::Deallocate, fua, keep: false, sectors };
        }
        edge += self.zeroes;
        if dice < edge {
            let sectors = self.place(random, CLEAR_SECTORS_MAX);
            return Request::Change { kind: Kind::Zeroes, fua, keep: random.random(), sectors };
        }
        let sectors = self.place(random, self.write_sectors_max);
        Request::Change { kind: Kind::Write, fua, keep: false, sectors }
    }

    /// Some sectors, at most `most`: each power of two is as likely as any other.
    fn place(&self, random: &mut Random, most: u64) -> Range<u64> {
        let aligned = random.random_range(0..100) < self.aligned_percent;
        let unit = if aligned { BLOCK_SECTORS } else { 1 };
        let most = most.min(self.sectors) / unit;
        let power = 1u64 << random.random_range(0..=most.max(1).ilog2());
        let length = random.random_range(power.div_ceil(2)..=power).max(1) * unit;
        let around = random.random_range(0..100) < self.hot_percent;
        let last = self.sectors - length;
        let first = if around {
            // It touches the hot range, or hangs over one of its edges.
            random.random_range(self.hot.start.saturating_sub(length / 2)..self.hot.end)
        } else {
            random.random_range(0..=last)
        };
        let first = first.min(last) / unit * unit;
        first..first + length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::random;

    #[test]
    fn requests_stay_within_the_volume() {
        let mut random = random(1);
        for sectors in [8, 100, 4096, 1 << 20] {
            for _ in 0..2000 {
                let mix = Mix::drawn(&mut random, sectors);
                match mix.draw(&mut random) {
                    Request::Change { sectors: range, .. } | Request::Read { sectors: range } => {
                        assert!(range.start < range.end && range.end <= sectors, "{mix:?} {range:?}");
                    }
                    Request::Flush => {}
                }
            }
        }
    }
}
