//! Several results side by side, as a table: what may be compared, and what may not and why; each number with its verdict.

use super::Section;
use super::html::{escape, table};
use crate::compare::{Line, Pairing, compare};
use crate::model::{Latency, Run, Verdict};
use crate::units::{grouped, latency, rate};

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
            let of = Number { value: line.base, per_drive: line.base_per_drive, latency: &line.base_latency };
            let mut row = vec![escape(&line.what), of.text(line, line.base_verdict)];
            row.extend(line.others.iter().map(|p| p.as_ref().map_or("-".to_owned(), |p| other(line, p))));
            row
        })
        .collect();
    let mut body = "<p>A difference counts when it is more than twice the pooled spread of both cells. Grey: a side failed \
                    or conditions differ, so no difference is shown. Where a review does not print threads or depth, there \
                    is a ratio only. Points of load curves are in their chart.</p>"
        .to_owned();
    if rows.is_empty() {
        body.push_str("<p><b>Nothing can be compared</b>: no two cells have the same load.</p>");
    } else {
        body.push_str(&table(&heads, &rows, true));
    }
    let kept: Vec<Vec<String>> = comparison
        .kept
        .iter()
        .map(|kept| {
            let share = |share: &Option<f64>| share.map_or("-".to_owned(), |s| format!("{:.0} %", s * 100.0));
            std::iter::once(escape(&kept.what)).chain(kept.shares.iter().map(share)).collect()
        })
        .collect();
    if !kept.is_empty() {
        heads[0] = "kept of the optimal rate";
        body.push_str(&table(&heads, &kept, true));
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

/// A rate and what is known beside it.
struct Number<'a> {
    value: f64,
    per_drive: Option<f64>,
    latency: &'a Latency,
}

impl Number<'_> {
    fn text(&self, line: &Line, verdict: Verdict) -> String {
        let text = |value: f64| if line.is_iops { format!("{} IOPS", grouped(value)) } else { rate(value) };
        let mut out = format!("{} <span class=\"badge {verdict}\">{verdict}</span>", text(self.value));
        let times: Vec<String> = [("mean", self.latency.mean_us), ("p99", self.latency.p99_us)]
            .into_iter()
            .filter_map(|(name, us)| us.map(|us| format!("{name} {}", latency(us))))
            .collect();
        if line.lone && !times.is_empty() {
            out = format!("<b>{}</b><br>{out}", times.join(", "));
        } else if !times.is_empty() {
            out.push_str(&format!("<br><span class=\"why\">{}</span>", times.join(", ")));
        }
        if let Some(each) = self.per_drive {
            out.push_str(&format!("<br><span class=\"why\">{} for each drive</span>", text(each)));
        }
        out
    }
}

fn other(line: &Line, pairing: &Pairing) -> String {
    let number = Number { value: pairing.value, per_drive: pairing.per_drive, latency: &pairing.latency };
    let number = number.text(line, pairing.verdict);
    let words = escape(&pairing.judgement(&line.base_latency));
    if pairing.unlike.is_empty() {
        // The difference first, and what is to be said of it in small.
        let (first, rest) = words.split_once("; ").map_or((words.as_str(), ""), |(a, b)| (a, b));
        let rest = if rest.is_empty() { String::new() } else { format!("<br><span class=\"why\">{rest}</span>") };
        return format!("{number}<br><b>{first}</b>{rest}");
    }
    format!("<span class=\"unlike\">{number}<br>{words}</span>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Check, Gate};

    #[test]
    fn each_number_stands_with_its_verdict_and_what_failed_has_no_percentage() {
        let a = crate::published::run("perc12").unwrap();
        let mut b = a.clone();
        b.cells.iter_mut().for_each(|c| c.gates.push(Gate::fail(Check::Written, "never")));
        let body = section(&[a, b]).unwrap().body;
        assert!(body.contains("badge FAIL") && body.contains("badge WARN"));
        assert!(body.contains("not comparable: this is FAIL (written)"), "{body}");
        assert!(!body.contains("+0.0 %") && body.contains("for each drive"));
    }
}
