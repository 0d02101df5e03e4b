//! The ends that no operation is told of: a power cut, and the death of the process.
//!
//! Drives promise nothing about a write that no flush covered: it can be there, be missing, or be torn between two
//! 512-byte sectors. A write in flight at the death of a process is carried on by the kernel, or not, or stops at
//! some sector; what was answered stays, because the drive keeps its power.
//!
//! Invariant: a block that no undecided write covers does not change.

use base::{BLOCK_BYTES, BlockCount};

use super::cache::Write;
use super::flight::Ending;
use super::{Disk, State, idle_channels};
use crate::Bytes;
use crate::random::Random;

/// The unit that a drive writes without tearing it.
const SECTOR_BYTES: usize = 512;

impl Disk {
    /// The power fails: each write that is in flight or not flushed is kept, dropped or torn, as the seed says.
    /// Operations in flight never get an answer.
    pub fn power_cut(&self, rng_seed: u64) {
        let state = &mut *self.0.state.borrow_mut();
        let mut random = Random::from_seed(rng_seed);
        let mut undecided: Vec<Write> = state.cache.take().into();
        let mut in_flight = state.end_flights(Ending::Vanish);
        shuffle(&mut in_flight, &mut random);
        undecided.append(&mut in_flight);
        for write in undecided {
            match random.below(3) {
                0 => {}
                1 => write.apply(&mut state.image),
                _ => state.tear(&write, &mut random),
            }
        }
        state.channels = idle_channels(&self.0.params);
    }

    /// The process dies (SIGKILL) and the drive lives on: answered writes stay as durable as they were; each write
    /// in flight lands wholly, up to some sector, or not at all. Operations in flight never get an answer.
    pub fn crash(&self, rng_seed: u64) {
        let state = &mut *self.0.state.borrow_mut();
        let mut random = Random::from_seed(rng_seed);
        let in_flight = state.end_flights(Ending::Vanish);
        state.land_some(in_flight, &mut random);
        state.channels = idle_channels(&self.0.params);
    }
}

/// Writes of a process that has died, which a drive that hung still has and lands when it comes to itself.
pub struct LateWrites {
    disk: Disk,
    writes: Vec<Write>,
}

impl LateWrites {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// They land, all of them.
    pub fn land(self) {
        let state = &mut *self.disk.0.state.borrow_mut();
        for write in self.writes {
            state.land(write);
        }
    }
}

impl Disk {
    /// [`Disk::crash`] of a drive that hangs: what is in flight is kept for later.
    #[must_use]
    pub fn crash_hanging(&self) -> LateWrites {
        let state = &mut *self.0.state.borrow_mut();
        let writes = state.end_flights(Ending::Vanish);
        state.channels = idle_channels(&self.0.params);
        LateWrites { disk: self.clone(), writes }
    }
}

impl State {
    /// Each write, in any order, lands wholly, up to some sector, or not at all.
    pub(super) fn land_some(&mut self, mut writes: Vec<Write>, random: &mut Random) {
        shuffle(&mut writes, random);
        for write in writes {
            match random.below(3) {
                0 => {}
                1 => self.land(write),
                _ => self.land_prefix(write, random),
            }
        }
    }

    fn land_prefix(&mut self, write: Write, random: &mut Random) {
        if write.blocks.is_empty() {
            return;
        }
        let Some(data) = write.data else {
            let blocks = BlockCount(random.below(write.blocks.0));
            self.land(Write { blocks, ..write });
            return;
        };
        let bytes = random.below((data.len() / SECTOR_BYTES) as u64) as usize * SECTOR_BYTES;
        let blocks = BlockCount(bytes.div_ceil(BLOCK_BYTES) as u64);
        let mut mixed = vec![0; blocks.len()];
        self.look(write.at, &mut mixed);
        mixed[..bytes].copy_from_slice(&data[..bytes]);
        self.land(Write { at: write.at, blocks, data: Some(Bytes::from_slice(&mixed)) });
    }

    /// Each sector of a write (each block of a deallocate) reaches the medium or not.
    fn tear(&mut self, write: &Write, random: &mut Random) {
        match &write.data {
            Some(data) => {
                for (i, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                    if random.below(2) == 1 {
                        self.image.write(write.at.byte_offset() + (i * SECTOR_BYTES) as u64, sector);
                    }
                }
            }
            None => {
                // Only what was ever written can differ from zeros.
                let written: Vec<_> = self.image.written(write.at.byte_offset(), write.blocks.bytes()).collect();
                for bytes in written {
                    for at in bytes.step_by(BLOCK_BYTES) {
                        if random.below(2) == 1 {
                            self.image.zero(at, BLOCK_BYTES as u64);
                        }
                    }
                }
            }
        }
    }
}

fn shuffle(writes: &mut [Write], random: &mut Random) {
    for i in (1..writes.len()).rev() {
        writes.swap(i, random.below(i as u64 + 1) as usize);
    }
}
