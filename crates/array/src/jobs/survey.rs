//! What is live in a segment, from its headers.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use api::EventCode;
use base::{Lba, Pba, SegmentId, VolumeId};
use ondisk::{Entry, MapRef, Place, VolumeState};

use super::move_reads::Relocation;
use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::fault::Fault;
use crate::jobs::On;
use crate::map::{Map, NodeKey};
use crate::member::Members;
use crate::memtable::memory::Memory;
use crate::memtable::table::Touch;
use crate::row::RowReader;
use crate::space::pins::Pins;
use crate::space::segment::{Seg, pba};
use crate::space::segments::Segments;
use crate::sync::Pieces;
use crate::volumes::Volumes;

/// Rows whose headers are looked for in one read.
const SURVEY_ROWS: u32 = 64;

/// Blocks looked up in the map before others run: a tenth of a millisecond.
const LOOKS_IN_A_PIECE: usize = 256;

/// Blocks looked up in one order, by address: those of one leaf come behind each other, while it is in the processor's cache.
const LOOKS_IN_ORDER: usize = 4 * 1024;

/// A block that a header speaks of, and its place.
pub type Found = (VolumeId, Lba, Place);

/// What is live in a segment.
pub struct Survey {
    pub blocks: Vec<Found>,
    /// Whose they are.
    volumes: BTreeSet<VolumeId>,
    /// Besides: map nodes, or blocks of volumes that are being deleted. They go when the trees are written.
    pub others: bool,
}

/// Times that the map is asked whether a segment is vacated, and the pause between.
const VACATED_TRIES: usize = 4;
const VACATED_PAUSE: Duration = Duration::from_millis(1);

/// Surveys segments.
pub struct Surveyor {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    pins: Pins,
    memory: Rc<Memory>,
    volumes: Rc<Volumes>,
    rows: Rc<RowReader>,
    map: Rc<Map>,
    relocation: Rc<Relocation>,
}

impl Surveyor {
    /// One that looks at these.
    pub fn new(on: &On<'_>, relocation: &Rc<Relocation>) -> Rc<Surveyor> {
        Rc::new(Surveyor {
            ctx: on.health.ctx().clone(),
            members: on.state.members.clone(),
            segments: on.state.segments.clone(),
            pins: on.state.pins.clone(),
            memory: on.state.memory.clone(),
            volumes: on.state.volumes.clone(),
            rows: on.rows.clone(),
            map: on.map.clone(),
            relocation: relocation.clone(),
        })
    }

