//! What is done in the background for the log, the volumes and the members.

use std::rc::Rc;
use std::time::Duration;

use crate::core::Core;
use crate::ctx::Wish;
use crate::member::seat::Seat;

impl Core {
    /// Starts the background tasks.
    pub fn start_background(self: &Rc<Self>) {
        let core = self.clone();
        self.ctx.rt.spawn(async move { core.keep_generations().await }).detach();
        let core = self.clone();
        self.ctx.rt.spawn(async move { core.keep_checkpoints().await }).detach();
        let core = self.clone();
        self.ctx.rt.spawn(async move { core.keep_zones().await }).detach();
        let core = self.clone();
        self.ctx.rt.spawn(async move { core.keep_flushed().await }).detach();
        let core = self.clone();
        self.ctx.rt.spawn(async move { core.keep_clean().await }).detach();
        let core = self.clone();
        self.ctx.rt.spawn(async move { core.keep_rebuilt().await }).detach();
        let core = self.clone();
        self.ctx.rt.spawn(async move { core.keep_scrubbed().await }).detach();
        self.start_health();
        let core = self.clone();
        self.ctx.rt.spawn(async move { core.keep_current().await }).detach();
    }

    fn over(&self) -> bool {
        !self.ctx.is_open()
    }

    /// Generations that are wanted for their own sake: members out, spares, room.
    async fn keep_generations(self: Rc<Self>) {
        loop {
            let wanted = || self.members.is_degrading() || self.spares_help() || self.ctx.wishes.has(Wish::Release);
            self.ctx.changed.until(|| self.over() || wanted()).await;
            if self.over() {
                return;
            }
            if self.members.is_degrading() {
                self.degrade().await;
            } else if self.commit().await.is_err() && self.over() {
                return;
            }
        }
    }

    /// Flushes that the log needs where hosts ask for none.
    async fn keep_flushed(self: Rc<Self>) {
        loop {
            self.ctx.changed.until(|| self.over() || self.ctx.wishes.has(Wish::Flush)).await;
            if self.over() {
                return;
            }
            self.ctx.wishes.take(Wish::Flush);
            // It fails when the array froze or closes: nothing is written any more then.
            let _ = self.flush().await;
        }
    }

    async fn keep_checkpoints(self: Rc<Self>) {
        loop {
            // It may have become full by what became of the array: narrower segments hold less.
            let full = || self.memtable_share() >= 1.0;
            self.ctx
                .changed
                .until(|| self.over() || self.ctx.wishes.has(Wish::Checkpoint) || self.dropping() || full())
                .await;
            if self.over() {
                return;
            }
            if self.checkpoint().await.is_err() && !self.over() {
                self.ctx.warn("a checkpoint failed; it will be retried".to_owned());
                self.ctx.rt.sleep(Duration::from_secs(1)).await;
                self.ctx.wishes.ask(Wish::Checkpoint);
            }
        }
    }

    /// Freed zones that nobody looks at any more: deallocated on their drives, then free.
    async fn keep_zones(self: Rc<Self>) {
        loop {
            self.pins.some_free(|| self.over()).await;
            if self.over() {
                return;
            }
            let zones = self.pins.take_free();
            let count = zones.len() as i64;
            let free = |(seat, zone): (Rc<Seat>, u32)| async move {
                let n = base::BlockCount(u64::from(seat.layout.zone_blocks));
                seat.deallocate(seat.layout.zone_row(zone, 0), n).await;
                seat.give_zone(zone);
            };
            futures::future::join_all(zones.into_iter().map(free)).await;
            self.zones_on_their_way(-count);
            self.room_changed();
        }
    }
}
