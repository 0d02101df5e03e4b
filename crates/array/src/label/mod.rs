//! Labels as they must be: written anew where something has overwritten them, or a program of before left none; and drives
//! that are not as large as they were.
//!
//! Not here: finding them (`read`).

pub mod identify;
pub mod read;
pub mod slices;

use std::rc::Rc;

use api::EventCode;
use base::{BLOCK_BYTES, BlockCount, MemberLba, human};
use futures::future::join_all;
use ondisk::{Label, Layout};
use rt::{Buf, Drive, IoError};

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::health::Health;
use crate::member::Members;
use crate::member::health::LATE_OUT;
use crate::member::seat::Seat;

/// The labels of an array's drives.
pub struct Labels {
    ctx: Rc<Context>,
    members: Rc<Members>,
    health: Rc<Health>,
}

impl Labels {
    /// Those of the members.
    pub fn new(health: &Rc<Health>) -> Rc<Labels> {
        Rc::new(Labels { ctx: health.ctx().clone(), members: health.members().clone(), health: health.clone() })
    }

    /// A member's label.
    pub fn label_of(&self, seat: &Seat, array_name: String) -> Label {
        Label {
            array: self.ctx.shape.array,
            member: seat.uuid(),
            seat: seat.id,
            part: self.ctx.shape.part,
            layout: seat.layout,
            array_name,
        }
    }

    /// Where things lie on a member's drive now; what was asked for says where they lay, and is kept where nothing fits.
    pub fn layout_now(&self, drive: &Drive, bay: u16, then: Layout) -> Layout {
        let (name, now) = (&drive.info().name, drive.info().blocks.0);
        if now == then.drive_blocks {
            return then;
        }
        let sizes = format!("{} now, {} when it joined", human(bytes(now)), human(bytes(then.drive_blocks)));
        if now > then.drive_blocks {
            self.ctx.note(
                EventCode::DriveSize,
                format!("drive {name} (seat {bay}) is larger than before ({sizes}); the same part of it is used"),
            );
            return then;
        }
        let layout = then.on_smaller(now).unwrap_or(then);
        let lost = then.zones - layout.zones;
        self.ctx.note(EventCode::DriveSize, format!(
            "drive {name} (seat {bay}) is smaller than before ({sizes}); {lost} of its {} zones are lost, the others \
             are used",
            then.zones
        ));
        layout
    }

    /// Writes every label of members and spares anew that is not as it must be, or has a former name of the array. One that
    /// cannot be written is said, and done without.
    pub async fn heal_labels(&self) {
        let here: Vec<Rc<Seat>> = self.members.all().iter().filter(|s| s.has_labels()).cloned().collect();
        join_all(here.iter().map(|seat| self.heal_labels_soon(seat))).await;
    }

    /// The same of one. A member that does not answer goes out; of a spare nobody would hear.
    async fn heal_labels_soon(&self, seat: &Rc<Seat>) {
        let Some(drive) = seat.drive.as_ref().filter(|_| !seat.is_in() && !planted(Canary::SpareWaitedFor)) else {
            return self.heal_labels_of(seat).await;
        };
        let healed = async {
            self.heal_labels_of(seat).await;
            Ok(())
        };
        if drive.within(LATE_OUT, healed).await.is_err() {
            let spare = seat.title();
            self.ctx.warn(
                EventCode::LabelHealed,
                format!("{spare} does not answer: it is a spare, and its labels were not checked"),
            );
        }
    }

    pub async fn heal_labels_of(&self, seat: &Rc<Seat>) {
        let mut renamed = Vec::new();
        let mut wrong: Vec<(MemberLba, bool)> = Vec::new();
        let [.., inner] = seat.layout.labels();
        for at in seat.layout.labels() {
            let (read, block) = seat.read(at, Buf::zeroed(BLOCK_BYTES)).await;
            let label = Label::decode(&block).ok().filter(|_| read.is_ok());
            let is_label = label.is_some();
            let known = label.filter(|l| *l == self.label_of(seat, l.array_name.clone()));
            match known {
                Some(label) => {
                    if label.encode_at(at) != block[..] {
                        wrong.push((at, false));
                    } else if label.array_name != self.ctx.name() {
                        renamed.push((at, false));
                    }
                }
                // An older program left the third one unused (zeros); any of them may still name the size of a larger drive.
                None => wrong.push((at, !is_label && (at != inner || block.iter().any(|byte| *byte != 0)))),
            }
        }
        let label = self.label_of(seat, self.ctx.name());
        self.rename_labels(seat, &label, &renamed).await;
        if wrong.is_empty() {
            return;
        }
        let Some(written) = self.put_labels(seat, &label, &wrong).await else { return };
        let told = wrong.iter().filter(|(at, there)| *there && written.contains(at));
        let overwritten: Vec<String> = told.map(|(at, _)| at.byte_offset().to_string()).collect();
        if !overwritten.is_empty() {
            self.ctx.note(
                EventCode::LabelHealed,
                format!(
                    "drive {} (seat {}): its label at byte {} was overwritten, and is being rewritten",
                    seat.drive_name(),
                    seat.bay(),
                    overwritten.join(", ")
                ),
            );
        }
    }

    /// Writes labels that are whole, one after the other: the others tell meanwhile what the drive is, also after a power cut.
    async fn rename_labels(&self, seat: &Rc<Seat>, label: &Label, places: &[(MemberLba, bool)]) {
        let at_once = if planted(Canary::LabelsRenamedAtOnce) { places.len().max(1) } else { 1 };
        for places in places.chunks(at_once) {
            if self.put_labels(seat, label, places).await.is_none_or(|written| written.is_empty()) {
                return;
            }
        }
    }

    /// The places that were written; `None` when the drive is none any more.
    async fn put_labels(&self, seat: &Rc<Seat>, label: &Label, places: &[(MemberLba, bool)]) -> Option<Vec<MemberLba>> {
        let mut written = Vec::new();
        for (at, _) in places {
            let image = Buf::from_slice(&label.encode_at(*at)).freeze();
            if planted(Canary::LabelBlamed) {
                self.health.write_to(seat, *at, vec![image]).await.ok()?;
                continue;
            }
            // There are others: one that cannot be written is no reason to do without the drive.
            match seat.write(*at, image).await {
                Ok(()) => written.push(*at),
                Err(error) => self.ctx.note(
                    EventCode::LabelHealed,
                    format!(
                        "drive {} (seat {}): its label at byte {} cannot be written: {error}",
                        seat.drive_name(),
                        seat.bay(),
                        at.byte_offset()
                    ),
                ),
            }
        }
        match seat.flush().await {
            Ok(()) => Some(written),
            Err(IoError::Gone) => None,
            Err(error) => {
                self.health.member_erred(seat.id, "its labels could not be written", error);
                None
            }
        }
    }
}

fn bytes(blocks: u64) -> u64 {
    BlockCount(blocks).bytes()
}
