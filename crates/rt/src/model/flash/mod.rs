//! Flash behind a modelled drive: dies, channels, a link, a write buffer, and a translation layer that has to clean.
//!
//! ```text
//! write: link -> buffer (the answer, once there is room) -> channel -> die programs a page, which frees the buffer
//! read:  die reads each page -> channel -> link
//! ```
//!
//! - Writes smaller than the indirection unit wait in the buffer for the rest of it, a quarter of the buffer at most; then
//!   the oldest unit is read, and all of it written.
//! - Cleaning takes the same dies and channels: so a drive that moves more answers less.
//! - A read waits for a program no longer than it takes to suspend it; the program ends later.
//! - What was never written, or was deallocated, is answered without the flash.
//!
//! Sizes are scaled down with their ratios kept: as many superblocks, of fewer pages ([`FlashParams::superblocks`]).
//!
//! Not modelled: erases (less than a hundredth of the programs' time), wear, errors, read caches and read-ahead, cells
//! that hold one bit for a while, power limits.

mod ftl;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use base::BLOCK_BYTES;
pub use ftl::amplification_of;
use ftl::{Ftl, Shape, Work};

use super::{Op, OpKind};

/// The character of a flash drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashParams {
    /// Bytes that have one place: smaller writes read and write all of them.
    pub unit_bytes: u32,
    /// Flash beyond what hosts see, as a part of it.
    pub spare: f64,
    /// Superblocks that the flash is divided into, about.
    pub superblocks: u32,
    /// Dies.
    pub dies: u32,
    /// Bytes that a die programs or reads at once.
    pub page_bytes: u32,
    /// A die reads a page.
    pub page_read_ns: u64,
    /// A die programs a page.
    pub page_program_ns: u64,
    /// How long a program holds up a read.
    pub suspend_ns: u64,
    /// Channels, each for as many dies.
    pub channels: u32,
    /// Bytes a second of one channel.
    pub channel_bytes_per_s: f64,
    /// Bytes a second from the host.
    pub link_write_bytes_per_s: f64,
    /// Bytes a second to the host.
    pub link_read_bytes_per_s: f64,
    /// What each command takes, besides.
    pub command_ns: u64,
    /// Commands a second, at most.
    pub commands_per_s: f64,
    /// The write buffer.
    pub buffer_bytes: u64,
}

/// What the flash did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounters {
    /// Bytes that hosts' writes took, whole units.
    pub written_bytes: u64,
    /// Bytes that cleaning moved.
    pub moved_bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct Die {
    /// Programs given to it end then.
    busy_until: u64,
    /// Reads given to it end then.
    reading_until: u64,
}

/// Flash and its clock, in ns.
#[derive(Clone)]
pub(super) struct Flash {
    params: FlashParams,
    ftl: Ftl,
    dies: Vec<Die>,
    channels: Vec<u64>,
    link_in: u64,
    link_out: u64,
    /// When the next command is taken.
    command: f64,
    /// Bytes in the write buffer, and when pages of it are programmed.
    buffered: u64,
    leaves: BinaryHeap<Reverse<(u64, u64)>>,
    /// Units in the buffer that are not whole: which blocks of them are there; and in the order in which they came.
    parts: BTreeMap<u32, u64>,
    parts_order: VecDeque<u32>,
    /// The pages that cleaning reads are all there then.
    moves_read: u64,
    work: Vec<Work>,
}

impl Flash {
    pub(super) fn new(params: FlashParams, bytes: u64) -> Flash {
        let unit = u64::from(params.unit_bytes);
        let units = bytes.div_ceil(unit);
        let page_units = params.page_bytes / params.unit_bytes;
        assert!(params.page_bytes == page_units * params.unit_bytes && page_units > 0, "a page holds whole units");
        assert!((1..=64).contains(&(unit / BLOCK_BYTES as u64)), "a unit has 1 to 64 blocks");
        let physical = (units as f64 * (1.0 + params.spare)) as u64;
        let pages = (physical / u64::from(params.superblocks) / u64::from(page_units)).max(1);
        let shape = Shape {
            units: units as u32,
            physical_units: physical as u32,
            page_units,
            superblock_units: pages as u32 * page_units,
            dies: params.dies,
        };
        Flash {
            params,
            ftl: Ftl::new(shape),
            dies: vec![Die::default(); params.dies as usize],
            channels: vec![0; params.channels as usize],
            link_in: 0,
            link_out: 0,
            command: 0.0,
            buffered: 0,
            leaves: BinaryHeap::new(),
            parts: BTreeMap::new(),
            parts_order: VecDeque::new(),
            moves_read: 0,
            work: Vec::new(),
        }
    }

