//! The verbs on the drives of an array in parts: each is done in all of them.
//!
//! What a user calls a seat is that of the first part; in the others the member is found by its drive, since the parts
//! give numbers out each for itself. A drive that only another part has is called by a number that no seat of the first
//! part has ([`seat_of_part`]): the same number may be another drive's there. What can be refused is refused before any
//! part has changed. A drive joins the first part first: its first block then says whose it is. When it cannot join
//! another part (a write fails), the same command again lets it join there, and leaves those alone that have it; where a
//! crash comes between, the next open does (`finish.rs`).
//!
//! Invariant: a drive that leaves is free when it has left all parts.

use api::Remedy;
use base::MemberId;
use ondisk::Rate;
use ondisk::generation::SEATS_MAX;
use ondisk::label::PARTS_MAX;
use rt::Drive;

use super::Whole;
use super::part::Part;
use crate::engine::Array;
use crate::fault::{Refused, RefusedCode};
use crate::label::slices::slices_of;
use crate::member::seat::Seat;
use crate::open::create::{drive_name, refuse_labelled};

/// How a drive joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joins {
    InPlaceOf,
    AsSpare,
    ToGrow,
}

impl Whole {
    /// The member of each part that the user calls `seat`.
    async fn seats(&self, seat: MemberId) -> Result<Vec<Option<MemberId>>, Refused> {
        let (index, there) = (usize::from(seat.0) / SEATS_MAX, MemberId(seat.0 % SEATS_MAX as u16));
        if index > self.others.len() {
            return Err(Refused { what: format!("seat {}", seat.0), ..no_place() });
        }
        let drive = self.part(index).ask(move |array| async move { array.drive_of(there) }).await??;
        let mut seats = vec![if index == 0 { Some(seat) } else { self.first.seat_of(there, &drive) }];
        for part in &*self.others {
            let drive = drive.clone();
            seats.push(part.ask(move |array| async move { array.seat_of(there, &drive) }).await?);
        }
        Ok(seats)
    }

    /// One of the parts.
    pub(super) fn part(&self, index: usize) -> Part {
        index.checked_sub(1).map_or_else(|| Part::Here(self.first.clone()), |other| self.others[other].clone())
    }

    /// All parts, the first one first.
    fn each(&self) -> impl Iterator<Item = Part> {
        std::iter::once(Part::Here(self.first.clone())).chain(self.others.iter().cloned())
    }

    /// Does `verb` to the member of each part that is `seat` in the first, when `may` lets it in all. A part that has
    /// no such member has nothing to do.
    async fn to_member<M, F>(
        &self,
        seat: MemberId,
        may: impl FnOnce(Array, MemberId) -> M + Clone + Send + 'static,
        verb: impl FnOnce(Array, MemberId) -> F + Clone + Send + 'static,
    ) -> Result<(), Refused>
    where
        M: Future<Output = Result<(), Refused>> + 'static,
        F: Future<Output = Result<(), Refused>> + 'static,
    {
        let seats = self.seats(seat).await?;
        let there = || self.each().zip(&seats).filter_map(|(part, seat)| Some((part, (*seat)?)));
        for (part, seat) in there() {
            let may = may.clone();
            part.ask(move |array| may(array, seat)).await??;
        }
        for (part, seat) in there() {
            let verb = verb.clone();
            part.ask(move |array| verb(array, seat)).await??;
        }
        Ok(())
    }

    /// Takes a member out.
    ///
    /// # Errors
    /// When the redundancy of some part does not cover it.
    pub async fn drive_fail(&self, seat: MemberId) -> Result<(), Refused> {
        let may = |array: Array, seat| async move { array.may_fail_asked(seat).await.map(drop) };
        self.to_member(seat, may, |array, seat| async move { array.drive_fail(seat).await }).await
    }

    /// Whether some part has no redundancy left somewhere once it has lost a member that it may lose.
    ///
    /// # Errors
    /// When there is no such member, or the core of a part has ended.
    pub async fn uses_up_redundancy(&self, seat: MemberId) -> Result<bool, Refused> {
        let mut any = false;
        for (part, seat) in self.each().zip(self.seats(seat).await?) {
            if let Some(seat) = seat {
                any |= part.ask(move |array| async move { array.uses_up_redundancy(seat).await }).await?;
            }
        }
        Ok(any)
    }

    /// Lets a member go for good; see [`Array::drive_retire`].
    ///
    /// # Errors
    /// When some part cannot do without it.
    pub async fn drive_retire(&self, seat: MemberId) -> Result<(), Refused> {
        let may = |array: Array, seat| async move { array.may_leave(seat).map(drop) };
        self.to_member(seat, may, |array, seat| async move { array.drive_retire(seat).await }).await
    }

