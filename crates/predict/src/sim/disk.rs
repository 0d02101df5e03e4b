//! Drives with one arm, and drives that do one thing at a time.

use super::DriveOp;
use super::pipe::Pipe;
use crate::drive::{DiskFigures, DriveFile, PerByte};

/// Requests in flight at which a disk's order helps no more, as a power of two.
const DEEP_LOG2: f64 = 4.0;

/// One drive.
#[derive(Clone)]
pub(crate) struct OneArm {
    kind: Kind,
    arm: Pipe,
    pub(crate) written: f64,
}

#[derive(Clone)]
enum Kind {
    Disk(DiskFigures),
    PerByte(PerByte),
}

impl OneArm {
    /// `None`: it is a flash drive.
    pub(crate) fn new(file: &DriveFile) -> Option<OneArm> {
        let kind = match (file.disk, file.per_byte) {
            (Some(disk), _) => Kind::Disk(disk),
            (_, Some(per_byte)) => Kind::PerByte(per_byte),
            _ => return None,
        };
        Some(OneArm { kind, arm: Pipe::default(), written: 0.0 })
    }

    /// When an operation is answered.
    pub(crate) fn serve(&mut self, now: f64, from: f64, op: &DriveOp) -> f64 {
        if !op.read {
            self.written += op.bytes;
        }
        let ns = match &self.kind {
            Kind::PerByte(p) => op.bytes * 1e9 / if op.read { p.read_bytes_per_s } else { p.write_bytes_per_s },
            Kind::Disk(d) => {
                let access = match (op.in_order, op.read) {
                    (true, _) => 0.0,
                    (false, false) => d.write_access_ns as f64,
                    (false, true) => {
                        let in_flight = 1.0 + self.arm.waiting(now) / d.deep_access_ns as f64;
                        let gain = (in_flight.log2() / DEEP_LOG2).min(1.0);
                        d.lone_access_ns as f64 - gain * (d.lone_access_ns - d.deep_access_ns) as f64
                    }
                };
                access + op.bytes * 1e9 / d.bytes_per_s
            }
        };
        self.arm.take(now, from, ns)
    }

    /// How long its arm was busy.
    pub(crate) fn busy(&self) -> f64 {
        self.arm.busy()
    }
}
