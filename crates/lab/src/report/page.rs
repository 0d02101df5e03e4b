//! The page: all sections that the results allow, in their order.

use super::html::{escape, table};
use super::{
    Section, bars, cells, convergence, curves, disclosure, exceedance, heat, tables, timeline, together, verdict,
    versus,
};
use crate::model::{Run, State, Verdict};
use crate::money::Prices;
use crate::units::{grouped, rate};

const STYLE: &str = include_str!("style.css");

/// What the page shows beside the results.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// The user's prices, for the first result.
    pub prices: Option<Prices>,
}

/// A way to make a section, and what a reader misses when it is absent.
type Maker = (&'static str, fn(&[Run]) -> Option<Section>);

const MAKERS: [Maker; 10] = [
    ("load curves", curves::section),
    ("threads x depth matrices", heat::section),
    ("bars by level and state", bars::section),
    ("one target against several", together::section),
    ("rounds to a steady state", convergence::section),
    ("rebuilds over time", timeline::section),
    ("latency distributions", exceedance::section),
    ("published tables", tables::section),
    ("cells", cells::section),
    ("disclosure", disclosure::section),
];

/// The whole file.
pub fn page(runs: &[Run], extra: &Extra) -> String {
    let made: Vec<(&str, Option<Section>)> = MAKERS.iter().map(|(name, make)| (*name, make(runs))).collect();
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
        [only] => sections.push(verdict::section(only, &absent)),
        several => {
            sections.extend(versus::section(several));
            let each = several.iter().map(|r| format!("<h3>{}</h3>{}", escape(&r.name), verdict::section(r, &[]).body));
            sections.push(Section::new("verdict", "Verdicts", each.collect()));
        }
    }
    let mut made: Vec<Section> = made.into_iter().filter_map(|(_, s)| s).collect();
    let before_cells = made.iter().position(|s| s.id == "tables" || s.id == "cells").unwrap_or(made.len());
    money.into_iter().for_each(|m| made.insert(before_cells, m));
    sections.extend(made);
    let title: Vec<&str> = runs.iter().map(|r| r.name.as_str()).collect();
    let title = escape(&title.join(" beside "));
    let links: Vec<String> = sections.iter().map(|s| format!("<a href=\"#{}\">{}</a>", s.id, s.title)).collect();
    let body: Vec<String> = sections
        .iter()
        .map(|s| format!("<section id=\"{}\"><h2>{}</h2>{}</section>\n", s.id, s.title, s.body))
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light \
         dark\"><title>{title}</title>\n<style>{STYLE}</style></head>\n<body><header><h1>{title}</h1><nav>{}</nav>\
         </header>\n{}</body></html>\n",
        // Lines break between links only where there is a space.
        links.join(" "),
        body.concat()
    )
}

/// What the numbers of the first result cost; only cells that did not fail count.
fn money(runs: &[Run], prices: &Prices) -> Option<Section> {
    let run = runs.first()?;
    let stands = || {
        run.cells.iter().filter(|c| c.may_stand() && c.verdict() != Verdict::Fail && c.subject.state == State::Optimal)
    };
    let best = |of: fn(&crate::model::Cell) -> Option<f64>, text: fn(f64) -> String, unit: &str| {
        let cell = stands()
            .filter(|c| of(c).is_some())
            .max_by(|a, b| of(a).unwrap_or(0.0).total_cmp(&of(b).unwrap_or(0.0)))?;
        let number = of(cell)?;
        let p99 = cell
            .figures
            .latency
            .p99_us
            .map_or("p99 unknown".to_owned(), |us| format!("p99 {}", crate::units::latency(us)));
        Some((
            number,
            format!("{}{unit}, {}, threads x depth {}, {p99}", text(number), cell.load.name(), cell.load.pressure()),
        ))
    };
    let lines = prices.lines(best(|c| c.figures.iops, grouped, " IOPS"), best(|c| c.figures.bytes_per_sec, rate, ""));
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|l| vec![escape(&l.what), format!("{:.2}", l.value), escape(&l.unit), escape(&l.how)])
        .collect();
    let note =
        format!("<p>Prices of {}, in {}, as the price file says.</p>", escape(&prices.date), escape(&prices.currency));
    Some(Section::new("money", "Money", format!("{note}{}", table(&["what", "value", "unit", "how"], &rows, true))))
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
            for id in ids {
                assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id} has one place");
            }
            assert!(page.contains("not in this result: load curves"), "what is absent is told");
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
    fn the_tables_of_the_review_are_there() {
        let page = page(&[published::run("perc12").unwrap()], &Extra::default());
        for text in ["5,550,000 IOPS", "54.4 GB/s", "13,205,656 IOPS", "242,802 IOPS", "link-bound", "28 % kept"] {
            assert!(page.contains(text), "{text}");
        }
    }
}
