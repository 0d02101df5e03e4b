//! Largest rates, what writes are of reads, other systems, lone requests, curves, rounds, several targets.

use super::Finding;
use super::about::{About, Build, Unit, best, is_optimal, list, noun, order, short};
use crate::curve::{Reading, Shape};
use crate::model::{Access, Cell, Part, Run, Verdict};
use crate::together::Scaling;
use crate::units::{grouped, latency};

/// Loads of another system that are named; the others are counted.
const BESIDE: usize = 3;

/// "The most is 3.55 M IOPS of 4K random reads (RAID10, 8 drives, 1 controller), 444 k IOPS for each drive."
pub fn most(about: &About<'_>) -> Option<Finding> {
    let cell = best(about, about.told().filter(|c| is_optimal(c)))?;
    let value = about.value(cell);
    let cached = if cell.load.cached == Some(true) { ", through the page cache" } else { "" };
    let brief = format!("{} of {}{cached}", about.unit.text(value), noun(cell));
    let build = build_and_pressure(cell);
    let each = cell.subject.drive_count.filter(|n| *n > 1 && cached.is_empty());
    let each = each.map_or(String::new(), |n| format!(", {} for each drive", about.unit.text(value / f64::from(n))));
    let tail = cell.figures.latency.p99_us.map_or(String::new(), |us| format!(", p99 {}", latency(us)));
    let mut rows = vec![cell.id.clone()];
    let mut text = format!("The most is {brief}{build}{each}{tail}");
    let writes = about
        .told()
        .filter(|c| is_optimal(c) && c.load.read_percent == Some(0.0) && c.load.access == Some(Access::Random));
    if let Some(write) = best(about, writes).filter(|w| w.id != cell.id) {
        let build = build_and_pressure(write);
        text.push_str(&format!("; of {}, {}{build}", noun(write), about.unit.text(about.value(write))));
        rows.push(write.id.clone());
    }
    Some(Finding::new(format!("{text}."), rows).brief(brief))
}

/// " (RAID10, 8 drives, threads x depth 8 x 32)"; what is not known is left out.
fn build_and_pressure(cell: &Cell) -> String {
    let mut words = vec![Build::of(cell).text()];
    if cell.load.threads.is_some() && cell.load.depth.is_some() {
        words.push(format!("threads x depth {}", cell.load.pressure()));
    }
    words.retain(|w| !w.is_empty());
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// "64K random writes make 7 % of 64K random reads": the least of all block sizes, each by the load that reads most, and the
/// same in sequence.
pub fn writes_of_reads(about: &About<'_>) -> Option<Finding> {
    let pair = |write: &'_ Cell| {
        let fits = |c: &&Cell| {
            let (mut a, mut b) = (c.load.clone(), write.load.clone());
            (a.read_percent, b.read_percent) = (None, None);
            c.load.read_percent == Some(100.0) && a == b && Build::of(c) == Build::of(write) && is_optimal(c)
        };
        best(about, about.cells.iter().copied().filter(fits)).map(|c| c.id.clone())
    };
    let pairs_of = |access: Access| {
        let writes = about.told().filter(move |c| c.load.access == Some(access) && c.load.read_percent == Some(0.0));
        let mut pairs: Vec<(f64, &Cell, &Cell)> = writes
            .filter(|c| is_optimal(c))
            .filter_map(|w| {
                let id = pair(w)?;
                let read = about.cells.iter().copied().find(|c| c.id == id)?;
                let least = about.value(read);
                (least > 0.0).then(|| (about.value(w) / least, w, read))
            })
            .collect();
        let size = |pair: &(f64, &Cell, &Cell)| pair.1.load.block_bytes;
        pairs.sort_by(|a, b| size(a).cmp(&size(b)).then(about.value(b.2).total_cmp(&about.value(a.2))));
        pairs.dedup_by_key(|pair| size(pair));
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        pairs
    };
    let (random, sequential) = (pairs_of(Access::Random), pairs_of(Access::Sequential));
    let (share, write, read) = random.first().or(sequential.first()).copied()?;
    let said = format!("{} make {:.0} % of {}", noun(write), share * 100.0, noun(read));
    let figures = about.unit.both(about.value(write), "of", about.value(read));
    let mut rows = vec![write.id.clone(), read.id.clone()];
    let mut text = format!("{said} ({figures})");
    // Beside the largest rate of other reads a share alone would seem to be of that.
    let is_of_the_most = best(about, about.told().filter(|c| is_optimal(c))).is_some_and(|most| most.id == read.id);
    let brief = if is_of_the_most { said } else { text.clone() };
    if let (Some(_), Some((share, write, read))) = (random.first(), sequential.first()) {
        text.push_str(&format!("; {}, {:.0} % of {}", noun(write), share * 100.0, noun(read)));
        rows.extend([write.id.clone(), read.id.clone()]);
    }
    Some(Finding::new(format!("{text}."), rows).brief(brief))
}

