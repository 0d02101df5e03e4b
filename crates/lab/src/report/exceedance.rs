//! How many requests took longer than a time: both axes in decades, so that tails are seen.

use super::Section;
use super::html::{COLOURS, figure_of};
use super::scale::Scale;
use super::scales::Scales;
use super::svg::{Axis, Canvas, Frame};
use crate::bins::Bins;
use crate::compare::part_name;
use crate::model::{Cell, Part, Run};
use crate::units::latency;

const HEIGHT: f64 = 280.0;

/// The section, if a cell has bins.
pub fn section(runs: &[Run], _: &Scales) -> Option<Section> {
    let mut tests: Vec<(&str, Vec<Line<'_>>)> = vec![];
    for run in runs {
        // A point of a curve or a round says little here; the loads of their own say most.
        let says_most = |p| {
            let alone = matches!(p, Part::Alone | Part::CurveMax | Part::Unallocated | Part::States);
            alone || matches!(p, Part::OneOf { .. } | Part::Together)
        };
        for cell in run.cells.iter().filter(|c| !c.bins.is_empty() && says_most(c.part)) {
            let prefix = if runs.len() > 1 { format!("{}: ", run.name) } else { String::new() };
            let name = format!("{prefix}{}{}", cell.load.name(), part_name(cell));
            match tests.iter_mut().find(|(t, _)| *t == cell.test) {
                Some((_, cells)) => cells.push((name, cell)),
                None => tests.push((&cell.test, vec![(name, cell)])),
            }
        }
    }
    let mut body = String::new();
    for (test, cells) in &tests {
        for (under, shown) in charts(cells, runs.len() > 1) {
            let names: Vec<String> = shown.iter().map(|(n, _)| n.clone()).collect();
            body.push_str(&figure_of(&format!("{test}{under}, latency"), &names, &chart(test, &shown)));
        }
    }
    let note = "<p>Share of requests that took longer, from histograms merged over all threads.</p>";
    (!body.is_empty()).then(|| Section::new("tails", "Tails", format!("{note}<div class=\"charts\">{body}</div>")))
}

/// A line: its name and its cell.
type Line<'a> = (String, &'a Cell);

/// What the charts of a test show: one has all where there are colours for all; of several results those under one load are together.
/// None is left out.
fn charts<'a>(cells: &[Line<'a>], several: bool) -> Vec<(String, Vec<Line<'a>>)> {
    if cells.len() <= COLOURS {
        return vec![(String::new(), cells.to_vec())];
    }
    let mut loads: Vec<(String, Vec<Line<'a>>)> = vec![];
    for line in cells {
        let under = if several { format!(", {}", line.1.load.pressure()) } else { String::new() };
        match loads.iter_mut().find(|(u, lines)| *u == under && lines.len() < COLOURS) {
            Some((_, lines)) => lines.push(line.clone()),
            None => loads.push((under, vec![line.clone()])),
        }
    }
    loads
}

fn chart(test: &str, cells: &[Line<'_>]) -> String {
    let frame = Frame::usual(HEIGHT);
    let lines: Vec<Vec<(f64, f64)>> = cells.iter().map(|(_, c)| Bins::of(&c.bins).exceedance()).collect();
    let x = Scale::log(lines.iter().flatten().map(|p| p.0), frame.left, frame.right);
    let y = Scale::log(lines.iter().flatten().map(|p| p.1).chain([1.0]), frame.bottom, frame.top);
    let mut canvas = Canvas::new(HEIGHT, test);
    canvas.axes(
        &frame,
        &Axis { scale: x, name: "latency", text: latency },
        &Axis { scale: y, name: "took longer", text: share },
    );
    for (i, line) in lines.iter().enumerate() {
        let points: Vec<(f64, f64)> = line.iter().map(|&(us, share)| (x.at(us), y.at(share))).collect();
        canvas.path(&points, &format!("curve s{i}"));
    }
    canvas.finish()
}

/// A decade in hundredths.
fn share(value: f64) -> String {
    let decade = (value * 100.0).log10().round() as i32;
    match decade {
        0.. => format!("{:.0} %", value * 100.0),
        -3..0 => format!("{:.*} %", decade.unsigned_abs() as usize, value * 100.0),
        ..-3 => format!("1e{decade} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Origin;

    /// As of six transports at two depths each.
    #[test]
    fn no_line_is_left_out_for_want_of_colours() {
        let cell = crate::published::run("perc12").unwrap().cells[0].clone();
        let run = |name: String, depths: &[u32]| {
            let mut run = Run::new(name, "", Origin::Measured);
            run.cells.extend(depths.iter().map(|depth| {
                let mut cell = cell.clone();
                (cell.part, cell.bins) = (Part::Alone, vec![(1000, 90), (2000, 10)]);
                (cell.load.threads, cell.load.depth, cell.load.targets) = (Some(1), Some(*depth), None);
                cell
            }));
            run
        };
        let runs: Vec<Run> = (0..6).map(|n| run(format!("way{n}"), &[1, 32])).collect();
        let body = section(&runs, &Scales::of(&runs)).unwrap().body;
        assert_eq!((body.matches("<figure>").count(), body.matches("class=\"curve ").count()), (2, 12), "{body}");
        assert!(body.contains(", 1 x 32, latency</figcaption>") && body.contains("way5: "), "{body}");
        let alone = [run("one".to_owned(), &[1, 2, 3, 4, 5, 6, 7, 8])];
        let body = section(&alone, &Scales::of(&alone)).unwrap().body;
        assert_eq!((body.matches("<figure>").count(), body.matches("class=\"curve ").count()), (2, 8), "{body}");
    }

    #[test]
    fn decades_are_short_words() {
        let words: Vec<String> = (-8..=0).map(|n| share(10f64.powi(n))).collect();
        let want = ["1e-6 %", "1e-5 %", "1e-4 %", "0.001 %", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"];
        assert_eq!(words, want);
    }
}
