//! The first screen: what was found, in sentences; what each level and state keeps, or the numbers people ask for; and
//! how far all of it is to be trusted.

use super::Section;
use super::html::{badge, escape, glued, reasons, table};
use crate::findings::{Finding, Findings, Kept, KeptCell, Number, Unit};
use crate::model::{Cell, Check, Origin, Run, Verdict};
use crate::units::latency;

/// Rows that a sentence links to; it may rest on more.
const LINKS: usize = 4;

/// The section of one result.
pub fn section(run: &Run, findings: &Findings, absent: &[&str]) -> Section {
    let mut body = format!("<p class=\"about\">{}</p>", escape(&run.about));
    body.push_str(&sentences("findings", &findings.sentences));
    body.push_str(&sentences("caveats", &findings.caveats));
    if let Some(kept) = &findings.kept {
        body.push_str(&retention(kept, findings.unit));
    }
    let (lone, fast): (Vec<&Number>, Vec<&Number>) = findings.numbers.iter().partition(|n| n.lone);
    let rows = [
        (findings.unit, fast.iter().copied().filter(|n| n.unit == findings.unit).chain(lone).collect::<Vec<_>>()),
        (Unit::Bytes, fast.iter().copied().filter(|n| n.unit != findings.unit).collect()),
    ];
    for (_, numbers) in rows.iter().filter(|(_, numbers)| !numbers.is_empty()) {
        let boxes: String = numbers.iter().filter_map(|n| number(run, n)).collect();
        body.push_str(&format!("<div class=\"numbers\">{boxes}</div>"));
    }
    if findings.sentences.is_empty() {
        body.push_str("<p>No number is available.</p>");
    }
    body.push_str(&standing(run));
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
    Section::new("verdict", "Findings", body)
}

/// Sentences with the rows that they rest on.
fn sentences(class: &str, all: &[Finding]) -> String {
    let one = |finding: &Finding| {
        let mut rows: Vec<&String> = finding.rows.iter().collect();
        rows.sort();
        rows.dedup();
        let left = rows.len().saturating_sub(LINKS);
        let link = |id: &&String| format!("<a class=\"row\" href=\"#{0}\">{0}</a>", escape(id));
        let mut links: Vec<String> = rows.iter().take(LINKS).map(link).collect();
        links.extend((left > 0).then(|| format!("<span class=\"row\">and {left} more</span>")));
        format!("<li>{} {}</li>", glued(&finding.text), links.join(" "))
    };
    if all.is_empty() {
        return String::new();
    }
    format!("<ul class=\"{class}\">{}</ul>", all.iter().map(one).collect::<String>())
}

/// What each level keeps of the bare drives, and each state of the optimal rate.
fn retention(kept: &Kept, unit: Unit) -> String {
    let one = |cell: &KeptCell| {
        let Some((rate, id)) = &cell.optimal else { return "-".to_owned() };
        let mut text = format!("<a href=\"#{}\">{}</a>", escape(id), unit.text(*rate));
        if let (Some(share), Some(reference)) = (cell.of_reference, &kept.reference) {
            text.push_str(&format!("<br>{:.0} % of {}", share * 100.0, escape(reference)));
        }
        for (state, share, id) in &cell.states {
            text.push_str(&format!("<br><a href=\"#{}\">{state}: {:.0} % kept</a>", escape(id), share * 100.0));
        }
        text
    };
    let rows: Vec<Vec<String>> = kept
        .rows
        .iter()
        .map(|row| std::iter::once(escape(&row.build)).chain(row.cells.iter().map(one)).collect())
        .collect();
    let mut heads = vec!["optimal, and what is kept"];
    heads.extend(kept.loads.iter().map(String::as_str));
    table(&heads, &rows, true)
}

