//! Spares: segments that streams may take, ready before they are asked for.

use base::{MemberId, SegmentId};
use ondisk::Scheme;

use super::Room;
use crate::canary::{Canary, planted};
use crate::ctx::Wish;
use crate::space::choose::choose;
use crate::space::segment::Seg;
use crate::streams::StreamId;

/// Blocks that spares hold, about: 16 MiB, some milliseconds of writes.
const SPARE_BLOCKS: u64 = 4096;

impl Room {
    /// Spares kept ready: enough for what is written while a generation is, also where segments are small.
    fn spares_wanted(&self) -> usize {
        let ladder = self.ladder();
        let small = (SPARE_BLOCKS / self.segment_blocks_now().max(1)).min(self.segments_possible() / 64);
        ladder.spares.max(small as usize)
    }

    /// Opens a spare for a stream; `None` when it must wait.
    pub fn take_spare(&self, stream: StreamId) -> Option<SegmentId> {
        let wants_map = stream == StreamId::Map && matches!(self.map_scheme(), Some(Scheme::Copies { .. }));
        let listed = |s: &Seg| s.listed || planted(Canary::UnlistedWritten);
        let fits = |s: &Seg| s.is_spare() && listed(s) && self.is_maps_own(s) == wants_map;
        let healthy = |s: &Seg| {
            let seats = self.members.all();
            s.slots.iter().flatten().all(|(m, _)| seats[usize::from(m.0)].takes_columns())
        };
        let found = self.segments.open_spare(|s| fits(s) && healthy(s));
        let left = self.segments.read().segments.values().filter(|s| fits(s)).count();
        self.measure_room();
        if found.is_none() || (left <= self.spares_wanted() / 2 && !planted(Canary::SparesLate)) {
            self.ctx.wishes.ask(Wish::Spares);
            self.ctx.changed.wake();
        }
        found
    }

    /// Gives zones to new spares, as many as should be ready; they can be written once a generation lists them.
    pub fn replenish_spares(&self) {
        let map_scheme = self.map_scheme().filter(|s| matches!(s, Scheme::Copies { .. }));
        // The map's first: without one nothing comes back.
        let data = (self.ctx.shape.scheme, false, self.spares_wanted());
        let kinds = map_scheme.map(|s| (s, true, 1)).into_iter().chain([data]);
        for (scheme, for_map, wanted) in kinds {
            let count = || {
                let table = self.segments.read();
                let spare = |s: &&Seg| s.is_spare() && self.is_maps_own(s) == for_map;
                table.segments.values().filter(spare).count()
            };
            while count() < wanted {
                if !self.add_spare(scheme) {
                    break;
                }
            }
        }
    }

    /// Whether a generation would bring spares that are wanted.
    pub fn spares_help(&self) -> bool {
        if !self.ctx.wishes.has(Wish::Spares) {
            return false;
        }
        let table = self.segments.read();
        let spares: Vec<&Seg> = table.segments.values().filter(|s| s.is_spare()).collect();
        if spares.iter().any(|s| !s.listed) {
            return true;
        }
        let maps = spares.iter().filter(|s| self.is_maps_own(s)).count();
        let seats = self.members.all();
        let lacks = |have: usize, wanted: usize, scheme| {
            have < wanted && choose(&seats, scheme, table.next, self.measured.short.get()).is_some()
        };
        let map_scheme = self.map_scheme().filter(|s| matches!(s, Scheme::Copies { .. }));
        lacks(spares.len() - maps, self.spares_wanted(), self.ctx.shape.scheme)
            || map_scheme.is_some_and(|scheme| lacks(maps, 1, scheme))
    }

    fn add_spare(&self, scheme: Scheme) -> bool {
        let seats = self.members.all();
        let next = self.segments.read().next;
        let Some((scheme, members)) = choose(&seats, scheme, next, self.measured.short.get()) else { return false };
        let zone_of = |m: MemberId| seats[usize::from(m.0)].take_zone().expect("chosen for room");
        let slots = members.into_iter().map(|m| m.map(|m| (m, zone_of(m)))).collect();
        self.segments.add_spare(scheme, slots);
        true
    }

    /// Takes away spares that have a column on a member that is not in, or leaves: nothing was written to them.
    pub fn drop_broken_spares(&self) {
        let seats = self.members.all();
        let chosen = choose(&seats, self.ctx.shape.scheme, self.segments.read().next, false);
        let whole_possible = chosen.is_some_and(|(_, members)| members.iter().all(Option::is_some));
        let places = self.segments.drop_spares(|seg| {
            let is_in = |m: MemberId| seats[usize::from(m.0)].takes_columns();
            let lacking = seg.slots.iter().any(Option::is_none) && !self.measured.short.get() && whole_possible;
            lacking || seg.slots.iter().flatten().any(|(m, _)| !is_in(*m))
        });
        for (m, zone) in places {
            seats[usize::from(m.0)].give_zone(zone);
            // A rebuild may have waited for the zone.
            self.ctx.wishes.ask(Wish::Rebuild);
        }
    }
}
