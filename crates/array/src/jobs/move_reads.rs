//! What the cleaner reads: live blocks, those that lie near each other with one request.
//!
//! Invariant: what is returned matched its checksum.

use std::rc::Rc;

use base::{BLOCK_BYTES, Lba, VolumeId};
use futures::future::join_all;
use ondisk::{MapRef, Place, VolumeState, crc32c};
use rt::{Buf, Bytes};

use crate::canary::{Canary, planted};
use crate::ctx::Context;
use crate::fault::Fault;
use crate::jobs::survey::Found;
use crate::map::Map;
use crate::row::RowReader;
use crate::space::pins::Pins;
use crate::space::segment::Seg;
use crate::volumes::Volumes;
use crate::volumes::vol::Vol;

/// Dead blocks between two live ones that are read along, at most: a drive takes less time for them than for a request.
const GAP_ROWS: u32 = 4;

/// Rows of one read, at most: hosts wait behind it.
const RUN_ROWS: u32 = 16;

/// A block that was live when its segment was surveyed.
pub struct Live {
    pub vol: Rc<Vol>,
    pub lba: Lba,
    pub from: Place,
    /// `None`: it is lost.
    pub data: Option<Bytes>,
}

/// Reads what is moved.
pub struct Relocation {
    ctx: Rc<Context>,
    pins: Pins,
    volumes: Rc<Volumes>,
    rows: Rc<RowReader>,
    map: Rc<Map>,
}

impl Relocation {
    /// One that has read nothing.
    pub fn new(
        ctx: &Rc<Context>,
        pins: &Pins,
        volumes: &Rc<Volumes>,
        rows: &Rc<RowReader>,
        map: &Rc<Map>,
    ) -> Rc<Relocation> {
        Rc::new(Relocation {
            ctx: ctx.clone(),
            pins: pins.clone(),
            volumes: volumes.clone(),
            rows: rows.clone(),
            map: map.clone(),
        })
    }

    /// What these blocks hold, by volume and address. They were live a moment ago: what has been overwritten since is read
    /// along, and found out before it is moved.
    pub async fn read_lives(&self, blocks: &[Found]) -> Result<Vec<Live>, Fault> {
        let mut named = blocks.to_vec();
        named.sort_unstable_by_key(|(.., place)| place.pba.block);
        let near = |a: &Found, b: &Found| b.2.pba.block - a.2.pba.block <= GAP_ROWS + 1;
        let rows = named.chunk_by(near).flat_map(|near| self.runs_of(near));
        let read = join_all(rows.map(|run| self.read_run_of_moves(run))).await;
        let mut live = Vec::with_capacity(named.len());
        for run in read {
            live.extend(run?);
        }
        live.sort_by_key(|l| (l.vol.id, l.lba));
        Ok(live)
    }

