//! Small segments: two data columns, for short records that nothing else would fill up.
//!
//! A lone write of one block takes a whole row: a header, the block, pads and the redundancy. Over few columns that is less.
//! They are a help, not a need: where room is short there are none, and their zones go back.

use std::cell::Cell;

use base::SegmentId;
use ondisk::Scheme;

use super::{Room, Rung, SHARE};
use crate::canary::{Canary, planted};
use crate::ctx::Wish;
use crate::space::segment::Seg;
use crate::streams::StreamId;

/// Data columns of a small segment.
const K: usize = 2;

/// Smaller arrays have none: the zones they hold would be too large a part.
const SEGMENTS_MIN: u64 = 64;

/// Rows that are kept ready, about: some milliseconds of lone writes.
const SPARE_ROWS: u32 = 1024;

/// Small segments of an array, as last measured.
#[derive(Default)]
pub(super) struct Small {
    /// Payload blocks of a record up to which a small segment takes fewer blocks; 0: there are no small segments. `None`: not
    /// measured yet.
    pays_up_to: Cell<Option<usize>>,
    /// Hosts wait for room: what small segments hold is given back.
    is_too_dear: Cell<bool>,
}

/// Blocks that a record of `n` payload blocks takes.
fn blocks_of(n: usize, scheme: Scheme) -> usize {
    (n + 1).div_ceil(scheme.k()) * scheme.width()
}

/// Payload blocks up to which `small` takes no more blocks than `wide`, whose drives are more.
fn pays_up_to(small: Scheme, wide: Scheme) -> usize {
    (1..wide.k()).take_while(|n| blocks_of(*n, small) <= blocks_of(*n, wide)).last().unwrap_or(0)
}

impl Room {
    /// The scheme of small segments, where there are any.
    pub fn small_scheme(&self) -> Option<Scheme> {
        let full = self.ctx.shape.scheme;
        let short = self.short();
        let wide = self.units(false, short).k;
        let has_some = matches!(full, Scheme::Parity { m: 1.., .. })
            && !short
            && wide > K + 1
            && self.segments_possible() >= SEGMENTS_MIN;
        let m = full.tolerates() - usize::from(planted(Canary::SmallLessRedundant) && full.tolerates() > 0);
        has_some.then_some(Scheme::Parity { k: K as u8, m: m as u8 })
    }

    /// Looks anew where they pay.
    pub(super) fn measure_small(&self) {
        let ladder = self.rungs();
        let scheme = self.small_scheme();
        let wide = self.ctx.shape.scheme.with_k(self.units(false, self.short()).k);
        self.measured.small.pays_up_to.set(Some(scheme.map_or(0, |small| pays_up_to(small, wide))));
        let stopped = self.above(Rung::Write) == 0 || self.room_left() <= ladder.stop_floor;
        let has_room = self.room_now() > ladder.rebuild_above as i64 * SHARE;
        let is_too_dear = stopped || (self.measured.small.is_too_dear.get() && !has_room);
        self.measured.small.is_too_dear.set(is_too_dear);
        if self.holds_small_in_vain() {
            self.ctx.wishes.ask(Wish::Spares);
        }
    }

    /// Whether a record of so many payload blocks is cheaper in a small segment.
    pub fn small_pays(&self, payload: usize) -> bool {
        let upto = self.measured.small.pays_up_to.get().unwrap_or(0);
        (1..=upto).contains(&payload) && !self.measured.small.is_too_dear.get()
    }

    /// Small spares that are kept ready.
    pub(super) fn small_wanted(&self) -> usize {
        let none = self.measured.small.is_too_dear.get() || self.measured.small.pays_up_to.get().is_none();
        if none { 0 } else { (SPARE_ROWS / self.ctx.shape.zone_blocks).clamp(1, 4) as usize }
    }

    /// Whether a generation would give back zones that small segments hold.
    pub(super) fn holds_small_in_vain(&self) -> bool {
        if !self.measured.small.is_too_dear.get() {
            return false;
        }
        let spare = |s: &Seg| s.is_spare() && s.small;
        self.small_to_be_left().is_some() || self.segments.read().segments.values().any(spare)
    }

    /// The open small segment, if it takes no more records: it is full, room is short, or there are no small ones any more.
    fn small_to_be_left(&self) -> Option<SegmentId> {
        let id = self.streams.stream(StreamId::Host).small()?;
        let table = self.segments.read();
        let over = self.measured.small.is_too_dear.get()
            || self.measured.small.pays_up_to.get() == Some(0)
            || !table.get(id).is_open();
        (over && !self.streams.unacked_in(id)).then_some(id)
    }

    /// Leaves the open small segment if it takes no more records: then it can be cleaned.
    pub(super) fn leave_small(&self) {
        if let Some(id) = self.small_to_be_left() {
            self.streams.leave(id);
            self.segments.seal(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_small_segments_pay() {
        for (k, m, upto) in [(4, 1, 1), (5, 1, 3), (7, 1, 3), (8, 1, 5), (4, 2, 1), (6, 2, 3), (10, 2, 5)] {
            let (small, wide) = (Scheme::Parity { k: 2, m }, Scheme::Parity { k, m });
            assert_eq!(pays_up_to(small, wide), upto, "{k}+{m}");
        }
    }
}
