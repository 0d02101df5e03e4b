//! A result: what was measured where, under which load, and how far each number is to be trusted.
//!
//! Invariants: a number that was not measured is absent, never zero; units are in names; a cell carries its gates.

mod cell;
mod gate;
mod load;
mod run;

pub use cell::{Cell, Figures, Latency, Part, Second, Share, Subject};
pub use gate::{Check, Gate, Verdict, worst};
pub use load::{Access, Load, Reducible, State};
pub use run::{Event, Fact, Moment, Origin, Page, Pair, Rounds, Run, SCHEMA, Timeline, replace};
