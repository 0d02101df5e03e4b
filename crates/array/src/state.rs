//! What is known of an open array, each by its owner; none of them writes to a drive.

use std::rc::Rc;

use crate::in_effect::InEffect;
use crate::member::Members;
use crate::memtable::memory::Memory;
use crate::space::pins::Pins;
use crate::space::segments::Segments;
use crate::streams::Streams;
use crate::volumes::Volumes;

/// The rooms that hold it: those above are made on them.
pub struct State {
    /// Drives and seats.
    pub members: Rc<Members>,
    /// Segments.
    pub segments: Rc<Segments>,
    /// Who looks at places.
    pub pins: Pins,
    /// Memtables.
    pub memory: Rc<Memory>,
    /// Volumes.
    pub volumes: Rc<Volumes>,
    /// The generation in effect.
    pub system: Rc<InEffect>,
    /// What waits for the log, and what is in flight.
    pub streams: Rc<Streams>,
}
