//! What RAID levels keep of the bare drives, what states keep of the optimal rate, and what more drives add.

use super::Finding;
use super::about::{About, Build, best, count_of, is_optimal, list, noun, order, same_load};
use crate::model::{Access, Cell, State};

/// Levels that others are held against, the best first.
const REFERENCES: [&str; 4] = ["JBOD", "RAID0", "RAID10", "RAID1"];
/// States beside the optimal one, in the order of their life.
const STATES: [State; 3] = [State::Degraded, State::Rebuilding, State::Rebuilt];

/// Retention as a table: one row for each build, one column for each load.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The level that others are held against.
    pub reference: Option<String>,
    /// The loads.
    pub loads: Vec<String>,
    /// The builds.
    pub rows: Vec<KeptRow>,
}

/// A build of the system.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRow {
    /// "RAID5, 8 drives, 1 controller".
    pub build: String,
    /// For each load.
    pub cells: Vec<KeptCell>,
}

/// One load on one build.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptCell {
    /// The optimal rate, and its row.
    pub optimal: Option<(f64, String)>,
    /// What it is of the same drives at the reference level, from 0 to 1 and above.
    pub of_reference: Option<f64>,
    /// What each state keeps of the optimal rate, and its row.
    pub states: Vec<(State, f64, String)>,
}

impl Kept {
    /// Of a result; nothing when there is one level and one state.
    pub fn of(about: &About<'_>) -> Option<Kept> {
        let mut builds: Vec<Build> = about.told().map(Build::of).collect();
        builds.sort();
        builds.dedup();
        let levels: Vec<&Build> = builds.iter().filter(|b| b.level != builds[0].level).collect();
        if levels.is_empty() && about.told().all(is_optimal) {
            return None;
        }
        let mut loads: Vec<&Cell> = vec![];
        for cell in about.told() {
            let is_elsewhere = |c: &Cell| {
                same_load(c, cell) && (Build::of(c) != Build::of(cell) || c.subject.state != cell.subject.state)
            };
            if about.told().any(is_elsewhere) && !loads.iter().any(|l| same_load(l, cell)) {
                loads.push(cell);
            }
        }
        loads.sort_by_key(|c| order(c));
        let reference = reference(about);
        let row = |build: &Build| KeptRow {
            build: build.text(),
            cells: loads.iter().map(|load| one(about, reference, build, load)).collect(),
        };
        let rows: Vec<KeptRow> = builds
            .iter()
            .map(row)
            .filter(|r| r.cells.iter().any(|c| c.optimal.is_some() || !c.states.is_empty()))
            .collect();
        (!loads.is_empty()).then(|| Kept {
            reference: reference.map(str::to_owned),
            loads: loads.iter().map(|c| noun(c)).collect(),
            rows,
        })
    }
}

/// The level that the others are held against: one that is there beside another.
fn reference(about: &About<'_>) -> Option<&'static str> {
    let is_there = |level: &str| about.told().any(|c| c.subject.level.as_deref() == Some(level));
    let another = |level: &str| about.told().any(|c| c.subject.level.as_deref().is_some_and(|l| l != level));
    REFERENCES.into_iter().find(|level| is_there(level) && another(level))
}

fn one(about: &About<'_>, reference: Option<&str>, build: &Build, load: &Cell) -> KeptCell {
    let here = |state: State| {
        let fits = |c: &&Cell| same_load(c, load) && Build::of(c) == *build && c.subject.state == state;
        best(about, about.told().filter(fits))
    };
    let Some(optimal) = here(State::Optimal) else { return KeptCell::default() };
    let rate = about.value(optimal);
    let states = STATES.iter().filter_map(|s| here(*s).map(|c| (*s, about.value(c) / rate, c.id.clone())));
    KeptCell {
        optimal: Some((rate, optimal.id.clone())),
        of_reference: reference_cell(about, reference, optimal).map(|c| rate / about.value(c)),
        states: states.collect(),
    }
}

/// The same drives under the same load at the reference level.
fn reference_cell<'a>(about: &About<'a>, reference: Option<&str>, cell: &Cell) -> Option<&'a Cell> {
    let reference = reference.filter(|r| cell.subject.level.as_deref().is_some_and(|l| l != *r))?;
    let build = Build { level: Some(reference.to_owned()), ..Build::of(cell) };
    let fits = |c: &&Cell| is_optimal(c) && same_load(c, cell) && Build::of(c) == build;
    best(about, about.told().filter(fits))
}

