//! `docs/format.md` says what the code writes: each table covers its structure, and each field lies where it says.
//!
//! A field is found in an image by its value: the samples give every field another one.

mod samples;

use std::fs;

use base::BLOCK_BYTES;
use ondisk::segment::{SEGMENT_BYTES, SLOT_BYTES};
use ondisk::{CUTS_MAX, ENTRIES_MAX, FORMAT_VERSION, NODE_REFS, SHARDS};

const HEADER_BYTES: usize = 768;
const REPLAY_POINTS_AT: usize = 448;
const SETTINGS_AT: usize = 640;
const MEMBER_BYTES: usize = 256;
const VOLUME_BYTES: usize = 384;
const REF_BYTES: usize = 16;
const REPLAY_POINT_BYTES: usize = 12;
const ENTRIES_AT: usize = 256;
const SETTINGS_BYTES: usize = 74;
const SCRUB_BYTES: usize = 28;

/// One line of a table.
#[derive(Debug)]
struct Field {
    offset: usize,
    size: usize,
    name: String,
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    fs::read_to_string(path).expect("the page is part of the repository")
}

/// The offsets table below a heading.
fn table(heading: &str) -> Vec<Field> {
    let page = page();
    let is_heading = |l: &&str| l.starts_with('#');
    let below = page.lines().skip_while(|l| !(is_heading(l) && l.trim_start_matches('#').trim() == heading)).skip(1);
    let fields: Vec<Field> = below
        .take_while(|l| !is_heading(l))
        .skip_while(|l| !l.starts_with("| offset |"))
        .skip(2)
        .take_while(|l| l.starts_with('|'))
        .map(|l| {
            let cells: Vec<&str> = l.split('|').map(str::trim).collect();
            let number = |cell: &str| cell.parse().unwrap_or_else(|_| panic!("{heading}: \"{cell}\" in {l}"));
            Field { offset: number(cells[1]), size: number(cells[2]), name: cells[3].to_owned() }
        })
        .collect();
    assert!(!fields.is_empty(), "format.md has no table \"{heading}\"");
    fields
}

/// The table covers `image` without gaps; reserved fields are zero, the others hold these bytes, and none is left out.
fn check(heading: &str, image: &[u8], expected: &[(&str, Vec<u8>)]) {
    let mut at = 0;
    let mut seen = Vec::new();
    for f in table(heading) {
        assert_eq!(f.offset, at, "{heading}: {} begins where the field before it ends", f.name);
        at += f.size;
        let bytes = &image[f.offset..at];
        if f.name == "reserved" {
            assert!(bytes.iter().all(|b| *b == 0), "{heading}: reserved at {}", f.offset);
            continue;
        }
        let found = expected.iter().find(|(name, _)| *name == f.name);
        let (_, value) = found.unwrap_or_else(|| panic!("{heading}: \"{}\" is in the page, not in the test", f.name));
        assert_eq!(bytes, value, "{heading}: {} at {}", f.name, f.offset);
        seen.push(f.name);
    }
    assert_eq!(at, image.len(), "{heading}: the table covers all of it");
    for (name, _) in expected {
        assert!(seen.iter().any(|s| s == name), "{heading}: \"{name}\" is not in the page");
    }
}

fn text(text: &str, width: usize) -> Vec<u8> {
    let mut field = (text.len() as u16).to_le_bytes().to_vec();
    field.extend(text.as_bytes());
    field.resize(width, 0);
    field
}

fn le2(v: u16) -> Vec<u8> {
    v.to_le_bytes().to_vec()
}

fn le4(v: u32) -> Vec<u8> {
    v.to_le_bytes().to_vec()
}

fn le8(v: u64) -> Vec<u8> {
    v.to_le_bytes().to_vec()
}

fn uuid(v: u128) -> Vec<u8> {
    v.to_be_bytes().to_vec()
}

fn crc(bytes: &[u8]) -> Vec<u8> {
    le4(ondisk::crc32c(bytes))
}

fn filled(mut bytes: Vec<u8>, size: usize) -> Vec<u8> {
    bytes.resize(size, 0);
    bytes
}

