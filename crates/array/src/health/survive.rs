//! What the array can do without: whether segments survive a loss, and which lack a column.

use base::{BlockCount, MemberId, SegmentId};

use super::Health;
use crate::canary::{Canary, planted};
use crate::space::segment::Seg;

impl Health {
    /// Whether every segment that matters would survive without the members that are not in.
    pub fn survivable(&self) -> bool {
        self.survivable_without(&[])
    }

    /// The same without `members`, too.
    pub fn survivable_without(&self, members: &[MemberId]) -> bool {
        self.survive(Seg::matters, members)
    }

    /// The same of every segment that is listed, whatever it holds.
    pub fn all_survive_without(&self, members: &[MemberId]) -> bool {
        self.survive(|_| true, members)
    }

    fn survive(&self, which: impl Fn(&Seg) -> bool, without: &[MemberId]) -> bool {
        let seats = self.members.all();
        let gone = |m: MemberId| !seats[usize::from(m.0)].is_in() || without.contains(&m);
        // Of an array that holds nothing no segment is lost, but a generation has to lie somewhere.
        let some_stay = seats.iter().any(|s| !gone(s.id)) || planted(Canary::NoneLeftSurvives);
        let table = self.segments.read();
        let fine = |s: &Seg| s.scheme.survives(|c| s.slots[c].is_none_or(|(m, _)| gone(m)));
        some_stay && table.segments.values().filter(|s| which(s)).all(fine)
    }

    /// Sealed or open segments that hold something and lack a column.
    pub fn broken_segments(&self) -> impl Iterator<Item = SegmentId> {
        let table = self.segments.read();
        let broken = |s: &&Seg| s.matters() && s.slots.iter().any(|slot| self.members.is_lost(slot));
        table.segments.values().filter(broken).map(|s| s.id).collect::<Vec<_>>().into_iter()
    }

    /// Whether the generation in effect lists a segment that lacks a column and that nobody needs any more, or yet: a
    /// process that opens the array cannot know that.
    pub fn is_behind(&self) -> bool {
        let table = self.segments.read();
        table.listed().any(|s| !s.matters() && s.slots.iter().any(|slot| self.members.is_lost(slot)))
    }

    /// Segments that are to be rebuilt, and the bytes of their columns that are.
    pub fn rebuild_left(&self) -> (u64, u64) {
        let table = self.segments.read();
        // What was cleaned waits for its generation.
        let left = table.segments.values().filter(|s| s.matters() && !s.is_cleaned()).map(|s| s.id);
        let work = left.map(|id| self.homeless_bytes(id)).filter(|bytes| *bytes > 0);
        work.fold((0, 0), |(n, all), bytes| (n + 1, all + bytes))
    }

    /// Bytes of a segment's columns that have to be somewhere else.
    pub fn homeless_bytes(&self, id: SegmentId) -> u64 {
        let table = self.segments.read();
        let Some(seg) = table.segments.get(&id) else { return 0 };
        let columns = seg.slots.iter().filter(|slot| self.members.is_homeless(slot)).count() as u64;
        BlockCount(columns * u64::from(seg.rows.acked)).bytes()
    }

    /// Whether a segment's columns have no seats, and no drive is awaited that would bring one: then what is live in it is written
    /// elsewhere, in fewer columns.
    pub fn lacks_seats(&self, seg: &Seg) -> bool {
        let homeless = seg.slots.iter().filter(|slot| self.members.is_homeless(slot)).count();
        let seats = self.members.all().iter().filter(|s| s.takes_columns() && !seg.uses(s.id)).count();
        homeless > seats && !self.members.lacks_members() && !planted(Canary::TooFewSeats)
    }

    /// Further columns of a segment that may be lost, whichever they are; `None` if some of its data is lost already.
    pub fn columns_to_spare(&self, seg: &Seg) -> Option<usize> {
        self.to_spare_without(seg, &[])
    }

    pub fn to_spare_without(&self, seg: &Seg, members: &[MemberId]) -> Option<usize> {
        let gone = |m: MemberId| members.contains(&m) || self.members.seat(m).is_none_or(|s| !s.is_in());
        seg.scheme.to_spare(|c| seg.slots[c].is_none_or(|(m, _)| gone(m)))
    }
}
