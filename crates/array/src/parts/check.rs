//! Check: every part after the other, one report.

use rt::{Drive, Rt};

use super::find::find;
use super::in_part;
use crate::fault::Refused;
use crate::offline::check::{CheckProgress, CheckReport, Opened};

/// Checks the array of `drives`, all its parts. What is counted is added up, but for `members_missing`: a drive that is
/// missing is so in every part, and the part that misses the most is the one that counts.
///
/// # Errors
/// When the drives are not of one array, or a part cannot be opened: then none is checked.
pub async fn check(
    rt: &Rt,
    drives: Vec<Drive>,
    mut progress: impl FnMut(CheckProgress),
) -> Result<CheckReport, Refused> {
    let mut opened = Vec::new();
    for (part, slices) in find(rt, drives).await? {
        opened.push((part, Opened::of(rt, slices, part).await.map_err(|refused| in_part(part, refused))?));
    }
    let segments_total = opened.iter().map(|(_, o)| o.segments()).sum();
    let mut done = CheckReport::default();
    let mut segments_before = 0;
    for (part, opened) in opened {
        let (segments, bytes_before) = (opened.segments(), done.bytes_read);
        let report = opened.check(|p| {
            progress(CheckProgress {
                segments_done: segments_before + p.segments_done,
                segments_total,
                bytes_read: bytes_before + p.bytes_read,
            });
        });
        done.add(report.await, part);
        segments_before += segments;
    }
    Ok(done)
}
