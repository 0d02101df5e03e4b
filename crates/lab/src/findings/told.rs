//! A review without figures of loads: what it states as a difference, a share or a multiple.

use super::Finding;
use crate::model::{Fact, Run};

/// Facts that are said; a first screen has no room for more.
const FACTS: usize = 8;

/// Sentences of facts that compare; claims, specifications and forecasts are none of the review's own.
pub fn stated(run: &Run) -> Vec<Finding> {
    let is_own = |f: &&Fact| matches!(f.kind.as_str(), "stated" | "measured") && compared(f).is_some();
    let mut facts: Vec<&Fact> = run.facts.iter().filter(is_own).collect();
    // One table after the other, in the order in which they begin.
    let parts: Vec<&str> = facts.iter().map(|f| f.part.as_str()).collect();
    let nth = |part: &str| parts.iter().position(|p| *p == part);
    facts.sort_by_key(|f| nth(&f.part));
    let said = facts.into_iter().filter_map(|fact| {
        let value = compared(fact)?;
        let brief = capital(&format!("{}: {value}", fact.metric));
        let of = if fact.of.is_empty() { String::new() } else { format!(" ({})", fact.of) };
        let note = if fact.note.is_empty() { String::new() } else { format!("; {}", fact.note) };
        Some(Finding::new(format!("{brief}{of}{note}."), [fact.id.clone()]).brief(brief))
    });
    said.take(FACTS).collect()
}

/// With a capital at its beginning: it is a sentence.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// "+43 %", "more than +50 %", "almost 2 x cheaper"; nothing of a value that compares nothing.
fn compared(fact: &Fact) -> Option<String> {
    let words: Vec<&str> = fact.value.split_whitespace().collect();
    if !words.iter().any(|w| *w == "%" || *w == "x") || !fact.value.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let gain = fact.metric.contains("gain") && fact.value.ends_with('%');
    let (more, number) = match fact.value.strip_prefix('>') {
        Some(rest) => ("more than ", rest),
        None => ("", fact.value.as_str()),
    };
    let sign = if gain && number.starts_with(|c: char| c.is_ascii_digit()) { "+" } else { "" };
    Some(format!("{more}{sign}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compares_is_said_with_its_sign() {
        let fact = |metric: &str, value: &str| Fact {
            id: "1".to_owned(),
            part: String::new(),
            of: String::new(),
            metric: metric.to_owned(),
            value: value.to_owned(),
            kind: "stated".to_owned(),
            note: String::new(),
        };
        for (metric, value, want) in [
            ("IOPS gain", ">50 %", Some("more than +50 %")),
            ("IOPS gain", "43 %", Some("+43 %")),
            ("latency change", "-30 %", Some("-30 %")),
            ("price", "almost 2 x cheaper", Some("almost 2 x cheaper")),
            ("year", "2026 year", None),
            ("latency", "10 and 100 ms", None),
        ] {
            assert_eq!(compared(&fact(metric, value)).as_deref(), want, "{value}");
        }
    }
}
