//! Where the parts of an array lie on its drives, told from the drives alone: what rot can be aimed at.

use std::collections::BTreeMap;

use base::{BlockCount, Epoch, Lba, MemberId, MemberLba, SegmentId, Seq, VolumeId};
use ondisk::{Entry, Generation, Label, MemberState, RecordHeader, SegmentState, Slot};
use rt::model::Disk;

use crate::kind::Kind;

/// A block of a drive.
pub type Spot = (usize, MemberLba);

/// A record.
#[derive(Clone)]
pub struct RecordSpots {
    /// Its segment.
    pub segment: SegmentId,
    /// The generation it was written under.
    pub generation: base::Generation,
    /// Its first row.
    pub row: u32,
    /// Rows.
    pub rows: u32,
    /// The blocks of its first row, by column.
    pub columns: Vec<Spot>,
}

impl RecordSpots {
    /// Whether a block is one of its own.
    pub fn holds(&self, (disk, at): Spot) -> bool {
        self.columns.iter().any(|(d, from)| *d == disk && (from.0..from.0 + u64::from(self.rows)).contains(&at.0))
    }
}

/// Blocks by what rots there.
#[derive(Default)]
pub struct Census {
    kinds: BTreeMap<Kind, Vec<Spot>>,
    /// Records.
    pub records: Vec<RecordSpots>,
    /// Where the newest generation is.
    pub newest: Vec<Spot>,
}

/// The generations on `disks`, the newest first.
pub fn generations(disks: &[Disk]) -> Vec<Generation> {
    let labels = disks.iter().filter_map(|d| Some((d, label(d)?)));
    let read = |(d, l): (&Disk, Label)| [0, 1].map(|slot| in_slot(d, &l, slot));
    let mut found: Vec<Generation> = labels.flat_map(read).flatten().collect();
    found.sort_by_key(|g| std::cmp::Reverse((g.number, g.epoch)));
    found.dedup_by_key(|g| g.number);
    found
}

/// The generation in a slot.
pub fn in_slot(disk: &Disk, label: &Label, slot: usize) -> Option<Generation> {
    let at = label.layout.slot(slot);
    let bytes = Generation::total_bytes(&disk.image_read(at, BlockCount(1))).ok()?;
    let blocks = BlockCount::ceil_from_bytes(bytes as u64).min(BlockCount(u64::from(label.layout.slot_blocks)));
    Generation::decode(&disk.image_read(at, blocks)).ok()
}

/// The newest of them.
pub fn newest_generation(disks: &[Disk]) -> Option<Generation> {
    generations(disks).into_iter().next()
}

/// Whether the newest generation needs no segment that lacks a column.
pub fn is_whole(disks: &[Disk]) -> bool {
    let Some(g) = newest_generation(disks) else { return false };
    let is_in = |m: MemberId| g.members.get(usize::from(m.0)).is_some_and(|m| m.state == MemberState::In);
    let needed = |s: &&ondisk::Segment| s.state == SegmentState::Open || s.live > 0 || s.replay_row.is_some();
    g.segments.iter().filter(needed).all(|s| s.slots.iter().all(|slot| slot.is_some_and(|(m, _)| is_in(m))))
}

/// Segments that the newest generation lists as spares and that nothing was written to.
pub fn spares_ready(disks: &[Disk]) -> usize {
    let Some(g) = newest_generation(disks) else { return 0 };
    let labels: Vec<Option<Label>> = disks.iter().map(label).collect();
    let begun = |s: &ondisk::Segment| {
        let Some(Some((disk, at))) = s.slots.first().map(|slot| spot(&labels, &g, *slot, 0)) else { return false };
        let header = RecordHeader::decode(&disks[disk].image_read(at, BlockCount(1)));
        header.is_ok_and(|h| h.segment == s.id)
    };
    g.segments.iter().filter(|s| s.state == SegmentState::Spare && !begun(s)).count()
}

/// Where a row of a zone lies.
fn spot(labels: &[Option<Label>], g: &Generation, slot: Slot, row: u32) -> Option<Spot> {
    let (member, zone) = slot?;
    let uuid = g.members.get(usize::from(member.0))?.uuid;
    let disk = labels.iter().position(|l| l.as_ref().is_some_and(|l| l.member == uuid))?;
    Some((disk, labels[disk].as_ref()?.layout.zone_row(zone, row)))
}

