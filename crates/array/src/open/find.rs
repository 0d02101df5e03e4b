//! Which drives are members, and which generation is in effect.

use api::Remedy;
use futures::future::join_all;

use base::Epoch;
use ondisk::{FormatError, Generation, MemberState, PartOf};
use rt::{Drive, IoError, Rt};

use super::returning::{Standing, seat_of, standing};
use super::{ANCESTORS_NEAR, Found, OpenHow};
use crate::canary::{Canary, planted};
use crate::fault::{Refused, RefusedCode};
use crate::label::read::{
    NoGeneration, PATIENCE, READ_PAUSE, READ_TRIES, bears_label, read_label_patiently, read_slot,
};

/// What is said of a drive of which the last label alone is left.
pub(crate) const NOT_OWN: &str =
    "holds only the array's label in its last block, so its other content may have been overwritten";

/// A drive's label and generations. A drive that has a label of ours which cannot be read is as good as missing: the
/// others go on without it.
pub(crate) async fn read_member(rt: &Rt, drive: Drive) -> Result<Option<Found>, Refused> {
    let name = drive.info().name.clone();
    let label = match read_label_patiently(rt, &drive).await {
        Ok(Ok(label)) => label,
        Ok(Err(e @ (FormatError::Checksum(_) | FormatError::Short(_)))) if !planted(Canary::LabelReadOnce) => {
            tracing::warn!("drive {name} is left out: {e}");
            return Ok(None);
        }
        Ok(Err(e)) => {
            let todo = "Leave it out, or name the right drive";
            return Err(Refused::new(RefusedCode::NotFound, format!("drive {name}"), e.to_string(), todo));
        }
        Err(e @ IoError::Conflict) => return Err(Refused::io(&format!("drive {name}"), e)),
        Err(e) => {
            tracing::warn!("drive {name} is left out: {e}");
            return Ok(None);
        }
    };
    let mut generations = Vec::new();
    for i in 0..2 {
        for attempt in 0..READ_TRIES {
            let begun = rt.now();
            match read_slot(&drive, &label.layout, i).await {
                Ok(g) => {
                    generations.extend(Some(g).filter(|g| g.array == label.array));
                    break;
                }
                // Whole, and not for this program: whatever else is there is older.
                Err(NoGeneration::Format(e @ FormatError::Feature(_))) if !planted(Canary::FeatureIgnored) => {
                    let what = format!("array \"{}\" (drive {name})", label.array_name);
                    let todo =
                        "Use the Ashlar that it was upgraded with, or a newer one; nothing is wrong with the drive";
                    return Err(Refused::new(RefusedCode::Format, what, e.to_string(), todo));
                }
                Err(_) if rt.now() - begun >= PATIENCE => {
                    tracing::warn!("drive {name} is left out: it does not answer");
                    return Ok(None);
                }
                Err(_) if attempt + 1 < READ_TRIES => rt.sleep(READ_PAUSE).await,
                Err(_) => {}
            }
        }
    }
    generations.sort_by_key(|g| std::cmp::Reverse(g.number));
    // Numbers and epochs rise together. One that is ahead of a later epoch's landed when its process had ended.
    if let [ahead, other] = &generations[..]
        && ahead.epoch < other.epoch
        && !planted(Canary::LateSlotForeign)
    {
        generations.remove(0);
    }
    let own = !generations.is_empty() || bears_label(&drive, &label).await;
    Ok(Some(Found { drive, label, generations, own, lent: false }))
}

/// Epochs are seconds from here on: 2026-01-01 00:00:00 UTC.
const EPOCHS_FROM_UNIX_SECONDS: u64 = 1_767_225_600;

/// A clock that is further ahead (34 years) is not believed.
const EPOCH_BY_CLOCK_MAX: u64 = 1 << 30;

