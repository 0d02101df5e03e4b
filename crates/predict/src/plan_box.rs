//! The cheapest boxes that do what is needed.
//!
//! For each drive that has a price, each engine and each level, the fewest drives in the fewest boxes are sought that
//! hold the data, keep the rate within the latency, and last as long as they must. A box that does more with fewer
//! drives does not exist: each of the three grows with the drives, so halving finds the fewest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Limits, answer};
use crate::error::Error;
use crate::life::{life, usable_bytes};
use crate::load::{Load, Pressure};
use crate::system::{DriveState, Engine, HostFigures, Level, PARTS_MAX, System};

/// What is needed.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Bytes that hosts store.
    pub capacity_bytes: f64,
    /// Requests, with the fill that they meet; its pressure is not used.
    pub load: Load,
    /// Requests a second.
    pub iops: f64,
    /// The p99, microseconds, at most.
    pub p99_us_max: f64,
    /// Bytes that hosts write a day.
    pub writes_per_day: f64,
    /// Years that drives last, at least.
    pub years_min: f64,
}

/// Prices, in one currency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The currency, in words.
    pub currency: String,
    /// Of a drive, by the name of its file.
    pub drives: BTreeMap<String, f64>,
    /// A box without drives.
    pub host: f64,
    /// Cores of a box.
    pub cores: f64,
    /// Drives that a box takes.
    pub bays: u32,
    /// A RAID card for eight drives; absent: none is considered.
    pub card: Option<f64>,
}

/// What decided how many drives there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decided {
    /// The level needs so many.
    Level,
    /// The data.
    Capacity,
    /// The rate, or its latency.
    Load,
    /// What is written a day.
    Life,
}

/// Boxes that do it.
#[derive(Clone, Debug, Serialize)]
pub struct Boxes {
    /// One of them.
    pub system: System,
    /// How many.
    pub boxes: u32,
    /// The price of all.
    pub price: f64,
    /// Bytes that all hold.
    pub usable_bytes: f64,
    /// What one of them does.
    pub answer: Answer,
    /// Years; absent: the drive's file warrants nothing.
    pub years: Option<f64>,
    /// Why so many drives.
    pub decided: Decided,
}

/// A kind of box that does not do it.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// Which.
    pub title: String,
    /// Why even the largest falls short.
    pub why: String,
}

/// Boxes beside each other, at most.
const BOXES_MAX: u32 = 4;
/// Drives of one card.
const CARD_DRIVES: u32 = 8;

/// Cheapest first; and kinds that do not do it.
///
/// # Errors
/// When a drive has a price and no file.
pub fn plan_box(need: &Need, prices: &Prices, seed: u64) -> Result<(Vec<Boxes>, Vec<Refused>), Error> {
    if prices.bays == 0 || prices.cores <= 0.0 {
        return Err(Error::Impossible("prices: bays and cores are above zero".to_owned()));
    }
    let (mut found, mut refused) = (vec![], vec![]);
    for drive in prices.drives.keys() {
        for (engine, level) in kinds(prices) {
            match cheapest(need, prices, seed, drive, engine, level)? {
                Ok(boxes) => found.push(boxes),
                Err(why) => refused.push(why),
            }
        }
    }
    found.sort_by(|a, b| a.price.total_cmp(&b.price));
    Ok((found, refused))
}

fn kinds(prices: &Prices) -> Vec<(Engine, Level)> {
    let mut engines = vec![Engine::Ashlar, Engine::InPlace];
    engines.extend(prices.card.map(|_| Engine::Card));
    let levels = [Level::Raid10, Level::Raid5, Level::Raid6];
    engines.into_iter().flat_map(|engine| levels.map(|level| (engine, level))).collect()
}

fn cheapest(
    need: &Need,
    prices: &Prices,
    seed: u64,
    drive: &str,
    engine: Engine,
    level: Level,
) -> Result<Result<Boxes, Refused>, Error> {
    let mut why = Refused { title: String::new(), why: "no number of drives has this level".to_owned() };
    for boxes in 1..=BOXES_MAX {
        let counts: Vec<u32> = (2..=prices.bays).filter(|n| possible(prices, drive, engine, level, *n)).collect();
        let Some(&most) = counts.last() else { continue };
        let largest = system(prices, drive, engine, level, most)?;
        match meets(need, &largest, boxes, seed)? {
            Ok(_) => {}
            Err((_, short)) => {
                why = Refused { title: largest.title(), why: format!("{boxes} boxes of {most} drives: {short}") };
                continue;
            }
        }
        let (mut short, mut enough) = (None, counts.len() - 1);
        let (mut low, mut decided) = (0, Decided::Level);
        while low < enough {
            let middle = low.midpoint(enough);
            match meets(need, &system(prices, drive, engine, level, counts[middle])?, boxes, seed)? {
                Ok(_) => enough = middle,
                Err((by, _)) => {
                    low = middle + 1;
                    short = Some(by);
                }
            }
        }
        if let Some(by) = short {
            decided = by;
        }
        let system = system(prices, drive, engine, level, counts[enough])?;
        if let Ok((answer, years)) = meets(need, &system, boxes, seed)? {
            let cards =
                prices.card.unwrap_or(0.0) * f64::from(system.arrays()) * f64::from(u8::from(engine == Engine::Card));
            let one = prices.host + f64::from(system.count) * prices.drives[drive] + cards;
            let usable = usable_bytes(&system)? * f64::from(boxes);
            let price = one * f64::from(boxes);
            return Ok(Ok(Boxes { system, boxes, price, usable_bytes: usable, answer, years, decided }));
        }
    }
    Ok(Err(why))
}

