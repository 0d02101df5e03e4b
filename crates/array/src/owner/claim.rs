//! The claim: one's own marks on all members, the reservations, and then the wait for whoever might be there after all.
//!
//! The mark with the key comes before the reservation, so that a holder is always known by its mark. Only where another holds the
//! drives they are reserved first: nothing can be written before.

use std::time::Duration;

use futures::future::join_all;
use ondisk::OwnerState;
use rt::{IoError, Reserve, ReserveError};

use super::admit::{Admitted, Known};
use super::mark::{Place, Seen, in_use, owner_text};
use super::{QUICK, SETTLE, TAKE_OVER, fence};
use crate::canary::{Canary, planted};
use crate::fault::Refused;

/// Between two looks while a claim waits: it has to be seen moving.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn claim(admitted: &Admitted, known: &Known, take_over: bool) -> Result<(), Refused> {
    let rt = &admitted.rt;
    let mut written = false;
    if known.holders_dead {
        written = mark_all(admitted, 1).await.is_ok();
    }
    let fenced = reserve(admitted, known).await?;
    if !written {
        mark_all(admitted, 1).await.map_err(|e| conflict(admitted, &e.to_string()))?;
    }
    let quick = rt.now() - known.since <= QUICK;
    let wait = match () {
        // Drives that are reserved refuse the other's writes at once. What it reads it answers until it has looked at the marks.
        () if fenced && (known.nobody || !take_over || planted(Canary::ReadsOutlast)) => Duration::ZERO,
        () if fenced => SETTLE,
        () if known.nobody && quick => QUICK,
        () if take_over => TAKE_OVER,
        () => SETTLE,
    };
    stand(admitted, known, wait, take_over).await
}

/// Writes the claim on every member; an error only when another host has reserved one.
async fn mark_all(admitted: &Admitted, beat: u64) -> Result<(), IoError> {
    let write = |place: &Place| {
        let mark = admitted.carried.mark(&admitted.host, place.array, OwnerState::Claimed, beat);
        let place = place.clone();
        async move { place.write(&admitted.rt, &mark).await }
    };
    let written = join_all(admitted.places.iter().map(write)).await;
    // A drive that cannot write its mark cannot write anything else either.
    if written.contains(&Err(IoError::Conflict)) { Err(IoError::Conflict) } else { Ok(()) }
}

/// Reserves all drives, from their holders where there are some; or ends the reservations of those that are dead. True when
/// they are this server's from now on.
async fn reserve(admitted: &Admitted, known: &Known) -> Result<bool, Refused> {
    let Some(holders) = &known.holders else { return Ok(false) };
    let Some(key) = admitted.carried.key else {
        return match end_others(admitted, holders).await {
            Ok(()) => Ok(false),
            Err(e) => Err(conflict(admitted, &e.to_string())),
        };
    };
    let mut fenced = true;
    for (drive, holder) in admitted.drives.iter().zip(holders) {
        let name = &drive.info().name;
        match fence::take(drive, key, *holder).await {
            // Who had it by the same way to the drive (the same host identity) is not shut out.
            Ok(preempted) => fenced &= preempted || holder.is_none() || known.holders_dead,
            Err(e) => return Err(conflict(admitted, &format!("drive {name} cannot be reserved: {e}"))),
        }
        match fence::look(&admitted.rt, drive).await {
            Ok(reserved) if reserved.holder == Some(key) => {}
            Ok(_) => return Err(conflict(admitted, &format!("drive {name} was reserved by another host meanwhile"))),
            Err(e) => return Err(conflict(admitted, &format!("cannot read who has reserved drive {name}: {e}"))),
        }
    }
    Ok(fenced || planted(Canary::SameHostFenced))
}

/// Reservations that are left over, where none are wanted.
async fn end_others(admitted: &Admitted, holders: &[Option<u64>]) -> Result<(), ReserveError> {
    for (drive, holder) in admitted.drives.iter().zip(holders) {
        if holder.is_some() {
            let key = super::Carried::new_key(&admitted.rt);
            fence::take(drive, key, *holder).await?;
            drive.reserve(Reserve::Leave(key)).await?;
        }
    }
    Ok(())
}

/// Waits with the claim in sight, and looks for others.
async fn stand(admitted: &Admitted, known: &Known, wait: Duration, take_over: bool) -> Result<(), Refused> {
    let rt = &admitted.rt;
    let mut until = rt.now() + wait;
    let end = rt.now() + wait * 2;
    let mut beat = 1;
    loop {
        rt.sleep(LOOK_EVERY.min(until - rt.now())).await;
        if let Some(other) = another(admitted, known).await {
            // Who is being taken over may have written once more before it looked.
            if !take_over || rt.now() >= end {
                return Err(in_use(
                    &admitted.places[0].array_name,
                    format!("another server has it or is opening it: {other}"),
                ));
            }
            until = end;
        }
        if rt.now() >= until {
            return Ok(());
        }
        beat += 1;
        mark_all(admitted, beat).await.map_err(|e| conflict(admitted, &e.to_string()))?;
    }
}

/// Who wrote over the claim. A mark that is as it was before the claim stands where that could not be written.
async fn another(admitted: &Admitted, known: &Known) -> Option<String> {
    if planted(Canary::MarkIgnored) {
        return None;
    }
    let blocks = join_all(admitted.places.iter().map(|place| place.read(&admitted.rt))).await;
    let now = admitted.places.iter().zip(&known.seen).zip(blocks);
    let mut others = now.filter_map(|((place, before), block)| {
        let block = block.ok()?;
        let is_as_before = before.as_ref().is_some_and(|before| before[..] == block[..]);
        match Seen::of(&block, place.array) {
            _ if is_as_before && !planted(Canary::OldMarkLives) => None,
            Seen::Mark(mark) if mark.session != admitted.carried.session => Some(owner_text(&mark)),
            Seen::Mark(_) | Seen::Nothing | Seen::Unclear => None,
        }
    });
    others.next()
}

fn conflict(admitted: &Admitted, why: &str) -> Refused {
    in_use(&admitted.places[0].array_name, why.to_owned())
}
