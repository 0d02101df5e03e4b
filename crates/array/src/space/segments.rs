//! The owner of all segments: everything that changes one is a verb here.
//!
//! Any room may call a verb; none may change a segment otherwise.
//!
//! Invariant: `live` is loaded with a segment, and changes when trees are published, in no other way: it is exact, the blocks
//! that the published trees point to.

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{MemberId, SegmentId};
use ondisk::{Cut, ReplayFrom, Scheme, Slot};

use super::segment::{Life, Rows, Seg, Unmerged};
use crate::canary::{Canary, planted};

/// All segments by id, to be looked at.
#[derive(Debug, Default)]
pub struct Table {
    /// By id.
    pub segments: BTreeMap<SegmentId, Seg>,
    /// The next id.
    pub next: u64,
    /// Spares that were dropped, until a generation takes effect that does not list them.
    dropped: Vec<Seg>,
}

impl Table {
    /// All that the generation in effect lists: who opens the array next may need each.
    pub fn listed(&self) -> impl Iterator<Item = &Seg> {
        self.segments.values().chain(&self.dropped).filter(|s| s.listed)
    }

    /// A segment that must exist.
    pub fn get(&self, id: SegmentId) -> &Seg {
        self.segments.get(&id).expect("a segment in use is in the table")
    }

    fn get_mut(&mut self, id: SegmentId) -> &mut Seg {
        self.segments.get_mut(&id).expect("a segment in use is in the table")
    }
}

/// What a record that is acknowledged brings to its segment.
pub struct Acknowledged {
    /// Its first row.
    pub row: u32,
    /// Its rows.
    pub rows: u32,
    /// It holds map nodes.
    pub nodes: bool,
    /// What replay needs of it until its entries are in the trees.
    pub unmerged: Option<Unmerged>,
}

/// What replay found of a segment.
pub struct Remaining {
    /// Rows that count.
    pub end: u32,
    /// All of them are durable, and whole.
    pub mended: bool,
    /// Records that are not in the trees.
    pub unmerged: Vec<Unmerged>,
    /// It is written to its last row.
    pub full: bool,
    /// What makes void all that lies beyond; `None` where there is no place for another cut: then the segment is sealed.
    pub cuts: Option<Vec<Cut>>,
}

/// All segments of an array.
#[derive(Default)]
pub struct Segments(RefCell<Table>);

