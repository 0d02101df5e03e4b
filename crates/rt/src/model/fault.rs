//! The faults that a modelled drive can be told to have, and the verdicts of a test's hook.
//!
//! Faults are drawn from the drive's seed and last until [`Fault::None`]; a verdict is about one operation.
//!
//! Not here: power cuts and crashes (`cut`), vanishing (`Disk::detach`).

use base::{BlockCount, MemberLba};

use crate::IoError;
use crate::random::Random;

/// A lasting fault. `one_in` is the mean distance of its occurrences in operations; 0 ends it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Ends every fault, bad blocks included.
    None,
    /// Latent sector errors: a read that touches these blocks fails with `Medium`, until they are written or
    /// deallocated.
    BadBlocks {
        /// The first.
        at: MemberLba,
        /// How many.
        blocks: BlockCount,
    },
    /// Reads fail with `Medium`.
    ReadErrors {
        /// Mean distance.
        one_in: u32,
    },
    /// Writes fail with `Medium`; their data lands wholly, partly or not at all.
    WriteErrors {
        /// Mean distance.
        one_in: u32,
    },
    /// Writes are answered and do not land.
    LostWrites {
        /// Mean distance.
        one_in: u32,
    },
    /// Writes are answered and land at some other place of the drive.
    MisdirectedWrites {
        /// Mean distance.
        one_in: u32,
    },
    /// Reads come back with one bit flipped; the medium stays right.
    CorruptReads {
        /// Mean distance.
        one_in: u32,
    },
    /// Where the drive lies there is no room: writes fail with `NoSpace`, and what they would overwrite stays or is overwritten
    /// in part. So does a file on a full file system, or a volume of a full thin pool.
    NoSpace {
        /// Which writes.
        writes: FullFor,
    },
    /// Flushes are answered and do nothing.
    LyingFlushes {
        /// Mean distance.
        one_in: u32,
    },
    /// Every operation takes this many times as long; 1 ends it.
    Slow {
        /// The factor.
        factor: u32,
    },
    /// Operations take this much longer.
    Stalls {
        /// Mean distance.
        one_in: u32,
        /// The added time.
        ns: u64,
    },
    /// Every operation from now on hangs until the drive is detached or loses power.
    Hang,
}

/// Which writes find no room where the drive lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullFor {
    /// None: there is room.
    #[default]
    Nothing,
    /// Those to places that were never written, or were deallocated since: what is there is overwritten in place.
    New,
    /// All: what is overwritten goes to a new place, too.
    All,
}

/// What kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush; its address and length are 0.
    Flush,
    /// Deallocate.
    Deallocate,
}

/// An operation as a test's hook sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// The kind.
    pub kind: OpKind,
    /// The first block.
    pub at: MemberLba,
    /// The length.
    pub blocks: BlockCount,
}

/// What a test's hook says to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As always.
    Proceed,
    /// Takes its time, then fails; nothing lands.
    Fail(IoError),
    /// Stays in flight until the drive is detached, loses power or its process dies.
    Hang,
    /// Takes this much longer.
    DelayNs(u64),
    /// Is answered and does nothing (writes, deallocates and flushes).
    LoseWrite,
    /// Goes to another place (reads and writes).
    MisdirectTo(MemberLba),
}

/// The lasting faults in force.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    read_errors: u32,
    write_errors: u32,
    lost_writes: u32,
    misdirected_writes: u32,
    corrupt_reads: u32,
    lying_flushes: u32,
    slow: u32,
    stalls: (u32, u64),
    hang: bool,
    full_for: FullFor,
}

/// What the lasting faults say to one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Draw {
    pub(super) hang: bool,
    pub(super) error: bool,
    pub(super) lost: bool,
    pub(super) corrupt: bool,
    pub(super) misdirect_to: Option<MemberLba>,
    pub(super) extra_ns: u64,
}

impl Faults {
    /// Takes in everything but bad blocks, which the drive itself keeps.
    pub(super) fn set(&mut self, fault: Fault) {
        match fault {
            Fault::None => *self = Faults::default(),
            Fault::BadBlocks { .. } => {}
            Fault::ReadErrors { one_in } => self.read_errors = one_in,
            Fault::WriteErrors { one_in } => self.write_errors = one_in,
            Fault::LostWrites { one_in } => self.lost_writes = one_in,
            Fault::MisdirectedWrites { one_in } => self.misdirected_writes = one_in,
            Fault::CorruptReads { one_in } => self.corrupt_reads = one_in,
            Fault::LyingFlushes { one_in } => self.lying_flushes = one_in,
            Fault::Slow { factor } => self.slow = factor,
            Fault::Stalls { one_in, ns } => self.stalls = (one_in, ns),
            Fault::Hang => self.hang = true,
            Fault::NoSpace { writes } => self.full_for = writes,
        }
    }

    /// Which writes find no room.
    pub(super) fn full_for(&self) -> FullFor {
        self.full_for
    }

    pub(super) fn slow_factor(&self) -> u64 {
        u64::from(self.slow.max(1))
    }

    pub(super) fn draw(&self, op: &Op, drive_blocks: BlockCount, random: &mut Random) -> Draw {
        let mut draw = Draw { hang: self.hang, ..Draw::default() };
        match op.kind {
            OpKind::Read => {
                draw.error = random.one_in(self.read_errors);
                draw.corrupt = random.one_in(self.corrupt_reads);
            }
            OpKind::Write => {
                draw.error = random.one_in(self.write_errors);
                draw.lost = random.one_in(self.lost_writes);
                if random.one_in(self.misdirected_writes) {
                    let places = drive_blocks.0 - op.blocks.0 + 1;
                    draw.misdirect_to = Some(MemberLba(random.below(places)));
                }
            }
            OpKind::Flush => draw.lost = random.one_in(self.lying_flushes),
            OpKind::Deallocate => {}
        }
        if random.one_in(self.stalls.0) {
            draw.extra_ns = self.stalls.1;
        }
        draw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_fault_and_none_ends_them() {
        let op = |kind| Op { kind, at: MemberLba(1), blocks: BlockCount(2) };
        let mut random = Random::from_seed(3);
        let mut faults = Faults::default();
        for fault in [
            Fault::ReadErrors { one_in: 1 },
            Fault::LostWrites { one_in: 1 },
            Fault::MisdirectedWrites { one_in: 1 },
            Fault::LyingFlushes { one_in: 1 },
            Fault::Stalls { one_in: 1, ns: 7 },
            Fault::Slow { factor: 3 },
        ] {
            faults.set(fault);
        }
        let mut draw = |kind| faults.draw(&op(kind), BlockCount(2), &mut random);
        assert_eq!(draw(OpKind::Read), Draw { error: true, extra_ns: 7, ..Draw::default() });
        let to = Some(MemberLba(0));
        assert_eq!(draw(OpKind::Write), Draw { lost: true, misdirect_to: to, extra_ns: 7, ..Draw::default() });
        assert_eq!(draw(OpKind::Flush), Draw { lost: true, extra_ns: 7, ..Draw::default() });
        assert_eq!(faults.slow_factor(), 3);
        faults.set(Fault::None);
        assert_eq!(faults.draw(&op(OpKind::Read), BlockCount(2), &mut random), Draw::default());
    }
}