/// The smallest build of a level that has what `wanted` asks for.
fn smallest<'a>(about: &About<'a>, level: &str, wanted: &dyn Fn(&Cell) -> bool) -> Option<Build> {
    let here = about.told().filter(|c| c.subject.level.as_deref() == Some(level) && wanted(c));
    here.map(Build::of).min()
}

fn levels_of<'a>(about: &About<'a>) -> Vec<&'a str> {
    let mut levels: Vec<&str> = about.told().filter_map(|c| c.subject.level.as_deref()).collect();
    levels.sort_unstable();
    levels.dedup();
    levels
}

/// Loads of a build, each once, in the order of the table.
fn loads_of<'a>(about: &About<'a>, build: &Build) -> Vec<&'a Cell> {
    let mut loads: Vec<&Cell> = vec![];
    for cell in about.told().filter(|c| is_optimal(c) && Build::of(c) == *build) {
        match loads.iter_mut().find(|l| same_load(l, cell)) {
            Some(known) if about.value(known) < about.value(cell) => *known = cell,
            Some(_) => {}
            None => loads.push(cell),
        }
    }
    loads.sort_by_key(|c| order(c));
    loads
}

/// "RAID5 keeps 14 % of JBOD's 4K random writes (...), ...": a sentence for each level, the dearest first.
pub fn levels(about: &About<'_>) -> Vec<Finding> {
    let Some(reference) = reference(about) else { return vec![] };
    let mut found: Vec<(f64, Finding)> = vec![];
    for level in levels_of(about).into_iter().filter(|l| *l != reference) {
        let pairs_with = |c: &Cell| is_optimal(c) && reference_cell(about, Some(reference), c).is_some();
        let Some(build) = smallest(about, level, &pairs_with) else { continue };
        let mut pairs: Vec<(f64, &Cell, &Cell)> = loads_of(about, &build)
            .into_iter()
            .filter_map(|c| reference_cell(about, Some(reference), c).map(|r| (about.value(c) / about.value(r), c, r)))
            .collect();
        pairs.sort_by(|a, b| {
            (!is_write(a.1), a.0).partial_cmp(&(!is_write(b.1), b.0)).unwrap_or(std::cmp::Ordering::Equal)
        });
        let Some((share, cell, other)) = pairs.first().copied() else { continue };
        let brief = format!("{level} keeps {} of {reference}'s {}", percent(share), noun(cell));
        let figures = about.unit.both(about.value(cell), "of", about.value(other));
        let more: Vec<String> =
            pairs[1..].iter().map(|(s, c, _)| format!("{} of the {}", percent(*s), noun(c))).collect();
        let more = if more.is_empty() { String::new() } else { format!(", {}", list(&more)) };
        let on = Build { level: None, ..build }.text();
        let on = if on.is_empty() { String::new() } else { format!(" ({on})") };
        let text = format!("{brief}: {figures}{more}{on}.");
        let rows: Vec<String> = pairs.iter().flat_map(|(_, c, r)| [c.id.clone(), r.id.clone()]).collect();
        found.push((share, Finding::new(text, rows).brief(brief)));
    }
    let mut found = by_share(found);
    // A title has room for the dearest only.
    found.iter_mut().skip(1).for_each(|f| f.brief.clear());
    found
}

