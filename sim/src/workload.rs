//! Hosts: tasks that read, write, deallocate and flush at random, and tell the model.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use array::{Fault, Volume};
use rand::{RngExt, SeedableRng};
use rt::{Bytes, Rt};

use crate::model::{Mode, Model, SECTOR};
use crate::plan::Dice;

/// Figures of one run.
#[derive(Default)]
pub struct Done {
    /// Requests answered.
    pub requests: Cell<u64>,
    /// Bytes written.
    pub bytes: Cell<u64>,
    /// Requests refused for want of space.
    pub no_space: Cell<u64>,
    /// The first thing that was wrong.
    pub wrong: RefCell<Option<String>>,
}

/// One host on one volume.
pub struct Host {
    /// The volume.
    pub volume: Volume,
    /// What it should hold.
    pub model: Rc<RefCell<Model>>,
    /// Whether an answered write is durable.
    pub write_through: bool,
    /// Whether more is gone than the redundancy covers: errors are no news then, wrong data is.
    pub may_fail: bool,
    /// Figures.
    pub done: Rc<Done>,
}

impl Host {
    /// Works until the executor goes away or the array refuses.
    pub async fn run(self, rt: Rt, seed: u64) {
        let mut dice = Dice::seed_from_u64(seed);
        let patience = dice.random_range(0..3);
        loop {
            match self.step(&mut dice).await {
                Ok(()) => {}
                Err(Fault::NoSpace) => self.done.no_space.set(self.done.no_space.get() + 1),
                Err(Fault::Frozen | Fault::Closed | Fault::ReadOnly) => return,
                Err(_) if self.may_fail => return,
                Err(other) => {
                    self.done.wrong.borrow_mut().get_or_insert(format!("a request failed: {other}"));
                    return;
                }
            }
            self.done.requests.set(self.done.requests.get() + 1);
            if patience == 0 && dice.random_range(0..8) == 0 {
                rt.sleep(std::time::Duration::from_micros(dice.random_range(1..2000))).await;
            }
        }
    }

    async fn step(&self, dice: &mut Dice) -> Result<(), Fault> {
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
        match dice.random_range(0..20) {
            0..=11 => {
                let (id, data) = {
                    let mut model = self.model.borrow_mut();
                    let id = model.begin(first..first + n, true);
                    (id, model.payload(id, first..first + n))
                };
                let result = self.volume.write(offset, Bytes::from_slice(&data), fua).await;
                self.done.bytes.set(self.done.bytes.get() + bytes);
                self.model.borrow_mut().end(id, first..first + n, result.is_ok(), fua || self.write_through);
                result
            }
            12..=13 => {
                let whole = first.next_multiple_of(8)..(first + n) / 8 * 8;
                let whole = if whole.start < whole.end { whole } else { first..first };
                let id = self.model.borrow_mut().begin(whole.clone(), false);
                let result = self.volume.deallocate(offset, bytes, fua).await;
                self.model.borrow_mut().end(id, whole, result.is_ok(), fua || self.write_through);
                result
            }
            14 => {
                let id = self.model.borrow_mut().begin(first..first + n, false);
                let may = dice.random_range(0..2) == 0;
                let result = self.volume.write_zeroes(offset, bytes, may, fua).await;
                self.model.borrow_mut().end(id, first..first + n, result.is_ok(), fua || self.write_through);
                result
            }
            15 => {
                let since = self.model.borrow_mut().now();
                self.volume.flush().await?;
                self.model.borrow_mut().flushed(since);
                Ok(())
            }
            _ => {
                let since = self.model.borrow_mut().begin_read();
                let parts = self.volume.read(offset, bytes).await;
                self.model.borrow_mut().end_read(since);
                let parts = parts?;
                let found: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
                let judged = self.model.borrow().check(first, &found, Mode::Running(since));
                if let Err(wrong) = judged {
                    self.done.wrong.borrow_mut().get_or_insert(wrong);
                }
                Ok(())
            }
        }
    }
}
