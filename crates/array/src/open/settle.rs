//! After a replay: which segments the log goes on with.
//!
//! Not here: where an open segment goes on (`replay`).

use std::rc::Rc;

use ondisk::Scheme;

use crate::core::Core;
use crate::log::StreamId;
use crate::member::seat::Seat;
use crate::space::segment::Seg;

impl Core {
    /// After replay: spares that were never written go back, open segments get their streams, the rest is sealed.
    ///
    /// Where another server `may_write` yet what it had sent, no segment goes on that it wrote to, and zones that it may have begun
    /// are returned: they are not used for a while. Where there is no room for other segments, that cannot be.
    pub(crate) fn settle_segments(&self, may_write: bool) -> Vec<(Rc<Seat>, u32)> {
        let mut aside = Vec::new();
        let another = self.another_can_be_had(&self.segments.read());
        let may_write = may_write && another;
        let seats = self.members.all();
        for (m, zone) in self.segments.drop_spares(|_| true) {
            match may_write {
                true => aside.push((seats[usize::from(m.0)].clone(), zone)),
                false => seats[usize::from(m.0)].give_zone(zone),
            }
        }
        // One that was begun without a column goes on where there is no room for another: without any nothing comes back.
        let room = self.another_can_be_had(&self.segments.read());
        let out = |s: &Seg| s.slots.iter().any(|slot| slot.map_or(room, |(m, _)| !seats[usize::from(m.0)].is_in()));
        let own_map = self.map_scheme();
        let mut streams = vec![StreamId::Inner, StreamId::Host];
        if !matches!(own_map, Some(Scheme::Copies { .. })) {
            streams.insert(0, StreamId::Map);
        }
        if !room {
            // The last one is served first, with the emptiest: a checkpoint gives room back, then the cleaner does.
            streams.sort_unstable();
        }
        let mut in_turn: Vec<(u32, base::SegmentId)> =
            self.segments.read().segments.values().filter(|s| s.is_open()).map(|s| (s.rows.append, s.id)).collect();
        if !room {
            in_turn.sort_unstable();
        }
        for (_, id) in in_turn {
            let table = self.segments.read();
            let seg = table.get(id);
            let for_map = own_map == Some(seg.scheme) && own_map != Some(self.ctx.shape.scheme);
            let stream = match () {
                // What nobody needs comes back whole.
                () if may_write => None,
                () if out(seg) || (!room && seg.live == 0 && seg.unmerged.is_empty()) => None,
                () if for_map => Some(StreamId::Map).filter(|m| self.log.segment_of(*m).is_none()),
                () => streams.pop(),
            };
            match stream {
                Some(stream) => self.log.go_on(stream, id),
                None => {
                    drop(table);
                    self.segments.seal(id);
                }
            }
        }
        if !room {
            return aside;
        }
        // The emptiest for the moves, which make room for the others.
        let table = self.segments.read();
        let of = |stream: StreamId| table.segments.get(&self.log.segment_of(stream)?);
        for other in [StreamId::Host, StreamId::Map] {
            let swapped = of(StreamId::Inner)
                .zip(of(other))
                .is_some_and(|(inner, other)| inner.scheme == other.scheme && other.rows.append < inner.rows.append);
            if swapped {
                self.log.swap_segments(StreamId::Inner, other);
            }
        }
        aside
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ondisk::Level;
    use rt::model::{Disk, DiskParams};
    use rt::{Drive, Rt};

    use super::*;
    use crate::engine::Array;
    use crate::space::plan::CreateSpec;

    /// Closes an array that was opened while another owner may have had writes under way; whether its first drive is kept.
    fn keeps_a_drive() -> bool {
        let rt = Rt::modelled(1);
        let params = DiskParams { bytes: 48 << 20, shared: true, ..DiskParams::default() };
        let disks: Vec<Disk> = (0..4).map(|i| Disk::new(&format!("d{i}"), params, i)).collect();
        let drives = || disks.iter().map(|d| Drive::modelled(&rt, d)).collect();
        let level = Level::Raid5;
        let spec = CreateSpec { name: "a".into(), level, width: None, zone_blocks: Some(128), force: false };
        rt.block_on(async {
            let array = Array::create(&rt, drives(), &spec).await.unwrap();
            // It ends without a word, and nobody knows that it has.
            array.core.give_up();
            drop(array);
            let array = Array::open(&rt, drives(), crate::OpenHow::default()).await.unwrap();
            let seat = Rc::downgrade(&array.core.members.all()[0]);
            array.close().await.unwrap();
            rt.sleep(Duration::from_secs(20)).await;
            seat.strong_count() > 0
        })
    }

    #[test]
    fn what_is_set_aside_keeps_no_drive() {
        assert!(!keeps_a_drive());
    }
}
