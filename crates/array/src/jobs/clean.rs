//! The cleaner: moves live blocks out of segments so that these can be freed, a few segments at a time, in small steps.
//!
//! ```text
//! choose (victims.rs) -> survey: read its headers -> steps: look up, read, lock, look up again, write
//! ```
//!
//! A step gives room to hosts (`pace.rs`); the segment itself comes back with the next checkpoint, which is asked for
//! when enough of them wait.
//!
//! Invariant: a block is moved only while the map names the place it is moved from and no write of it is in
//! flight: asked before it is read, and again under the block's lock, which the move holds from then until its record is
//! formed; what becomes of it then: `log/moving.rs`.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use base::{Lba, Pba, SegmentId, VolumeId};
use futures::future::{Either, select};
use futures::stream::{self, FuturesUnordered, StreamExt};
use ondisk::{Entry, MapRef, Place, RecordHeader, VolumeState};

use crate::canary::{Canary, planted};
use crate::core::Core;
use crate::ctx::Wish;
use crate::fault::Fault;
use crate::jobs::move_reads::Live;
use crate::jobs::victims::{SHARE, Victim};
use crate::log::{Held, Piece, Request, StreamId, What, window_rows};
use crate::map::NodeKey;
use crate::map::memtable::Touch;
use crate::member::seat::MOVES_AT_ONCE;
use crate::row::Columns;
use crate::space::segment::{Hold, Life, Seg, pba};
use crate::sync::Pieces;

/// Rows of a step's record, about, as far as its header has room for entries: the larger, the less of it is header and padding.
const STEP_ROWS: usize = 64;

/// Blocks of a step, at least: the log takes no more than two smaller records at a time.
const STEP_BLOCKS_MIN: usize = 64;

/// Steps of a segment at once: some read while others write.
const STEPS_AT_ONCE: usize = 2;

/// Times that the map is asked whether a segment is vacated, and the pause between.
const VACATED_TRIES: usize = 4;
const VACATED_PAUSE: Duration = Duration::from_millis(1);

/// Segments emptied at once, so that the pace of hosts is even also at a segment's beginning and end.
const LANES: usize = 4;

/// Between two looks for something to gain while hosts wait.
const RETRY: Duration = Duration::from_millis(250);

/// Rows whose headers are looked for in one read.
const SURVEY_ROWS: u32 = 64;

/// Blocks looked up in the map before others run: a tenth of a millisecond.
const LOOKS_IN_A_PIECE: usize = 256;

/// A block that a header speaks of, and its place.
pub(super) type Found = (VolumeId, Lba, Place);

/// What is live in a segment.
struct Survey {
    blocks: Vec<Found>,
    /// Besides: map nodes, or blocks of volumes that are being deleted. They go when the trees are written.
    others: bool,
}

impl Core {
    /// Whether there is less room than hosts should find.
    fn wants_cleaning(&self) -> bool {
        // Nobody waits for room any more, and moves would keep the log from coming to rest.
        if self.ctx.is_closing() {
            return false;
        }
        let ladder = self.rungs();
        let stuck =
            self.room_left() <= ladder.stop_floor && self.emptied_waiting(true) + self.emptied_waiting(false) == 0;
        self.room_now() < ladder.clean_below as i64 * SHARE || stuck
    }

