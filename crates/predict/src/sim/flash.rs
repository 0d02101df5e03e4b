//! A flash drive, with its translation layer as an amplification: what a whole system of them can afford.
//!
//! The same parts and figures as the drive of `rt::model`: writes are answered from a buffer that programs empty; each
//! page of random writes brings the reads and programs of its cleaning with it, on the same dies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::DriveOp;
use super::pipe::Pipe;
use crate::drive::FlashFigures;

/// Times in ns.
#[derive(Clone, Copy, Default)]
struct Die {
    /// Programs given to it end then.
    busy_until: f64,
    /// Reads given to it end then.
    reading_until: f64,
}

/// Bytes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FlashBytes {
    /// That the drive was given.
    pub written: f64,
    /// That its flash programmed.
    pub programmed: f64,
}

/// One drive.
#[derive(Clone)]
pub(crate) struct Flash {
    figures: FlashFigures,
    /// Pages programmed, and read, by cleaning for each page of random writes.
    moves: f64,
    reads: f64,
    dies: Vec<Die>,
    channels: Vec<Pipe>,
    commands: [Pipe; 2],
    link_in: Pipe,
    link_out: Pipe,
    random_writes: Pipe,
    next_die: usize,
    page_begun: f64,
    move_debt: f64,
    read_debt: f64,
    /// Of reads in order: bytes left of the page that was read last, and when that is there.
    ahead: f64,
    ahead_at: f64,
    buffered: f64,
    leaves: BinaryHeap<Reverse<u64>>,
    die_ns: f64,
    /// Writes in order are cleaned, too: a log whose segments are not those of the drive.
    clean_all: bool,
    /// Dies and channels take no time; the link takes none.
    no_flash: bool,
    no_link: bool,
    pub(crate) bytes: FlashBytes,
}

impl Flash {
    /// `amplification`: bytes programmed for each byte of random writes of whole units.
    pub(crate) fn new(figures: FlashFigures, amplification: f64, no_flash: bool, no_link: bool) -> Flash {
        let valid = (amplification - 1.0) / amplification;
        let page_units = f64::from(figures.page_bytes / figures.unit_bytes);
        // A page of a victim is read when any of its units is valid.
        let reads = if valid > 0.0 { amplification * (1.0 - (1.0 - valid).powf(page_units)) } else { 0.0 };
        Flash {
            figures,
            moves: amplification - 1.0,
            reads,
            dies: vec![Die::default(); figures.dies as usize],
            channels: vec![Pipe::default(); figures.channels as usize],
            commands: [Pipe::default(); 2],
            link_in: Pipe::default(),
            link_out: Pipe::default(),
            random_writes: Pipe::default(),
            next_die: 0,
            page_begun: 0.0,
            move_debt: 0.0,
            read_debt: 0.0,
            ahead: 0.0,
            ahead_at: 0.0,
            buffered: 0.0,
            leaves: BinaryHeap::new(),
            die_ns: 0.0,
            clean_all: false,
            no_flash,
            no_link,
            bytes: FlashBytes::default(),
        }
    }

    /// The same drive under a log, which writes all in order.
    pub(crate) fn under_a_log(self) -> Flash {
        Flash { clean_all: true, ..self }
    }

    /// When an operation that begins `now`, and reaches the drive at `from`, is answered.
    pub(crate) fn serve(&mut self, now: f64, from: f64, op: &DriveOp, rng: &mut Xoshiro256PlusPlus) -> f64 {
        let mut at = from;
        if !self.no_flash {
            let ns = op.commands * 1e9 / self.figures.commands_per_s;
            at = self.commands[usize::from(op.read)].take(now, from, ns);
        }
        let end = if op.read { self.read(now, at, op, rng) } else { self.write(now, at, op, rng) };
        end + self.figures.command_ns as f64
    }

    fn read(&mut self, now: f64, from: f64, op: &DriveOp, rng: &mut Xoshiro256PlusPlus) -> f64 {
        let (mut end, page) = (from, f64::from(self.figures.page_bytes));
        if !self.no_flash {
            let mut die = rng.random_range(0..self.dies.len());
            let mut left = op.bytes;
            while left > 0.0 {
                if op.in_order {
                    if self.ahead <= 0.0 {
                        self.next_die = (self.next_die + 1) % self.dies.len();
                        let read = self.die_reads(self.next_die, now, from);
                        self.ahead = page;
                        self.ahead_at = self.transfer(self.next_die, now, read, page);
                    }
                    let takes = left.min(self.ahead);
                    self.ahead -= takes;
                    left -= takes;
                    end = end.max(self.ahead_at);
                } else {
                    let takes = left.min(page);
                    let read = self.die_reads(die, now, from);
                    end = end.max(self.transfer(die, now, read, takes));
                    left -= takes;
                    die = (die + 1) % self.dies.len();
                }
            }
        }
        if self.no_link {
            end
        } else {
            self.link_out.take(now, end, op.bytes * 1e9 / self.figures.link_read_bytes_per_s)
        }
    }