#[test]
fn the_page_names_the_version() {
    assert!(page().starts_with(&format!("# Format, version {FORMAT_VERSION}\n")));
}

#[test]
fn label() {
    let image = samples::slice_label().encode();
    let expected = [
        ("checksum", crc(&image[4..])),
        ("magic", b"AshL".to_vec()),
        ("version", le2(FORMAT_VERSION)),
        ("array", uuid(samples::ARRAY)),
        ("member", uuid(0x11)),
        ("seat", le2(3)),
        ("part", vec![5]),
        ("last part", vec![6]),
        ("slot blocks", le4(768)),
        ("zone blocks", le4(1024)),
        ("zones", le4(254)),
        ("drive blocks", le8(1 << 18)),
        ("array name", text("fast", 64)),
        ("partition table", vec![0; 66]),
    ];
    check("Label", &image, &expected);
}

#[test]
fn owner_mark() {
    let image = samples::owner().encode();
    let le16 = |v: u128| v.to_le_bytes().to_vec();
    let expected = [
        ("checksum", crc(&image[4..])),
        ("magic", b"AshO".to_vec()),
        ("version", le2(ondisk::owner::OWNER_VERSION)),
        ("state", vec![2]),
        ("process", le4(95)),
        ("array", uuid(samples::ARRAY)),
        ("session", le16(0x91)),
        ("taken from", le16(0x92)),
        ("machine", le16(0x93)),
        ("boot", le16(0x94)),
        ("started", le8(96)),
        ("process namespace", le8(97)),
        ("clock namespace", le8(98)),
        ("beat", le8(99)),
        ("since", le8(100)),
        ("reservation key", le8(101)),
        ("host name", text("rack-7", 72)),
    ];
    check("Owner mark", &image, &expected);
}

fn generation() -> Vec<u8> {
    samples::generation().encode()
}

#[test]
fn generation_header() {
    let image = generation();
    let columns = 4 + 3;
    let total = HEADER_BYTES + 4 * MEMBER_BYTES + 2 * VOLUME_BYTES + 2 * SEGMENT_BYTES + columns * SLOT_BYTES;
    let ancestors: Vec<u8> = [76u128, 75].iter().flat_map(|id| id.to_le_bytes()).collect();
    let expected = [
        ("checksum", crc(&image[4..total])),
        ("magic", b"AshG".to_vec()),
        ("version", le2(FORMAT_VERSION)),
        ("flags", le2(3)),
        ("total bytes", le4(total as u32)),
        ("array", uuid(samples::ARRAY)),
        ("number", le8(41)),
        ("id", 0x00aa_00bb_00cc_00dd_00ee_00ff_0011_0022u128.to_le_bytes().to_vec()),
        ("written at", le8(1_700_000_000)),
        ("epoch", le4(6)),
        ("ancestor count", vec![2]),
        ("width", vec![4]),
        ("level", vec![10, 2]),
        ("compatible", le8(4)),
        ("read-only compatible", le8(8)),
        ("incompatible", le8(0)),
        ("zone blocks", le4(1024)),
        ("usable", le2(850)),
        ("member count", le2(4)),
        ("volume count", le4(2)),
        ("segment count", le4(2)),
        ("next segment", le8(12)),
        ("next volume", le4(5)),
        ("name", text("fast", 64)),
        ("ancestors", filled(ancestors, 256)),
        ("settings", image[SETTINGS_AT..SETTINGS_AT + SETTINGS_BYTES].to_vec()),
        ("replay points", image[REPLAY_POINTS_AT..SETTINGS_AT].to_vec()),
    ];
    check("Generation header", &image[..HEADER_BYTES], &expected);
    assert_eq!(image.len(), total.next_multiple_of(BLOCK_BYTES));
    assert!(image[total..].iter().all(|b| *b == 0));
}

#[test]
fn replay_points() {
    let image = generation();
    for shard in 0..SHARDS {
        let at = REPLAY_POINTS_AT + shard * REPLAY_POINT_BYTES;
        let expected = [("epoch", le4(6)), ("sequence", le8(1000 + shard as u64))];
        check("Replay point", &image[at..at + REPLAY_POINT_BYTES], &expected);
    }
}

