//! Direct drives striped: the yardstick, with nothing between the generator and the drives.
//!
//! Invariant: a request goes to one drive, so a stripe unit holds whole requests.

use base::{BLOCK_BYTES, BlockCount, MemberLba};
use rt::{Buf, Bytes, Drive};

use crate::error::{Error, Impossible};

/// The least stripe unit: 128 KiB, so that a sequential stream reaches all drives at usual depths.
pub const UNIT_BYTES_MIN: u64 = 128 << 10;

/// Drives as one range of bytes.
#[derive(Clone, Debug)]
pub struct Stripe {
    drives: Vec<Drive>,
    unit_bytes: u64,
}

impl Stripe {
    /// `drives` side by side.
    ///
    /// # Errors
    /// When there are none.
    pub fn new(drives: Vec<Drive>) -> Result<Stripe, Error> {
        if drives.is_empty() {
            return Err(Impossible::NoDrives.into());
        }
        Ok(Stripe { drives, unit_bytes: UNIT_BYTES_MIN })
    }

    /// The same drives with a stripe unit that holds whole requests of `block_bytes`.
    #[must_use]
    pub fn for_block(mut self, block_bytes: u32) -> Stripe {
        self.unit_bytes = UNIT_BYTES_MIN.next_multiple_of(u64::from(block_bytes));
        self
    }

    /// Bytes in all, the same on each drive.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let smallest = self.drives.iter().map(|d| d.info().blocks).min().unwrap_or(BlockCount::ZERO);
        smallest.bytes() / self.unit_bytes * self.unit_bytes * self.drives.len() as u64
    }

    fn place(&self, offset: u64) -> (&Drive, MemberLba) {
        let (unit, within) = (offset / self.unit_bytes, offset % self.unit_bytes);
        let n = self.drives.len() as u64;
        let at = unit / n * self.unit_bytes + within;
        (&self.drives[(unit % n) as usize], MemberLba(at / BLOCK_BYTES as u64))
    }

    /// Reads one request.
    ///
    /// # Errors
    /// The drive's.
    pub async fn read(&self, offset: u64, buf: Buf) -> (Result<(), Error>, Buf) {
        let (drive, at) = self.place(offset);
        let (result, buf) = drive.read(at, buf).await;
        (result.map_err(|e| failed(drive, e)), buf)
    }

    /// Writes one request.
    ///
    /// # Errors
    /// The drive's.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let (drive, at) = self.place(offset);
        drive.write(at, data).await.map_err(|e| failed(drive, e))
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
            let (drive, at) = stripe.place(offset);
            (drive.info().name.clone(), at.0)
        };
        assert_eq!(place(0), ("m0".to_owned(), 0));
        assert_eq!(place(UNIT_BYTES_MIN + 4096), ("m1".to_owned(), 1));
        assert_eq!(place(3 * UNIT_BYTES_MIN), ("m0".to_owned(), 32));
        assert!(Stripe::new(vec![]).is_err());
    }
}
