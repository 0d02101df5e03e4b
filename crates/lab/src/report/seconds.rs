//! Each cell second by second: its rate as a share of its mean, and its mean latency. Shares have one scale for all cells,
//! so a cell that falls or swings is seen beside those that do not.

use super::Section;
use super::html::{escape, figure};
use super::scale::Scale;
use super::scales::Scales;
use super::svg::{Axis, Canvas, Frame, WIDTH};
use crate::compare::{part_name, spread};
use crate::findings::{Build, short};
use crate::model::{Cell, Run, Second};
use crate::units::{latency, si, time};

const STRIP: f64 = 84.0;
/// Hundredths of the mean that the axis ends at; what is above is drawn at its edge.
const SHARE_MAX: f64 = 200.0;
/// Points of a line; of a longer cell each is a mean.
const POINTS: usize = 240;
/// Fewer seconds show nothing.
const SECONDS_MIN: usize = 3;

/// The section, if a cell has its seconds.
pub fn section(runs: &[Run], scales: &Scales) -> Option<Section> {
    let mut body = String::new();
    for run in runs {
        let charts: String = run
            .cells
            .iter()
            .filter(|c| c.series.len() >= SECONDS_MIN)
            .map(|c| figure(&caption(c), &chart(c, scales)))
            .collect();
        if charts.is_empty() {
            continue;
        }
        let heading = if runs.len() > 1 { format!("<h3>{}</h3>", escape(&run.name)) } else { String::new() };
        body.push_str(&format!("{heading}<div class=\"charts\">{charts}</div>"));
    }
    let note = "<p>Rate of each second in hundredths of the cell's mean, and its mean latency. A rate that is steady is a \
                level line at 100 %.</p>";
    (!body.is_empty()).then(|| Section::new("seconds", "Second by second", format!("{note}{body}")))
}

fn mean(cell: &Cell) -> f64 {
    cell.series.iter().map(|s| s.iops).sum::<f64>() / cell.series.len().max(1) as f64
}

fn caption(cell: &Cell) -> String {
    let spread = spread(cell).map_or(String::new(), |s| format!(", spread {:.1} %", s * 100.0));
    let build = Build::of(cell).text();
    let on = [short(&cell.subject.system), build];
    let on: Vec<&str> = on.iter().map(String::as_str).filter(|w| !w.is_empty()).collect();
    let on = if on.is_empty() { String::new() } else { format!(", {}", on.join(", ")) };
    let name = if cell.load.name().is_empty() { cell.test.clone() } else { cell.load.name() };
    format!("{}: {name}{}{on}; mean {} IOPS{spread}", cell.id, part_name(cell), si(mean(cell)))
}

/// At most [`POINTS`] of them, each the mean of as many seconds.
fn thinned(series: &[Second]) -> Vec<Second> {
    let each = series.len().div_ceil(POINTS).max(1);
    let one = |part: &[Second]| {
        let told: Vec<f64> = part.iter().filter_map(|s| s.mean_us).collect();
        Second {
            at: part.iter().map(|s| s.at).sum::<f64>() / part.len() as f64,
            iops: part.iter().map(|s| s.iops).sum::<f64>() / part.len() as f64,
            mean_us: (!told.is_empty()).then(|| told.iter().sum::<f64>() / told.len() as f64),
        }
    };
    series.chunks(each).map(one).collect()
}

fn chart(cell: &Cell, scales: &Scales) -> String {
    let series = thinned(&cell.series);
    let tells = series.iter().any(|s| s.mean_us.is_some());
    let strips = if tells { 2.0 } else { 1.0 };
    let height = strips * STRIP + 34.0;
    let mut canvas = Canvas::new(height, &caption(cell));
    let end = series.last().map_or(1.0, |s| s.at);
    let mean = mean(cell);
    for (nth, top) in (0..strips as usize).map(|n| (n, 22.0 + n as f64 * STRIP)) {
        let frame = Frame { left: 58.0, top, right: WIDTH - 12.0, bottom: top + STRIP - 34.0 };
        let x = Scale::linear(end, frame.left, frame.right);
        let (y, name, text): (_, _, fn(f64) -> String) = if nth == 0 {
            (Scale::linear(SHARE_MAX, frame.bottom, frame.top).coarse(), "IOPS, % of the mean", |v| format!("{v:.0} %"))
        } else {
            (scales.latency(frame.bottom, frame.top).coarse(), "mean latency", latency)
        };
        canvas.axes(&frame, &Axis { scale: x, name: "", text: time }, &Axis { scale: y, name, text });
        let value = |s: &Second| {
            if nth > 0 { s.mean_us } else { Some(if mean > 0.0 { s.iops / mean * 100.0 } else { 0.0 }) }
        };
        let points: Vec<(f64, f64)> = series.iter().filter_map(|s| Some((x.at(s.at), y.at(value(s)?)))).collect();
        canvas.path(&points, &format!("curve s{nth}"));
    }
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Origin;

    #[test]
    fn a_fall_is_seen_whatever_the_rate_and_a_long_cell_is_thinned() {
        let like = crate::published::run("perc12").unwrap().cells[0].clone();
        let cell = |id: &str, rates: &[f64]| {
            let mut cell = like.clone();
            cell.id = id.to_owned();
            cell.series =
                rates.iter().enumerate().map(|(i, n)| Second { at: i as f64 + 1.0, iops: *n, mean_us: None }).collect();
            cell
        };
        let mut run = Run::new("r", "", Origin::Measured);
        run.cells = vec![
            cell("slow", &[30.0, 30.0, 30.0, 10.0, 10.0, 10.0]),
            cell("fast", &[3e6, 3e6, 3e6, 1e6, 1e6, 1e6]),
            cell("short", &[1.0, 2.0]),
        ];
        let runs = [run];
        let body = section(&runs, &Scales::of(&runs)).unwrap().body;
        let lines: Vec<&str> =
            body.split("<polyline points=\"").skip(1).map(|l| l.split('"').next().unwrap()).collect();
        assert_eq!(lines.len(), 2, "two seconds show nothing");
        assert_eq!(lines[0], lines[1], "the same fall is the same picture");
        assert_eq!(thinned(&cell("long", &[5.0; 1000]).series).len(), 200);
    }
}
