//! After a crash: what a verb on a drive has done in the first part is done in the others, too.
//!
//! | in the first part the drive | in another part it | there |
//! |---|---|---|
//! | takes part, or is a spare | is not known | it joins: in the place of the member that it has replaced in the first, else as it is there |
//! | is out | is in | it goes out |
//! | is leaving, or has left | is in, or a spare | it leaves |
//!
//! Invariants: what the first part does not say is left alone: a drive that is out in another part alone may have failed
//! there; what a part refuses is said, and changes nothing.

use api::{MemberView, SeatState};
use base::MemberId;
use ondisk::{FormatError, PartOf};
use rt::Drive;

use super::Whole;
use super::drives::Joins;
use crate::canary::{Canary, planted};
use crate::engine::Array;
use crate::fault::Refused;
use crate::label::read::read_label;
use crate::label::slices::slice_of;

/// What is to be done in a part.
#[derive(Debug)]
enum Step {
    Join(Joins, Option<MemberId>, Drive),
    Fail(MemberId),
    Miss(MemberId),
    Retire(MemberId),
}

impl Whole {
    /// Finishes in the other parts what a crash has left half done, when the array is open for writing. `drives` are
    /// whole ones, also those that only the first part has. What a part refused, as sentences.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn finish(&self, drives: &[Drive]) -> Result<Vec<String>, Refused> {
        let mut refusals = vec![];
        if !self.first.is_writable() || planted(Canary::PartsUnfinished) {
            return Ok(refusals);
        }
        let first = self.first.status().members;
        for index in 1..=self.others().len() {
            let part = self.part(index);
            let theirs = part.ask(|array| async move { array.status().members }).await?;
            for (name, step) in self.steps(&first, &theirs, drives).await {
                let done = match step {
                    Step::Join(how, seat, drive) => match slice_of(&drive, self.part_of(index)) {
                        Ok(slice) => part.joins(how, seat, slice).await,
                        Err(refused) => Err(refused),
                    },
                    Step::Fail(seat) => {
                        part.ask(move |array: Array| async move { array.drive_fail(seat).await }).await?
                    }
                    Step::Miss(seat) => {
                        part.ask(move |array: Array| async move { array.drive_gone(seat).await }).await?
                    }
                    Step::Retire(seat) => part.ask(move |array| async move { array.drive_retire(seat).await }).await?,
                };
                match done {
                    Ok(()) => {
                        tracing::info!("part {}: drive {name} now has the same state as in the first part", index + 1)
                    }
                    Err(refused) => {
                        refusals.push(format!("part {}: drive {name} keeps its state: {refused}", index + 1))
                    }
                }
            }
        }
        Ok(refusals)
    }

    fn part_of(&self, index: usize) -> PartOf {
        PartOf { index: index as u8, of: self.count() as u8 }
    }

    /// Whether a drive is here and is none of the first part's any more.
    async fn has_left(&self, drive: Option<&Drive>) -> bool {
        let Some(drive) = drive else { return false };
        let Ok(slice) = slice_of(drive, self.part_of(0)) else { return false };
        match read_label(&slice).await {
            // A crash may have come before its label was wiped.
            Ok(Ok(label)) => label.array != self.first.identity() || !self.first.has_member(&label),
            Ok(Err(FormatError::Absent(_))) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// What a part lacks.
    async fn steps(&self, first: &[MemberView], theirs: &[MemberView], drives: &[Drive]) -> Vec<(String, Step)> {
        let is_here: fn(SeatState) -> bool = |state| matches!(state, SeatState::In | SeatState::Spare);
        let known_as = |line: &MemberView, wanted: fn(SeatState) -> bool| {
            first.iter().any(|m| is_same(m, line) && wanted(m.state))
        };
        let whole = |line: &MemberView| drives.iter().find(|d| d.info().name == line.drive);
        let mut steps = vec![];
        let mut replaced: Vec<String> = vec![];
        for line in first.iter().filter(|m| is_here(m.state)) {
            let Some(drive) = whole(line).filter(|_| !theirs.iter().any(|m| is_same(m, line))) else { continue };
            // The one whose place it has in the first part; that may have forgotten it already.
            let predecessors = self.first.predecessors(MemberId(line.member));
            // One that leaves needs nobody in its place.
            let wants = |m: &&MemberView| !matches!(m.state, SeatState::Spare | SeatState::Leaving);
            let old = theirs.iter().filter(wants).filter(|m| !replaced.contains(&m.drive_name));
            let old = old.filter(|m| predecessors.contains(&m.drive_name) || !first.iter().any(|f| is_same(f, m)));
            // Of one that is out what it held is missing: that is more urgent than a copy.
            let old = old.min_by_key(|m| m.state == SeatState::In);
            let (how, seat) = match (line.state, old) {
                (SeatState::Spare, _) => (Joins::AsSpare, None),
                (_, Some(old)) => (Joins::InPlaceOf, Some(MemberId(old.member))),
                (_, None) => (Joins::ToGrow, None),
            };
            replaced.extend(old.filter(|_| seat.is_some()).map(|m| m.drive_name.clone()));
            steps.push((line.drive_name.clone(), Step::Join(how, seat, drive.clone())));
        }
        for line in theirs.iter().filter(|m| is_here(m.state) && !replaced.contains(&m.drive_name)) {
            let (name, seat) = (line.drive_name.clone(), MemberId(line.member));
            if known_as(line, is_here) {
                continue;
            }
            if known_as(line, SeatState::is_out) {
                let missing = first.iter().any(|m| is_same(m, line) && m.missing);
                if line.state == SeatState::In {
                    steps.push((name, if missing { Step::Miss(seat) } else { Step::Fail(seat) }));
                }
            } else if known_as(line, |state| state == SeatState::Leaving) || self.has_left(whole(line)).await {
                steps.push((name, Step::Retire(seat)));
            }
        }
        steps
    }
}

/// Whether two parts speak of one drive.
fn is_same(a: &MemberView, b: &MemberView) -> bool {
    a.drive_name == b.drive_name || (!a.drive.is_empty() && a.drive == b.drive)
}
