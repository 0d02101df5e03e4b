//! The published tables: one for each table of a review, every figure with the row of the data file that it is from.

use super::Section;
use super::html::{badge, escape, table};
use super::scales::Scales;
use crate::findings::count_of;
use crate::model::{Cell, Origin, Run};
use crate::published;
use crate::units::{grouped, rate};

/// The section, if a result is published.
pub fn section(runs: &[Run], _: &Scales) -> Option<Section> {
    let mut body = String::new();
    for run in runs.iter().filter(|r| r.origin == Origin::Published) {
        for (name, cells) in published::tables(run) {
            body.push_str(&format!("<h3>{}: {}</h3>{}", escape(&run.name), escape(&name), one(&cells)));
        }
        let mut parts: Vec<&str> = vec![];
        for fact in &run.facts {
            if !parts.contains(&fact.part.as_str()) {
                parts.push(&fact.part);
            }
        }
        for part in parts {
            let facts = run.facts.iter().filter(|f| f.part == part);
            let rows: Vec<Vec<String>> = facts
                .map(|f| {
                    let id = format!("<span class=\"row\" id=\"{0}\">{0}</span>", escape(&f.id));
                    vec![escape(&f.of), escape(&f.metric), escape(&f.value), escape(&f.kind), escape(&f.note), id]
                })
                .collect();
            let title = format!("{}: {}", run.name, part);
            body.push_str(&format!("<h3>{}</h3>", escape(&title)));
            body.push_str(&table(&["of", "what", "value", "kind", "note", "row"], &rows, false));
        }
    }
    let note = "<p>Numbers are those that were printed, to three digits where they are bandwidth. Below each is its row in the data file, which names the source.</p>";
    (!body.is_empty()).then(|| Section::new("tables", "The published tables", format!("{note}{body}")))
}

/// Columns that a page is wide enough for.
const COLUMNS: usize = 5;

/// Loads downwards, configurations across; or the other way round, when there are many of them.
fn one(cells: &[&Cell]) -> String {
    let (mut loads, mut configurations): (Vec<String>, Vec<String>) = (vec![], vec![]);
    for cell in cells {
        for (list, name) in [(&mut loads, load(cell)), (&mut configurations, configuration(cell))] {
            if !list.contains(&name) {
                list.push(name);
            }
        }
    }
    let figures = |l: &str, c: &str| {
        let here = cells.iter().filter(|cell| load(cell) == l && configuration(cell) == c);
        here.map(|cell| one_figure(cell)).collect::<Vec<_>>().join("<br>")
    };
    // What is more goes downwards: a page is long before it is wide.
    let downwards = configurations.len() > COLUMNS && loads.len() < configurations.len();
    let (down, across) = if downwards { (&configurations, &loads) } else { (&loads, &configurations) };
    let row = |d: &String| {
        let cells = across.iter().map(|a| if downwards { figures(a, d) } else { figures(d, a) });
        std::iter::once(escape(d)).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = down.iter().map(row).collect();
    let mut heads = vec![if downwards { "system" } else { "load" }];
    heads.extend(across.iter().map(String::as_str));
    table(&heads, &rows, true)
}

fn load(cell: &Cell) -> String {
    let state =
        if cell.subject.state == Default::default() { String::new() } else { format!(", {}", cell.subject.state) };
    format!("{}{state}", cell.test)
}

fn configuration(cell: &Cell) -> String {
    let subject = &cell.subject;
    let cards = match subject.controller_count {
        Some(0) => "no controller".to_owned(),
        Some(n) => count_of(n, "controller"),
        None => subject.controllers.clone().unwrap_or_default(),
    };
    let system = subject.system.split(" (").next().unwrap_or_default();
    let drives = subject.drive_count.map_or(String::new(), |n| count_of(n, "drive"));
    let words = [system, subject.level.as_deref().unwrap_or_default(), &drives, &cards];
    words.into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(", ")
}

fn one_figure(cell: &Cell) -> String {
    let value = match (cell.figures.iops, cell.figures.bytes_per_sec) {
        (Some(iops), _) => format!("{} IOPS", grouped(iops)),
        (None, Some(bytes)) => rate(bytes),
        (None, None) => "-".to_owned(),
    };
    let id = escape(cell.source.as_deref().unwrap_or(&cell.id));
    format!("{value} {}<br><a class=\"row\" href=\"#{id}\">{id}</a>", badge(&cell.gates))
}
