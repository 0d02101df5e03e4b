//! Looking at one drive: reads only, and never for long at one that does not answer.

use std::time::Duration;

use base::{ArrayUuid, BLOCK_BYTES, MemberId, MemberLba, MemberUuid};
use ondisk::label::PARTS_MAX;
use ondisk::layout::{ALIGN_BLOCKS, SLOT_BLOCKS_MAX};
use ondisk::{FormatError, Generation, Label, Layout, OwnerMark};
use rt::{Buf, Drive, IoError};
use serde::Serialize;

use crate::canary::{Canary, planted};
use crate::parts::Slices;

/// What a drive is to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its array.
    pub array: ArrayUuid,
    /// The array's name, as the newest generation has it.
    pub array_name: String,
    /// Its identity there.
    pub member: MemberUuid,
    /// Its number in the array's tables.
    pub seat: MemberId,
    /// The number of its place, which people know it by; none without a generation that lists it.
    pub bay: Option<u16>,
    /// The newest generation that can be read: of the first part that has one.
    pub generation: Option<u64>,
    /// How many parts the array consists of.
    pub parts: u8,
}

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

/// A drive that does not answer for so long is as good as not there: the slowest have come up by then.
pub const PATIENCE: Duration = Duration::from_secs(10);

async fn read(drive: &Drive, at: MemberLba, blocks: usize) -> Result<Buf, IoError> {
    let read = async {
        let (result, buf) = drive.read(at, Buf::zeroed(blocks * BLOCK_BYTES)).await;
        result.map(|()| buf)
    };
    if planted(Canary::LabelsWaitedFor) { read.await } else { drive.within(PATIENCE, read).await }
}

/// The label in `block` of a drive that size, or a little larger when it joined.
fn label_in(drive: &Drive, block: &[u8]) -> Result<Label, FormatError> {
    let label = Label::decode(block)?;
    if label.layout.on_smaller(drive.info().blocks.0).is_none() {
        return Err(FormatError::Field("label", "drive size"));
    }
    Ok(label)
}

/// Slot sizes that are tried where the label away from the drive's ends is looked for, in steps of 1 MiB: more when there is a
/// generation in front of it.
const SLOTS_TRIED: u32 = SLOT_BLOCKS_MAX / ALIGN_BLOCKS as u32;
const SLOTS_TRIED_BLIND: u32 = 8;

/// The label away from the drive's ends. It counts where both generations before it are whole: else something else may have
/// been put on the drive since, and a label that was forgotten says nothing.
async fn inner_label(drive: &Drive) -> Option<Label> {
    let first = read(drive, MemberLba(ALIGN_BLOCKS), 1).await.ok()?;
    let most = if Generation::peek(&first).is_ok() { SLOTS_TRIED } else { SLOTS_TRIED_BLIND };
    for slot_blocks in (1..=most).map(|n| n * ALIGN_BLOCKS as u32) {
        let at = Layout::inner_label(slot_blocks);
        if at.0 >= drive.info().blocks.0 {
            return None;
        }
        let label = match read(drive, at, 1).await {
            Ok(block) => label_in(drive, &block).ok(),
            Err(IoError::TimedOut) => return None,
            Err(_) => None,
        };
        let Some(label) = label.filter(|l| l.layout.slot_blocks == slot_blocks) else { continue };
        for i in 0..if planted(Canary::ForgottenLabelBelieved) { 0 } else { 2 } {
            read_slot(drive, &label.layout, i).await.ok().filter(|g| g.array == label.array)?;
        }
        return Some(label);
    }
    None
}

/// What has been made of a drive whose first block holds no label of ours: a file system, a volume of another manager. A partition
/// table alone lies within the first MiB and the last, and is none of them. To be asked of whole drives, also where an array is in
/// parts: only the first part lies where the drive begins.
pub async fn made_of(drive: &Drive) -> Option<&'static str> {
    let blocks = ALIGN_BLOCKS.min(drive.info().blocks.0) as usize;
    let first = read(drive, MemberLba(0), blocks).await.ok()?;
    if first.get(..BLOCK_BYTES).is_some_and(|block| label_in(drive, block).is_ok()) {
        return None;
    }
    let tables = ["GPT", "MBR partition table", "boot sector"];
    rt::probe::signature(&first, &[]).filter(|whose| !tables.contains(whose))
}

