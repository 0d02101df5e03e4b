//! The sources of the crate as text, without their tests, and what they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// One file.
struct File {
    /// Its path below `src`.
    name: String,
    /// Its text, without comments, up to its tests.
    text: String,
    lines: usize,
}

/// A type with named fields.
pub struct Type<'a> {
    /// The file that it is in.
    pub file: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its fields as they are written, with their visibility.
    pub fields: Vec<&'a str>,
}

/// All files.
pub struct Sources(Vec<File>);

impl Sources {
    pub fn read(src: &Path) -> Sources {
        let mut files = Vec::new();
        let mut folders = vec![src.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("sources can be read").flatten() {
                let path: PathBuf = entry.path();
                if path.is_dir() {
                    folders.extend((!path.ends_with("tests")).then_some(path));
                } else if path.extension().is_some_and(|e| e == "rs") {
                    let all = fs::read_to_string(&path).expect("sources can be read");
                    let code = all.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
                    let is_code = |line: &&str| !line.trim_start().starts_with("//");
                    let text = code.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect();
                    let name = path.strip_prefix(src).expect("it is below").display().to_string();
                    files.push(File { name, text, lines: all.lines().count() });
                }
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Sources(files)
    }

    pub fn lengths(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|f| (f.name.as_str(), f.lines))
    }

    pub fn count(&self, what: &str) -> usize {
        self.0.iter().map(|f| f.text.matches(what).count()).sum()
    }

    /// The lines that hold one of `marks`, with their files.
    pub fn lines_with(&self, marks: &[&str]) -> Vec<String> {
        let of = |f: &File| -> Vec<String> {
            let has = |line: &&str| marks.iter().any(|mark| line.contains(mark));
            f.text.lines().filter(has).map(|line| format!("{}: {}", f.name, line.trim())).collect()
        };
        self.0.iter().flat_map(of).collect()
    }

    pub fn rooms(&self) -> BTreeSet<&str> {
        self.0.iter().map(|f| room(&f.name)).filter(|r| *r != "lib").collect()
    }

    /// All types with named fields.
    pub fn types(&self) -> Vec<Type<'_>> {
        self.0.iter().flat_map(|f| types(&f.name, &f.text)).collect()
    }

    /// Which room knows which, as "one -> another": it names a path of it, or asks the composer for it.
    pub fn edges(&self) -> BTreeSet<String> {
        let rooms = self.rooms();
        let given = self.given_by_composer();
        let mut edges = BTreeSet::new();
        for file in &self.0 {
            let from = room(&file.name);
            let mut known: BTreeSet<&str> = names_after(&file.text, "crate::").collect();
            // A chain may go on in the next line.
            let asked = ["rooms.", "rooms\n"].into_iter().flat_map(|mark| names_after(&file.text, mark));
            known.extend(asked.filter_map(|name| given.get(name)));
            let others = known.into_iter().filter(|to| *to != from && rooms.contains(to) && from != "lib");
            edges.extend(others.map(|to| format!("{from} -> {to}")));
        }
        edges
    }

    /// Rooms from which a way of edges leads back to them.
    pub fn in_circles(&self) -> Vec<&str> {
        let edges = self.edges();
        let pairs: Vec<(&str, &str)> = edges.iter().filter_map(|e| e.split_once(" -> ")).collect();
        let comes_back = |start: &&str| {
            let mut reached: BTreeSet<&str> = BTreeSet::new();
            let mut next = vec![*start];
            while let Some(at) = next.pop() {
                for (_, to) in pairs.iter().filter(|(from, _)| *from == at) {
                    if reached.insert(to) {
                        next.push(to);
                    }
                }
            }
            reached.contains(start)
        };
        self.rooms().into_iter().filter(comes_back).collect()
    }

    /// What the composer gives by a method, and the room whose it is.
    fn given_by_composer(&self) -> BTreeMap<&str, &str> {
        let text = &self.0.iter().find(|f| f.name == "rooms.rs").expect("the composer is there").text;
        let room_of = |type_name: &str| {
            let uses = text.lines().filter_map(|line| line.strip_prefix("use crate::"));
            let names = |line: &&str| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == type_name);
            uses.into_iter().find(names).and_then(|line| line.split(':').next())
        };
        let methods = text.split("pub fn ").filter_map(|rest| {
            let (name, rest) = rest.split_once("(&self) -> &")?;
            let given = rest.trim_start_matches("Rc<");
            let end = given.find(|c: char| !c.is_alphanumeric())?;
            Some((name, room_of(&given[..end])?))
        });
        methods.collect()
    }
}

fn types<'a>(file: &'a str, text: &'a str) -> Vec<Type<'a>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = text[at..].find("struct ").map(|i| at + i + "struct ".len()) {
        at = begin;
        let name = &text[begin..begin + text[begin..].find(|c: char| !c.is_alphanumeric()).unwrap_or(0)];
        let Some(open) = text[begin..].find(['{', ';', '(']).map(|i| begin + i) else { break };
        let rest = &text[open..];
        let (close, fields) = if rest.starts_with('{') {
            let close = rest.find("\n}").unwrap_or(rest.len());
            let is_field = |line: &&str| line.contains(": ") && !line.starts_with("        ") && !line.contains("#[");
            (close, rest[1..close].lines().filter(is_field).map(str::trim).collect())
        } else if rest.starts_with('(') {
            let close = rest.find(");").unwrap_or(rest.len());
            (close, rest[1..close].split(", ").map(str::trim).collect())
        } else {
            continue;
        };
        found.push(Type { file, name, fields });
        at = open + close;
    }
    found
}

#[test]
fn types_without_field_names_are_looked_at() {
    let found = types("a.rs", "pub struct A(pub RefCell<u8>, u8);\nstruct B;\nstruct C {\n    c: u8,\n}\n");
    let fields: Vec<_> = found.iter().map(|t| (t.name, t.fields.clone())).collect();
    assert_eq!(fields, [("A", vec!["pub RefCell<u8>", "u8"]), ("C", vec!["c: u8,"])]);
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
}

/// The names that stand right behind each `mark`, with space and a dot between them at most.
fn names_after<'a>(text: &'a str, mark: &'static str) -> impl Iterator<Item = &'a str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(mark).skip(1).map(move |rest| {
        let rest = if mark.ends_with('\n') { rest.trim_start().trim_start_matches('.') } else { rest };
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        &rest[..end]
    })
}
