//! Looking at one drive: reads only, and never for long at one that does not answer.

use base::MemberLba;
use ondisk::{FormatError, Generation, Label, Layout, OwnerMark, VolumeKind};
use rt::Drive;
use serde::Serialize;

use crate::label::read::{label_in, read, read_label, read_slot};
use crate::label::slices::Slices;

/// Everything that a drive says of itself.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// The path it was opened by.
    pub drive: String,
    /// Its blocks.
    pub blocks: u64,
    /// The labels at the drive's ends and the one behind its slots: contents, or why not.
    pub labels: Vec<Found<LabelLine>>,
    /// The two slots: contents, or why not. Of an array in several parts: see there.
    pub slots: Vec<Found<SlotLine>>,
    /// The owner mark, where there is one: contents, or why not. Of an array in several parts: see there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Found<OwnerLine>>,
    /// Every slice of a drive of an array in several parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Inspection>,
}

/// Contents, or why not.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found<T> {
    /// Whole.
    Valid(T),
    /// Not there, or not whole.
    Invalid(String),
}

/// A label, for people.
#[derive(Clone, Debug, Serialize)]
pub struct LabelLine {
    /// Identity.
    pub array: uuid::Uuid,
    /// Name when the drive joined.
    pub array_name: String,
    /// Identity.
    pub member: uuid::Uuid,
    /// Number.
    pub seat: u16,
    /// Its part, such as "2 of 4", unless the array is in one piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Blocks.
    pub zone_blocks: u32,
    /// Zones.
    pub zones: u32,
    /// Blocks.
    pub slot_blocks: u32,
}

/// An owner mark, for people.
#[derive(Clone, Debug, Serialize)]
pub struct OwnerLine {
    /// "released", "claimed" or "held".
    pub state: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub process: u32,
    /// When the array was opened.
    pub since_unix_seconds: u64,
    /// Rises every two seconds while the array is open.
    pub beat: u64,
    /// The key by which the drives are reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation_key: Option<String>,
}

/// A generation, for people.
#[derive(Clone, Debug, Serialize)]
pub struct SlotLine {
    /// Number.
    pub number: u64,
    /// Random id.
    pub id: String,
    /// The open that wrote it.
    pub epoch: u32,
    /// When.
    pub written_at_unix_seconds: u64,
    /// Handed over in order.
    pub clean: bool,
    /// Level.
    pub level: String,
    /// Columns.
    pub width: u8,
    /// Seats: "in", "out", "spare", "vacant".
    pub members: Vec<String>,
    /// Names and sizes in bytes.
    pub volumes: Vec<(String, u64)>,
    /// Segments.
    pub segments: usize,
    /// Of them to be read at recovery.
    pub frontier: usize,
    /// Bytes it takes.
    pub bytes: usize,
}

/// Everything that a drive says of itself. Of an array in several parts: its labels, then every slice.
pub async fn inspect(drive: &Drive) -> Inspection {
    let (labels, found) = both_labels(drive).await;
    let blocks = drive.info().blocks;
    let whole = found.iter().find_map(|l| Slices::of_label(l, blocks)).filter(|s| s.of() > 1);
    let Some(slices) = whole else {
        let slots = match found.last() {
            Some(label) => both_slots(drive, &label.layout).await,
            None => Vec::new(),
        };
        let owner = owner_mark(drive, found.last()).await;
        return Inspection {
            drive: drive.info().name.clone(),
            blocks: blocks.0,
            labels,
            slots,
            owner,
            parts: Vec::new(),
        };
    };
    let mut parts = Vec::new();
    for part in slices.parts() {
        let slice = slices.slice(drive, part.index);
        let (labels, found) = both_labels(&slice).await;
        let slots = match found.last() {
            Some(label) => both_slots(&slice, &label.layout).await,
            None => Vec::new(),
        };
        let owner = owner_mark(&slice, found.last()).await;
        let (drive, blocks) = (slice.info().name.clone(), slice.info().blocks.0);
        parts.push(Inspection { drive, blocks, labels, slots, owner, parts: Vec::new() });
    }
    Inspection { drive: drive.info().name.clone(), blocks: blocks.0, labels, slots: Vec::new(), owner: None, parts }
}

/// The owner mark where a label says it lies.
async fn owner_mark(drive: &Drive, label: Option<&Label>) -> Option<Found<OwnerLine>> {
    let block = read(drive, label?.layout.owner_mark()?, 1).await;
    match block.map(|block| OwnerMark::decode(&block)) {
        Ok(Ok(mark)) => Some(Found::Valid(OwnerLine {
            state: format!("{:?}", mark.state).to_lowercase(),
            host: mark.host,
            process: mark.pid,
            since_unix_seconds: mark.since,
            beat: mark.beat,
            reservation_key: (mark.key != 0).then(|| format!("{:#018x}", mark.key)),
        })),
        Ok(Err(FormatError::Absent(_))) => None,
        Ok(Err(e)) => Some(Found::Invalid(e.to_string())),
        Err(e) => Some(Found::Invalid(e.to_string())),
    }
}

/// The labels: for people, and those that are whole.
async fn both_labels(drive: &Drive) -> (Vec<Found<LabelLine>>, Vec<Label>) {
    let (mut lines, mut whole) = (Vec::new(), Vec::new());
    let mut places = vec![MemberLba(0), MemberLba(drive.info().blocks.0.saturating_sub(1))];
    if let Ok(Ok(label)) = read_label(drive).await {
        places.push(Layout::inner_label(label.layout.slot_blocks));
    }
    for at in places {
        lines.push(match read(drive, at, 1).await {
            Err(e) => Found::Invalid(e.to_string()),
            Ok(block) => match label_in(drive, &block) {
                Err(e) => Found::Invalid(e.to_string()),
                Ok(label) => {
                    let line = label_line(&label);
                    whole.push(label);
                    Found::Valid(line)
                }
            },
        });
    }
    (lines, whole)
}

async fn both_slots(drive: &Drive, layout: &Layout) -> Vec<Found<SlotLine>> {
    let mut slots = Vec::new();
    for i in 0..2 {
        slots.push(match read_slot(drive, layout, i).await {
            Err(e) => Found::Invalid(e.to_string()),
            Ok(g) => Found::Valid(slot_line(&g)),
        });
    }
    slots
}

fn label_line(l: &Label) -> LabelLine {
    LabelLine {
        array: l.array.0,
        array_name: l.array_name.clone(),
        member: l.member.0,
        seat: l.seat.0,
        part: (l.part.of > 1).then(|| format!("{} of {}", l.part.index + 1, l.part.of)),
        zone_blocks: l.layout.zone_blocks,
        zones: l.layout.zones,
        slot_blocks: l.layout.slot_blocks,
    }
}

fn slot_line(g: &Generation) -> SlotLine {
    let word = |m: &ondisk::Member| format!("{:?} {}", m.state, m.drive_name).to_lowercase();
    SlotLine {
        number: g.number.0,
        id: format!("{:032x}", g.id),
        epoch: g.epoch.0,
        written_at_unix_seconds: g.written_at,
        clean: g.clean,
        level: g.level.to_string(),
        width: g.width,
        members: g.members.iter().map(word).collect(),
        volumes: g
            .volumes
            .iter()
            .filter(|v| v.kind == VolumeKind::Hosts)
            .map(|v| (v.name.clone(), base::BlockCount(v.blocks).bytes()))
            .collect(),
        segments: g.segments.len(),
        frontier: g.segments.iter().filter(|s| s.replay_row.is_some()).count(),
        bytes: g.encode().len(),
    }
}