#[test]
fn settings() {
    let image = generation();
    let lines = [SETTINGS_AT + 16, SETTINGS_AT + 16 + SCRUB_BYTES];
    let expected = [
        ("rebuild bytes", le8(200_000_000)),
        ("scrub bytes", le8(100_000_000)),
        ("media scrub", image[lines[0]..lines[0] + SCRUB_BYTES].to_vec()),
        ("parity scrub", image[lines[1]..lines[1] + SCRUB_BYTES].to_vec()),
        ("rebuild rate", vec![4]),
        ("rebuild paused", vec![1]),
    ];
    check("Settings", &image[SETTINGS_AT..SETTINGS_AT + SETTINGS_BYTES], &expected);
    let lines_say = [(168, 9, 1_700_000_001, 1_690_000_000), (720, 0, 1_680_000_000, 1_680_000_009)];
    for (at, (every, position, started, finished)) in lines.into_iter().zip(lines_say) {
        let expected = [
            ("position", le8(position)),
            ("started at", le8(started)),
            ("finished at", le8(finished)),
            ("every", le4(every)),
        ];
        check("Scrub", &image[at..at + SCRUB_BYTES], &expected);
    }
}

#[test]
fn member_lines() {
    let mut generation = samples::generation();
    generation.members[1].gone_since = base::Generation(70);
    generation.members[1].why_out = ondisk::WhyOut::Failed;
    let image = generation.encode();
    for n in 1..=4u8 {
        let at = HEADER_BYTES + usize::from(n - 1) * MEMBER_BYTES;
        let expected = [
            ("member", uuid(0x20 + u128::from(n))),
            ("drive blocks", le8((1 << 18) + u64::from(n))),
            ("zones", le4(254)),
            ("bay", le2(40 + u16::from(n))),
            ("state", vec![n]),
            ("leaving", vec![u8::from(n == 1)]),
            ("gone since", le8(if n == 2 { 70 } else { 0 })),
            ("why out", vec![if n == 2 { 2 } else { 0 }]),
            ("drive name", text(&format!("SN-{n}"), 160)),
        ];
        check("Member line", &image[at..at + MEMBER_BYTES], &expected);
    }
}

#[test]
fn volume_lines() {
    let image = samples::with_notebook().encode();
    let mut roots = vec![0; SHARDS * REF_BYTES];
    roots[..REF_BYTES].copy_from_slice(&[9, 0, 0, 0, 0, 1, 0, 0, 77, 0, 0, 0, 0xdd, 0xcc, 0xbb, 0xaa]);
    roots[REF_BYTES + 5] = 2;
    roots[15 * REF_BYTES + 5] = 3;
    for (i, id, name, state, height, cursor, kind) in [(0, 2, "db", 1, 2, 0, 1), (1, 4, "old", 2, 3, 512, 0)] {
        let at = HEADER_BYTES + 4 * MEMBER_BYTES + i * VOLUME_BYTES;
        let expected = [
            ("id", le4(id)),
            ("height", vec![height]),
            ("state", vec![state]),
            ("kind", vec![kind]),
            ("uuid", uuid(0x30 + u128::from(id))),
            ("blocks", le8(1 << 28)),
            ("mapped blocks", le8(4242)),
            ("cursor", le8(cursor)),
            ("name", text(name, 64)),
            ("roots", roots.clone()),
            ("bytes per second", le8(1 << 30)),
            ("iops", le4(5000)),
            ("burst", le4(2500)),
        ];
        check("Volume line", &image[at..at + VOLUME_BYTES], &expected);
    }
}

