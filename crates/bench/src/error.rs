//! Why a measurement did not come about.

use std::io;
use std::sync::Arc;

use base::BlockCount;

/// What went wrong.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A drive failed a request.
    #[error("drive {name}: {error}")]
    Drive {
        /// Its name.
        name: String,
        /// What it answered.
        error: rt::IoError,
    },
    /// The array failed a request.
    #[error("{0}")]
    Array(#[from] array::Fault),
    /// The array could not be made.
    #[error("{0}")]
    Refused(Box<array::Refused>),
    /// A part of the array failed a request of another core.
    #[error("the volume: {0}")]
    Part(#[from] export::Fault),
    /// There is no further core.
    #[error("a further core: {0}")]
    NoCore(Arc<io::Error>),
    /// A core did not do what it was asked.
    #[error("a core has ended before the measurement")]
    CoreEnded,
    /// A drive cannot be used on a further core.
    #[error("drive {name} cannot be used on another core: {error}")]
    NotSent {
        /// Its name.
        name: String,
        /// What the kernel said.
        error: Arc<io::Error>,
    },
    /// The NBD export failed a request.
    #[error("the export: {0}")]
    Export(#[from] export::nbd::client::Error),
    /// The NVMe/TCP namespace failed a request.
    #[error("the namespace: {0}")]
    Namespace(#[from] export::nvme::client::Error),
    /// What was asked for cannot be.
    #[error("{0}")]
    Impossible(#[from] Impossible),
}

impl From<array::Refused> for Error {
    fn from(refused: array::Refused) -> Error {
        Error::Refused(Box::new(refused))
    }
}

/// The user asked for something that cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// No drives.
    #[error("no drives are given; name drives, or measure on memory drives")]
    NoDrives,
    /// A block that the target cannot address.
    #[error("a block of {block_bytes} bytes does not suit {target}; use a multiple of {unit_bytes}")]
    Block {
        /// Bytes of a request.
        block_bytes: u32,
        /// What is measured.
        target: &'static str,
        /// Its unit.
        unit_bytes: u32,
    },
    /// A working set that does not fit.
    #[error(
        "a working set of {} bytes does not fit {target}, which holds {}; give larger drives or a smaller one",
        .wanted.bytes(), .there.bytes()
    )]
    WorkingSet {
        /// What is measured.
        target: &'static str,
        /// Blocks wanted.
        wanted: BlockCount,
        /// Blocks there are.
        there: BlockCount,
    },
    /// A working set that begins within a request.
    #[error("a working set from byte {start} is not aligned to requests of {block_bytes} bytes; begin at a multiple")]
    WorkingSetStart {
        /// Where it begins.
        start: u64,
        /// Bytes of a request.
        block_bytes: u32,
    },
    /// A request that the controller does not take.
    #[error("requests of {block_bytes} bytes are longer than the controller takes (MDTS); use at most {most}")]
    Transfer {
        /// Bytes of a request.
        block_bytes: u32,
        /// Of the longest.
        most: u64,
    },
    /// Writes to what is only read.
    #[error("{0} is read-only; use a pattern that only reads")]
    ReadOnly(&'static str),
    /// A depth of nothing.
    #[error("a queue depth of {0} is not possible; use 1 to {max}", max = crate::load::DEPTH_MAX)]
    Depth(usize),
    /// No round finished a request.
    #[error("no request was answered in the given time; give more time")]
    NothingAnswered,
    /// Text that is no fill.
    #[error("\"{0}\" is not a fill; use fresh, or the percentage of usable space to fill: 1 to 100")]
    Fill(String),
    /// Text that is no state.
    #[error(
        "unknown array state \"{0}\"; valid: optimal, degraded, rebuilding-low, rebuilding-medium, rebuilding-high"
    )]
    State(String),
    /// A rebuild that never began.
    #[error("the array has no space to rebuild to; use a width below the number of drives")]
    NoPlace,
    /// A rebuild that did not last.
    #[error(
        "the rebuild was over before the measurement; give larger drives, fill them more, or measure for less time"
    )]
    RebuildOver,
    /// Text that is no list of numbers of cores.
    #[error("\"{0}\" is not a list of core counts; use 1 to {max}, such as 1,2 or 1..4", max = crate::team::CORES_MAX)]
    Cores(String),
    /// Virtual time, on several cores.
    #[error("modelled drives run in virtual time on one core; measure them on one, or give drives or memory")]
    CoresModelled,
    /// Mirrored in place, on several cores.
    #[error("RAID 10 in place is measured on one core; omit it, or the further cores")]
    CoresInPlace,
    /// Text that is no pattern.
    #[error("unknown pattern \"{0}\"; valid: {names}", names = crate::load::PATTERN_NAMES)]
    Pattern(String),
}
