//! The array's notebook: a volume of its own, which hosts never see, for what is to be found wherever the array is opened.
//! Redundancy, checksums and recovery are those of any volume.
//!
//! ```text
//! block 0 .. 2048          2048 .. 6144                                   6144 .. 16384
//!       | kept for tables | ring of the journal of events (ondisk::journal) | unused |
//! ```
//!
//! Invariants:
//! - what [`Notebook::append`] has returned for is durable, and found again as the ring promises;
//! - what could not be written is written before anything newer.
//!
//! Not here: what a record says, who waits for it.

use base::BLOCK_BYTES;
use ondisk::journal::{Found, Ring, Unwritten};
use rt::Bytes;

use crate::canary::{Canary, planted};
use crate::fault::Fault;
use crate::volume::Volume;

/// Blocks of a notebook: it is thin.
pub const NOTEBOOK_BLOCKS: u64 = 16_384;

/// The ring's first block, and its blocks.
const RING_AT: u64 = 2048;
const RING_BLOCKS: u64 = 4096;

/// Blocks that are read at once.
const READ_BLOCKS: u64 = 256;

/// The notebook of an open array, for one who writes it.
pub struct Notebook {
    volume: Volume,
    ring: Ring,
    unwritten: Unwritten,
}

impl Notebook {
    /// That of `volume`, the array of which is `owner`; and the records in its journal, oldest first.
    ///
    /// # Errors
    /// When the array cannot be read at all; a block that is lost is one without records.
    pub async fn open(volume: Volume, owner: [u8; 16]) -> Result<(Notebook, Vec<Found>), Fault> {
        let (ring, found) = Ring::recover(owner, &Self::images(&volume).await?);
        Ok((Self::of(volume, ring), found))
    }

    /// The same in steps, the second of which takes long for a full ring and may be done by another thread: first the blocks of the
    /// ring; then [`Ring::recover`]; then [`Notebook::of`].
    ///
    /// # Errors
    /// As [`Notebook::open`].
    pub async fn images(volume: &Volume) -> Result<Vec<Vec<u8>>, Fault> {
        let mut images = Vec::with_capacity(RING_BLOCKS as usize);
        for first in (0..RING_BLOCKS).step_by(READ_BLOCKS as usize) {
            match read(volume, first, READ_BLOCKS).await {
                Ok(bytes) => images.extend(bytes.chunks(BLOCK_BYTES).map(<[u8]>::to_vec)),
                Err(Fault::Medium) => {
                    for block in first..first + READ_BLOCKS {
                        match read(volume, block, 1).await {
                            Ok(bytes) => images.push(bytes),
                            Err(Fault::Medium) => images.push(vec![0; BLOCK_BYTES]),
                            Err(other) => return Err(other),
                        }
                    }
                }
                Err(other) => return Err(other),
            }
        }
        Ok(images)
    }

    /// The notebook of `volume` with the ring that lies in it.
    #[must_use]
    pub fn of(volume: Volume, ring: Ring) -> Notebook {
        Notebook { volume, ring, unwritten: Unwritten::default() }
    }

    /// The number that the next record gets.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.ring.next_number()
    }

    /// The number of the oldest record that is kept.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.ring.oldest()
    }

    /// Adds records of at most [`ondisk::journal::RECORD_BYTES_MAX`]; durable when it returns.
    ///
    /// # Errors
    /// When the array takes no writes, or has no room: then they wait, and are written with the next ones.
    pub async fn append(&mut self, records: &[Vec<u8>]) -> Result<(), Fault> {
        self.unwritten.add(self.ring.append(records.iter().map(Vec::as_slice)));
        while let Some(write) = self.unwritten.first() {
            let at = (RING_AT + write.block) * BLOCK_BYTES as u64;
            let durably = !planted(Canary::NotebookUnflushed);
            if let Err(fault) = self.volume.write(at, Bytes::from_slice(&write.image), durably).await {
                self.unwritten.keep_newest();
                return Err(fault);
            }
            self.unwritten.first_is_written();
        }
        Ok(())
    }
}

async fn read(volume: &Volume, block: u64, blocks: u64) -> Result<Vec<u8>, Fault> {
    let bytes = BLOCK_BYTES as u64;
    let pieces = volume.read((RING_AT + block) * bytes, blocks * bytes).await?;
    let mut all = Vec::with_capacity((blocks * bytes) as usize);
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    Ok(all)
}
