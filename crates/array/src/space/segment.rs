//! One segment at work.
//!
//! Invariants:
//! - `durable <= acked <= append`, and rows below `acked` are complete on every member that is in;
//! - a segment is written only when a generation that lists it has taken effect (`listed`);
//! - of a *vacated* one nothing is asked any more: what the trees say of it, newer entries say otherwise. They are replayed
//!   until they are in the trees.
//!
//! Its fields can be read by all, and are changed by [`super::segments`] alone: nobody else is given one to change.

use std::rc::Rc;

use base::{Epoch, MemberId, Pba, SegmentId, Seq};
use ondisk::{Cut, Scheme, SegmentState, Slot};

/// A record whose entries are not all merged.
#[derive(Clone, Copy, Debug)]
pub struct Unmerged {
    /// First row.
    pub row: u32,
    /// Order of its last entry.
    pub last: (Epoch, Seq),
}

/// Where a segment is in its life, in the order of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Never written.
    Spare,
    /// A stream may append to it.
    Open,
    /// Nothing is appended any more.
    Sealed,
    /// The cleaner has moved out so much of what was live, in thousandths.
    Emptying(u16),
    /// The cleaner has been through it. Until a memtable that was frozen later than `frozen` others is merged, its count is not known.
    Emptied {
        /// Memtables frozen until then.
        frozen: u64,
    },
    /// No block lies in it, whatever its count says: the next generation does not know it any more, unless entries of it are not
    /// merged yet, or something holds it.
    Vacated {
        /// Memtables frozen until then.
        frozen: u64,
    },
}

/// What keeps jobs off a segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hold {
    /// It is being restored: its columns stay where they are, and it is not freed.
    pub is_being_restored: bool,
    /// A record header is lost: what lies in it is known by its count alone, so it is never cleaned.
    pub header_lost: bool,
}

/// Rows of a segment, as far as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows {
    /// Given out.
    pub append: u32,
    /// Acknowledged.
    pub acked: u32,
    /// Acknowledged and durable.
    pub durable: u32,
}

/// One segment.
#[derive(Debug)]
pub struct Seg {
    /// Its name for ever.
    pub id: SegmentId,
    /// Its redundancy.
    pub scheme: Scheme,
    /// Made for short records. It is not written down: spares are made anew at each open.
    pub small: bool,
    /// Each column's place.
    pub slots: Rc<[Slot]>,
    /// As in the format.
    pub cuts: Rc<[Cut]>,
    /// Where in its life.
    pub life: Life,
    /// Blocks the published trees point to.
    pub live: u32,
    /// How far it is written.
    pub rows: Rows,
    /// A generation that lists it has taken effect.
    pub listed: bool,
    /// Records with entries not merged.
    pub unmerged: Vec<Unmerged>,
    /// Holds map nodes that are written and not published: no count speaks for them yet.
    pub fresh_nodes: bool,
    /// What keeps jobs off it.
    pub hold: Hold,
}

impl Seg {
    /// A spare.
    pub fn spare(id: SegmentId, scheme: Scheme, slots: Vec<Slot>) -> Seg {
        Seg {
            id,
            scheme,
            small: false,
            slots: slots.into(),
            cuts: Rc::new([]),
            life: Life::Spare,
            live: 0,
            rows: Rows::default(),
            listed: false,
            unmerged: Vec::new(),
            fresh_nodes: false,
            hold: Hold::default(),
        }
    }

    /// A segment as a generation in effect describes it, its columns in `slots`.
    pub fn from_line(line: &ondisk::Segment, slots: Vec<Slot>) -> Seg {
        let life = match line.state {
            SegmentState::Spare => Life::Spare,
            SegmentState::Open => Life::Open,
            SegmentState::Sealed => Life::Sealed,
        };
        Seg {
            life,
            cuts: line.cuts.as_slice().into(),
            live: line.live,
            rows: Rows { append: line.rows, acked: line.rows, durable: line.rows },
            listed: true,
            ..Seg::spare(line.id, line.scheme, slots)
        }
    }

    /// As a generation says it: open with the rows durable once the flush before the slot is done, and where replay begins;
    /// sealed with all its rows.
    pub fn line(&self) -> ondisk::Segment {
        let first_unmerged = self.unmerged.iter().map(|u| u.row).min();
        ondisk::Segment {
            id: self.id,
            scheme: self.scheme,
            state: self.state(),
            slots: self.slots.to_vec(),
            cuts: self.cuts.to_vec(),
            live: self.live,
            rows: self.rows.acked,
            replay_row: if self.is_sealed() { first_unmerged } else { Some(first_unmerged.unwrap_or(self.rows.acked)) },
        }
    }

    /// Its state in the format.
    #[inline]
    pub fn state(&self) -> SegmentState {
        match self.life {
            Life::Spare => SegmentState::Spare,
            Life::Open => SegmentState::Open,
            Life::Sealed | Life::Emptying(_) | Life::Emptied { .. } | Life::Vacated { .. } => SegmentState::Sealed,
        }
    }

    /// Never written.
    #[inline]
    pub fn is_spare(&self) -> bool {
        self.life == Life::Spare
    }

    /// A stream may append to it.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.life == Life::Open
    }

    /// Nothing is appended any more.
    #[inline]
    pub fn is_sealed(&self) -> bool {
        self.state() == SegmentState::Sealed
    }

    /// The cleaner has been through it, and no later count tells what is live.
    pub fn is_cleaned(&self) -> bool {
        self.cleaned_at().is_some()
    }

    /// Memtables that were frozen when the cleaner had been through it.
    pub fn cleaned_at(&self) -> Option<u64> {
        match self.life {
            Life::Emptied { frozen } | Life::Vacated { frozen } => Some(frozen),
            Life::Spare | Life::Open | Life::Sealed | Life::Emptying(_) => None,
        }
    }

    /// No block lies in it.
    pub fn is_vacated(&self) -> bool {
        matches!(self.life, Life::Vacated { .. })
    }

    /// How much of what was live has been moved out, in thousandths.
    pub fn emptied(&self) -> u16 {
        match self.life {
            Life::Spare | Life::Open | Life::Sealed => 0,
            Life::Emptying(share) => share,
            Life::Emptied { .. } | Life::Vacated { .. } => 1000,
        }
    }

    /// Whether one of its columns lies on `seat`.
    pub fn uses(&self, seat: MemberId) -> bool {
        self.slots.iter().flatten().any(|(m, _)| *m == seat)
    }

    /// Whether it holds anything that a request may ask for.
    pub fn matters(&self) -> bool {
        self.live > 0 || !self.unmerged.is_empty() || self.fresh_nodes || (self.is_open() && self.rows.acked > 0)
    }

    /// Whether it can be freed: no block that is asked for, nothing to replay, no job at work on it.
    pub fn is_empty(&self) -> bool {
        self.is_sealed()
            && (self.live == 0 || self.is_vacated())
            && self.unmerged.is_empty()
            && !self.fresh_nodes
            && !self.hold.is_being_restored
    }

    /// Whether what is live in it is not known yet: all its entries may have been overwritten since.
    pub fn is_uncounted(&self) -> bool {
        self.is_sealed() && self.live == 0 && !self.unmerged.is_empty()
    }

    /// The column and row of a block number.
    pub fn place(block: u32, zone_blocks: u32) -> (usize, u32) {
        ((block / zone_blocks) as usize, block % zone_blocks)
    }
}

/// The block number of `column` and `row`.
pub fn pba(segment: SegmentId, column: usize, row: u32, zone_blocks: u32) -> Pba {
    Pba { segment, block: column as u32 * zone_blocks + row }
}