/// What the system makes of what others do: a sentence for each of them.
pub fn beside_others(about: &About<'_>) -> Vec<Finding> {
    let mut systems: Vec<&str> = vec![];
    // Targets of one run are told against each other by what all of them make together.
    for cell in about.others.iter().filter(|c| !matches!(c.part, Part::OneOf { .. })) {
        if !systems.contains(&cell.subject.system.as_str()) {
            systems.push(&cell.subject.system);
        }
    }
    systems.into_iter().filter_map(|system| beside(about, system)).collect()
}

fn beside(about: &About<'_>, system: &str) -> Option<Finding> {
    let others: Vec<&Cell> =
        about.others.iter().copied().filter(|c| c.subject.system == system && is_optimal(c)).collect();
    let mut pairs: Vec<(f64, &Cell, &Cell)> = vec![];
    for other in others.iter().filter(|c| Unit::of(c) == Some(about.unit)) {
        let fits = |c: &&Cell| {
            let known = |a: Option<String>, b: Option<String>| a.is_none() || b.is_none() || a == b;
            let text = |v: Option<f64>| v.map(|n| n.to_string());
            let whole = |v: Option<u32>| v.map(|n| n.to_string());
            is_optimal(c)
                && noun(c) == noun(other)
                && c.subject.level == other.subject.level
                && (c.part == Part::CurveMax) == (other.part == Part::CurveMax)
                && known(text(c.load.slice_percent), text(other.load.slice_percent))
                && known(whole(c.load.threads), whole(other.load.threads))
                && known(whole(c.load.depth), whole(other.load.depth))
        };
        let mut fitting: Vec<&Cell> = about.told().filter(fits).collect();
        // As many drives, if there are; else the fewest.
        fitting.sort_by_key(|c| {
            let drives = c.subject.drive_count;
            (drives != other.subject.drive_count, drives, c.load.slice_percent != other.load.slice_percent)
        });
        if let Some(cell) = fitting.first() {
            pairs.push((about.value(cell) / about.value(other), cell, other));
        }
    }
    pairs.sort_by(|a, b| b.0.ln().abs().total_cmp(&a.0.ln().abs()));
    let words: Vec<String> = pairs
        .iter()
        .take(BESIDE)
        .map(|(ratio, cell, other)| {
            let figures = about.unit.both(about.value(cell), "against", about.value(other));
            format!("{} {} ({figures})", noun(cell), change(*ratio))
        })
        .collect();
    let (_, first, against) = pairs.first()?;
    let drives = |c: &Cell| if c.subject.drives.is_empty() { String::new() } else { short(&c.subject.drives) };
    let counts = match (drives(first), drives(against)) {
        (a, b) if a == b || b.is_empty() => String::new(),
        (a, b) if a.is_empty() => format!(" with {b}"),
        (a, b) => format!(" with {b}, here {a}"),
    };
    let left = pairs.len().saturating_sub(BESIDE);
    let left = if left > 0 { format!("; {left} more differ less") } else { String::new() };
    // A first screen has a line for another system, not its whole table.
    let text = format!("Beside {}{counts}: {}{left}.", short(system), list(&words));
    Some(Finding::new(text, pairs.iter().flat_map(|(_, a, b)| [a.id.clone(), b.id.clone()])))
}

/// "+27 %"; from twice on "7.1 times".
fn change(ratio: f64) -> String {
    if ratio >= 2.0 { format!("{ratio:.1} times") } else { format!("{:+.0} %", (ratio - 1.0) * 100.0) }
}

