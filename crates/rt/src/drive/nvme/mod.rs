//! A namespace of an NVMe drive: the verbs as NVMe commands to its character device (/dev/ng0n1), past the block layer.
//!
//! ```text
//!   read, write   split at the controller's limits, all pieces at once     (NVM Command Set 1.0, 3.2.4 and 3.2.6)
//!   flush         Flush: the drive's volatile cache                        (NVMe Base 2.0, 7.1)
//!   deallocate    Dataset Management with one range                        (NVM Command Set 1.0, 3.2.3)
//! ```
//!
//! Invariants: an answer is about the whole, and comes when no piece is in flight any more; a command that failed for a
//! reason that passes is sent again, five times at most.
//!
//! Not here: finding and opening it (`generic`); what keeps its block device open and locked meanwhile (`choose::Found`);
//! the page cache of the block device, which does not notice.

pub(crate) mod generic;
mod status;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;

pub(super) use generic::{Generic, IoctlCommand, is_private, namespace_id};
use status::{Verdict, verdict};

use super::limits::Limits;
use super::sysfs::is_removed;
use super::{InFlight, IoError, Load};
use crate::ring::{Command, Fields, Operation, Payload, Request};
use crate::{Buf, Bytes, Rt};

/// Opcodes.
const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const DATASET_MANAGEMENT: u8 = 0x09;
/// Dataset Management, dword 11: attribute deallocate.
const DEALLOCATE: u32 = 1 << 2;
/// All 256 ranges that Dataset Management may have.
const RANGES_BYTES: usize = 256 * 16;

/// How often a command is sent again: as often as Linux does it with its own (nvme_core.max_retries).
const TRIES_MORE: u32 = 5;
/// Before the first try that waits; before the second twice that, and so on: 1.5 s in all.
const LATER: Duration = Duration::from_millis(100);

/// An open namespace.
pub(super) struct Namespace {
    /// The character device, locked.
    fd: Rc<OwnedFd>,
    /// The block device's directory in sysfs.
    sysfs: PathBuf,
    id: u32,
    lba_shift: u32,
    limits: Limits,
    /// Bytes of one deallocation; zero when the drive has none.
    deallocate_bytes_max: u64,
}

impl Namespace {
    pub(super) async fn read(&self, rt: &Rt, load: &Rc<Load>, at: u64, buf: Buf) -> (Result<(), IoError>, Buf) {
        let (len, buf) = (buf.len(), Rc::new(buf));
        let piece = |part: std::ops::Range<usize>| {
            let fields = self.transfer(READ, at + part.start as u64, part.len());
            let into = buf.clone();
            let payload = move || Payload::Into { buf: into.clone(), from: part.start, len: part.len() };
            self.send(rt, load, fields, payload)
        };
        let result = together(self.limits.ranges(len).map(piece).collect()).await;
        let buf = Rc::try_unwrap(buf).expect("every piece has been answered, and its request is gone");
        (result, buf)
    }

    pub(super) async fn write(&self, rt: &Rt, load: &Rc<Load>, at: u64, parts: Vec<Bytes>) -> Result<(), IoError> {
        let mut parts: VecDeque<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let mut at = at;
        let mut pieces = vec![];
        while !parts.is_empty() {
            let taken = self.limits.take(&mut parts);
            let len: usize = taken.iter().map(Bytes::len).sum();
            assert!(len > 0, "a command takes a block at least");
            let fields = self.transfer(WRITE, at, len);
            at += len as u64;
            pieces.push(self.send(rt, load, fields, move || Payload::From(taken.clone())));
        }
        together(pieces).await
    }

    pub(super) async fn flush(&self, rt: &Rt, load: &Rc<Load>) -> Result<(), IoError> {
        let fields = Fields { opcode: FLUSH, namespace: self.id, dwords: [0; 3] };
        self.send(rt, load, fields, || Payload::None).await
    }

    pub(super) async fn deallocate(&self, rt: &Rt, load: &Rc<Load>, at: u64, len: u64) -> Result<(), IoError> {
        let (mut at, end) = (at, at + len);
        // What the drive cannot is no error: it was a hint.
        while at < end && self.deallocate_bytes_max > 0 {
            let len = self.deallocate_bytes_max.min(end - at);
            let (fields, range) = self.deallocation(at, len);
            let sent = self.send(rt, load, fields, || Payload::From(vec![range.clone()])).await;
            match sent {
                Err(IoError::Os(libc::EOPNOTSUPP)) => return Ok(()),
                other => other?,
            }
            at += len;
        }
        Ok(())
    }