    /// A clock begins anew: all is idle. What waited in the buffer for the rest of its unit is forgotten: the contents are
    /// not kept here.
    pub(super) fn restart(&mut self) {
        self.dies.fill(Die::default());
        self.channels.fill(0);
        (self.link_in, self.link_out, self.command, self.moves_read) = (0, 0, 0.0, 0);
        self.leaves.clear();
        self.parts.clear();
        self.parts_order.clear();
        // The page that is begun leaves the buffer as a whole.
        self.buffered = u64::from(self.ftl.units_begun()) * u64::from(self.params.unit_bytes);
    }

    pub(super) fn counters(&self) -> FlashCounters {
        let unit = u64::from(self.params.unit_bytes);
        FlashCounters { written_bytes: self.ftl.written * unit, moved_bytes: self.ftl.moved * unit }
    }

    /// When an operation that begins now is answered.
    pub(super) fn serve(&mut self, now: u64, op: &Op) -> u64 {
        self.command = self.command.max(now as f64) + 1e9 / self.params.commands_per_s;
        let begins = (self.command as u64).max(now);
        let end = match op.kind {
            OpKind::Read => self.read(begins, op),
            OpKind::Write => self.write(begins, op),
            OpKind::Deallocate => {
                for unit in self.units(op, true) {
                    self.ftl.forget(unit);
                    if self.parts.remove(&unit).is_some() {
                        self.parts_order.retain(|u| *u != unit);
                        self.buffered -= u64::from(self.params.unit_bytes);
                    }
                }
                begins
            }
            // What is in the buffer survives a power cut.
            OpKind::Flush => begins,
        };
        end + self.params.command_ns
    }

    /// Units that an operation touches; or holds wholly.
    fn units(&self, op: &Op, whole: bool) -> impl Iterator<Item = u32> + use<> {
        let unit = u64::from(self.params.unit_bytes);
        let (first, end) = (op.at.byte_offset(), op.at.byte_offset() + op.blocks.bytes());
        let range = if whole { first.div_ceil(unit)..end / unit } else { first / unit..end.div_ceil(unit) };
        range.map(|u| u as u32)
    }

    fn unit_blocks(&self) -> u32 {
        self.params.unit_bytes / BLOCK_BYTES as u32
    }

    /// Which blocks of a unit an operation touches.
    fn blocks_touched(&self, op: &Op, unit: u32) -> u64 {
        let first = u64::from(unit) * u64::from(self.unit_blocks());
        let from = op.at.0.max(first) - first;
        let to = (op.at.0 + op.blocks.0).min(first + u64::from(self.unit_blocks())) - first;
        (u64::MAX >> (64 - (to - from))) << from
    }

    fn read(&mut self, begins: u64, op: &Op) -> u64 {
        let mut end = begins;
        let mut pages: Vec<(u32, u32, u64)> = Vec::new();
        for unit in self.units(op, false) {
            let Some((page, die)) = self.ftl.page_of(unit) else { continue };
            let bytes = u64::from(self.blocks_touched(op, unit).count_ones()) * BLOCK_BYTES as u64;
            match pages.iter_mut().find(|(p, ..)| *p == page) {
                Some((.., all)) => *all += bytes,
                None => pages.push((page, die, bytes)),
            }
        }
        for (_, die, bytes) in pages {
            let read = self.die_reads(die, begins, begins);
            end = end.max(self.transfer(die, begins, read, bytes));
        }
        let bytes = op.blocks.bytes() as f64;
        self.link_out = self.link_out.max(begins) + (bytes * 1e9 / self.params.link_read_bytes_per_s) as u64;
        end.max(self.link_out)
    }

    fn write(&mut self, begins: u64, op: &Op) -> u64 {
        let bytes = op.blocks.bytes() as f64;
        self.link_in = self.link_in.max(begins) + (bytes * 1e9 / self.params.link_write_bytes_per_s) as u64;
        let mut at = self.link_in;
        let whole = u64::MAX >> (64 - self.unit_blocks());
        for unit in self.units(op, false) {
            let there = self.parts.get(&unit).copied();
            if there.is_none() {
                at = self.take_room(at);
            }
            let now_there = there.unwrap_or(0) | self.blocks_touched(op, unit);
            if now_there == whole {
                if self.parts.remove(&unit).is_some() {
                    self.parts_order.retain(|u| *u != unit);
                }
                self.place(unit, begins, at);
            } else {
                if self.parts.insert(unit, now_there).is_none() {
                    self.parts_order.push_back(unit);
                }
                let most = self.params.buffer_bytes / 4 / u64::from(self.params.unit_bytes);
                if self.parts_order.len() as u64 > most {
                    let oldest = self.parts_order.pop_front().expect("there are some");
                    self.parts.remove(&oldest);
                    let read = match self.ftl.page_of(oldest) {
                        Some((_, die)) => {
                            let read = self.die_reads(die, begins, at);
                            self.transfer(die, begins, read, u64::from(self.params.unit_bytes))
                        }
                        None => at,
                    };
                    self.place(oldest, begins, read);
                }
            }
        }
        at
    }

