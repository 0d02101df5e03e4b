//! The format holds still: frozen bytes decode to the values they were made from, and these encode to the same bytes.
//!
//! An image is never changed. Another layout is another [`FORMAT_VERSION`], with images of its own.

mod samples;

use std::fs;
use std::path::PathBuf;

use base::BLOCK_BYTES;
use ondisk::{FORMAT_VERSION, Generation, Label, Node, OwnerMark, RecordHeader, crc32c};

fn path(name: &str) -> PathBuf {
    let file = format!("{name}-v{FORMAT_VERSION}.bin");
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

fn golden(name: &str) -> Vec<u8> {
    let path = path(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; a new version wants new images", path.display()))
}

fn block(encode: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    encode(&mut block);
    block
}

/// Every image, as the code writes it now.
fn encoded() -> [(&'static str, Vec<u8>); 7] {
    [
        ("owner", samples::owner().encode()),
        ("label", samples::label().encode()),
        ("slice-label", samples::slice_label().encode()),
        ("generation", samples::generation().encode()),
        ("generation-notebook", samples::with_notebook().encode()),
        ("record", block(|b| samples::record().encode(b))),
        ("node", block(|b| _ = samples::node().encode(b))),
    ]
}

/// The first difference, instead of two pages of bytes.
fn assert_same(name: &str, now: &[u8], frozen: &[u8]) {
    assert_eq!(now.len(), frozen.len(), "{name}: length");
    if let Some(at) = (0..now.len()).find(|&i| now[i] != frozen[i]) {
        panic!(
            "{name}: byte {at} is {:#04x}, frozen as {:#04x}: the format changed without a new version",
            now[at], frozen[at]
        );
    }
}

#[test]
fn encoding_gives_the_frozen_bytes() {
    for (name, now) in encoded() {
        assert_same(name, &now, &golden(name));
    }
}

#[test]
fn frozen_bytes_decode_to_what_they_were_made_from() {
    assert_eq!(OwnerMark::decode(&golden("owner")), Ok(samples::owner()));
    assert_eq!(Label::decode(&golden("label")), Ok(samples::label()));
    assert_eq!(Label::decode(&golden("slice-label")), Ok(samples::slice_label()));
    assert_eq!(Generation::decode(&golden("generation")), Ok(samples::generation()));
    assert_eq!(Generation::decode(&golden("generation-notebook")), Ok(samples::with_notebook()));
    assert_eq!(RecordHeader::decode(&golden("record")), Ok(samples::record()));
    assert_eq!(Node::decode(&golden("node")), Ok(samples::node()));
}

/// A node has no checksum of its own: its parent holds this one.
#[test]
fn the_frozen_node_has_its_checksum() {
    let mut block = vec![0; BLOCK_BYTES];
    assert_eq!(samples::node().encode(&mut block), crc32c(&golden("node")));
}

/// Makes the images of a new version; never touches one that is there.
#[test]
#[ignore = "by hand, once for each version"]
fn freeze_missing_images() {
    for (name, image) in encoded() {
        if !path(name).exists() {
            fs::write(path(name), image).unwrap();
        }
    }
}