fn possible(prices: &Prices, drive: &str, engine: Engine, level: Level, count: u32) -> bool {
    let whole_cards = engine != Engine::Card || count <= CARD_DRIVES || count.is_multiple_of(CARD_DRIVES);
    let pairs = level != Level::Raid10 || count.is_multiple_of(2);
    whole_cards && pairs && system(prices, drive, engine, level, count).is_ok()
}

fn system(prices: &Prices, drive: &str, engine: Engine, level: Level, count: u32) -> Result<System, Error> {
    let card = match engine {
        Engine::Card => System::named("r760-perc12")?.card.map(|card| {
            let cards = count.div_ceil(CARD_DRIVES);
            crate::Card { count: cards, ..card }
        }),
        Engine::Direct | Engine::InPlace | Engine::Ashlar => None,
    };
    let system = System {
        name: drive.to_owned(),
        about: String::new(),
        drives: drive.to_owned(),
        count,
        engine,
        level,
        width: 0,
        state: DriveState::Optimal,
        host: HostFigures {
            cores: prices.cores,
            request_us: 4.5,
            vdbench_request_us: None,
            // As many as have cores.
            parts: ((prices.cores / 2.0) as u32).clamp(1, PARTS_MAX),
        },
        card,
        network: None,
        drive_file: None,
    };
    system.check().map(|()| system)
}

type Short = (Decided, String);

/// Whether so many boxes do it: what one does and how long its drives last; or what it falls short of.
fn meets(need: &Need, system: &System, boxes: u32, seed: u64) -> Result<Result<(Answer, Option<f64>), Short>, Error> {
    let usable = usable_bytes(system)? * f64::from(boxes);
    if usable < need.capacity_bytes {
        let why = format!("they hold {:.1} of {:.1} TB", usable / 1e12, need.capacity_bytes / 1e12);
        return Ok(Err((Decided::Capacity, why)));
    }
    let fill = need.capacity_bytes / usable;
    let rate = need.iops / f64::from(boxes);
    let load = Load { pressure: Pressure::Rate(rate), fill, slice: need.load.slice.min(1.0) * fill, ..need.load };
    let limits = Limits { known_within: 0.02, seconds_max: 1.0, requests_max: 400_000 };
    let answer = answer(system, &load, &limits, seed, None)?;
    if !answer.kept || answer.p99_us > need.p99_us_max {
        let why = format!("p99 is {:.0} us at {rate:.0} IOPS each", answer.p99_us);
        return Ok(Err((Decided::Load, why)));
    }
    let years = life(system, &answer, need.writes_per_day / f64::from(boxes))?.map(|l| l.years);
    if let Some(years) = years.filter(|y| *y < need.years_min) {
        return Ok(Err((Decided::Life, format!("drives last {years:.1} years"))));
    }
    Ok(Ok((answer, years)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices() -> Prices {
        let drives = [("p5520".to_owned(), 900.0), ("p5316".to_owned(), 2200.0)].into();
        Prices { currency: "EUR".to_owned(), drives, host: 6000.0, cores: 32.0, bays: 24, card: Some(1200.0) }
    }

    fn need(iops: f64) -> Need {
        Need {
            capacity_bytes: 60e12,
            load: Load::new("4k-70/30".parse().expect("a workload")),
            iops,
            p99_us_max: 3000.0,
            writes_per_day: 5e12,
            years_min: 5.0,
        }
    }

    #[test]
    fn what_is_found_meets_the_need_and_is_in_order_of_price() {
        let (found, refused) = plan_box(&need(200_000.0), &prices(), 1).expect("it can be");
        assert!(!found.is_empty());
        for boxes in &found {
            assert!(boxes.usable_bytes >= 60e12 && boxes.answer.p99_us <= 3000.0, "{}", boxes.system.title());
            assert!(boxes.years.is_none_or(|y| y >= 5.0));
        }
        assert!(found.is_sorted_by(|a, b| a.price <= b.price));
        assert!(found.len() + refused.len() == 18, "{} and {}", found.len(), refused.len());
    }

    #[test]
    fn what_nothing_can_do_is_refused_with_a_reason() {
        let (found, refused) = plan_box(&need(100e6), &prices(), 1).expect("it can be");
        assert!(found.is_empty());
        assert!(refused.iter().all(|r| r.why.contains("p99")), "{refused:?}");
    }
}
