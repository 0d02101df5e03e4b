//! Check: the whole log, map, counts and parity of an array that is not being written. Reads only.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{BLOCK_BYTES, Pba, SegmentId};
use ondisk::{Entry, MapRef, NODE_REFS, PartOf, Place, SHARDS, SegmentState, VolumeState, crc32c};
use rt::{Drive, Rt};

use crate::fault::{Refused, RefusedCode};
use crate::log::window_rows;
use crate::map::{Base, LEAF_BLOCKS, NodeKey, height_for};
use crate::open::{OpenHow, open};
use crate::rooms::Rooms;
use crate::row::Columns;
use crate::space::segment::pba;
use crate::volumes::vol::Vol;

/// Errors listed one by one; the rest is counted.
const ERRORS_LISTED: usize = 100;

/// Rows read at once.
const ROWS_AT_ONCE: u32 = 256;

/// How far a check is.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckProgress {
    /// Segments read.
    pub segments_done: u64,
    /// Segments in all.
    pub segments_total: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// What is wrong: the first hundred.
    pub errors: Vec<String>,
    /// How much is wrong.
    pub error_count: u64,
    /// Of it what the media did: blocks that do not match their checksum, rows whose redundancy does not go with them.
    pub damage_count: u64,
    /// Of those: record headers that nothing can restore, in segments that have no redundancy left.
    pub records_lost: u64,
    /// Seats that are not there.
    pub members_missing: u64,
    /// Leaves of the map.
    pub leaves: u64,
    /// Nodes of the map, leaves included.
    pub nodes: u64,
    /// Blocks the map points to.
    pub blocks: u64,
    /// Segments read.
    pub segments: u64,
    /// Rows read.
    pub rows: u64,
    /// Records read.
    pub records: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

impl CheckReport {
    /// Whether everything is as it should be.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.error_count == 0
    }

    /// Adds that of a part.
    pub(crate) fn add(&mut self, report: CheckReport, part: PartOf) {
        let CheckReport { errors, error_count, damage_count, records_lost, members_missing, leaves, nodes, .. } =
            report;
        let name = |e: String| match part {
            PartOf::ALL => e,
            PartOf { index, of } => format!("part {} of {of}: {e}", index + 1),
        };
        let room = ERRORS_LISTED.saturating_sub(self.errors.len());
        self.errors.extend(errors.into_iter().map(name).take(room));
        self.error_count += error_count;
        self.damage_count += damage_count;
        self.records_lost += records_lost;
        self.members_missing = self.members_missing.max(members_missing);
        self.leaves += leaves;
        self.nodes += nodes;
        self.blocks += report.blocks;
        self.segments += report.segments;
        self.rows += report.rows;
        self.records += report.records;
        self.bytes_read += report.bytes_read;
    }

    fn damage(&mut self, text: String) {
        self.damage_count += 1;
        self.error(text);
    }

    fn error(&mut self, text: String) {
        self.error_count += 1;
        if self.errors.len() < ERRORS_LISTED {
            self.errors.push(text);
        }
    }
}

/// What the map says lies at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    crc: u32,
    /// Volume and first block; level for a node.
    of: (base::VolumeId, base::Lba, Option<u8>),
}

/// Checks the array of `drives`.
///
/// # Errors
/// When the drives are not of one array, or cannot be opened.
pub async fn check(
    rt: &Rt,
    drives: Vec<Drive>,
    mut progress: impl FnMut(CheckProgress),
) -> Result<CheckReport, Refused> {
    Ok(Opened::of(rt, drives, PartOf::ALL).await?.check(&mut progress).await)
}

/// An array, or a part of one, that is open for a check.
pub(crate) struct Opened {
    rooms: Rc<Rooms>,
}

impl Opened {
    /// Opens the array, or the part, of `drives` for reading.
    pub(crate) async fn of(rt: &Rt, drives: Vec<Drive>, part: PartOf) -> Result<Opened, Refused> {
        let how = OpenHow { read_only: true, degraded: true, part, ..OpenHow::default() };
        let (rooms, _) = open(rt, drives, how).await?;
        if !rooms.health().survivable() {
            return Err(Refused::new(
                RefusedCode::MembersMissing,
                format!("cannot check array \"{}\"", rooms.ctx().name()),
                "more of its drives are missing than redundancy covers",
                "Reconnect them, then check again",
            ));
        }
        Ok(Opened { rooms })
    }

    /// Segments to be read.
    pub(crate) fn segments(&self) -> u64 {
        self.rooms.segments().read().segments.len() as u64
    }

