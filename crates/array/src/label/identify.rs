//! What a drive is to us, from its labels.

use base::{ArrayUuid, MemberId, MemberUuid};
use ondisk::label::PARTS_MAX;
use ondisk::{Generation, Label};
use rt::{Drive, IoError};

use super::read::{is_anothers, read_label, read_slot};
use super::slices::Slices;
use crate::canary::{Canary, planted};

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
