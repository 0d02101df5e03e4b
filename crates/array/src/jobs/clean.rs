//! The cleaner: moves live blocks out of segments so that these can be freed, a few segments at a time, in small steps.
//!
//! ```text
//! choose (victims.rs) -> survey: read its headers, look up -> steps: read, lock, look up again, write
//! ```
//!
//! A step gives room to hosts (`pace.rs`); the segment itself comes back with the next checkpoint, which is asked for
//! when enough of them wait.
//!
//! Invariant: a block is moved only while the map names the place it is moved from and no write of it is in
//! flight: asked under the block's lock, which the move holds from then until its record is formed; what becomes of it
//! then: `streams/moving.rs`.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::EventCode;
use base::SegmentId;
use futures::future::{Either, select};
use futures::stream::{self, FuturesUnordered, StreamExt};
use ondisk::{MapRef, VolumeState};

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::ctx::Wish;
use crate::fault::Fault;
use crate::jobs::On;
use crate::jobs::checkpoint::Checkpoints;
use crate::jobs::move_reads::Live;
use crate::jobs::move_reads::Relocation;
use crate::jobs::survey::{Found, Survey, Surveyor};
use crate::jobs::victims::Victim;
use crate::jobs::victims::Victims;
use crate::log::window_rows;
use crate::member::Members;
use crate::member::seat::MOVES_AT_ONCE;
use crate::memtable::memory::Memory;
use crate::room::Room;
use crate::room::SHARE;
use crate::space::segments::Segments;
use crate::streams::{Held, Piece, Request, StreamId, Streams, What};

/// Rows of a step's record, about, as far as its header has room for entries: the larger, the less of it is header and padding.
pub(super) const STEP_ROWS: usize = 64;

/// Blocks of a step, at least: the log takes no more than two smaller records at a time.
const STEP_BLOCKS_MIN: usize = 64;

/// Steps of a segment at once: some read while others write.
const STEPS_AT_ONCE: usize = 2;

/// Segments emptied at once, so that the pace of hosts is even also at a segment's beginning and end.
const LANES: usize = 4;

/// Between two looks for something to gain while hosts wait.
const RETRY: Duration = Duration::from_millis(250);

/// Empties segments.
pub struct Cleaner {
    ctx: Rc<Context>,
    members: Rc<Members>,
    segments: Rc<Segments>,
    memory: Rc<Memory>,
    streams: Rc<Streams>,
    room: Rc<Room>,
    checkpoints: Rc<Checkpoints>,
    victims: Rc<Victims>,
    relocation: Rc<Relocation>,
    surveyor: Rc<Surveyor>,
}

impl Cleaner {
    /// One that empties nothing yet.
    pub fn new(
        on: &On<'_>,
        checkpoints: &Rc<Checkpoints>,
        victims: &Rc<Victims>,
        relocation: &Rc<Relocation>,
        surveyor: &Rc<Surveyor>,
    ) -> Rc<Cleaner> {
        Rc::new(Cleaner {
            ctx: on.health.ctx().clone(),
            members: on.state.members.clone(),
            segments: on.state.segments.clone(),
            memory: on.state.memory.clone(),
            streams: on.state.streams.clone(),
            room: on.room.clone(),
            checkpoints: checkpoints.clone(),
            victims: victims.clone(),
            relocation: relocation.clone(),
            surveyor: surveyor.clone(),
        })
    }

    /// Whether there is less room than hosts should find.
    fn wants_cleaning(&self) -> bool {
        // Nobody waits for room any more, and moves would keep the log from coming to rest.
        if self.ctx.is_closing() {
            return false;
        }
        let ladder = self.room.rungs();
        let stuck = self.room.room_left() <= ladder.stop_floor
            && self.room.emptied_waiting(true) + self.room.emptied_waiting(false) == 0;
        self.room.room_now() < ladder.clean_below as i64 * SHARE || stuck
    }

    pub async fn keep_clean(self: Rc<Self>) {
        loop {
            self.ctx.changed.until(|| !self.ctx.is_open() || self.wants_cleaning()).await;
            if !self.ctx.is_open() {
                return;
            }
            if self.choose().is_none() {
                self.nothing_fits().await;
                continue;
            }
            self.room.pace().set_cleaning(true);
            self.clean_on().await;
        }
    }

