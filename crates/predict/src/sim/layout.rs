//! What each host request costs in operations on drives, by engine and level.
//!
//! | engine, level | random write smaller than a row | written in order |
//! |---|---|---|
//! | direct | 1 write | 1 write |
//! | in place, RAID 10 | 2 writes | 2 writes |
//! | in place, RAID 5; RAID 6 | 2 reads, then 2 writes; 3 and 3 | full rows: n / (n - 1); n / (n - 2) |
//! | Ashlar | its share of full rows, the map, and what the cleaner moves | the same |

use crate::amplification::{Span, greedy};
use crate::load::Load;
use crate::system::{DriveState, Engine, Level, System};

/// Part of the raw space that volumes may fill (`docs/internals/cleaner.md`), before redundancy.
pub(crate) const USABLE: f64 = 0.85;
/// Part of the raw space in open and free segments, which hold no garbage. Assumed.
const KEPT: f64 = 0.03;
/// Bytes of map, headers and padding for each byte in rows. With this and [`KEPT`], RAID 5 7+1 at 80 % of usable writes
/// 2.2 bytes for a host's, and `docs/internals/cleaner.md` says 2.3.
pub(crate) const MAP: f64 = 0.03;
/// Bytes of a chunk: what one drive has of a row.
pub(crate) const CHUNK: f64 = 65536.0;
/// Bytes that the cleaner reads for each byte it moves: runs with gaps. Assumed.
pub(crate) const MOVE_READS: f64 = 1.25;

/// What a drive programs for each byte that Ashlar writes to it, once volumes were overwritten: segments that are given
/// back are not the drive's own superblocks. From the engine on modelled drives, `ashlar bench --model tlc:8x512M
/// --raid 5 --width 8 --fill 80 --pattern random-write --depth 256`: 1.14, and 2.21 bytes to drives for one of hosts.
const INSIDE: f64 = 1.14;

/// Bytes that a drive programs for each byte of Ashlar's log under a load.
pub(crate) fn inside_amplification(load: &Load) -> f64 {
    if load.age > 0.0 { INSIDE } else { 1.0 }
}

/// CPU microseconds of software RAID for a host's request of 4 KiB, and for each further 4 KiB.
///
/// `docs/performance.md`, "Engine": 608 to 782 thousand reads and 570 thousand writes a second of one core; requests of
/// 128 KiB cost 106 and 121 thousand instructions.
const READ_US: (f64, f64) = (1.5, 0.6);
const WRITE_US: (f64, f64) = (1.75, 0.65);
/// For each 4 KiB that the cleaner moves: 400 thousand writes a second of one core at 80 % of usable, where each write
/// moved 0.27 blocks.
const MOVE_US: f64 = 2.8;
/// For each command to a drive. Assumed.
const COMMAND_US: f64 = 1.0;

/// Bytes that Ashlar's log is given for each byte of hosts, beside redundancy, the map and headers: 1 plus what the
/// cleaner moves.
pub(crate) fn log_amplification(load: &Load) -> f64 {
    let span = Span { fill: USABLE * load.fill, slice: USABLE * load.slice.min(load.fill), age: load.age };
    let spare = 1.0 - KEPT - span.fill;
    // Unlike on a drive, what is cold is moved once and then lies apart, so spare room serves what is written.
    let steady = greedy((span.slice + spare) / span.slice);
    let beyond = span.age * span.slice - spare;
    1.0 + (steady - 1.0) * (beyond / span.slice).clamp(0.0, 1.0)
}

/// Shape of an array, fixed for a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub engine: Engine,
    pub level: Level,
    pub state: DriveState,
    /// Drives of one array.
    pub drives: usize,
    /// Drives of a row, and those of them with redundancy.
    pub width: usize,
    pub redundancy: usize,
    /// What the cleaner moves for each byte of hosts.
    pub moves: f64,
}

impl Layout {
    /// Of a system under a load.
    pub(crate) fn new(system: &System, load: &Load) -> Layout {
        let width = system.row_width();
        let moves = match (system.engine, load.workload.access) {
            (Engine::Ashlar, crate::load::Access::Random) => log_amplification(load) - 1.0,
            _ => 0.0,
        };
        Layout {
            engine: system.engine,
            level: system.level,
            state: system.state,
            drives: (system.count / system.arrays()) as usize,
            width: width as usize,
            redundancy: system.level.redundancy(width) as usize,
            moves,
        }
    }

    /// Bytes of redundancy for each byte of data in full rows.
    pub(crate) fn parity_share(&self) -> f64 {
        self.redundancy as f64 / (self.width - self.redundancy) as f64
    }

    /// CPU microseconds of software RAID for a request.
    pub(crate) fn cpu_us(&self, read: bool, bytes: f64, in_order: bool) -> f64 {
        let blocks = bytes / 4096.0;
        let (first, further) = if read { READ_US } else { WRITE_US };
        let base = first + further * (blocks - 1.0);
        let chunks = (bytes / CHUNK).ceil();
        match (self.engine, read) {
            (Engine::Direct | Engine::Card, _) => 0.0,
            (_, true) => base + chunks * COMMAND_US,
            (Engine::InPlace, false) => {
                let commands = match (self.level, in_order) {
                    (Level::Jbod, _) => 1.0,
                    (Level::Raid10, _) => 2.0 * chunks,
                    (_, true) => chunks * (1.0 + self.parity_share()),
                    (_, false) => 2.0 * (chunks + self.redundancy as f64),
                };
                base + commands * COMMAND_US
            }
            (Engine::Ashlar, false) => {
                let commands = (1.0 + self.moves) * (1.0 + MAP) * (1.0 + self.parity_share()) * bytes / CHUNK;
                base + self.moves * blocks * MOVE_US + commands * COMMAND_US
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/internals/cleaner.md`: about 2.3 bytes for each byte of a host, with parity (7+1), at 80 % of usable.
    #[test]
    fn at_80_percent_of_usable_a_byte_costs_what_the_cleaner_says() {
        let mut load = Load::new("4k-randwrite".parse().expect("a workload"));
        (load.fill, load.slice) = (0.8, 0.8);
        let cost = log_amplification(&load) * (1.0 + MAP) * 8.0 / 7.0;
        assert!((2.1..2.5).contains(&cost), "{cost}");
    }
}
