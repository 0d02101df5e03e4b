//! The order of the crate's rooms, read from its sources: which room knows which, and which may not any more.
//!
//! A room is a folder of `src`, or a file beside `lib.rs`. It knows another when it names a path of it, or asks the composer
//! (`rooms.rs`) for it. `rooms.txt` lists what is known today. What is not in the list fails; what is in the list and not in the
//! sources fails too, so that the list gets shorter: `ASHLAR_RENEW_ROOMS=1` takes such lines out, and adds none. No room knows
//! itself by way of others.

#![allow(clippy::disallowed_methods)]

mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sources::Sources;

const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tidy/rooms.txt");

/// Lines of a file, at most.
const LINES_MAX: usize = 600;

/// Fields of a type, at most.
const FIELDS_MAX: usize = 12;

/// Catch-all arms (`_ =>`) in the crate, at most: matches on own enums name all of their variants.
const CATCH_ALL_MAX: usize = 24;

fn list() -> BTreeSet<String> {
    let text = fs::read_to_string(LIST).expect("the list is there");
    text.lines().filter(|line| line.contains("->")).map(str::to_owned).collect()
}

#[test]
fn rooms_know_no_more_than_is_listed() {
    let sources = Sources::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    let edges = sources.edges();
    let listed = list();
    let new: Vec<&String> = edges.difference(&listed).collect();
    assert!(
        new.is_empty(),
        "rooms know rooms that they did not know: {new:#?}\nuse what is below, or say why in {LIST}"
    );
    let gone: Vec<&String> = listed.difference(&edges).collect();
    if !gone.is_empty() && std::env::var_os("ASHLAR_RENEW_ROOMS").is_some() {
        let left: String = listed.intersection(&edges).map(|line| format!("{line}\n")).collect();
        fs::write(LIST, left).expect("the list can be written");
        return;
    }
    assert!(gone.is_empty(), "take out of {LIST} (or run with ASHLAR_RENEW_ROOMS=1): {gone:#?}");
    println!("{} edges between {} rooms", edges.len(), sources.rooms().len());
    assert_eq!(sources.in_circles(), Vec::<&str>::new(), "these rooms know themselves by way of others");
}

#[test]
fn state_is_its_owners() {
    let sources = Sources::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    for t in sources.types() {
        // What a drive holds has as many fields as there is to tell.
        let told = t.file == "offline/inspect.rs";
        assert!(told || t.fields.len() <= FIELDS_MAX, "{}: {} has {} fields", t.file, t.name, t.fields.len());
        let shown = t.fields.iter().filter(|f| f.starts_with("pub ") || f.starts_with("pub(crate)"));
        let cells: Vec<_> = shown.filter(|field| field.contains("Cell<")).collect();
        assert!(cells.is_empty(), "{}: {}: others can write {cells:?}; give a verb", t.file, t.name);
    }
    let getters = sources.lines_with(&["-> &Cell<", "-> &RefCell<", "-> RefMut<"]);
    assert!(getters.is_empty(), "a getter hands out a cell: {getters:#?}");
}

#[test]
fn files_are_short() {
    let sources = Sources::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    for (name, lines) in sources.lengths() {
        assert!(lines <= LINES_MAX, "{name} has {lines} lines; {LINES_MAX} are allowed: split it by concern");
    }
}

#[test]
fn matches_name_their_variants() {
    let sources = Sources::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    let found = sources.count("_ =>");
    assert!(found <= CATCH_ALL_MAX, "{found} arms are `_ =>`, at most {CATCH_ALL_MAX} are allowed: name the variants");
}
