//! One target against several: each alone, then all at once under the same load, and how that scales.
//!
//! Each target has the load's threads and depth, so all at once have as many times the requests in flight. The figure is
//! the rate of all at once over the sum of the rates of each alone. A suite may want all at once only: many drives are one
//! target then, as a JBOD is.

use crate::error::Error;
use crate::model::{Cell, Check, Gate, Load, Part, Verdict};
use crate::plan::Step;
use crate::target::{Kind, Target};

/// More than the sum of each alone, beyond this, is no scaling: one was not at its best alone.
const SHARE_MAX: f64 = 1.05;
/// Targets of a run, at most.
const TARGETS_MAX: usize = 64;

/// Whether these targets can be measured together.
///
/// # Errors
/// When they cannot: which, and why.
pub fn check(targets: &[Target]) -> Result<(), Error> {
    if targets.len() > TARGETS_MAX {
        return Err(Error::usage("--beside", format!("{} targets are too many; at most {TARGETS_MAX}", targets.len())));
    }
    for (nth, target) in targets.iter().enumerate().filter(|_| targets.len() > 1) {
        if target.kind == Kind::Model {
            return Err(Error::usage(
                &target.name,
                "--beside: modelled drives are created for each cell, one set at a time",
            ));
        }
        if target.kind == Kind::Nvme {
            let why =
                "--beside: the bench loads one NVMe/TCP export at a time: attach them, and name their block devices";
            return Err(Error::usage(&target.name, why));
        }
        if let Some(other) = targets[..nth].iter().find(|t| t.serial == target.serial) {
            let why = format!("it is {}, like {}: this must differ between targets", target.serial, other.name);
            return Err(Error::usage(&target.name, why));
        }
    }
    Ok(())
}

/// The steps of a test for several targets: a load on each (where `each_alone`) and on all at once; curves, rounds and reads
/// of what was never written on all at once. What fills them is done on one after the other, or on all at once where none
/// is measured alone.
///
/// # Errors
/// Why a test is of one target.
pub fn steps(steps: Vec<Step>, targets: u32, each_alone: bool) -> Result<Vec<Step>, &'static str> {
    let mut all = vec![];
    for step in steps {
        let each = |part: Part| {
            let step = step.clone();
            (0..targets).map(move |target| {
                let part = if part == Part::Together { Part::OneOf { number: target + 1 } } else { part };
                Step { id: format!("{}-{}", step.id, target + 1), part, target, ..step.clone() }
            })
        };
        let at_once = |part: Part| {
            let load = Load { targets: Some(targets), ..step.load.clone() };
            Step { id: format!("{}-all", step.id), part, load, ..step.clone() }
        };
        match step.part {
            Part::Fill | Part::Precondition if each_alone => all.extend(each(step.part)),
            Part::Alone | Part::Matrix => {
                all.extend(each(Part::Together).filter(|_| each_alone));
                all.push(at_once(Part::Together));
            }
            Part::Fill
            | Part::Precondition
            | Part::CurveMax
            | Part::Curve { .. }
            | Part::Round { .. }
            | Part::Unallocated => all.push(at_once(step.part)),
            Part::Check | Part::States | Part::OneOf { .. } | Part::Together => {
                return Err("states and checks are of one target: run the suite on each alone");
            }
        }
    }
    Ok(all)
}

/// How a load on all targets compares with that on each.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling<'a> {
    /// Each alone, in their order.
    pub alone: Vec<&'a Cell>,
    /// Whether values are IOPS; otherwise bytes a second.
    pub is_iops: bool,
    /// Each alone, added.
    pub sum: f64,
    /// All at once.
    pub together: f64,
}

