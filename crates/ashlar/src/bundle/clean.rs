//! What is taken out of texts: keys, and names of hosts.

use std::collections::BTreeMap;

/// What stands in the place of a key.
const CUT: &str = "[cut]";

/// Beginnings of keys that are known by them: NVMe TLS PSKs and DH-HMAC-CHAP secrets (nvme-cli's formats), tokens of the API, PEM.
const PREFIXES: [&str; 4] = ["NVMeTLSkey-1:", "DHHC-1:", "ashlar_", "-----BEGIN"];

/// A token of the API has three parts, and the last one so many characters at least: names of metrics are shorter.
const TOKEN_CHARS_MIN: usize = 40;

/// Words before a value that is nobody else's business.
const KEYS: [&str; 4] = ["password", "secret", "token", "passphrase"];

/// Replaces names of hosts, each by the same word everywhere.
pub struct Names {
    keep: bool,
    known: BTreeMap<String, String>,
    machine: Option<String>,
}

impl Names {
    /// None is known yet.
    pub fn new(keep: bool) -> Names {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let machine = machine.map(|name| name.trim().to_owned()).filter(|name| name.len() > 3);
        Names { keep, known: BTreeMap::new(), machine }
    }

    /// The text without keys, and without names of hosts unless they are kept; how many keys there were.
    pub fn clean(&mut self, text: &str) -> (String, usize) {
        let (mut out, mut cut) = (String::with_capacity(text.len()), 0);
        for line in text.split_inclusive('\n') {
            let (line, keys) = without_values(line);
            cut += keys;
            for word in words(&line) {
                if is_key(word) {
                    cut += 1;
                    out.push_str(CUT);
                } else {
                    out.push_str(&self.name(word));
                }
            }
        }
        (out, cut)
    }

    fn name(&mut self, word: &str) -> String {
        if self.keep {
            return word.to_owned();
        }
        if self.machine.as_deref() == Some(word) {
            return "this-host".to_owned();
        }
        // Ours are identities of arrays, which say nothing of anybody; a host's own names are of the same form.
        if !word.starts_with("nqn.") {
            return word.to_owned();
        }
        let next = format!("host-{}", self.known.len() + 1);
        self.known.entry(word.to_owned()).or_insert(next).clone()
    }
}

/// What looks like a key.
pub fn secrets_in(text: &str) -> Vec<String> {
    let keys = text.split_inclusive('\n').flat_map(words).filter(|word| is_key(word)).map(str::to_owned);
    let lines = text.lines().filter(|line| without_values(line).1 > 0).map(str::to_owned);
    keys.chain(lines).collect()
}

fn is_key(word: &str) -> bool {
    PREFIXES.iter().any(|prefix| word.starts_with(prefix) && word.len() > prefix.len())
        && (!word.starts_with("ashlar_") || word.rsplit('_').next().is_some_and(|last| last.len() >= TOKEN_CHARS_MIN))
}

/// A line in its words and what is between them.
fn words(line: &str) -> Vec<&str> {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || "-_.:/+=".contains(c);
    let mut all = vec![];
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_in_word(c) != is_in_word(first)).unwrap_or(rest.len());
        all.push(&rest[..end]);
        rest = &rest[end..];
    }
    all
}

/// A line with the value cut out behind each word that says that it is nobody's business: `password = "x"`, `"token": "x"`.
fn without_values(line: &str) -> (String, usize) {
    let (mut out, mut rest, mut cut) = (String::new(), line, 0);
    loop {
        let lower = rest.to_ascii_lowercase();
        let found = KEYS.iter().filter_map(|key| Some((lower.find(key)?, key.len()))).min();
        let Some((at, length)) = found else { break };
        let behind = &rest[at + length..];
        let gap = behind.find(|c: char| !"\"' \t:=".contains(c)).unwrap_or(behind.len());
        let says = behind[..gap].contains([':', '=']);
        let end = behind[gap..].find(|c: char| "\"',}\n".contains(c)).map_or(behind.len(), |end| gap + end);
        out.push_str(&rest[..at + length]);
        if says && end > gap && behind[gap..end].trim() != CUT {
            out.push_str(&behind[..gap]);
            out.push_str(CUT);
            cut += 1;
        } else {
            out.push_str(&behind[..end]);
        }
        rest = &behind[end..];
    }
    out.push_str(rest);
    (out, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_word_everywhere() {
        let mut names = Names::new(false);
        let one = "allow_hosts = [\"nqn.2014-08.org.nvmexpress:uuid:a\", \"nqn.b\"]\n";
        assert_eq!(names.clean(one).0, "allow_hosts = [\"host-1\", \"host-2\"]\n");
        assert_eq!(names.clean("host nqn.b connected").0, "host host-2 connected");
        assert_eq!(Names::new(true).clean("nqn.b").0, "nqn.b");
    }

    #[test]
    fn metrics_and_prose_stay() {
        for text in
            ["ashlar_volume_request_seconds_bucket{le=\"1\"} 5\n", "no token is needed\n", "secret_file\n", "é ü\n"]
        {
            assert_eq!(Names::new(false).clean(text), (text.to_owned(), 0));
        }
    }
}
