//! The first step of an open that writes: is anybody else there? Then the claim, see `claim.rs`.

use std::collections::BTreeMap;

use futures::future::join_all;
use ondisk::{OwnerMark, OwnerState};
use rt::{Buf, Drive, Host, IoError, Nanos, Reserved, Rt};

use super::mark::{Place, Seen, host_of, in_use, owner_text, place_of};
use super::{OwnerHow, WATCH, claim, fence};
use crate::canary::{Canary, planted};
use crate::fault::Refused;
use crate::label::read::read_label_patiently;
use crate::member::carried::{BEFORE, Carried};

/// Between two looks at what is watched.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

/// The right to write an array, not used yet.
pub struct Admitted {
    pub(super) rt: Rt,
    pub(super) host: Host,
    pub(super) carried: Carried,
    /// Every mark of every member that was found.
    pub(super) places: Vec<Place>,
    /// What can be reserved: the drives, all of them or none.
    pub(super) drives: Vec<Drive>,
}

/// What is known of other owners before anything is written.
pub(super) struct Known {
    /// When the looking began.
    pub(super) since: Nanos,
    /// What each place held then: a mark that has not changed since has no owner at work.
    pub(super) seen: Vec<Option<Buf>>,
    /// Who has reserved each drive, where all tell.
    pub(super) holders: Option<Vec<Option<u64>>>,
    /// Nobody is there who would have to be waited for.
    pub(super) nobody: bool,
    /// The holders are known to be dead: their reservations are as good as none.
    pub(super) holders_dead: bool,
}

/// Looks whether another server has the array whose parts lie on these slices of `drives`, and claims it. `None` when nobody
/// else can reach the drives.
///
/// # Errors
/// When another server has it, or may have; then nothing was written.
pub async fn admit(
    rt: &Rt,
    parts: &[Vec<Drive>],
    drives: &[Drive],
    how: OwnerHow,
) -> Result<Option<Admitted>, Refused> {
    if drives.iter().all(|d| !d.info().shared) {
        return Ok(None);
    }
    let slices = parts.iter().flatten();
    let places = join_all(slices.map(|slice| async move {
        let label = read_label_patiently(rt, slice).await.ok()?.ok()?;
        place_of(slice, &label).await
    }));
    let places: Vec<Place> = places.await.into_iter().flatten().collect();
    let Some(first) = places.first() else { return Ok(None) };
    let name = first.array_name.clone();
    let known = look(rt, &name, &places, drives, how).await?;
    let lives = known.1.iter().find(|mark| mark.state != OwnerState::Released).map_or(0, |mark| mark.session);
    let taken_from = if how.take_over { lives } else { 0 };
    let mut before = [0; BEFORE];
    before.iter_mut().zip(&known.1).for_each(|(slot, mark)| *slot = mark.session);
    let can_reserve = known.0.holders.is_some();
    let unsure = !known.0.nobody || how.take_over;
    let mut carried = Carried { taken_from, before, unsure, ..Carried::new(rt) };
    if can_reserve && how.reserve {
        carried.key = Some(Carried::new_key(rt));
    }
    let drives = if can_reserve { drives.to_vec() } else { Vec::new() };
    let admitted = Admitted { rt: rt.clone(), host: rt.host(), carried, places, drives };
    match claim::claim(&admitted, &known.0, how.take_over).await {
        Ok(()) => Ok(Some(admitted)),
        Err(refused) => {
            admitted.withdraw().await;
            Err(refused)
        }
    }
}