impl Scaling<'_> {
    /// Of a cell of all targets; nothing when one was not measured alone.
    pub fn of<'a>(all: &Cell, cells: &'a [Cell]) -> Option<Scaling<'a>> {
        let (is_iops, together) = all.headline()?;
        let is_like = |cell: &Cell| {
            let (a, b) = (&all.load, &cell.load);
            cell.test == all.test && (a.threads, a.depth, a.block_bytes) == (b.threads, b.depth, b.block_bytes)
        };
        let one = |number| cells.iter().find(|c| c.part == Part::OneOf { number } && is_like(c));
        let alone = (1..=all.load.targets?).map(one).collect::<Option<Vec<&Cell>>>()?;
        let value = |cell: &&Cell| if is_iops { cell.figures.iops } else { cell.figures.bytes_per_sec };
        let sum = alone.iter().map(value).sum::<Option<f64>>().filter(|sum| *sum > 0.0)?;
        Some(Scaling { alone, is_iops, sum, together })
    }

    /// Of the sum.
    pub fn share(&self) -> f64 {
        self.together / self.sum
    }
}

/// The verdict on how a load on all targets scales.
pub fn gate(all: &Cell, cells: &[Cell]) -> Gate {
    let Some(scaling) = Scaling::of(all, cells) else {
        return Gate::fail(Check::Scaling, "not each target was measured alone under this load");
    };
    let text = format!("{:.1} % of what each does alone, added", scaling.share() * 100.0);
    let failed = scaling.alone.iter().find(|c| c.verdict() == Verdict::Fail);
    match failed {
        Some(cell) => Gate::fail(Check::Scaling, format!("{text}; but {} failed", cell.id)),
        None if scaling.share() > SHARE_MAX => {
            Gate::warn(Check::Scaling, format!("{text}: more than the sum; one was not at its best alone"))
        }
        None => Gate::pass(Check::Scaling, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Run;

    fn cells(rates: [f64; 3]) -> Vec<Cell> {
        let base = crate::published::run("perc12").unwrap().cells[0].clone();
        let parts = [Part::OneOf { number: 1 }, Part::OneOf { number: 2 }, Part::Together];
        let cell = |(part, iops): (Part, f64)| {
            let mut cell =
                Cell { part, id: format!("{part:?}"), gates: vec![Gate::pass(Check::Errors, "")], ..base.clone() };
            cell.load.block_bytes = Some(4096);
            cell.load.targets = (part == Part::Together).then_some(2);
            (cell.figures.iops, cell.figures.bytes_per_sec) = (Some(iops), Some(iops * 4096.0));
            cell
        };
        parts.into_iter().zip(rates).map(cell).collect()
    }

    #[test]
    fn the_figure_is_that_of_all_over_the_sum_of_each() {
        for (rates, share, verdict) in [
            ([100.0, 300.0, 360.0], 0.9, Verdict::Pass),
            ([100.0, 300.0, 400.0], 1.0, Verdict::Pass),
            ([100.0, 300.0, 440.0], 1.1, Verdict::Warn),
        ] {
            let cells = cells(rates);
            let scaling = Scaling::of(&cells[2], &cells).unwrap();
            assert!((scaling.share() - share).abs() < 1e-9, "{scaling:?}");
            assert_eq!(gate(&cells[2], &cells).verdict, verdict, "{rates:?}");
        }
        let mut cells = cells([100.0, 300.0, 360.0]);
        assert_eq!(gate(&cells[2], &cells[1..]).verdict, Verdict::Fail, "one is missing");
        cells[0].gates.push(Gate::fail(Check::Written, ""));
        assert_eq!(gate(&cells[2], &cells).verdict, Verdict::Fail, "one does not stand");
        let mut run = Run::new("r", "", crate::model::Origin::Measured);
        run.cells = cells;
        let page = crate::report::page(&[run], &crate::report::Extra::default());
        assert!(page.contains("id=\"together\"") && page.contains("90 %"), "{page}");
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        let look = |name: &str| Target::look(name, Some(1 << 20)).unwrap();
        assert!(check(&[look("/no-such-place/a/one"), look("/no-such-place/b/other")]).is_ok());
        assert!(check(&[look("/no-such-place/a/one"), look("/no-such-place/b/one")]).is_err());
        assert!(check(&[look("/no-such-place/a/one"), look("model:tlc")]).is_err());
        assert!(check(&[look("model:tlc")]).is_ok());
    }
}