async fn is_anothers(drive: &Drive) -> bool {
    made_of(drive).await.is_some()
}

/// Whether the first block holds this member's label. What lies before the last one may be another's by now.
pub async fn is_labelled(drive: &Drive, label: &Label) -> bool {
    let first = label_at(drive, MemberLba(0)).await;
    first.is_some_and(|first| (first.array, first.member) == (label.array, label.member))
}

/// The same, or the label away from the ends where nothing else has been made of the drive: that of a spare, which holds no
/// generation, when its first block was overwritten.
pub async fn bears_label(drive: &Drive, label: &Label) -> bool {
    if is_labelled(drive, label).await {
        return true;
    }
    let third = label_at(drive, Layout::inner_label(label.layout.slot_blocks)).await;
    third.is_some_and(|third| (third.array, third.member) == (label.array, label.member)) && !is_anothers(drive).await
}

/// Whether a drive holds more of an array than a label in its last block: another label, or a generation.
pub async fn holds_more(drive: &Drive, label: &Label) -> bool {
    if bears_label(drive, label).await {
        return true;
    }
    for i in 0..2 {
        if read_slot(drive, &label.layout, i).await.is_ok_and(|g| g.array == label.array) {
            return true;
        }
    }
    false
}

/// Which of the labels at both ends counts: where they speak of different members of one array, and the third agrees with the last,
/// the first was put there by mistake.
async fn of_two(drive: &Drive, first: Label, last: Option<Label>) -> Label {
    let differ = |last: &Label| last.part == first.part && (last.array, last.member) != (first.array, first.member);
    let Some(last) = last.filter(differ).filter(|_| !planted(Canary::FirstLabelCounts)) else { return first };
    let third = label_at(drive, Layout::inner_label(last.layout.slot_blocks)).await;
    if third.is_some_and(|third| (third.array, third.member) == (last.array, last.member)) { last } else { first }
}

async fn label_at(drive: &Drive, at: MemberLba) -> Option<Label> {
    label_in(drive, &read(drive, at, 1).await.ok()?).ok()
}

/// The drive's label, from its first block, its last, or the one behind its slots: that of an array in one piece, of a slice, or
/// of the first or last part of an array in several. None counts where something else has been made of the drive.
///
/// # Errors
/// When none can be read; `Ok(Err(..))` says why what was read is no label.
pub async fn read_label(drive: &Drive) -> Result<Result<Label, FormatError>, IoError> {
    let first = read(drive, MemberLba(0), 1).await;
    if let Err(error @ IoError::TimedOut) = first {
        return Err(error);
    }
    let found = first.as_ref().map(|block| label_in(drive, block));
    let blocks = drive.info().blocks.0;
    let last = read(drive, MemberLba(blocks.saturating_sub(1)), 1).await;
    if let Ok(Ok(label)) = found {
        let other = last.ok().and_then(|block| label_in(drive, &block).ok());
        return Ok(Ok(of_two(drive, label, other).await));
    }
    if is_anothers(drive).await && !planted(Canary::ForgottenLabelBelieved) {
        return Ok(Err(FormatError::Absent("label")));
    }
    if let Ok(block) = &last
        && let Ok(label) = label_in(drive, block)
    {
        return Ok(Ok(label));
    }
    if let Some(label) = inner_label(drive).await.filter(|_| !planted(Canary::EndsOnly)) {
        return Ok(Ok(label));
    }
    // Who has no label has none in either place.
    let absent = |found: &Result<Label, FormatError>| matches!(found, Err(FormatError::Absent(_)));
    match (first, last) {
        (Ok(first), Ok(last)) if absent(&label_in(drive, &first)) => Ok(label_in(drive, &last)),
        (Ok(first), Err(error)) if absent(&label_in(drive, &first)) => Err(error),
        (Err(error), Ok(last)) if absent(&label_in(drive, &last)) => Err(error),
        (Ok(first), _) => Ok(label_in(drive, &first)),
        (Err(_), Ok(last)) => Ok(label_in(drive, &last)),
        (Err(error), Err(_)) => Err(error),
    }
}

