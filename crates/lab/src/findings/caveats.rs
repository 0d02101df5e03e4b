//! What to know before a number is quoted: what failed, what the page cache gave, drives in unlike states.

use super::Finding;
use super::about::{About, Unit, is_optimal, list};
use crate::model::{Access, Cell, Check, Origin, Pair, Run, Verdict};

/// Rates of the same drives under one load differ by more than this when their state does.
const UNLIKE: f64 = 1.3;

/// Tests that were left out and are named; the others are counted.
const NAMED: usize = 4;

/// Of a result.
pub fn of(run: &Run, about: &About<'_>) -> Vec<Finding> {
    [failed(run), warned(run), left_out(run), cached(run), unlike_states(about, run)].into_iter().flatten().collect()
}

/// "host 27 and steady 3".
fn counted(all: impl Iterator<Item = Check>) -> String {
    let mut checks: Vec<(Check, usize)> = vec![];
    for check in all {
        match checks.iter_mut().find(|(known, _)| *known == check) {
            Some((_, n)) => *n += 1,
            None => checks.push((check, 1)),
        }
    }
    list(&checks.iter().map(|(check, n)| format!("{check} {n}")).collect::<Vec<_>>())
}

fn failed(run: &Run) -> Option<Finding> {
    let failed: Vec<&Cell> = run.cells.iter().filter(|c| c.verdict() == Verdict::Fail).collect();
    let checks = counted(failed.iter().flat_map(|c| &c.gates).filter(|g| g.verdict == Verdict::Fail).map(|g| g.check));
    let text = format!("{} of {} cells are FAIL and say nothing here ({checks}).", failed.len(), run.cells.len());
    (!failed.is_empty()).then(|| Finding::new(text, failed.iter().map(|c| c.id.clone())))
}

/// Where most of what was measured here is WARN, the first screen says why.
fn warned(run: &Run) -> Option<Finding> {
    let warned: Vec<&Cell> = run.cells.iter().filter(|c| c.verdict() == Verdict::Warn).collect();
    if run.origin != Origin::Measured || 2 * warned.len() <= run.cells.len() {
        return None;
    }
    let checks = counted(warned.iter().flat_map(|c| &c.gates).filter(|g| g.verdict == Verdict::Warn).map(|g| g.check));
    let text =
        format!("{} of {} cells are WARN ({}): quote none of them alone.", warned.len(), run.cells.len(), checks);
    Some(Finding::new(text, warned.iter().map(|c| c.id.clone())))
}

