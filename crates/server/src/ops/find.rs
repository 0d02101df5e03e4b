//! `import` without an array's name: says which arrays the drives carry, and opens none.
//!
//! Invariant: drives are opened for reading, without their lock; nothing is written.

use api::{FindRequest, FoundArrayView, FoundArrays, FoundMemberView, Problem, Prospect, VERSION};
use array::owner;
use rt::{Drive, OpenDrive, OpenError};
use uuid::Uuid;

use super::World;
use crate::drives::find::{self, FoundArray};

/// Looks for arrays. `served` are those that the running Ashlar serves.
///
/// # Errors
/// When a place cannot be listed, or the list of known arrays cannot be read.
pub async fn run(world: &World, request: &FindRequest, served: &[Uuid]) -> Result<FoundArrays, Problem> {
    let places: Vec<_> = request.places.iter().map(Into::into).collect();
    let known = world.registry.list()?;
    let drives: Vec<_> = known.iter().flat_map(|k| k.drives.clone()).map(Into::into).collect();
    let found = find::search(&world.rt, &places, &drives).await?;
    let mut all = FoundArrays {
        version: VERSION,
        looked_at: found.looked_at as u64,
        problems: found.problems,
        ..FoundArrays::default()
    };
    for array in &found.arrays {
        let view = FoundArrayView {
            name: array.name.clone(),
            uuid: array.uuid,
            known: known.iter().any(|k| k.uuid == array.uuid),
            served: served.contains(&array.uuid),
            ..FoundArrayView::default()
        };
        all.arrays.push(look_at(world, array, view).await);
    }
    Ok(all)
}

async fn look_at(world: &World, array: &FoundArray, view: FoundArrayView) -> FoundArrayView {
    let mut drives = vec![];
    for drive in &array.drives {
        let how = OpenDrive { read_only: true, lock: false };
        // One that is gone again is not here.
        if let Ok(drive) = Drive::open(&world.rt, drive.stable_name.as_ref(), how).await {
            drives.push(drive);
        }
    }
    let used_by = match view.served {
        true => None,
        false => used_by(world, &drives).await,
    };
    let view = FoundArrayView { used_by, ..view };
    match array::survey(&world.rt, &drives).await {
        Ok(Some(survey)) => told(view, &survey, &drives),
        Ok(None) => FoundArrayView { why: Some("no drive holds a readable generation".to_owned()), ..view },
        Err(refused) => FoundArrayView { why: Some(format!("{}: {}", refused.what, refused.why)), ..view },
    }
}

/// Who has the drives: as their marks tell, or their locks.
async fn used_by(world: &World, drives: &[Drive]) -> Option<String> {
    for drive in drives {
        let how = OpenDrive { read_only: true, lock: true };
        let open = Drive::open(&world.rt, drive.info().stable_name.as_ref(), how).await;
        if matches!(open, Err(OpenError::Locked(_))) {
            return Some("another program on this machine, which has locked its drives".to_owned());
        }
    }
    owner::in_use(&world.rt, drives).await.map(|user| user.by)
}

fn told(view: FoundArrayView, survey: &array::Survey, drives: &[Drive]) -> FoundArrayView {
    let (of, found) = survey.counts();
    let members = survey.members.iter().map(|m| FoundMemberView {
        seat: m.bay,
        state: m.state,
        drive_name: m.drive_name.clone(),
        drive: m.here.map(|n| drives[n].info().stable_name.clone()),
    });
    FoundArrayView {
        name: survey.name.clone(),
        level: Some(survey.level.to_string()),
        drives_found: found as u64,
        drives_of: of as u64,
        prospect: survey.prospect,
        members: members.collect(),
        ..view
    }
}

/// What a verb that only looks says where an open asks for --degraded.
pub const HALF_MISSING: &str = "half or fewer of its drives are here: the others may hold a newer state";

/// Whether an open of the array of these drives asks for --degraded.
pub async fn is_half_missing(world: &World, drives: &[Drive]) -> bool {
    let survey = array::survey(&world.rt, drives).await;
    survey.is_ok_and(|survey| survey.is_some_and(|s| s.prospect == Prospect::FewerThanHalf))
}

/// How it would open, for people.
#[must_use]
pub fn prospect_words(prospect: Prospect) -> &'static str {
    match prospect {
        Prospect::Whole => "all drives are here",
        Prospect::Degraded => "would open degraded",
        Prospect::FewerThanHalf => "would open degraded, with --degraded only: half or fewer of its drives are here",
        Prospect::LacksDrives => "cannot be opened: too many drives are missing",
        Prospect::Unknown => "unknown: its drives do not say",
    }
}
