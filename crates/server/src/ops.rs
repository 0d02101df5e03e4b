//! The verbs, one file each. A verb works on an open array or on drives, and does not know whether a server or the
//! command line called it.

pub mod check;
pub mod clients;
pub mod create;
pub mod destroy;
pub mod drive;
pub mod export;
pub mod find;
pub mod forget;
pub mod import;
pub mod inspect;
pub mod open;
pub mod rebuild;
pub mod rename;
pub mod rescue;
pub mod scrub;
pub mod status;
pub mod upgrade;
pub mod volume;
pub mod wipe;

use array::Discard;
use rt::Rt;

use crate::cores::OtherCores;
use crate::registry::Registry;

/// What verbs need besides an array.
#[derive(Clone)]
pub struct World {
    /// The runtime that does the I/O.
    pub rt: Rt,
    /// The arrays this machine knows.
    pub registry: Registry,
    /// Cores that parts of arrays may be on; none: they are all on this one.
    pub cores: OtherCores,
    /// Whether drives are reserved while their array is open for writing, where all of them can be.
    pub reserve: bool,
    /// Which freed zones of arrays are deallocated on their drives.
    pub discard: Discard,
}