    /// Fields of a read or write of `len` bytes from byte `at` on.
    fn transfer(&self, opcode: u8, at: u64, len: usize) -> Fields {
        let (lba, lbas) = (at >> self.lba_shift, len >> self.lba_shift);
        // Dword 12 counts from zero.
        let dwords = [lba as u32, (lba >> 32) as u32, lbas.saturating_sub(1) as u32];
        Fields { opcode, namespace: self.id, dwords }
    }

    /// Fields and ranges of a deallocation. The first range: attributes, LBAs, first LBA, little-endian. The rest is
    /// zero: drives fetch the whole page however many ranges there are, so it is theirs, as it is with Linux's own.
    fn deallocation(&self, at: u64, len: u64) -> (Fields, Bytes) {
        let lbas = u32::try_from(len >> self.lba_shift).expect("a deallocation is split at what a range can say");
        let mut range = Buf::zeroed(RANGES_BYTES);
        range[4..8].copy_from_slice(&lbas.to_le_bytes());
        range[8..16].copy_from_slice(&(at >> self.lba_shift).to_le_bytes());
        let range = range.freeze();
        // One range; it counts from zero.
        (Fields { opcode: DATASET_MANAGEMENT, namespace: self.id, dwords: [0, DEALLOCATE, 0] }, range)
    }

    /// Sends a command until there is a verdict that stays.
    async fn send(
        &self,
        rt: &Rt,
        load: &Rc<Load>,
        fields: Fields,
        payload: impl Fn() -> Payload,
    ) -> Result<(), IoError> {
        // Counted also between two tries, while it is not in the ring (which counts it, too): the drive is not idle.
        let _in_flight = InFlight::begin(load);
        let mut tries_left = TRIES_MORE;
        loop {
            let request = Request::Command(Command::new(self.fd.clone(), fields, payload()));
            let (answer, _request) = Operation::new(&rt.inner, request, Some(load.clone())).await;
            let (error, pause) = match verdict(answer) {
                Verdict::Done => return Ok(()),
                Verdict::Failed(error) => (error, None),
                Verdict::Again(error) => (error, Some(Duration::ZERO)),
                Verdict::Later(error) => (error, Some(LATER * (1 + TRIES_MORE - tries_left))),
            };
            match (self.look_again(error), pause) {
                (IoError::Gone, _) => return Err(IoError::Gone),
                (_, Some(pause)) if tries_left > 0 => rt.sleep(pause).await,
                (error, _) => return Err(error),
            }
            tries_left -= 1;
        }
    }

    /// What a removed drive answers is any of these.
    fn look_again(&self, error: IoError) -> IoError {
        match error {
            IoError::Medium | IoError::TimedOut if is_removed(&self.sysfs) => IoError::Gone,
            other => other,
        }
    }
}

/// Waits for all pieces of a request; the first error is its own.
async fn together(mut pieces: Vec<impl Future<Output = Result<(), IoError>>>) -> Result<(), IoError> {
    match (pieces.pop(), pieces.is_empty()) {
        (None, _) => Ok(()),
        (Some(only), true) => only.await,
        (Some(last), false) => {
            pieces.push(last);
            join_all(pieces).await.into_iter().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(lba_shift: u32) -> Namespace {
        let fd = Rc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap());
        Namespace {
            fd,
            sysfs: PathBuf::from("/sys"),
            id: 3,
            lba_shift,
            limits: Limits::new(1 << 20, 127).unwrap(),
            deallocate_bytes_max: 1 << 40,
        }
    }

    #[test]
    fn addresses_are_those_of_the_format() {
        let fields = namespace(9).transfer(READ, 0x1234_5678_9000, 8192);
        assert_eq!((fields.opcode, fields.namespace), (2, 3));
        assert_eq!(fields.dwords, [0x1a2b_3c48, 0x9, 15]);
        assert_eq!(namespace(12).transfer(WRITE, 0x1234_5678_9000, 8192).dwords, [0x2345_6789, 0x1, 1]);
    }

    #[test]
    fn a_range_of_a_deallocation() {
        let (fields, range) = namespace(12).deallocation(0x0010_0000_0000, 0x4000_0000);
        assert_eq!((fields.opcode, fields.dwords), (9, [0, 4, 0]));
        assert_eq!(range[..16], [0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert!(
            range.len() == 4096
                && range[16..].iter().all(|b| *b == 0)
                && (range.as_ptr() as usize).is_multiple_of(4096)
        );
    }
}