/// Where the figures come from.
pub fn source(run: &Run) -> String {
    let is_modelled = run.cells.iter().any(|c| c.verdict() == Verdict::Model);
    match run.origin {
        Origin::Measured if is_modelled => "Of a model: nothing was measured.".to_owned(),
        Origin::Measured if run.ended.is_none() => "Measured here; not finished.".to_owned(),
        Origin::Measured if run.for_publication => "Measured here.".to_owned(),
        Origin::Measured => "Measured here; this suite is not for publication.".to_owned(),
        Origin::Published => "Published by a review; not measured here.".to_owned(),
        Origin::Imported { ref format } => format!("Imported from {format}."),
    }
}

/// How many cells stand, why others do not, and whether the whole may be published.
fn standing(run: &Run) -> String {
    let count = |v: Verdict| run.cells.iter().filter(|c| c.verdict() == v).count();
    let (pass, warn, fail) = (count(Verdict::Pass), count(Verdict::Warn), count(Verdict::Fail));
    let modelled = count(Verdict::Model);
    let mut words = source(run);
    if let Some(begun) = &run.begun {
        words.push_str(&format!(" Begun {begun}."));
    }
    if run.cells.is_empty() {
        words.push_str(" It has no cells: its figures are statements.");
        return format!("<p>{}</p>", escape(&words));
    }
    let badge = |verdict: Verdict, count: usize| {
        let class = if count == 0 { "none".to_owned() } else { verdict.to_string() };
        format!("<span class=\"badge {class}\">{count} {verdict}</span>")
    };
    let mut counts = vec![badge(Verdict::Pass, pass), badge(Verdict::Warn, warn), badge(Verdict::Fail, fail)];
    if modelled > 0 {
        counts.insert(0, badge(Verdict::Model, modelled));
    }
    let mut checks: Vec<(Check, usize)> = vec![];
    for cell in &run.cells {
        let mut of_cell: Vec<Check> =
            cell.gates.iter().filter(|g| g.verdict != Verdict::Pass).map(|g| g.check).collect();
        of_cell.sort_unstable();
        of_cell.dedup();
        for check in of_cell {
            match checks.iter_mut().find(|(known, _)| *known == check) {
                Some((_, n)) => *n += 1,
                None => checks.push((check, 1)),
            }
        }
    }
    checks.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let why: Vec<String> = checks.iter().map(|(check, n)| format!("{check} {n}")).collect();
    let why = if why.is_empty() { String::new() } else { format!("; not PASS: {}", why.join(", ")) };
    format!(
        "<p>{}</p><p class=\"counts\">{} of {} cells{}</p>",
        escape(&words),
        counts.join(" "),
        run.cells.len(),
        escape(&why)
    )
}

/// A number with its conditions.
fn number(run: &Run, number: &Number) -> Option<String> {
    let cell: &Cell = run.cells.iter().find(|c| c.id == number.id)?;
    let big = match cell.figures.latency.mean_us.filter(|_| number.lone) {
        Some(us) => latency(us),
        None => number.unit.text(number.value),
    };
    let of = cell.figures.latency;
    let tail = match (of.mean_us, of.p99_us) {
        (Some(mean), Some(p99)) => format!("mean {}, p99 {}", latency(mean), latency(p99)),
        (Some(mean), None) => format!("mean {}", latency(mean)),
        (None, _) => "latency unknown".to_owned(),
    };
    let drives =
        cell.subject.drive_count.map_or(String::new(), |n| format!("<br>{}", crate::findings::count_of(n, "drive")));
    let level = cell.subject.level.as_ref().map_or(String::new(), |l| format!(", {}", escape(l)));
    let level = if drives.is_empty() { level.replacen(", ", "<br>", 1) } else { level };
    let id = escape(&cell.id);
    Some(format!(
        "<div class=\"number\"><h4>{}</h4><b>{}</b> {}<p>{}<br>threads x depth {}{drives}{level}<br>{}</p><p \
         class=\"why\">{}</p><a class=\"row\" href=\"#{id}\">{id}</a></div>",
        number.name,
        escape(&big),
        badge(&cell.gates),
        escape(&cell.load.name()),
        escape(&cell.load.pressure()),
        escape(&tail),
        reasons(&cell.gates),
    ))
}
