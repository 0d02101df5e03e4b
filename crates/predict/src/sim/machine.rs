//! A whole system: what happens to one request, and what every part did so far.

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::card::CardSim;
use super::disk::OneArm;
use super::flash::{Flash, FlashBytes};
use super::layout::{CHUNK, Layout, MAP, MOVE_READS, inside_amplification};
use super::pipe::Pipe;
use super::{DriveOp, Part};
use crate::amplification::{Span, flash_amplification};
use crate::error::Error;
use crate::load::{Access, Load};
use crate::system::{DriveState, Engine, Level, System};

/// Bytes a second that a rebuild writes to the new drive while hosts are served. Assumed: cards give hosts most.
const REBUILD_BYTES_PER_S: f64 = 500e6;
/// A piece of a rebuild.
const REBUILD_PIECE: f64 = 262_144.0;

/// What every part did so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Bytes hosts wrote.
    pub host_written: f64,
    /// Bytes drives were given, and their flash programmed.
    pub drives: FlashBytes,
    /// Busy ns: inside the mean drive, on its link, of the mean card, of the CPUs, of the network.
    pub flash_ns: f64,
    pub drive_link_ns: f64,
    pub card_ns: f64,
    pub cpu_ns: f64,
    pub network_ns: f64,
    /// CPU microseconds, all cores.
    pub cpu_us: f64,
}

#[derive(Clone)]
enum DriveSim {
    Flash(Box<Flash>),
    OneArm(OneArm),
}

/// Bytes that wait until they are worth an operation of the log.
#[derive(Clone, Copy, Default)]
struct Debts {
    beside: f64,
    read: f64,
    moved: f64,
}

/// A system under a load.
pub(crate) struct Machine {
    load: Load,
    layout: Layout,
    drives: Vec<DriveSim>,
    cards: Vec<CardSim>,
    generator: Pipe,
    generator_us: f64,
    generator_cores: f64,
    engine: Pipe,
    engine_cores: f64,
    network: Option<([Pipe; 2], f64, f64)>,
    rng: Xoshiro256PlusPlus,
    /// Of each array: where the next write in order goes.
    next: Vec<usize>,
    /// Of each array: bytes of parity of writes in order, and of the log, that are not written yet.
    debts: Vec<Debts>,
    rebuilt_until: f64,
    counters: Counters,
}

impl Machine {
    /// `without`: a part that takes no time.
    pub(crate) fn new(system: &System, load: &Load, seed: u64, without: Option<Part>) -> Result<Machine, Error> {
        system.check()?;
        let file = system.drive()?;
        let gone = |part| without == Some(part);
        let span = Span { fill: load.fill, slice: load.slice.min(load.fill), age: load.age };
        let drive = match (file.flash, OneArm::new(&file)) {
            (Some(figures), _) => {
                let (no_flash, no_link) = (gone(Part::Flash), gone(Part::DriveLinks));
                let flash = match system.engine {
                    Engine::Ashlar => Flash::new(figures, inside_amplification(load), no_flash, no_link).under_a_log(),
                    _ => Flash::new(figures, flash_amplification(&figures, &span), no_flash, no_link),
                };
                DriveSim::Flash(Box::new(flash))
            }
            (None, Some(arm)) => DriveSim::OneArm(arm),
            (None, None) => return Err(Error::Impossible(format!("{}: neither flash nor a disk", file.name))),
        };
        let arrays = system.arrays() as usize;
        let card = system.card.as_ref().filter(|_| system.engine == Engine::Card && !gone(Part::Card));
        let many = |figure: f64| if gone(Part::Cpu) { f64::INFINITY } else { figure };
        let engine_cores = system.engine_cores();
        let network = system.network.as_ref().filter(|_| !gone(Part::Network));
        Ok(Machine {
            load: *load,
            layout: Layout::new(system, load),
            drives: vec![drive; system.count as usize],
            cards: card.map_or(vec![], |c| vec![CardSim::new(c, system.level); arrays]),
            generator: Pipe::default(),
            generator_us: load.generator_us.unwrap_or(system.host.request_us) * load.cpu_times,
            generator_cores: many(system.host.cores - engine_cores),
            engine: Pipe::default(),
            engine_cores: many(engine_cores),
            network: network.map(|n| {
                let rate = f64::from(n.ports) * n.port_bytes_per_s;
                ([Pipe::default(); 2], 1e9 / rate, n.latency_us * 1e3)
            }),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            next: vec![0; arrays],
            debts: vec![Debts::default(); arrays],
            rebuilt_until: 0.0,
            counters: Counters::default(),
        })
    }

