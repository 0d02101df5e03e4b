//! Where the parts of an array lie on one drive. Arithmetic only.
//!
//! ```text
//! block 0      step         2 step                 end
//! | part 0     | part 1     | part 2, the last     |        step: 1/n of the drive, floor to 256 blocks
//! ```
//!
//! Invariant: slices lie behind each other, begin at multiples of 256 blocks, and end with the drive.

use base::{BlockCount, MemberLba, human};
use ondisk::label::PARTS_MAX;
use ondisk::layout::ALIGN_BLOCKS;
use ondisk::{Label, PartOf};
use rt::Drive;

use crate::fault::{Refused, RefusedCode};

/// The slices of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    of: u8,
    /// From the beginning of one to that of the next.
    step: BlockCount,
    drive: BlockCount,
}

impl Slices {
    /// Those of a drive of `drive` blocks that joins an array of so many parts; `None` when one would have no blocks, or
    /// there cannot be so many.
    #[must_use]
    pub fn new(drive: BlockCount, of: u8) -> Option<Slices> {
        let step = match of {
            0 => return None,
            1 => drive.0,
            _ => drive.0 / u64::from(of) / ALIGN_BLOCKS * ALIGN_BLOCKS,
        };
        (step > 0 && of <= PARTS_MAX).then_some(Slices { of, step: BlockCount(step), drive })
    }

    /// Those of a drive of `drive` blocks with this label in its first or last block; `None` when it is not the label of a
    /// whole drive (but of a slice that was taken for one).
    ///
    /// A drive may have grown or shrunk since it joined: the first label tells where the slices were then.
    #[must_use]
    pub fn of_label(label: &Label, drive: BlockCount) -> Option<Slices> {
        let PartOf { index, of } = label.part;
        if of == 1 {
            return Self::new(drive, 1);
        }
        let blocks = label.layout.drive_blocks;
        if index == 0 {
            // The last one has what is left.
            let fits = blocks > 0 && blocks.is_multiple_of(ALIGN_BLOCKS) && blocks * u64::from(of - 1) < drive.0;
            return fits.then_some(Slices { of, step: BlockCount(blocks), drive });
        }
        Self::new(drive, of).filter(|s| index + 1 == of && s.range(index).1.0 == blocks)
    }

    /// How many there are.
    #[must_use]
    pub fn of(&self) -> u8 {
        self.of
    }

    /// Every part, in order.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = PartOf> + use<> {
        let of = self.of;
        (0..of).map(move |index| PartOf { index, of })
    }

    /// First block and length of the slice for part `index`.
    ///
    /// # Panics
    /// When there is no such part.
    #[must_use]
    pub fn range(&self, index: u8) -> (MemberLba, BlockCount) {
        assert!(index < self.of, "part {index} of {}", self.of);
        let from = u64::from(index) * self.step.0;
        let last = index + 1 == self.of;
        (MemberLba(from), if last { BlockCount(self.drive.0 - from) } else { self.step })
    }

    /// The slice of `drive`, which these are of, for part `index`; all of it where that is the only one.
    ///
    /// # Panics
    /// When there is no such part.
    #[must_use]
    pub fn slice(&self, drive: &Drive, index: u8) -> Drive {
        if self.of == 1 {
            return drive.clone();
        }
        let (from, blocks) = self.range(index);
        drive.slice(from, blocks)
    }
}

/// The slice for one part of a drive that joins an array.
///
/// # Errors
/// When the drive has too few blocks, or there cannot be so many parts.
///
/// # Panics
/// When there is no such part.
pub fn slice_of(drive: &Drive, part: PartOf) -> Result<Drive, Refused> {
    Ok(slices(drive, part.of)?.slice(drive, part.index))
}

/// The slices for every part of a drive that joins an array, in order.
///
/// # Errors
/// When the drive has too few blocks, or there cannot be so many parts.
pub fn slices_of(drive: &Drive, of: u8) -> Result<Vec<Drive>, Refused> {
    let slices = slices(drive, of)?;
    Ok(slices.parts().map(|part| slices.slice(drive, part.index)).collect())
}

