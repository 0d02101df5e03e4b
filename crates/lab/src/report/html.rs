//! Text in HTML.

use crate::model::{Gate, Verdict, worst};

/// `text` with what HTML would take for its own set apart.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A verdict as a badge; the reasons are read when it is opened.
pub fn badge(gates: &[Gate]) -> String {
    let verdict = worst(gates);
    let reasons: Vec<String> = gates.iter().map(ToString::to_string).collect();
    let reasons = if reasons.is_empty() { "nothing was checked".to_owned() } else { reasons.join("\n") };
    format!("<span class=\"badge {verdict}\" title=\"{}\">{verdict}</span>", escape(&reasons))
}

/// The reasons of what did not pass, as a short list.
pub fn reasons(gates: &[Gate]) -> String {
    let bad = gates.iter().filter(|g| g.verdict != Verdict::Pass);
    let bad: Vec<String> = bad.map(|g| format!("{}: {}", g.check, escape(&g.reason))).collect();
    bad.join("<br>")
}

/// A table; cells are HTML already. The first column is text, others are numbers when `numbers`.
pub fn table(heads: &[&str], rows: &[Vec<String>], numbers: bool) -> String {
    let mut out = format!("<div class=\"wide\"><table class=\"{}\"><thead><tr>", if numbers { "num" } else { "txt" });
    heads.iter().for_each(|h| out.push_str(&format!("<th>{}</th>", escape(h))));
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        row.iter().for_each(|c| out.push_str(&format!("<td>{c}</td>")));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

/// A chart with its caption.
pub fn figure(caption: &str, svg: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>{svg}</figure>", escape(caption))
}

/// The colours of several results or groups.
pub fn legend(names: &[String]) -> String {
    let keys: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(i, n)| format!("<span><i class=\"key k{}\"></i>{}</span>", i % COLOURS, escape(n)))
        .collect();
    format!("<p class=\"legend\">{}</p>", keys.join(" "))
}

/// Colours there are.
pub const COLOURS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_cannot_leave_their_place() {
        assert_eq!(escape("<b a=\"1\">&'"), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
    }
}