    /// When request `slot` that begins `now` is answered.
    pub(crate) fn request(&mut self, now: f64, slot: usize) -> f64 {
        let (bytes, in_order) =
            (f64::from(self.load.workload.block_bytes), self.load.workload.access == Access::Sequential);
        let read = match self.load.workload.read_percent {
            100.0 => true,
            0.0 => false,
            percent => self.rng.random_range(0.0..100.0) < percent,
        };
        let engine_us = self.layout.cpu_us(read, bytes, in_order) * self.load.cpu_times;
        self.counters.cpu_us += self.generator_us + engine_us;
        let ns = self.generator_us * 1e3;
        let mut at = self.generator.take(now, now, ns / self.generator_cores) + ns;
        if let Some((pipes, ns_per_byte, latency)) = &mut self.network {
            at += *latency / 2.0;
            if !read {
                at = pipes[0].take(now, at, bytes * *ns_per_byte);
            }
        }
        if engine_us > 0.0 {
            at = self.engine.take(now, at, engine_us * 1e3 / self.engine_cores) + engine_us * 1e3;
        }
        if self.layout.state == DriveState::Rebuilding {
            self.rebuild(now);
        }
        let array = slot % self.next.len();
        at = if read {
            self.read(now, at, array, slot, bytes, in_order)
        } else {
            self.write(now, at, array, slot, bytes, in_order)
        };
        if let Some((pipes, ns_per_byte, latency)) = &mut self.network {
            at += *latency / 2.0;
            if read {
                at = pipes[1].take(now, at, bytes * *ns_per_byte);
            }
        }
        at
    }

    fn drive(&mut self, array: usize, drive: usize, now: f64, from: f64, op: DriveOp) -> f64 {
        let at = array * self.layout.drives + drive % self.layout.drives;
        match &mut self.drives[at] {
            DriveSim::Flash(flash) => flash.serve(now, from, &op, &mut self.rng),
            DriveSim::OneArm(arm) => arm.serve(now, from, &op),
        }
    }

    fn advance(&mut self, array: usize) -> usize {
        self.next[array] = (self.next[array] + 1) % self.layout.drives;
        self.next[array]
    }

    /// Whether the first drive of an array is gone, and `drive` is it.
    fn is_gone(&self, drive: usize) -> bool {
        self.layout.state == DriveState::Rebuilding && drive.is_multiple_of(self.layout.drives)
    }

    /// Whether a read of `drive` is one of the card's firmware: the drive is gone, or its mirror is.
    fn is_rebuilt(&self, drive: usize) -> bool {
        self.is_gone(drive)
            || (self.layout.level == Level::Raid10 && !self.cards.is_empty() && self.is_gone(drive & !1))
    }

    fn read(&mut self, now: f64, from: f64, array: usize, slot: usize, bytes: f64, in_order: bool) -> f64 {
        let mut end = from;
        if self.layout.level == Level::Jbod {
            let drive = slot / self.next.len();
            end = self.drive(array, drive, now, from, DriveOp::new(true, bytes, in_order));
        } else {
            let first = if in_order { self.advance(array) } else { self.rng.random_range(0..self.layout.drives) };
            let chunks = (bytes / CHUNK).ceil().max(1.0);
            for i in 0..chunks as usize {
                let drive = first + i;
                let op = DriveOp::new(true, bytes / chunks, in_order);
                end = end.max(if self.is_rebuilt(drive) {
                    self.reconstruct(now, from, array, drive, op)
                } else {
                    self.drive(array, drive, now, from, op)
                });
            }
            if in_order {
                self.next[array] = (first + chunks as usize - 1) % self.layout.drives;
            }
        }
        match self.cards.get_mut(array) {
            Some(card) => card.read_goes(now, end, bytes),
            None => end,
        }
    }

