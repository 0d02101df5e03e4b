//! Hosts: tasks that read, write, deallocate and flush at random, and tell the model.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use array::{Array, Fault, Volume};
use rand::{RngExt, SeedableRng};
use rt::{Bytes, Rt};

use crate::model::{Mode, Model, SECTOR};
use crate::plan::Dice;
use crate::volumes::Fate;

/// Sectors written at once by [`Host::fill`].
const FILL_SECTORS: usize = 512;

/// Longest pause of a host that is in no hurry.
const THOUGHT_MICROS: u64 = 200_000;

/// What was read, in one piece.
#[must_use]
pub fn joined(parts: &[Bytes]) -> Vec<u8> {
    parts.iter().map(|p| &p[..]).collect::<Vec<&[u8]>>().concat()
}

/// Figures of one run.
#[derive(Default)]
pub struct Done {
    /// Requests answered.
    pub requests: Cell<u64>,
    /// Bytes written.
    pub bytes: Cell<u64>,
    /// Requests refused for want of space.
    pub no_space: Cell<u64>,
    /// Whether more is gone than the redundancy covers: errors are no news then, wrong data is.
    pub may_fail: bool,
    /// Hosts end when they have their next answer.
    pub stop: Cell<bool>,
    /// Hosts think for some milliseconds before each request: where seconds must pass, thousands of requests show no more.
    pub unhurried: Cell<bool>,
    /// Hosts at work.
    pub at_work: Cell<usize>,
    /// The first thing that was wrong.
    pub wrong: RefCell<Option<String>>,
}

/// One host on one volume.
pub struct Host {
    /// The array.
    pub array: Array,
    /// The volume's name: it may still be coming.
    pub name: String,
    /// What it should hold.
    pub model: Rc<RefCell<Model>>,
    /// Whether it is there.
    pub fate: Rc<Cell<Fate>>,
    /// Figures.
    pub done: Rc<Done>,
}

/// A host that found no space lets this much time pass, at least.
const REFUSED_PAUSE: Duration = Duration::from_micros(500);

impl Host {
    /// Works until the executor goes away, the array refuses or it is told to stop.
    pub async fn run(self, rt: Rt, seed: u64) {
        self.done.at_work.set(self.done.at_work.get() + 1);
        if let Some(volume) = self.wait_for_volume(&rt).await {
            self.work(&volume, &rt, seed).await;
        }
        self.done.at_work.set(self.done.at_work.get() - 1);
    }

    async fn wait_for_volume(&self, rt: &Rt) -> Option<Volume> {
        for _ in 0..500 {
            let volume = self.array.volume(&self.name);
            if volume.is_some() || self.done.stop.get() {
                return volume;
            }
            rt.sleep(Duration::from_micros(20)).await;
        }
        None
    }

    /// One durable write of a block.
    pub async fn write_durably(&self, seed: u64) -> Result<(), Fault> {
        let volume = self.array.volume(&self.name).ok_or(Fault::Closed)?;
        let blocks = self.model.borrow().sectors() / 8;
        let block = Dice::seed_from_u64(seed).random_range(0..blocks);
        self.write(&volume, block * 8, 8, true).await?;
        self.done.requests.set(self.done.requests.get() + 1);
        Ok(())
    }

    /// Writes the end of `block` and the beginning of the next.
    pub async fn write_across(&self, block: usize) -> Result<(), Fault> {
        let volume = self.array.volume(&self.name).ok_or(Fault::Closed)?;
        self.write(&volume, block * 8 + 7, 2, false).await
    }

    /// Writes the whole volume once.
    pub async fn fill(&self) -> Result<(), Fault> {
        let volume = self.array.volume(&self.name).ok_or(Fault::Closed)?;
        let sectors = self.model.borrow().sectors();
        for first in (0..sectors).step_by(FILL_SECTORS) {
            self.write(&volume, first, FILL_SECTORS.min(sectors - first), false).await?;
        }
        Ok(())
    }

    /// Gives the first or the second half of the volume back.
    pub async fn deallocate_half(&self, half: usize) -> Result<(), Fault> {
        let volume = self.array.volume(&self.name).ok_or(Fault::Closed)?;
        let blocks = self.model.borrow().sectors() / 16;
        self.deallocate(&volume, half * blocks * 8, blocks * 8, false).await
    }

