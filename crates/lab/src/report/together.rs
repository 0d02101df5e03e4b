//! One target against several: bars of each alone and of all together, with a mark where all would be if nothing held
//! them back.

use super::Section;
use super::html::{badge, escape, figure_of, table};
use super::scales::Scales;
use super::svg::{Canvas, WIDTH};
use crate::findings::count_of;
use crate::model::{Cell, Part, Run};
use crate::together::Scaling;
use crate::units::{grouped, rate, si};

/// Longest bar; what is right of it is for the number.
const LONGEST: f64 = 200.0;

/// The section, if targets were measured together.
pub fn section(runs: &[Run], scales: &Scales) -> Option<Section> {
    let (mut charts, mut rows) = (String::new(), vec![]);
    for run in runs {
        for all in run.cells.iter().filter(|c| c.part == Part::Together) {
            let Some(scaling) = Scaling::of(all, &run.cells) else { continue };
            let keys = ["one alone".to_owned(), "all together".to_owned()];
            charts.push_str(&figure_of(&title(run, all, runs.len()), &keys, &chart(all, &scaling, scales)));
            rows.push(row(run, all, &scaling, runs.len()));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let note =
        "<p>The same load on each target alone, then on all together. The mark is the sum of the single results.</p>";
    let heads = ["load", "each alone", "sum", "all together", "of the sum", "verdict"];
    let body = format!("{note}<div class=\"charts\">{charts}</div>{}", table(&heads, &rows, true));
    Some(Section::new("together", "One target against several", body))
}

fn title(run: &Run, all: &Cell, runs: usize) -> String {
    let prefix = if runs > 1 { format!("{}: ", run.name) } else { String::new() };
    format!("{prefix}{}, threads x depth {}", all.test, all.load.pressure())
}

fn row(run: &Run, all: &Cell, scaling: &Scaling<'_>, runs: usize) -> Vec<String> {
    let text = |value: f64| if scaling.is_iops { format!("{} IOPS", grouped(value)) } else { rate(value) };
    let alone: Vec<String> = scaling.alone.iter().map(|c| text(value(c, scaling))).collect();
    vec![
        escape(&title(run, all, runs)),
        alone.join("<br>"),
        text(scaling.sum),
        text(scaling.together),
        format!("{:.1} %", scaling.share() * 100.0),
        badge(&all.gates),
    ]
}

fn value(cell: &Cell, scaling: &Scaling<'_>) -> f64 {
    let figure = if scaling.is_iops { cell.figures.iops } else { cell.figures.bytes_per_sec };
    figure.unwrap_or(0.0)
}

fn chart(all: &Cell, scaling: &Scaling<'_>, scales: &Scales) -> String {
    let most = scales.most(scaling.is_iops).max(scaling.sum);
    let number = |value: f64| if scaling.is_iops { format!("{} IOPS", si(value)) } else { rate(value) };
    let height = 39.0 * (scaling.alone.len() + 1) as f64 + 8.0;
    let mut canvas = Canvas::new(height, &all.test);
    let mut y = 4.0;
    let mut bar = |cell: &Cell, value: f64, class: &str, text: &str, mark: Option<f64>| {
        let length = value / most * LONGEST;
        let drives = cell.subject.drive_count.map_or(String::new(), |n| format!(", {}", count_of(n, "drive")));
        let name: String = format!("{}{drives}", cell.subject.system).chars().take(60).collect();
        canvas.text((2.0, y + 12.0), "start", "label", &name);
        canvas.rect((2.0, y + 17.0), (length, 15.0), class, &cell.id);
        let mut end = length;
        if let Some(mark) = mark {
            let at = 2.0 + mark / most * LONGEST;
            canvas.line((at, y + 16.0), (at, y + 33.0), "tick");
            end = end.max(at);
        }
        canvas.text((end.min(WIDTH - 160.0) + 7.0, y + 28.5), "start", "number", text);
        y += 39.0;
    };
    for cell in &scaling.alone {
        bar(cell, value(cell, scaling), "bar k0", &number(value(cell, scaling)), None);
    }
    let text = format!("{}, {:.0} %", number(scaling.together), scaling.share() * 100.0);
    bar(all, scaling.together, "bar k1", &text, Some(scaling.sum));
    canvas.finish()
}
