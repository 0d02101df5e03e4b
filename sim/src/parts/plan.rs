//! What is decided before a seed of an array in parts begins.

use array::parts::STRIPE_BYTES;
use rand::{RngExt, SeedableRng};

use crate::kind::Kind;
use crate::plan::{Dice, End, Plan as Array};

/// At what a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndIn {
    /// At any moment.
    Anywhere,
    /// Soon after a verb on volumes began.
    Verb,
    /// Soon after a verb on drives began.
    Join,
    /// At once after a flush.
    Flush,
}

/// One process's life.
#[derive(Clone, Debug)]
pub struct Life {
    /// Hosts at work at once.
    pub hosts: usize,
    /// Virtual time.
    pub millis: u64,
    /// Its end.
    pub end: End,
    /// Where that comes, unless it closes.
    pub end_in: EndIn,
    /// Whether the parts behind the first are reached by submissions.
    pub submitted: bool,
    /// Whether it is brought to its full redundancy first.
    pub heals: bool,
}

/// An array in parts, and what happens to it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The array, and its drives.
    pub array: Array,
    /// Parts.
    pub parts: u8,
    /// Whether losses are shared all the time.
    pub shares: bool,
    /// Processes, one after the other.
    pub lives: Vec<Life>,
}

/// Nothing is made larger than this.
pub const VOLUME_BYTES_MAX: u64 = 16 << 20;

impl Plan {
    /// What `seed` decides.
    pub fn of(seed: u64) -> Plan {
        let mut dice = Dice::seed_from_u64(seed ^ 0x7061_7274);
        // Everything that is drawn for an array in one piece, then what is different.
        let mut array = Array::of(seed);
        (array.level, array.copies) = [(0, 1), (10, 2), (5, 1), (5, 1), (6, 1), (6, 1)][dice.random_range(0..6)];
        array.drives = dice.random_range(4..=6);
        let least = array.level().tolerates() + 1;
        let width = (dice.random_range(0..3) == 0).then(|| dice.random_range(least.max(2)..=array.drives));
        array.width = width.filter(|&w| array.level().scheme_of_width(w).is_some_and(|s| s.width() == w));
        array.zone_blocks = [64, 64, 128][dice.random_range(0..3)];
        let parts = dice.random_range(2..=4);
        array.zones = slice_bytes(&array, dice.random_range(66..80)) * u64::from(parts) / zone_bytes(&array);
        array.volumes = dice.random_range(1..4);
        array.jitter = dice.random_range(0.0..8.0);
        (array.rotten, array.filled) = (0, false);
        let (tried, others): (Vec<_>, Vec<_>) =
            Kind::IN_PARTS.iter().copied().partition(|kind| Kind::TRIED_IN_PARTS.contains(kind));
        array.faults = others.into_iter().filter(|_| dice.random_range(0..3) > 0).collect();
        array.rounds.clear();
        let shares = dice.random_range(0..2) == 0;
        let lives = (0..dice.random_range(3..7)).map(|_| life(&mut dice)).collect();
        array.faults.extend(tried.into_iter().filter(|_| dice.random_range(0..3) > 0));
        Plan { array, parts, shares, lives }
    }

    /// A volume is a multiple of this.
    pub fn round_bytes(&self) -> u64 {
        STRIPE_BYTES * u64::from(self.parts)
    }

    /// A size for a volume: rounded up later.
    pub fn volume_bytes(&self, dice: &mut Dice) -> u64 {
        4096 * dice.random_range(1..10 << 8)
    }

    /// A line that tells this world from others.
    pub fn describe(&self) -> String {
        format!("{} parts, losses shared {}; {}", self.parts, self.shares, self.array.describe())
    }
}

fn life(dice: &mut Dice) -> Life {
    Life {
        hosts: dice.random_range(1..8),
        millis: 1 << dice.random_range(0..6),
        end: [End::Close, End::Kill, End::PowerCut, End::PowerCut][dice.random_range(0..4)],
        end_in: [EndIn::Anywhere, EndIn::Verb, EndIn::Verb, EndIn::Join, EndIn::Flush][dice.random_range(0..5)],
        submitted: dice.random_range(0..3) == 0,
        heals: false,
    }
}

fn zone_bytes(array: &Array) -> u64 {
    u64::from(array.zone_blocks) * 4096
}

/// A slice of so many zones, in whole zones of the drive.
fn slice_bytes(array: &Array, zones: u64) -> u64 {
    array.system_bytes() + zones * zone_bytes(array)
}
