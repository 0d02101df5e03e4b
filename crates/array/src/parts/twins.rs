//! Drives that say they are the same member: a clone, a snapshot or a restored image beside the drive itself, or one drive by
//! two paths.
//!
//! | of those that say they are the same member | |
//! |---|---|
//! | the same drive by two names | it is taken once |
//! | one holds a later generation of the same history in a part than each of the others, and an earlier one in none | it is taken, and the others are left out, whatever they are to each other |
//! | else | the open is refused, with the names of two |
//!
//! Invariant: nothing is chosen by name or order, and nothing silently.

use base::{ArrayUuid, MemberUuid};
use ondisk::Generation;
use rt::{Drive, DriveKind, Rt};

use crate::canary::{Canary, planted};
use crate::fault::{Refused, RefusedCode};
use crate::label::slices::Slices;
use crate::open::read_member;

/// What a drive says of itself.
struct Word {
    drive: Drive,
    /// Whose it is; `None` when it does not say.
    member: Option<(ArrayUuid, MemberUuid)>,
    /// The newest generation of each part.
    newest: Vec<Option<Generation>>,
}

/// Which of two copies is the later one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Later {
    First,
    Second,
    Neither,
    /// Both hold the same.
    Same,
}

/// The drives without those that are an older copy of another, and what is to be said of these.
///
/// # Errors
/// When several say they are the same member and it is not certain which one is.
pub async fn without_copies(rt: &Rt, drives: Vec<Drive>) -> Result<(Vec<Drive>, Vec<String>), Refused> {
    let mut members: Vec<Vec<Word>> = Vec::new();
    for drive in drives {
        let word = Word::of(rt, drive).await;
        let same = members.iter_mut().find(|words| word.member.is_some() && words[0].member == word.member);
        let Some(words) = same else {
            members.push(vec![word]);
            continue;
        };
        match words.iter().find(|w| w.drive.is_same_as(&word.drive) || planted(Canary::FirstCopyTaken)) {
            Some(w) => tracing::info!("{} and {} are the same drive", w.name(), word.name()),
            None => words.push(word),
        }
    }
    let mut notes = Vec::new();
    let latest = members.iter().map(|words| latest_of(words, &mut notes)).collect::<Result<_, Refused>>()?;
    Ok((latest, notes))
}

/// Which of those that say they are one member it is: the one that is later than every other.
fn latest_of(words: &[Word], notes: &mut Vec<String>) -> Result<Drive, Refused> {
    let mut latest = &words[0];
    for word in words {
        if latest.later(word) == Later::Second {
            latest = word;
        }
    }
    for word in words.iter().filter(|word| !std::ptr::eq(*word, latest)) {
        match latest.later(word) {
            Later::First => notes.push(left_out(word.name(), latest.name())),
            Later::Same if latest.has_serial_of(word) => {
                notes.push(format!("{} and {} are paths to the same drive", latest.name(), word.name()));
            }
            same_or_neither => return Err(uncertain((latest.name(), word.name()), same_or_neither)),
        }
    }
    Ok(latest.drive.clone())
}

fn left_out(older: &str, newer: &str) -> String {
    format!("drive {older} is an older copy of {newer}: it is left out; wipe it or disconnect it")
}

fn uncertain((first, second): (&str, &str), how: Later) -> Refused {
    let why = match how {
        Later::Same => "both are labelled as the same member, in the same state: one is a copy of the other",
        Later::First | Later::Second | Later::Neither => {
            "both are labelled as the same member, and each holds something that the other does not: one is a copy of \
             the other and was used since"
        }
    };
    let todo = "Disconnect the copy, or name the drives to use one by one";
    Refused::new(RefusedCode::Diverged, format!("drives {first} and {second}"), why, todo)
}

impl Word {
    async fn of(rt: &Rt, drive: Drive) -> Word {
        let mut word = Word { drive: drive.clone(), member: None, newest: Vec::new() };
        // What cannot be read is no copy of anything; the open says what is wrong with it.
        let Ok(Some(first)) = read_member(rt, drive.clone()).await else { return word };
        word.member = Some((first.label.array, first.label.member));
        let slices = Slices::of_label(&first.label, drive.info().blocks).filter(|s| s.of() > 1);
        let Some(slices) = slices else {
            word.newest.push(first.generations.into_iter().next());
            return word;
        };
        for part in slices.parts() {
            let slice = read_member(rt, slices.slice(&drive, part.index)).await.ok().flatten();
            if part.index == 0
                && let Some(slice) = &slice
            {
                word.member = Some((slice.label.array, slice.label.member));
            }
            word.newest.push(slice.and_then(|s| s.generations.into_iter().next()));
        }
        word
    }

    fn name(&self) -> &str {
        &self.drive.info().name
    }

    /// Whether both are block devices with the same serial number.
    fn has_serial_of(&self, other: &Word) -> bool {
        let serial = |w: &Word| w.drive.info().serial.clone().filter(|_| w.drive.info().kind == DriveKind::Block);
        serial(self).is_some_and(|own| serial(other) == Some(own))
    }

    fn later(&self, other: &Word) -> Later {
        let mut verdict = Later::Same;
        for part in 0..self.newest.len().max(other.newest.len()) {
            let (a, b) = (self.newest.get(part).cloned().flatten(), other.newest.get(part).cloned().flatten());
            let here = match (a, b) {
                (None, None) => Later::Same,
                (Some(_), None) => Later::First,
                (None, Some(_)) => Later::Second,
                (Some(a), Some(b)) if a.id == b.id => Later::Same,
                (Some(a), Some(b)) if a.descends_from(b.id) => Later::First,
                (Some(a), Some(b)) if b.descends_from(a.id) => Later::Second,
                (Some(_), Some(_)) => Later::Neither,
            };
            verdict = match (verdict, here) {
                (verdict, Later::Same) => verdict,
                (Later::Same, here) => here,
                (verdict, here) if verdict == here => verdict,
                _ => return Later::Neither,
            };
        }
        verdict
    }
}
