//! After a replay: which segments the log goes on with.
//!
//! Not here: where an open segment goes on (`replay`).

use std::rc::Rc;

use ondisk::Scheme;

use super::recovering::Recovering;
use crate::canary::{Canary, planted};
use crate::member::seat::Seat;
use crate::space::segment::Seg;
use crate::streams::StreamId;

impl Recovering<'_> {
    /// After replay: spares that were never written go back, open segments get their streams, the rest is sealed.
    ///
    /// Where another server `may_write` yet what it had sent, no segment goes on that it wrote to, and zones that it may have begun
    /// are returned: they are not used for a while. Where there is no room for other segments, that cannot be.
    pub fn settle_segments(&self, may_write: bool) -> Vec<(Rc<Seat>, u32)> {
        let mut aside = Vec::new();
        let another = self.rooms.room().another_can_be_had(&self.rooms.segments().read());
        let may_write = may_write && another;
        let seats = self.rooms.members().all();
        for (m, zone) in self.rooms.segments().drop_spares(|_| true) {
            match may_write {
                true => aside.push((seats[usize::from(m.0)].clone(), zone)),
                false => seats[usize::from(m.0)].give_zone(zone),
            }
        }
        // One that was begun without a column goes on where there is no room for another: without any nothing comes back.
        let room = self.rooms.room().another_can_be_had(&self.rooms.segments().read());
        let out = |s: &Seg| s.slots.iter().any(|slot| slot.map_or(room, |(m, _)| !seats[usize::from(m.0)].is_in()));
        let own_map = self.rooms.room().map_scheme();
        // Where there is no room for another, any one serves.
        let small = self.rooms.room().small_scheme().filter(|_| room);
        let hosts = self.rooms.streams().stream(StreamId::Host);
        let mut streams = vec![StreamId::Inner, StreamId::Host];
        if !matches!(own_map, Some(Scheme::Copies { .. })) {
            streams.insert(0, StreamId::Map);
        }
        if !room {
            // The last one is served first, with the emptiest: a checkpoint gives room back, then the cleaner does.
            streams.sort_unstable();
        }
        let mut in_turn: Vec<(u32, base::SegmentId)> = self
            .rooms
            .segments()
            .read()
            .segments
            .values()
            .filter(|s| s.is_open())
            .map(|s| (s.rows.append, s.id))
            .collect();
        if !room {
            in_turn.sort_unstable();
        }
        for (_, id) in in_turn {
            let table = self.rooms.segments().read();
            let seg = table.get(id);
            if !may_write && !out(seg) && small == Some(seg.scheme) && hosts.small().is_none() {
                hosts.set_small((!planted(Canary::SmallForgotten)).then_some(id));
                continue;
            }
            let for_map = own_map == Some(seg.scheme) && own_map != Some(self.rooms.ctx().shape.scheme);
            let stream = match () {
                // What nobody needs comes back whole.
                () if may_write => None,
                () if out(seg) || (!room && seg.live == 0 && seg.unmerged.is_empty()) => None,
                () if small == Some(seg.scheme) => None,
                () if for_map => Some(StreamId::Map).filter(|m| self.rooms.streams().segment_of(*m).is_none()),
                () => streams.pop(),
            };
            match stream {
                Some(stream) => self.rooms.streams().go_on(stream, id),
                None => {
                    drop(table);
                    self.rooms.segments().seal(id);
                }
            }
        }
        if !room {
            return aside;
        }
        // The emptiest for the moves, which make room for the others.
        let table = self.rooms.segments().read();
        let of = |stream: StreamId| table.segments.get(&self.rooms.streams().segment_of(stream)?);
        for other in [StreamId::Host, StreamId::Map] {
            let swapped = of(StreamId::Inner)
                .zip(of(other))
                .is_some_and(|(inner, other)| inner.scheme == other.scheme && other.rows.append < inner.rows.append);
            if swapped {
                self.rooms.streams().swap_segments(StreamId::Inner, other);
            }
        }
        aside
    }
}
