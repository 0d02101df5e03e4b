//! What is asked of a target: pattern, size, depth, where and for how long.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::error::Impossible;

/// Requests kept in flight, at most.
pub const DEPTH_MAX: usize = 4096;

/// The patterns as a person writes them.
pub const PATTERN_NAMES: &str = "random-read, random-write, skewed-write (80 % of the requests to 20 % of the space), sequential-read, \
     sequential-write, random-N (N % reads, such as random-70)";

/// In which order addresses come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Uniformly at random, aligned to the block.
    Random,
    /// At random: 80 % of the requests go to the first 20 % of the working set.
    Skewed,
    /// One stream through the working set, again from its start at the end.
    Sequential,
}

/// Order and direction of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// In which order addresses come.
    pub order: Order,
    /// Of 100 requests so many read; the others write.
    pub read_percent: u8,
}

impl Pattern {
    /// Random reads.
    pub const RANDOM_READ: Pattern = Pattern { order: Order::Random, read_percent: 100 };
    /// Random writes.
    pub const RANDOM_WRITE: Pattern = Pattern { order: Order::Random, read_percent: 0 };
    /// Random writes, 80 % of them to 20 % of the space.
    pub const SKEWED_WRITE: Pattern = Pattern { order: Order::Skewed, read_percent: 0 };
    /// A sequential read.
    pub const SEQUENTIAL_READ: Pattern = Pattern { order: Order::Sequential, read_percent: 100 };
    /// A sequential write.
    pub const SEQUENTIAL_WRITE: Pattern = Pattern { order: Order::Sequential, read_percent: 0 };

    /// Whether nothing is written.
    #[must_use]
    pub const fn only_reads(self) -> bool {
        self.read_percent == 100
    }

    /// Whether nothing is read.
    #[must_use]
    pub const fn only_writes(self) -> bool {
        self.read_percent == 0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.order {
            Order::Random => "random ",
            Order::Skewed => "skewed ",
            Order::Sequential => "sequential ",
        })?;
        match self.read_percent {
            100 => f.write_str("read"),
            0 => f.write_str("write"),
            reads => write!(f, "{reads}/{}", 100 - reads),
        }
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_string().replace(' ', "-"))
    }
}

impl FromStr for Pattern {
    type Err = Impossible;

    fn from_str(text: &str) -> Result<Pattern, Impossible> {
        let wrong = || Impossible::Pattern(text.to_owned());
        let (order, what) = text.split_once('-').ok_or_else(wrong)?;
        let order = match order {
            "random" => Order::Random,
            "skewed" => Order::Skewed,
            "sequential" => Order::Sequential,
            _ => return Err(wrong()),
        };
        let read_percent = match what {
            "read" => 100,
            "write" => 0,
            percent => {
                percent.split('/').next().and_then(|p| p.parse().ok()).filter(|p| *p <= 100).ok_or_else(wrong)?
            }
        };
        Ok(Pattern { order, read_percent })
    }
}

/// When a run ends; requests in flight are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When this time is over, or so many bytes were asked for, whichever comes first.
    Elapsed {
        /// Time.
        time: Duration,
        /// Bytes; keeps a fast machine from coming to where an array has to clean.
        bytes_max: u64,
    },
    /// When so many requests were made.
    Requests(u64),
}

/// One load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Order and direction.
    pub pattern: Pattern,
    /// Bytes of a request.
    pub block_bytes: u32,
    /// Requests in flight.
    pub depth: usize,
    /// Requests a second, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_max: Option<u64>,
}

impl Load {
    /// A load.
    #[must_use]
    pub const fn new(pattern: Pattern, block_bytes: u32, depth: usize) -> Load {
        Load { pattern, block_bytes, depth, iops_max: None }
    }

    /// A pattern at the usual size and depth: 4 KiB and 64 random, 128 KiB and 16 sequential.
    #[must_use]
    pub const fn usual(pattern: Pattern) -> Load {
        match pattern.order {
            Order::Random | Order::Skewed => Load::new(pattern, 4 << 10, 64),
            Order::Sequential => Load::new(pattern, 128 << 10, 16),
        }
    }

    /// The same with another depth.
    #[must_use]
    pub const fn at_depth(self, depth: usize) -> Load {
        Load { depth, ..self }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.block_bytes {
            bytes if bytes.is_multiple_of(1 << 20) => write!(f, "{}M", bytes >> 20)?,
            bytes if bytes.is_multiple_of(1 << 10) => write!(f, "{}K", bytes >> 10)?,
            bytes => write!(f, "{bytes} B")?,
        }
        write!(f, " {}, depth {}", self.pattern, self.depth)?;
        self.iops_max.map_or(Ok(()), |iops| write!(f, ", at most {iops} a second"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_parse_and_print() {
        for (text, pattern, shown) in [
            ("random-read", Pattern::RANDOM_READ, "random read"),
            ("sequential-write", Pattern::SEQUENTIAL_WRITE, "sequential write"),
            ("skewed-write", Pattern::SKEWED_WRITE, "skewed write"),
            ("random-70", Pattern { order: Order::Random, read_percent: 70 }, "random 70/30"),
            ("random-70/30", Pattern { order: Order::Random, read_percent: 70 }, "random 70/30"),
        ] {
            assert_eq!(text.parse(), Ok(pattern));
            assert_eq!(pattern.to_string(), shown);
        }
        for text in ["", "read", "random", "random-101", "zigzag-read", "random-x"] {
            assert_eq!(text.parse::<Pattern>(), Err(Impossible::Pattern(text.to_owned())));
        }
    }

    #[test]
    fn loads_print() {
        assert_eq!(Load::new(Pattern::RANDOM_WRITE, 4096, 64).to_string(), "4K random write, depth 64");
        assert_eq!(Load::new(Pattern::SEQUENTIAL_READ, 1 << 20, 1).to_string(), "1M sequential read, depth 1");
        let limited = Load { iops_max: Some(500), ..Load::new(Pattern::RANDOM_READ, 4096, 2) };
        assert_eq!(limited.to_string(), "4K random read, depth 2, at most 500 a second");
    }
}