    /// Empties segments, a few at once, until there is room or nothing fits.
    async fn clean_on(self: &Rc<Self>) {
        let mut lanes = FuturesUnordered::new();
        loop {
            // Whatever one could not find may be there when another is done.
            while lanes.len() < LANES && self.ctx.is_open() && self.wants_cleaning() {
                let Some(victim) = self.choose() else { break };
                lanes.push(self.empty(victim, false));
            }
            if lanes.next().await.is_none() {
                return;
            }
            self.give_back_emptied();
        }
    }

    /// Has a batch of emptied segments given back, if there is one.
    pub fn give_back_emptied(&self) {
        if self.room.enough_emptied(true) {
            self.ctx.wishes.ask(Wish::Release);
            self.ctx.changed.wake();
        }
        if self.room.enough_emptied(false) {
            self.ctx.want_checkpoint();
        }
    }

    /// Empties one segment; if it `vacates`, only one that a generation gives back. From the call on nobody else chooses it.
    pub fn empty(self: &Rc<Self>, victim: Victim, vacates: bool) -> impl Future<Output = ()> {
        self.victims.under_way().begins(victim.id, victim.takes);
        let cleaner = self.clone();
        async move {
            let moved = match cleaner.surveyor.survey(victim.id).await {
                Ok(there) if vacates && there.others => Err(Fault::NoSpace),
                Ok(there) => cleaner.move_out(victim, there, vacates).await,
                Err(fault) => Err(fault),
            };
            cleaner.victims.under_way().ends(victim.id);
            cleaner.ctx.changed.wake();
            if moved.is_err() {
                // It is not chosen again before the others had their turn.
                cleaner.victims.under_way().found_hard(victim.id);
            }
        }
    }

    /// Empties a segment that does not hold what is written to it; false when that cannot be done now.
    pub async fn clean_now(self: &Rc<Self>, id: SegmentId) -> bool {
        let Some(victim) = self.victims.victim(id) else { return false };
        self.empty(victim, false).await;
        !self.victims.under_way().is_hard(id)
    }

    /// Makes a block that cannot be read a bad one, durably, if the map still names its place.
    pub async fn mark_if_lost(&self, (volume, lba, place): Found) -> Result<(), Fault> {
        let Some(live) = self.relocation.read_live(volume, lba, place).await? else { return Ok(()) };
        self.members.writable()?;
        if live.data.is_some() {
            return Ok(());
        }
        let Still::Live(piece) = self.still_live(live).await? else { return Ok(()) };
        let request = piece.request.clone();
        self.streams.submit_to(StreamId::Inner, piece);
        request.done().await
    }

    /// What to empty next, while that leaves room for two checkpoints.
    fn choose(&self) -> Option<Victim> {
        let ladder = self.room.rungs();
        let room = self.victims.room_to_clean();
        let greedy = self.room.room_now() < ladder.write_floor as i64 * SHARE;
        self.victims.next_victim(room, greedy)
    }

    /// Nothing is worth emptying, or there is no room for what is: a checkpoint makes counts exact and gives back what is
    /// empty. If that does not help, one segment is emptied with all but the room of one more checkpoint, since one is
    /// just done, and with what is left of the segment that moves go to; or with all there is, if it then comes back
    /// without a checkpoint. If nothing is to be gained at all, that takes something new.
    async fn nothing_fits(self: &Rc<Self>) {
        self.checkpoints.checkpoint_and_wait().await;
        if !self.ctx.is_open() || !self.wants_cleaning() || self.choose().is_some() {
            return;
        }
        let nodes = self.room.rungs().nodes;
        let for_map = if self.rest_of(StreamId::Map) as f64 > nodes * SHARE as f64 { 0 } else { nodes.ceil() as i64 };
        let left = self.room.room_left() as i64;
        let (last_room, all) = ((left - for_map).max(0) * SHARE, left * SHARE);
        for (room, vacates) in [(last_room, false), (all, true)] {
            let room = room + self.rest_of(StreamId::Inner);
            if let Some(victim) = self.victims.next_victim(room, true).filter(|_| !planted(Canary::LastRoomForgotten)) {
                self.empty(victim, vacates).await;
                if self.room.emptied_waiting(true) > 0 {
                    self.ctx.wishes.ask(Wish::Release);
                    self.ctx.changed.wake();
                }
                self.ctx.want_checkpoint();
                return;
            }
        }
        self.victims.under_way().tries_all_again();
        self.room.pace().set_cleaning(false);
        self.ctx.changed.wake();
        self.something_new().await;
    }

