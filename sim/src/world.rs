//! One seed's world: drives that outlive the runtimes, and what shape of array they carry.

use array::CreateSpec;
use ondisk::Level;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::model::{Disk, DiskParams};

/// Decisions of one seed.
pub type Dice = Xoshiro256PlusPlus;

/// What a seed made.
pub struct World {
    /// All that is decided at random.
    pub dice: Dice,
    /// Drives that may take part; the others were replaced.
    pub disks: Vec<Disk>,
    /// What the array was created as.
    pub spec: CreateSpec,
    /// Members that may be lost, whichever they are.
    pub tolerates: usize,
    /// Bytes of each volume.
    pub volume_bytes: Vec<u64>,
    params: DiskParams,
    made: u64,
}

impl World {
    /// The world of `seed`.
    pub fn new(seed: u64) -> World {
        let mut dice = Dice::seed_from_u64(seed);
        let level = match dice.random_range(0..10) {
            0 => Level::Raid0,
            1 => Level::Raid10 { copies: 3 },
            2..=3 => Level::Raid10 { copies: 2 },
            4..=6 => Level::Raid5,
            _ => Level::Raid6,
        };
        let least = match level {
            Level::Raid10 { copies } => usize::from(copies),
            Level::Raid0 => 1,
            Level::Raid5 | Level::Raid6 => level.tolerates() + 1,
        };
        let drives = dice.random_range(least..least + 7);
        let width = (dice.random_range(0..3) == 0).then(|| dice.random_range(least..=drives));
        let width = width.filter(|&w| level.scheme_of_width(w).is_some_and(|s| s.width() == w));
        let zone_blocks = 64u32 << dice.random_range(0..3);
        let zones = dice.random_range(64..112u64);
        let system = 8 << 20;
        let params = DiskParams {
            bytes: system + zones * u64::from(zone_blocks) * 4096,
            volatile_cache: dice.random_range(0..3) > 0,
            parallelism: dice.random_range(1..16),
            jitter: dice.random_range(0.0..20.0),
            ..DiskParams::default()
        };
        let spec = CreateSpec { name: "sim".into(), level, width, zone_blocks: Some(zone_blocks), force: false };
        let mut world = World {
            dice,
            disks: Vec::new(),
            spec,
            tolerates: level.tolerates(),
            volume_bytes: Vec::new(),
            params,
            made: 0,
        };
        for _ in 0..drives {
            let disk = world.new_disk();
            world.disks.push(disk);
        }
        world
    }

    /// A fresh drive.
    pub fn new_disk(&mut self) -> Disk {
        self.made += 1;
        let seed = self.dice.random();
        Disk::new(&format!("drive-{}", self.made), self.params, seed)
    }

    /// A line that tells this world from others.
    pub fn describe(&self) -> String {
        format!(
            "{} over {} drives, width {:?}, zones of {} blocks, {} MiB each, volatile {}",
            self.spec.level,
            self.disks.len(),
            self.spec.width,
            self.spec.zone_blocks.unwrap_or(0),
            self.params.bytes >> 20,
            self.params.volatile_cache
        )
    }
}
