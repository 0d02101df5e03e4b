//! The bench: one load generator over direct drives, arrays and exports, and tables of ratios made with it.
//!
//! ```text
//! compare, sequential -> generate -> target -> drives | volume | NBD or NVMe/TCP export
//!                              \--> team -> a share of the load and a target for each core
//!        limit, report <- figures <- sample
//! ```
//!
//! Invariants:
//! - the same code asks every target for the same requests, in one run, on the same drives; what is printed first is
//!   the ratio to the direct drives of the same round, with the theoretical limit beside it;
//! - every figure is the median of several rounds;
//! - reads find data: the working set is filled before anything is measured;
//! - it runs in real time (memory drives, files, block devices) and in virtual time (modelled drives) alike.
//!
//! Not here: checking of what is read (the end-to-end tests do that), an open-loop load: a closed
//! loop hides the waiting of requests that a slow answer holds up. An export of some server ([`exported`]) is measured by
//! itself: what is beside it, and what is filled, is the caller's.

mod address;
mod clock;
pub mod compare;
pub mod condition;
pub mod drives;
pub mod error;
pub mod exported;
pub mod figures;
pub mod generate;
pub mod limit;
pub mod load;
pub mod neighbours;
pub mod overwrite;
mod payload;
pub mod rebuild;
pub mod report;
pub mod sequential;
mod share;
pub mod steady;
pub mod stripe;
pub mod subject;
pub mod table;
pub mod target;
pub mod team;

pub use compare::{Comparison, compare};
pub use condition::{CoreCounts, Fill, State};
pub use error::{Error, Impossible};
pub use figures::{Figures, Sample};
pub use generate::generate;
pub use load::{Load, Pattern, Until};
pub use neighbours::{Neighbours, neighbours};
pub use overwrite::{Overwrites, overwrites};
pub use report::Report;
pub use sequential::{SequentialRatio, SequentialResult, sequential_ratio};
pub use subject::Subject;
pub use target::Target;
pub use team::{Asks, Team};
