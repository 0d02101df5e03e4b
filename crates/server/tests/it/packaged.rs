//! The configuration that the package installs: every key is in it, in a comment, and all of it is valid.

use std::collections::BTreeSet;

use server::config::Config;

use crate::reference_doc::valid_keys;

const PACKAGED: &str = include_str!("../../../../package/ashlar.toml");

/// The file as it is when every key is set.
fn all_set() -> String {
    let is_key = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[');
    let line = |line: &str| line.strip_prefix('#').filter(|rest| is_key(rest)).unwrap_or(line).to_owned();
    PACKAGED.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The keys of a table of this kind, wherever one is.
fn keys(value: &toml::Table) -> BTreeSet<String> {
    value.keys().cloned().collect()
}

#[test]
fn it_sets_nothing_and_its_keys_are_valid() {
    let config: Config = toml::from_str(PACKAGED).unwrap();
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ashlar.toml");
    std::fs::write(&path, all_set()).unwrap();
    Config::read(&path).unwrap_or_else(|problem| panic!("{problem}"));
}

#[test]
fn it_has_every_key() {
    let table: toml::Table = toml::from_str(&all_set()).unwrap();
    assert_eq!(keys(&table), valid_keys("unknown_key = 1"));
    let api = table["api"].as_table().unwrap();
    assert_eq!(keys(api), valid_keys("[api]\nunknown_key = 1"));
    let hook = table["hook"][0].as_table().unwrap();
    assert_eq!(keys(hook), valid_keys("[[hook]]\nunknown_key = 1"));
    let array = table["array"][0].as_table().unwrap();
    assert_eq!(keys(array), valid_keys("[[array]]\nunknown_key = 1"));
    let volume = array["volume"][0].as_table().unwrap();
    let known = valid_keys("[[array]]\nname = \"a\"\n[[array.volume]]\nunknown_key = 1");
    assert_eq!(keys(volume), known);
}