    /// Cuts blocks near each other to reads: none is too long, and none goes over two columns.
    fn runs_of<'a>(&self, near: &'a [Found]) -> Vec<&'a [Found]> {
        let mut runs = Vec::new();
        let mut rest = near;
        while let Some((.., first)) = rest.first() {
            let (column, row) = Seg::place(first.pba.block, self.ctx.shape.zone_blocks);
            let within = |found: &Found| {
                let (c, r) = Seg::place(found.2.pba.block, self.ctx.shape.zone_blocks);
                c == column && r < row + RUN_ROWS
            };
            let (run, behind) = rest.split_at(rest.iter().take_while(|found| within(found)).count());
            runs.push(run);
            rest = behind;
        }
        runs
    }

    /// What is live of one read's blocks.
    async fn read_run_of_moves(&self, run: &[Found]) -> Result<Vec<Live>, Fault> {
        let image = self.read_image(run).await;
        let mut live = Vec::with_capacity(run.len());
        let mut others = Vec::new();
        for &(volume, lba, place) in run {
            let at = (place.pba.block - run[0].2.pba.block) as usize * BLOCK_BYTES;
            let data = image.as_ref().map(|image| image.slice(at..at + BLOCK_BYTES));
            let data = data.filter(|data| crc32c(data) == place.crc || planted(Canary::RunUnverified));
            match (data, self.volumes.get(volume)) {
                (Some(data), Some(vol)) => live.push(Live { vol, lba, from: place, data: Some(data) }),
                // By all other ways.
                _ => others.push(self.read_live(volume, lba, place)),
            }
        }
        for other in join_all(others).await {
            live.extend(other?);
        }
        Ok(live)
    }

    /// A run with what lies between, as it is on the drive; `None` when each block has to be asked for alone.
    async fn read_image(&self, run: &[Found]) -> Option<Bytes> {
        let (first, last) = (run.first()?.2.pba, run.last()?.2.pba);
        let (column, row) = Seg::place(first.block, self.ctx.shape.zone_blocks);
        let (seat, _) = self.rows.slot_seat(&self.rows.columns(first.segment)?, column)?;
        let _turn = seat.moves.pass().await;
        // As they are now: a rebuild may have given columns new places.
        let columns = self.rows.columns(first.segment)?;
        let _pin = self.pins.pin();
        self.rows.read_if_soon(&columns, column, row, last.block - first.block + 1).await.map(Buf::freeze)
    }

    /// A block's contents, if the map still names the place; nothing is read that is not live.
    pub async fn read_live(&self, volume: VolumeId, lba: Lba, from: Place) -> Result<Option<Live>, Fault> {
        let lost = |read: &Result<Option<Live>, Fault>| matches!(read, Ok(Some(live)) if live.data.is_none());
        self.rows.ask_for_good(lost, || self.read_live_once(volume, lba, from)).await
    }

    async fn read_live_once(&self, volume: VolumeId, lba: Lba, from: Place) -> Result<Option<Live>, Fault> {
        let Some(vol) = self.volumes.get(volume) else { return Ok(None) };
        if vol.state() != VolumeState::Live {
            return Ok(None);
        }
        let (column, row) = Seg::place(from.pba.block, self.ctx.shape.zone_blocks);
        let seat = self.rows.columns(from.pba.segment).and_then(|columns| {
            let others = 0..columns.slots.len();
            std::iter::once(column).chain(others).find_map(|c| self.rows.slot_seat(&columns, c))
        });
        let _turn = match seat {
            Some((seat, _)) => Some(seat.moves.pass().await),
            None => None,
        };
        let resolved = self.map.resolve(&vol, lba, 1).await?;
        if resolved.refs[0] != MapRef::At(from) && !planted(Canary::MoveUnconditional) {
            return Ok(None);
        }
        // As they are now: a rebuild may have given columns new places.
        let Some(columns) = self.rows.columns(from.pba.segment) else { return Ok(None) };
        let run = self.rows.read_run(&columns, column, row, &[from.crc]).await;
        let data = (!run.lost).then(|| run.data.freeze());
        Ok(Some(Live { vol, lba, from, data }))
    }
}

impl Relocation {
    /// Whether the map names a block's place. Once it does not, it never will again.
    pub async fn is_named(&self, found: Found) -> Result<bool, Fault> {
        if let Some(named) = self.is_named_now(found) {
            return Ok(named);
        }
        let (volume, lba, place) = found;
        let Some(vol) = self.volumes.get(volume) else { return Ok(false) };
        Ok(Box::pin(self.map.resolve(&vol, lba, 1)).await?.refs[0] == MapRef::At(place))
    }

    /// The same, if it can be said at once.
    fn is_named_now(&self, (volume, lba, place): Found) -> Option<bool> {
        let Some(vol) = self.volumes.get(volume) else { return Some(false) };
        if planted(Canary::MoveUnconditional) {
            return Some(true);
        }
        self.map.ref_now(&vol, lba).map(|says| says == MapRef::At(place))
    }
}