    /// Checks it.
    pub(crate) async fn check(&self, mut progress: impl FnMut(CheckProgress)) -> CheckReport {
        let rooms = &self.rooms;
        let mut report = CheckReport::default();
        let (failed, missing) = rooms.members().seats_out();
        report.members_missing = (failed.len() + missing.len()) as u64;
        let mut owners: BTreeMap<Pba, Owner> = BTreeMap::new();
        let volumes: Vec<_> = rooms.volumes().all().values().cloned().collect();
        for vol in &volumes {
            walk(rooms, vol, &mut owners, &mut report).await;
        }
        compare_counts(rooms, &owners, &mut report);
        let ids: Vec<SegmentId> = rooms.segments().read().segments.keys().copied().collect();
        for (i, id) in ids.iter().enumerate() {
            check_segment(rooms, *id, &mut owners, &mut report).await;
            progress(CheckProgress {
                segments_done: i as u64 + 1,
                segments_total: ids.len() as u64,
                bytes_read: report.bytes_read,
            });
        }
        for (place, owner) in owners {
            report.error(format!("{} points to place {place}, which is in no record", owner_text(&owner)));
        }
        report
    }
}

fn owner_text(owner: &Owner) -> String {
    let (volume, lba, level) = owner.of;
    match level {
        None => format!("volume {volume} block {lba}"),
        Some(level) => format!("the map of volume {volume} (level {level}, block {lba})"),
    }
}

/// Every node and every place of a volume's trees.
async fn walk(rooms: &Rooms, vol: &Vol, owners: &mut BTreeMap<Pba, Owner>, report: &mut CheckReport) {
    let (roots, height) = (vol.roots(), vol.height());
    if height > height_for(vol.blocks()) {
        report.error(format!("volume {}: its map trees are too tall", vol.id));
    }
    let mut mapped = 0u64;
    for shard in 0..SHARDS as u8 {
        let mut stack = vec![(NodeKey { volume: vol.id, shard, level: height, index: 0 }, roots[usize::from(shard)])];
        while let Some((key, at)) = stack.pop() {
            let MapRef::At(place) = at else { continue };
            let owner = Owner { crc: place.crc, of: (vol.id, key.first_lba(), Some(key.level)) };
            claim(owners, place, owner, report);
            check_mirrored(rooms, place, &owner, report);
            report.nodes += 1;
            report.leaves += u64::from(key.level == 0);
            let node = match rooms.map().node_at(&roots, height, key).await {
                Ok(Base::Node(node, _)) => node.to_node(),
                Ok(Base::Fill(_)) | Err(_) => {
                    report.error(format!("{} cannot be read", owner_text(&owner)));
                    continue;
                }
            };
            if node.uniform().is_some() {
                report.error(format!("{} is uniform and should not exist", owner_text(&owner)));
            }
            for (slot, child) in node.0.iter().enumerate() {
                if key.level > 0 {
                    let index = key.index * NODE_REFS as u64 + slot as u64;
                    stack.push((NodeKey { level: key.level - 1, index, ..key }, *child));
                } else if let MapRef::At(place) = child {
                    let lba = base::Lba(key.first_lba().0 + slot as u64);
                    assert!(slot < LEAF_BLOCKS as usize);
                    if lba.0 >= vol.blocks() {
                        report.error(format!("volume {}: block {lba} lies beyond its end", vol.id));
                    }
                    mapped += 1;
                    if overtaken(rooms, vol, lba, *place) {
                        continue;
                    }
                    claim(owners, *place, Owner { crc: place.crc, of: (vol.id, lba, None) }, report);
                }
            }
        }
    }
    report.blocks += mapped;
    if mapped != vol.mapped() {
        report.error(format!("volume {}: {mapped} blocks are mapped, the generation says {}", vol.id, vol.mapped()));
    }
}

/// Whether a block's place is in a segment that was given back: the log knows a newer place, or the volume is being deleted.
fn overtaken(rooms: &Rooms, vol: &Vol, lba: base::Lba, place: Place) -> bool {
    let gone = !rooms.segments().read().segments.contains_key(&place.pba.segment);
    let dropping = matches!(vol.state(), VolumeState::Dropping { .. });
    gone && (dropping || rooms.memory().read().active.says_anything(vol.id, lba, base::Lba(lba.0 + 1)))
}

/// The map has two copies at least where the array has two drives.
fn check_mirrored(rooms: &Rooms, place: Place, owner: &Owner, report: &mut CheckReport) {
    let table = rooms.segments().read();
    let scheme = table.segments.get(&place.pba.segment).map(|s| s.scheme);
    if rooms.ctx().shape.scheme.k() > 1 && matches!(scheme, Some(ondisk::Scheme::Parity { m: 0, .. })) {
        report.error(format!("{} has no second copy", owner_text(owner)));
    }
}

fn claim(owners: &mut BTreeMap<Pba, Owner>, place: Place, owner: Owner, report: &mut CheckReport) {
    if let Some(other) = owners.insert(place.pba, owner) {
        report.error(format!("place {} belongs to {} and to {}", place.pba, owner_text(&other), owner_text(&owner)));
    }
}

/// Live counts of the generation beside those of the trees.
fn compare_counts(rooms: &Rooms, owners: &BTreeMap<Pba, Owner>, report: &mut CheckReport) {
    let mut counts: BTreeMap<SegmentId, u64> = BTreeMap::new();
    for place in owners.keys() {
        *counts.entry(place.segment).or_default() += 1;
    }
    let table = rooms.segments().read();
    for (id, seg) in &table.segments {
        let counted = counts.remove(id).unwrap_or(0);
        if counted != u64::from(seg.live) {
            report.error(format!("segment {id}: {counted} live blocks, the generation says {}", seg.live));
        }
    }
    for (id, n) in counts {
        report.error(format!("{n} blocks lie in segment {id}, which is not in the table"));
    }
}