/// The epoch of an open. It is later than any that left something behind; and than that of an open that ended before its
/// first generation took effect, and left nothing to see, but for a write that is still in flight to a drive. Only the
/// clock knows of that one.
pub(super) fn epoch_after(seen: Epoch, unix_seconds: u64) -> Epoch {
    let next = seen.0 + u32::from(!planted(Canary::EpochForgotten));
    let by_clock = unix_seconds.saturating_sub(EPOCHS_FROM_UNIX_SECONDS);
    let unbelieved = by_clock > EPOCH_BY_CLOCK_MAX || planted(Canary::EpochsMeet) || planted(Canary::EpochForgotten);
    Epoch(if unbelieved { next } else { next.max(by_clock as u32) })
}

pub(super) async fn find_members(rt: &Rt, drives: Vec<Drive>, part: PartOf) -> Result<Vec<Found>, Refused> {
    let read = join_all(drives.into_iter().map(|drive| read_member(rt, drive))).await;
    let found: Vec<Found> = read.into_iter().filter_map(Result::transpose).collect::<Result<_, Refused>>()?;
    let Some(first) = found.first() else {
        return Err(Refused::new(
            RefusedCode::Drives,
            "cannot open the array",
            "no drive has a readable label",
            "Name its drives",
        ));
    };
    if let Some(other) = found.iter().find(|f| f.label.array != first.label.array) {
        return Err(Refused::new(
            RefusedCode::InUse,
            format!("drive {}", other.drive.info().name),
            format!("it belongs to array \"{}\", the others to \"{}\"", other.label.array_name, first.label.array_name),
            "Open one array at a time",
        ));
    }
    if let Some(other) = found.iter().find(|f| f.label.part != part) {
        let PartOf { index, of } = other.label.part;
        return Err(Refused::new(
            RefusedCode::Damaged,
            format!("drive {}", other.drive.info().name),
            format!("part {} of {} was expected where it holds part {} of {of}", part.index + 1, part.of, index + 1),
            "Leave it out",
        ));
    }
    for (i, f) in found.iter().enumerate() {
        if let Some(twin) = found[..i].iter().find(|t| t.label.member == f.label.member) {
            return Err(Refused::new(
                RefusedCode::Diverged,
                format!("drives {} and {}", twin.drive.info().name, f.drive.info().name),
                "both are labelled as the same member: one is a copy of the other",
                "Leave the copy out",
            ));
        }
    }
    Ok(found)
}

/// Whether a generation never took effect: a drive that it marks in went on without it. (A process ended while it wrote
/// the generation, and the drive that has it was missing the next time.)
fn is_overtaken(g: &Generation, found: &[Found]) -> bool {
    found.iter().any(|f| {
        let seat = seat_of(f, g).filter(|_| !planted(Canary::OvertakenBelieved));
        let went_on = |own: &Generation| own.id != g.id && when(own) >= when(g) && !own.descends_from(g.id);
        seat.is_some_and(|m| m.state == MemberState::In) && f.generations.first().is_some_and(went_on)
    })
}

/// Which of two generations is the later one. A drive that hung may land one of a process that has died over that of the
/// next, which has the same number and a later epoch.
fn when(g: &Generation) -> (base::Generation, Epoch) {
    (g.number, g.epoch)
}

/// The last word of a drive that `newest` marks in: not one of an earlier epoch that landed over it when its process had ended.
pub(crate) fn last_word<'a>(f: &'a Found, newest: &Generation) -> Option<&'a Generation> {
    let known = |g: &Generation| newest.descends_from(g.id);
    let [last, before] = &f.generations[..] else { return f.generations.first() };
    let marked_in = seat_of(f, newest).is_some_and(|m| m.state == MemberState::In);
    let landed_late = last.epoch < newest.epoch && last.number == newest.number && !known(last) && known(before);
    let late = marked_in && landed_late && !planted(Canary::LateSlotForeign);
    Some(if late { before } else { last })
}

