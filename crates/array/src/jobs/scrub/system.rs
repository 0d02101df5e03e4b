//! A scrub of the system areas: the labels and both generations of every member.
//!
//! No commit runs meanwhile. A generation is taken from a member that has it whole, and is one of the two that are known:
//! the one in effect or the one before it; the label from its twin, or from what is known of the seat.
//!
//! Invariant: nothing is written over a generation that is not ours.

use std::rc::Rc;

use base::{BLOCK_BYTES, MemberLba};
use ondisk::{Generation, Label, MemberState};
use rt::{Buf, Bytes, IoError};

use super::course::{Course, Outcome};
use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::fault::Fault;
use crate::generation::Generations;
use crate::health::Health;
use crate::in_effect::InEffect;
use crate::label::Labels;
use crate::member::Members;
use crate::member::seat::Seat;

/// Reads the system areas.
pub(super) struct SystemScrub {
    pub(super) ctx: Rc<Context>,
    pub(super) members: Rc<Members>,
    pub(super) system: Rc<InEffect>,
    pub(super) health: Rc<Health>,
    pub(super) labels: Rc<Labels>,
    pub(super) generations: Rc<Generations>,
    pub(super) course: Rc<Course>,
}

impl SystemScrub {
    /// Reads every label and generation and puts right what is wrong.
    pub async fn scrub_system_areas(&self) -> Result<(), Fault> {
        if planted(Canary::ScrubSystemSkipped) {
            return Ok(());
        }
        let begun = self.ctx.rt.now();
        for seat in self.members.seats_in() {
            self.scrub_labels(&seat).await;
            self.members.writable()?;
        }
        let (mut lost, mut read) = (false, 0);
        {
            let _turn = self.system.turn().await;
            self.members.writable()?;
            let number = self.system.number();
            let before = self.system.predecessor();
            lost |= !self.scrub_slots(number, self.system.id(), &mut read).await?;
            if let (Some(id), Some(number)) = (before, number.checked_sub(1)) {
                lost |= !self.scrub_slots(number, id, &mut read).await?;
            }
        }
        if lost {
            // What nobody has any more is written anew.
            self.generations.commit().await?;
            self.generations.commit().await?;
        }
        self.course.scrub_pause(read, begun).await;
        Ok(())
    }

    async fn scrub_labels(&self, seat: &Rc<Seat>) {
        let mut right: Option<Label> = None;
        let mut wrong: Vec<(MemberLba, bool)> = Vec::new();
        for at in seat.layout.labels() {
            let (result, block) = seat.read(at, Buf::zeroed(BLOCK_BYTES)).await;
            let ours = |l: &Label| *l == self.labels.label_of(seat, l.array_name.clone());
            match Label::decode(&block).ok().filter(|l| result.is_ok() && ours(l)) {
                Some(label) => right = Some(label),
                None if matches!(result, Err(IoError::Gone)) => return,
                None => wrong.push((at, result.is_ok())),
            }
        }
        let label = right.unwrap_or_else(|| self.labels.label_of(seat, self.ctx.name()));
        for (at, read) in wrong {
            let image = Buf::from_slice(&label.encode_at(at)).freeze();
            self.put_right(seat, at, image, "label", read).await;
        }
    }

    /// The slot in which a generation lies, on every member that it marks in; false when none has it whole. Counts the bytes
    /// that it has read.
    async fn scrub_slots(&self, number: u64, id: u128, bytes_read: &mut u64) -> Result<bool, Fault> {
        let mut images = Vec::new();
        let mut whole: Option<(Generation, Bytes)> = None;
        for seat in self.members.seats_in() {
            let at = seat.layout.slot((number % 2) as usize);
            let (result, image) = self.generations.read_generation(&seat, at).await;
            if matches!(result, Err(IoError::Gone)) {
                continue;
            }
            *bytes_read += image.len() as u64;
            if whole.is_none()
                && result.is_ok()
                && let Ok(g) = Generation::decode(&image)
                && (g.number.0, g.id) == (number, id)
            {
                let bytes = g.encode();
                whole = Some((g, Buf::from_slice(&bytes).freeze()));
            }
            images.push((seat, at, result.is_ok(), image));
        }
        self.members.writable()?;
        let Some((g, bytes)) = whole else { return Ok(images.is_empty()) };
        for (seat, at, read, image) in images {
            let marked = g.members.get(usize::from(seat.id.0)).filter(|m| m.uuid == seat.uuid());
            let has_it = marked.is_some_and(|m| m.state == MemberState::In);
            if !has_it || (read && image.get(..bytes.len()) == Some(&bytes[..])) {
                continue;
            }
            if seat.holds_newest() && self.generations.is_set_back(&seat).await {
                // Not the slot alone is old.
                self.health.member_set_back(seat.id);
                continue;
            }
            if read && !self.generations.may_overwrite(&image) {
                self.health.freeze("another Ashlar wrote to the drives");
                return Err(self.members.frozen_by());
            }
            self.put_right(&seat, at, bytes.clone(), "generation", read).await;
            self.members.writable()?;
        }
        Ok(true)
    }

    async fn put_right(&self, seat: &Rc<Seat>, at: MemberLba, image: Bytes, what: &str, read: bool) {
        if read {
            seat.counters.mismatches.add(1);
        }
        let len = image.len();
        let written = self.health.write_to(seat, at, vec![image.clone()]).await;
        let (result, back) = seat.read(at, Buf::zeroed(len)).await;
        if self.members.writable().is_err() {
            return;
        }
        let held = written.is_ok() && result.is_ok() && back[..] == image[..];
        let outcome = if held { Outcome::Repaired } else { Outcome::NotHeld };
        if held {
            self.ctx.figures.repaired_blocks.add(1);
        }
        let wrong = if read { "is not what was written" } else { "cannot be read" };
        self.course.scrub_found(seat, &format!("{what} at byte {} {wrong}", at.byte_offset()), outcome);
    }
}
