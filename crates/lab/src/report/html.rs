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

/// `text` escaped, with a number and its unit on one line.
pub fn glued(text: &str) -> String {
    const UNITS: [&str; 14] =
        ["%", "k", "M", "TB", "GB", "MB", "GB/s", "MB/s", "IOPS", "s", "ms", "us", "drives", "CPUs"];
    let mut out = String::with_capacity(text.len());
    let mut before = "";
    for word in text.split(' ') {
        let bare = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '%');
        let of_number = before.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&bare);
        let of_prefix = matches!(before, "k" | "M") && bare == "IOPS";
        if !out.is_empty() {
            out.push(if of_number || of_prefix { '\u{a0}' } else { ' ' });
        }
        out.push_str(&escape(word));
        before = word;
    }
    out
}

/// The text that was escaped.
pub fn unescape(html: &str) -> String {
    let text = html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    text.replace("&amp;", "&")
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
    let bad: Vec<String> = bad.map(|g| format!("{}: {}", g.check, glued(&g.reason))).collect();
    bad.join("<br>")
}

/// A table; cells are HTML already. The first column is text, others are numbers when `numbers`. A row of one cell is
/// about the row before it, and as wide as the table. A narrow page shows each row as a card, so every cell carries the
/// name of its column.
pub fn table(heads: &[&str], rows: &[Vec<String>], numbers: bool) -> String {
    let mut out = format!("<div class=\"wide\"><table class=\"{}\"><thead><tr>", if numbers { "num" } else { "txt" });
    heads.iter().for_each(|h| out.push_str(&format!("<th>{}</th>", escape(h))));
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        if let ([only], true) = (row.as_slice(), heads.len() > 1) {
            out.push_str(&format!("<tr class=\"more\"><td colspan=\"{}\">{only}</td></tr>", heads.len()));
            continue;
        }
        out.push_str("<tr>");
        for (cell, head) in row.iter().zip(heads) {
            let class = if cell.is_empty() { " class=\"empty\"" } else { "" };
            out.push_str(&format!("<td data-label=\"{}\"{class}><div>{cell}</div></td>", escape(head)));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

/// The same without columns in which no row has anything but "-"; the first stays.
pub fn table_of_known(heads: &[&str], rows: &[Vec<String>], numbers: bool) -> String {
    let is_known =
        |n: usize| n == 0 || rows.iter().any(|r| r.len() > 1 && r.get(n).is_some_and(|c| !c.is_empty() && c != "-"));
    let kept: Vec<usize> = (0..heads.len()).filter(|n| is_known(*n)).collect();
    let heads: Vec<&str> = kept.iter().map(|n| heads[*n]).collect();
    let of = |row: &Vec<String>| {
        if row.len() == 1 { row.clone() } else { kept.iter().filter_map(|n| row.get(*n).cloned()).collect() }
    };
    table(&heads, &rows.iter().map(of).collect::<Vec<_>>(), numbers)
}

/// A chart with its caption.
pub fn figure(caption: &str, svg: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>{svg}</figure>", escape(caption))
}

/// A chart whose colours have names, in the order of the style.
pub fn figure_of(caption: &str, names: &[String], svg: &str) -> String {
    let keys: Vec<(usize, String)> = names.iter().cloned().enumerate().collect();
    figure_with(caption, &keys, svg)
}

/// A chart with the names of the colours that it has, by their numbers in the style.
pub fn figure_with(caption: &str, keys: &[(usize, String)], svg: &str) -> String {
    let key = |(colour, name): &(usize, String)| {
        format!("<span><i class=\"key k{}\"></i>{}</span>", colour % COLOURS, escape(name))
    };
    let keys: Vec<String> = keys.iter().map(key).collect();
    let keys = keys.join(" ");
    format!("<figure><figcaption>{}</figcaption><p class=\"legend\">{keys}</p>{svg}</figure>", escape(caption))
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

    #[test]
    fn a_number_and_its_unit_stay_together() {
        let text = glued("13.2 M IOPS of <4K> reads; RAID5 keeps 9 %, 8 drives and 2 more");
        assert_eq!(text, "13.2\u{a0}M\u{a0}IOPS of &lt;4K&gt; reads; RAID5 keeps 9\u{a0}%, 8\u{a0}drives and 2 more");
        let noise = Gate::warn(crate::model::Check::Noise, "others used 53 % of 2 CPUs (8.00 GB)");
        assert_eq!(reasons(&[noise]), "noise: others used 53\u{a0}% of 2\u{a0}CPUs (8.00\u{a0}GB)");
    }
}
