//! Direct drives striped: the yardstick, with nothing between the generator and the drives. Or mirrored as a RAID 10 that
//! writes in place does it: what such an array costs at least, since nothing is kept to find out what a power cut left.
//!
//! Invariant: a request goes to one drive, or to all copies of one, so a stripe unit holds whole requests.

use base::{BLOCK_BYTES, BlockCount, MemberLba};
use futures::future::try_join_all;
use rt::{Buf, Bytes, Drive};

use crate::error::{Error, Impossible};

/// The least stripe unit: 128 KiB, so that a sequential stream reaches all drives at usual depths.
pub const UNIT_BYTES_MIN: u64 = 128 << 10;

/// Drives as one range of bytes.
#[derive(Clone, Debug)]
pub struct Stripe {
    drives: Vec<Drive>,
    /// Drives that hold the same: those next to each other.
    copies: usize,
    unit_bytes: u64,
}

impl Stripe {
    /// `drives` side by side.
    ///
    /// # Errors
    /// When there are none.
    pub fn new(drives: Vec<Drive>) -> Result<Stripe, Error> {
        Stripe::mirrored(drives, 1)
    }

    /// So many drives hold the same each time; what does not come out even stays unused.
    ///
    /// # Errors
    /// When there are fewer drives than copies.
    pub fn mirrored(mut drives: Vec<Drive>, copies: usize) -> Result<Stripe, Error> {
        drives.truncate(drives.len() / copies * copies);
        if drives.is_empty() {
            return Err(Impossible::NoDrives.into());
        }
        Ok(Stripe { drives, copies, unit_bytes: UNIT_BYTES_MIN })
    }

    /// Whether drives hold the same.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        self.copies > 1
    }

    /// The same drives with a stripe unit that holds whole requests of `block_bytes`.
    #[must_use]
    pub fn for_block(mut self, block_bytes: u32) -> Stripe {
        self.unit_bytes = UNIT_BYTES_MIN.next_multiple_of(u64::from(block_bytes));
        self
    }

    /// Bytes in all, copies not counted, the same on each drive.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let smallest = self.drives.iter().map(|d| d.info().blocks).min().unwrap_or(BlockCount::ZERO);
        smallest.bytes() / self.unit_bytes * self.unit_bytes * (self.drives.len() / self.copies) as u64
    }

    /// The drives that hold it, and where on each.
    fn place(&self, offset: u64) -> (&[Drive], MemberLba) {
        let (unit, within) = (offset / self.unit_bytes, offset % self.unit_bytes);
        let n = (self.drives.len() / self.copies) as u64;
        let at = unit / n * self.unit_bytes + within;
        let first = (unit % n) as usize * self.copies;
        (&self.drives[first..first + self.copies], MemberLba(at / BLOCK_BYTES as u64))
    }

    /// Reads one request, from the copy that has least to do.
    ///
    /// # Errors
    /// The drive's.
    pub async fn read(&self, offset: u64, buf: Buf) -> (Result<(), Error>, Buf) {
        let (drives, at) = self.place(offset);
        let drive = match drives {
            [one] => one,
            several => several.iter().min_by_key(|d| d.in_flight()).expect("there are copies"),
        };
        let (result, buf) = drive.read(at, buf).await;
        (result.map_err(|e| failed(drive, e)), buf)
    }

    /// Writes one request, all copies at once.
    ///
    /// # Errors
    /// A drive's.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let (drives, at) = self.place(offset);
        if let [one] = drives {
            return one.write(at, data).await.map_err(|e| failed(one, e));
        }
        let write = async |drive: &Drive| drive.write(at, data.clone()).await.map_err(|e| failed(drive, e));
        // Apart, so that a lone drive's write, the yardstick, is as small as it can be.
        Box::pin(try_join_all(drives.iter().map(write))).await.map(drop)
    }

    /// Makes durable what was answered.
    ///
    /// # Errors
    /// A drive's.
    pub async fn flush(&self) -> Result<(), Error> {
        for drive in &self.drives {
            drive.flush().await.map_err(|e| failed(drive, e))?;
        }
        Ok(())
    }
}

/// A drive's failure with its name.
pub(crate) fn failed(drive: &Drive, error: rt::IoError) -> Error {
    Error::Drive { name: drive.info().name.clone(), error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::Rt;

    #[test]
    fn units_go_round() {
        let rt = Rt::modelled(1);
        let drives = (0..3).map(|i| Drive::memory(&rt, &format!("m{i}"), 1 << 20)).collect();
        let stripe = Stripe::new(drives).unwrap().for_block(4096);
        assert_eq!(stripe.bytes(), 3 << 20);
        let place = |offset| {
            let (drives, at) = stripe.place(offset);
            (drives[0].info().name.clone(), at.0)
        };
        assert_eq!(place(0), ("m0".to_owned(), 0));
        assert_eq!(place(UNIT_BYTES_MIN + 4096), ("m1".to_owned(), 1));
        assert_eq!(place(3 * UNIT_BYTES_MIN), ("m0".to_owned(), 32));
        assert!(Stripe::new(vec![]).is_err());
    }

    #[test]
    fn copies_lie_side_by_side() {
        let rt = Rt::modelled(1);
        let drives: Vec<Drive> = (0..5).map(|i| Drive::memory(&rt, &format!("m{i}"), 1 << 20)).collect();
        let mirror = Stripe::mirrored(drives.clone(), 2).unwrap();
        assert_eq!(mirror.bytes(), 2 << 20, "two pairs");
        rt.block_on(async {
            mirror.write(UNIT_BYTES_MIN, Buf::from_slice(&[7; BLOCK_BYTES]).freeze()).await.unwrap();
            for (drive, holds) in drives.iter().zip([0, 0, 7, 7, 0]) {
                let (read, found) = drive.read(MemberLba(0), Buf::zeroed(BLOCK_BYTES)).await;
                read.unwrap();
                assert_eq!(found[0], holds, "{}", drive.info().name);
            }
            let (read, found) = mirror.read(UNIT_BYTES_MIN, Buf::zeroed(BLOCK_BYTES)).await;
            read.unwrap();
            assert_eq!(found[0], 7);
        });
        assert!(Stripe::mirrored(drives[..1].to_vec(), 2).is_err());
    }
}
