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

/// What a spare is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Map nodes, where they have segments of their own.
    Map,
    /// Everything.
    Data,
    /// Short records.
    Small,
}

/// The kinds of segments that an array has now, by their schemes.
pub(super) struct Kinds {
    map: Option<Scheme>,
    data: Scheme,
    small: Option<Scheme>,
}

impl Kinds {
    /// The kind of a spare.
    pub fn of(&self, s: &Seg) -> Kind {
        match () {
            () if self.map.is_some() && matches!(s.scheme, Scheme::Copies { .. }) => Kind::Map,
            () if s.small => Kind::Small,
            () => Kind::Data,
        }
    }

    /// All, with their schemes. The map's first: without one nothing comes back.
    fn in_turn(&self) -> impl Iterator<Item = (Kind, Scheme)> {
        let map = self.map.map(|scheme| (Kind::Map, scheme));
        let small = self.small.map(|scheme| (Kind::Small, scheme));
        map.into_iter().chain([(Kind::Data, self.data)]).chain(small)
    }
}

impl Room {
    /// The kinds of segments that the array has now.
    pub(super) fn kinds(&self) -> Kinds {
        Kinds {
            map: self.map_scheme().filter(|s| matches!(s, Scheme::Copies { .. })),
            data: self.ctx.shape.scheme,
            small: self.small_scheme(),
        }
    }

    /// Spares kept ready: enough for what is written while a generation is, also where segments are small.
    fn spares_wanted(&self) -> usize {
        let ladder = self.ladder();
        let small = (SPARE_BLOCKS / self.segment_blocks_now().max(1)).min(self.segments_possible() / 64);
        ladder.spares.max(small as usize)
    }

    /// Opens a spare for a stream; `None` when it must wait.
    pub fn take_spare(&self, stream: StreamId) -> Option<SegmentId> {
        let wants_map = stream == StreamId::Map && matches!(self.map_scheme(), Some(Scheme::Copies { .. }));
        self.open_spare(if wants_map { Kind::Map } else { Kind::Data })
    }

    /// Opens a small spare; `None` when there is none now.
    pub fn take_small(&self) -> Option<SegmentId> {
        self.open_spare(Kind::Small)
    }

    fn open_spare(&self, kind: Kind) -> Option<SegmentId> {
        let kinds = self.kinds();
        let listed = |s: &Seg| s.listed || planted(Canary::UnlistedWritten);
        let fits = |s: &Seg| s.is_spare() && listed(s) && kinds.of(s) == kind;
        let healthy = |s: &Seg| {
            let seats = self.members.all();
            s.slots.iter().flatten().all(|(m, _)| seats[usize::from(m.0)].takes_columns())
        };
        let found = self.segments.open_spare(|s| fits(s) && healthy(s));
        if found.is_none() && kind == Kind::Small {
            // It goes without.
            if !self.ctx.wishes.ask(Wish::Spares) {
                self.ctx.changed.wake();
            }
            return None;
        }
        let left = self.segments.read().segments.values().filter(|s| fits(s)).count();
        self.measure_room();
        if found.is_none() || (left <= self.wanted_of(kind) / 2 && !planted(Canary::SparesLate)) {
            self.ctx.wishes.ask(Wish::Spares);
            self.ctx.changed.wake();
        }
        found
    }

    /// Spares of a kind that are kept ready.
    fn wanted_of(&self, kind: Kind) -> usize {
        match kind {
            Kind::Map => 1,
            Kind::Data => self.spares_wanted(),
            Kind::Small => self.small_wanted(),
        }
    }

    /// Gives zones to new spares, as many as should be ready; they can be written once a generation lists them.
    pub fn replenish_spares(&self) {
        let kinds = self.kinds();
        for (kind, scheme) in kinds.in_turn() {
            let count =
                || self.segments.read().segments.values().filter(|s| s.is_spare() && kinds.of(s) == kind).count();
            while count() < self.wanted_of(kind) {
                if !self.add_spare(kind, scheme) {
                    // Small ones come when there is enough for the others.
                    break;
                }
            }
        }
    }

    /// Whether a generation would bring spares that are wanted, or give back what is not.
    pub fn spares_help(&self) -> bool {
        if !self.ctx.wishes.has(Wish::Spares) {
            return false;
        }
        let table = self.segments.read();
        let spares: Vec<&Seg> = table.segments.values().filter(|s| s.is_spare()).collect();
        if spares.iter().any(|s| !s.listed) || self.holds_small_in_vain() {
            return true;
        }
        let kinds = self.kinds();
        let lacks = |(kind, scheme): (Kind, Scheme)| {
            let have = spares.iter().filter(|s| kinds.of(s) == kind).count();
            have < self.wanted_of(kind) && self.members_for(kind, scheme, table.next).is_some()
        };
        kinds.in_turn().any(lacks)
    }

    /// Members for a new spare; of a small one all, since it is a help and no more.
    fn members_for(&self, kind: Kind, wanted: Scheme, id: u64) -> Option<(Scheme, Vec<Option<MemberId>>)> {
        let chosen = choose(&self.members.all(), wanted, id, self.measured.short.get());
        chosen.filter(|(scheme, members)| {
            kind != Kind::Small || (*scheme == wanted && members.iter().all(Option::is_some))
        })
    }

    fn add_spare(&self, kind: Kind, scheme: Scheme) -> bool {
        let next = self.segments.read().next;
        let Some((scheme, members)) = self.members_for(kind, scheme, next) else { return false };
        let seats = self.members.all();
        let zone_of = |m: MemberId| seats[usize::from(m.0)].take_zone().expect("chosen for room");
        let slots = members.into_iter().map(|m| m.map(|m| (m, zone_of(m)))).collect();
        self.segments.add_spare(scheme, slots, kind == Kind::Small);
        true
    }

    /// Takes away spares that have a column on a member that is not in, or leaves, and small ones where room is short: nothing
    /// was written to them.
    pub fn drop_broken_spares(&self) {
        self.leave_small();
        let no_small = self.small_scheme().is_none() || self.small_wanted() == 0;
        let seats = self.members.all();
        let chosen = choose(&seats, self.ctx.shape.scheme, self.segments.read().next, false);
        let whole_possible = chosen.is_some_and(|(_, members)| members.iter().all(Option::is_some));
        let places = self.segments.drop_spares(|seg| {
            let is_in = |m: MemberId| seats[usize::from(m.0)].takes_columns();
            let lacking = seg.slots.iter().any(Option::is_none) && !self.measured.short.get() && whole_possible;
            lacking || (seg.small && no_small) || seg.slots.iter().flatten().any(|(m, _)| !is_in(*m))
        });
        for (m, zone) in places {
            seats[usize::from(m.0)].give_zone(zone);
            // A rebuild may have waited for the zone.
            self.ctx.wishes.ask(Wish::Rebuild);
        }
    }
}