    /// A read of a drive that is gone: its mirror, or the rest of its row.
    fn reconstruct(&mut self, now: f64, from: f64, array: usize, drive: usize, op: DriveOp) -> f64 {
        let from = self.cards.get_mut(array).map_or(from, |card| card.slowly(now, from));
        let others = match self.layout.level {
            Level::Raid10 => 1,
            _ => self.layout.width - self.layout.redundancy,
        };
        let drive = if self.layout.level == Level::Raid10 { drive & !1 } else { drive };
        (1..=others).fold(from, |end, i| end.max(self.drive(array, drive + i, now, from, op)))
    }

    fn write(&mut self, now: f64, from: f64, array: usize, slot: usize, bytes: f64, in_order: bool) -> f64 {
        self.counters.host_written += bytes;
        let from = self.cards.get_mut(array).map_or(from, |card| card.write_comes(now, from, bytes, in_order));
        let (from, first) = self.place_of_write(now, from, array, bytes, in_order);
        let end = match (self.layout.engine, self.layout.level) {
            (Engine::Ashlar, _) => self.append(now, from, array, bytes),
            (_, Level::Jbod) => {
                let drive = slot / self.next.len();
                self.drive(array, drive, now, from, DriveOp::new(false, bytes, in_order))
            }
            (_, Level::Raid10) => self.write_mirrors(now, from, array, bytes, first),
            (_, Level::Raid5 | Level::Raid6) if in_order => self.write_rows(now, from, array, bytes),
            (_, Level::Raid5 | Level::Raid6) => self.write_in_place(now, from, array, bytes, first),
        };
        self.cards.get_mut(array).map_or(end, |card| card.write_ends(from, end, bytes))
    }

    /// The drive at which a write begins, and when the card has done what its firmware must do for it: while it rebuilds,
    /// writes to the pair whose drive is new, and all writes of RAID 5 and 6, whose rows are locked against the rebuild.
    fn place_of_write(&mut self, now: f64, from: f64, array: usize, bytes: f64, in_order: bool) -> (f64, usize) {
        let drives = self.layout.drives;
        let first = match (self.layout.engine, self.layout.level, in_order) {
            (Engine::Ashlar, ..) | (_, Level::Jbod, _) => return (from, 0),
            (_, Level::Raid10, true) => self.advance(array) % (drives / 2) * 2,
            (_, Level::Raid10, false) => self.rng.random_range(0..drives / 2) * 2,
            (_, _, true) => 0,
            (_, _, false) => self.rng.random_range(0..drives),
        };
        let locked = match self.layout.level {
            Level::Raid10 => (0..(bytes / CHUNK).ceil() as usize).any(|i| self.is_gone(first + 2 * i)),
            _ => true,
        };
        if self.layout.state != DriveState::Rebuilding || !locked {
            return (from, first);
        }
        (self.cards.get_mut(array).map_or(from, |card| card.slowly(now, from)), first)
    }

    fn write_mirrors(&mut self, now: f64, from: f64, array: usize, bytes: f64, first: usize) -> f64 {
        let chunks = (bytes / CHUNK).ceil().max(1.0);
        let mut end = from;
        for pair in 0..chunks as usize {
            let op = DriveOp::new(false, bytes / chunks, self.load.workload.access == Access::Sequential);
            let drive = first + 2 * pair;
            let one = self.drive(array, drive, now, from, op);
            end = end.max(one).max(self.drive(array, drive + 1, now, from, op));
        }
        end
    }

    /// Full rows, in order.
    fn write_rows(&mut self, now: f64, from: f64, array: usize, bytes: f64) -> f64 {
        let chunks = (bytes / CHUNK).ceil().max(1.0);
        let mut end = from;
        for _ in 0..chunks as usize {
            let drive = self.advance(array);
            let op = DriveOp::new(false, bytes / chunks, true);
            end = end.max(self.drive(array, drive, now, from, op));
            self.debts[array].beside += bytes / chunks * self.layout.parity_share();
            if self.debts[array].beside >= bytes / chunks {
                self.debts[array].beside -= bytes / chunks;
                let drive = self.advance(array);
                end = end.max(self.drive(array, drive, now, from, op));
            }
        }
        end
    }