#[test]
fn segment_lines_cuts_and_slots() {
    let image = generation();
    let first = HEADER_BYTES + 4 * MEMBER_BYTES + 2 * VOLUME_BYTES;
    let second = first + SEGMENT_BYTES + 4 * SLOT_BYTES;
    let cuts: Vec<u8> = [16u32, 3, 32, 5].iter().flat_map(|v| v.to_le_bytes()).collect();
    let expected = [
        ("id", le8(9)),
        ("scheme", vec![2, 2, 2]),
        ("state", vec![2]),
        ("live", le4(99)),
        ("rows", le4(100)),
        ("replay row", le4(64)),
        ("cut count", vec![2]),
        ("cuts", filled(cuts, CUTS_MAX * 8)),
    ];
    check("Segment line", &image[first..first + SEGMENT_BYTES], &expected);
    let expected = [
        ("id", le8(11)),
        ("scheme", vec![1, 2, 1]),
        ("state", vec![3]),
        ("live", le4(1)),
        ("rows", le4(1024)),
        ("replay row", le4(u32::MAX)),
        ("cut count", vec![0]),
        ("cuts", vec![0; CUTS_MAX * 8]),
    ];
    check("Segment line", &image[second..second + SEGMENT_BYTES], &expected);
    let cut = &image[first + 32 + 8..][..8];
    check("Cut", cut, &[("row", le4(32)), ("epoch", le4(5))]);
    let slot = |i: usize| &image[first + SEGMENT_BYTES + i * SLOT_BYTES..][..SLOT_BYTES];
    check("Slot", slot(1), &[("member", le2(1)), ("zone", le4(2))]);
    check("Slot", slot(3), &[("member", le2(u16::MAX)), ("zone", le4(u32::MAX))]);
}

fn record() -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    samples::record().encode(&mut block);
    block
}

#[test]
fn record_header() {
    let image = record();
    let expected = [
        ("checksum", crc(&image[4..])),
        ("magic", b"AshR".to_vec()),
        ("version", le2(FORMAT_VERSION)),
        ("flags", le2(0)),
        ("array", uuid(samples::ARRAY)),
        ("segment", le8(17)),
        ("row", le4(33)),
        ("epoch", le4(2)),
        ("generation", le8(9)),
        ("first sequence", le8(1000)),
        ("durable row", le4(31)),
        ("rows", le4(2)),
        ("k", le2(3)),
        ("entry count", le2(8)),
        ("payload blocks", le2(5)),
        ("log", vec![0]),
        ("entries", image[ENTRIES_AT..].to_vec()),
    ];
    check("Record header", &image, &expected);
    assert_eq!(BLOCK_BYTES - ENTRIES_AT, ENTRIES_MAX * 16);
}

#[test]
fn entries() {
    let image = record();
    // Value, lba, kind, aux.
    let lines: [(u32, u64, u8, u8); 6] = [
        (0x1111_1111, 0x0605_0403_0201, 1, 0),
        (0x2222_2222, 2, 2, 0),
        (4, 3, 3, 255),
        (1, 9, 4, 15),
        (2, 10, 5, 0),
        (0x3333_3333, 256, 6, 1),
    ];
    for (i, (value, lba, kind, aux)) in lines.into_iter().enumerate() {
        let expected = [
            ("value", le4(value)),
            ("volume", le4(7)),
            ("lba", lba.to_le_bytes()[..6].to_vec()),
            ("kind", vec![kind]),
            ("aux", vec![aux]),
        ];
        check("Entry", &image[ENTRIES_AT + i * 16..][..16], &expected);
    }
    let pad = &image[ENTRIES_AT + 6 * 16..][..16];
    assert_eq!(pad[14], 7);
    assert!(pad.iter().enumerate().all(|(i, b)| i == 14 || *b == 0));
}

#[test]
fn references() {
    let mut image = vec![0; BLOCK_BYTES];
    samples::node().encode(&mut image);
    assert_eq!(image.len(), NODE_REFS * REF_BYTES);
    let lines: [(usize, u64, u8, u32, u32); 4] =
        [(0, 0, 0, 0, 0), (1, 0x05_0403_0201, 1, 0x0a0b_0c0d, 0xdead_beef), (2, 0, 2, 0, 0), (3, 0, 3, 0, 0)];
    for (slot, segment, kind, block, crc) in lines {
        let expected = [
            ("segment", segment.to_le_bytes()[..5].to_vec()),
            ("kind", vec![kind]),
            ("block", le4(block)),
            ("crc", le4(crc)),
        ];
        check("Reference", &image[slot * REF_BYTES..][..REF_BYTES], &expected);
    }
}
