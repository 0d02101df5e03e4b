//! What is taken out of texts: keys, and names of hosts.

use std::collections::BTreeMap;

/// What stands in the place of a key.
const CUT: &str = "[cut]";

/// Beginnings of keys that are known by them: NVMe TLS PSKs and DH-HMAC-CHAP secrets, as nvme-cli writes them.
const PREFIXES: [&str; 2] = ["NVMeTLSkey-1:", "DHHC-1:"];

/// So begins a token of the API; its last part has so many characters at least: those of names of metrics are shorter.
const TOKEN: &str = "ashlar_";
const TOKEN_CHARS_MIN: usize = 40;

/// Around keys and certificates (RFC 7468); what stands between an end and its dashes is shorter than this.
const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";
const PEM_LABEL_MAX: usize = 64;

/// Words before a secret value.
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
        let (text, mut cut) = without_pem(text);
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            let (mut line, keys) = without_values(line);
            cut += keys;
            if let Some(machine) = self.machine.as_ref().filter(|_| !self.keep) {
                line = line.replace(machine.as_str(), "this-host");
            }
            for word in words(&line) {
                match key_in(word) {
                    Some(at) => {
                        cut += 1;
                        out.push_str(&word[..at]);
                        out.push_str(CUT);
                    }
                    None => out.push_str(&self.name(word)),
                }
            }
        }
        (out, cut)
    }

    fn name(&mut self, word: &str) -> String {
        if self.keep {
            return word.to_owned();
        }
        let host = word.find("nqn.").map(|at| (at, "host"));
        let peer = || (word.starts_with("tcp:") && !word.starts_with("tcp:127.")).then_some((0, "peer"));
        let Some((at, kind)) = host.or_else(peer) else { return word.to_owned() };
        let next = format!("{kind}-{}", self.known.len() + 1);
        let known = self.known.entry(word[at..].to_owned()).or_insert(next);
        format!("{}{known}", &word[..at])
    }
}

/// What looks like a key.
pub fn secrets_in(text: &str) -> Vec<String> {
    let (without, pem) = without_pem(text);
    let mut found = vec![PEM_BEGIN.to_owned(); pem];
    for line in without.split_inclusive('\n') {
        found.extend(words(line).into_iter().filter(|word| key_in(word).is_some()).map(str::to_owned));
        found.extend((without_values(line).1 > 0).then(|| line.trim().to_owned()));
    }
    found
}

/// Where a key begins in a word.
fn key_in(word: &str) -> Option<usize> {
    let known = PREFIXES.iter().filter_map(|prefix| word.find(prefix)).min();
    let is_token = |at: &usize| word[*at..].rsplit('_').next().is_some_and(|last| last.len() >= TOKEN_CHARS_MIN);
    known.or_else(|| word.find(TOKEN).filter(is_token))
}

/// A text with each PEM block cut out, on one line (in JSON) or on many; how many there were.
fn without_pem(text: &str) -> (String, usize) {
    let (mut out, mut rest, mut cut) = (String::with_capacity(text.len()), text, 0);
    while let Some(begin) = rest.find(PEM_BEGIN) {
        out.push_str(&rest[..begin]);
        out.push_str(CUT);
        cut += 1;
        // One without an end is cut to the end of the text.
        let end = rest[begin..].find(PEM_END).map_or(rest.len(), |end| begin + end + PEM_END.len());
        let tail = rest[end..].find("-----").filter(|tail| *tail < PEM_LABEL_MAX);
        rest = &rest[tail.map_or(end, |tail| end + tail + 5)..];
    }
    out.push_str(rest);
    (out, cut)
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

/// A line with the value cut out behind each word that names a secret: `password = "x"`, `"token": "x"`.
fn without_values(line: &str) -> (String, usize) {
    let (mut out, mut rest, mut cut) = (String::new(), line, 0);
    loop {
        let lower = rest.to_ascii_lowercase();
        let found = KEYS.iter().filter_map(|key| Some((lower.find(key)?, key.len()))).min();
        let Some((at, length)) = found else { break };
        let behind = &rest[at + length..];
        let gap = behind.find(|c: char| !"\"' \t:=".contains(c)).unwrap_or(behind.len());
        let says = behind[..gap].contains([':', '=']);
        // Up to the quote that matches, or to what ends a bare value.
        let quote = behind[..gap].chars().next_back().filter(|c| "\"'".contains(*c));
        let ends = |c: char| c == '\n' || quote.map_or(",} \t".contains(c), |quote| c == quote);
        let end = behind[gap..].find(ends).map_or(behind.len(), |end| gap + end);
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
    fn keys_are_found_wherever_they_stand() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMIIabc\ndef\n-----END PRIVATE KEY-----\n";
        for text in [
            "tls_key=NVMeTLSkey-1:01:abc:\n",
            "psk:NVMeTLSkey-1:01:abc:\n",
            "password = \"abc,def\"\n",
            "token: abc def\n",
            &format!("before\n{pem}behind\n"),
            "{\"x\": \"-----BEGIN PRIVATE KEY-----\\nabc\\n-----END PRIVATE KEY-----\\n\"}\n",
        ] {
            let (clean, cut) = Names::new(false).clean(text);
            assert!(cut == 1 && !clean.contains("abc") && !clean.contains(",def"), "{text}: {clean}");
            assert!(!secrets_in(text).is_empty() && secrets_in(&clean).is_empty(), "{text}: {clean}");
        }
        assert!(Names::new(false).clean(&format!("before\n{pem}behind\n")).0.ends_with("\nbehind\n"));
    }

    #[test]
    fn names_of_hosts_are_found_wherever_they_stand() {
        let mut names = Names { machine: Some("storage7".into()), ..Names::new(false) };
        let said = names.clean("hostnqn=nqn.a storage7.example.com tcp:10.0.0.1:44 tcp:127.0.0.1:9\n").0;
        assert_eq!(said, "hostnqn=host-1 this-host.example.com peer-2 tcp:127.0.0.1:9\n");
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