/// Whether `newest` is the first to mark a drive in, and the drive has none yet: the writing of it was cut short, so it never
/// took effect, but what it lists lies on that drive too.
pub(crate) fn is_newcomer(f: &Found, newest: &Generation, found: &[Found]) -> bool {
    let was_in = |g: &Generation| seat_of(f, g).is_some_and(|m| m.state == MemberState::In);
    let mut all = found.iter().flat_map(|f| &f.generations);
    let before = all.find(|g| Some(&g.id) == newest.ancestors.first());
    let joins = was_in(newest) && before.is_some_and(|g| !was_in(g));
    f.generations.is_empty() && joins && !planted(Canary::NewcomerNotBelieved)
}

/// The newest generation, and what each drive is to it.
pub(crate) fn choose(found: &[Found], how: OpenHow) -> Result<(Generation, Vec<Standing>), Refused> {
    let last_words = || found.iter().filter_map(|f| f.generations.first());
    let in_effect = last_words().filter(|g| !is_overtaken(g, found)).max_by_key(|g| when(g));
    let newest = in_effect.or_else(|| last_words().max_by_key(|g| when(g)));
    let Some(newest) = newest.cloned() else {
        return Err(Refused::new(
            RefusedCode::Damaged,
            format!("array \"{}\"", found[0].label.array_name),
            "no drive holds a readable generation",
            "Name all its drives; if its creation was interrupted, create it again over what was written",
        )
        .by(Remedy::Force));
    };
    let mut standings = Vec::with_capacity(found.len());
    for f in found {
        let seat = seat_of(f, &newest);
        let last = last_word(f, &newest);
        let ours = planted(Canary::DivergedBelieved) || last.is_none_or(|g| newest.descends_from(g.id));
        let marked_in = seat.is_some_and(|m| matches!(m.state, MemberState::In | MemberState::Spare));
        let same_time = last.is_some_and(|g| {
            let near = g.number.0 + ANCESTORS_NEAR >= newest.number.0;
            // What only is old was written before it was out.
            let since = seat.map_or(0, |m| m.gone_since.0);
            near || (since > 0 && g.number.0 >= since && !planted(Canary::OldRivalBelieved))
        });
        let overtaken = last.is_some_and(|g| is_overtaken(g, found));
        if !ours && (marked_in || same_time) && !overtaken && !how.force_diverged {
            return Err(Refused::new(
                RefusedCode::Diverged,
                format!("drive {}", f.drive.info().name),
                "it was used without the other drives, and they without it: there are two histories of this array",
                "Leave it out to use the others, or name it alone to use its own",
            ));
        }
        standings.push(standing(f, &newest, found));
    }
    let marked_in = newest.members.iter().filter(|m| m.state == MemberState::In).count();
    let is_in = |f: &Found| newest.members[usize::from(f.label.seat.0)].state == MemberState::In;
    let here = found.iter().zip(&standings).filter(|(f, s)| s.is_current() && is_in(f)).count();
    let too_few = here * 2 <= marked_in && !planted(Canary::HalfBelieved);
    if too_few && here < marked_in && !how.degraded && !how.read_only {
        return Err(Refused::new(
            RefusedCode::MembersMissing,
            format!("array \"{}\"", newest.name),
            format!(
                "only {here} of its {marked_in} drives are here{}: the others may hold a newer state",
                old_ones(found, &standings)
            ),
            "Connect the others, or go on without them",
        )
        .by(Remedy::OpenDegraded));
    }
    Ok((newest, standings))
}

/// Drives that are here and do not count, as the end of a sentence.
fn old_ones(found: &[Found], standings: &[Standing]) -> String {
    let behind = found.iter().zip(standings).filter(|(_, s)| matches!(s, Standing::Behind(_)));
    let names: Vec<&str> = behind.map(|(f, _)| f.drive.info().name.as_str()).collect();
    match names.len() {
        0 => String::new(),
        1 => format!(" as they were last (drive {} is in an older state)", names[0]),
        _ => format!(" as they were last (drives {} are in an older state)", names.join(", ")),
    }
}
