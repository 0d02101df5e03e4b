//! A host of a volume in stripes: requests from a block to some stripes, many of them across a stripe's end.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use array::parts::STRIPE_BYTES;
use export::{Fault, Namespace, Striped};
use rand::{RngExt, SeedableRng};
use rt::{Bytes, Rt};

use super::namespace::Share;
use super::open::Opened;
use super::volumes::Held;
use crate::model::{Mode, SECTOR};
use crate::plan::Dice;
use crate::volumes::Fate;
use crate::workload::{Done, joined};

/// Sectors of a block, and of a stripe.
const BLOCK: usize = 4096 / SECTOR;
const STRIPE: usize = STRIPE_BYTES as usize / SECTOR;

/// A host that found no space lets this much time pass.
const REFUSED_PAUSE: Duration = Duration::from_micros(500);

/// One host on one volume.
pub struct Host {
    pub array: Opened,
    pub held: Rc<Held>,
    pub done: Rc<Done>,
    /// Requests that reached several parts.
    pub across: Rc<Cell<u64>>,
}

/// Where a request lies, in sectors.
#[derive(Clone, Copy)]
struct Range {
    first: usize,
    n: usize,
}

impl Range {
    fn sectors(self) -> std::ops::Range<usize> {
        self.first..self.first + self.n
    }

    fn offset(self) -> u64 {
        (self.first * SECTOR) as u64
    }

    fn bytes(self) -> u64 {
        (self.n * SECTOR) as u64
    }
}

impl Host {
    /// Works until the executor goes away, the volume does or it is told to stop.
    pub async fn run(self, rt: Rt, seed: u64) {
        self.done.at_work.set(self.done.at_work.get() + 1);
        match self.wait_for_volume(&rt).await {
            Ok(Some(volume)) => self.work(&volume, &rt, seed).await,
            Ok(None) => {}
            Err(wrong) => self.wrong(wrong),
        }
        self.done.at_work.set(self.done.at_work.get() - 1);
    }

    fn wrong(&self, what: String) {
        self.done.wrong.borrow_mut().get_or_insert(what);
    }

    async fn wait_for_volume(&self, rt: &Rt) -> Result<Option<Striped<Share>>, String> {
        for _ in 0..500 {
            if self.done.stop.get() || matches!(self.held.fate.get(), Fate::Going | Fate::Gone) {
                return Ok(None);
            }
            for name in self.held.names.borrow().iter() {
                if let Some(volume) = self.array.volume(name)? {
                    return Ok(Some(volume));
                }
            }
            rt.sleep(Duration::from_micros(20)).await;
        }
        Ok(None)
    }

    async fn work(&self, volume: &Striped<Share>, rt: &Rt, seed: u64) {
        let mut dice = Dice::seed_from_u64(seed);
        let patience = dice.random_range(0..3);
        while !self.done.stop.get() {
            match self.step(volume, &mut dice).await {
                Ok(wrote) => {
                    // Whoever has an answer has a volume.
                    if wrote && self.held.fate.get() == Fate::Coming {
                        self.held.fate.set(Fate::Stays);
                    }
                }
                Err(Fault::NoSpace) => {
                    self.done.no_space.set(self.done.no_space.get() + 1);
                    rt.sleep(REFUSED_PAUSE).await;
                }
                Err(Fault::Gone) if self.done.stop.get() || self.is_nobodys() => return,
                // Drives are lost within the redundancy: it never freezes.
                Err(fault) => return self.wrong(format!("volume {}: a request failed: {fault}", self.held.name())),
            }
            self.done.requests.set(self.done.requests.get() + 1);
            if patience == 0 && dice.random_range(0..8) == 0 {
                rt.sleep(Duration::from_micros(dice.random_range(1..2000))).await;
            }
        }
    }

    /// What a volume holds while it is deleted is nobody's business.
    fn is_nobodys(&self) -> bool {
        matches!(self.held.fate.get(), Fate::Going | Fate::Gone)
    }

