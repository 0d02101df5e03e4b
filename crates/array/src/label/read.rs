//! Labels and generations as they lie on a drive: read only, and never for long from one that does not answer.

use std::time::Duration;

use base::{BLOCK_BYTES, MemberLba};
use ondisk::layout::{ALIGN_BLOCKS, SLOT_BLOCKS_MAX};
use ondisk::{FormatError, Generation, Label, Layout};
use rt::{Buf, Drive, IoError, Rt};

use crate::canary::{Canary, planted};

/// Times a label or a generation is read before it counts as unreadable: an error may pass.
pub const READ_TRIES: usize = 3;

/// Between the tries.
pub const READ_PAUSE: Duration = Duration::from_millis(20);

/// A drive that does not answer for so long is as good as not there: the slowest have come up by then.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn read(drive: &Drive, at: MemberLba, blocks: usize) -> Result<Buf, IoError> {
    let read = async {
        let (result, buf) = drive.read(at, Buf::zeroed(blocks * BLOCK_BYTES)).await;
        result.map(|()| buf)
    };
    if planted(Canary::LabelsWaitedFor) { read.await } else { drive.within(PATIENCE, read).await }
}

/// The label in `block` of a drive that size, or a little larger when it joined.
pub(crate) fn label_in(drive: &Drive, block: &[u8]) -> Result<Label, FormatError> {
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

pub(crate) async fn is_anothers(drive: &Drive) -> bool {
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

/// Why a slot holds no generation.
#[derive(Debug, thiserror::Error)]
pub enum NoGeneration {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] IoError),
    /// What is there is none that this program knows.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It would not fit.
    #[error("generation: impossible length")]
    Length,
}

/// The generation in slot `i`.
///
/// # Errors
/// Why there is none.
pub async fn read_slot(drive: &Drive, layout: &Layout, i: usize) -> Result<Generation, NoGeneration> {
    let at = layout.slot(i);
    let first = read(drive, at, 1).await?;
    let blocks = Generation::total_bytes(&first)?.div_ceil(BLOCK_BYTES);
    if blocks == 0 || blocks > layout.slot_blocks as usize {
        return Err(NoGeneration::Length);
    }
    Ok(Generation::decode(&read(drive, at, blocks).await?)?)
}

/// A drive's label, or why there is none once it was tried several times.
pub async fn read_label_patiently(rt: &Rt, drive: &Drive) -> Result<Result<Label, FormatError>, IoError> {
    let begun = rt.now();
    let mut label = read_label(drive).await;
    let tries = if planted(Canary::LabelReadOnce) { 1 } else { READ_TRIES };
    for _ in 1..tries {
        let silent = matches!(label, Err(IoError::TimedOut)) && rt.now() - begun >= PATIENCE;
        if silent || matches!(label, Ok(Ok(_))) {
            break;
        }
        rt.sleep(READ_PAUSE).await;
        label = read_label(drive).await;
    }
    label
}
