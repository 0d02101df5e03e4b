//! One line of the segment table: which zones, how they are protected, and what of them counts.

use base::{Epoch, MemberId, SegmentId};

use crate::FormatError;
use crate::bytes::{Reader, Writer};
use crate::scheme::Scheme;

/// Cuts a segment carries, at most; the next one seals it.
pub const CUTS_MAX: usize = 4;

/// Stored bytes of a segment besides its slots.
pub const SEGMENT_BYTES: usize = 72;

/// Stored bytes of a slot.
pub const SLOT_BYTES: usize = 8;

/// Where a segment is in its life. (A segment that is in no table is free.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentState {
    /// Has its zones, nothing written.
    Spare,
    /// Being appended to.
    Open,
    /// Takes no more records.
    Sealed,
}

/// From this row on, only records of this epoch or a later one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// First row that the cut speaks of.
    pub row: u32,
    /// The oldest epoch that counts there.
    pub epoch: Epoch,
}

/// One column's place; `None` for a column that was never written (fewer members than columns).
pub type Slot = Option<(MemberId, u32)>;

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its name for ever.
    pub id: SegmentId,
    /// Its redundancy.
    pub scheme: Scheme,
    /// Where in its life.
    pub state: SegmentState,
    /// Each column's member and zone: data columns first.
    pub slots: Vec<Slot>,
    /// At most [`CUTS_MAX`], rows ascending.
    pub cuts: Vec<Cut>,
    /// Blocks that the map of this generation points to.
    pub live: u32,
    /// Open: every row below is acknowledged and durable. Sealed: the rows it has; nothing beyond counts.
    pub rows: u32,
    /// The first row that recovery must read; `None` when all its entries are merged.
    pub replay_row: Option<u32>,
}

impl Segment {
    /// Appends the stored form.
    pub fn encode(&self, w: &mut Writer) {
        assert!(self.cuts.len() <= CUTS_MAX && self.slots.len() == self.scheme.width());
        let start = w.len();
        w.u64(self.id.0);
        w.raw(&self.scheme.to_bytes());
        w.u8(self.state as u8 + 1);
        w.u32(self.live);
        w.u32(self.rows);
        w.u32(self.replay_row.map_or(u32::MAX, |r| r));
        w.u8(self.cuts.len() as u8);
        w.zeros(7);
        for cut in &self.cuts {
            w.u32(cut.row);
            w.u32(cut.epoch.0);
        }
        w.zeros(8 * (CUTS_MAX - self.cuts.len()));
        w.zeros(8);
        assert_eq!(w.len() - start, SEGMENT_BYTES);
        for slot in &self.slots {
            let (member, zone) = slot.map_or((u16::MAX, u32::MAX), |(m, z)| (m.0, z));
            w.u16(member);
            w.u16(0);
            w.u32(zone);
        }
    }

    /// Takes one segment.
    ///
    /// # Errors
    /// On impossible values.
    pub fn decode(r: &mut Reader<'_>) -> Result<Segment, FormatError> {
        let id = SegmentId(r.u64()?);
        let scheme = Scheme::from_bytes(r.array()?).ok_or(r.field("scheme"))?;
        let state = match r.u8()? {
            1 => SegmentState::Spare,
            2 => SegmentState::Open,
            3 => SegmentState::Sealed,
            _ => return Err(r.field("segment state")),
        };
        let (live, rows) = (r.u32()?, r.u32()?);
        let replay_row = Some(r.u32()?).filter(|&row| row != u32::MAX);
        let cut_count = usize::from(r.u8()?);
        r.zeros(7, "segment reserved")?;
        if cut_count > CUTS_MAX || id.0 >= crate::map::SEGMENT_ID_LIMIT {
            return Err(r.field("segment"));
        }
        let mut cuts = Vec::with_capacity(cut_count);
        for _ in 0..cut_count {
            cuts.push(Cut { row: r.u32()?, epoch: Epoch(r.u32()?) });
        }
        if !cuts.is_sorted_by(|a, b| a.row <= b.row && a.epoch < b.epoch) {
            return Err(r.field("cuts"));
        }
        r.zeros(8 * (CUTS_MAX - cut_count) + 8, "segment reserved")?;
        let mut slots = Vec::with_capacity(scheme.width());
        for _ in 0..scheme.width() {
            let member = r.u16()?;
            r.zeros(2, "slot reserved")?;
            let zone = r.u32()?;
            slots.push((member != u16::MAX).then_some((MemberId(member), zone)));
        }
        Ok(Segment { id, scheme, state, slots, cuts, live, rows, replay_row })
    }

    /// The oldest epoch a record at `row` may have and count.
    #[must_use]
    pub fn oldest_epoch_at(&self, row: u32) -> Epoch {
        oldest_epoch(&self.cuts, row)
    }
}

/// The oldest epoch a record at `row` may have and count, in a segment with these cuts.
#[must_use]
pub fn oldest_epoch(cuts: &[Cut], row: u32) -> Epoch {
    cuts.iter().rev().find(|c| c.row <= row).map_or(Epoch(0), |c| c.epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_epochs() {
        let s = Segment {
            id: SegmentId(5),
            scheme: Scheme::Parity { k: 2, m: 1 },
            state: SegmentState::Open,
            slots: vec![Some((MemberId(0), 4)), None, Some((MemberId(2), 9))],
            cuts: vec![Cut { row: 4, epoch: Epoch(2) }, Cut { row: 8, epoch: Epoch(5) }],
            live: 3,
            rows: 10,
            replay_row: Some(2),
        };
        let mut w = Writer::new();
        s.encode(&mut w);
        assert_eq!(w.len(), SEGMENT_BYTES + 3 * SLOT_BYTES);
        let image = w.finish();
        assert_eq!(Segment::decode(&mut Reader::new("s", &image)).unwrap(), s);
        let epochs: Vec<u32> = [0, 4, 7, 8, 99].iter().map(|&row| s.oldest_epoch_at(row).0).collect();
        assert_eq!(epochs, [0, 2, 2, 5, 5]);
    }
}