    /// What is left of the segment that a stream appends to, in thousandths.
    fn rest_of(&self, stream: StreamId) -> i64 {
        let table = self.segments.read();
        let segment = self.streams.segment_of(stream).and_then(|id| table.segments.get(&id));
        let rest = segment.map_or(0, |s| s.scheme.k() as u64 * u64::from(self.ctx.shape.zone_blocks - s.rows.append));
        (rest * SHARE as u64 / self.room.segment_blocks_now().max(1)) as i64
    }

    /// Resolves when something was overwritten or deallocated: a quarter of a segment, or anything once hosts are
    /// stopped; when other members take columns, so that zones are worth something else; or after a while,
    /// while hosts wait.
    async fn something_new(&self) {
        let (written, left) = (self.ctx.figures.host_blocks_written.get(), self.room.room_left());
        let facts = self.memory.read().active.len();
        let quarter = self.room.segment_blocks_now() / 4;
        let members = || self.members.all().iter().map(|s| s.takes_columns()).collect::<Vec<bool>>();
        let before = members();
        let news = || {
            let ladder = self.room.rungs();
            let stopped =
                self.room.room_left() <= ladder.stop_floor || self.room.room_now() <= ladder.write_floor as i64 * SHARE;
            let enough = if stopped { 1 } else { quarter };
            self.ctx.figures.host_blocks_written.get() - written >= enough
                || self.memory.read().active.len().abs_diff(facts) as u64 >= enough
                || self.room.room_left() != left
                || members() != before
        };
        let mut told = pin!(self.ctx.changed.until(|| !self.ctx.is_open() || news()));
        loop {
            match select(told.as_mut(), pin!(self.ctx.rt.sleep(RETRY))).await {
                Either::Left(_) => return,
                // A request that needs more than there is lets nobody by who would bring news.
                Either::Right(_) if self.room.room_is_waited_for() => return,
                Either::Right(_) => {}
            }
        }
    }

    /// Moves what is still live out of a segment. An array that is being closed waits for no more than the steps under way,
    /// unless the last room went into this one.
    async fn move_out(self: &Rc<Self>, victim: Victim, there: Survey, to_the_end: bool) -> Result<(), Fault> {
        let blocks = &there.blocks;
        let k = self.ctx.shape.scheme.k();
        let step_rows = STEP_ROWS.max((STEP_BLOCKS_MIN + 1).div_ceil(k));
        // One record of whole rows, a header with them.
        let step = (step_rows * k).min((ondisk::ENTRIES_MAX + 2 - k) / k * k) - 1;
        let gain_blocks = victim.gain as f64 / SHARE as f64 * self.room.segment_blocks_now() as f64;
        let steps = blocks.len().div_ceil(step).max(1);
        let done = std::cell::Cell::new(0);
        let after_step = || {
            done.set(done.get() + 1);
            self.segments.mark_emptied(victim.id, (done.get() * SHARE as usize / steps) as u16);
            self.room.measure_room();
            self.room.pace().gained(gain_blocks / steps as f64, self.ctx.rt.now().0);
            self.ctx.changed.wake();
        };
        if blocks.is_empty() {
            after_step();
        }
        let busy = RefCell::default();
        let mut moves = stream::iter(blocks.chunks(step))
            .map(|part| self.move_step(part, to_the_end, &busy))
            .buffer_unordered(STEPS_AT_ONCE);
        let mut result = Ok(());
        while let Some(moved) = moves.next().await {
            match moved {
                Ok(()) => after_step(),
                Err(fault) => result = Err(fault),
            }
        }
        drop(moves);
        let vacated = result.is_ok() && self.surveyor.is_vacated(&there, busy.into_inner()).await.unwrap_or(false);
        match result {
            Ok(()) => self.segments.mark_cleaned(victim.id, self.memory.freezes(), vacated),
            Err(_) => self.segments.mark_not_cleaned(victim.id),
        }
        self.room.measure_room();
        result
    }

