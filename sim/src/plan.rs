//! What is decided before a seed begins, and what a failing one is shrunk by.

use std::collections::BTreeSet;

use array::CreateSpec;
use ondisk::Level;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::model::DiskParams;
use serde::{Deserialize, Serialize};

use crate::kind::Kind;

/// Decisions of one seed.
pub type Dice = Xoshiro256PlusPlus;

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Handed over in order.
    Close,
    /// The process dies.
    Kill,
    /// The power fails.
    PowerCut,
}

/// One process's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Hosts at work at once.
    pub hosts: usize,
    /// Virtual time.
    pub millis: u64,
    /// Its end.
    pub end: End,
}

/// A world and what happens in it. Everything that is not said here the seed decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// 0, 5, 6, or 10 with 2 or 3 copies.
    pub level: u8,
    /// Copies of RAID 10.
    pub copies: u8,
    /// Drives.
    pub drives: usize,
    /// Columns; none: as many as leave a place for a rebuild.
    pub width: Option<usize>,
    /// Blocks of a zone.
    pub zone_blocks: u32,
    /// Zones of a drive.
    pub zones: u64,
    /// Whether the drives have a volatile cache.
    pub volatile_cache: bool,
    /// Operations a drive serves at once.
    pub parallelism: usize,
    /// See [`DiskParams::jitter`].
    pub jitter: f64,
    /// Volumes.
    pub volumes: u64,
    /// What they promise together, in per cent of usable.
    pub promised: u64,
    /// Drives that may go bad: the redundancy covers them, and what is left of it the drives that are pulled.
    pub rotten: usize,
    /// What happens beside the ends of the rounds.
    pub faults: BTreeSet<Kind>,
    /// Whether the volumes are written from end to end at first.
    #[serde(default)]
    pub filled: bool,
    /// Processes, one after the other.
    pub rounds: Vec<Round>,
}

impl Plan {
    /// What `seed` decides.
    pub fn of(seed: u64) -> Plan {
        let mut dice = Dice::seed_from_u64(seed);
        let (level, copies) = match dice.random_range(0..10) {
            0 => (0, 1),
            1 => (10, 3),
            2..=3 => (10, 2),
            4..=6 => (5, 1),
            _ => (6, 1),
        };
        let mut plan = Plan {
            seed,
            level,
            copies,
            drives: 0,
            width: None,
            zone_blocks: [64, 64, 64, 128, 256][dice.random_range(0..5)],
            zones: dice.random_range(66..100),
            volatile_cache: dice.random_range(0..3) > 0,
            parallelism: dice.random_range(1..16),
            jitter: dice.random_range(0.0..20.0),
            volumes: dice.random_range(1..4),
            promised: dice.random_range(20..130),
            rotten: 0,
            faults: BTreeSet::new(),
            filled: dice.random_range(0..3) == 0,
            rounds: Vec::new(),
        };
        let level = plan.level();
        let least = match level {
            Level::Raid10 { copies } => usize::from(copies),
            Level::Raid0 => 1,
            Level::Raid5 | Level::Raid6 => level.tolerates() + 1,
        };
        plan.drives = dice.random_range(least..least + 6);
        if plan.filled {
            // Small and quick enough to be overwritten several times.
            plan.drives = dice.random_range(least..least + 2);
            (plan.zone_blocks, plan.zones) = (64, dice.random_range(66..72));
            plan.promised = dice.random_range(80..130);
            plan.jitter /= 20.0;
        }
        let width = (dice.random_range(0..3) == 0).then(|| dice.random_range(least..=plan.drives));
        plan.width = width.filter(|&w| level.scheme_of_width(w).is_some_and(|s| s.width() == w));
        plan.rotten = dice.random_range(0..=level.tolerates());
        // Drawn apart, so that what was drawn before it stays as it was.
        if Dice::seed_from_u64(seed ^ 0x2e55).random_range(0..2) == 0 {
            plan.faults.insert(Kind::TwoServers);
        }
        for &kind in Kind::ALL.iter().filter(|kind| **kind != Kind::TwoServers) {
            // About half of them each time, so that they meet in all combinations.
            let possible = !kind.spoils() || plan.rotten > 0;
            if possible && dice.random_range(0..2) == 0 {
                plan.faults.insert(kind);
            }
        }
        // Mostly a few lives, some of them long; sometimes many short ones.
        let short = dice.random_range(0..8) == 0;
        for _ in 0..if short { dice.random_range(8..20) } else { dice.random_range(3..7) } {
            plan.rounds.push(Round {
                hosts: if short { dice.random_range(1..3) } else { dice.random_range(1..20) },
                millis: if short { 1 } else { 1 << dice.random_range(if plan.filled { 3..8 } else { 0..7 }) },
                end: [End::Close, End::Kill, End::PowerCut, End::PowerCut][dice.random_range(0..4)],
            });
        }
        plan
    }

    /// The level.
    pub fn level(&self) -> Level {
        match self.level {
            0 => Level::Raid0,
            5 => Level::Raid5,
            6 => Level::Raid6,
            _ => Level::Raid10 { copies: self.copies },
        }
    }

    /// Members that may be lost, whichever they are.
    pub fn tolerates(&self) -> usize {
        self.level().tolerates()
    }

    /// The array.
    pub fn spec(&self) -> CreateSpec {
        CreateSpec {
            name: "sim".into(),
            level: self.level(),
            width: self.width,
            zone_blocks: Some(self.zone_blocks),
            force: false,
        }
    }

    /// What labels and generations take of a drive.
    pub fn system_bytes(&self) -> u64 {
        8 << 20
    }

    /// Its drives.
    pub fn disk(&self) -> DiskParams {
        DiskParams {
            bytes: self.system_bytes() + self.zones * u64::from(self.zone_blocks) * 4096,
            volatile_cache: self.volatile_cache,
            parallelism: self.parallelism,
            jitter: self.jitter,
            ..DiskParams::default()
        }
    }

    /// Whether something of this kind happens.
    pub fn has(&self, kind: Kind) -> bool {
        self.faults.contains(&kind)
    }

    /// A line that tells this world from others.
    pub fn describe(&self) -> String {
        format!(
            "{} over {} drives, width {:?}, {} zones of {} blocks, {} rotten, volatile {}, promised {} %, filled {}, \
             faults {:?}",
            self.level(),
            self.drives,
            self.width,
            self.zones,
            self.zone_blocks,
            self.rotten,
            self.volatile_cache,
            self.promised,
            self.filled,
            self.faults
        )
    }
}
