//! Every cell with its conditions, figures, verdict and reasons.

use super::Section;
use super::html::{badge, escape, reasons, table};
use crate::model::{Cell, Run};
use crate::units::{grouped, latency, rate};

/// The section, if there are cells.
pub fn section(runs: &[Run]) -> Option<Section> {
    let mut body = String::new();
    for run in runs.iter().filter(|r| !r.cells.is_empty()) {
        let rows: Vec<Vec<String>> = run.cells.iter().map(row).collect();
        let heads = [
            "cell",
            "load",
            "threads x depth",
            "state",
            "IOPS",
            "bandwidth",
            "mean",
            "p99",
            "p99.9",
            "got / asked",
            "in flight",
            "verdict",
            "why",
        ];
        body.push_str(&format!("<h3>{}</h3>{}", escape(&run.name), table(&heads, &rows, true)));
    }
    (!body.is_empty()).then(|| Section::new("cells", "Every cell", body))
}

fn row(cell: &Cell) -> Vec<String> {
    let told = |value: Option<f64>, text: fn(f64) -> String| value.map_or("-".to_owned(), text);
    let (figures, subject) = (&cell.figures, &cell.subject);
    let level = subject.level.as_ref().map_or(String::new(), |l| format!("{l}, "));
    let name = cell.load.name();
    let name = if name.is_empty() { cell.test.clone() } else { name };
    let mut why = reasons(&cell.gates);
    if !cell.note.is_empty() {
        why = format!("{why}<br><i>{}</i>", escape(&cell.note));
    }
    vec![
        format!("<span id=\"{0}\">{0}</span>", escape(&cell.id)),
        escape(&name),
        escape(&cell.load.pressure()),
        escape(&format!("{level}{}", subject.state)),
        told(figures.iops, grouped),
        told(figures.bytes_per_sec, rate),
        told(figures.latency.mean_us, latency),
        told(figures.latency.p99_us, latency),
        told(figures.latency.p999_us, latency),
        told(cell.achieved(), |a| format!("{:.1} %", a * 100.0)),
        told(cell.in_flight(), |n| format!("{n:.1}")),
        badge(&cell.gates),
        format!("<span class=\"why\">{why}</span>"),
    ]
}