    /// Moves blocks; returns when all that are still live are acknowledged elsewhere, but for those that are `busy`.
    async fn move_step(
        self: &Rc<Self>,
        blocks: &[Found],
        to_the_end: bool,
        busy: &RefCell<Vec<Found>>,
    ) -> Result<(), Fault> {
        while to_the_end || !self.ctx.is_closing() {
            if self.move_once(blocks, busy).await? {
                return Ok(());
            }
        }
        Err(Fault::Closed)
    }

    /// A few records of moves, one after the other; false when a member that went out had some taken back.
    async fn move_once(self: &Rc<Self>, blocks: &[Found], busy: &RefCell<Vec<Found>>) -> Result<bool, Fault> {
        // Who waits for the pace gains by every one that is read.
        let at_once = MOVES_AT_ONCE + self.room.pace().waiting();
        self.members.all().iter().for_each(|seat| seat.moves.set_places(at_once));
        let mut read = self.relocation.read_lives(blocks).await?;
        let mut requests = Vec::with_capacity(read.len());
        let rows = window_rows(self.ctx.shape.zone_blocks) as usize;
        let mut submitted = Ok(());
        while !read.is_empty() && submitted.is_ok() {
            let rest = read.split_off(read.len().min(rows * self.ctx.shape.scheme.k() - 1));
            let portion = std::mem::replace(&mut read, rest);
            submitted = self.submit_moves(portion, busy).await.map(|more| requests.extend(more));
        }
        let mut all = true;
        for request in requests {
            request.done().await?;
            all &= !request.was_taken_back();
        }
        submitted.map(|()| all)
    }

    /// Hands what is still live to the log; returns when it has begun with these, and hosts hardly wait for their locks.
    async fn submit_moves(&self, blocks: Vec<Live>, busy: &RefCell<Vec<Found>>) -> Result<Vec<Rc<Request>>, Fault> {
        let _turn = self.victims.under_way().turn().await;
        let mut pieces = Vec::with_capacity(blocks.len());
        for live in blocks {
            match self.still_live(live).await? {
                Still::Live(piece) => pieces.push(piece),
                Still::Busy(block) => busy.borrow_mut().push(block),
                Still::Dead => {}
            }
        }
        let requests = pieces.iter().map(|p| p.request.clone()).collect();
        for piece in pieces {
            self.streams.submit_to(StreamId::Inner, piece);
        }
        let k = self.ctx.shape.scheme.k();
        let begun = || self.streams.stream(StreamId::Inner).wants_more(k) || !self.ctx.is_open();
        self.ctx.changed.until(begun).await;
        Ok(requests)
    }

    /// Its move, the block's lock held, if it is live now that nobody else can write it.
    pub async fn still_live(&self, live: Live) -> Result<Still, Fault> {
        let Live { vol, lba, from, data } = live;
        let block = (vol.id, lba, from);
        if self.streams.moving().contains(vol.id, lba) {
            return Ok(Still::Busy(block));
        }
        let Some(guard) = vol.locks.try_lock(lba.0, lba.0 + 1) else { return Ok(Still::Busy(block)) };
        if vol.state() != VolumeState::Live {
            return Ok(Still::Busy(block));
        }
        if !planted(Canary::MoveAskedOnce) && !self.relocation.is_named(block).await? {
            return Ok(Still::Dead);
        }
        let request = Request::new(1, Some(Held { guard, promise: None }));
        let what = match &data {
            Some(_) => What::Move,
            None => {
                self.ctx.error(EventCode::DataLost, format!("volume {}: block {lba} is lost", vol.name()));
                What::Fill(if planted(Canary::BadForgotten) { MapRef::Hole } else { MapRef::Bad })
            }
        };
        // What was read matches it, or was made from the rest of its row.
        let crc = data.is_some().then_some(from.crc);
        Ok(Still::Live(Piece { what, volume: vol.id, lba, blocks: 1, data, crc, request }))
    }
}

/// What became of a block that was live when its segment was surveyed.
pub enum Still {
    /// It is live: its move.
    Live(Piece),
    /// It is being written or moved, or its volume deleted: it will be somewhere else soon, or nowhere.
    Busy(Found),
    /// It was overwritten. That is for ever.
    Dead,
}
