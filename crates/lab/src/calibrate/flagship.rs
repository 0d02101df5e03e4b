//! The flagship table: random writes on eight TLC and 24 QLC drives, by every layout.

use predict::{
    Answer, Card, DriveState, Engine, HostFigures, Level, Limits, Load, PARTS_MAX, Pressure, System, answer, life,
};

use super::table::SEED;
use crate::error::Error;

/// A layout under a load.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The system.
    pub system: System,
    /// Hundredths of what hosts can use that hold data.
    pub fill_percent: u32,
    /// The load.
    pub load: Load,
    /// What it does.
    pub answer: Answer,
    /// Bytes that flash programs for each byte of hosts.
    pub flash_bytes_per_byte: f64,
    /// Years when hosts write as many bytes a day as all drives hold.
    pub years: Option<f64>,
}

/// Layouts of so many drives: bare, in place, behind cards of eight drives, Ashlar; at RAID 5 and 6.
///
/// # Errors
/// None in practice: a test makes them all.
pub fn layouts(drives: &str, count: u32, cores: f64) -> Result<Vec<System>, Error> {
    let card = System::named("r760-perc12").map_err(|e| Error::format("r760-perc12", e))?.card;
    let host = HostFigures { cores, request_us: 4.5, vdbench_request_us: None, parts: PARTS_MAX };
    let width = if count > 16 { 12 } else { 0 };
    let one = |engine, level, card: Option<Card>| System {
        name: drives.to_owned(),
        about: String::new(),
        drives: drives.to_owned(),
        count,
        engine,
        level,
        width: if engine == Engine::Card { 0 } else { width },
        state: DriveState::Optimal,
        host,
        card,
        network: None,
        drive_file: None,
    };
    let cards = card.map(|c| Card { count: count.div_ceil(8), ..c });
    let mut all = vec![one(Engine::Direct, Level::Jbod, None)];
    for engine in [Engine::InPlace, Engine::Card, Engine::Ashlar] {
        for level in [Level::Raid5, Level::Raid6] {
            all.push(one(engine, level, cards.clone().filter(|_| engine == Engine::Card)));
        }
    }
    Ok(all)
}

/// One entry.
///
/// # Errors
/// When the system cannot be.
pub fn entry(system: &System, workload: &str, fill_percent: u32, limits: &Limits) -> Result<Entry, Error> {
    let wrong = |e: predict::Error| Error::format(system.title(), e);
    let fill = f64::from(fill_percent) / 100.0;
    let load = Load {
        pressure: Pressure::InFlightPerDrive(32.0),
        fill,
        slice: fill,
        ..Load::new(workload.parse().map_err(wrong)?)
    };
    let answer = answer(system, &load, limits, SEED, None).map_err(wrong)?;
    let drive = system.drive().map_err(wrong)?;
    let daily = drive.capacity_bytes as f64 * f64::from(system.count);
    let years = life(system, &answer, daily).map_err(wrong)?.map(|l| l.years);
    let flash_bytes_per_byte = answer.drive_bytes_per_byte * answer.flash_amplification;
    Ok(Entry { system: system.clone(), fill_percent, load, answer, flash_bytes_per_byte, years })
}

/// All of it: both sets of drives, 4K and 64K random writes at 50 and 80 %, and 4K random reads.
///
/// # Errors
/// None in practice: a test makes it.
pub fn flagship() -> Result<Vec<(String, Vec<Entry>)>, Error> {
    let limits = Limits { known_within: 0.01, seconds_max: 2.0, requests_max: 3_000_000 };
    let mut tables = vec![];
    for (drives, count) in [("p5520", 8), ("p5316", 24)] {
        for (workload, fill) in [
            ("4k-randwrite", 50),
            ("4k-randwrite", 80),
            ("64k-randwrite", 50),
            ("64k-randwrite", 80),
            ("4k-randread", 80),
        ] {
            let entries: Result<Vec<Entry>, Error> =
                layouts(drives, count, 64.0)?.iter().map(|s| entry(s, workload, fill, &limits)).collect();
            tables.push((format!("{count} x {drives}, {workload}, {fill} % full"), entries?));
        }
    }
    Ok(tables)
}
