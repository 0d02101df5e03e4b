//! Which segment the cleaner empties next: the one with the best age x gain / cost.
//!
//! - Age: segments begun since it was. Ids say that, so it survives a restart; a segment of moved blocks is as young
//!   as the move.
//! - Gain: what its zones are worth less what its live blocks take.
//! - Cost: reading it and writing what is live.
//!
//! So a segment that was just written, and goes on losing blocks by itself, is left alone, and one that nobody writes to
//! is emptied for a small gain. Of one age it is the greedy choice. Short of room age does not count.

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::SegmentId;

use crate::ctx::Context;
use crate::room::{Room, SHARE};
use crate::space::segment::Seg;
use crate::space::segments::Segments;
use crate::sync::{Gate, Passed};

/// What is to be gained, at least.
const GAIN_MIN: i64 = SHARE / 32;

/// A segment to be emptied, in thousandths of a new segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Which.
    pub id: SegmentId,
    /// What emptying it gives.
    pub gain: i64,
    /// What its live blocks take elsewhere.
    pub takes: i64,
}

impl Victim {
    /// The larger the better.
    fn score(&self, next: u64, greedy: bool) -> f64 {
        let age = if greedy { 1 } else { next - self.id.0 };
        let cost = if greedy { SHARE } else { SHARE + self.takes };
        age as f64 * self.gain as f64 / cost as f64
    }
}

/// The best of `victims` that take no more than `room`; of equal ones the first.
fn best(victims: impl Iterator<Item = Victim>, next: u64, room: i64, greedy: bool) -> Option<Victim> {
    let worth = victims.filter(|v| v.gain > GAIN_MIN && v.takes <= room);
    let scored = worth.map(|v| (v.score(next, greedy), v));
    scored.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, v)| v)
}

/// What the cleaner has under way.
#[derive(Default)]
pub struct UnderWay {
    /// Segments that are being emptied, and what their blocks take elsewhere, in thousandths of a segment.
    emptying: RefCell<BTreeMap<SegmentId, i64>>,
    /// Segments that could not be emptied lately.
    hard: RefCell<BTreeSet<SegmentId>>,
    /// One step of moves at a time takes locks.
    moves: Gate,
}

impl UnderWay {
    /// Segments that are being emptied; not across an `.await`.
    pub fn emptying(&self) -> Ref<'_, BTreeMap<SegmentId, i64>> {
        self.emptying.borrow()
    }

    /// Whether none is.
    pub fn is_idle(&self) -> bool {
        self.emptying().is_empty()
    }

    /// What the blocks of all of them take elsewhere, in thousandths of a segment.
    pub fn takes(&self) -> i64 {
        self.emptying().values().sum()
    }

    /// A segment is being emptied from here on, and its blocks take so much elsewhere.
    pub fn begins(&self, id: SegmentId, takes: i64) {
        self.emptying.borrow_mut().insert(id, takes);
    }

    /// It is not any more.
    pub fn ends(&self, id: SegmentId) {
        self.emptying.borrow_mut().remove(&id);
    }

    /// Whether a segment could not be emptied lately.
    pub fn is_hard(&self, id: SegmentId) -> bool {
        self.hard.borrow().contains(&id)
    }

    /// A segment could not be emptied: it is not chosen again before the others had their turn.
    pub fn found_hard(&self, id: SegmentId) {
        self.hard.borrow_mut().insert(id);
    }

    /// All had their turn.
    pub fn tries_all_again(&self) {
        self.hard.borrow_mut().clear();
    }

    /// Waits for the turn of a step of moves to take its locks.
    pub async fn turn(&self) -> Passed {
        self.moves.pass().await
    }
}

/// Chooses what is emptied, and knows what is being emptied.
pub struct Victims {
    ctx: Rc<Context>,
    segments: Rc<Segments>,
    room: Rc<Room>,
    under_way: UnderWay,
}

