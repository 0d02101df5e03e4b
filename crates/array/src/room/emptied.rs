//! What was emptied and comes back.

use super::{Room, SHARE};
use crate::space::choose::choose;
use crate::space::segment::{Life, Seg};
use crate::space::segments::Table;

impl Room {
    /// Whether there is room for another segment: else those that are open and hold something stay so, and make it.
    pub fn another_can_be_had(&self, table: &Table) -> bool {
        let spare = |s: &Seg| s.is_spare();
        table.segments.values().any(spare)
            || choose(&self.members.all(), self.ctx.shape.scheme, table.next, self.short()).is_some()
    }

    /// Whether a batch of emptied segments waits to be given back.
    pub fn enough_emptied(&self, vacated: bool) -> bool {
        let ladder = self.rungs();
        // While a checkpoint writes its nodes, hosts and moves write about as much each.
        let scarce = self.room_left() <= ladder.stop_floor + 3 * ladder.nodes.ceil() as u64;
        let enough = if scarce { ladder.batch / 4 } else { ladder.batch };
        let waiting = self.emptied_waiting(vacated);
        waiting > 0 && waiting >= enough as i64 * SHARE
    }

    /// Segments that wait to be given back, in thousandths: vacated ones by the next generation; others, emptied since the last
    /// memtable was frozen, by the next checkpoint.
    pub fn emptied_waiting(&self, vacated: bool) -> i64 {
        let table = self.segments.read();
        let worth = self.zones_worth();
        let emptied = |s: &Seg| match s.life {
            Life::Spare | Life::Open | Life::Sealed | Life::Emptying(_) => false,
            Life::Emptied { frozen } => !vacated && frozen == self.memory.freezes(),
            Life::Vacated { .. } => vacated,
        };
        let waits = |s: &&Seg| !s.hold.is_being_restored && emptied(s);
        table.segments.values().filter(waits).map(|s| worth.of(s)).sum()
    }
}