    pub(super) async fn keep_clean(self: Rc<Self>) {
        loop {
            self.ctx.changed.until(|| !self.ctx.is_open() || self.wants_cleaning()).await;
            if !self.ctx.is_open() {
                return;
            }
            if self.choose().is_none() {
                self.nothing_fits().await;
                continue;
            }
            self.pace().set_cleaning(true);
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
    pub(super) fn give_back_emptied(&self) {
        if self.enough_emptied(true) {
            self.ctx.wishes.ask(Wish::Release);
            self.ctx.changed.wake();
        }
        if self.enough_emptied(false) {
            self.want_checkpoint();
        }
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

    /// Empties one segment; if it `vacates`, only one that a generation gives back. From the call on nobody else chooses it.
    pub(super) fn empty(self: &Rc<Self>, victim: Victim, vacates: bool) -> impl Future<Output = ()> {
        self.jobs.cleaner.begins(victim.id, victim.takes);
        let core = self.clone();
        async move {
            let moved = match core.survey(victim.id).await {
                Ok(there) if vacates && there.others => Err(Fault::NoSpace),
                Ok(there) => core.move_out(victim, there, vacates).await,
                Err(fault) => Err(fault),
            };
            core.jobs.cleaner.ends(victim.id);
            core.ctx.changed.wake();
            if moved.is_err() {
                // It is not chosen again before the others had their turn.
                core.jobs.cleaner.found_hard(victim.id);
            }
        }
    }

    /// What victims may take now, in thousandths of a segment.
    pub(super) fn room_to_clean(&self) -> i64 {
        let left = (self.room_left() as i64 - self.rungs().free_floor as i64) * SHARE;
        left - self.jobs.cleaner.takes()
    }

    /// Empties a segment that does not hold what is written to it; false when that cannot be done now.
    pub(super) async fn clean_now(self: &Rc<Self>, id: SegmentId) -> bool {
        let Some(victim) = self.victim(id) else { return false };
        self.empty(victim, false).await;
        !self.jobs.cleaner.is_hard(id)
    }

    /// Makes a block that cannot be read a bad one, durably, if the map still names its place.
    pub(super) async fn mark_if_lost(&self, (volume, lba, place): Found) -> Result<(), Fault> {
        let Some(live) = self.read_live(volume, lba, place).await? else { return Ok(()) };
        self.writable()?;
        if live.data.is_some() {
            return Ok(());
        }
        let Some(piece) = self.still_live(live).await? else { return Ok(()) };
        let request = piece.request.clone();
        self.submit_to(StreamId::Inner, piece);
        request.done().await
    }

    /// What to empty next, while that leaves room for two checkpoints.
    fn choose(&self) -> Option<Victim> {
        let ladder = self.rungs();
        let room = self.room_to_clean();
        let greedy = self.room_now() < ladder.write_floor as i64 * SHARE;
        self.next_victim(room, greedy)
    }

    /// Nothing is worth emptying, or there is no room for what is: a checkpoint makes counts exact and gives back what is
    /// empty. If that does not help, one segment is emptied with all but the room of one more checkpoint, since one is
    /// just done, and with what is left of the segment that moves go to; or with all there is, if it then comes back
    /// without a checkpoint. If nothing is to be gained at all, that takes something new.
    async fn nothing_fits(self: &Rc<Self>) {
        self.checkpoint_and_wait().await;
        if !self.ctx.is_open() || !self.wants_cleaning() || self.choose().is_some() {
            return;
        }
        let nodes = self.rungs().nodes;
        let for_map = if self.rest_of(StreamId::Map) as f64 > nodes * SHARE as f64 { 0 } else { nodes.ceil() as i64 };
        let left = self.room_left() as i64;
        let (last_room, all) = ((left - for_map).max(0) * SHARE, left * SHARE);
        for (room, vacates) in [(last_room, false), (all, true)] {
            let room = room + self.rest_of(StreamId::Inner);
            if let Some(victim) = self.next_victim(room, true).filter(|_| !planted(Canary::LastRoomForgotten)) {
                self.empty(victim, vacates).await;
                if self.emptied_waiting(true) > 0 {
                    self.ctx.wishes.ask(Wish::Release);
                    self.ctx.changed.wake();
                }
                self.want_checkpoint();
                return;
            }
        }
        self.jobs.cleaner.tries_all_again();
        self.pace().set_cleaning(false);
        self.ctx.changed.wake();
        self.something_new().await;
    }

    /// What is left of the segment that a stream appends to, in thousandths.
    fn rest_of(&self, stream: StreamId) -> i64 {
        let table = self.segments.read();
        let segment = self.log.segment_of(stream).and_then(|id| table.segments.get(&id));
        let rest = segment.map_or(0, |s| s.scheme.k() as u64 * u64::from(self.ctx.shape.zone_blocks - s.rows.append));
        (rest * SHARE as u64 / self.segment_blocks_now().max(1)) as i64
    }

    /// Resolves when something was overwritten or deallocated: a quarter of a segment, or anything once hosts are
    /// stopped; when other members take columns, so that zones are worth something else; or after a while,
    /// while hosts wait.
    async fn something_new(&self) {
        let (written, left) = (self.ctx.figures.host_blocks_written.get(), self.room_left());
        let facts = self.memory.read().active.len();
        let quarter = self.segment_blocks_now() / 4;
        let members = || self.members.all().iter().map(|s| s.takes_columns()).collect::<Vec<bool>>();
        let before = members();
        let news = || {
            let ladder = self.rungs();
            let stopped = self.room_left() <= ladder.stop_floor || self.room_now() <= ladder.write_floor as i64 * SHARE;
            let enough = if stopped { 1 } else { quarter };
            self.ctx.figures.host_blocks_written.get() - written >= enough
                || self.memory.read().active.len().abs_diff(facts) as u64 >= enough
                || self.room_left() != left
                || members() != before
        };
        let mut told = pin!(self.ctx.changed.until(|| !self.ctx.is_open() || news()));
        loop {
            match select(told.as_mut(), pin!(self.ctx.rt.sleep(RETRY))).await {
                Either::Left(_) => return,
                // A request that needs more than there is lets nobody by who would bring news.
                Either::Right(_) if self.room_is_waited_for() => return,
                Either::Right(_) => {}
            }
        }
    }

    /// Reads the headers of a segment: what is live there now, by rows and columns. Map nodes found are told to the next
    /// checkpoint.
    async fn survey(self: &Rc<Self>, id: SegmentId) -> Result<Survey, Fault> {
        let _pin = self.pins.pin();
        let mut live = Vec::new();
        let mut others = false;
        let pieces = Pieces::of(LOOKS_IN_A_PIECE, &self.ctx.rt);
        let rows = self.segments.read().segments.get(&id).map(|s| s.rows.acked);
        let (Some(columns), Some(rows)) = (self.columns(id), rows) else { return Err(Fault::Closed) };
        let mut row = 0;
        while row < rows {
            let (first, window) = (row, SURVEY_ROWS.min(rows - row));
            let image = self.read_column(&columns, 0, first, window).await;
            let mut blocks = Vec::new();
            while row < first + window {
                let header = || self.header_at(&columns, image.as_deref(), first, row);
                let Some(header) = self.ask_for_good(Option::is_none, header).await else {
                    self.writable()?;
                    self.ctx.error(format!("segment {id}: the record header at row {row} is lost; the segment stays"));
                    self.segments.mark_header_lost(id);
                    return Err(Fault::Medium);
                };
                for (index, entry, crc) in header.payload() {
                    let (column, at) = header.payload_place(index);
                    let place = Place { pba: pba(id, column, at, self.ctx.shape.zone_blocks), crc };
                    match *entry {
                        Entry::Data { volume, lba, .. } | Entry::Move { volume, lba, .. } => {
                            blocks.push((volume, lba, place));
                        }
                        Entry::MapNode { volume, lba, level, .. } => {
                            others |= self.touch(volume, lba, level, place.pba).await?;
                        }
                        Entry::Pad | Entry::Hole { .. } | Entry::Zero { .. } | Entry::Bad { .. } => {}
                    }
                }
                row += header.rows;
            }
            blocks.sort_by_key(|(volume, lba, _)| (*volume, *lba));
            for block in blocks {
                pieces.did(1).await;
                match self.is_named(block).await {
                    Ok(true) => live.push(block),
                    Ok(false) => {}
                    // Their leaf is lost: the next checkpoint makes them bad.
                    Err(Fault::Medium) if !planted(Canary::LostLeafStops) => {
                        let (volume, lba, _) = block;
                        let lba = NodeKey::leaf(volume, lba).first_lba();
                        self.memory.touch(Touch { volume, level: 0, lba });
                        others = true;
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        let volumes = self.volumes.all();
        let counted = live.len();
        live.retain(|(volume, ..)| volumes.get(volume).is_some_and(|v| v.state() == VolumeState::Live));
        others |= live.len() < counted;
        // A step takes what lies together: whole rows, down one column after the other.
        live.sort_by_key(|(.., place)| {
            let (column, row) = Seg::place(place.pba.block, self.ctx.shape.zone_blocks);
            (row as usize / STEP_ROWS, column, row)
        });
        Ok(Survey { blocks: live, others })
    }

    /// Whether the map names a block's place. Once it does not, it never will again.
    pub(super) async fn is_named(&self, (volume, lba, place): Found) -> Result<bool, Fault> {
        let Some(vol) = self.volumes.get(volume) else { return Ok(false) };
        Ok(planted(Canary::MoveUnconditional) || self.resolve(&vol, lba, 1).await?.refs[0] == MapRef::At(place))
    }

    /// Whether nothing of a segment is asked for any more. What was being written when its turn came is somewhere else soon.
    async fn is_vacated(&self, there: &Survey) -> Result<bool, Fault> {
        if planted(Canary::VacatedUnasked) {
            return Ok(true);
        }
        if there.others {
            return Ok(false);
        }
        let mut left = there.blocks.clone();
        let pieces = Pieces::of(LOOKS_IN_A_PIECE, &self.ctx.rt);
        for _ in 0..VACATED_TRIES {
            let mut named = Vec::new();
            for block in left {
                pieces.did(1).await;
                if self.is_named(block).await? {
                    named.push(block);
                }
            }
            left = named;
            if left.is_empty() {
                return Ok(true);
            }
            self.ctx.rt.sleep(VACATED_PAUSE).await;
        }
        Ok(false)
    }

    /// The header at `row`: from `image`, the first column from row `first` on, or by all other ways.
    pub(super) async fn header_at(
        &self,
        columns: &Columns,
        image: Option<&[u8]>,
        first: u32,
        row: u32,
    ) -> Option<RecordHeader> {
        let at = (row - first) as usize * base::BLOCK_BYTES;
        let block = image.and_then(|image| image.get(at..at + base::BLOCK_BYTES));
        match block.and_then(|block| self.header_in(columns, row, block)) {
            Some(header) => Some(header),
            None => self.read_header(columns, row).await,
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
        let gain_blocks = victim.gain as f64 / SHARE as f64 * self.segment_blocks_now() as f64;
        let steps = blocks.len().div_ceil(step).max(1);
        let done = std::cell::Cell::new(0);
        let after_step = || {
            done.set(done.get() + 1);
            self.segments.mark_emptied(victim.id, (done.get() * SHARE as usize / steps) as u16);
            self.measure_room();
            self.pace().gained(gain_blocks / steps as f64, self.ctx.rt.now().0);
            self.ctx.changed.wake();
        };
        if blocks.is_empty() {
            after_step();
        }
        let mut moves = stream::iter(blocks.chunks(step))
            .map(|part| self.move_step(part, to_the_end))
            .buffer_unordered(STEPS_AT_ONCE);
        let mut result = Ok(());
        while let Some(moved) = moves.next().await {
            match moved {
                Ok(()) => after_step(),
                Err(fault) => result = Err(fault),
            }
        }
        let vacated = result.is_ok() && self.is_vacated(&there).await.unwrap_or(false);
        match result {
            Ok(()) => self.segments.mark_cleaned(victim.id, self.memory.freezes(), vacated),
            Err(_) => self.segments.mark_not_cleaned(victim.id),
        }
        self.measure_room();
        result
    }

    /// Moves blocks; returns when all that are still live are acknowledged elsewhere.
    async fn move_step(self: &Rc<Self>, blocks: &[Found], to_the_end: bool) -> Result<(), Fault> {
        while to_the_end || !self.ctx.is_closing() {
            if self.move_once(blocks).await? {
                return Ok(());
            }
        }
        Err(Fault::Closed)
    }

    /// A few records of moves, one after the other; false when a member that went out had some taken back.
    async fn move_once(self: &Rc<Self>, blocks: &[Found]) -> Result<bool, Fault> {
        // Who waits for the pace gains by every one that is read.
        let at_once = MOVES_AT_ONCE + self.pace().waiting();
        self.members.all().iter().for_each(|seat| seat.moves.set_places(at_once));
        let mut read = self.read_lives(blocks).await?;
        let mut requests = Vec::with_capacity(read.len());
        let rows = window_rows(self.ctx.shape.zone_blocks) as usize;
        let mut submitted = Ok(());
        while !read.is_empty() && submitted.is_ok() {
            let rest = read.split_off(read.len().min(rows * self.ctx.shape.scheme.k() - 1));
            submitted = self.submit_moves(std::mem::replace(&mut read, rest)).await.map(|more| requests.extend(more));
        }
        let mut all = true;
        for request in requests {
            request.done().await?;
            all &= !request.was_taken_back();
        }
        submitted.map(|()| all)
    }

    /// Hands what is still live to the log; returns when it has begun with these, and hosts hardly wait for their locks.
    async fn submit_moves(&self, blocks: Vec<Live>) -> Result<Vec<Rc<Request>>, Fault> {
        let _turn = self.jobs.cleaner.turn().await;
        let mut pieces = Vec::with_capacity(blocks.len());
        for live in blocks {
            pieces.extend(self.still_live(live).await?);
        }
        let requests = pieces.iter().map(|p| p.request.clone()).collect();
        for piece in pieces {
            self.submit_to(StreamId::Inner, piece);
        }
        let k = self.ctx.shape.scheme.k();
        let begun = || self.log.stream(StreamId::Inner).wants_more(k) || !self.ctx.is_open();
        self.ctx.changed.until(begun).await;
        Ok(requests)
    }

    /// Its move, the block's lock held, if it is live now that nobody else can write it; `None` when it is overwritten, or
    /// is being.
    async fn still_live(&self, live: Live) -> Result<Option<Piece>, Fault> {
        let Live { vol, lba, from, data } = live;
        // Being written, or moved: it will be somewhere else soon.
        if self.log.moving.contains(vol.id, lba) {
            return Ok(None);
        }
        let Some(guard) = vol.locks.try_lock(lba.0, lba.0 + 1) else { return Ok(None) };
        if vol.state() != VolumeState::Live {
            return Ok(None);
        }
        let unasked = planted(Canary::MoveUnconditional) || planted(Canary::MoveAskedOnce);
        if !unasked && self.resolve(&vol, lba, 1).await?.refs[0] != MapRef::At(from) {
            return Ok(None);
        }
        let request = Request::new(1, Some(Held { guard, promise: None }));
        let what = match &data {
            Some(_) => What::Move,
            None => {
                self.ctx.error(format!("volume {}: block {lba} is lost", vol.name()));
                What::Fill(if planted(Canary::BadForgotten) { MapRef::Hole } else { MapRef::Bad })
            }
        };
        Ok(Some(Piece { what, volume: vol.id, lba, blocks: 1, data, request }))
    }

    /// Has the next checkpoint write a map node elsewhere, if it still is where the cleaner found it; whether it is.
    pub(super) async fn touch(&self, volume: VolumeId, lba: Lba, level: u8, at: Pba) -> Result<bool, Fault> {
        let Some(vol) = self.volumes.get(volume) else { return Ok(false) };
        let key = NodeKey::of(volume, level, lba);
        let now = self.node_ref(&vol.roots(), vol.height(), key).await?;
        let there = matches!(now, MapRef::At(place) if place.pba == at);
        if there {
            self.memory.touch(Touch { volume, level, lba });
        }
        Ok(there)
    }

    /// Segments that wait to be given back, in thousandths: vacated ones by the next generation; others, emptied since the last
    /// memtable was frozen, by the next checkpoint.
    fn emptied_waiting(&self, vacated: bool) -> i64 {
        let table = self.segments.read();
        let worth = self.zones_worth();
        let emptied = |s: &Seg| match s.life {
            Life::Spare | Life::Open | Life::Sealed | Life::Emptying(_) => false,
            Life::Emptied { frozen } => !vacated && frozen == self.memory.freezes(),
            Life::Vacated { .. } => vacated,
        };
        let waits = |s: &&Seg| s.hold == Hold::Free && emptied(s);
        table.segments.values().filter(waits).map(|s| worth.of(s)).sum()
    }
}
