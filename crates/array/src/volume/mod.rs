//! A volume's requests: cut to chunks, locked, looked up, handed to the log or the drives.
//!
//! Invariants: a write holds the lock of its blocks until it is acknowledged; what a read returns matched its
//! checksum; the atomic unit is one block.

pub mod extents;
mod fits;
mod hosts;
pub mod locate;
mod timed;

use std::pin::pin;
use std::rc::Rc;

use base::{BLOCK_BYTES, BlockCount, Lba, VolumeId};
use futures::future::try_join_all;
use ondisk::{MapRef, VolumeState};
use rt::{Buf, Bytes, Party};

use crate::canary::{Canary, planted};
use crate::ctx::Phase;
use crate::fault::Fault;
use crate::map::LEAF_BLOCKS;
use crate::row::runs::Runs;
use crate::streams::{Held, Piece, Request, What};
use crate::sync::RangeGuard;
use crate::volume::extents::ExtentKind;
use crate::volumes::share::{Does, Turn};
use crate::volumes::vol::Vol;
pub use hosts::Hosts;
pub use timed::Timed;

/// The smallest unit of a request.
pub const SECTOR_BYTES: u64 = 512;

/// What one entry fills or deallocates at most: 4096 leaves, which a merge looks at.
const FILL_BYTES_MAX: u64 = 4 << 30;

/// Leaves of the memtable that one entry empties at most.
const FILL_LEAVES_MAX: usize = 256;

/// Requests of so many bytes are done a piece at a time, between which others run: each takes about as long as a turn may.
const LONG_BYTES: u64 = 256 << 10;

/// What parts of a request cost, in about a microsecond: a look at a span and its leaf, an entry of the log, and this much
/// data.
const SPAN_COST: u32 = 4;
const FILL_COST: u32 = 8;
const COST_BYTES: u64 = 8 << 10;

/// Spans that a request may look at for what one request of a block costs in the limits of its volume.
const SPANS_CHARGED: u32 = 64;

/// One volume of an open array.
#[derive(Clone)]
pub struct Volume {
    hosts: Rc<Hosts>,
    vol: Rc<Vol>,
    /// Which client of the array: each that was given a volume is one.
    client: u64,
}

impl Volume {
    /// A handle on a volume for another client.
    pub fn new(hosts: Rc<Hosts>, vol: Rc<Vol>) -> Volume {
        let client = hosts.volumes.next_client();
        Volume { hosts, vol, client }
    }

    /// The same volume for another client.
    #[must_use]
    pub fn apart(&self) -> Volume {
        Volume::new(self.hosts.clone(), self.vol.clone())
    }

    /// Waits until a part of a long request may begin that costs so much: others of this array, and other arrays, have their
    /// turns between.
    async fn step(&self, cost: u32) {
        if !planted(Canary::TurnTakenWhole) {
            let group = self.hosts.ctx.shape.array.0.as_u64_pair().1;
            self.hosts.ctx.rt.step(Party { group, member: self.client }, cost).await;
        }
    }

    /// The same for data; little of it does not wait.
    async fn step_of(&self, bytes: u64) {
        if bytes >= LONG_BYTES {
            self.step((bytes / COST_BYTES) as u32).await;
        }
    }

