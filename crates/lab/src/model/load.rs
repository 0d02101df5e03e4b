//! What requests are like, and what state the target is in.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::block;

/// In which order addresses come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Anywhere in the range.
    Random,
    /// One after the other.
    Sequential,
}

/// State of an array; a single drive is always optimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Whole.
    #[default]
    Optimal,
    /// A drive is missing.
    Degraded,
    /// The missing drive is being made anew.
    Rebuilding,
    /// Whole again.
    Rebuilt,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Optimal => "optimal",
            State::Degraded => "degraded",
            State::Rebuilding => "rebuilding",
            State::Rebuilt => "rebuilt",
        })
    }
}

/// What data that is written holds for a storage that reduces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reducible {
    /// Hundredths of all requests that repeat another.
    pub duplicate_percent: u32,
    /// Hundredths of each request that compress to nothing.
    pub compressible_percent: u32,
}

impl fmt::Display for Reducible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} % duplicate, {} % compressible", self.duplicate_percent, self.compressible_percent)
    }
}

/// A load. What its source does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Order of addresses.
    pub access: Option<Access>,
    /// Hundredths of requests that read.
    pub read_percent: Option<f64>,
    /// Bytes of a request.
    pub block_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u32>,
    /// Requests in flight, each thread.
    pub depth: Option<u32>,
    /// Hosts that make it together, each with so many threads; absent: the one that measures.
    pub hosts: Option<u32>,
    /// Targets that have it at once, each with so many threads; absent: one.
    pub targets: Option<u32>,
    /// Whether it goes through the page cache.
    pub cached: Option<bool>,
    /// What the page cache held was kept.
    pub warm: bool,
    /// First byte of the range worked on.
    pub offset_bytes: Option<u64>,
    /// Bytes worked on.
    pub range_bytes: Option<u64>,
    /// The same, in hundredths of the target.
    pub slice_percent: Option<f64>,
    /// What data is made of, when that is not random throughout.
    pub reducible: Option<Reducible>,
    /// A flush of the write cache followed so many writes of each thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<u32>,
    /// Every 4 KiB that are written carry a checksum, for a check later on.
    pub checksums: bool,
    /// Fields of this load, by their names, that the source does not state and that follow from what it does: an absent
    /// field is unknown, one that is here is inferred, and any other is stated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inferred: Vec<String>,
}

impl Load {
    /// Requests in flight, all threads.
    pub fn outstanding(&self) -> Option<f64> {
        let times = self.hosts.unwrap_or(1) * self.targets.unwrap_or(1);
        Some(f64::from(self.threads?) * f64::from(self.depth?) * f64::from(times))
    }

    /// Whether it reads, as far as is told.
    pub fn reads(&self) -> bool {
        self.read_percent.is_none_or(|p| p > 0.0)
    }

    /// Whether it writes, as far as is told.
    pub fn writes(&self) -> bool {
        self.read_percent.is_none_or(|p| p < 100.0)
    }

    /// "4K random read", "64K random 70/30".
    pub fn name(&self) -> String {
        let mut words = vec![];
        words.extend(self.block_bytes.map(block));
        words.extend(self.access.map(|a| a.to_string()));
        words.extend(self.read_percent.map(|p| match p {
            100.0 => "read".to_owned(),
            0.0 => "write".to_owned(),
            p => format!("{p:.0}/{:.0}", 100.0 - p),
        }));
        words.join(" ")
    }

    /// "16 x 32", threads and depth; of several hosts "16 x 32 from each of 2 hosts", on several targets "16 x 32 x 8 targets";
    /// with flushes "1 x 1, fsync after each write".
    pub fn pressure(&self) -> String {
        let in_flight = self.threads_and_depth();
        match self.fsync {
            None => in_flight,
            Some(1) => format!("{in_flight}, fsync after each write"),
            Some(n) => format!("{in_flight}, fsync after each {n} writes"),
        }
    }

    fn threads_and_depth(&self) -> String {
        let told = |n: Option<u32>| n.map_or("?".to_owned(), |n| n.to_string());
        let each = match (self.threads, self.depth) {
            (None, None) => "unknown".to_owned(),
            (threads, depth) => format!("{} x {}", told(threads), told(depth)),
        };
        match (self.hosts, self.targets) {
            (None, None) => each,
            (None, Some(targets)) => format!("{each} x {targets} targets"),
            (Some(1), _) => format!("{each} from 1 host"),
            (Some(hosts), _) => format!("{each} from each of {hosts} hosts"),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Random => "random",
            Access::Sequential => "sequential",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_have_names() {
        let load = Load {
            access: Some(Access::Random),
            read_percent: Some(70.0),
            block_bytes: Some(4096),
            threads: Some(64),
            ..Load::default()
        };
        assert_eq!((load.name().as_str(), load.pressure().as_str()), ("4K random 70/30", "64 x ?"));
        assert_eq!(load.outstanding(), None);
        assert!(load.reads() && load.writes());
        assert_eq!(Load::default().pressure(), "unknown");
        let flushed = Load { depth: Some(1), fsync: Some(1), ..load.clone() };
        assert_eq!(flushed.pressure(), "64 x 1, fsync after each write");
        let hosts = Load { depth: Some(2), hosts: Some(3), ..load };
        assert_eq!((hosts.pressure().as_str(), hosts.outstanding()), ("64 x 2 from each of 3 hosts", Some(384.0)));
    }
}