    /// Resolves when a member that leaves has left all parts, or stays in one after all; whether it has left.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn drive_left(&self, seat: MemberId) -> Result<bool, Refused> {
        // One that has left the first part may be leaving others: there its seat is known by what it was.
        let mut left = true;
        for (part, seat) in self.each().zip(self.seats(seat).await?) {
            if let Some(seat) = seat {
                left &= part.ask(move |array| async move { array.drive_left(seat).await }).await?;
            }
        }
        Ok(left)
    }

    /// A new drive takes the place of a seat's; see [`Array::drive_replace`]. In a part where another has that place
    /// already (a spare), or nobody ever had it, it becomes a spare.
    ///
    /// # Errors
    /// When the drive is too small for a part or belongs to an array, or the place is taken.
    pub async fn drive_replace(&self, seat: MemberId, with: Drive, force: bool) -> Result<(), Refused> {
        let seats = self.seats(seat).await?;
        self.join(Joins::InPlaceOf, seats, with, force).await
    }

    /// Adds a drive that takes the place of the next one to fail.
    ///
    /// # Errors
    /// When the drive is too small for a part or belongs to an array.
    pub async fn drive_add_spare(&self, drive: Drive, force: bool) -> Result<(), Refused> {
        self.join(Joins::AsSpare, self.each().map(|_| None).collect(), drive, force).await
    }

    /// Adds a drive that takes part.
    ///
    /// # Errors
    /// When the drive is too small for a part or belongs to an array.
    pub async fn drive_grow(&self, drive: Drive, force: bool) -> Result<(), Refused> {
        self.join(Joins::ToGrow, self.each().map(|_| None).collect(), drive, force).await
    }

    async fn join(&self, how: Joins, seats: Vec<Option<MemberId>>, drive: Drive, force: bool) -> Result<(), Refused> {
        let info = drive.info().clone();
        let slices = slices_of(&drive, self.count() as u8)?;
        let mut wanting = vec![];
        let mut has_place = how != Joins::InPlaceOf;
        for ((part, seat), slice) in self.each().zip(&seats).zip(slices) {
            let (name, path, seat) = (drive_name(&drive), info.name.clone(), *seat);
            let blocks = slice.info().blocks;
            let lacks = part.ask(move |array| async move {
                if array.has_drive(&name) {
                    return Ok(None);
                }
                array.layout_for(&path, blocks)?;
                let fits = |old: Option<&Seat>| match force {
                    true => Ok(()),
                    false => array.may_be_smaller(old, &path, blocks),
                };
                match (how, seat.filter(|seat| !array.place_is_taken(*seat))) {
                    (Joins::InPlaceOf, Some(seat)) => {
                        let old = array.may_replace(seat)?;
                        fits(Some(&old))?;
                        Ok(Some((how, Some(seat))))
                    }
                    // Another is there in this part, or nobody ever was: it stands by for the next one to fail.
                    (Joins::InPlaceOf, None) => array.may_join().map(|()| Some((Joins::AsSpare, None))),
                    (Joins::AsSpare, _) => {
                        array.may_join()?;
                        fits(None)?;
                        Ok(Some((how, None)))
                    }
                    (Joins::ToGrow, _) => array.may_join().map(|()| Some((how, None))),
                }
            });
            match lacks.await?? {
                Some((how, seat)) => {
                    has_place |= how == Joins::InPlaceOf;
                    wanting.push((part, how, seat, slice));
                }
                // The same command again.
                None => has_place = true,
            }
        }
        if !has_place {
            let refused = seats[0].and_then(|seat| self.first.may_replace(seat).err());
            return Err(refused.unwrap_or_else(no_place));
        }
        match wanting.len() as u64 {
            0 => {
                let (what, why) = (format!("drive {}", info.name), "it is already in the array");
                return Err(Refused::new(RefusedCode::InUse, what, why, "Name another drive"));
            }
            // What its first block says is this array's, when it has joined a part.
            all if all == self.count() && !force => refuse_labelled(&drive).await?,
            _ => {}
        }
        for (part, how, seat, slice) in wanting {
            part.joins(how, seat, slice).await?;
        }
        Ok(())
    }

    /// Resolves when no rebuild is running or about to in any part, or it is paused.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn rebuild_done(&self) -> Result<(), Refused> {
        Ok(self.all(|array| async move { array.rebuild_done().await }).await.map(drop)?)
    }

    /// Sets how fast rebuilds go, all parts together; kept over restarts.
    ///
    /// # Errors
    /// When the array is not writable, or the rate is 0.
    pub async fn rebuild_rate(&self, rate: Rate) -> Result<(), Refused> {
        let rate = match rate {
            Rate::Bytes(all) => Rate::Bytes(all.div_ceil(self.count())),
            Rate::Low | Rate::Medium | Rate::High => rate,
        };
        self.all(move |array| async move { array.rebuild_rate(rate).await }).await?.into_iter().collect()
    }

    /// Has rebuilds wait, or go on; kept over restarts.
    ///
    /// # Errors
    /// When the array is not writable.
    pub async fn rebuild_pause(&self, paused: bool) -> Result<(), Refused> {
        self.all(move |array| async move { array.rebuild_pause(paused).await }).await?.into_iter().collect()
    }
}

impl Part {
    /// A slice joins this part.
    pub(super) async fn joins(&self, how: Joins, seat: Option<MemberId>, slice: Drive) -> Result<(), Refused> {
        self.ask_with(slice, async move |array, slice| joins(array, how, seat, slice).await).await
    }
}

/// What a user calls a seat of the part with this index when no other part has its drive.
pub(super) fn seat_of_part(index: usize, seat: u16) -> u16 {
    (index * SEATS_MAX) as u16 + seat
}

/// A slice joins its part.
async fn joins(array: Array, how: Joins, seat: Option<MemberId>, slice: Drive) -> Result<(), Refused> {
    // What was sent to it in its former life must not arrive in the new one: of that this handle knows nothing.
    let same = |d: &Drive| d.info().stable_name == slice.info().stable_name;
    for former in array.former_drives().into_iter().filter(same) {
        former.idle().await;
    }
    match (how, seat) {
        (Joins::InPlaceOf, Some(seat)) => array.drive_replace(seat, slice, true).await,
        (Joins::InPlaceOf, None) => Err(no_place()),
        (Joins::AsSpare, _) => array.drive_add_spare(slice, true).await,
        (Joins::ToGrow, _) => array.drive_grow(slice, true).await,
    }
}

fn no_place() -> Refused {
    let why = "a part of the array has no such drive";
    Refused::new(RefusedCode::NotFound, "the drive to replace", why, "Name another drive").by(Remedy::ListSeats)
}

const _: () = assert!(SEATS_MAX * (PARTS_MAX as usize) <= u16::MAX as usize);