    /// Reads the headers of a segment: what is live there now, by rows and columns. Map nodes found are told to the next
    /// checkpoint.
    pub async fn survey(&self, id: SegmentId) -> Result<Survey, Fault> {
        let _pin = self.pins.pin();
        let mut live = Vec::new();
        let mut others = false;
        let rows = self.segments.read().segments.get(&id).map(|s| s.rows.acked);
        let (Some(columns), Some(rows)) = (self.rows.columns(id), rows) else { return Err(Fault::Closed) };
        let (mut row, mut blocks) = (0, Vec::new());
        while row < rows {
            let (first, window) = (row, SURVEY_ROWS.min(rows - row));
            let image = self.rows.read_column(&columns, 0, first, window).await;
            while row < first + window {
                let header = || self.rows.header_at(&columns, image.as_deref(), first, row);
                let Some(header) = self.rows.ask_for_good(Option::is_none, header).await else {
                    self.members.writable()?;
                    self.ctx.error(
                        EventCode::DataLost,
                        format!("segment {id}: the record header at row {row} is lost; the segment stays while anything in it is live"),
                    );
                    self.segments.mark_header_lost(id);
                    return Err(Fault::Medium);
                };
                for (index, entry, crc) in header.payload() {
                    let (column, at) = header.payload_place(index);
                    let place = Place { pba: pba(id, column, at, self.ctx.shape.zone_blocks), crc };
                    match *entry {
                        Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. } => {
                            blocks.push((volume, lba, place));
                        }
                        Entry::MapNode { volume, lba, level, .. } => {
                            others |= self.touch(volume, lba, level, place.pba).await?;
                        }
                        Entry::Pad | Entry::Hole { .. } | Entry::Zero { .. } | Entry::Bad { .. } => {}
                    }
                }
                row += header.rows;
            }
            if blocks.len() >= LOOKS_IN_ORDER || row >= rows {
                others |= self.keep_live(std::mem::take(&mut blocks), &mut live).await?;
            }
        }
        let volumes = self.volumes.all();
        let counted = live.len();
        live.retain(|(volume, ..)| volumes.get(volume).is_some_and(|v| v.state() == VolumeState::Live));
        others |= live.len() < counted;
        // A step takes what lies together: whole rows, down one column after the other.
        live.sort_by_key(|(.., place)| {
            let (column, row) = Seg::place(place.pba.block, self.ctx.shape.zone_blocks);
            (row as usize / super::clean::STEP_ROWS, column, row)
        });
        let volumes = live.iter().map(|(volume, ..)| *volume).collect();
        Ok(Survey { blocks: live, volumes, others })
    }

    /// Puts those that the map names to `live`; whether it cannot be told of some.
    async fn keep_live(&self, mut blocks: Vec<Found>, live: &mut Vec<Found>) -> Result<bool, Fault> {
        let mut others = false;
        let pieces = Pieces::of(LOOKS_IN_A_PIECE, &self.ctx.rt);
        blocks.sort_unstable_by_key(|(volume, lba, place)| (*volume, *lba, place.pba.block));
        for block in blocks {
            pieces.did(1).await;
            match self.relocation.is_named(block).await {
                Ok(true) => live.push(block),
                Ok(false) => {}
                // Their leaf is lost: the next checkpoint makes them bad.
                Err(Fault::Medium) if !planted(Canary::LostLeafStops) => {
                    let (volume, lba, _) = block;
                    let lba = NodeKey::leaf(volume, lba).first_lba();
                    self.memory.touch(Touch { volume, level: 0, lba });
                    others = true;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(others)
    }

    /// Has the next checkpoint write a map node elsewhere, if it still is where the cleaner found it; whether it is.
    pub async fn touch(&self, volume: VolumeId, lba: Lba, level: u8, at: Pba) -> Result<bool, Fault> {
        let Some(vol) = self.volumes.get(volume) else { return Ok(false) };
        let key = NodeKey::of(volume, level, lba);
        let now = self.map.node_ref(&vol.roots(), vol.height(), key).await?;
        let there = matches!(now, MapRef::At(place) if place.pba == at);
        if there {
            self.memory.touch(Touch { volume, level, lba });
        }
        Ok(there)
    }

    /// Whether nothing of a segment is asked for any more, when its blocks were moved or found dead, but for those that were
    /// `busy` when their turn came: these are somewhere else soon.
    pub async fn is_vacated(&self, there: &Survey, busy: Vec<Found>) -> Result<bool, Fault> {
        if planted(Canary::VacatedUnasked) {
            return Ok(true);
        }
        if there.others {
            return Ok(false);
        }
        let mut left = busy;
        // Of a volume that is being deleted nothing is dead for ever.
        let is_deleted = |id| self.volumes.get(id).is_some_and(|vol| vol.state() != VolumeState::Live);
        if there.volumes.iter().any(|&id| is_deleted(id)) {
            left.extend(there.blocks.iter().filter(|(volume, ..)| is_deleted(*volume)));
        }
        let pieces = Pieces::of(LOOKS_IN_A_PIECE, &self.ctx.rt);
        for _ in 0..VACATED_TRIES {
            let mut named = Vec::new();
            for block in left {
                pieces.did(1).await;
                if self.relocation.is_named(block).await? {
                    named.push(block);
                }
            }
            left = named;
            if left.is_empty() {
                return Ok(true);
            }
            self.ctx.rt.sleep(VACATED_PAUSE).await;
        }
        Ok(false)
    }
}
