//! Colours on a terminal for what is wrong: the words of severities and states, where they stand as words of their own.

use std::borrow::Cow;
use std::io;
use std::sync::OnceLock;

use crate::output;

const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// Words for which somebody has to do something at once, and before long.
const BAD: [&str; 6] = ["CRITICAL", "ERROR", "ABSENT", "frozen", "failed", "missing"];
const UNWELL: [&str; 4] = ["WARNING", "degraded", "rebuilding", "suspect"];

/// The line as standard output takes it.
pub fn for_stdout(line: &str) -> Cow<'_, str> {
    static COLOURS: OnceLock<bool> = OnceLock::new();
    match COLOURS.get_or_init(|| output::takes_colours(&io::stdout())) {
        true => Cow::Owned(painted(line)),
        false => Cow::Borrowed(line),
    }
}

/// The line with such words in colour: those in columns of a table, or before a colon, not those within a sentence.
fn painted(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 16);
    let mut rest = line;
    while let Some(begin) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let (before, from) = rest.split_at(begin);
        let (word, behind) = from.split_at(from.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(from.len()));
        let opens = out.is_empty() && before.is_empty() || before.ends_with("  ") || before.ends_with(": ");
        let closes = behind.is_empty() || behind.starts_with("  ") || behind.starts_with(": ");
        // Severities stand at the beginning of what they are about.
        let stands = opens && (closes || word.bytes().all(|b| b.is_ascii_uppercase()));
        let colour = [(&BAD[..], RED), (&UNWELL[..], YELLOW)].into_iter().find(|(words, _)| words.contains(&word));
        out.push_str(before);
        match colour.filter(|_| stands) {
            Some((_, colour)) => out.extend([colour, word, PLAIN]),
            None => out.push_str(word),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_stand_alone_have_colours() {
        for (line, is) in [
            ("fast  RAID 5 4+1  degraded  2 TiB", "fast  RAID 5 4+1  \x1b[33mdegraded\x1b[0m  2 TiB"),
            ("  CRITICAL  No further drive may fail", "  \x1b[31mCRITICAL\x1b[0m  No further drive may fail"),
            ("CRITICAL fast", "\x1b[31mCRITICAL\x1b[0m fast"),
            ("fast: WARNING: a drive is late", "fast: \x1b[33mWARNING\x1b[0m: a drive is late"),
            ("  2     failed", "  2     \x1b[31mfailed\x1b[0m"),
            ("the request failed since a drive is missing here", "the request failed since a drive is missing here"),
            ("optimal: no drive has failed", "optimal: no drive has failed"),
            ("", ""),
        ] {
            assert_eq!(painted(line), is, "{line}");
        }
    }
}
