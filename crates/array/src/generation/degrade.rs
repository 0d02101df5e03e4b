//! A member went out: what is being written moves to segments without it, and a generation says so.
//!
//! Records that were not acknowledged are written again elsewhere, whole, so that nothing is ever acknowledged
//! that lacks a member.

use base::SegmentId;
use ondisk::MemberState;

use super::Generations;
use crate::canary::{Canary, planted};
use crate::ctx::Wish;
use crate::space::segment::Seg;

impl Generations {
    /// Seals what has a column on a member that is out, commits, lets the log go on.
    pub async fn degrade(&self) {
        let failures = self.health.failures();
        for id in self.broken_open_segments() {
            // All I/O to it returns first; then what was not acknowledged starts anew.
            self.ctx.changed.until(|| !self.streams.writing_to(id)).await;
            let unacked = self.streams.take_unacked(id);
            // Sealed by its last record, and freed, meanwhile: nothing to do.
            self.segments.seal(id);
            self.streams.leave(id);
            let mut by_stream: std::collections::BTreeMap<_, Vec<_>> = std::collections::BTreeMap::new();
            for (stream, pieces) in unacked {
                by_stream.entry(stream).or_default().extend(pieces);
            }
            for (stream, pieces) in by_stream {
                if planted(Canary::RewriteForgotten) {
                    pieces.iter().for_each(|p| p.request.acknowledge(p.entries() as u64, None));
                    continue;
                }
                self.streams.requeue(stream, pieces);
            }
        }
        if self.commit().await.is_err() {
            return;
        }
        // Another may have gone out after the generation was made up: once more.
        if self.health.failures() == failures && self.broken_open_segments().is_empty() {
            self.health.end_degrading();
            self.ctx.wishes.ask(Wish::Rebuild);
        }
        self.streams.poke();
        self.ctx.changed.wake();
    }

    fn broken_open_segments(&self) -> Vec<SegmentId> {
        if !self.ctx.is_open() {
            return Vec::new();
        }
        let table = self.segments.read();
        let seats = self.members.all();
        let out = |s: &Seg| s.slots.iter().flatten().any(|(m, _)| seats[usize::from(m.0)].state() != MemberState::In);
        table.segments.values().filter(|s| s.is_open() && out(s)).map(|s| s.id).collect()
    }
}