/// "While rebuilding, RAID5 keeps 9 % of its 4K OLTP, ...": a sentence for each level and state, the dearest first.
pub fn states(about: &About<'_>) -> Vec<Finding> {
    let mut levels: Vec<Option<&str>> = levels_of(about).into_iter().map(Some).collect();
    if levels.is_empty() {
        levels.push(None);
    }
    let mut found: Vec<(f64, Finding)> = vec![];
    for level in levels {
        for state in STATES {
            let here = || about.told().filter(|c| c.subject.level.as_deref() == level && c.subject.state == state);
            let Some(build) = here().map(Build::of).min() else { continue };
            let mut shares: Vec<(f64, &Cell, &Cell)> = here()
                .filter(|c| Build::of(c) == build)
                .filter_map(|c| {
                    let fits = |o: &&Cell| is_optimal(o) && same_load(o, c) && Build::of(o) == build;
                    let optimal = best(about, about.told().filter(fits))?;
                    Some((about.value(c) / about.value(optimal), c, optimal))
                })
                .collect();
            shares.sort_by(|a, b| a.0.total_cmp(&b.0));
            let Some((least, cell, _)) = shares.first().copied() else { continue };
            let words: Vec<String> =
                shares.iter().map(|(s, c, _)| format!("{} of its {}", percent(*s), noun(c))).collect();
            let who = level.unwrap_or("the array");
            let when = if state == State::Rebuilt { "Once rebuilt".to_owned() } else { format!("While {state}") };
            let on = Build { level: None, ..build }.text();
            let on = if on.is_empty() { String::new() } else { format!(" ({on})") };
            let text = format!("{when}, {who} keeps {}{on}.", list(&words));
            let brief = format!("{when}, {who} keeps {} of its {}", percent(least), noun(cell));
            let brief = brief.replacen(&when, &when.to_lowercase(), 1);
            let rows: Vec<String> = shares.iter().flat_map(|(_, c, o)| [c.id.clone(), o.id.clone()]).collect();
            // What is whole again is the least of the news.
            let weight = if state == State::Rebuilt { 10.0 + least } else { least };
            found.push((weight, Finding::new(text, rows).brief(brief)));
        }
    }
    let mut found = by_share(found);
    found.iter_mut().skip(1).for_each(|f| f.brief.clear());
    found
}

/// "2 controllers with 16 drives make 1.97 times what 1 with 8 makes": more of the same, over all loads and levels.
pub fn scaling(about: &About<'_>) -> Option<Finding> {
    let sizes = |c: &Cell| (c.subject.drive_count, c.subject.controller_count);
    // Every unit: a ratio has none.
    let whole = || about.cells.iter().copied().filter(|c| is_optimal(c) && c.subject.drive_count.is_some());
    let (least, most) = (whole().map(sizes).min()?, whole().map(sizes).max()?);
    if least == most {
        return None;
    }
    let mut pairs: Vec<(f64, &Cell, &Cell)> = vec![];
    for more in whole().filter(|c| sizes(c) == most) {
        let fits = |c: &&Cell| sizes(c) == least && same_load(c, more) && c.subject.level == more.subject.level;
        let Some(less) = whole().find(fits) else { continue };
        let (Some((a, one)), Some((b, other))) = (more.headline(), less.headline()) else { continue };
        if a == b {
            pairs.push((one / other, more, less));
        }
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (pairs.first()?, pairs.last()?);
    let middle = pairs[pairs.len() / 2].0;
    let size = |(drives, controllers): (Option<u32>, Option<u32>)| {
        let drives = drives.map_or(String::new(), |n| count_of(n, "drive"));
        match controllers.filter(|n| *n > 0) {
            Some(n) if least.1 != most.1 => format!("{} with {drives}", count_of(n, "controller")),
            Some(_) | None => drives,
        }
    };
    let (many, few) = (size(most), size(least));
    let plural = if few.starts_with("1 ") { "makes" } else { "make" };
    let of = |pair: &(f64, &Cell, &Cell)| {
        let level = pair.1.subject.level.as_ref().map_or(String::new(), |l| format!(", {l}"));
        format!("{:.2} for {}{level}", pair.0, noun(pair.1))
    };
    let spread = if pairs.len() > 1 {
        format!(": the middle of {} loads, from {} to {}", pairs.len(), of(first), of(last))
    } else {
        format!(" for {}", noun(first.1))
    };
    let text = format!("{many} make {middle:.2} times what {few} {plural}{spread}.");
    Some(Finding::new(text, pairs.iter().flat_map(|(_, a, b)| [a.id.clone(), b.id.clone()])))
}

fn by_share(mut found: Vec<(f64, Finding)>) -> Vec<Finding> {
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.into_iter().map(|(_, f)| f).collect()
}

fn is_write(cell: &Cell) -> bool {
    cell.load.access == Some(Access::Random) && cell.load.read_percent == Some(0.0)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