/// Whether an array may have so many parts.
pub fn check_parts(of: u8) -> Result<(), Refused> {
    if (1..=PARTS_MAX).contains(&of) {
        return Ok(());
    }
    let why = format!("an array has 1 to {PARTS_MAX} parts");
    Err(Refused::new(RefusedCode::Size, format!("an array of {of} parts"), why, "Give another number of parts"))
}

fn slices(drive: &Drive, of: u8) -> Result<Slices, Refused> {
    check_parts(of)?;
    let info = drive.info();
    let named = |refused| Refused { what: format!("drive {}", info.name), ..refused };
    Slices::new(info.blocks, of).ok_or_else(|| named(too_small(info.blocks.0, of)))
}

/// A drive of `blocks` has no slices for so many parts.
pub fn too_small(blocks: u64, of: u8) -> Refused {
    let (why, todo) = (
        format!("its {} are too few for {of} parts", human(BlockCount(blocks).bytes())),
        "Use a larger drive, or fewer parts",
    );
    Refused::new(RefusedCode::Drives, "a drive", why, todo)
}

#[cfg(test)]
mod tests {
    use base::{ArrayUuid, MemberId, MemberUuid};
    use ondisk::Layout;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn label(part: PartOf, blocks: u64) -> Label {
        let layout = Layout::new(blocks, 512, 64).unwrap();
        let ids = (ArrayUuid(Uuid::from_u128(1)), MemberUuid(Uuid::from_u128(2)));
        Label { array: ids.0, member: ids.1, seat: MemberId(3), part, layout, array_name: "a".into() }
    }

    proptest! {
        #[test]
        fn slices_cover_the_drive_and_do_not_overlap(blocks in 0..1u64 << 36, of in 0..20u8) {
            let Some(slices) = Slices::new(BlockCount(blocks), of) else {
                let least = if of == 1 { 1 } else { u64::from(of) * ALIGN_BLOCKS };
                prop_assert!(of == 0 || of > PARTS_MAX || blocks < least);
                return Ok(());
            };
            let mut end = 0;
            for part in slices.parts() {
                let (from, blocks) = slices.range(part.index);
                prop_assert_eq!((from.0, from.0 % ALIGN_BLOCKS), (end, 0));
                prop_assert!(blocks.0 > 0);
                end = from.0 + blocks.0;
            }
            prop_assert_eq!(end, blocks);
        }

        #[test]
        fn tiny_drives_have_slices_or_none(blocks in 0..6000u64, of in 2..=PARTS_MAX) {
            let enough = blocks >= u64::from(of) * ALIGN_BLOCKS;
            prop_assert_eq!(Slices::new(BlockCount(blocks), of).is_some(), enough);
        }

        #[test]
        fn either_label_tells_them(blocks in 1u64 << 15..1 << 36, of in 1..=PARTS_MAX) {
            let slices = Slices::new(BlockCount(blocks), of).unwrap();
            for index in [0, of - 1] {
                let label = label(PartOf { index, of }, slices.range(index).1.0);
                prop_assert_eq!(Slices::of_label(&label, BlockCount(blocks)), Some(slices));
            }
        }

        #[test]
        fn the_first_label_tells_them_when_the_drive_has_grown(blocks in 1u64 << 15..1 << 36, of in 2..=PARTS_MAX) {
            let then = Slices::new(BlockCount(blocks), of).unwrap();
            let label = label(PartOf { index: 0, of }, then.range(0).1.0);
            let now = Slices::of_label(&label, BlockCount(blocks * 2 + 7)).unwrap();
            for index in 0..of {
                prop_assert_eq!(now.range(index).0, then.range(index).0);
            }
        }
    }

    #[test]
    fn a_slice_is_no_whole_drive() {
        let slices = Slices::new(BlockCount(1 << 20), 3).unwrap();
        for index in 0..3 {
            let blocks = slices.range(index).1;
            assert_eq!(Slices::of_label(&label(PartOf { index, of: 3 }, blocks.0), blocks), None);
        }
    }
}
