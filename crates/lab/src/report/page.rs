//! The page: all sections that the results allow, in their order.

use super::html::{escape, glued, table, unescape};
use super::scales::Scales;
use super::{
    Section, bars, cells, convergence, curves, disclosure, exceedance, heat, seconds, sizes, tables, timeline,
    together, verdict, versus,
};
use crate::findings::Findings;
use crate::model::Run;
use crate::money::Prices;

/// The style of the page.
pub const STYLE: &str = include_str!("style.css");

/// What the page shows beside the results.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// The user's prices, for the first result.
    pub prices: Option<Prices>,
}

/// A way to make a section, and what a reader misses when it is absent.
type Maker = (&'static str, fn(&[Run], &Scales) -> Option<Section>);

const MAKERS: [Maker; 12] = [
    ("load curves", curves::section),
    ("threads x depth matrices", heat::section),
    ("bars by level and state", bars::section),
    ("block sizes", sizes::section),
    ("one target against several", together::section),
    ("rounds to a steady state", convergence::section),
    ("rebuilds over time", timeline::section),
    ("latency distributions", exceedance::section),
    ("seconds of each cell", seconds::section),
    ("published tables", tables::section),
    ("cells", cells::section),
    ("disclosure", disclosure::section),
];

/// The whole file.
pub fn page(runs: &[Run], extra: &Extra) -> String {
    let scales = Scales::of(runs);
    let made: Vec<(&str, Option<Section>)> = MAKERS.iter().map(|(name, make)| (*name, make(runs, &scales))).collect();
    let findings: Vec<Findings> = runs.iter().map(Findings::of).collect();
    // Only a review has published tables.
    let missed = |name: &str| name != "published tables";
    let mut absent: Vec<&str> =
        made.iter().filter(|(name, s)| s.is_none() && missed(name)).map(|(name, _)| *name).collect();
    let money = extra.prices.as_ref().and_then(|p| money(runs, p));
    if money.is_none() {
        absent.push("money (give --prices FILE)");
    }
    let mut sections: Vec<Section> = vec![];
    match runs {
        [only] => sections.push(verdict::section(only, &findings[0], &absent)),
        several => {
            sections.extend(versus::section(several));
            let each = several.iter().zip(&findings).enumerate().map(|(nth, (run, found))| {
                let of = own_places(several, nth, &verdict::section(run, found, &[]).body);
                // One that is called by its system has its name in what was found.
                let is_said = found.system.as_ref() == Some(&run.name) && found.title.starts_with(&run.name);
                let name = if is_said { String::new() } else { format!("{}: ", escape(&run.name)) };
                format!("<h3>{name}{}</h3>{of}", escape(&found.title))
            });
            sections.push(Section::new("verdict", "Findings", each.collect()));
        }
    }
    let mut made: Vec<Section> = made.into_iter().filter_map(|(_, s)| s).collect();
    let before_cells = made.iter().position(|s| s.id == "tables" || s.id == "cells").unwrap_or(made.len());
    money.into_iter().for_each(|m| made.insert(before_cells, m));
    sections.extend(made);
    let names: Vec<&str> = runs.iter().map(|r| r.name.as_str()).collect();
    let names = escape(&names.join(" beside "));
    // One result is titled by what it found; several by their names.
    let (title, under) = match findings.as_slice() {
        [only] => {
            let source = escape(&verdict::source(&runs[0]));
            (glued(&only.title), format!("<p class=\"why\">{names}. {source}</p>"))
        }
        _ => (names, String::new()),
    };
    let links: Vec<String> = sections.iter().map(|s| format!("<a href=\"#{}\">{}</a>", s.id, s.title)).collect();
    let body: Vec<String> = sections
        .iter()
        .map(|s| format!("<section id=\"{}\"><h2>{}</h2>{}</section>\n", s.id, s.title, s.body))
        .collect();
    // Lines break between links only where there is a space.
    frame(&title, &under, &format!("<nav>{}</nav>", links.join(" ")), &body.concat())
}

/// A part of the page that is of the `nth` result. Cells of one suite have the same names in all results: from the second on, their
/// places and the links to them have a number before the name.
pub(super) fn own_places(runs: &[Run], nth: usize, body: &str) -> String {
    let is_taken = |id: &str| runs[..nth].iter().any(|run| run.cells.iter().any(|cell| cell.id == id));
    let taken = runs[nth].cells.iter().filter(|cell| is_taken(&cell.id));
    taken.fold(body.to_owned(), |body, cell| {
        let (id, number) = (escape(&cell.id), nth + 1);
        let body = body.replace(&format!(" id=\"{id}\""), &format!(" id=\"{number}-{id}\""));
        body.replace(&format!("href=\"#{id}\""), &format!("href=\"#{number}-{id}\""))
    })
}

/// A file of HTML; all of it is HTML already.
pub(super) fn frame(title: &str, under: &str, nav: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light \
         dark\"><title>{title}</title>\n<style>{STYLE}</style></head>\n<body><header><h1>{title}</h1>{under}{nav}\
         </header>\n{body}</body></html>\n"
    )
}