impl Victims {
    /// Nothing is being emptied yet.
    pub fn new(ctx: &Rc<Context>, segments: &Rc<Segments>, room: &Rc<Room>) -> Rc<Victims> {
        Rc::new(Victims {
            ctx: ctx.clone(),
            segments: segments.clone(),
            room: room.clone(),
            under_way: UnderWay::default(),
        })
    }

    /// What is being emptied.
    pub fn under_way(&self) -> &UnderWay {
        &self.under_way
    }

    /// The next segment to be emptied; its blocks take no more than `room` thousandths of a segment.
    pub fn next_victim(&self, room: i64, greedy: bool) -> Option<Victim> {
        let table = self.segments.read();
        let cleanable = |s: &&Seg| self.is_cleanable(s) && !self.under_way.is_hard(s.id);
        let victims = self.victims(table.segments.values().filter(cleanable));
        best(victims.into_iter(), table.next, room, greedy)
    }

    /// One segment as a victim, if it can be emptied now, whatever is gained.
    pub fn victim(&self, id: SegmentId) -> Option<Victim> {
        let table = self.segments.read();
        let seg = table.segments.get(&id).filter(|s| self.is_cleanable(s));
        let room = self.room_to_clean();
        self.victims(seg.into_iter()).into_iter().find(|v| v.takes <= room)
    }

    fn is_cleanable(&self, s: &Seg) -> bool {
        s.is_sealed()
            && !s.is_cleaned()
            && s.unmerged.is_empty()
            && !s.hold.is_being_restored
            && !s.hold.header_lost
            && !s.fresh_nodes
            && !s.is_empty()
            && !self.under_way.emptying().contains_key(&s.id)
            && !self.room.in_use_by_log(s.id)
    }

    fn victims<'a>(&self, segments: impl Iterator<Item = &'a Seg>) -> Vec<Victim> {
        let worth = self.room.zones_worth();
        let blocks = self.room.segment_blocks_now() as i64;
        let victim = |s: &Seg| {
            // Nodes of the map's own segments go to such again.
            let own = self.room.is_maps_own(s);
            let (one, blocks) =
                if own { (worth.of(s), i64::from(self.ctx.shape.zone_blocks)) } else { (SHARE, blocks) };
            // A header for each record.
            let takes = i64::from(s.live) * one * 65 / 64 / blocks;
            Victim { id: s.id, gain: worth.of(s) - takes, takes }
        };
        segments.map(victim).collect()
    }
}

impl Victims {
    /// What victims may take now, in thousandths of a segment.
    pub fn room_to_clean(&self) -> i64 {
        let left = (self.room.room_left() as i64 - self.room.rungs().free_floor as i64) * SHARE;
        left - self.under_way.takes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn victim(id: u64, takes: i64) -> Victim {
        Victim { id: SegmentId(id), gain: SHARE - takes, takes }
    }

    fn chosen(victims: &[Victim], room: i64, greedy: bool) -> Option<u64> {
        best(victims.iter().copied(), 1000, room, greedy).map(|v| v.id.0)
    }

    #[test]
    fn the_old_ones_before_the_young_ones() {
        // A hot segment that is half empty already, and a cold one with a quarter to gain.
        let victims = [victim(100, 750), victim(990, 500)];
        assert_eq!(chosen(&victims, 1000, false), Some(100));
        assert_eq!(chosen(&victims, 1000, true), Some(990), "short of room the emptiest");
        assert_eq!(chosen(&[victim(500, 750), victim(501, 700)], 1000, false), Some(501), "of one age the emptiest");
    }

    #[test]
    fn what_gives_nothing_or_does_not_fit_is_left() {
        assert_eq!(chosen(&[victim(1, 990)], 1000, false), None);
        assert_eq!(chosen(&[victim(1, 600), victim(2, 700)], 650, true), Some(1));
        assert_eq!(chosen(&[victim(1, 600)], 500, true), None);
        assert_eq!(chosen(&[victim(1, 0)], 0, true), Some(1), "nothing live takes no room");
    }
}
