//! The verdict page: what was measured, how far it is to be trusted, the six numbers people ask for first.

use super::Section;
use super::html::{badge, escape, reasons};
use crate::model::{Access, Cell, Origin, Run, State, Verdict};
use crate::units::{latency, rate, si};

/// A load that people ask for, and how it is recognised.
type Wanted = (&'static str, fn(&Cell) -> bool);

fn is(cell: &Cell, access: Access, reads: std::ops::RangeInclusive<f64>) -> bool {
    cell.load.access == Some(access) && cell.load.read_percent.is_some_and(|p| reads.contains(&p))
}

fn small(cell: &Cell) -> bool {
    cell.load.block_bytes.is_some_and(|b| b <= 16 << 10)
}

/// The six of them. One outstanding request is told apart: there the latency is the number.
const WANTED: [Wanted; 6] = [
    ("random read", |c| small(c) && is(c, Access::Random, 100.0..=100.0)),
    ("random write", |c| small(c) && is(c, Access::Random, 0.0..=0.0)),
    ("random mix", |c| small(c) && is(c, Access::Random, 1.0..=99.0)),
    ("sequential read", |c| is(c, Access::Sequential, 100.0..=100.0)),
    ("sequential write", |c| is(c, Access::Sequential, 0.0..=0.0)),
    ("one request at a time", |c| small(c) && c.load.outstanding() == Some(1.0)),
];

/// The section of one result.
pub fn section(run: &Run, absent: &[&str]) -> Section {
    let mut body = format!("<p class=\"about\">{}</p>", escape(&run.about));
    body.push_str(&standing(run));
    let numbers: Vec<String> = WANTED.iter().filter_map(|w| headline(run, w)).collect();
    if numbers.is_empty() {
        body.push_str("<p>No number is available.</p>");
    } else {
        body.push_str(&format!("<div class=\"numbers\">{}</div>", numbers.concat()));
    }
    let pairs = run.system.iter().filter(|p| !p.value.is_empty());
    let card: Vec<String> =
        pairs.map(|p| format!("<dt>{}</dt><dd>{}</dd>", escape(&p.name), escape(&p.value))).collect();
    if !card.is_empty() {
        body.push_str(&format!("<dl class=\"card\">{}</dl>", card.concat()));
    }
    let mut missing: Vec<String> =
        run.not_run.iter().map(|p| format!("<li>{}: {}</li>", escape(&p.name), escape(&p.value))).collect();
    if !absent.is_empty() {
        missing.push(format!("<li>not in this result: {}</li>", escape(&absent.join(", "))));
    }
    if !missing.is_empty() {
        body.push_str(&format!("<p>Absent:</p><ul>{}</ul>", missing.concat()));
    }
    Section::new("verdict", "Verdict", body)
}

/// How many cells stand, and whether the whole may be published.
fn standing(run: &Run) -> String {
    let count = |v: Verdict| run.cells.iter().filter(|c| c.verdict() == v).count();
    let (pass, warn, fail) = (count(Verdict::Pass), count(Verdict::Warn), count(Verdict::Fail));
    let mut words = match run.origin {
        Origin::Measured if run.ended.is_none() => "Measured here; not finished.".to_owned(),
        Origin::Measured if run.for_publication => "Measured here.".to_owned(),
        Origin::Measured => "Measured here; this suite is not for publication.".to_owned(),
        Origin::Published => "Published by a review; not measured here.".to_owned(),
        Origin::Imported { ref format } => format!("Imported from {format}."),
    };
    if let Some(begun) = &run.begun {
        words.push_str(&format!(" Begun {begun}."));
    }
    let badge = |verdict: Verdict, count: usize| {
        let class = if count == 0 { "none".to_owned() } else { verdict.to_string() };
        format!("<span class=\"badge {class}\">{count} {verdict}</span>")
    };
    let counts = [badge(Verdict::Pass, pass), badge(Verdict::Warn, warn), badge(Verdict::Fail, fail)];
    format!("<p>{}</p><p class=\"counts\">{} of {} cells</p>", escape(&words), counts.join(" "), run.cells.len())
}

/// The best cell of a wanted load: one that failed its gates only when there is no other.
fn headline(run: &Run, (name, fits): &Wanted) -> Option<String> {
    let fitting = run
        .cells
        .iter()
        .filter(|c| c.may_stand() && fits(c) && c.subject.state == State::Optimal && c.headline().is_some());
    let cell = fitting.max_by(|a, b| {
        let stands = |c: &Cell| c.verdict() != Verdict::Fail;
        let number = |c: &Cell| c.headline().map_or(0.0, |(_, n)| n);
        stands(a).cmp(&stands(b)).then(number(a).total_cmp(&number(b)))
    })?;
    let (is_iops, number) = cell.headline()?;
    let alone = cell.load.outstanding() == Some(1.0);
    let big = match cell.figures.latency.mean_us.filter(|_| alone) {
        Some(us) => latency(us),
        None if is_iops => format!("{} IOPS", si(number)),
        None => rate(number),
    };
    let of = cell.figures.latency;
    let tail = match (of.mean_us, of.p99_us) {
        (Some(mean), Some(p99)) => format!("mean {}, p99 {}", latency(mean), latency(p99)),
        (Some(mean), None) => format!("mean {}", latency(mean)),
        (None, _) => "latency unknown".to_owned(),
    };
    let level = cell.subject.level.as_ref().map_or(String::new(), |l| format!("{l}, "));
    let id = escape(&cell.id);
    Some(format!(
        "<div class=\"number\"><h4>{name}</h4><b>{}</b> {}<p>{}<br>threads x depth {}<br>{}{}<br>{}</p><p \
         class=\"why\">{}</p><a class=\"row\" href=\"#{id}\">{id}</a></div>",
        escape(&big),
        badge(&cell.gates),
        escape(&cell.load.name()),
        escape(&cell.load.pressure()),
        escape(&level),
        cell.subject.state,
        escape(&tail),
        reasons(&cell.gates),
    ))
}
