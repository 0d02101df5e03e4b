//! Finding the parts of an array on whole drives: how many there are, and which drives have which.
//!
//! A drive whose first and last label cannot be read is looked at where the other drives say the slices are.

use api::Remedy;
use base::ArrayUuid;
use futures::future::join_all;
use ondisk::{FormatError, Label, PartOf};
use rt::{Drive, IoError, Rt};

use super::in_part;
use crate::canary::{Canary, planted};
use crate::fault::{Refused, RefusedCode};
use crate::label::read::read_label_patiently;
use crate::label::read::{holds_more, made_of, read_label};
use crate::label::slices::Slices;

/// The parts of an array in order, each with its slices of the drives that have it. In one piece: the drives as given. One that
/// does not answer is left out: it is asked once, and not part by part.
pub async fn find(rt: &Rt, drives: Vec<Drive>) -> Result<Vec<(PartOf, Vec<Drive>)>, Refused> {
    let labels = join_all(drives.iter().map(|drive| read_label_patiently(rt, drive))).await;
    let all_are_silent = labels.iter().all(is_silent);
    let is_kept = |(drive, label): &(Drive, Result<_, _>)| {
        let is_left_out = is_silent(label) && !all_are_silent;
        if is_left_out {
            tracing::warn!("drive {} is left out: it does not answer", drive.info().name);
        }
        !is_left_out
    };
    let (drives, labels): (Vec<_>, Vec<_>) = drives.into_iter().zip(labels).filter(is_kept).unzip();
    let readable = || labels.iter().zip(&drives).filter_map(|(l, d)| Some((l.as_ref().ok()?.as_ref().ok()?, d)));
    let Some((first, _)) = readable().next().filter(|(l, _)| l.part.of > 1) else {
        // The open of one piece says what is wrong with the others.
        return Ok(vec![(PartOf::ALL, drives)]);
    };
    if let Some((other, drive)) = readable().find(|(l, _)| (l.array, l.part.of) != (first.array, first.part.of)) {
        return Err(another(drive, other, first));
    }
    let mut parts: Vec<(PartOf, Vec<Drive>)> =
        (0..first.part.of).map(|index| (PartOf { index, of: first.part.of }, Vec::new())).collect();
    for (drive, label) in drives.iter().zip(&labels) {
        let own = label.as_ref().ok().and_then(|l| l.as_ref().ok());
        let slices = match own {
            Some(own) => Slices::of_label(own, drive.info().blocks),
            None => match made_of(drive).await.filter(|_| !planted(Canary::ForgottenLabelBelieved)) {
                None => Slices::new(drive.info().blocks, first.part.of),
                Some(what) => {
                    tracing::warn!("drive {} is left out: it holds something else now ({what})", drive.info().name);
                    continue;
                }
            },
        };
        let mut has_any = own.is_some();
        let overwritten = match slices {
            Some(slices) => overwritten_part(drive, slices, first.array).await,
            None => None,
        };
        for (part, having) in &mut parts {
            if overwritten.is_some_and(|there| there != part.index) {
                // That part says so, and leaves the drive out; the others do without it, too.
                continue;
            }
            let Some(slice) = slices.map(|s| s.slice(drive, part.index)) else { break };
            match has(&slice, first.array).await {
                Has::It => has_any = true,
                Has::NotIt => {
                    tracing::warn!("drive {} has no part {} of {}", drive.info().name, part.index + 1, part.of);
                    continue;
                }
                Has::Unknown => {}
            }
            having.push(slice);
        }
        if let (false, Ok(Err(e @ FormatError::Absent(_)))) = (has_any, label) {
            let (what, todo) = (format!("drive {}", drive.info().name), "Leave it out, or name the right drive");
            return Err(Refused::new(RefusedCode::NotFound, what, e.to_string(), todo));
        }
    }
    match parts.iter().find(|(_, having)| having.is_empty()) {
        None => Ok(parts),
        Some((part, _)) => Err(in_part(*part, unfinished(&first.array_name))),
    }
}

fn is_silent(label: &Result<Result<Label, FormatError>, IoError>) -> bool {
    matches!(label, Err(IoError::TimedOut))
}

/// Whether a slice has its part.
enum Has {
    /// It has a label of the array.
    It,
    /// It has none, or that of another array.
    NotIt,
    /// What is there cannot be read now: the part's open tries again, and says what is wrong.
    Unknown,
}

/// The part that holds nothing of the array on this drive but its last label: something has been put over the others, and nobody knows
/// how far it reaches.
async fn overwritten_part(drive: &Drive, slices: Slices, array: ArrayUuid) -> Option<u8> {
    if planted(Canary::OtherPartsBelieved) {
        return None;
    }
    for part in slices.parts() {
        let slice = slices.slice(drive, part.index);
        if let Ok(Ok(label)) = read_label(&slice).await
            && label.array == array
            && !holds_more(&slice, &label).await
        {
            return Some(part.index);
        }
    }
    None
}

async fn has(slice: &Drive, array: ArrayUuid) -> Has {
    match read_label(slice).await {
        Ok(Ok(label)) if label.array == array => Has::It,
        Ok(Ok(_) | Err(FormatError::Absent(_))) => Has::NotIt,
        Ok(Err(_)) | Err(_) => Has::Unknown,
    }
}

fn another(drive: &Drive, own: &Label, first: &Label) -> Refused {
    let why = format!(
        "it belongs to array \"{}\" of {} parts, the others to \"{}\" of {}",
        own.array_name, own.part.of, first.array_name, first.part.of
    );
    Refused::new(RefusedCode::Drives, format!("drive {}", drive.info().name), why, "Open one array at a time")
}

fn unfinished(name: &str) -> Refused {
    Refused::new(
        RefusedCode::Damaged,
        format!("array \"{name}\""),
        "none of these drives holds it: its creation did not finish, it was wiped in part, or it is on other drives",
        "Name all its drives; if its creation was interrupted, create it again over what was written",
    )
    .by(Remedy::Force)
}