impl Census {
    /// Blocks of a kind.
    pub fn of(&self, kind: Kind) -> &[Spot] {
        self.kinds.get(&kind).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, kind: Kind, spot: Spot) {
        self.kinds.entry(kind).or_default().push(spot);
    }

    /// Looks through `disks`.
    pub fn take(disks: &[Disk]) -> Census {
        let mut census = Census::default();
        let labels: Vec<Option<Label>> = disks.iter().map(label).collect();
        let newest = newest_generation(disks);
        for (i, label) in labels.iter().enumerate() {
            let Some(label) = label else { continue };
            for at in label.layout.labels() {
                census.add(Kind::RotLabel, (i, at));
            }
            for slot in 0..2 {
                let at = label.layout.slot(slot);
                if let Some(g) = in_slot(&disks[i], label, slot) {
                    census.add(Kind::RotSlot, (i, at));
                    if newest.as_ref().is_some_and(|n| n.number == g.number) {
                        census.newest.push((i, at));
                    }
                }
            }
        }
        if let Some(g) = newest {
            census.segments(disks, &labels, &g);
        }
        census
    }

    fn segments(&mut self, disks: &[Disk], labels: &[Option<Label>], g: &Generation) {
        let spot = |slot: Slot, row: u32| spot(labels, g, slot, row);
        // The newest record of each block of a volume is taken for the live one.
        let mut newest: BTreeMap<(VolumeId, Lba), ((Epoch, Seq), Spot)> = BTreeMap::new();
        for s in &g.segments {
            let k = s.scheme.k();
            let mut row = 0;
            while row < g.zone_blocks {
                let header = spot(s.slots[0], row).and_then(|(disk, at)| {
                    let block = disks[disk].image_read(at, BlockCount(1));
                    RecordHeader::decode(&block).ok().filter(|h| h.segment == s.id && h.row == row)
                });
                let Some(h) = header else { break };
                self.kinds.entry(Kind::RotHeader).or_default().extend(spot(s.slots[0], row));
                let columns = s.slots.iter().filter_map(|slot| spot(*slot, row)).collect();
                self.records.push(RecordSpots { segment: s.id, generation: h.generation, row, rows: h.rows, columns });
                for r in row..row + h.rows {
                    for slot in &s.slots[k..] {
                        self.kinds.entry(Kind::RotParity).or_default().extend(spot(*slot, r));
                    }
                }
                for (index, entry, _) in h.payload() {
                    let (column, at) = h.payload_place(index);
                    let Some(here) = spot(s.slots[column], at) else { continue };
                    let order = (h.epoch, Seq(h.first_seq.0 + index as u64));
                    match *entry {
                        Entry::MapNode { .. } => self.add(Kind::RotMap, here),
                        Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. } => {
                            let known = newest.get(&(volume, lba)).copied();
                            let (live, dead) = match known {
                                Some(other) if other.0 > order => (other, Some(here)),
                                Some(other) => ((order, here), Some(other.1)),
                                None => ((order, here), None),
                            };
                            newest.insert((volume, lba), live);
                            self.kinds.entry(Kind::RotDead).or_default().extend(dead);
                        }
                        Entry::Pad | Entry::Hole { .. } | Entry::Zero { .. } | Entry::Bad { .. } => {}
                    }
                }
                row += h.rows;
            }
        }
        self.kinds.entry(Kind::RotData).or_default().extend(newest.into_values().map(|(_, spot)| spot));
    }
}

/// Where the zones of a labelled drive begin.
pub fn zones_begin(disk: &Disk) -> MemberLba {
    label(disk).map_or(MemberLba(0), |l| l.layout.zone_row(0, 0))
}

/// The label of a drive.
pub fn label(disk: &Disk) -> Option<Label> {
    let last = disk.params().bytes / base::BLOCK_BYTES as u64 - 1;
    let read = |at| Label::decode(&disk.image_read(MemberLba(at), BlockCount(1))).ok();
    read(0).or_else(|| read(last))
}
