//! What each block may read as, given what was done to the drives.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use array::Fault;
use base::BLOCK_BYTES;
use rt::Bytes;

use super::plan::Damage;
use super::scene::Scene;

/// The tag of what is written after the open.
pub const AFTER: u32 = u32::MAX;

/// How much a reading must be right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    /// Nothing: checksums were made to fit.
    Forged,
    /// What is read was written there once, or is zeros.
    Beyond,
    /// What is read is the last acknowledged write.
    Covered,
    /// The same, and nothing is wrong at all.
    Unharmed,
}

/// What is claimed of an array after its damage.
pub struct Claim<'a> {
    scene: &'a Scene,
    trust: Trust,
    written: RefCell<BTreeSet<u64>>,
    tried: Cell<bool>,
}

impl<'a> Claim<'a> {
    /// The claim for a scene and what was done to it.
    #[must_use]
    pub fn of(scene: &'a Scene, damage: &Damage) -> Claim<'a> {
        let trust = match damage.drives().len() {
            _ if damage.forged => Trust::Forged,
            0 => Trust::Unharmed,
            n if n <= scene.level.tolerates() => Trust::Covered,
            _ => Trust::Beyond,
        };
        Claim { scene, trust, written: RefCell::default(), tried: Cell::new(false) }
    }

    /// Whether nothing was done.
    #[must_use]
    pub fn is_unharmed(&self) -> bool {
        self.trust == Trust::Unharmed
    }

    /// Whether everything must still be there.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        self.trust >= Trust::Covered
    }

    /// The volume is not there, or not all of it.
    pub fn volume_missing(&self) {
        assert!(!self.is_covered(), "the volume is gone");
    }

    /// A block was written with [`AFTER`], and that was acknowledged.
    pub fn written_after(&self, lba: u64) {
        self.written.borrow_mut().insert(lba);
        self.tried.set(true);
    }

    /// Judges what a block reads as; `after`: [`AFTER`] may have been written to it.
    pub fn judge(&self, lba: u64, found: Result<&[u8], Fault>, after: bool) {
        if self.trust == Trust::Forged {
            return;
        }
        let found = match found {
            Ok(found) => found,
            Err(fault) => {
                assert!(!self.is_covered(), "block {lba}: {fault}, though the redundancy covers the damage");
                return;
            }
        };
        let tag = tag_of(lba, found);
        if after && self.written.borrow().contains(&lba) {
            assert_eq!(tag, Some(AFTER), "block {lba}: what was written after the open is gone");
            return;
        }
        let history = &self.scene.history[lba as usize];
        let once = |tag| tag == 0 || history.tags.contains(&tag) || (after && tag == AFTER);
        let Some(tag) = tag.filter(|t| once(*t)) else {
            panic!("block {lba} reads as {tag:?}: that was never written there");
        };
        if self.is_covered() {
            let right = history.tags[history.acked..].contains(&tag) || (after && tag == AFTER);
            assert!(right, "block {lba} reads as {tag}, but {:?} was acknowledged", &history.tags[history.acked..]);
        }
    }
}

/// A block that says where it belongs and which write it is; tag 0 is zeros.
#[must_use]
pub fn content(lba: u64, tag: u32) -> Bytes {
    Bytes::from_slice(&pattern(lba, tag))
}

fn pattern(lba: u64, tag: u32) -> Vec<u8> {
    word(lba, tag).repeat(BLOCK_BYTES / 8)
}

fn word(lba: u64, tag: u32) -> [u8; 8] {
    if tag == 0 { [0; 8] } else { (u64::from(tag) << 32 | lba).to_le_bytes() }
}

/// The tag of a block that is whole and belongs here.
fn tag_of(lba: u64, block: &[u8]) -> Option<u32> {
    let (first, _) = block.split_first_chunk::<8>()?;
    let tag = (u64::from_le_bytes(*first) >> 32) as u32;
    block.as_chunks().0.iter().all(|w| *w == word(lba, tag)).then_some(tag)
}
