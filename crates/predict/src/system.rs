//! System files: drives, engine, level, host, card and network. `systems/*.toml` come with the program.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::drive::DriveFile;
use crate::error::Error;

/// What stands between hosts and drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// Nothing: each drive has its own requests.
    Direct,
    /// RAID in software that writes in place: 2 reads and 2 writes (RAID 5), 3 and 3 (RAID 6), 2 writes (RAID 10).
    InPlace,
    /// The same behind a RAID card.
    Card,
    /// Ashlar: full rows in a log, and a cleaner.
    Ashlar,
}

/// RAID level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No redundancy.
    Jbod,
    /// Mirrored pairs.
    Raid10,
    /// One parity.
    Raid5,
    /// Two.
    Raid6,
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(text: &str) -> Result<Level, Error> {
        match text.to_ascii_lowercase().trim_start_matches("raid").trim_start() {
            "jbod" | "0" | "none" => Ok(Level::Jbod),
            "10" | "1" => Ok(Level::Raid10),
            "5" => Ok(Level::Raid5),
            "6" => Ok(Level::Raid6),
            _ => Err(Error::unknown("RAID level", text, "jbod, 10, 5, 6")),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Jbod => "JBOD",
            Level::Raid10 => "RAID 10",
            Level::Raid5 => "RAID 5",
            Level::Raid6 => "RAID 6",
        })
    }
}

impl Level {
    /// Drives of a row that hold redundancy, where a row has `width` drives.
    #[must_use]
    pub fn redundancy(self, width: u32) -> u32 {
        match self {
            Level::Jbod => 0,
            Level::Raid10 => width / 2,
            Level::Raid5 => 1,
            Level::Raid6 => 2,
        }
    }
}

/// State of the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveState {
    /// All drives are there.
    #[default]
    Optimal,
    /// One drive of each card, or of the array, is gone, and a new one is being filled.
    Rebuilding,
}

/// Host CPUs, and what a request costs them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFigures {
    /// Cores.
    pub cores: f64,
    /// CPU microseconds of a request that goes to a drive or a card: the generator and the kernel.
    pub request_us: f64,
    /// The same where the generator is Vdbench.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vdbench_request_us: Option<f64>,
    /// Parts of an Ashlar array, each on a core of its own; 0: one, as `ashlar create` makes it. RAID in place has half of
    /// the cores.
    #[serde(default)]
    pub parts: u32,
}

/// Parts of an Ashlar array, at most: `PARTS_MAX` of its label.
pub const PARTS_MAX: u32 = 16;

/// What a card can do at one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardLevel {
    /// Random writes a second, at most.
    pub random_writes_per_s: Option<f64>,
    /// Bytes written in order a second, at most.
    pub sequential_write_bytes_per_s: Option<f64>,
}

/// A RAID card; of several, each has its share of the drives and one array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Bytes a second to the host, each card.
    pub to_host_bytes_per_s: f64,
    /// Bytes a second from the host, each card.
    pub from_host_bytes_per_s: f64,
    /// What a request takes longer.
    pub latency_us: f64,
    /// Writes to RAID levels are answered from its cache.
    pub write_back: bool,
    /// Requests a second that its firmware does by itself: those that touch a drive which is gone.
    pub slow_requests_per_s: f64,
    /// At RAID 10.
    #[serde(default)]
    pub raid10: CardLevel,
    /// At RAID 5.
    #[serde(default)]
    pub raid5: CardLevel,
    /// At RAID 6.
    #[serde(default)]
    pub raid6: CardLevel,
}

impl Card {
    /// Its ceilings at a level.
    #[must_use]
    pub fn level(&self, level: Level) -> CardLevel {
        match level {
            Level::Jbod => CardLevel::default(),
            Level::Raid10 => self.raid10,
            Level::Raid5 => self.raid5,
            Level::Raid6 => self.raid6,
        }
    }
}

/// A network between hosts and the array: rate and latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// Ports.
    pub ports: u32,
    /// Useful bytes a second of a port, each way.
    pub port_bytes_per_s: f64,
    /// There and back, with both stacks.
    pub latency_us: f64,
}

/// Networks that come with the program: name, useful bytes a second of a port, microseconds there and back.
///
/// Rates: 64b/66b line rate less headers, and for 100 GbE the 12 GB/s of `published.csv` fc-roce-004; 32G FC carries
/// 3.2 GB/s. Latencies are assumed: those of NVMe/TCP, and of FC host adapters through one switch.
pub const NETWORKS: [(&str, f64, f64); 3] = [("25gbe", 2.95e9, 40.0), ("100gbe", 12e9, 35.0), ("32gfc", 3.2e9, 45.0)];

impl Network {
    /// One that comes with the program.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn named(name: &str, ports: u32) -> Result<Network, Error> {
        let found = NETWORKS.iter().find(|(n, ..)| *n == name);
        let &(name, port_bytes_per_s, latency_us) =
            found.ok_or_else(|| Error::unknown("network", name, NETWORKS.map(|(n, ..)| n).join(", ")))?;
        if ports == 0 {
            return Err(Error::Impossible(format!("{name} with 0 ports: it has 1 or more")));
        }
        Ok(Network { name: name.to_owned(), ports, port_bytes_per_s, latency_us })
    }
}