impl Segments {
    /// All of them, to be looked at; not across an `.await`.
    #[inline]
    pub fn read(&self) -> Ref<'_, Table> {
        self.0.borrow()
    }

    fn change<T>(&self, id: SegmentId, change: impl FnOnce(&mut Seg) -> T) -> Option<T> {
        self.0.borrow_mut().segments.get_mut(&id).map(change)
    }

    /// Ids from `next` on are given out; never fewer than before.
    pub fn begin_at(&self, next: u64) {
        let mut table = self.0.borrow_mut();
        table.next = table.next.max(next);
    }

    /// Takes up a segment that a generation lists.
    pub fn take_up(&self, seg: Seg) {
        self.0.borrow_mut().segments.insert(seg.id, seg);
    }

    /// Adds a spare, for short records if it is `small`; it can be written once a generation lists it.
    pub fn add_spare(&self, scheme: Scheme, slots: Vec<Slot>, small: bool) -> SegmentId {
        let mut table = self.0.borrow_mut();
        let id = SegmentId(table.next);
        table.next += 1;
        table.segments.insert(id, Seg { small, ..Seg::spare(id, scheme, slots) });
        id
    }

    /// Drops the spares that `drops` says; the places that they had.
    pub fn drop_spares(&self, drops: impl Fn(&Seg) -> bool) -> Vec<(MemberId, u32)> {
        let mut table = self.0.borrow_mut();
        let dropped: Vec<Seg> =
            table.segments.extract_if(.., |_, seg| seg.is_spare() && drops(seg)).map(|(_, seg)| seg).collect();
        let places = dropped.iter().flat_map(|seg| seg.slots.iter().flatten().copied()).collect();
        table.dropped.extend(dropped);
        places
    }

    /// A generation that lists these has taken effect.
    pub fn mark_listed(&self, ids: &BTreeSet<SegmentId>) {
        let mut table = self.0.borrow_mut();
        table.dropped.retain(|seg| ids.contains(&seg.id));
        let Table { segments, dropped, .. } = &mut *table;
        let listed = |seg: &&mut Seg| ids.contains(&seg.id);
        segments.values_mut().chain(dropped).filter(listed).for_each(|seg| seg.listed = true);
    }

    /// Opens the first spare that `fits`.
    pub fn open_spare(&self, fits: impl Fn(&Seg) -> bool) -> Option<SegmentId> {
        let mut table = self.0.borrow_mut();
        let spare = table.segments.values_mut().find(|s| s.is_spare() && fits(s))?;
        spare.life = Life::Open;
        Some(spare.id)
    }

    /// Gives out `rows` rows from `row` on; the row up to which all are durable.
    pub fn give_out(&self, id: SegmentId, row: u32, rows: u32) -> u32 {
        let mut table = self.0.borrow_mut();
        let seg = table.get_mut(id);
        assert!(seg.rows.append == row && seg.listed, "rows are given out once, in listed segments");
        seg.rows.append += rows;
        seg.rows.durable
    }

    /// A record is acknowledged; rows that are not durable yet. With its last row the segment is sealed.
    pub fn acknowledge(&self, id: SegmentId, record: Acknowledged, durable: bool, zone_blocks: u32) -> u32 {
        let mut table = self.0.borrow_mut();
        let seg = table.get_mut(id);
        let in_order = seg.rows.acked == record.row || planted(Canary::AckOutOfOrder);
        assert!(in_order, "records are acknowledged in row order");
        seg.rows.acked += record.rows;
        if durable {
            seg.rows.durable = seg.rows.acked;
        }
        if seg.rows.acked == zone_blocks {
            seg.seal();
        }
        seg.fresh_nodes |= record.nodes;
        seg.unmerged.extend(record.unmerged);
        seg.rows.acked - seg.rows.durable
    }

    /// Rows that are acknowledged and not known to be durable, by segment.
    pub fn not_durable(&self) -> Vec<(SegmentId, u32)> {
        let waits = |s: &&Seg| !s.is_spare() && s.rows.durable < s.rows.acked;
        self.read().segments.values().filter(waits).map(|s| (s.id, s.rows.acked)).collect()
    }

    /// These rows are durable now.
    pub fn mark_durable(&self, rows: Vec<(SegmentId, u32)>) {
        for (id, upto) in rows {
            self.change(id, |seg| seg.rows.durable = seg.rows.durable.max(upto));
        }
    }

    /// Nothing is appended to it any more; rows that were given out and not acknowledged do not count. False: it is gone.
    pub fn seal(&self, id: SegmentId) -> bool {
        let sealed = self.change(id, |seg| {
            seg.rows.append = seg.rows.acked;
            seg.seal();
        });
        sealed.is_some()
    }

    /// New trees are published, with so many more or fewer blocks live; `frozen` memtables were frozen until now.
    pub fn count_live(&self, live: BTreeMap<SegmentId, i64>, frozen: u64) {
        let mut table = self.0.borrow_mut();
        table.segments.values_mut().for_each(|s| s.fresh_nodes = false);
        for (id, by) in live {
            // A vacated segment may be gone before the trees know that nothing lies there.
            let Some(seg) = table.segments.get_mut(&id) else { continue };
            seg.live = u32::try_from(i64::from(seg.live) + by).expect("no block is freed twice");
        }
        // What was emptied before this table was frozen is counted now; what is still live there may be moved again.
        for seg in table.segments.values_mut() {
            if matches!(seg.life, Life::Emptied { frozen: then } if then < frozen) {
                seg.life = Life::Sealed;
            }
        }
    }

    /// Everything before `from` is in the trees.
    pub fn forget_merged(&self, from: ReplayFrom) {
        for seg in self.0.borrow_mut().segments.values_mut() {
            seg.unmerged.retain(|u| u.last >= (from.epoch, from.seq));
        }
    }

    /// The cleaner has moved out so much of what was live, in thousandths.
    pub fn mark_emptied(&self, id: SegmentId, share: u16) {
        self.change(id, |seg| match seg.life {
            Life::Sealed | Life::Emptying(_) => seg.life = Life::Emptying(share),
            Life::Spare | Life::Open | Life::Emptied { .. } | Life::Vacated { .. } => {}
        });
    }

    /// The cleaner has been through it, when `frozen` memtables were frozen; no block lies there any more if it is `vacated`.
    pub fn mark_cleaned(&self, id: SegmentId, frozen: u64, vacated: bool) {
        let life = if vacated { Life::Vacated { frozen } } else { Life::Emptied { frozen } };
        self.change(id, |seg| seg.life = life);
    }

    /// The cleaner could not go through with it.
    pub fn mark_not_cleaned(&self, id: SegmentId) {
        self.change(id, |seg| match seg.life {
            Life::Emptying(_) => seg.life = Life::Sealed,
            Life::Spare | Life::Open | Life::Sealed | Life::Emptied { .. } | Life::Vacated { .. } => {}
        });
    }

    /// A record header in it is lost: it is never cleaned, and freed when nothing is live in it any more.
    pub fn mark_header_lost(&self, id: SegmentId) {
        self.change(id, |seg| seg.hold.header_lost = true);
    }

    /// Its columns stay where they are from now on, and it is not freed; its acknowledged rows.
    pub fn hold(&self, id: SegmentId) -> u32 {
        let mut table = self.0.borrow_mut();
        let seg = table.get_mut(id);
        seg.hold.is_being_restored = true;
        seg.rows.acked
    }

    /// The end of [`Segments::hold`].
    pub fn let_go(&self, id: SegmentId) {
        self.change(id, |seg| seg.hold.is_being_restored = false);
    }

    /// A column lies somewhere else now; where it lay. Readers have the columns as they were.
    pub fn move_column(&self, id: SegmentId, column: usize, to: (MemberId, u32)) -> Slot {
        let mut table = self.0.borrow_mut();
        Rc::make_mut(&mut table.get_mut(id).slots)[column].replace(to)
    }

    /// Gives up the columns on `member` that `keeps` does not keep: the zones, and how many are kept.
    pub fn give_up_columns(&self, member: MemberId, keeps: impl Fn(&Seg, usize, u32) -> bool) -> (Vec<u32>, Vec<u32>) {
        let (mut kept, mut given_up) = (Vec::new(), Vec::new());
        for seg in self.0.borrow_mut().segments.values_mut() {
            for column in 0..seg.slots.len() {
                let Some((_, zone)) = seg.slots[column].filter(|(m, _)| *m == member) else { continue };
                if keeps(seg, column, zone) {
                    kept.push(zone);
                } else {
                    Rc::make_mut(&mut seg.slots)[column] = None;
                    given_up.push(zone);
                }
            }
        }
        (kept, given_up)
    }

    /// Takes those of `ids` out that are empty; the places of their columns.
    pub fn remove_empty(&self, ids: &[SegmentId]) -> Vec<(MemberId, u32)> {
        let mut table = self.0.borrow_mut();
        let empty: BTreeSet<SegmentId> =
            ids.iter().copied().filter(|id| table.segments.get(id).is_some_and(Seg::is_empty)).collect();
        let taken: Vec<Seg> =
            ids.iter().filter(|id| empty.contains(id)).filter_map(|id| table.segments.remove(id)).collect();
        taken.iter().flat_map(|seg| seg.slots.iter().flatten().copied()).collect()
    }

    /// Leaves a segment as replay found it.
    pub fn go_on(&self, id: SegmentId, found: Remaining) {
        self.change(id, |seg| {
            let durable = if found.mended { found.end } else { seg.rows.durable.min(found.end) };
            seg.rows = Rows { append: found.end, acked: found.end, durable };
            seg.unmerged = found.unmerged;
            match seg.life {
                Life::Sealed | Life::Emptying(_) | Life::Emptied { .. } | Life::Vacated { .. } => {}
                Life::Spare | Life::Open if found.end == 0 => seg.life = Life::Spare,
                Life::Spare | Life::Open => {
                    seg.life = if found.full || found.cuts.is_none() { Life::Sealed } else { Life::Open };
                    if let Some(cuts) = found.cuts {
                        seg.cuts = cuts.into();
                    }
                }
            }
        });
    }

    /// A spare as one that has lost its first column, for tests; as one that is sealed, if so.
    #[cfg(test)]
    pub fn break_for_test(&self, id: SegmentId, sealed: bool) {
        self.change(id, |seg| {
            if sealed {
                seg.life = Life::Sealed;
            }
            Rc::make_mut(&mut seg.slots)[0] = None;
        });
    }
}

impl Seg {
    fn seal(&mut self) {
        if matches!(self.life, Life::Spare | Life::Open) {
            self.life = Life::Sealed;
        }
    }
}
