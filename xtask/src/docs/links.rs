//! Every link of every page leads somewhere, and so does every `docs/...` that a source file names.
//!
//! Looks at relative links and their anchors; not at addresses of the web.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::root;

/// What a path is made of, where a text names one.
const PATH_CHARS: &str = "./-_";
/// Files that may name a page.
const SOURCES: [&str; 8] = ["rs", "md", "toml", "service", "sh", "py", "txt", "html"];

/// All files of the repository with one of these endings.
pub fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut all = vec![];
    let mut below = vec![root()];
    while let Some(dir) = below.pop() {
        for entry in fs::read_dir(&dir).expect("a directory of the repository").map_while(Result::ok) {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type().expect("its type");
            if kind.is_dir() && !name.starts_with('.') && name != "target" {
                below.push(path);
            } else if kind.is_file() && endings.iter().any(|e| path.extension().is_some_and(|x| x == *e)) {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

/// The lines of a page that are not in a fenced block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The anchors that GitHub gives to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for heading in prose(text).filter(|l| l.starts_with('#')) {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let slug: String = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let times = seen.entry(slug.clone()).or_default();
        all.insert(if *times == 0 { slug } else { format!("{slug}-{times}") });
        *times += 1;
    }
    all
}

/// The targets of the links of a page.
fn links(text: &str) -> Vec<&str> {
    prose(text)
        .flat_map(|line| line.match_indices("](").map(|(at, _)| &line[at + 2..]))
        .filter_map(|rest| rest.split(')').next())
        .collect()
}

/// What is wrong with one link of `page`.
fn broken(page: &Path, text: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { page.to_owned() } else { page.parent()?.join(file) };
    if !target.exists() {
        return Some(format!("{link}: there is no such file"));
    }
    let anchor = anchor?;
    let there = if file.is_empty() { text.to_owned() } else { fs::read_to_string(&target).unwrap_or_default() };
    (!anchors(&there).contains(anchor)).then(|| format!("{link}: the page has no such heading"))
}

/// The paths below `docs/` that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || PATH_CHARS.contains(c);
    text.split(|c| !is_path(c))
        .map(|word| word.trim_start_matches("../").trim_start_matches('/').trim_start_matches("../"))
        .filter(|word| word.starts_with("docs/"))
        .map(|word| word.trim_end_matches(['.', '-']).to_owned())
        .collect()
}

pub fn shown(path: &Path) -> String {
    let parts = path.strip_prefix(root()).unwrap_or(path).components();
    parts.filter(|c| matches!(c, Component::Normal(_))).collect::<PathBuf>().display().to_string()
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = vec![];
    for page in files(&["md"]) {
        let text = fs::read_to_string(&page).expect("a page is text");
        let found = links(&text).into_iter().filter_map(|link| broken(&page, &text, link));
        wrong.extend(found.map(|why| format!("{}: {why}", shown(&page))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_that_is_named_is_there() {
    let mut wrong = vec![];
    for file in files(&SOURCES) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let missing = named(&text).into_iter().filter(|path| !root().join(path).exists());
        wrong.extend(missing.map(|path| format!("{}: {path}", shown(&file))));
    }
    assert!(wrong.is_empty(), "no such page:\n{}", wrong.join("\n"));
}

#[test]
fn every_page_is_reached_from_the_readme() {
    let (mut seen, mut next) = (BTreeSet::new(), vec![root().join("README.md")]);
    while let Some(page) = next.pop() {
        let Ok(page) = page.canonicalize() else { continue };
        if !seen.insert(page.clone()) || page.extension().is_none_or(|e| e != "md") {
            continue;
        }
        let text = fs::read_to_string(&page).expect("a page is text");
        let dir = page.parent().expect("it lies somewhere");
        next.extend(links(&text).into_iter().filter_map(|l| l.split('#').next()).map(|l| dir.join(l)));
    }
    let pages = files(&["md"]).into_iter().filter(|p| shown(p).starts_with("docs/"));
    let lost: Vec<String> =
        pages.filter(|p| !seen.contains(&p.canonicalize().expect("it is there"))).map(|p| shown(&p)).collect();
    assert!(lost.is_empty(), "no link leads to {}", lost.join(", "));
}

#[test]
fn headings_have_the_anchors_of_github() {
    let page = "# In use elsewhere\n```sh\n# no heading\n```\n## `--io`, and why\n## In use elsewhere\n";
    let found: Vec<String> = anchors(page).into_iter().collect();
    assert_eq!(found, ["--io-and-why", "in-use-elsewhere", "in-use-elsewhere-1"]);
}

#[test]
fn a_link_that_leads_nowhere_is_noticed() {
    let page = root().join("README.md");
    let is_broken = |text: &str| links(text).into_iter().any(|link| broken(&page, text, link).is_some());
    assert!(is_broken("see [x](nothing.md)"));
    assert!(is_broken("# A\n[x](#b)"));
    assert!(!is_broken("# A\n[x](#a), [y](LICENSE), [z](https://nowhere.invalid)"));
    assert_eq!(named("(see `../../docs/format.md`, and docs/adr/.)").len(), 2);
}