/// The generation in slot `i`.
///
/// # Errors
/// Why there is none.
pub async fn read_slot(drive: &Drive, layout: &Layout, i: usize) -> Result<Generation, String> {
    let at = layout.slot(i);
    let first = read(drive, at, 1).await.map_err(|e| e.to_string())?;
    let total = Generation::total_bytes(&first).map_err(|e| e.to_string())?;
    let blocks = total.div_ceil(BLOCK_BYTES);
    if blocks == 0 || blocks > layout.slot_blocks as usize {
        return Err("generation: impossible length".to_owned());
    }
    let image = read(drive, at, blocks).await.map_err(|e| e.to_string())?;
    Generation::decode(&image).map_err(|e| e.to_string())
}

/// Whether the drive has a slice of this array anywhere: when its first and last part have let go of it, the drive's ends
/// do not tell. Reads the places where slices of 2 to 16 parts begin and end.
pub async fn has_slice_of(drive: &Drive, array: ArrayUuid) -> bool {
    if is_anothers(drive).await && !planted(Canary::ForgottenLabelBelieved) {
        return false;
    }
    for slices in (2..=PARTS_MAX).filter_map(|of| Slices::new(drive.info().blocks, of)) {
        for part in slices.parts() {
            let own = read_label(&slices.slice(drive, part.index)).await;
            if own.ok().and_then(Result::ok).is_some_and(|l| l.array == array && l.part == part) {
                return true;
            }
        }
    }
    false
}

/// What a drive is to us; `None` when it has no label of ours.
///
/// Of an array in several parts, it says what the first part says whose label and generation can be read.
///
/// # Errors
/// When it cannot be read.
pub async fn identify(drive: &Drive) -> Result<Option<Identity>, IoError> {
    let Ok(label) = read_label(drive).await? else { return Ok(None) };
    let Some(slices) = Slices::of_label(&label, drive.info().blocks).filter(|s| s.of() > 1) else {
        let newest = newest(drive, &label).await;
        return Ok(Some(Identity::of(label, newest)));
    };
    let mut without_generation = None;
    for part in slices.parts() {
        let slice = slices.slice(drive, part.index);
        let ours = |l: &Label| l.array == label.array && l.part == part;
        let own = read_label(&slice).await.ok().and_then(Result::ok).filter(ours);
        let Some(own) = own else { continue };
        if let Some(newest) = newest(&slice, &own).await {
            return Ok(Some(Identity::of(own, Some(newest))));
        }
        without_generation.get_or_insert(own);
    }
    Ok(Some(Identity::of(without_generation.unwrap_or(label), None)))
}

/// The newest generation behind a label.
async fn newest(drive: &Drive, label: &Label) -> Option<Generation> {
    let mut newest: Option<Generation> = None;
    for i in 0..2 {
        if let Ok(g) = read_slot(drive, &label.layout, i).await
            && newest.as_ref().is_none_or(|n| n.number < g.number)
        {
            newest = Some(g);
        }
    }
    newest
}

impl Identity {
    /// The number of its seat as people know it; without a generation, as the label has it.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.bay.unwrap_or(self.seat.0)
    }

    fn of(label: Label, newest: Option<Generation>) -> Identity {
        let listed = newest.as_ref().and_then(|g| g.members.get(usize::from(label.seat.0)));
        let bay = listed.filter(|m| m.uuid == label.member).map(|m| m.bay);
        Identity {
            bay,
            array: label.array,
            array_name: newest.as_ref().map_or(label.array_name, |g| g.name.clone()),
            member: label.member,
            seat: label.seat,
            generation: newest.map(|g| g.number.0),
            parts: label.part.of,
        }
    }
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
            Err(e) => Found::Invalid(e),
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
        volumes: g.volumes.iter().map(|v| (v.name.clone(), base::BlockCount(v.blocks).bytes())).collect(),
        segments: g.segments.len(),
        frontier: g.segments.iter().filter(|s| s.replay_row.is_some()).count(),
        bytes: g.encode().len(),
    }
}
