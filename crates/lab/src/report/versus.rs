//! Several results side by side, as a table: what may be compared, and what may not and why.

use super::Section;
use super::html::{escape, table};
use crate::compare::{Pairing, compare};
use crate::model::Run;
use crate::units::{grouped, rate};

/// The section, if there are several results.
pub fn section(runs: &[Run]) -> Option<Section> {
    if runs.len() < 2 {
        return None;
    }
    let comparison = compare(runs);
    let mut heads = vec!["load"];
    heads.extend(comparison.names.iter().map(String::as_str));
    let rows: Vec<Vec<String>> = comparison
        .lines
        .iter()
        .map(|line| {
            let text = |value: f64| if line.is_iops { format!("{} IOPS", grouped(value)) } else { rate(value) };
            let mut row = vec![escape(&line.what), text(line.base)];
            row.extend(line.others.iter().map(|p| p.as_ref().map_or("-".to_owned(), |p| other(p, &text(p.value)))));
            row
        })
        .collect();
    let mut body =
        "<p>A difference counts when it is more than twice the pooled spread of both cells. Grey: conditions differ, \
         so no difference is shown.</p>"
            .to_owned();
    if rows.is_empty() {
        body.push_str("<p><b>Nothing can be compared</b>: no two cells have the same load.</p>");
    } else {
        body.push_str(&table(&heads, &rows, true));
    }
    if comparison.alone > 0 {
        body.push_str(&format!(
            "<p>{} cells of {} have no counterpart.</p>",
            comparison.alone,
            escape(&comparison.names[0])
        ));
    }
    Some(Section::new("compare", "Compared", body))
}

fn other(pairing: &Pairing, value: &str) -> String {
    if !pairing.unlike.is_empty() {
        return format!("<span class=\"unlike\">{value}<br>{}</span>", escape(&pairing.unlike.join("; ")));
    }
    let judgement = pairing.real.remark();
    let untold = if pairing.untold.is_empty() {
        String::new()
    } else {
        format!("<br><span class=\"why\">known of one side only: {}</span>", escape(&pairing.untold.join(", ")))
    };
    let share = |delta: f64| format!("<b>{:+.1} %</b>{judgement}", delta * 100.0);
    format!("{value}<br>{}{untold}", pairing.delta.map_or("no ratio to zero".to_owned(), share))
}