    async fn work(&self, volume: &Volume, rt: &Rt, seed: u64) {
        let mut dice = Dice::seed_from_u64(seed);
        let patience = dice.random_range(0..3);
        while !self.done.stop.get() {
            match self.step(volume, &mut dice).await {
                Ok(wrote) => {
                    // Whoever has an answer has a volume.
                    if wrote && self.fate.get() == Fate::Coming {
                        self.fate.set(Fate::Stays);
                    }
                }
                Err(Fault::NoSpace | Fault::NoRoom) => {
                    self.done.no_space.set(self.done.no_space.get() + 1);
                    // It may take no time to be refused.
                    rt.sleep(REFUSED_PAUSE).await;
                }
                Err(Fault::Frozen | Fault::TakenOver | Fault::Closed | Fault::ReadOnly) => return,
                Err(_) if self.done.may_fail => return,
                Err(other) => {
                    self.done.wrong.borrow_mut().get_or_insert(format!("a request failed: {other}"));
                    return;
                }
            }
            self.done.requests.set(self.done.requests.get() + 1);
            if self.done.unhurried.get() {
                rt.sleep(Duration::from_micros(dice.random_range(1..THOUGHT_MICROS))).await;
            } else if patience == 0 && dice.random_range(0..8) == 0 {
                rt.sleep(Duration::from_micros(dice.random_range(1..2000))).await;
            }
        }
    }

    async fn write(&self, volume: &Volume, first: usize, n: usize, fua: bool) -> Result<(), Fault> {
        let (id, data) = {
            let mut model = self.model.borrow_mut();
            let id = model.begin(first..first + n, true);
            (id, model.payload(id, first..first + n))
        };
        let result = volume.write((first * SECTOR) as u64, Bytes::from_slice(&data), fua).await;
        self.done.bytes.set(self.done.bytes.get() + data.len() as u64);
        self.model.borrow_mut().end(id, first..first + n, result.is_ok(), fua || !volume.volatile_cache());
        result
    }

    /// Whole blocks within are given back.
    async fn deallocate(&self, volume: &Volume, first: usize, n: usize, fua: bool) -> Result<(), Fault> {
        let whole = first.next_multiple_of(8)..(first + n) / 8 * 8;
        let whole = if whole.start < whole.end { whole } else { first..first };
        let id = self.model.borrow_mut().begin(whole.clone(), false);
        let result = volume.deallocate((first * SECTOR) as u64, (n * SECTOR) as u64, fua).await;
        self.model.borrow_mut().end(id, whole, result.is_ok(), fua || !volume.volatile_cache());
        result
    }

    /// One request; whether it changed something.
    async fn step(&self, volume: &Volume, dice: &mut Dice) -> Result<bool, Fault> {
        let sectors = self.model.borrow().sectors();
        let longest = match dice.random_range(0..10) {
            0 => 1024,
            1..=3 => 128,
            _ => 8,
        };
        let mut n = dice.random_range(1..=longest.min(sectors));
        let mut first = dice.random_range(0..=sectors - n);
        if dice.random_range(0..3) > 0 {
            // Mostly whole blocks, mostly in a busy quarter.
            first = first / 8 * 8;
            n = n.next_multiple_of(8).min(sectors - first);
        }
        if dice.random_range(0..2) == 0 {
            first /= 4;
        }
        let (offset, bytes) = ((first * SECTOR) as u64, (n * SECTOR) as u64);
        let fua = dice.random_range(0..12) == 0;
        let write_through = !volume.volatile_cache();
        match dice.random_range(0..20) {
            0..=11 => {
                self.write(volume, first, n, fua).await?;
                Ok(true)
            }
            12..=13 => {
                self.deallocate(volume, first, n, fua).await?;
                Ok(true)
            }
            14 => {
                let id = self.model.borrow_mut().begin(first..first + n, false);
                let may = dice.random_range(0..2) == 0;
                let result = volume.write_zeroes(offset, bytes, may, fua).await;
                self.model.borrow_mut().end(id, first..first + n, result.is_ok(), fua || write_through);
                result.map(|()| true)
            }
            15 => {
                let since = self.model.borrow_mut().now();
                volume.flush().await?;
                self.model.borrow_mut().flushed(since);
                Ok(false)
            }
            _ => {
                let since = self.model.borrow_mut().begin_read();
                let parts = volume.read(offset, bytes).await;
                self.model.borrow_mut().end_read(since);
                let parts = parts?;
                let found: Vec<u8> = joined(&parts);
                let judged = self.model.borrow().check(first, &found, Mode::Running(since));
                // What a volume holds while it is deleted is nobody's business.
                if let Err(wrong) = judged
                    && !matches!(self.fate.get(), Fate::Going | Fate::Gone)
                {
                    self.done.wrong.borrow_mut().get_or_insert(format!("volume {}: {wrong}", self.name));
                }
                Ok(false)
            }
        }
    }
}
