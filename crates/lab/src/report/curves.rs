//! Load curves: rate across, latency upwards on a log axis; the mean solid, the 99th percentile dashed.

use super::Section;
use super::html::{COLOURS, badge, escape, figure_of, table_of_known};
use super::scales::Scales;
use super::svg::{Axis, Canvas, Frame};
use crate::curve::{Reading, Shape};
use crate::findings::{Build, drawn, short};
use crate::model::{Cell, Part, Run};
use crate::units::{grouped, latency, rate, si};

const HEIGHT: f64 = 300.0;
/// A label of a point, "100 %", and some room: those that would lie on each other are left out.
const LABEL_WIDTH: f64 = 38.0;

/// The points of one test of one result, in the order of what was asked for.
struct Curve<'a> {
    run: &'a str,
    points: Vec<&'a Cell>,
}

/// The section, if there is a curve.
pub fn section(runs: &[Run], scales: &Scales) -> Option<Section> {
    let mut tests: Vec<(&str, Vec<Curve<'_>>)> = vec![];
    for run in runs {
        for cell in run.cells.iter().filter(|c| percent(c).is_some()) {
            let at = tests.iter().position(|(t, _)| *t == cell.test).unwrap_or_else(|| {
                tests.push((&cell.test, vec![]));
                tests.len() - 1
            });
            let curves = &mut tests[at].1;
            match curves.iter_mut().find(|c| c.run == run.name) {
                Some(curve) => curve.points.push(cell),
                None => curves.push(Curve { run: &run.name, points: vec![cell] }),
            }
        }
    }
    if tests.is_empty() {
        return None;
    }
    let intro = "<p>The load asked for is a share of the rate without a limit. A generator that waits for answers cannot \
         offer more than 100 %: all its requests are in flight, and the curve may bend back.</p>";
    // Charts beside each other first, since each alone would leave half of a wide page white.
    let (mut figures, mut tables) = (String::new(), String::new());
    for (test, curves) in &mut tests {
        curves.iter_mut().for_each(|c| c.points.sort_by_key(|p| percent(p)));
        let names: Vec<String> = curves.iter().take(COLOURS).map(|c| label(c.run, c.points[0])).collect();
        let caption = format!("{test}, latency over load: mean solid, p99 dashed");
        let figure = figure_of(&caption, &names, &chart(test, curves, scales));
        figures.push_str(&figure);
        tables.push_str(&format!("<h3>{}</h3>", escape(test)));
        curves.iter().for_each(|c| tables.push_str(&points(c)));
    }
    let body = format!("{intro}<div class=\"charts\">{figures}</div>{tables}");
    Some(Section::new("curves", "Load curves", body))
}

/// "raid-card: /dev/md0, RAID5, 8 drives".
fn label(run: &str, cell: &Cell) -> String {
    let build = Build::of(cell).text();
    let system = &cell.subject.system;
    // A result may be called by its system.
    let system = if system.is_empty() || system == run { String::new() } else { format!(": {}", short(system)) };
    let build = if build.is_empty() { String::new() } else { format!(", {build}") };
    format!("{run}{system}{build}")
}

fn percent(cell: &Cell) -> Option<u32> {
    match cell.part {
        Part::Curve { percent } => Some(percent),
        _ => None,
    }
}

fn chart(test: &str, curves: &[Curve<'_>], scales: &Scales) -> String {
    let frame = Frame::usual(HEIGHT);
    let all = || curves.iter().take(COLOURS).flat_map(|c| &c.points);
    let is_iops = all().find_map(|c| c.headline()).is_none_or(|(is_iops, _)| is_iops);
    let across = |c: &Cell| if is_iops { c.figures.iops } else { c.figures.bytes_per_sec }.unwrap_or(0.0);
    let (x, y) = (scales.rate(is_iops, frame.left, frame.right), scales.latency(frame.bottom, frame.top));
    let mut canvas = Canvas::new(HEIGHT, test);
    let (name, text): (_, fn(f64) -> String) = if is_iops { ("IOPS achieved", si) } else { ("achieved", rate) };
    canvas.axes(&frame, &Axis { scale: x, name, text }, &Axis { scale: y, name: "latency", text: latency });
    for (i, curve) in curves.iter().take(COLOURS).enumerate() {
        let line = |of: fn(&Cell) -> Option<f64>| -> Vec<(f64, f64)> {
            curve.points.iter().filter_map(|c| Some((x.at(across(c)), y.at(of(c)?)))).collect()
        };
        canvas.path(&line(|c| c.figures.latency.mean_us), &format!("curve s{i}"));
        canvas.path(&line(|c| c.figures.latency.p99_us), &format!("curve dashed s{i}"));
        let mut labelled = f64::NEG_INFINITY;
        for cell in &curve.points {
            let Some(mean) = cell.figures.latency.mean_us else { continue };
            let at = (x.at(across(cell)), y.at(mean));
            let percent = percent(cell).unwrap_or(0);
            canvas.dot(at, &format!("k{i}"), &format!("{percent} %: {}", latency(mean)));
            if curves.len() == 1 && at.0 - labelled >= LABEL_WIDTH {
                canvas.text((at.0, at.1 + 14.0), "middle", "mark", &format!("{percent} %"));
                labelled = at.0;
            }
        }
    }
    canvas.finish()
}

fn points(curve: &Curve<'_>) -> String {
    let told = |value: Option<f64>, text: fn(f64) -> String| value.map_or("-".to_owned(), text);
    let rows: Vec<Vec<String>> = curve
        .points
        .iter()
        .map(|c| {
            vec![
                percent(c).map_or(String::new(), |p| format!("{p} %")),
                told(c.asked_iops, grouped),
                told(c.figures.iops, grouped),
                told(c.achieved(), |a| format!("{:.1} %", a * 100.0)),
                told(c.figures.latency.mean_us, latency),
                told(c.figures.latency.p99_us, latency),
                told(c.figures.latency.p999_us, latency),
                told(c.in_flight(), |n| format!("{n:.1}")),
                badge(&c.gates),
            ]
        })
        .collect();
    let heads = ["asked", "asked IOPS", "got", "got / asked", "mean", "p99", "p99.9", "in flight (Little)", "verdict"];
    let read = Reading::of(&curve.points);
    let mut words = vec![];
    match (read.shape, read.knee_percent) {
        (Shape::Bent, _) => {
            words.push("no knee and no bounded rate: a point of less load has the higher p99".to_owned());
        }
        (Shape::Rising, Some(p)) => {
            words.push(format!("knee at {p} % (p99 at most twice that at 50 %, all of it served)"));
        }
        (Shape::Rising, None) => words.push("no knee within these points".to_owned()),
        (Shape::Unknown, _) => {}
    }
    let bounded = |iops: Option<f64>, ms: &str| {
        let rate = iops.map(|n| curve.points.first().map_or(String::new(), |c| drawn(c, n)));
        rate.map(|rate| format!("{rate} with a p99 of {ms} ms or less"))
    };
    words.extend(bounded(read.iops_at_half_ms, "0.5"));
    words.extend(bounded(read.iops_at_one_ms, "1"));
    let of = curve.points.first().map_or(String::new(), |c| label(curve.run, c));
    format!("<p><b>{}</b> {}</p>{}", escape(&of), escape(&words.join("; ")), table_of_known(&heads, &rows, true))
}