/// What one request at a time takes.
pub fn alone(about: &About<'_>) -> Option<Finding> {
    let lone = about.cells.iter().copied().filter(|c| c.load.outstanding() == Some(1.0) && is_optimal(c));
    let mut lone: Vec<&Cell> = lone.filter(|c| c.figures.latency.mean_us.is_some()).collect();
    // Of two with one load the better one, as among the numbers.
    let mean = |c: &Cell| c.figures.latency.mean_us.unwrap_or(f64::MAX);
    lone.sort_by(|a, b| order(a).cmp(&order(b)).then(mean(a).total_cmp(&mean(b))));
    lone.dedup_by_key(|c| noun(c));
    let words: Vec<String> = lone
        .iter()
        .take(4)
        .map(|c| {
            let of = c.figures.latency;
            let tail = of.p99_us.map_or(String::new(), |us| format!(" (p99 {})", latency(us)));
            format!("{}{tail} for {}", latency(of.mean_us.unwrap_or(0.0)), noun(c))
        })
        .collect();
    (!words.is_empty()).then(|| {
        Finding::new(
            format!("One request at a time takes {}.", list(&words)),
            lone.iter().take(4).map(|c| c.id.clone()),
        )
    })
}

/// So many requests a second, in the unit that a load is drawn in: 64K of them are bytes.
pub fn drawn(cell: &Cell, iops: f64) -> String {
    match (Unit::of(cell), cell.load.block_bytes) {
        (Some(Unit::Bytes), Some(bytes)) => Unit::Bytes.text(iops * bytes as f64),
        _ => Unit::Iops.text(iops),
    }
}

/// Where each curve bends.
pub fn curves(run: &Run) -> Vec<Finding> {
    let mut tests: Vec<(&str, Vec<&Cell>)> = vec![];
    for cell in run.cells.iter().filter(|c| matches!(c.part, Part::Curve { .. }) && c.verdict() != Verdict::Fail) {
        match tests.iter_mut().find(|(t, _)| *t == cell.test) {
            Some((_, points)) => points.push(cell),
            None => tests.push((&cell.test, vec![cell])),
        }
    }
    let said = tests.into_iter().map(|(test, points)| {
        let read = Reading::of(&points);
        let most = points.iter().filter_map(|c| c.figures.iops).fold(0.0, f64::max);
        let bound = read.iops_at_one_ms.map_or(String::new(), |n| match drawn(points[0], n) {
            all if n >= most => format!("; all of it, up to {all}, with a p99 of 1 ms or less"),
            part => format!("; with a p99 of 1 ms or less, {part}"),
        });
        let text = match (read.shape, read.knee_percent) {
            (Shape::Bent, _) => format!("{test}: its p99 does not rise from point to point, so no knee can be read"),
            (Shape::Rising, Some(percent @ ..100)) => {
                format!("{test}: the knee is at {percent} % of the largest rate{bound}")
            }
            (Shape::Rising, _) => format!("{test}: no knee within the curve{bound}"),
            (Shape::Unknown, _) => return None,
        };
        Some(Finding::new(format!("{text}."), points.iter().map(|c| c.id.clone())))
    });
    said.flatten().collect()
}

/// Which rounds became steady.
pub fn rounds(run: &Run) -> Vec<Finding> {
    let of = |rounds: &crate::model::Rounds| {
        let cells = run.cells.iter().filter(|c| c.test == rounds.test && matches!(c.part, Part::Round { .. }));
        let rows: Vec<String> = cells.map(|c| c.id.clone()).collect();
        let last = rounds.values.last().copied().unwrap_or(0.0);
        let is = if rounds.steady { "is steady" } else { "is NOT STEADY" };
        let text = format!("{} {is} after {} rounds, at {} IOPS.", rounds.test, rounds.values.len(), grouped(last));
        Finding::new(text, rows)
    };
    run.rounds.iter().map(of).collect()
}

/// What several targets make of what each makes alone.
pub fn together(run: &Run) -> Vec<Finding> {
    let all = run.cells.iter().filter(|c| c.part == Part::Together && c.verdict() != Verdict::Fail);
    let said = all.filter_map(|cell| {
        let scaling = Scaling::of(cell, &run.cells)?;
        let unit = if scaling.is_iops { Unit::Iops } else { Unit::Bytes };
        let text = format!(
            "{}: all {} targets at once make {:.0} % of what each makes alone, added ({}).",
            cell.test,
            scaling.alone.len(),
            scaling.share() * 100.0,
            unit.both(scaling.together, "of", scaling.sum)
        );
        let rows = scaling.alone.iter().map(|c| c.id.clone()).chain([cell.id.clone()]);
        Some(Finding::new(text, rows))
    });
    said.collect()
}
