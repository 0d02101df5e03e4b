//! What the marks of one open say.

use base::ArrayUuid;
use ondisk::{OwnerMark, OwnerState};
use rt::{Host, Rt};

use crate::canary::{Canary, planted};

/// Owners of before that are remembered: one for each time that a drive could not be written, or was not there.
pub const BEFORE: usize = 4;

/// One open of an array, as its marks say. It goes with a part to the core that has it.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// It is told apart from all others by this.
    pub session: u128,
    /// The session that it took the array from; 0: none.
    pub taken_from: u128,
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// By which key the drives are reserved.
    pub key: Option<u64>,
    /// Those whose marks were there before, newest first: a write of them may still land, and where a drive takes no writes their
    /// marks stay.
    pub before: [u128; BEFORE],
    /// Whoever had it may have sent writes that have not landed yet.
    pub unsure: bool,
}

impl Carried {
    /// A new open of an array that nobody had before.
    pub fn new(rt: &Rt) -> Carried {
        let session = u128::from(rt.random()) << 64 | u128::from(rt.random());
        Carried {
            session: session.max(1),
            taken_from: 0,
            since: rt.unix_seconds(),
            key: None,
            before: [0; BEFORE],
            unsure: false,
        }
    }

    /// Whether writes of the one before may still land.
    pub fn is_unsure(&self) -> bool {
        self.unsure && !planted(Canary::LateWritesForgotten)
    }

    /// A key for reservations that no other open has: random, behind two letters that show whose it is.
    pub fn new_key(rt: &Rt) -> u64 {
        0x4153 << 48 | rt.random() >> 16
    }

    /// The mark of this open.
    pub fn mark(&self, host: &Host, array: ArrayUuid, state: OwnerState, beat: u64) -> OwnerMark {
        OwnerMark {
            array,
            state,
            session: self.session,
            taken_from: self.taken_from,
            host: OwnerMark::host_from(&host.name),
            machine: host.machine,
            boot: host.boot,
            pid: host.pid,
            started: host.started,
            namespaces: host.namespaces,
            beat,
            since: self.since,
            key: self.key.unwrap_or(0),
        }
    }
}
