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

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/architecture.md");
const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tidy/rooms.txt");

/// Files of all crates that are there since an array or a server may use more than one core.
const CORES: &str = include_str!("cores.txt");

/// Their lines, at most: what is new between cores replaces something.
const CORES_LINES_MAX: usize = 6_320;

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

/// The page that developers begin with lists the rooms in the order in which they know each other.
#[test]
fn the_page_lists_rooms_in_their_order() {
    let page = fs::read_to_string(PAGE).expect("the page is there");
    let rows = page.lines().skip_while(|line| *line != "| room | its type | what it is |").skip(2);
    let names = rows.take_while(|line| line.starts_with('|')).flat_map(|line| {
        let cell = line.split('|').nth(1).unwrap_or_default();
        cell.split(',').map(|name| name.trim().trim_matches('`').to_owned()).collect::<Vec<_>>()
    });
    let order: Vec<String> = names.collect();
    let at = |room: &str| order.iter().position(|name| name == room);
    for edge in list() {
        let (from, to) = edge.split_once(" -> ").expect("an edge");
        let (from, to) = (at(from.trim()), at(to.trim()));
        assert!(from.is_some() && to.is_some(), "{PAGE} lacks a room of \"{edge}\"");
        assert!(to < from || from == to, "{PAGE} lists a room before one that it knows: {edge}");
    }
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
fn what_is_between_cores_does_not_grow() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lines = CORES.lines().map(|name| match fs::read_to_string(root.join(name)) {
        Ok(text) => text.lines().count(),
        Err(e) => panic!("cores.txt: {name}: {e}"),
    });
    let lines: usize = lines.sum();
    println!("{lines} lines in {} files", CORES.lines().count());
    assert!(lines <= CORES_LINES_MAX, "{lines} lines serve more than one core; {CORES_LINES_MAX} are allowed");
}

#[test]
fn matches_name_their_variants() {
    let sources = Sources::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    let found = sources.count("_ =>");
    assert!(found <= CATCH_ALL_MAX, "{found} arms are `_ =>`, at most {CATCH_ALL_MAX} are allowed: name the variants");
}
