//! A guest's memory as its device writes it: while the guest moves to another process, pages that were written are noted for its front
//! end, which copies them once more. Vhost-user, "Migration".
//!
//! ```text
//!   log   a bit for each page of 4 KiB of the guest's addresses; page P is bit P % 8 of byte P / 8
//! ```
//!
//! Invariant: a page is noted after it was written, so that what the front end takes as written is copied with what was written.

use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};

use rt::guest::{Foreign, GuestMemory, MapError, OutOfMemory, Region};

const PAGE: u64 = 4096;

/// Pages that were written. This thread sets bits and the front end takes them off, a word at a time: one that it takes off between a
/// look and a write here is set again, which costs it a copy.
pub struct Log {
    memory: GuestMemory,
    bytes: u64,
}

impl Log {
    /// What a front end has passed: `bytes` from `offset` of a file on.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub fn map(file: impl Into<Foreign>, bytes: u64, offset: u64) -> Result<Log, MapError> {
        let region = Region { guest: 0, bytes, user: 0, offset };
        Ok(Log { memory: GuestMemory::map(vec![(region, file)])?, bytes })
    }

    /// Notes what was written. Pages that the log has no bits for are of no guest that moves.
    fn note(&self, at: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        // A processor may look at the bit before the others see what was written. A bit that is taken off between is not set again.
        fence(Ordering::SeqCst);
        for page in at / PAGE..=(at + (bytes - 1)) / PAGE {
            let (place, bit) = (page / 8, 1 << (page % 8));
            let mut now = [0];
            if place < self.bytes && self.memory.read(place, &mut now).is_ok() && now[0] & bit == 0 {
                let _within = self.memory.store_byte(place, now[0] | bit);
            }
        }
    }
}

/// A guest's memory, and the log of what is written, while there is one. Clones share both.
#[derive(Clone)]
pub struct Memory {
    guest: GuestMemory,
    log: Option<Rc<Log>>,
}

impl From<GuestMemory> for Memory {
    fn from(guest: GuestMemory) -> Memory {
        Memory { guest, log: None }
    }
}

impl Memory {
    /// The same memory; what is written from now on is noted there.
    #[must_use]
    pub fn noted_in(mut self, log: Option<Rc<Log>>) -> Memory {
        self.log = log;
        self
    }

    /// Its regions.
    #[must_use]
    pub fn guest(&self) -> &GuestMemory {
        &self.guest
    }

    /// As [`GuestMemory::has`].
    #[must_use]
    pub fn has(&self, at: u64, bytes: u64) -> bool {
        self.guest.has(at, bytes)
    }

    /// As [`GuestMemory::read`].
    ///
    /// # Errors
    /// When the range is not in the memory.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        self.guest.read(at, into)
    }

    /// As [`GuestMemory::load`].
    ///
    /// # Errors
    /// When it is not in the memory, or not aligned.
    pub fn load(&self, at: u64) -> Result<u16, OutOfMemory> {
        self.guest.load(at)
    }

    /// As [`GuestMemory::write`].
    ///
    /// # Errors
    /// When the range is not in the memory.
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), OutOfMemory> {
        self.guest.write(at, from)?;
        self.note(at, from.len() as u64);
        Ok(())
    }

    /// As [`GuestMemory::store`].
    ///
    /// # Errors
    /// When it is not in the memory, or not aligned.
    pub fn store(&self, at: u64, value: u16) -> Result<(), OutOfMemory> {
        self.guest.store(at, value)?;
        self.note(at, 2);
        Ok(())
    }

    fn note(&self, at: u64, bytes: u64) {
        if let Some(log) = &self.log {
            log.note(at, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use rt::guest::sealed_memory;

    use super::*;

    #[test]
    fn pages_that_are_written_are_noted_while_there_is_a_log() {
        let region = Region { guest: 0, bytes: 1 << 20, user: 0, offset: 0 };
        let memory = Memory::from(GuestMemory::map(vec![(region, sealed_memory(1 << 20).unwrap())]).unwrap());
        // Room for 128 pages of the 256.
        let log = Rc::new(Log::map(sealed_memory(4096).unwrap(), 16, 0).unwrap());
        let noted = || {
            let mut bits = [0; 16];
            log.memory.read(0, &mut bits).unwrap();
            log.memory.write(0, &[0; 16]).unwrap();
            (0..128_usize).filter(|page| bits[page / 8] & 1 << (page % 8) != 0).collect::<Vec<_>>()
        };
        memory.write(0, &[1; 4096]).unwrap();
        assert_eq!(noted(), [0_usize; 0]);
        let moving = memory.clone().noted_in(Some(log.clone()));
        moving.write(3 * 4096 - 1, &[1; 4098]).unwrap();
        moving.store(9 * 4096, 7).unwrap();
        moving.write(77 * 4096, &[]).unwrap();
        assert_eq!(noted(), [2, 3, 4, 9]);
        moving.write(200 * 4096, &[1; 10]).unwrap();
        assert_eq!(moving.write(1 << 20, &[1]), Err(OutOfMemory));
        assert_eq!(noted(), [0_usize; 0], "beyond the log, and beyond the memory");
        moving.noted_in(None).write(0, &[1]).unwrap();
        assert_eq!(noted(), [0_usize; 0]);
        assert!(Log::map(sealed_memory(4096).unwrap(), 8192, 0).is_err());
    }
}