    fn write(&mut self, now: f64, from: f64, op: &DriveOp, rng: &mut Xoshiro256PlusPlus) -> f64 {
        let mut at = from;
        if !self.no_link {
            at = self.link_in.take(now, from, op.bytes * 1e9 / self.figures.link_write_bytes_per_s);
        }
        self.bytes.written += op.bytes;
        let unit = f64::from(self.figures.unit_bytes);
        let whole = if op.in_order { op.bytes } else { (op.bytes / unit).ceil() * unit };
        if self.no_flash {
            self.bytes.programmed += whole;
            return at;
        }
        if let (false, Some(rate)) = (op.in_order, self.figures.random_write_bytes_per_s) {
            at = self.random_writes.take(now, at, whole * 1e9 / rate);
        }
        at = self.take_room(at, whole);
        let mut whole_at = at;
        if op.bytes < whole {
            // The rest of the unit is read first.
            let die = rng.random_range(0..self.dies.len());
            let read = self.die_reads(die, now, at);
            whole_at = self.transfer(die, now, read, whole);
        }
        self.program(now, whole_at, whole, self.clean_all || !op.in_order, rng);
        at
    }

    /// Waits for room in the buffer.
    fn take_room(&mut self, from: f64, bytes: f64) -> f64 {
        let (mut at, page) = (from, f64::from(self.figures.page_bytes));
        let most = self.figures.buffer_bytes as f64;
        while let Some(&Reverse(leaves)) = self.leaves.peek()
            && (leaves as f64 <= at || self.buffered + bytes > most)
        {
            self.leaves.pop();
            at = at.max(leaves as f64);
            self.buffered -= page;
        }
        self.buffered += bytes;
        at
    }

    /// Pages of the buffer go to dies, each with its cleaning.
    fn program(&mut self, now: f64, whole_at: f64, bytes: f64, cleaned: bool, rng: &mut Xoshiro256PlusPlus) {
        let page = f64::from(self.figures.page_bytes);
        self.page_begun += bytes;
        while self.page_begun >= page {
            self.page_begun -= page;
            let end = self.die_programs(now, whole_at);
            self.leaves.push(Reverse(end as u64));
            if !cleaned {
                continue;
            }
            self.move_debt += self.moves;
            self.read_debt += self.reads;
            let mut read_at = now;
            while self.read_debt >= 1.0 {
                self.read_debt -= 1.0;
                let die = rng.random_range(0..self.dies.len());
                let read = self.die_reads(die, now, now);
                read_at = read_at.max(self.transfer(die, now, read, page));
            }
            while self.move_debt >= 1.0 {
                self.move_debt -= 1.0;
                self.die_programs(now, read_at);
            }
        }
    }

    fn die_programs(&mut self, now: f64, from: f64) -> f64 {
        let page = f64::from(self.figures.page_bytes);
        self.bytes.programmed += page;
        self.next_die = (self.next_die + 1) % self.dies.len();
        let (at, ns) = (self.next_die, self.figures.page_program_ns as f64);
        let there = self.transfer(at, now, from, page);
        let die = &mut self.dies[at];
        die.busy_until = die.busy_until.max(now).max(die.reading_until) + ns;
        self.die_ns += ns;
        die.busy_until.max(there + ns)
    }

    fn die_reads(&mut self, at: usize, now: f64, from: f64) -> f64 {
        let (ns, suspend) = (self.figures.page_read_ns as f64, self.figures.suspend_ns as f64);
        let die = &mut self.dies[at];
        let free = die.reading_until.max(now);
        let begins = free.max(die.busy_until.min(free + suspend));
        die.reading_until = begins + ns;
        if die.busy_until > begins {
            die.busy_until += ns;
        }
        self.die_ns += ns;
        die.reading_until.max(from + ns)
    }

    fn transfer(&mut self, die: usize, now: f64, from: f64, bytes: f64) -> f64 {
        let channels = self.channels.len();
        self.channels[die % channels].take(now, from, bytes * 1e9 / self.figures.channel_bytes_per_s)
    }

    /// Busy ns of the busiest kind of part inside, and of the busier direction of the link.
    pub(crate) fn busy(&self) -> (f64, f64) {
        let dies = self.die_ns / self.dies.len() as f64;
        let channels = self.channels.iter().map(Pipe::busy).sum::<f64>() / self.channels.len() as f64;
        let commands = self.commands.iter().map(Pipe::busy).fold(0.0, f64::max);
        let link = self.link_in.busy().max(self.link_out.busy());
        (dies.max(channels).max(commands).max(self.random_writes.busy()), link)
    }
}