/// Every row of a segment: records, payload checksums, parity; takes the places it finds out of `owners`.
async fn check_segment(rooms: &Rooms, id: SegmentId, owners: &mut BTreeMap<Pba, Owner>, report: &mut CheckReport) {
    let Some(columns) = rooms.rows().columns(id) else { return };
    let (rows, durable, state, bare) = {
        let table = rooms.segments().read();
        let seg = table.get(id);
        let bare = rooms.health().columns_to_spare(seg).is_none_or(|columns| columns == 0);
        (seg.rows.acked, seg.rows.durable, seg.state(), bare)
    };
    if state == SegmentState::Spare {
        return;
    }
    report.segments += 1;
    let mut row = 0;
    while row < rows {
        let Some(header) = rooms.rows().read_header(&columns, row).await else {
            let text = format!("segment {id}: no record at row {row}: what it held is lost");
            // With no column to spare, one block that a drive lost is enough.
            if bare {
                report.damage(text);
                report.records_lost += 1;
                owners.retain(|place, _| place.segment != id);
            } else {
                report.error(text);
            }
            return;
        };
        report.records += 1;
        check_header(rooms, &header, report);
        for (index, entry, crc) in header.payload() {
            let (column, at) = header.payload_place(index);
            let place = pba(id, column, at, rooms.ctx().shape.zone_blocks);
            let of = match *entry {
                Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. } => (volume, lba, None),
                Entry::MapNode { volume, lba, level, .. } => (volume, lba, Some(level)),
                Entry::Pad | Entry::Hole { .. } | Entry::Zero { .. } | Entry::Bad { .. } => continue,
            };
            if let Some(owner) = owners.remove(&place)
                && owner != (Owner { crc, of })
            {
                report.error(format!("place {place}: {} and its record do not agree", owner_text(&owner)));
            }
        }
        // Beyond the durable row records may be torn where they can be made whole: the next open does that.
        if header.row < durable {
            check_rows(rooms, &columns, &header, report).await;
        }
        row += header.rows;
    }
    if row > rows {
        report.error(format!("segment {id}: its last record goes beyond its {rows} rows"));
    }
}

/// What recovery relies on in every record.
fn check_header(rooms: &Rooms, header: &ondisk::RecordHeader, report: &mut CheckReport) {
    let at = || format!("segment {}: the record at row {}", header.segment, header.row);
    let nodes = header.entries.iter().filter(|e| matches!(e, Entry::MapNode { .. })).count();
    let pads = header.entries.iter().filter(|e| matches!(e, Entry::Pad)).count();
    if nodes > 0 && nodes + pads < header.entries.len() {
        report.error(format!("{} mixes map and data", at()));
    }
    if header.row + header.rows > header.durable_row + window_rows(rooms.ctx().shape.zone_blocks) {
        report.error(format!(
            "{} is too far behind row {}, the last row that it records as durable",
            at(),
            header.durable_row
        ));
    }
}

/// The blocks of one record, column by column, and its parity.
async fn check_rows(rooms: &Rooms, columns: &Columns, header: &ondisk::RecordHeader, report: &mut CheckReport) {
    let (k, width) = (columns.scheme.k(), columns.scheme.width());
    let mut from = header.row;
    let end = header.row + header.rows;
    let mut crcs: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    for (index, _, crc) in header.payload() {
        crcs.insert(header.payload_place(index), crc);
    }
    let mut image = vec![0; BLOCK_BYTES];
    header.encode(&mut image);
    crcs.insert((0, header.row), crc32c(&image));
    while from < end {
        let n = ROWS_AT_ONCE.min(end - from);
        let have = rooms.rows().read_columns(columns, &[], from, n).await;
        report.rows += u64::from(n);
        report.bytes_read += have.iter().flatten().map(|b| b.len() as u64).sum::<u64>();
        for (c, column) in have.iter().enumerate().take(k) {
            for (i, block) in column.iter().flat_map(|b| b.chunks_exact(BLOCK_BYTES)).enumerate() {
                let row = from + i as u32;
                if crcs.get(&(c, row)) != Some(&crc32c(block)) {
                    report.damage(format!("segment {}: column {c} row {row} does not match its checksum", columns.id));
                }
            }
        }
        if have.iter().all(Option::is_some) {
            let all: Vec<&[u8]> = have.iter().flatten().map(|b| &b[..]).collect();
            let right = match columns.scheme {
                ondisk::Scheme::Parity { .. } => erasure::matches(rooms.ctx().kernel, &all[..k], &all[k..]),
                ondisk::Scheme::Copies { .. } => (k..width).all(|c| all[c] == all[c % k]),
            };
            if !right {
                report.damage(format!(
                    "segment {} ({}): redundancy of rows {from} to {} is wrong (epoch {}, generation {})",
                    columns.id,
                    columns.scheme,
                    from + n - 1,
                    header.epoch,
                    header.generation
                ));
            }
        }
        from += n;
    }
}
