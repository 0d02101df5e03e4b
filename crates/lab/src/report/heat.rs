//! Heat maps of threads x depth matrices, with the numbers in them: rate, 99th percentile, and how far Little's law is
//! missed.

use super::Section;
use super::html::{escape, figure};
use super::scales::Scales;
use super::svg::{Canvas, WIDTH};
use crate::findings::{Build, short};
use crate::model::{Cell, Part, Run};
use crate::units::si;

/// The section, if there is a matrix.
pub fn section(runs: &[Run], scales: &Scales) -> Option<Section> {
    let mut body = String::new();
    let shades = Shades::of(runs, scales);
    for run in runs {
        let mut tests: Vec<&str> = vec![];
        for cell in run.cells.iter().filter(|c| c.part == Part::Matrix) {
            if !tests.contains(&cell.test.as_str()) {
                tests.push(&cell.test);
            }
        }
        for test in tests {
            let cells: Vec<&Cell> = run.cells.iter().filter(|c| c.part == Part::Matrix && c.test == test).collect();
            body.push_str(&format!("<h3>{}, {}</h3><div class=\"charts\">", escape(&run.name), escape(test)));
            let little = |c: &Cell| Some((c.in_flight()? / c.load.outstanding()? - 1.0) * 100.0);
            let of = of_what(cells[0]);
            for (caption, of_cell, text, shade) in [
                ("IOPS", (|c: &Cell| c.figures.iops) as fn(&Cell) -> Option<f64>, si as fn(f64) -> String, Shade::Rate),
                ("p99, us", |c: &Cell| c.figures.latency.p99_us, si, Shade::Latency),
                ("in flight by Little's law against threads x depth, %", little, signed, Shade::Miss),
            ] {
                let caption = format!("{caption}{of}");
                let map = Map { title: &caption, of: of_cell, text, shade };
                body.push_str(&figure(&caption, &map.draw(&cells, &shades)));
            }
            body.push_str("</div>");
        }
    }
    (!body.is_empty()).then(|| Section::new("heat", "Threads x depth", body))
}

/// "+3", "-1", and "0" for what rounds to it.
fn signed(value: f64) -> String {
    if value.round() == 0.0 { "0".to_owned() } else { format!("{value:+.0}") }
}

/// Hundredths that Little's law may be missed by before a cell is at its darkest.
const MISS_MAX: f64 = 50.0;

/// Opacity of the least value.
const PALEST: f64 = 0.04;
/// Of the largest: the text on it has a contrast of 4.5 to 1 in light pages and in dark ones.
const DARKEST: f64 = 0.6;

/// How a value becomes a strength of colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shade {
    /// From zero to the most of the report.
    Rate,
    /// By decades, from the least to the most of all maps.
    Latency,
    /// Away from zero, to either side.
    Miss,
}

/// The ranges that all maps of a report share.
struct Shades {
    iops: f64,
    p99_us: (f64, f64),
}

impl Shades {
    fn of(runs: &[Run], scales: &Scales) -> Shades {
        let cells = runs.iter().flat_map(|r| &r.cells).filter(|c| c.part == Part::Matrix);
        let p99: Vec<f64> = cells.filter_map(|c| c.figures.latency.p99_us).filter(|us| *us > 0.0).collect();
        let low = p99.iter().copied().fold(f64::MAX, f64::min);
        let high = p99.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        Shades { iops: scales.most(true), p99_us: (low.min(high), high) }
    }

    /// From 0 to 1.
    fn strength(&self, shade: Shade, value: f64) -> f64 {
        let share = match shade {
            Shade::Rate => value / self.iops,
            Shade::Latency => {
                let (low, high) = self.p99_us;
                if high > low { (value.max(low) / low).ln() / (high / low).ln() } else { 0.0 }
            }
            Shade::Miss => value.abs() / MISS_MAX,
        };
        PALEST + (DARKEST - PALEST) * share.clamp(0.0, 1.0)
    }
}

/// ", /dev/md0, RAID5, 8 drives".
fn of_what(cell: &Cell) -> String {
    let build = Build::of(cell).text();
    let words = [short(&cell.subject.system), build];
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|w| !w.is_empty()).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// What a map shows.
struct Map<'a> {
    title: &'a str,
    of: fn(&Cell) -> Option<f64>,
    text: fn(f64) -> String,
    shade: Shade,
}

impl Map<'_> {
    fn draw(&self, cells: &[&Cell], shades: &Shades) -> String {
        let (across, up) = (distinct(cells, |c| c.load.depth), distinct(cells, |c| c.load.threads));
        let (left, top) = (44.0, 8.0);
        let side = ((WIDTH - left - 6.0) / across.len().max(1) as f64, 30.0);
        let height = top + side.1 * up.len() as f64 + 36.0;
        let mut canvas = Canvas::new(height, self.title);
        for (row, threads) in up.iter().enumerate() {
            let y = top + side.1 * row as f64;
            canvas.text((left - 6.0, y + 19.0), "end", "mark", &threads.to_string());
            for (column, depth) in across.iter().enumerate() {
                let x = left + side.0 * column as f64;
                let cell = cells.iter().find(|c| c.load.threads == Some(*threads) && c.load.depth == Some(*depth));
                let Some(value) = cell.and_then(|c| (self.of)(c)) else {
                    canvas.text((x + side.0 / 2.0, y + 19.0), "middle", "mark", "-");
                    continue;
                };
                let strength = shades.strength(self.shade, value);
                let colour = if self.shade == Shade::Miss && value > 0.0 { "heat over" } else { "heat" };
                canvas.shade((x + 1.0, y + 1.0), (side.0 - 2.0, side.1 - 2.0), colour, strength);
                canvas.text((x + side.0 / 2.0, y + 19.0), "middle", "cell", &(self.text)(value));
            }
        }
        let bottom = height - 36.0;
        for (column, depth) in across.iter().enumerate() {
            canvas.text((left + side.0 * (column as f64 + 0.5), bottom + 14.0), "middle", "mark", &depth.to_string());
        }
        canvas.text((WIDTH / 2.0, bottom + 29.0), "middle", "name", "depth of each thread");
        canvas.text((2.0, bottom + 14.0), "start", "name", "threads");
        canvas.finish()
    }
}

fn distinct(cells: &[&Cell], of: fn(&Cell) -> Option<u32>) -> Vec<u32> {
    let mut values: Vec<u32> = cells.iter().filter_map(|c| of(c)).collect();
    values.sort_unstable();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_misses_are_pale_and_one_outlier_leaves_the_others_apart() {
        let shades = Shades { iops: 1e6, p99_us: (100.0, 1e6) };
        assert!(shades.strength(Shade::Miss, -1.0) < 0.1, "a hundredth is nearly nothing");
        assert!(shades.strength(Shade::Miss, 50.0) > 0.59);
        let (a, b) = (shades.strength(Shade::Latency, 200.0), shades.strength(Shade::Latency, 2000.0));
        assert!(b - a > 0.13, "a decade is seen beside an outlier: {a} {b}");
        assert!((shades.strength(Shade::Rate, 5e5) - 0.32).abs() < 1e-9);
    }
}