/// What the numbers of the first result cost.
fn money(runs: &[Run], prices: &Prices) -> Option<Section> {
    let priced = prices.lines(runs.first()?);
    let rows: Vec<Vec<String>> = priced
        .lines
        .iter()
        .map(|l| vec![escape(&l.what), format!("{:.2}", l.value), escape(&l.unit), escape(&l.how)])
        .collect();
    let note = format!(
        "<p>Prices of {}, in {}, as the price file says. Rates are of {}.</p>",
        escape(&prices.date),
        escape(&prices.currency),
        escape(&priced.of)
    );
    let absent: String = priced.absent.iter().map(|why| format!("<li>{}</li>", escape(why))).collect();
    let absent = if absent.is_empty() { String::new() } else { format!("<p>Absent:</p><ul>{absent}</ul>") };
    let table = table(&["what", "value", "unit", "how"], &rows, true);
    Some(Section::new("money", "Money", format!("{note}{table}{absent}")))
}

/// A chart of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// Its caption.
    pub caption: String,
    /// What its colours are, by their number in the style.
    pub legend: Vec<(usize, String)>,
    /// The drawing.
    pub svg: String,
}

/// The charts of a page, in their order.
pub fn charts(page: &str) -> Vec<Chart> {
    let mut charts = vec![];
    for part in page.split("<figure><figcaption>").skip(1) {
        let Some((caption, rest)) = part.split_once("</figcaption>") else { continue };
        let Some((body, _)) = rest.split_once("</figure>") else { continue };
        let Some((keys, svg)) = body.split_once("<svg") else { continue };
        let legend = keys.split("<i class=\"key k").skip(1).filter_map(|key| {
            let (number, rest) = key.split_once('"')?;
            let (_, name) = rest.split_once("</i>")?;
            Some((number.parse().ok()?, unescape(name.split("</span>").next()?)))
        });
        charts.push(Chart { caption: unescape(caption), legend: legend.collect(), svg: format!("<svg{svg}") });
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    #[test]
    fn every_review_renders_and_every_figure_names_its_row() {
        for review in published::REVIEWS {
            let run = published::run(review.name).unwrap();
            let ids: Vec<String> =
                run.cells.iter().map(|c| c.id.clone()).chain(run.facts.iter().map(|f| f.id.clone())).collect();
            let page = page(&[run], &Extra::default());
            assert_eq!(charts(&page).len(), page.matches("<svg").count(), "each chart can be taken out");
            for id in ids {
                assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id} has one place");
            }
            assert!(page.contains("not in this result: load curves"), "what is absent is told");
            let header = page.split("</header>").next().unwrap();
            assert!(header.contains("not measured here"), "where it comes from is under the title");
        }
    }

    #[test]
    fn nothing_is_fetched_and_links_lead_somewhere() {
        let run = published::run("perc12").unwrap();
        let page = page(&[run], &Extra::default());
        for outside in ["http:", "https:", "<script", "url(", "@import", "<img", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
        for link in page.split("href=\"#").skip(1) {
            let target = link.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{target}\"")), "{target}");
        }
    }

    #[test]
    fn each_of_several_results_links_to_its_own_cells() {
        let run = published::run("perc12").unwrap();
        let mut other = run.clone();
        other.name = "the other".to_owned();
        let page = page(&[run.clone(), other], &Extra::default());
        for cell in &run.cells {
            for place in [format!(" id=\"{}\"", cell.id), format!(" id=\"2-{}\"", cell.id)] {
                assert_eq!(page.matches(&place).count(), 1, "{place}");
            }
        }
        let findings = page.split("<h3>the other: ").nth(1).unwrap().split("</section>").next().unwrap();
        assert!(findings.contains("href=\"#2-"), "{findings}");
        assert!(run.cells.iter().all(|c| !findings.contains(&format!("href=\"#{}\"", c.id))), "{findings}");
    }

    #[test]
    fn the_tables_of_the_review_are_there() {
        let page = page(&[published::run("perc12").unwrap()], &Extra::default());
        for text in ["5,550,000 IOPS", "54.4 GB/s", "13,205,656 IOPS", "242,802 IOPS", "link-bound", "28 % kept"] {
            assert!(page.contains(text), "{text}");
        }
    }
}
