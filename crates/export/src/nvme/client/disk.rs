//! A namespace as a host uses it: each command goes to the I/O queue that has the fewest in flight, the next one first.

use std::{cell::Cell, rc::Rc};

use rt::Bytes;

use super::{Error, Link};
use crate::nvme::{
    bytes::{put, u64_at},
    entry::{Sqe, io},
    request::{DATASET_DEALLOCATE, bit},
};

/// A namespace. Clones share the queues.
#[derive(Clone)]
pub struct Disk {
    queues: Vec<Link>,
    next: Rc<Cell<usize>>,
    nsid: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Length of a block in bytes.
    pub block: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Bytes of the longest request, where there is a limit.
    pub transfer_bytes_max: Option<u64>,
}

impl Disk {
    /// From its Identify page; nothing when it is inactive.
    pub(super) fn new(queues: Vec<Link>, nsid: u32, page: &[u8]) -> Option<Disk> {
        let blocks = u64_at(page, 0);
        // FLBAS says which of the formats is in use; one with metadata (MS) is none of ours. NVM Command Set 1.0, 4.1.5.1.
        let format = 128 + 4 * usize::from(page[26] & 0xf);
        let shift = page[format + 2];
        if page[format] != 0 || page[format + 1] != 0 {
            return None;
        }
        let block = 1u32.checked_shl(u32::from(shift)).filter(|b| *b >= 512 && blocks > 0)?;
        let bytes = blocks.checked_mul(u64::from(block))?;
        Some(Disk {
            queues,
            next: Rc::default(),
            nsid,
            bytes,
            block,
            read_only: page[99] & 1 != 0,
            transfer_bytes_max: None,
        })
    }

    /// A command of this namespace for the next queue.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn run(&self, sqe: Sqe, data: Option<Bytes>, expected: u32) -> Result<Bytes, Error> {
        let link = self.queue().ok_or(Error::Disconnected)?;
        Ok(link.run(sqe.with_dword(1, self.nsid), data, expected).await?.data)
    }

    /// So no queue is overrun while all together have room.
    fn queue(&self) -> Option<&Link> {
        let first = self.next.get();
        let count = self.queues.len();
        let at = (first..first + count).map(|at| at % count).min_by_key(|at| self.queues[*at].in_flight())?;
        self.next.set(at + 1);
        self.queues.get(at)
    }

    /// A command for a range; offset and length are multiples of the block.
    #[must_use]
    pub fn command(&self, opcode: u8, offset: u64, bytes: u64, flags: u32) -> Sqe {
        let block = u64::from(self.block);
        let blocks = (bytes / block).wrapping_sub(1) as u32 & 0xffff;
        Sqe::new(opcode, 0).with(40, &(offset / block).to_le_bytes()).with_dword(12, blocks | flags)
    }

    /// Reads.
    ///
    /// # Errors
    /// As [`Link::run`]; so for all commands.
    pub async fn read(&self, offset: u64, bytes: u32) -> Result<Bytes, Error> {
        self.run(self.command(io::READ, offset, u64::from(bytes), 0), None, bytes).await
    }

    /// Writes; with `fua` the data is durable when answered.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Error> {
        let sqe = self.command(io::WRITE, offset, data.len() as u64, fua_bit(fua));
        self.run(sqe, Some(data), 0).await.map(drop)
    }

    /// Compares.
    ///
    /// # Errors
    /// As [`Link::run`]; `COMPARE_FAILURE` when it is different.
    pub async fn compare(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        self.run(self.command(io::COMPARE, offset, data.len() as u64, 0), Some(data), 0).await.map(drop)
    }

    /// Makes durable what has been answered.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn flush(&self) -> Result<(), Error> {
        self.run(Sqe::new(io::FLUSH, 0), None, 0).await.map(drop)
    }

    /// Writes zeroes, 65536 blocks at most.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn write_zeroes(&self, offset: u64, bytes: u64, may_deallocate: bool, fua: bool) -> Result<(), Error> {
        let deallocate = if may_deallocate { bit::DEALLOCATE } else { 0 };
        let sqe = self.command(io::WRITE_ZEROES, offset, bytes, deallocate | fua_bit(fua));
        self.run(sqe, None, 0).await.map(drop)
    }

    /// Deallocates up to 256 ranges of offset and length.
    ///
    /// # Errors
    /// As [`Link::run`].
    pub async fn deallocate(&self, ranges: &[(u64, u64)]) -> Result<(), Error> {
        let block = u64::from(self.block);
        let mut data = vec![0; ranges.len() * 16];
        for ((offset, bytes), range) in ranges.iter().zip(data.chunks_mut(16)) {
            put(range, 4, &((bytes / block) as u32).to_le_bytes());
            put(range, 8, &(offset / block).to_le_bytes());
        }
        let sqe = Sqe::new(io::DATASET_MANAGEMENT, 0)
            .with_dword(10, ranges.len() as u32 - 1)
            .with_dword(11, DATASET_DEALLOCATE);
        self.run(sqe, Some(Bytes::from_slice(&data)), 0).await.map(drop)
    }
}

fn fua_bit(fua: bool) -> u32 {
    if fua { bit::FUA } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_in_use_counts() {
        let mut page = vec![0; 4096];
        page[0] = 100;
        (page[130], page[134]) = (9, 12);
        let block = |page: &[u8]| Disk::new(vec![], 1, page).map(|disk| (disk.block, disk.bytes));
        assert_eq!(block(&page), Some((512, 51_200)));
        page[26] = 1;
        assert_eq!(block(&page), Some((4096, 409_600)));
        page[132] = 8;
        assert_eq!(block(&page), None, "metadata beside each block");
    }
}
