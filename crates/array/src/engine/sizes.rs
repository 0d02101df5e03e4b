//! Drives of other sizes: how much of one that joins is used, and whether what is stored fits when it is a smaller one.
//!
//! Invariants:
//! - no member has more zones than the slots of the array can list, and its label says no more;
//! - after a smaller drive has joined, what is stored still fits, or the user has said that it need not.

use api::{EventCode, Remedy};
use base::{BlockCount, human};
use ondisk::{Layout, MemberState};

use super::report::Report;
use crate::canary::{Canary, planted};
use crate::engine::Array;
use crate::fault::{Refused, RefusedCode};
use crate::member::seat::Seat;
use crate::room::Change;

impl Array {
    /// Where things would lie on a drive of this size. Of a drive that is larger than the slots have room for, the first part
    /// is used.
    pub(crate) fn layout_for(&self, name: &str, blocks: BlockCount) -> Result<Layout, Refused> {
        let shape = &self.rooms.ctx().shape;
        let layout = Layout::new(blocks.0, shape.slot_blocks, shape.zone_blocks);
        let Some(layout) = layout.filter(|l| l.zones >= ondisk::layout::ZONES_MIN) else {
            let why = "it is too small for this array's zones";
            return Err(Refused::new(RefusedCode::Drives, format!("drive {name}"), why, "Use a larger drive"));
        };
        if planted(Canary::SlotsOutgrown) {
            let room = blocks.0 - layout.zone_row(0, 0).0 - 1;
            return Ok(Layout { zones: (room / u64::from(shape.zone_blocks)) as u32, ..layout });
        }
        Ok(layout)
    }

    /// Whether what is stored still fits when a drive of this size takes the place of `old`; of any member, for a spare.
    pub(crate) fn may_be_smaller(&self, old: Option<&Seat>, name: &str, blocks: BlockCount) -> Result<(), Refused> {
        let rooms = &self.rooms;
        let layout = self.layout_for(name, blocks)?;
        let Some(room) = Report::of(rooms).usable_after(old, layout.zones) else { return Ok(()) };
        let (stored, room) = (BlockCount(rooms.room().stored_at_least()).bytes(), BlockCount(room).bytes());
        if stored <= room || planted(Canary::SmallerUnasked) {
            return Ok(());
        }
        let why = match old {
            Some(old) => format!(
                "{} are stored; with it in the place of drive {} the array holds {}",
                human(stored),
                old.drive_name(),
                human(room)
            ),
            None => {
                format!("{} are stored; once it replaces a failed drive the array holds {}", human(stored), human(room))
            }
        };
        let todo = "Use a larger drive, delete or deallocate data, or let it join nevertheless";
        Err(Refused::new(RefusedCode::Size, format!("drive {name}"), why, todo).by(Remedy::Force))
    }
}

impl Report<'_> {
    /// Blocks that volumes may fill when a drive of so many zones has the place of `old`, or of the largest member, if that is
    /// less than now.
    pub fn usable_after(&self, old: Option<&Seat>, zones: u32) -> Option<u64> {
        let counts = |s: &&std::rc::Rc<Seat>| matches!(s.state(), MemberState::In | MemberState::Out);
        let largest = || {
            let seats = self.rooms.members().all();
            seats.iter().filter(counts).filter(|s| !s.leaves()).max_by_key(|s| s.layout.zones).map(|s| s.bay())
        };
        let bay = old.map(|old| old.bay()).or_else(largest)?;
        let after = self.rooms.room().usable_blocks_if(Change::Takes { bay, zones });
        (after < self.rooms.room().usable_blocks()).then_some(after)
    }

    /// Remembers that volumes may fill less than before, if so.
    pub fn note_if_smaller(&self, before: u64) {
        let after = self.rooms.room().usable_blocks();
        if after < before {
            let size = |blocks| human(BlockCount(blocks).bytes());
            self.rooms.ctx().note(
                EventCode::UsableShrank,
                format!("usable shrinks from {} to {}: the new drive is smaller", size(before), size(after)),
            );
        }
    }
}