    fn range(&self, dice: &mut Dice) -> Range {
        let blocks = self.held.model.borrow().sectors() / BLOCK;
        let longest = match dice.random_range(0..12) {
            0 => 3 * STRIPE / BLOCK,
            1 => STRIPE / BLOCK,
            2..=4 => 40,
            _ => 4,
        };
        let n = dice.random_range(1..=longest.min(blocks));
        let mut first = dice.random_range(0..=blocks - n);
        if dice.random_range(0..4) == 0 {
            // Across the end of a stripe, where there is one within.
            let end = first.next_multiple_of(STRIPE / BLOCK);
            first = end.saturating_sub(dice.random_range(0..=n)).min(blocks - n);
        } else if dice.random_range(0..2) == 0 {
            first /= 4;
        }
        let range = Range { first: first * BLOCK, n: n * BLOCK };
        if range.first / STRIPE != (range.first + range.n - 1) / STRIPE {
            self.across.set(self.across.get() + 1);
        }
        range
    }

    /// One request; whether it changed something.
    async fn step(&self, volume: &Striped<Share>, dice: &mut Dice) -> Result<bool, Fault> {
        let range = self.range(dice);
        let fua = dice.random_range(0..8) == 0;
        match dice.random_range(0..20) {
            0..=9 => self.write(volume, range, fua).await.map(|()| true),
            10..=11 => {
                let work = volume.deallocate(range.offset(), range.bytes(), fua);
                self.zero(volume, range, fua, work).await.map(|()| true)
            }
            12..=13 => {
                let may = dice.random_range(0..2) == 0;
                let work = volume.write_zeroes(range.offset(), range.bytes(), may, fua);
                self.zero(volume, range, fua, work).await.map(|()| true)
            }
            14..=15 => {
                self.flush(volume).await?;
                Ok(false)
            }
            _ => self.read(volume, range).await.map(|()| false),
        }
    }

    /// Writes the first block of a stripe.
    pub async fn write_at(&self, volume: &Striped<Share>, stripe: usize, fua: bool) -> Result<(), Fault> {
        self.write(volume, Range { first: stripe * STRIPE, n: BLOCK }, fua).await
    }

    /// Flushes all parts.
    pub async fn flush(&self, volume: &Striped<Share>) -> Result<(), Fault> {
        let since = self.held.model.borrow_mut().now();
        volume.flush().await?;
        self.held.model.borrow_mut().flushed(since);
        Ok(())
    }

    async fn write(&self, volume: &Striped<Share>, range: Range, fua: bool) -> Result<(), Fault> {
        let (id, data) = {
            let mut model = self.held.model.borrow_mut();
            let id = model.begin(range.sectors(), true);
            (id, model.payload(id, range.sectors()))
        };
        let result = volume.write(range.offset(), Bytes::from_slice(&data), fua).await;
        self.done.bytes.set(self.done.bytes.get() + range.bytes());
        self.ended(volume, id, range, result.is_ok(), fua);
        result
    }

    async fn zero(
        &self,
        volume: &Striped<Share>,
        range: Range,
        fua: bool,
        work: impl Future<Output = Result<(), Fault>>,
    ) -> Result<(), Fault> {
        let id = self.held.model.borrow_mut().begin(range.sectors(), false);
        let result = work.await;
        self.ended(volume, id, range, result.is_ok(), fua);
        result
    }

    fn ended(&self, volume: &Striped<Share>, id: u64, range: Range, acknowledged: bool, fua: bool) {
        let durable = fua || !volume.info().volatile_cache;
        self.held.model.borrow_mut().end(id, range.sectors(), acknowledged, durable);
    }

    async fn read(&self, volume: &Striped<Share>, range: Range) -> Result<(), Fault> {
        let since = self.held.model.borrow_mut().begin_read();
        let read = volume.read(range.offset(), range.bytes() as u32).await;
        self.held.model.borrow_mut().end_read(since);
        let found = joined(&read?);
        if found.len() as u64 != range.bytes() {
            self.wrong(format!("{} bytes were read of {}", found.len(), range.bytes()));
        }
        let judged = self.held.model.borrow().check(range.first, &found, Mode::Running(since));
        if let Err(wrong) = judged
            && !self.is_nobodys()
        {
            self.wrong(format!("volume {}: {wrong}", self.held.name()));
        }
        Ok(())
    }
}
