//! Host flushes: one at a time for all who wait.

use std::cell::Cell;
use std::rc::Rc;

use futures::future::join_all;

use crate::canary::{Canary, planted};
use crate::core::Core;
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

impl Core {
    /// Makes durable everything acknowledged before the call, on every member that is in; when one fails it, after
    /// the generation that says so.
    pub async fn flush(&self) -> Result<(), Fault> {
        self.writable()?;
        let ours = self.members.flushes.begun.get() + 1;
        let _turn = self.members.flushes.gate.pass().await;
        if self.members.flushes.done.get() >= ours {
            // One that began after the call is done: it covers this one. (`begun` counts only those that passed.)
            return self.degraded_durably().await;
        }
        let this = self.members.flushes.begun.get() + 1;
        self.members.flushes.begun.set(this);
        loop {
            self.degraded_durably().await?;
            let acked = self.segments.not_durable();
            let seats = self.members.seats_in();
            if self.flush_all(&seats).await {
                self.segments.mark_durable(acked);
                self.log.poke();
                break;
            }
        }
        self.members.flushes.done.set(this);
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
