//! The sources of the crate as text, without their tests, and what they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Fields of `Core`, or of what holds the rooms, and the rooms whose state they are.
const STATE: [(&str, &str); 12] = [
    ("ctx", "ctx"),
    ("members", "member"),
    ("segments", "space"),
    ("pins", "space"),
    ("room", "space"),
    ("hedges", "row"),
    ("log", "log"),
    ("memory", "map"),
    ("nodes", "map"),
    ("system", "generation"),
    ("volumes", "volume"),
    ("jobs", "jobs"),
];

/// One file.
struct File {
    /// Its path below `src`.
    name: String,
    /// Its text, up to its tests.
    text: String,
    lines: usize,
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
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "rs") {
                    let all = fs::read_to_string(&path).expect("sources can be read");
                    let text = all.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
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

    pub fn rooms(&self) -> BTreeSet<&str> {
        self.0.iter().map(|f| room(&f.name)).filter(|r| *r != "lib").collect()
    }

    /// Which room knows which, as "one -> another".
    pub fn edges(&self) -> BTreeSet<String> {
        let rooms = self.rooms();
        let methods = self.methods_of_core();
        let mut edges = BTreeSet::new();
        for file in &self.0 {
            let from = room(&file.name);
            let mut known: BTreeSet<&str> = names_after(&file.text, "crate::").collect();
            let receivers = receivers(&file.text);
            for name in receivers.iter().flat_map(|r| names_after(&file.text, r)) {
                known.extend(methods.get(name).copied());
                known.extend(STATE.iter().find(|(field, _)| *field == name).map(|(_, room)| *room));
            }
            let others = known.into_iter().filter(|to| *to != from && rooms.contains(to) && from != "lib");
            edges.extend(others.map(|to| format!("{from} -> {to}")));
        }
        edges
    }

    /// Rooms from which a way of edges leads back to them.
    pub fn in_circles(&self) -> usize {
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
        self.rooms().iter().filter(|r| comes_back(r)).count()
    }

    /// The methods that `impl Core` blocks give, and the room that each block is in.
    fn methods_of_core(&self) -> BTreeMap<&str, &str> {
        let mut methods = BTreeMap::new();
        for file in &self.0 {
            for block in file.text.split("\nimpl Core {").skip(1) {
                let block = block.split("\n}\n").next().unwrap_or_default();
                methods.extend(names_after(block, " fn ").map(|name| (name, room(&file.name))));
            }
        }
        methods
    }
}

/// What a file calls `Core`: `core.`, and `self.` where it is one.
fn receivers(text: &str) -> Vec<&'static str> {
    let own = text.contains("\nimpl Core {");
    ["core."].into_iter().chain(own.then_some("self.")).collect()
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
}

/// The names that stand right behind each `mark`.
fn names_after<'a>(text: &'a str, mark: &str) -> impl Iterator<Item = &'a str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(mark.to_owned().leak() as &str).skip(1).map(move |rest| {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        &rest[..end]
    })
}
