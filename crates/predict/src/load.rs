//! Loads: what hosts ask of a system, and in which condition its drives are.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Order of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Anywhere in the span.
    Random,
    /// One after the other.
    Sequential,
}

/// Size, order and mix of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Bytes of a request.
    pub block_bytes: u32,
    /// Order.
    pub access: Access,
    /// Reads, in hundredths.
    pub read_percent: f64,
}

const WORKLOADS: &str = "4k-randread, 4k-randwrite, 64k-read, 64k-write (in order), 8k-70/30 (random reads/writes)";

impl FromStr for Workload {
    type Err = Error;

    fn from_str(text: &str) -> Result<Workload, Error> {
        let unknown = || Error::unknown("workload", text, WORKLOADS);
        let (size, kind) = text.split_once('-').ok_or_else(unknown)?;
        let size = size.to_ascii_lowercase();
        let (number, unit) = match (size.strip_suffix('k'), size.strip_suffix('m')) {
            (Some(n), _) => (n, 1 << 10),
            (_, Some(n)) => (n, 1 << 20),
            _ => return Err(unknown()),
        };
        let number: u32 = number.parse().map_err(|_| unknown())?;
        let block_bytes = number.checked_mul(unit).filter(|b| (4096..=16 << 20).contains(b)).ok_or_else(unknown)?;
        let (access, read_percent) = match kind {
            "randread" => (Access::Random, 100.0),
            "randwrite" => (Access::Random, 0.0),
            "read" => (Access::Sequential, 100.0),
            "write" => (Access::Sequential, 0.0),
            mix => {
                let (reads, writes) = mix.split_once('/').ok_or_else(unknown)?;
                let (reads, writes): (f64, f64) =
                    (reads.parse().map_err(|_| unknown())?, writes.parse().map_err(|_| unknown())?);
                if !(0.0..=100.0).contains(&reads) || (reads + writes - 100.0).abs() > 0.01 {
                    return Err(unknown());
                }
                (Access::Random, reads)
            }
        };
        Ok(Workload { block_bytes, access, read_percent })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.block_bytes {
            b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => write!(f, "{}m-", b >> 20)?,
            b => write!(f, "{}k-", b >> 10)?,
        }
        match (self.access, self.read_percent) {
            (Access::Random, 100.0) => f.write_str("randread"),
            (Access::Random, 0.0) => f.write_str("randwrite"),
            (Access::Sequential, 100.0) => f.write_str("read"),
            (Access::Sequential, 0.0) => f.write_str("write"),
            (_, p) => write!(f, "{p:.0}/{:.0}", 100.0 - p),
        }
    }
}

/// How much is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pressure {
    /// So many requests in flight for each drive; the next begins when one ends.
    InFlightPerDrive(f64),
    /// So many requests a second of the whole system, whatever it takes.
    Rate(f64),
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests.
    pub workload: Workload,
    /// How many.
    pub pressure: Pressure,
    /// Part of what hosts can use that holds data, 0 to 1.
    pub fill: f64,
    /// Part of it that the load works on, at most `fill`.
    pub slice: f64,
    /// How often the slice was overwritten since the fill; infinite: until it was steady.
    pub age: f64,
    /// CPU microseconds that the generator, or whatever makes the requests, takes for each; `None`: as the system says.
    pub generator_us: Option<f64>,
    /// CPU time of a request, to what the files say: what a figure is worth is asked with another one.
    pub cpu_times: f64,
}

impl Load {
    /// The pessimistic load of that kind: a full system in its steady state, 32 requests in flight for each drive.
    #[must_use]
    pub fn new(workload: Workload) -> Load {
        Load {
            workload,
            pressure: Pressure::InFlightPerDrive(32.0),
            fill: 1.0,
            slice: 1.0,
            age: f64::INFINITY,
            generator_us: None,
            cpu_times: 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_names() {
        for name in ["4k-randread", "64k-randwrite", "1m-read", "128k-write", "8k-70/30"] {
            assert_eq!(name.parse::<Workload>().expect("it is one").to_string(), name);
        }
        for wrong in ["", "4k", "4x-randread", "4k-70/40", "1k-randread", "4k-random", "64m-read"] {
            let error = wrong.parse::<Workload>().expect_err("it is none").to_string();
            assert!(error.contains("valid: 4k-randread"), "{error}");
        }
    }
}
