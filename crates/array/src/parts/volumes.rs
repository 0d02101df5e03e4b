//! The volumes of an array in parts: each is in every part, in stripes.
//!
//! Part 0 is what counts: a volume is there when part 0 has it, as large as that says. In the others its name is the
//! identity that it has in part 0. They have it before part 0 does, and for as long; so whatever a crash leaves behind
//! is more than there should be, and goes at the next open.
//!
//! Invariant: what part 0 has, the others have at least as large.

use std::collections::BTreeMap;

use api::VolumeView;
use base::BLOCK_BYTES;
use ondisk::Limits;
use uuid::Uuid;

use super::Whole;
use crate::canary::{Canary, planted};
use crate::fault::{Refused, RefusedCode};
use crate::space::plan::check_name;

/// Volumes are dealt to parts in stripes of this length, and are whole rounds of them.
pub const STRIPE_BYTES: u64 = 1 << 20;

impl Whole {
    /// What a part has of a volume of `bytes`.
    fn share(&self, bytes: u64) -> u64 {
        match self.count() {
            1 => bytes,
            parts => bytes.div_ceil(STRIPE_BYTES * parts).saturating_mul(STRIPE_BYTES),
        }
    }

    /// Makes a volume of `bytes`, in an array in parts rounded up to whole stripes in each.
    ///
    /// # Errors
    /// As [`Array::volume_create`](crate::Array::volume_create).
    pub async fn volume_create(&self, name: &str, bytes: u64) -> Result<(), Refused> {
        let share = self.share(bytes);
        if self.others.is_empty() {
            return self.first.volume_create(name, share).await;
        }
        // What can be refused is refused before anything is made.
        check_name(name)?;
        self.first.may_create(name, share)?;
        let uuid = self.first.new_identity();
        let others = async {
            if planted(Canary::FirstPartFirst) {
                self.first.volume_create_as(name, share, uuid).await?;
            }
            for part in &*self.others {
                let tag = uuid.to_string();
                part.ask(move |array| async move { array.volume_create(&tag, share).await }).await??;
            }
            // Somebody may have taken the name meanwhile.
            if planted(Canary::FirstPartFirst) { Ok(()) } else { self.first.may_create(name, share) }
        };
        if let Err(refused) = others.await {
            // What is left of it goes at the next open at the latest.
            drop(self.delete_in_others(uuid).await);
            return Err(refused);
        }
        if planted(Canary::FirstPartFirst) {
            return Ok(());
        }
        let made = self.first.volume_create_as(name, share, uuid).await;
        // From here on the first part may have it after all: who closes the array meanwhile writes a generation with it.
        if made.is_err() && planted(Canary::TakenBackUnasked) {
            drop(self.delete_in_others(uuid).await);
        }
        made
    }

    /// Makes a volume larger.
    ///
    /// # Errors
    /// As [`Array::volume_grow`](crate::Array::volume_grow).
    pub async fn volume_grow(&self, name: &str, bytes: u64) -> Result<(), Refused> {
        let share = self.share(bytes);
        if self.others.is_empty() {
            return self.first.volume_grow(name, share).await;
        }
        let uuid = self.first.may_grow_to(name, share)?;
        for part in &*self.others {
            let tag = uuid.to_string();
            part.ask(move |array| async move { grown_at_least(&array, &tag, share).await }).await??;
        }
        self.first.volume_grow(name, share).await
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// As [`Array::volume_rename`](crate::Array::volume_rename).
    pub async fn volume_rename(&self, name: &str, to: &str) -> Result<(), Refused> {
        self.first.volume_rename(name, to).await
    }

    /// Limits what the hosts of a volume may take, of all parts together.
    ///
    /// # Errors
    /// As [`Array::volume_limit`](crate::Array::volume_limit).
    pub async fn volume_limit(&self, name: &str, limits: Limits) -> Result<(), Refused> {
        self.first.volume_limit(name, limits).await
    }

    /// Deletes a volume; returns when that is durable.
    ///
    /// # Errors
    /// As [`Array::volume_delete`](crate::Array::volume_delete).
    pub async fn volume_delete(&self, name: &str) -> Result<(), Refused> {
        let uuid = self.first.volume(name).map(|volume| volume.uuid());
        self.first.volume_delete(name).await?;
        match uuid {
            Some(uuid) => self.delete_in_others(uuid).await,
            None => Ok(()),
        }
    }

    /// Deletes what the other parts have of a volume that is gone.
    async fn delete_in_others(&self, uuid: Uuid) -> Result<(), Refused> {
        for part in &*self.others {
            let tag = uuid.to_string();
            let delete = move |array: crate::Array| async move {
                match array.volume(&tag) {
                    Some(_) => array.volume_delete(&tag).await,
                    None => Ok(()),
                }
            };
            part.ask(delete).await??;
        }
        Ok(())
    }

    /// Brings the other parts in line with part 0 after an open for writing: deletes what a crash has left.
    ///
    /// # Errors
    /// When a part lacks what part 0 has.
    pub(super) async fn line_up(&self) -> Result<(), Refused> {
        let live = |volumes: Vec<VolumeView>| volumes.into_iter().filter(|v| v.state == api::VolumeState::Live);
        let wanted: BTreeMap<String, VolumeView> =
            live(self.first.volumes()).map(|volume| (volume.uuid.to_string(), volume)).collect();
        for (part, number) in self.others.iter().zip(2..) {
            let there: BTreeMap<String, u64> = part
                .ask(move |array| async move { live(array.volumes()).map(|v| (v.name.to_string(), v.bytes)).collect() })
                .await?;
            for (tag, volume) in &wanted {
                if there.get(tag).is_none_or(|bytes| *bytes < volume.bytes) {
                    return Err(lacks(number, &volume.name));
                }
            }
            let left = there.into_keys().filter(|tag| !wanted.contains_key(tag) && !planted(Canary::LeftInParts));
            for tag in left {
                part.ask(move |array| async move { array.volume_delete(&tag).await }).await??;
            }
        }
        Ok(())
    }
}

/// Makes what a part has of a volume as large as it shall be, unless an interrupted try has done so already.
async fn grown_at_least(array: &crate::Array, tag: &str, bytes: u64) -> Result<(), Refused> {
    match array.volume(tag) {
        Some(volume) if volume.bytes() >= bytes => Ok(()),
        _ => array.volume_grow(tag, bytes).await,
    }
}

fn lacks(part: usize, volume: &str) -> Refused {
    Refused::new(
        RefusedCode::Damaged,
        format!("part {part} of the array"),
        format!("it lacks volume \"{volume}\", which part 1 has: their histories differ"),
        "Open the array for reading only, and copy what is there",
    )
}

const _: () = assert!(STRIPE_BYTES.is_multiple_of(BLOCK_BYTES as u64));
