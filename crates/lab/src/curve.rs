//! Load curves: what a curve of points says in one number.

use crate::model::{Cell, Part};

/// A point counts as served when this much of what was asked for came.
pub const SERVED: f64 = 0.98;

/// A 99th percentile may fall by this much from one point to a later one, by noise.
const NOISE: f64 = 0.25;

/// How latency goes with load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Too few points tell a 99th percentile.
    #[default]
    Unknown,
    /// It rises, or stays.
    Rising,
    /// A point of less load has the higher latency: something else than the load made it.
    Bent,
}

/// What is read off a curve; of one that does not rise nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// How latency goes with load.
    pub shape: Shape,
    /// The highest percent whose p99 is at most twice that at 50 %, and that was served, when a later point is not so.
    pub knee_percent: Option<u32>,
    /// The most IOPS with a p99 of at most 0.5 ms.
    pub iops_at_half_ms: Option<f64>,
    /// The most IOPS with a p99 of at most 1 ms.
    pub iops_at_one_ms: Option<f64>,
}

fn percent(cell: &Cell) -> Option<u32> {
    match cell.part {
        Part::Curve { percent } => Some(percent),
        _ => None,
    }
}

impl Reading {
    /// Of the points of one curve.
    pub fn of(points: &[&Cell]) -> Reading {
        let mut points: Vec<(u32, f64, &Cell)> =
            points.iter().filter_map(|c| Some((percent(c)?, c.figures.latency.p99_us?, *c))).collect();
        points.sort_by_key(|(at, _, _)| *at);
        let shape = shape(&points);
        if shape != Shape::Rising {
            return Reading { shape, ..Reading::default() };
        }
        let within = |bound: f64| {
            let kept = points.iter().filter(|(_, us, _)| *us <= bound);
            kept.filter_map(|(_, _, c)| c.figures.iops).reduce(f64::max)
        };
        Reading { shape, knee_percent: knee(&points), iops_at_half_ms: within(500.0), iops_at_one_ms: within(1000.0) }
    }
}

fn shape(points: &[(u32, f64, &Cell)]) -> Shape {
    if points.len() < 3 {
        return Shape::Unknown;
    }
    let mut highest: f64 = 0.0;
    for (_, us, _) in points {
        if *us < highest * (1.0 - NOISE) {
            return Shape::Bent;
        }
        highest = highest.max(*us);
    }
    Shape::Rising
}

fn knee(points: &[(u32, f64, &Cell)]) -> Option<u32> {
    let half = points.iter().find(|(at, _, _)| *at == 50)?.1;
    let is_flat = |(_, us, c): &&(u32, f64, &Cell)| *us <= 2.0 * half && c.achieved().is_some_and(|a| a >= SERVED);
    let last = points.iter().filter(is_flat).map(|(at, _, _)| *at).max()?;
    // A curve that is flat to its end was not driven to its knee.
    (points.last()?.0 > last).then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(p99: &[(u32, f64)]) -> Vec<Cell> {
        let like = crate::published::run("perc12").unwrap().cells[0].clone();
        let point = |(percent, us): &(u32, f64)| {
            let mut cell = like.clone();
            cell.part = Part::Curve { percent: *percent };
            cell.figures.iops = Some(f64::from(*percent) * 1000.0);
            cell.asked_iops = cell.figures.iops;
            cell.figures.latency.p99_us = Some(*us);
            cell
        };
        p99.iter().map(point).collect()
    }

    fn read(p99: &[(u32, f64)]) -> Reading {
        let cells = points(p99);
        Reading::of(&cells.iter().collect::<Vec<_>>())
    }

    #[test]
    fn only_a_curve_that_rises_has_a_knee_and_bounds() {
        let rising = read(&[(10, 200.0), (50, 300.0), (80, 500.0), (90, 900.0), (100, 4000.0)]);
        assert_eq!((rising.knee_percent, rising.iops_at_half_ms), (Some(80), Some(80_000.0)));
        assert_eq!(rising.iops_at_one_ms, Some(90_000.0));
        let bent = read(&[(10, 6600.0), (30, 15_000.0), (50, 900.0), (60, 570.0), (100, 4000.0)]);
        assert_eq!(bent, Reading { shape: Shape::Bent, ..Reading::default() });
        let flat = read(&[(10, 200.0), (50, 300.0), (100, 310.0)]);
        assert_eq!((flat.shape, flat.knee_percent, flat.iops_at_one_ms), (Shape::Rising, None, Some(100_000.0)));
    }
}
