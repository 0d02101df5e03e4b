//! Looking at drives for somebody who has not opened them: is their array in use?

use futures::future::join_all;
use ondisk::OwnerState;
use rt::{Buf, Drive, Rt};

use super::admit::watch;
use super::fence;
use super::mark::{Place, Seen, host_of, in_use as refusal, place_of};
use crate::fault::Refused;
use crate::label::read::read_label;
use crate::label::slices::Slices;

/// A server that uses an array.
#[derive(Clone, Debug)]
pub struct InUse {
    /// The array's name, as a drive has it.
    pub array: String,
    /// By whom.
    pub by: String,
}

/// Who uses these drives, as far as their marks and reservations tell; marks that are not known to be left over are watched.
pub async fn in_use(rt: &Rt, drives: &[Drive]) -> Option<InUse> {
    let shared: Vec<&Drive> = drives.iter().filter(|d| d.info().shared).collect();
    let places: Vec<Place> = join_all(shared.iter().map(|d| places(d))).await.into_iter().flatten().collect();
    let blocks = join_all(places.iter().map(|place| place.read(rt))).await;
    let mut watched: Vec<(&Place, Buf)> = Vec::new();
    let mut keys_of_dead: Vec<u64> = Vec::new();
    for (place, block) in places.iter().zip(blocks) {
        let Ok(block) = block else { continue };
        match Seen::of(&block, place.array) {
            // What this process itself has is for its caller to know.
            Seen::Mark(mark)
                if mark.state == OwnerState::Released || rt.is_dead(&host_of(&mark)) || host_of(&mark) == rt.host() =>
            {
                keys_of_dead.push(mark.key);
            }
            Seen::Mark(_) | Seen::Unclear => watched.push((place, block)),
            Seen::Nothing => {}
        }
    }
    for drive in &shared {
        let holder = fence::look(rt, drive).await.ok().and_then(|r| r.holder);
        if let Some(key) = holder.filter(|key| !keys_of_dead.contains(key)) {
            let array = places.first().map_or_else(String::new, |p| p.array_name.clone());
            return Some(InUse { array, by: format!("drive {} is reserved by key {key:#018x}", drive.info().name) });
        }
    }
    if watched.is_empty() {
        return None;
    }
    let by = watch(rt, &watched).await?;
    Some(InUse { array: watched[0].0.array_name.clone(), by })
}

/// Refuses what would write to drives that a server uses.
///
/// # Errors
/// When one does.
pub async fn refuse_in_use(rt: &Rt, drives: &[Drive]) -> Result<(), Refused> {
    match in_use(rt, drives).await {
        Some(user) => Err(refusal(&user.array, format!("it is in use: {}", user.by))),
        None => Ok(()),
    }
}

/// Every mark's place on a drive, of each part.
async fn places(drive: &Drive) -> Vec<Place> {
    let Ok(Ok(label)) = read_label(drive).await else { return Vec::new() };
    let Some(slices) = Slices::of_label(&label, drive.info().blocks).filter(|s| s.of() > 1) else {
        return place_of(drive, &label).await.into_iter().collect();
    };
    let mut found = Vec::new();
    for part in slices.parts() {
        let slice = slices.slice(drive, part.index);
        if let Ok(Ok(own)) = read_label(&slice).await
            && own.array == label.array
        {
            found.extend(place_of(&slice, &own).await);
        }
    }
    found
}