    /// Waits for room in the buffer for a unit; when there is.
    fn take_room(&mut self, from: u64) -> u64 {
        let (mut at, unit_bytes) = (from, u64::from(self.params.unit_bytes));
        while let Some(Reverse((leaves, bytes))) = self.leaves.peek().copied()
            && (leaves <= at || self.buffered + unit_bytes > self.params.buffer_bytes)
        {
            self.leaves.pop();
            at = at.max(leaves);
            self.buffered -= bytes;
        }
        self.buffered += unit_bytes;
        at
    }

    /// Gives a whole unit its place.
    fn place(&mut self, unit: u32, now: u64, whole_at: u64) {
        let mut work = std::mem::take(&mut self.work);
        self.ftl.write(unit, &mut work);
        for work in work.drain(..) {
            self.perform(work, now, whole_at);
        }
        self.work = work;
    }

    /// `now`, and hosts' data is there at `whole_at`.
    fn perform(&mut self, work: Work, now: u64, whole_at: u64) {
        let page = u64::from(self.params.page_bytes);
        match work {
            Work::Read { die } => {
                let read = self.die_reads(die, now, now);
                self.moves_read = self.moves_read.max(self.transfer(die, now, read, page));
            }
            Work::Program { die, of_hosts } => {
                let from = if of_hosts { whole_at } else { now.max(self.moves_read) };
                let there = self.transfer(die, now, from, page);
                let ends = self.die_works(die, now, there, self.params.page_program_ns);
                if of_hosts {
                    self.leaves.push(Reverse((ends, page)));
                }
            }
        }
    }

    // What is asked for `now` may begin later, at `from`. Its time is taken from the next that is free all the same, so
    // that a wait leaves no gap that nobody can use.

    /// Bytes go over the channel of a die.
    fn transfer(&mut self, die: u32, now: u64, from: u64, bytes: u64) -> u64 {
        let channel = &mut self.channels[(die % self.params.channels) as usize];
        let takes = (bytes as f64 * 1e9 / self.params.channel_bytes_per_s) as u64;
        *channel = (*channel).max(now) + takes;
        (*channel).max(from + takes)
    }

    fn die_reads(&mut self, die: u32, now: u64, from: u64) -> u64 {
        let die = &mut self.dies[die as usize];
        let free = die.reading_until.max(now);
        let begins = free.max(die.busy_until.min(free + self.params.suspend_ns));
        die.reading_until = begins + self.params.page_read_ns;
        if die.busy_until > begins {
            die.busy_until += self.params.page_read_ns;
        }
        die.reading_until.max(from + self.params.page_read_ns)
    }

    fn die_works(&mut self, die: u32, now: u64, from: u64, ns: u64) -> u64 {
        let die = &mut self.dies[die as usize];
        die.busy_until = die.busy_until.max(now).max(die.reading_until) + ns;
        die.busy_until.max(from + ns)
    }
}

#[cfg(test)]
mod tests {
    use base::{BlockCount, MemberLba};

    use super::*;

    const PARAMS: FlashParams = FlashParams {
        unit_bytes: 4096,
        spare: 0.2,
        superblocks: 64,
        dies: 4,
        page_bytes: 16384,
        page_read_ns: 50_000,
        page_program_ns: 500_000,
        suspend_ns: 20_000,
        channels: 2,
        channel_bytes_per_s: 1e9,
        link_write_bytes_per_s: 4e9,
        link_read_bytes_per_s: 4e9,
        command_ns: 10_000,
        commands_per_s: 1e6,
        buffer_bytes: 65536,
    };

    #[test]
    fn a_page_that_was_begun_under_another_clock_ends_under_this_one() {
        let mut flash = Flash::new(PARAMS, 16 << 20);
        for n in 0..1000u64 {
            let op = Op { kind: OpKind::Write, at: MemberLba(n * 7 % 4096), blocks: BlockCount(1) };
            let now = n % 50 * 2_000_000;
            assert!(flash.serve(now, &op) >= now + PARAMS.command_ns);
            if n % 50 == 49 {
                flash.restart();
            }
            assert!(flash.buffered <= PARAMS.buffer_bytes, "{}", flash.buffered);
        }
    }
}
