//! Moves on their way that have given their blocks' locks back.
//!
//! A move holds its block's lock until its record is formed: from then on its number is lower than that of whatever hosts
//! write there, so a replay gets them in their order. Here hosts may be acknowledged first; then the move says nothing any
//! more.
//!
//! Invariant: while a block is here, one move of it is in a record that is neither acknowledged nor given up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use base::{Lba, VolumeId};
use foldhash::fast::FixedState;

use crate::canary::{Canary, planted};
use crate::memtable::memory::Moves;

/// Blocks being moved without a lock, and whether something newer is known of them.
#[derive(Default)]
pub struct Moving {
    blocks: RefCell<HashMap<(VolumeId, u64), bool, FixedState>>,
}

impl Moving {
    /// The move of a block is in a record now.
    pub fn begin(&self, volume: VolumeId, lba: Lba) {
        let before = self.blocks.borrow_mut().insert((volume, lba.0), false);
        assert!(before.is_none(), "a block is moved by one at a time");
    }

    /// Whether a block is being moved.
    pub fn contains(&self, volume: VolumeId, lba: Lba) -> bool {
        self.blocks.borrow().contains_key(&(volume, lba.0))
    }

    /// The move of a block is over, or given up.
    pub fn end(&self, volume: VolumeId, lba: Lba) {
        self.blocks.borrow_mut().remove(&(volume, lba.0));
    }
}

impl Moves for Moving {
    fn is_overtaken(&self, volume: VolumeId, lba: Lba) -> bool {
        self.blocks.borrow().get(&(volume, lba.0)).is_some_and(|overtaken| *overtaken)
    }

    fn overtake(&self, volume: VolumeId, blocks: Range<u64>) {
        let mut there = self.blocks.borrow_mut();
        if there.is_empty() || planted(Canary::OvertakenMoved) {
            return;
        }
        if blocks.end - blocks.start <= there.len() as u64 {
            for lba in blocks {
                if let Some(overtaken) = there.get_mut(&(volume, lba)) {
                    *overtaken = true;
                }
            }
        } else {
            let within = |(v, lba): &(VolumeId, u64)| *v == volume && blocks.contains(lba);
            there.iter_mut().filter(|(block, _)| within(block)).for_each(|(_, overtaken)| *overtaken = true);
        }
    }
}
