//! Rows of the published figures as loads on modelled systems.

use predict::{Access, DriveState, Engine, Level, Load, Pressure, System, Workload};

use crate::error::Error;
use crate::published::{Row, rows};

/// What a row is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A figure of a file comes from it.
    Fitted,
    /// None does: by what it differs from the fitted ones.
    HeldOut(&'static str),
    /// Its condition is unknown, and matters.
    NotScored(&'static str),
}

/// A row, and how it is modelled.
#[derive(Clone, Debug)]
pub struct Case {
    /// The row.
    pub row: Row,
    /// The modelled system.
    pub system: System,
    /// The load.
    pub load: Load,
    /// What it is for.
    pub role: Role,
    /// How the drives were: "slice, steady", "not steady (inferred)", ...
    pub condition: &'static str,
}

/// A measurement that is no case, and why.
pub type LeftOut = (Row, &'static str);

/// Rows that figures of the files in `crates/predict` come from.
const FITTED: [&str; 13] = [
    "perc12-001",
    "perc12-002",
    "perc12-014",
    "perc12-021",
    "perc12-023",
    "perc12-025",
    "perc12-044",
    "perc12-046",
    "perc11-002",
    "perc11-008",
    "perc11-009",
    "perc11-015",
    "qlc24-010",
];

/// Requests in flight of each drive where a review does not say: more than any limit needs.
const DEEP: f64 = 256.0;
/// Bytes of a request in order where a review does not say.
const LARGE: u32 = 131_072;

/// Cases, and the measurements that are none with the reason.
///
/// # Errors
/// None, as a test reads all rows and systems.
pub fn cases() -> Result<(Vec<Case>, Vec<LeftOut>), Error> {
    let (mut cases, mut left_out) = (vec![], vec![]);
    for row in rows()?.into_iter().filter(|r| matches!(r.kind.as_str(), "measured" | "measured, rounded" | "derived")) {
        match case(&row)? {
            Ok(case) => cases.push(case),
            Err(why) => left_out.push((row, why)),
        }
    }
    Ok((cases, left_out))
}

fn case(row: &Row) -> Result<Result<Case, &'static str>, Error> {
    if row.kind == "derived" {
        return Ok(Err("a share of another row"));
    }
    if row.cached == "yes" {
        return Ok(Err("the page cache of a host is not modelled"));
    }
    let name = match (row.review.as_str(), row.system.as_str(), row.controller_count) {
        ("perc12", _, Some(0)) => "r760-direct",
        ("perc12", _, Some(1)) => "r760-perc12",
        ("perc12", _, Some(2)) => "r760-perc12x2",
        ("perc11", "Dell R650", _) => "h755n",
        ("perc11", "Dell R640", _) => "h730p",
        ("qlc24", system, _) if system.starts_with("Viking VSS2249P") => "vss2249p",
        ("qlc24", ..) => return Ok(Err("another server and other drives, whose maker is not stated")),
        _ => return Ok(Err("no modelled system is like it")),
    };
    if row.id == "qlc24-014" {
        return Ok(Err("the same measurement as qlc24-015"));
    }
    if row.workload.contains("50:50") {
        return Ok(Err("whether one direction or both are counted is not stated"));
    }
    let Some(read_percent) = row.read_percent else { return Ok(Err("the share of reads is not stated")) };
    let mut system = System::named(name).map_err(|e| Error::format(name, e))?;
    system.level = row.level.parse::<Level>().map_err(|e| Error::format(&row.id, e))?;
    if row.state == "rebuilding" {
        system.state = DriveState::Rebuilding;
    }
    let access = if row.access == "sequential" { Access::Sequential } else { Access::Random };
    let block_bytes = row.block_bytes.and_then(|b| u32::try_from(b).ok()).unwrap_or(LARGE);
    let mut load = Load::new(Workload { block_bytes, access, read_percent });
    let told = row.threads.zip(row.targets).zip(row.depth);
    load.pressure = Pressure::InFlightPerDrive(told.map_or(DEEP, |((threads, _), depth)| f64::from(threads * depth)));
    load.slice = row.slice_percent.map_or(1.0, |p| p / 100.0);
    load.generator_us = system.host.vdbench_request_us.filter(|_| row.tool == "Vdbench");
    let (condition, role) = condition(row, &system, &mut load);
    Ok(Ok(Case { row: row.clone(), system, load, role, condition }))
}

/// How the drives were, and what follows for the row.
fn condition(row: &Row, system: &System, load: &mut Load) -> (&'static str, Role) {
    let fitted = FITTED.contains(&row.id.as_str());
    let writes = load.workload.read_percent < 100.0 && load.workload.access == Access::Random;
    let condition = match (writes, row.slice_percent, row.review.as_str()) {
        (false, Some(_), _) => "slice of a full drive",
        (false, None, _) => "full",
        (true, Some(_), _) => "slice of a full drive, steady",
        // Bare drives behind the card make three times what their sheet calls steady, so none of its rows is.
        (true, None, "perc12") if system.engine == Engine::Card => {
            load.age = 0.0;
            "not steady (inferred)"
        }
        (true, None, "perc12") => "unknown",
        (true, None, _) => "steady (assumed)",
    };
    let role = if fitted {
        Role::Fitted
    } else if condition == "unknown" {
        Role::NotScored("whether the drives were steady is not known; steady is shown")
    } else {
        Role::HeldOut(held_out(row, load, writes))
    };
    (condition, role)
}

fn held_out(row: &Row, load: &Load, writes: bool) -> &'static str {
    let mix = writes && load.workload.read_percent > 0.0;
    match (row.state.as_str(), row.controller_count, row.slice_percent) {
        ("rebuilding", ..) => "rebuild",
        (_, Some(2), _) => "two cards",
        _ if mix => "mix",
        (_, _, Some(_)) => "slice",
        (_, Some(0), _) => "drives by their sheet",
        _ => "another load of the card",
    }
}
