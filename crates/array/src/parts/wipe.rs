//! Wipe: takes our labels and slots off one drive.
//!
//! ```text
//! slots and labels of every part within the drive  ->  flush  ->  last block  ->  first block  ->  flush
//! ```
//!
//! Invariant: while anything of ours is left, so is the label in the drive's first block or that in its last, whichever
//! there were. So a power cut on the way leaves a drive that is known as this array's, and a second wipe finds the rest;
//! one that has neither has nothing. What is left never looks like a smaller whole: every label names its part and how
//! many there are, and [`super::open`] refuses an array of which a part has no drives.

use base::{BLOCK_BYTES, BlockCount, MemberLba};
use ondisk::label::PARTS_MAX;
use ondisk::{Label, Layout};
use rt::{Buf, Drive, IoError};

use crate::canary::{Canary, planted};
use crate::label::read::read_label;
use crate::label::slices::Slices;

/// Removes labels and slots of one drive, of every part. A drive without a label in its first or last block is searched for
/// others: where the slices of any number of parts would begin and end.
///
/// # Errors
/// When it cannot be read or written.
pub async fn wipe(drive: &Drive) -> Result<(), IoError> {
    let blocks = drive.info().blocks;
    let ends = [MemberLba(blocks.0.saturating_sub(1)), MemberLba(0)];
    let found = match read_label(drive).await? {
        Ok(label) => vec![Found::by_end(drive, label).await],
        Err(_) => search(drive).await,
    };
    let mut places: Vec<MemberLba> = found.iter().flat_map(Found::places).filter(|at| !ends.contains(at)).collect();
    places.sort_unstable();
    places.dedup();
    let zeros = Buf::zeroed(BLOCK_BYTES).freeze();
    for at in &places {
        drive.write(*at, zeros.clone()).await?;
    }
    if !places.is_empty() {
        drive.flush().await?;
    }
    for at in ends {
        drive.write(at, zeros.clone()).await?;
    }
    drive.flush().await
}

/// What one array has on the drive.
struct Found {
    /// Where its parts begin, with as many blocks as there are, and what lies there.
    parts: Vec<(MemberLba, BlockCount, Layout)>,
}

impl Found {
    /// By the label in the drive's first or last block.
    async fn by_end(drive: &Drive, label: Label) -> Found {
        let all = (MemberLba(0), drive.info().blocks, label.layout);
        match Slices::of_label(&label, drive.info().blocks) {
            // What a slice that was taken for a whole drive has, it has at its own ends.
            None => Found { parts: vec![all] },
            Some(slices) if slices.of() == 1 => Found { parts: vec![all] },
            Some(slices) => Found::by_slices(drive, slices, label.layout).await,
        }
    }

    /// By the labels of the parts; one that has none is laid out as `like`.
    async fn by_slices(drive: &Drive, slices: Slices, like: Layout) -> Found {
        let mut parts = Vec::new();
        for part in slices.parts() {
            let (from, blocks) = slices.range(part.index);
            let own = read_label(&slices.slice(drive, part.index)).await;
            let layout = own.ok().and_then(Result::ok).filter(|l| l.part == part).map(|l| l.layout);
            parts.push((from, blocks, layout.unwrap_or(like)));
        }
        Found { parts }
    }

    /// Every block to be zeroed.
    fn places(&self) -> Vec<MemberLba> {
        let of_part = |(from, blocks, layout): &(MemberLba, BlockCount, Layout)| {
            let [_, last, inner] = layout.labels();
            let all = [inner, layout.slot(0), layout.slot(1), last];
            let within =
                all[usize::from(planted(Canary::InnerLabelLeft)) * 3..].iter().copied().chain(layout.owner_mark());
            let labels = [MemberLba(0), MemberLba(blocks.0.saturating_sub(1))];
            let own = within.chain(labels).filter(|at| at.0 < blocks.0);
            own.map(|at| *from + BlockCount(at.0)).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of_part).collect()
    }
}

/// Looks for labels where the slices of 2 to 16 parts have theirs: 135 slices. What cannot be read is none.
async fn search(drive: &Drive) -> Vec<Found> {
    let mut found = Vec::new();
    for slices in (2..=PARTS_MAX).filter_map(|of| Slices::new(drive.info().blocks, of)) {
        for part in slices.parts() {
            let own = read_label(&slices.slice(drive, part.index)).await;
            let ours = |l: &Label| l.part == part && l.layout.drive_blocks == slices.range(part.index).1.0;
            if let Some(label) = own.ok().and_then(Result::ok).filter(ours) {
                found.push(Found::by_slices(drive, slices, label.layout).await);
                break;
            }
        }
    }
    found
}
