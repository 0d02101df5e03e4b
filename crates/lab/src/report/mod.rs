//! The report: one file of HTML that needs nothing else. Charts are inline SVG, colours follow the reader's light or
//! dark, and every chart has its numbers in a table.
//!
//! A section draws one idea from one or several results and is absent when they do not hold it; the verdict page then
//! says so. Several results share charts and are told apart by colour.

mod bars;
mod cells;
mod convergence;
mod curves;
mod disclosure;
mod exceedance;
mod heat;
mod history;
mod html;
mod page;
mod scale;
mod scales;
mod seconds;
mod sizes;
mod svg;
mod tables;
mod timeline;
mod together;
mod verdict;
mod versus;

pub use cells::{cpus, iops_per_cpu, iops_per_drive};
pub use history::history_page;
pub use html::escape;
pub use page::{Chart, Extra, STYLE, charts, page};

/// A part of the page.
struct Section {
    /// Its anchor.
    id: &'static str,
    /// Its heading.
    title: &'static str,
    /// What is below it.
    body: String,
}

impl Section {
    fn new(id: &'static str, title: &'static str, body: String) -> Section {
        Section { id, title, body }
    }
}
