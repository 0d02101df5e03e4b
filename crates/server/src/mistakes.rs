//! All mistakes of a configuration file, where `serve` stops at the first.
//!
//! The parser tells one mistake; its line is taken out and the rest is read again. So what is found is what `serve` would
//! say, one after the other.
//!
//! Not here: what depends on the machine (drives, addresses that are taken).

use serde::Serialize;
use toml::de::Error;

use crate::config::Config;

/// More are not looked for.
const MISTAKES_MAX: usize = 100;
/// A name that differs in more letters is not meant.
const LETTERS_MAX: usize = 3;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The line, counted from 1, where it is in one.
    pub line: Option<usize>,
    /// The key of that line.
    pub key: Option<String>,
    /// What is wrong.
    pub why: String,
    /// The valid key that is nearest to one that is unknown.
    pub nearest: Option<String>,
}

/// The mistakes of a text, in their order.
#[must_use]
pub fn all(text: &str) -> Vec<Mistake> {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut found = vec![];
    while found.len() < MISTAKES_MAX {
        let text = lines.join("\n");
        let Err(error) = toml::from_str::<Config>(&text) else {
            found.extend(inconsistent(&text));
            break;
        };
        let mistake = of(&error, &text);
        let line = mistake.line;
        found.push(mistake);
        // Where the file cannot be taken apart at all, the rest would only be guessed.
        let Some(line) = line.filter(|_| text.parse::<toml::Table>().is_ok()) else { break };
        lines[line - 1] = "";
        let without = lines.join("\n");
        if without.parse::<toml::Table>().is_err() {
            break;
        }
    }
    found.sort_by_key(|mistake| mistake.line);
    found
}

fn of(error: &Error, text: &str) -> Mistake {
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let key = line.and_then(|line| {
        let (key, _) = text.lines().nth(line - 1)?.split_once('=')?;
        Some(key.trim().to_owned())
    });
    let why = error.message().to_owned();
    let nearest = key.as_deref().filter(|_| why.starts_with("unknown field")).and_then(|key| nearest(key, &why));
    Mistake { line, key, why, nearest }
}

/// Of the keys that the parser lists, the one that is most like `key`.
fn nearest(key: &str, why: &str) -> Option<String> {
    let (_, list) = why.split_once("expected ")?;
    let valid = list.split('`').skip(1).step_by(2);
    let (letters, name) = valid.map(|name| (distance(key, name), name)).min()?;
    (letters <= LETTERS_MAX).then(|| name.to_owned())
}

/// How many letters are added, left out or changed from one to the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// What each key allows and all of them together do not.
fn inconsistent(text: &str) -> Option<Mistake> {
    let why = Config::parse(text).err()?;
    Some(Mistake { line: None, key: None, why, nearest: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_line_its_key_and_what_was_meant() {
        let text = "nbd = [\"unix:/x\"]\ncontrl = \"/y\"\n\ncores = \"many\"\nlinger = 5000\n[[array]]\nname = \"a\"\nraidd = \"5\"\n";
        let found = all(text);
        let short: Vec<_> = found.iter().map(|m| (m.line, m.key.as_deref(), m.nearest.as_deref())).collect();
        assert_eq!(
            short,
            [
                (Some(2), Some("contrl"), Some("control")),
                (Some(4), Some("cores"), None),
                (Some(5), Some("linger"), None),
                (Some(8), Some("raidd"), Some("raid")),
            ],
            "{found:?}"
        );
    }

    #[test]
    fn what_is_right_has_none_and_what_is_no_toml_has_one() {
        assert_eq!(all("cores = 2\n"), []);
        assert_eq!(all("cores = 2\nnbd = [\n\"x\"\n= 5\ncontrl = 1").len(), 1);
        let twice = all("[[array]]\nname = \"a\"\n[[array]]\nname = \"a\"");
        assert!(twice.len() == 1 && twice[0].why.contains("twice"), "{twice:?}");
    }

    #[test]
    fn letters() {
        for (a, b, letters) in [("", "abc", 3), ("contrl", "control", 1), ("nvme", "nbd", 3), ("io", "io", 0)] {
            assert_eq!(distance(a, b), letters, "{a} {b}");
        }
    }
}