/// What there is of others: their marks, newest first.
async fn look(
    rt: &Rt,
    name: &str,
    places: &[Place],
    drives: &[Drive],
    how: OwnerHow,
) -> Result<(Known, Vec<OwnerMark>), Refused> {
    let reserved = join_all(drives.iter().map(|drive| fence::look(rt, drive))).await;
    let mut since = rt.now();
    let blocks = join_all(places.iter().map(|place| place.read(rt))).await;
    let mut marks: BTreeMap<u128, OwnerMark> = BTreeMap::new();
    let silent = blocks.iter().filter(|block| matches!(block, Err(IoError::TimedOut))).count();
    if silent * 2 >= places.len() && !planted(Canary::SlowMarkSkipped) {
        let why = format!("{silent} of {} drives do not answer, so another server may have it", places.len());
        return Err(in_use(name, why));
    }
    let seen: Vec<Option<Buf>> = blocks.iter().map(|block| block.as_ref().ok().map(|b| Buf::from_slice(b))).collect();
    let mut watched: Vec<(&Place, Buf)> = Vec::new();
    let mut over_marks: Vec<OwnerMark> = Vec::new();
    for (place, block) in places.iter().zip(blocks) {
        let Ok(block) = block else { continue };
        match Seen::of(&block, place.array) {
            _ if planted(Canary::MarkIgnored) => {}
            Seen::Nothing => {}
            Seen::Mark(mark) => {
                let over = mark.state == OwnerState::Released || rt.is_dead(&host_of(&mark));
                if mark.state == OwnerState::Released {
                    over_marks.push((*mark).clone());
                }
                if !over {
                    watched.push((place, block));
                }
                marks.insert(mark.session, *mark);
            }
            Seen::Unclear => watched.push((place, block)),
        }
    }
    let held_by: Vec<u64> = reserved.iter().flatten().filter_map(|r| r.holder).collect();
    let by_key = |key: u64| marks.values().find(|mark| mark.key == key);
    let is_dead = |mark: &OwnerMark| mark.state == OwnerState::Released || rt.is_dead(&host_of(mark));
    let rebooted = |mark: &OwnerMark| {
        let own = rt.host();
        own.machine != 0 && own.machine == mark.machine && own.boot != 0 && mark.boot != 0 && own.boot != mark.boot
    };
    let stranger = held_by.iter().find(|key| !by_key(**key).is_some_and(|mark| is_dead(mark) || rebooted(mark)));
    if let Some(key) = stranger.filter(|_| !how.take_over) {
        let who = by_key(*key).map_or_else(|| "no mark names the owner".to_owned(), owner_text);
        return Err(in_use(name, format!("its drives are reserved by key {key:#018x}: {who}")));
    }
    // One that has said on any drive that it is over is, whatever the others say: they were not there.
    let released: Vec<u128> = over_marks.iter().map(|mark| mark.session).collect();
    let is_over = |place: &Place, block: &[u8]| match Seen::of(block, place.array) {
        Seen::Mark(mark) => released.contains(&mark.session) && !planted(Canary::ReleasedWatched),
        Seen::Nothing | Seen::Unclear => false,
    };
    watched.retain(|(place, block)| !is_over(place, block));
    let lives = |mark: &&OwnerMark| {
        let host = host_of(mark);
        !released.contains(&mark.session) && host != rt.host() && rt.is_living(&host) && !planted(Canary::LivingWatched)
    };
    if let Some(mark) = marks.values().find(lives).filter(|_| !how.take_over) {
        return Err(in_use(name, format!("it is in use: {}", owner_text(mark))));
    }
    if !watched.is_empty() && !how.take_over {
        if let Some(moved) = watch(rt, &watched).await {
            return Err(in_use(name, format!("it is in use: {moved}")));
        }
        since = rt.now();
    }
    let all_tell = !reserved.is_empty() && reserved.iter().all(Result::is_ok);
    let holders = all_tell.then(|| reserved.into_iter().flatten().map(|r: Reserved| r.holder).collect());
    let holders_dead = held_by.iter().all(|key| by_key(*key).is_some_and(is_dead));
    let known = Known { since, seen, holders, nobody: watched.is_empty(), holders_dead };
    let mut marks: Vec<OwnerMark> = marks.into_values().collect();
    marks.sort_by_key(|mark| std::cmp::Reverse(mark.since));
    Ok((known, marks))
}

/// Watches marks; who wrote the one that changed.
pub(super) async fn watch(rt: &Rt, watched: &[(&Place, Buf)]) -> Option<String> {
    let until = rt.now() + WATCH;
    loop {
        rt.sleep(LOOK_EVERY.min(until - rt.now())).await;
        for ((place, before), now) in watched.iter().zip(join_all(watched.iter().map(|(p, _)| p.read(rt))).await) {
            let Ok(now) = now else { continue };
            if now[..] == before[..] {
                continue;
            }
            match Seen::of(&now, place.array) {
                // Handed over meanwhile.
                Seen::Mark(mark) if mark.state == OwnerState::Released => {}
                Seen::Mark(mark) => return Some(owner_text(&mark)),
                Seen::Nothing | Seen::Unclear => {
                    let drive = &place.drive.info().name;
                    return Some(format!(
                        "the owner mark on drive {drive} changes and cannot be read; a newer Ashlar may write it"
                    ));
                }
            }
        }
        if rt.now() >= until {
            return None;
        }
    }
}

impl Admitted {
    /// What the parts have to know.
    #[must_use]
    pub fn carried(&self) -> Carried {
        self.carried
    }

    /// Gives up the claim, where it still stands: nothing is left of it, since nothing was done by it. (A mark that says
    /// released would stop an owner that it was written over.)
    pub async fn withdraw(self) {
        for place in &self.places {
            let Ok(block) = place.read(&self.rt).await else { continue };
            if matches!(Seen::of(&block, place.array), Seen::Mark(mark) if mark.session == self.carried.session) {
                let _may_fail = place.erase(&self.rt).await;
            }
        }
        if let Some(key) = self.carried.key {
            let left = join_all(self.drives.iter().map(|drive| fence::leave(&self.rt, drive, key))).await;
            drop(left);
        }
    }
}