/// A system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Its name.
    pub name: String,
    /// One line.
    pub about: String,
    /// A drive file that comes with the program.
    pub drives: String,
    /// How many.
    pub count: u32,
    /// What is between.
    pub engine: Engine,
    /// The level, unless something else is asked for.
    pub level: Level,
    /// Drives of a row; 0: all drives of the array, up to 16.
    #[serde(default)]
    pub width: u32,
    /// State of the array.
    #[serde(default)]
    pub state: DriveState,
    /// Host CPUs.
    pub host: HostFigures,
    /// RAID cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<Card>,
    /// Network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The drive, when it is not one of the program's.
    #[serde(skip)]
    pub drive_file: Option<DriveFile>,
}

/// The systems that come with the program, by name.
pub const SYSTEMS: [(&str, &str); 7] = [
    ("r760-direct", include_str!("../systems/r760-direct.toml")),
    ("r760-perc12", include_str!("../systems/r760-perc12.toml")),
    ("r760-perc12x2", include_str!("../systems/r760-perc12x2.toml")),
    ("h755n", include_str!("../systems/h755n.toml")),
    ("h730p", include_str!("../systems/h730p.toml")),
    ("vss2249p", include_str!("../systems/vss2249p.toml")),
    ("s3700x24", include_str!("../systems/s3700x24.toml")),
];

/// Drives of a row unless something else is said, at most.
const WIDTH_MAX: u32 = 16;

impl System {
    /// One that comes with the program.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn named(name: &str) -> Result<System, Error> {
        match SYSTEMS.iter().find(|(n, _)| *n == name) {
            Some((_, text)) => System::parse(text).map_err(|why| Error::file(name, why)),
            None => Err(Error::unknown("system", name, SYSTEMS.map(|(n, _)| n).join(", "))),
        }
    }

    /// From the text of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<System, String> {
        let system: System = toml::from_str(text).map_err(|e| e.to_string())?;
        system.check().map_err(|e| e.to_string())?;
        Ok(system)
    }

    /// Its drive.
    ///
    /// # Errors
    /// When it names one that does not exist.
    pub fn drive(&self) -> Result<DriveFile, Error> {
        self.drive_file.clone().map_or_else(|| DriveFile::named(&self.drives), Ok)
    }

    /// Arrays that it consists of: one for each card.
    #[must_use]
    pub fn arrays(&self) -> u32 {
        match (&self.card, self.engine) {
            (Some(card), Engine::Card) => card.count.max(1),
            _ => 1,
        }
    }

    /// Cores that RAID in software has: of the host at least half are left to the load.
    #[must_use]
    pub fn engine_cores(&self) -> f64 {
        match self.engine {
            Engine::Direct | Engine::Card => 0.0,
            Engine::InPlace => self.host.cores / 2.0,
            Engine::Ashlar => f64::from(self.host.parts.max(1)).min(self.host.cores / 2.0),
        }
    }

    /// Drives of a row.
    #[must_use]
    pub fn row_width(&self) -> u32 {
        let all = self.count / self.arrays();
        let width = if self.width == 0 { all.min(WIDTH_MAX) } else { self.width.min(all) };
        if self.level == Level::Raid10 && self.engine != Engine::Ashlar { width / 2 * 2 } else { width }
    }

    /// Whether it can be.
    ///
    /// # Errors
    /// What is wrong, and what is needed.
    pub fn check(&self) -> Result<(), Error> {
        let drives_min = match self.level {
            Level::Jbod => 1,
            Level::Raid10 => 2,
            Level::Raid5 => 3,
            Level::Raid6 => 4,
        };
        let each = self.count / self.arrays();
        let wrong = |why: String| Err(Error::Impossible(why));
        if each < drives_min || self.count > 256 {
            return wrong(format!("{} drives: {} needs {drives_min} to 256 for each array", self.count, self.level));
        }
        if self.width > each {
            return wrong(format!("a width of {}: there are {each} drives", self.width));
        }
        if self.row_width() < drives_min {
            return wrong(format!("a width of {}: {} needs {drives_min} at least", self.width, self.level));
        }
        if self.engine == Engine::Card && self.card.is_none() {
            return wrong("engine = \"card\" needs a [card]".to_owned());
        }
        if self.engine == Engine::Direct && self.level != Level::Jbod {
            return wrong(format!("engine = \"direct\" has no {}; use in-place, card or ashlar", self.level));
        }
        if self.engine == Engine::Ashlar && self.level == Level::Jbod {
            return wrong("Ashlar needs a RAID level: 10, 5 or 6".to_owned());
        }
        if self.host.parts > PARTS_MAX {
            return wrong(format!("{} parts: an Ashlar array has 1 to {PARTS_MAX}", self.host.parts));
        }
        if self.host.cores <= 0.0 || self.host.request_us < 0.0 {
            return wrong("a host has cores, and a request costs it no negative time".to_owned());
        }
        Ok(())
    }

    /// "8 x p5520, RAID 5 of a card".
    #[must_use]
    pub fn title(&self) -> String {
        let what = match (self.engine, &self.card) {
            (Engine::Direct, _) => "direct".to_owned(),
            (Engine::InPlace, _) => format!("{} in place", self.level),
            (Engine::Card, Some(card)) if card.count > 1 => {
                format!("{} of {} {} cards", self.level, card.count, card.name)
            }
            (Engine::Card, Some(card)) => format!("{} of a {} card", self.level, card.name),
            (Engine::Card, None) => format!("{} of a card", self.level),
            (Engine::Ashlar, _) if self.host.parts > 1 => format!("Ashlar {} in {} parts", self.level, self.host.parts),
            (Engine::Ashlar, _) => format!("Ashlar {}", self.level),
        };
        format!("{} x {}, {what}", self.count, self.drives)
    }
}