/// Tests of the suite that are not in the result.
fn left_out(run: &Run) -> Option<Finding> {
    let is_left_out = |p: &&Pair| p.value.starts_with("not run");
    let mut names: Vec<String> = run.not_run.iter().filter(is_left_out).map(|p| p.name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    let more = names.len().saturating_sub(NAMED);
    if more > 0 {
        names.truncate(NAMED);
        names.push(format!("{more} more"));
    }
    Some(Finding::new(format!("Of the suite these were not run: {}.", list(&names)), None::<String>))
}

fn cached(run: &Run) -> Option<Finding> {
    let cached: Vec<&Cell> = run.cells.iter().filter(|c| c.load.cached == Some(true)).collect();
    if cached.is_empty() {
        return None;
    }
    let how_many = if cached.len() == run.cells.len() { "All".to_owned() } else { format!("{} of", cached.len()) };
    let mut rows: Vec<String> = cached.iter().map(|c| c.id.clone()).collect();
    let gigabytes = |what: &str| {
        let fact = run.facts.iter().find(|f| f.metric == what && f.value.ends_with(" GB"))?;
        Some((fact.value.trim_end_matches(" GB").parse::<f64>().ok()?, fact.id.clone()))
    };
    let fits = match (gigabytes("test range"), gigabytes("RAM")) {
        (Some((range, a)), Some((memory, b))) if range < memory => {
            rows.extend([a, b]);
            format!(": the range of {range:.0} GB fits into {memory:.0} GB")
        }
        (_, _) => String::new(),
    };
    let text = format!(
        "{how_many} {} numbers came through the page cache: they are the speed of the host's memory, not of the \
         drives{fits}.",
        run.cells.len()
    );
    Some(Finding::new(text, rows))
}

/// The same bare drives under the same random writes: rates for each drive that differ much are of unlike states.
fn unlike_states(about: &About<'_>, run: &Run) -> Option<Finding> {
    let kind =
        |c: &Cell| c.subject.drives.split_once("x ").map_or(c.subject.drives.clone(), |(_, name)| name.to_owned());
    let is_bare = |c: &&&Cell| {
        c.subject.level.as_deref() == Some("JBOD")
            && is_optimal(c)
            && c.load.access == Some(Access::Random)
            && c.load.read_percent == Some(0.0)
            && !kind(c).is_empty()
    };
    let all: Vec<&Cell> = about.cells.iter().chain(&about.others).filter(is_bare).copied().collect();
    let each = |c: &Cell| Some(Unit::of(c)?.value(c)? / f64::from(c.subject.drive_count?));
    let mut worst: Option<(f64, &Cell, &Cell)> = None;
    for (i, a) in all.iter().enumerate() {
        for b in &all[i + 1..] {
            if kind(a) != kind(b) || a.load.block_bytes != b.load.block_bytes || Unit::of(a) != Unit::of(b) {
                continue;
            }
            let (Some(x), Some(y)) = (each(a), each(b)) else { continue };
            let (ratio, less, more) = if x < y { (y / x, *a, *b) } else { (x / y, *b, *a) };
            if ratio > UNLIKE && worst.is_none_or(|(r, _, _)| ratio > r) {
                worst = Some((ratio, less, more));
            }
        }
    }
    let (_, less, more) = worst?;
    let unit = Unit::of(less)?;
    let proof = run.cells.iter().any(|c| {
        (c.id == less.id || c.id == more.id)
            && c.gates.iter().any(|g| g.check == Check::Steady && g.verdict == Verdict::Pass)
    });
    let proof = if proof { "" } else { ", and no steady state is shown" };
    let text = format!(
        "The same drives write {} each ({}): these are not one state of the drives{proof}.",
        unit.both(each(less)?, "to", each(more)?),
        less.load.name()
    );
    Some(Finding::new(text, [less.id.clone(), more.id.clone()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Gate;

    /// A run of so many cells, of which some are WARN.
    fn measured(cells: usize, warned: usize) -> Run {
        let mut run = Run::new("r", "", Origin::Measured);
        run.cells = crate::published::run("perc12").unwrap().cells.into_iter().take(cells).collect();
        for (nth, cell) in run.cells.iter_mut().enumerate() {
            cell.gates = if nth < warned {
                vec![Gate::warn(Check::Host, "busy")]
            } else {
                vec![Gate::pass(Check::Host, "idle")]
            };
        }
        run
    }

    #[test]
    fn a_run_that_is_mostly_warn_says_why() {
        assert!(warned(&measured(4, 2)).is_none(), "half of them");
        let said = warned(&measured(4, 3)).unwrap();
        assert!(said.text.starts_with("3 of 4 cells are WARN (host 3)"), "{}", said.text);
        assert!(warned(&crate::published::run("perc12").unwrap()).is_none(), "a review is not measured here");
    }

    #[test]
    fn what_was_not_run_is_named_and_the_rest_counted() {
        let mut run = measured(1, 0);
        run.not_run = vec![Pair::new("not printed", "some tables")];
        assert!(left_out(&run).is_none());
        run.not_run.extend((0..6).map(|n| Pair::new(format!("t{n}"), "not run: no time")));
        let said = left_out(&run).unwrap().text;
        assert_eq!(said, "Of the suite these were not run: t0, t1, t2, t3 and 2 more.");
    }
}
