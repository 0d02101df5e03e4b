//! The index of a store: what was found when, and how numbers went where the same was measured again.

use super::html::{escape, figure_of, table};
use super::page::frame;
use super::scale::Scale;
use super::svg::{Axis, Canvas, Frame};
use crate::compare::Real;
use crate::model::{Origin, Verdict};
use crate::store::{Entry, Group, Point, Series};

const HEIGHT: f64 = 220.0;
/// Hundredths of the first value that the axis ends at; what is above is drawn at its edge.
const SHARE_MAX: f64 = 200.0;
/// The newest runs of a group that are shown.
const RUNS: usize = 8;

/// The page.
pub fn history_page(entries: &[Entry], groups: &[Group]) -> String {
    let mut body = "<section id=\"results\"><h2>Results</h2>".to_owned();
    if entries.is_empty() {
        body.push_str("<p>No result is kept here.</p>");
    }
    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    body.push_str(&table(&["begun", "suite", "found", "verdicts", "from"], &rows, false));
    body.push_str("</section>\n");
    if !groups.is_empty() {
        body.push_str("<section id=\"history\"><h2>History</h2><p>What was measured again: one suite on one system. A change \
                       against the run before counts when it is more than twice the pooled spread. Charts have hundredths of \
                       the first value.</p>");
        groups.iter().for_each(|g| body.push_str(&history(g)));
        body.push_str("</section>\n");
    }
    frame("Results that are kept", "", "", &body)
}

fn row(entry: &Entry) -> Vec<String> {
    let listed = entry.listed();
    let badge = |verdict: Verdict, n: usize| {
        if n == 0 { String::new() } else { format!("<span class=\"badge {verdict}\">{n} {verdict}</span> ") }
    };
    let verdicts = [(Verdict::Pass, listed.pass), (Verdict::Warn, listed.warn), (Verdict::Fail, listed.fail)];
    let from = match &entry.run.origin {
        Origin::Measured if entry.run.ended.is_none() => "measured, not finished".to_owned(),
        Origin::Measured => "measured".to_owned(),
        Origin::Published => "a review".to_owned(),
        Origin::Imported { format } => format!("imported from {format}"),
    };
    vec![
        escape(listed.begun.as_deref().unwrap_or("-")),
        escape(&listed.name),
        format!("<a href=\"{}/report.html\">{}</a>", escape(&listed.dir), escape(&listed.title)),
        verdicts.map(|(v, n)| badge(v, n)).concat(),
        escape(&from),
    ]
}

fn history(group: &Group) -> String {
    let skip = group.dirs.len().saturating_sub(RUNS);
    let mut heads = vec!["number"];
    heads.extend(group.begun[skip..].iter().map(String::as_str));
    let rows: Vec<Vec<String>> = group
        .series
        .iter()
        .map(|s| std::iter::once(escape(&s.what)).chain(s.points[skip..].iter().map(|p| cell(s, p.as_ref()))).collect())
        .collect();
    let names: Vec<String> = group.series.iter().map(|s| s.what.clone()).collect();
    let chart = figure_of(&group.name, &names, &chart(group));
    format!("<h3>{}</h3><div class=\"charts\">{chart}</div>{}", escape(&group.name), table(&heads, &rows, true))
}

fn cell(series: &Series, point: Option<&Point>) -> String {
    let Some(point) = point else { return "-".to_owned() };
    let verdict = point.verdict;
    let change = match (point.delta, point.real) {
        (Some(delta), Real::Yes) => format!("<br><b>{:+.1} %</b>", delta * 100.0),
        (Some(delta), real) => format!("<br><span class=\"why\">{:+.1} %{}</span>", delta * 100.0, real.remark()),
        (None, _) => String::new(),
    };
    format!("{} <span class=\"badge {verdict}\">{verdict}</span>{change}", series.unit.text(point.value))
}

fn chart(group: &Group) -> String {
    let frame = Frame::usual(HEIGHT);
    let n = group.dirs.len();
    let place = |nth: usize| frame.left + (nth as f64 + 0.5) / n as f64 * (frame.right - frame.left);
    // The days of the first and the last, and between them as many as there is room for.
    let every = n.div_ceil(5);
    let marks: Vec<(f64, String)> = group
        .begun
        .iter()
        .enumerate()
        .filter(|(nth, _)| nth % every == 0)
        .map(|(nth, begun)| (place(nth), begun.chars().take(10).collect()))
        .collect();
    let y = Scale::linear(SHARE_MAX, frame.bottom, frame.top);
    let mut canvas = Canvas::new(HEIGHT, &group.name);
    let percent: fn(f64) -> String = |v| format!("{v:.0} %");
    canvas.named_axes(&frame, &marks, "run", &Axis { scale: y, name: "of the first", text: percent });
    for (i, series) in group.series.iter().enumerate().take(super::html::COLOURS) {
        let Some(first) = series.points.iter().flatten().map(|p| p.value).find(|v| *v > 0.0) else { continue };
        let points = series.points.iter().enumerate();
        let points: Vec<(f64, f64)> =
            points.filter_map(|(nth, p)| Some((place(nth), y.at(p.as_ref()?.value / first * 100.0)))).collect();
        canvas.path(&points, &format!("curve s{i}"));
        points.iter().for_each(|at| canvas.dot(*at, &format!("k{i}"), &series.what));
    }
    canvas.finish()
}
