//! One plan's world: drives that outlive the processes on them, which of them may go bad, and what happened.

use std::collections::VecDeque;
use std::time::Duration;

use array::{Array, Discard, OpenHow, Refused};
use rand::{RngExt, SeedableRng};
use rt::model::{Disk, FaultsMet, LateWrites};
use rt::{Drive, Rt};

use crate::kind::{Counts, Kind};
use crate::plan::{Dice, Plan};
use crate::run::DEGRADED;

/// What a plan made.
pub struct World {
    /// What was decided before.
    pub plan: Plan,
    /// All that is decided at random from here on.
    pub dice: Dice,
    /// Drives that may take part; the others were replaced.
    pub disks: Vec<Disk>,
    /// Names of drives that may go bad.
    pub rotten: Vec<String>,
    /// Writes that hung drives will land.
    pub late: Vec<LateWrites>,
    /// What happened.
    pub counts: Counts,
    /// Whether the last process handed the array over in order, and nobody has opened it since.
    pub handed_over: bool,
    /// Copies of all drives from some time before, oldest first.
    pub older: VecDeque<Vec<Disk>>,
    made: u64,
    begun: u32,
}

/// Some map nodes of a seed's hundreds.
const MAP_MEMORY_LITTLE: u64 = 20_000;

/// From the beginning of one runtime to that of the next, by the wall clock.
const BETWEEN: Duration = Duration::from_secs(60);

impl World {
    /// The world of `plan`.
    pub fn new(plan: Plan) -> World {
        let dice = Dice::seed_from_u64(plan.seed ^ 0x5eed);
        let mut world = World {
            plan,
            dice,
            disks: Vec::new(),
            rotten: Vec::new(),
            late: Vec::new(),
            counts: Counts::default(),
            handed_over: false,
            older: VecDeque::new(),
            made: 0,
            begun: 0,
        };
        for _ in 0..world.plan.drives {
            let disk = world.new_disk();
            world.disks.push(disk);
        }
        while world.rotten.len() < world.plan.rotten {
            let name = world.disks[world.dice.random_range(0..world.disks.len())].name().to_owned();
            if !world.rotten.contains(&name) {
                world.rotten.push(name);
            }
        }
        world
    }

    /// A fresh drive.
    pub fn new_disk(&mut self) -> Disk {
        self.made += 1;
        let seed = self.dice.random();
        Disk::new(&format!("drive-{}", self.made), self.plan.disk(), seed)
    }

    /// Something is tried on copies with dice of its own, and the world's course stays what it is: what [`World::take_up`] needs.
    pub fn set_aside(&mut self, dice: Dice) -> (Dice, u32) {
        (std::mem::replace(&mut self.dice, dice), self.begun)
    }

    /// The world goes on.
    pub fn take_up(&mut self, (dice, begun): (Dice, u32)) {
        (self.dice, self.begun) = (dice, begun);
    }

    /// A runtime of its own, which begins later than the one before.
    pub fn rt(&mut self) -> Rt {
        self.begun += 1;
        Rt::modelled_later(self.dice.random(), BETWEEN * self.begun)
    }

    /// In a third of the worlds few map nodes stay in memory, so that most are read when they are needed. In half of them what is
    /// freed is deallocated at once, so that nothing is left of what is freed too early; in the others zones keep what was there.
    pub fn settle(&self, array: &Array) {
        if self.plan.seed.is_multiple_of(3) {
            array.set_map_memory(MAP_MEMORY_LITTLE);
        }
        if self.plan.seed.is_multiple_of(2) {
            array.set_discard(Discard::All);
        }
    }

    /// Whether a drive may go bad.
    pub fn is_rotten(&self, disk: &Disk) -> bool {
        self.rotten.iter().any(|name| name == disk.name())
    }

    /// The drives that may go bad and are still there.
    pub fn rotten_disks(&self) -> Vec<Disk> {
        self.disks.iter().filter(|d| self.is_rotten(d)).cloned().collect()
    }

    /// The drives that do not go bad.
    pub fn sound_disks(&self) -> Vec<Disk> {
        self.disks.iter().filter(|d| !self.is_rotten(d)).cloned().collect()
    }

    /// Sound drives that a whole array may lose.
    pub fn may_lose(&self) -> usize {
        self.plan.tolerates().saturating_sub(self.rotten_disks().len()).min(self.sound_disks().len())
    }

    /// Copies of the drives, to try something on.
    pub fn forks(&self) -> Vec<Disk> {
        self.disks.iter().map(Disk::fork).collect()
    }

    /// One in `n` times, when the plan has `kind`.
    pub fn chance(&mut self, kind: Kind, n: u32) -> bool {
        self.plan.has(kind) && self.dice.random_range(0..n) == 0
    }

    /// Counts what the drives themselves met between two looks.
    pub fn count_met(&mut self, before: FaultsMet, after: FaultsMet) {
        for (kind, before, after) in [
            (Kind::ReadError, before.read_errors, after.read_errors),
            (Kind::BadBlock, before.bad_blocks, after.bad_blocks),
            (Kind::CorruptRead, before.corrupt_reads, after.corrupt_reads),
            (Kind::WriteError, before.write_errors, after.write_errors),
            (Kind::LostWrite, before.lost_writes, after.lost_writes),
            (Kind::MisdirectedWrite, before.misdirected_writes, after.misdirected_writes),
            (Kind::LyingFlush, before.lying_flushes, after.lying_flushes),
            (Kind::Stall, before.stalls, after.stalls),
            (Kind::FullQueue, before.queued, after.queued),
        ] {
            self.counts.add(kind, after - before);
        }
    }
}

/// Handles on drives.
pub fn drives(rt: &Rt, disks: &[Disk]) -> Vec<Drive> {
    disks.iter().map(|d| Drive::modelled(rt, d)).collect()
}

/// Opens the array on those of `disks` that it can be opened with.
pub fn open(rt: &Rt, disks: &[Disk], how: OpenHow) -> Result<Array, Refused> {
    rt.block_on(Array::open(rt, drives(rt, &labelled(rt, disks)), how))
}

/// As [`open`], also without as many members as the redundancy covers; says where it failed.
pub fn open_degraded(rt: &Rt, disks: &[Disk]) -> Result<Array, String> {
    open(rt, disks, DEGRADED).map_err(|e| format!("open: {e}"))
}

/// Those of `disks` that an array can be opened with: a server leaves out what is not there or has no label of ours.
pub fn labelled(rt: &Rt, disks: &[Disk]) -> Vec<Disk> {
    let ours =
        |d: &&Disk| d.is_attached() && matches!(rt.block_on(array::identify(&Drive::modelled(rt, d))), Ok(Some(_)));
    disks.iter().filter(ours).cloned().collect()
}