    /// Data and parity are read, then written.
    fn write_in_place(&mut self, now: f64, from: f64, array: usize, bytes: f64, first: usize) -> f64 {
        let data = self.layout.width - self.layout.redundancy;
        if bytes >= CHUNK * data as f64 {
            return self.write_rows(now, from, array, bytes);
        }
        let chunks = (bytes / CHUNK).ceil().max(1.0) as usize;
        let places: Vec<usize> = (first..first + chunks + self.layout.redundancy).collect();
        let each = bytes / chunks as f64;
        let mut read = from;
        for &drive in places.iter().filter(|d| !self.is_gone(**d)).collect::<Vec<_>>() {
            read = read.max(self.drive(array, drive, now, from, DriveOp::new(true, each, false)));
        }
        let mut end = read;
        for &drive in &places {
            end = end.max(self.drive(array, drive, now, read, DriveOp::new(false, each, false)));
        }
        end
    }

    /// Ashlar's log: what is written goes to the next chunk of a full row; parity, map and moves follow.
    fn append(&mut self, now: f64, from: f64, array: usize, bytes: f64) -> f64 {
        let chunks = (bytes / CHUNK).ceil().max(1.0);
        let mut end = from;
        for _ in 0..chunks as usize {
            let drive = self.advance(array);
            let each = bytes / chunks;
            let op = DriveOp { read: false, bytes: each, in_order: true, commands: (each / CHUNK).min(1.0) };
            end = end.max(self.drive(array, drive, now, from, op));
        }
        let (share, moves) = (self.layout.parity_share(), self.layout.moves);
        let debts = &mut self.debts[array];
        debts.moved += bytes * moves;
        debts.read += bytes * moves * MOVE_READS;
        // All that is beside the data itself: parity of data and moves, and the map.
        debts.beside += bytes * (((1.0 + moves) * (1.0 + MAP)) * (1.0 + share) - 1.0 - moves);
        while self.debts[array].read >= CHUNK / 2.0 {
            self.debts[array].read -= CHUNK / 2.0;
            let drive = self.rng.random_range(0..self.layout.drives);
            self.drive(array, drive, now, now, DriveOp::new(true, CHUNK / 2.0, false));
        }
        while self.debts[array].moved + self.debts[array].beside >= CHUNK {
            let moved = self.debts[array].moved.min(CHUNK);
            self.debts[array].moved -= moved;
            self.debts[array].beside -= CHUNK - moved;
            let drive = self.advance(array);
            self.drive(array, drive, now, now, DriveOp::new(false, CHUNK, true));
        }
        end
    }

    /// Pieces of the rebuild that are due.
    fn rebuild(&mut self, now: f64) {
        while self.rebuilt_until < now {
            self.rebuilt_until += REBUILD_PIECE * 1e9 / REBUILD_BYTES_PER_S;
            for array in 0..self.next.len() {
                let others = if self.layout.level == Level::Raid10 { 1 } else { self.layout.width - 1 };
                let mut read = now;
                for drive in 1..=others {
                    read = read.max(self.drive(array, drive, now, now, DriveOp::new(true, REBUILD_PIECE, true)));
                }
                self.drive(array, 0, now, read, DriveOp::new(false, REBUILD_PIECE, true));
            }
        }
    }

    /// What every part did so far.
    pub(crate) fn counters(&self) -> Counters {
        let mut all = self.counters;
        let drives = self.drives.len() as f64;
        for drive in &self.drives {
            match drive {
                DriveSim::Flash(flash) => {
                    let (inside, link) = flash.busy();
                    all.flash_ns += inside / drives;
                    all.drive_link_ns += link / drives;
                    all.drives.written += flash.bytes.written;
                    all.drives.programmed += flash.bytes.programmed;
                }
                DriveSim::OneArm(arm) => {
                    all.flash_ns += arm.busy() / drives;
                    all.drives.written += arm.written;
                    all.drives.programmed += arm.written;
                }
            }
        }
        all.card_ns = self.cards.iter().map(CardSim::busy).sum::<f64>() / self.cards.len().max(1) as f64;
        all.cpu_ns = self.generator.busy().max(self.engine.busy());
        all.network_ns = self.network.as_ref().map_or(0.0, |(pipes, ..)| pipes[0].busy().max(pipes[1].busy()));
        all
    }
}
