//! A cell: one load on one subject, its figures and its gates.

use serde::{Deserialize, Serialize};

use super::gate::{Gate, Verdict, worst};
use super::load::{Load, State};

/// What a cell is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Part {
    /// Nothing larger.
    Alone,
    /// The run without a limit that a load curve begins with.
    CurveMax,
    /// A point of a load curve.
    Curve {
        /// Hundredths of the largest rate that were asked for.
        percent: u32,
    },
    /// A cell of a threads x depth matrix.
    Matrix,
    /// A round on the way to a steady state.
    Round {
        /// From 1.
        number: u32,
    },
    /// Writing the whole range once, one block after the other.
    Fill,
    /// Writing until the target has forgotten its past.
    Precondition,
    /// Reads of what was never written, by that name only.
    Unallocated,
    /// Reading the whole range once, every block against its checksum.
    Check,
    /// A load on one of several targets, alone.
    OneOf {
        /// Which, from 1.
        number: u32,
    },
    /// The same load on all of them at once.
    Together,
    /// A load through the states of an array; its cells stand alone, one for each state.
    States,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// Its name.
    pub system: String,
    /// Its drives, in words.
    pub drives: String,
    /// How many they are.
    pub drive_count: Option<u32>,
    /// "RAID5", "JBOD".
    pub level: Option<String>,
    /// Controllers, in words.
    pub controllers: Option<String>,
    /// How many they are.
    pub controller_count: Option<u32>,
    /// State of the array.
    pub state: State,
}

/// Latency, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Mean.
    pub mean_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 95 %.
    pub p95_us: Option<f64>,
    /// 99 %.
    pub p99_us: Option<f64>,
    /// 99.9 %.
    pub p999_us: Option<f64>,
    /// 99.99 %.
    pub p9999_us: Option<f64>,
    /// 99.999 %.
    pub p99999_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
}

/// What one direction of a mix did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_sec: f64,
    /// Mean latency.
    pub mean_us: Option<f64>,
    /// Latency, 50 %.
    #[serde(default)]
    pub p50_us: Option<f64>,
    /// Latency, 99 %.
    #[serde(default)]
    pub p99_us: Option<f64>,
    /// Latency, 99.9 %.
    #[serde(default)]
    pub p999_us: Option<f64>,
}

impl Share {
    /// At these rates and this mean, with the percentiles of `latency`.
    pub(crate) fn of(iops: f64, bytes_per_sec: f64, mean_us: Option<f64>, latency: Latency) -> Share {
        let Latency { p50_us, p99_us, p999_us, .. } = latency;
        Share { iops, bytes_per_sec, mean_us, p50_us, p99_us, p999_us }
    }
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Requests a second.
    pub iops: Option<f64>,
    /// Bytes a second.
    pub bytes_per_sec: Option<f64>,
    /// Latency of all requests.
    pub latency: Latency,
    /// Reads of a mix.
    pub read: Option<Share>,
    /// Writes of a mix.
    pub write: Option<Share>,
    /// Seconds measured.
    pub seconds: Option<f64>,
    /// Bytes written, warm-up not counted.
    pub written_bytes: Option<u64>,
    /// Hundredths of all CPUs that were busy.
    pub cpu_percent: Option<f64>,
    /// Hundredths of the time in which the target's disk had something to do, as the generator tells; of several the
    /// busiest.
    pub disk_busy_percent: Option<f64>,
}

/// A second of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Its end, from the beginning.
    pub at: f64,
    /// Requests a second.
    pub iops: f64,
    /// Mean latency in it.
    pub mean_us: Option<f64>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its name in the result, unique.
    pub id: String,
    /// The test it belongs to.
    pub test: String,
    /// What it is part of.
    pub part: Part,
    /// Where it comes from, when this lab did not measure it: a row of the published figures, an imported file.
    pub source: Option<String>,
    /// What was measured.
    pub subject: Subject,
    /// Under which load.
    pub load: Load,
    /// Requests a second that were asked for.
    pub asked_iops: Option<f64>,
    /// Seconds that were asked for.
    pub asked_seconds: Option<f64>,
    /// What came out.
    pub figures: Figures,
    /// Latencies: nanoseconds and how many requests took about that long.
    pub bins: Vec<(u64, u64)>,
    /// Second by second.
    pub series: Vec<Second>,
    /// How far it is to be trusted.
    pub gates: Vec<Gate>,
    /// The exact command.
    pub command: Option<String>,
    /// What else is to be known.
    pub note: String,
}

impl Cell {
    /// The worst of its gates.
    pub fn verdict(&self) -> Verdict {
        worst(&self.gates)
    }

    /// Whether it may stand for the target on a first page: what fills it, and reads of nothing, may not.
    pub fn may_stand(&self) -> bool {
        !matches!(self.part, Part::Unallocated | Part::Fill | Part::Precondition | Part::Check)
    }

    /// Achieved over asked.
    pub fn achieved(&self) -> Option<f64> {
        Some(self.figures.iops? / self.asked_iops.filter(|&a| a > 0.0)?)
    }

    /// Requests in flight by Little's law.
    pub fn in_flight(&self) -> Option<f64> {
        Some(self.figures.iops? * self.figures.latency.mean_us? / 1e6)
    }

    /// Bytes a second, printed or by arithmetic.
    pub fn bytes_per_sec(&self) -> Option<f64> {
        let reckoned = || Some(self.figures.iops? * self.load.block_bytes? as f64);
        self.figures.bytes_per_sec.or_else(reckoned)
    }

    /// What a chart shows of it: whether that is IOPS, and the number.
    pub fn headline(&self) -> Option<(bool, f64)> {
        let small = self.load.block_bytes.is_some_and(|b| b <= 16 << 10);
        match (self.figures.iops, self.figures.bytes_per_sec) {
            (Some(iops), Some(_)) if small => Some((true, iops)),
            (_, Some(bytes)) => Some((false, bytes)),
            (Some(iops), None) => Some((true, iops)),
            (None, None) => None,
        }
    }
}
