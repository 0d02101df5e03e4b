//! What a storage system would do: drives, links, a RAID card, cores, a network and a layout, simulated in virtual time.
//!
//! It knows neither the engine nor sockets. A [`System`] is read from a file and names its drives; a [`Load`] is what
//! hosts ask of it; [`answer`] gives the rate and the latencies, and [`ladder`] says which part is the limit.
//!
//! Invariant: the same system, load and seed give the same digits.
//!
//! Not modelled: the page cache of a host, md's stripe cache, heat, power limits, and two loads at once.

mod amplification;
mod answer;
mod drive;
mod error;
mod ladder;
mod learn;
mod life;
mod load;
mod plan_box;
mod sensitivity;
mod sheet;
mod sim;
mod system;

pub use amplification::{Span, flash_amplification, greedy};
pub use answer::{Answer, Ended, Limits, answer, fresh_twin, requests_before, requests_expected};
pub use drive::{DRIVES, DiskFigures, DriveFile, FlashFigures, Origin, PerByte, SheetRow};
pub use error::Error;
pub use ladder::{Rung, ladder};
pub use learn::{Measured, learn};
pub use life::{Life, life, usable_bytes};
pub use load::{Access, Load, Pressure, Workload};
pub use plan_box::{Boxes, Decided, Need, Prices, Refused, plan_box};
pub use sensitivity::{CHANGED_BY, CPU, Swing, sensitivity};
pub use sheet::{SheetError, alone, sheet_errors};
pub use sim::Part;
pub use system::{
    Card, CardLevel, DriveState, Engine, HostFigures, Level, NETWORKS, Network, PARTS_MAX, SYSTEMS, System,
};
