//! Host flushes: one at a time for all who wait.

use std::cell::Cell;
use std::rc::Rc;

use futures::future::join_all;

use super::Health;
use crate::canary::{Canary, planted};
use crate::ctx::Wish;
use crate::fault::Fault;
use crate::member::seat::Seat;
use crate::sync::Gate;

/// Flushes begun and done.
#[derive(Default)]
pub struct Flushes {
    gate: Gate,
    begun: Cell<u64>,
    /// The last one that was carried through.
    done: Cell<u64>,
}

impl Health {
    /// Makes durable everything acknowledged before the call, on every member that is in; when one fails it, after
    /// the generation that says so.
    pub async fn flush(&self) -> Result<(), Fault> {
        self.members.writable()?;
        let ours = self.flushes.begun.get() + 1;
        let _turn = self.flushes.gate.pass().await;
        if self.flushes.done.get() >= ours {
            // One that began after the call is done: it covers this one. (`begun` counts only those that passed.)
            return self.degraded_durably().await;
        }
        let this = self.flushes.begun.get() + 1;
        self.flushes.begun.set(this);
        loop {
            self.degraded_durably().await?;
            let acked = self.segments.not_durable();
            let seats = self.members.seats_in();
            if self.flush_all(&seats).await {
                self.segments.mark_durable(acked);
                self.streams.poke();
                break;
            }
        }
        self.flushes.done.set(this);
        self.degraded_durably().await
    }

    /// Flushes members; false when one failed it (and is out now).
    pub async fn flush_all(&self, seats: &[Rc<Seat>]) -> bool {
        if planted(Canary::MembersNotFlushed) {
            return true;
        }
        let flushed = join_all(seats.iter().map(|s| s.flush())).await;
        for (seat, result) in seats.iter().zip(flushed) {
            if let Err(error) = result {
                self.member_erred(seat.id, "flush failed", error);
            }
        }
        seats.iter().all(|s| s.is_in())
    }
}

impl Health {
    /// Flushes that the log needs where hosts ask for none.
    pub async fn keep_flushed(self: Rc<Self>) {
        loop {
            self.ctx.changed.until(|| self.ctx.over() || self.ctx.wishes.has(Wish::Flush)).await;
            if self.ctx.over() {
                return;
            }
            self.ctx.wishes.take(Wish::Flush);
            // It fails when the array froze or closes: nothing is written any more then.
            let _ = self.flush().await;
        }
    }
}