    /// Its number in the array; never of another volume.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        self.vol.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.vol.name().to_string()
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        BlockCount(self.vol.agreed_blocks()).bytes()
    }

    /// Its identity for hosts.
    #[must_use]
    pub fn uuid(&self) -> uuid::Uuid {
        self.vol.uuid
    }

    /// Whether acknowledged writes need a flush to be durable.
    #[must_use]
    pub fn volatile_cache(&self) -> bool {
        !self.hosts.members.no_volatile_cache()
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.hosts.members.writable().is_err()
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), Fault> {
        let over = self.hosts.ctx.is_closing() || self.hosts.ctx.phase() == Phase::Closed;
        if over || self.vol.state() != VolumeState::Live {
            return Err(Fault::Closed);
        }
        if !offset.is_multiple_of(SECTOR_BYTES) || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(Fault::Misaligned);
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => Err(Fault::OutOfRange),
        }
    }

    /// Waits until the volume's limits let a request of `bytes` begin. Of an array in one piece every request does so by
    /// itself. Of one in parts the first part keeps the limits, and who deals requests to parts asks it before.
    ///
    /// # Errors
    /// [`Fault::Closed`] when the array closes meanwhile.
    pub async fn within_limits(&self, bytes: u64) -> Result<(), Fault> {
        self.hosts.volumes.within_limits(&self.vol, bytes).await
    }

    async fn within_own_limits(&self, bytes: u64) -> Result<(), Fault> {
        if self.hosts.ctx.shape.part.of > 1 {
            return Ok(());
        }
        self.hosts.volumes.within_limits(&self.vol, bytes).await
    }

    /// Reads; parts in order.
    ///
    /// # Errors
    /// [`Fault::Medium`] when a block is lost; never wrong data.
    pub async fn read(&self, offset: u64, bytes: u64) -> Result<Vec<Bytes>, Fault> {
        self.check(offset, bytes)?;
        self.hosts.members.readable()?;
        self.vol.counters.reads.add(1);
        self.vol.counters.bytes_read.add(bytes);
        self.within_own_limits(bytes).await?;
        let _turn = self.hosts.volumes.turn(&self.vol, Does::Read, bytes).await;
        // `pin!`, here and below: a future that is awaited by its call is made first, and then copied, all of its 1 KB.
        if let Some(part) = pin!(self.read_one(offset, bytes)).await {
            self.hosts.members.readable()?;
            return Ok(vec![part]);
        }
        let read = if one_chunk(offset, bytes) {
            Box::pin(self.read_chunk(offset, bytes)).await
        } else {
            let parts = chunks(offset, bytes).into_iter().map(|(offset, bytes)| self.read_chunk(offset, bytes));
            try_join_all(parts).await.map(|parts| parts.into_iter().flatten().collect())
        };
        self.hosts.members.readable()?;
        read.map_err(|fault| self.as_seen(fault))
    }

    /// Reads within one block where nothing is in the way, which is how nearly all small reads are: its place is known,
    /// its member answers, and what that says matches. `None` otherwise: then the long way finds out why.
    async fn read_one(&self, offset: u64, bytes: u64) -> Option<Bytes> {
        let lba = Lba::containing_byte(offset);
        let skip = offset - lba.byte_offset();
        if bytes == 0 || skip + bytes > BLOCK_BYTES as u64 {
            return None;
        }
        let _pin = self.hosts.pins.pin();
        let place = self.hosts.map.place_now(&self.vol, lba)?;
        let block = pin!(self.hosts.rows.read_place(place)).await?.freeze();
        Some(if bytes == BLOCK_BYTES as u64 { block } else { block.slice(skip as usize..(skip + bytes) as usize) })
    }

    /// Drives are not asked any more once the array is closed, or another server has them: that is no error of the medium.
    fn as_seen(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Medium if self.hosts.ctx.phase() == Phase::Closed => Fault::Closed,
            Fault::Medium => self.hosts.members.readable().err().unwrap_or(fault),
            other => other,
        }
    }

    async fn read_chunk(&self, offset: u64, bytes: u64) -> Result<Vec<Bytes>, Fault> {
        self.step_of(bytes).await;
        let first = Lba::containing_byte(offset);
        let n = BlockCount::ceil_from_bytes(offset + bytes).0 - first.0;
        let parts = self.read_blocks(first, n as usize).await?;
        let skip = offset - first.byte_offset();
        if bytes == BlockCount(n).bytes() { Ok(parts) } else { Ok(cut_out(parts, skip as usize, bytes as usize)) }
    }

    async fn read_blocks(&self, first: Lba, n: usize) -> Result<Vec<Bytes>, Fault> {
        match self.read_blocks_there(first, n).await {
            // The block may have moved between look-up and read.
            Err(Fault::Medium) if !planted(Canary::OldPlacesBelieved) => self.read_blocks_there(first, n).await,
            other => other,
        }
    }

    /// A part for each run of blocks that lie behind each other on a drive, and for what reads as zeros between them.
    async fn read_blocks_there(&self, first: Lba, n: usize) -> Result<Vec<Bytes>, Fault> {
        let resolved = self.hosts.map.resolve(&self.vol, first, n).await?;
        let runs = Runs::of(&resolved.refs, self.hosts.ctx.shape.zone_blocks)?;
        let read = pin!(self.hosts.rows.read_runs(&runs)).await;
        drop(resolved.pin);
        let mut parts = Vec::with_capacity(2 * read.len() + 1);
        let mut filled = 0;
        let zeros = |parts: &mut Vec<Bytes>, blocks: usize| {
            if blocks > 0 {
                parts.push(Bytes::zeroed(blocks * BLOCK_BYTES));
            }
        };
        for ((at, places), data) in runs.iter().zip(read) {
            zeros(&mut parts, at - filled);
            filled = at + places.len();
            parts.push(data.ok_or(Fault::Medium)?.freeze());
        }
        zeros(&mut parts, n - filled);
        Ok(parts)
    }

    /// Writes; durable when it returns if `fua`, else after a flush (or at once, where no member has a volatile
    /// cache).
    ///
    /// # Errors
    /// When the array is full, frozen or read-only.
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), Fault> {
        self.check(offset, data.len() as u64)?;
        self.vol.counters.writes.add(1);
        self.vol.counters.bytes_written.add(data.len() as u64);
        self.within_own_limits(data.len() as u64).await?;
        let turn = self.hosts.volumes.turn(&self.vol, Does::Write, data.len() as u64).await;
        let written = if one_chunk(offset, data.len() as u64) {
            self.write_chunk(offset, data, turn.is_lone()).await
        } else {
            let parts = chunks(offset, data.len() as u64).into_iter().map(|(at, bytes)| {
                let from = (at - offset) as usize;
                self.write_chunk(at, data.slice(from..from + bytes as usize), false)
            });
            try_join_all(parts).await.map(drop)
        };
        written.map_err(|fault| self.as_seen(fault))?;
        // A flush is everybody's.
        drop(turn);
        self.durable_if(fua).await
    }

    async fn durable_if(&self, fua: bool) -> Result<(), Fault> {
        if fua && !self.hosts.members.no_volatile_cache() && !planted(Canary::FuaForgotten) {
            self.hosts.health.flush().await?;
        }
        Ok(())
    }

    async fn write_chunk(&self, offset: u64, data: Bytes, lone: bool) -> Result<(), Fault> {
        let first = Lba::containing_byte(offset);
        let end = BlockCount::ceil_from_bytes(offset + data.len() as u64).0;
        let n = end - first.0;
        self.hosts.members.writable()?;
        self.step_of(data.len() as u64).await;
        let promise = self.hosts.room.admit_write(n).await?;
        let guard = self.hosts.health.while_room(self.vol.locks.lock(first.0, end)).await?;
        self.check(offset, data.len() as u64)?;
        self.hosts.fits(&self.vol, first, n).await?;
        // Nothing comes behind the last checkpoint of an array that is being closed.
        self.check(offset, data.len() as u64)?;
        let whole = offset == first.byte_offset() && data.len() as u64 == BlockCount(n).bytes();
        let data = if whole { data } else { self.merge_sectors(first, n as usize, offset, &data).await? };
        let request = Request::new(n, Some(Held { guard, promise: Some(promise) }));
        request.set_lone(lone);
        self.hosts.streams.submit(Piece {
            what: What::Data,
            volume: self.vol.id,
            lba: first,
            blocks: n as u32,
            data: Some(data),
            crc: None,
            request: request.clone(),
        });
        request.done().await
    }

    /// Whole blocks of what is there with `data` laid over it.
    async fn merge_sectors(&self, first: Lba, n: usize, offset: u64, data: &[u8]) -> Result<Bytes, Fault> {
        let mut blocks = Buf::zeroed(n * BLOCK_BYTES);
        let skip = (offset - first.byte_offset()) as usize;
        let end = skip + data.len();
        let mut edges = vec![(0, skip > 0 || end < BLOCK_BYTES), (n - 1, !end.is_multiple_of(BLOCK_BYTES))];
        edges.retain(|(_, in_part)| *in_part);
        edges.dedup_by_key(|(edge, _)| *edge);
        for (edge, _) in edges {
            let old =
                self.read_blocks(first + BlockCount(edge as u64), 1).await.map_err(|fault| self.as_seen(fault))?;
            blocks[edge * BLOCK_BYTES..(edge + 1) * BLOCK_BYTES].copy_from_slice(&old[0]);
        }
        // Of a volume that is being deleted the rest of a block may read as zeros already, and the deletion is not durable.
        if !planted(Canary::LaidOverHoles) {
            self.check(offset, data.len() as u64)?;
        }
        blocks[skip..end].copy_from_slice(data);
        Ok(blocks.freeze())
    }

    /// Makes durable everything acknowledged before.
    ///
    /// # Errors
    /// When the array is frozen or read-only.
    pub async fn flush(&self) -> Result<(), Fault> {
        self.check(0, 0)?;
        self.vol.counters.flushes.add(1);
        if self.hosts.ctx.phase() == Phase::ReadOnly {
            return Ok(());
        }
        self.hosts.health.flush().await
    }

    /// Sets bytes to zero; nothing is stored for whole blocks.
    ///
    /// # Errors
    /// As a write.
    pub async fn write_zeroes(&self, offset: u64, bytes: u64, may_deallocate: bool, fua: bool) -> Result<(), Fault> {
        self.check(offset, bytes)?;
        self.vol.counters.writes.add(1);
        let charge = self.charge(Does::Write).await?;
        let fill = if may_deallocate { MapRef::Hole } else { MapRef::Zero };
        let inner =
            offset.next_multiple_of(BLOCK_BYTES as u64)..(offset + bytes) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        if inner.start >= inner.end {
            let zeros = Bytes::zeroed(bytes as usize);
            for (at, n) in chunks(offset, bytes) {
                self.write_chunk(at, zeros.slice(0..n as usize), false).await.map_err(|fault| self.as_seen(fault))?;
            }
        } else {
            let zeros = Bytes::zeroed(BLOCK_BYTES);
            for (from, to) in [(offset, inner.start), (inner.end, offset + bytes)] {
                if from < to {
                    self.write_chunk(from, zeros.slice(0..(to - from) as usize), false)
                        .await
                        .map_err(|fault| self.as_seen(fault))?;
                }
            }
            self.fill(inner.start, inner.end, fill, charge).await.map_err(|fault| self.as_seen(fault))?;
        }
        self.durable_if(fua).await
    }

    /// Gives whole blocks back; they read zeros. Parts of blocks at the edges stay.
    ///
    /// # Errors
    /// When the array is frozen or read-only.
    pub async fn deallocate(&self, offset: u64, bytes: u64, fua: bool) -> Result<(), Fault> {
        self.check(offset, bytes)?;
        self.vol.counters.deallocates.add(1);
        let charge = self.charge(Does::Write).await?;
        let from = offset.next_multiple_of(BLOCK_BYTES as u64);
        let to = (offset + bytes) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        if from < to {
            self.fill(from, to, MapRef::Hole, charge).await.map_err(|fault| self.as_seen(fault))?;
        }
        self.durable_if(fua).await
    }

    /// Waits until the limits and the shares of the volume let a part of a request begin, which counts as a request of one
    /// block.
    async fn charge(&self, does: Does) -> Result<Charge, Fault> {
        self.within_own_limits(0).await?;
        let turn = self.hosts.volumes.turn(&self.vol, does, BLOCK_BYTES as u64).await;
        Ok(Charge { does, turn: Some(turn), spans: 0, entries: 0 })
    }

    /// The next part of a request that takes long: charged anew when what was charged is used up.
    async fn charge_more(&self, charge: &mut Charge, entries: u32) -> Result<(), Fault> {
        charge.spans += 1;
        let used_up = charge.spans > SPANS_CHARGED || charge.entries + entries > 1;
        charge.entries += entries;
        if used_up && !planted(Canary::PartsUncharged) {
            // Not both at once: with all of its share in turns that wait for more, a volume would come to rest.
            charge.turn = None;
            *charge = Charge { entries, ..self.charge(charge.does).await? };
        }
        self.step(if entries > 0 { FILL_COST } else { SPAN_COST }).await;
        self.check(0, 0)
    }

    /// The first block of these that a request holds.
    fn first_held(&self, lba: Lba, until: Lba) -> Option<Lba> {
        let held = self.vol.locks.first_held(lba.0, until.0).map(Lba);
        held.filter(|_| !planted(Canary::LockedPassedBy))
    }

    async fn fill(&self, from: u64, to: u64, fill: MapRef, mut charge: Charge) -> Result<(), Fault> {
        let mut at = from;
        while at < to {
            at = self.skip(at, to, fill, &mut charge).await?;
            if at < to {
                self.charge_more(&mut charge, 1).await?;
                at = self.fill_piece(at, to.min((at / FILL_BYTES_MAX + 1) * FILL_BYTES_MAX), fill).await?;
            }
        }
        Ok(())
    }

    /// Where something lies from `at` on that is not `fill` already, or may come to: of what is there is nothing to do. A write
    /// whose host was told that there is no room may still be written: what is locked is not passed by.
    async fn skip(&self, at: u64, to: u64, fill: MapRef, charge: &mut Charge) -> Result<u64, Fault> {
        let (mut lba, end) = (Lba::containing_byte(at), Lba::containing_byte(to));
        while lba < end {
            self.hosts.members.writable()?;
            self.charge_more(charge, 0).await?;
            // Asked before the map is: what is locked then may have landed, and be locked no more, when the map has answered.
            let free_until = self.first_held(lba, end).unwrap_or(end);
            if free_until == lba {
                break;
            }
            match self.hosts.map.span(&self.vol, lba, free_until).await {
                Ok(span) if span.says == Some(fill) => lba = span.until,
                // What cannot be read is no proof.
                Ok(_) | Err(Fault::Medium) => break,
                Err(other) => return Err(other),
            }
        }
        Ok(lba.byte_offset())
    }

    /// Fills `from..to` by one entry, or the first part of it; where that ends.
    async fn fill_piece(&self, from: u64, to: u64, fill: MapRef) -> Result<u64, Fault> {
        self.hosts.members.writable()?;
        let (first, end) = (Lba::containing_byte(from), Lba::containing_byte(to));
        let end = self.hosts.memory.read().active.end_of_leaves(self.vol.id, first, end, FILL_LEAVES_MAX);
        let to = end.byte_offset();
        let promise = self.hosts.room.admit_fill().await?;
        let guard: RangeGuard = self.hosts.health.while_room(self.vol.locks.lock(first.0, end.0)).await?;
        self.check(from, to - from)?;
        if fill == MapRef::Zero {
            self.hosts.zeros_fit(&self.vol, first, end).await?;
        }
        self.check(from, to - from)?;
        let request = Request::new(1, Some(Held { guard, promise: Some(promise) }));
        self.hosts.streams.submit(Piece {
            what: What::Fill(fill),
            volume: self.vol.id,
            lba: first,
            blocks: end.since(first).0 as u32,
            data: None,
            crc: None,
            request: request.clone(),
        });
        request.done().await?;
        Ok(to)
    }

    /// Where the block at `offset` lies.
    ///
    /// # Errors
    /// When the map cannot be read there.
    pub async fn locate(&self, offset: u64) -> Result<locate::Located, Fault> {
        self.check(offset / BLOCK_BYTES as u64 * BLOCK_BYTES as u64, BLOCK_BYTES as u64)?;
        self.hosts.locate(&self.vol, Lba::containing_byte(offset)).await
    }

    /// What the bytes are, from `offset` on: at most `at_most` runs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub async fn extents(&self, offset: u64, bytes: u64, at_most: usize) -> Result<Vec<(u64, ExtentKind)>, Fault> {
        self.check(offset, bytes)?;
        self.hosts.members.readable()?;
        let mut charge = self.charge(Does::Read).await?;
        let mut extents: Vec<(u64, ExtentKind)> = Vec::new();
        let (mut lba, end) = (Lba::containing_byte(offset), Lba(BlockCount::ceil_from_bytes(offset + bytes).0));
        while lba < end {
            self.charge_more(&mut charge, 0).await?;
            let span = self.hosts.map.span(&self.vol, lba, end).await?;
            let blocks = span.until.since(lba).0;
            let is_room = match span.says {
                Some(says) => extents::add(&mut extents, says, blocks, at_most),
                None => {
                    let leaf = self.hosts.map.resolve(&self.vol, lba, blocks as usize).await?;
                    leaf.refs.iter().all(|says| extents::add(&mut extents, *says, 1, at_most))
                }
            };
            if !is_room {
                break;
            }
            lba = span.until;
        }
        Ok(extents::trim(extents, offset, bytes))
    }
}

