//! Heat maps of threads x depth matrices, with the numbers in them: rate, 99th percentile, and how far Little's law is
//! missed.

use super::Section;
use super::html::{escape, figure};
use super::svg::{Canvas, WIDTH};
use crate::model::{Cell, Part, Run};
use crate::units::si;

/// The section, if there is a matrix.
pub fn section(runs: &[Run]) -> Option<Section> {
    let mut body = String::new();
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
            for (caption, of, text) in [
                ("IOPS", (|c: &Cell| c.figures.iops) as fn(&Cell) -> Option<f64>, si as fn(f64) -> String),
                ("p99, us", |c: &Cell| c.figures.latency.p99_us, si),
                ("in flight by Little's law against threads x depth, %", little, signed),
            ] {
                body.push_str(&figure(caption, &map(caption, &cells, of, text)));
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

fn map(title: &str, cells: &[&Cell], of: fn(&Cell) -> Option<f64>, text: fn(f64) -> String) -> String {
    let (across, up) = (distinct(cells, |c| c.load.depth), distinct(cells, |c| c.load.threads));
    let (left, top) = (44.0, 8.0);
    let side = ((WIDTH - left - 6.0) / across.len().max(1) as f64, 30.0);
    let height = top + side.1 * up.len() as f64 + 36.0;
    let most = cells.iter().filter_map(|c| of(c)).map(f64::abs).fold(0.0, f64::max);
    let mut canvas = Canvas::new(height, title);
    for (row, threads) in up.iter().enumerate() {
        let y = top + side.1 * row as f64;
        canvas.text((left - 6.0, y + 19.0), "end", "mark", &threads.to_string());
        for (column, depth) in across.iter().enumerate() {
            let x = left + side.0 * column as f64;
            let cell = cells.iter().find(|c| c.load.threads == Some(*threads) && c.load.depth == Some(*depth));
            let Some(value) = cell.and_then(|c| of(c)) else {
                canvas.text((x + side.0 / 2.0, y + 19.0), "middle", "mark", "-");
                continue;
            };
            let strength = if most > 0.0 { 0.06 + 0.84 * value.abs() / most } else { 0.06 };
            canvas.shade((x + 1.0, y + 1.0), (side.0 - 2.0, side.1 - 2.0), strength);
            let class = if strength > 0.55 { "cell hot" } else { "cell" };
            canvas.text((x + side.0 / 2.0, y + 19.0), "middle", class, &text(value));
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

fn distinct(cells: &[&Cell], of: fn(&Cell) -> Option<u32>) -> Vec<u32> {
    let mut values: Vec<u32> = cells.iter().filter_map(|c| of(c)).collect();
    values.sort_unstable();
    values.dedup();
    values
}
