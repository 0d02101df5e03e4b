//! Pages name tests and planted bugs as they are.

use std::collections::BTreeSet;
use std::fs;

use super::links::{files, shown};
use super::root;

/// Pages that say which test holds what.
const PAGES: [&str; 4] =
    ["docs/internals/rules.md", "docs/internals/fault-model.md", "docs/internals/testing.md", "docs/specification.md"];

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What stands between backticks, in one line.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Whether it is the name of a test: three words or more.
fn is_test(word: &str) -> bool {
    word.split('_').count() > 2 && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn is_planted_bug(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().all(|c| c.is_ascii_alphanumeric())
}

#[test]
fn tests_that_pages_name_are_there() {
    let mut tests = BTreeSet::new();
    for file in files(&["rs"]) {
        let text = fs::read_to_string(file).unwrap_or_default();
        let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<', ' ']).next());
        tests.extend(names.map(str::to_owned));
    }
    for page in PAGES {
        let text = read(page);
        let paths = code(&text).map(|word| word.rsplit("::").next().unwrap_or(word));
        let missing: BTreeSet<&str> = paths.filter(|name| is_test(name) && !tests.contains(*name)).collect();
        assert!(missing.is_empty(), "{page} names tests that are not there: {missing:?}");
    }
}

/// What a page may call a file: the end of its path, also without `crates/` and `src/`.
fn ends_of(file: &str) -> impl Iterator<Item = String> {
    let short = file.strip_prefix("crates/").unwrap_or(file).replacen("/src/", "/", 1);
    [file.to_owned(), short].into_iter().map(|path| format!("/{path}"))
}

#[test]
fn source_files_that_pages_name_are_there() {
    let sources: Vec<String> =
        files(&["rs"]).iter().flat_map(|file| ends_of(&shown(file)).collect::<Vec<_>>()).collect();
    let mut wrong = vec![];
    for page in files(&["md"]) {
        // The notebook says what was tried, with the files of then.
        let name = shown(&page);
        if !name.starts_with("docs/") || name.starts_with("docs/notebook/") {
            continue;
        }
        let text = fs::read_to_string(&page).expect("a page is text");
        let named = code(&text).filter(|word| word.ends_with(".rs") && !word.contains(['*', ' ']));
        let missing = named.filter(|word| !sources.iter().any(|file| file.ends_with(&format!("/{word}"))));
        wrong.extend(missing.map(|word| format!("{name}: {word}")));
    }
    assert!(wrong.is_empty(), "no such file:\n{}", wrong.join("\n"));
}

#[test]
fn every_planted_bug_is_in_the_rules() {
    let source = read("crates/array/src/canary.rs");
    let planted: BTreeSet<&str> = source
        .lines()
        .skip_while(|l| !l.starts_with("canaries! {"))
        .take_while(|l| *l != "}")
        .filter_map(|l| l.trim().strip_suffix(',').filter(|name| is_planted_bug(name)))
        .collect();
    let page = read(PAGES[0]);
    let named: BTreeSet<&str> = code(&page).filter(|word| is_planted_bug(word)).collect();
    let difference: Vec<&&str> = planted.symmetric_difference(&named).collect();
    assert!(difference.is_empty(), "in one of canary.rs and {} alone: {difference:?}", PAGES[0]);
    let count = format!("{} planted bugs", planted.len());
    assert!(read("README.md").contains(&count), "README.md does not say \"{count}\"");
}