/// What a request that takes long in all was charged for, and has not used up.
struct Charge {
    does: Does,
    turn: Option<Turn>,
    spans: u32,
    entries: u32,
}

/// Whether a request that has bytes lies within one leaf.
fn one_chunk(offset: u64, bytes: u64) -> bool {
    let leaf_bytes = BlockCount(LEAF_BLOCKS).bytes();
    bytes > 0 && offset / leaf_bytes == (offset + bytes - 1) / leaf_bytes
}

/// A request cut at the edges of leaves (1 MiB).
fn chunks(offset: u64, bytes: u64) -> Vec<(u64, u64)> {
    let leaf_bytes = BlockCount(LEAF_BLOCKS).bytes();
    let end = offset + bytes;
    let mut parts = Vec::new();
    let mut at = offset;
    while at < end {
        let to = ((at / leaf_bytes + 1) * leaf_bytes).min(end);
        parts.push((at, to - at));
        at = to;
    }
    parts
}

/// `bytes` of what lies in `parts` behind the first `skip` bytes.
fn cut_out(parts: Vec<Bytes>, skip: usize, bytes: usize) -> Vec<Bytes> {
    let mut begins = 0;
    let mut wanted = Vec::with_capacity(parts.len());
    for part in parts {
        let (from, to) = (begins.max(skip), (begins + part.len()).min(skip + bytes));
        if from < to {
            wanted.push(part.slice(from - begins..to - begins));
        }
        begins += part.len();
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_at_leaf_edges() {
        const MIB: u64 = 1 << 20;
        assert_eq!(chunks(MIB - 512, 1024), [(MIB - 512, 512), (MIB, 512)]);
        assert_eq!(chunks(0, 2 * MIB), [(0, MIB), (MIB, MIB)]);
        assert!(chunks(7, 0).is_empty());
    }
}
