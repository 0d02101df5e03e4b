//! What each sector of a volume may hold, by what was sent and what was answered.
//!
//! Every change has two stamps of one clock: when it was sent, and when its answer arrived. A sector may hold what a
//! change left unless another change was sent after that one's answer, and was itself answered:
//!
//! ```text
//!   A |-----|                      A is overwritten for sure: C was sent after A's answer, and answered
//!        B |---------|             B may win over C: they overlap
//!              C |------|
//!                   D |-----...    D was in flight when the server died: landed or not, sector by sector
//! ```
//!
//! The stamps are taken outside of the server, so the true interval lies within: whatever the model forbids is a loss.
//! An answer with an error counts as none.
//!
//! Invariant: after a readback a sector's value is what was found; what was in flight before cannot change it any more.
//!
//! Does not: model a power cut (a flush promises nothing more than an answer does when only the process dies).

pub mod content;
mod spans;

use std::ops::Range;

pub use content::{SECTOR, Salt};
pub use spans::{Odd, Oddities};

/// What a sector holds: 0 for zeroes, else the tag of the write.
pub type Value = u32;

/// The value of zeroes.
pub const ZEROES: Value = 0;

/// Sectors of a row of the index of changes: 1 MiB.
const ROW_SECTORS: u64 = 2048;

/// What a change leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sectors that name the change.
    Write,
    /// Zeroes.
    Zeroes,
    /// Zeroes, by deallocation.
    Deallocate,
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// What it leaves.
    pub kind: Kind,
    /// Durable when answered.
    pub fua: bool,
    /// Its sectors.
    pub sectors: Range<u64>,
    /// The cycle it was sent in.
    pub cycle: u32,
    /// When it was sent.
    pub sent: u64,
    /// When it was answered, without an error.
    pub answered: Option<u64>,
}

/// A volume's sectors and the changes since the last readback.
pub struct Model {
    salt: Salt,
    clock: u64,
    cycle: u32,
    settled: Vec<Value>,
    /// All changes ever: a tag is an index into this, plus 1.
    changes: Vec<Change>,
    /// Tags of the changes since the last readback, by row.
    rows: Vec<Vec<u32>>,
}

impl Model {
    /// A volume that was never written: zeroes all over.
    #[must_use]
    pub fn new(salt: Salt, bytes: u64) -> Model {
        let sectors = bytes / SECTOR as u64;
        Model {
            salt,
            clock: 0,
            cycle: 0,
            settled: vec![ZEROES; sectors as usize],
            changes: vec![],
            rows: vec![vec![]; sectors.div_ceil(ROW_SECTORS) as usize],
        }
    }

    /// Its sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.settled.len() as u64
    }

    /// Tells this volume's sectors from others'.
    #[must_use]
    pub fn salt(&self) -> Salt {
        self.salt
    }

    /// What follows belongs to this cycle.
    pub fn set_cycle(&mut self, cycle: u32) {
        self.cycle = cycle;
    }

    /// A stamp: everything answered so far is below it.
    pub fn stamp(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A change is being sent; its tag.
    pub fn send(&mut self, kind: Kind, fua: bool, sectors: Range<u64>) -> u32 {
        let sent = self.stamp();
        let rows = sectors.start / ROW_SECTORS..sectors.end.div_ceil(ROW_SECTORS);
        self.changes.push(Change { kind, fua, sectors, cycle: self.cycle, sent, answered: None });
        let tag = self.changes.len() as u32;
        for row in rows {
            self.rows[row as usize].push(tag);
        }
        tag
    }

    /// A change was answered without an error.
    pub fn answer(&mut self, tag: u32) {
        let stamp = self.stamp();
        self.changes[tag as usize - 1].answered = Some(stamp);
    }

    /// The change of a tag.
    #[must_use]
    pub fn change(&self, tag: u32) -> Option<&Change> {
        self.changes.get((tag as usize).checked_sub(1)?)
    }

    /// Takes what a whole readback found as what is there.
    pub fn settle(&mut self, found: Vec<Value>) {
        assert_eq!(found.len(), self.settled.len(), "a readback covers the volume");
        self.settled = found;
        self.rows.iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = 7;

    fn allowed(model: &Model, sector: u64) -> Vec<Value> {
        let mut bytes = vec![0; SECTOR];
        (0..=model.changes.len() as u32)
            .filter(|&value| {
                content::fill(&mut bytes, SALT, sector, value);
                model.check(sector, &bytes, u64::MAX, |_, _| {}).is_none()
            })
            .collect()
    }

    #[test]
    fn what_a_sector_may_hold() {
        let mut m = Model::new(SALT, 1 << 20);
        assert_eq!(allowed(&m, 3), [0]);
        let a = m.send(Kind::Write, false, 0..8);
        assert_eq!(allowed(&m, 3), [0, a], "in flight: landed or not");
        assert_eq!(allowed(&m, 8), [0], "outside of it");
        let b = m.send(Kind::Write, false, 2..4);
        m.answer(a);
        assert_eq!(allowed(&m, 3), [a, b], "the old value is gone");
        let c = m.send(Kind::Write, false, 0..16);
        m.answer(c);
        assert_eq!(allowed(&m, 3), [b, c], "a was answered before c was sent");
        m.answer(b);
        assert_eq!(allowed(&m, 3), [b, c], "they overlapped");
        let z = m.send(Kind::Deallocate, false, 3..4);
        m.answer(z);
        assert_eq!(allowed(&m, 3), [0]);
        assert_eq!(allowed(&m, 2), [b, c]);
    }

    #[test]
    fn a_read_sees_what_was_answered_before_it() {
        let mut m = Model::new(SALT, 1 << 20);
        let a = m.send(Kind::Write, false, 0..1);
        m.answer(a);
        let read = m.stamp();
        let b = m.send(Kind::Write, false, 0..1);
        m.answer(b);
        let may = |value, before| {
            let mut bytes = vec![0; SECTOR];
            content::fill(&mut bytes, SALT, 0, value);
            m.check(0, &bytes, before, |_, _| {}).is_none()
        };
        assert!(may(a, read) && may(b, read) && !may(0, read));
        assert!(!may(a, u64::MAX) && may(b, u64::MAX));
    }

    #[test]
    fn a_readback_settles() {
        let mut m = Model::new(SALT, 1 << 20);
        let a = m.send(Kind::Write, false, 0..2);
        let mut found = vec![ZEROES; 2048];
        found[1] = a;
        m.settle(found);
        assert_eq!(allowed(&m, 0), [0]);
        assert_eq!(allowed(&m, 1), [a]);
    }
}
