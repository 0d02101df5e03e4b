//! One body for each stored structure: the bytes as they are, and once more with the checksum made right, which no
//! mutation would guess.
//!
//! Promises: decoding never panics; what it lets through has one stored form, or comes back from it as it was; what the
//! value's own arithmetic says stays within it.
//!
//! Not here: what the values do to an array (`recovery`).

use base::BLOCK_BYTES;
use ondisk::bytes::{Reader, Writer};
use ondisk::{Generation, Label, NODE_REFS, Node, OwnerMark, RecordHeader, Segment, crc32c};

/// A label: one stored form, and every place that its layout names lies on the drive.
pub fn label(data: &[u8]) {
    judge_label(data);
    judge_label(&sealed_block(data));
}

fn judge_label(block: &[u8]) {
    let Ok(label) = Label::decode(block) else { return };
    assert!(label.encode() == block, "a label has one stored form");
    let layout = label.layout;
    let last_row = layout.zone_row(layout.zones - 1, layout.zone_blocks - 1);
    assert!(layout.slot(0) < layout.slot(1) || layout.slot_blocks == 0);
    assert!(layout.slot(1).0 + u64::from(layout.slot_blocks) <= layout.zone_row(0, 0).0);
    assert!(last_row < layout.labels()[1] && layout.labels()[1].0 < layout.drive_blocks);
}

/// An owner mark: one stored form.
pub fn owner(data: &[u8]) {
    for block in [data, &sealed_block(data)] {
        let Ok(mark) = OwnerMark::decode(block) else { continue };
        assert!(mark.encode() == block, "an owner mark has one stored form");
    }
}

/// A generation: comes back from its stored form as it was, and what is told of it unverified is the same.
pub fn generation(data: &[u8]) {
    judge_generation(data);
    let mut sealed = data.to_vec();
    seal_generation(&mut sealed);
    judge_generation(&sealed);
}

fn judge_generation(image: &[u8]) {
    let peeked = Generation::peek(image);
    let Ok(generation) = Generation::decode(image) else { return };
    assert_eq!(peeked, Ok((generation.number, generation.id)), "a look without a check sees the same");
    let stored = generation.encode();
    assert_eq!(stored.len() % BLOCK_BYTES, 0);
    let total = Generation::total_bytes(image);
    assert_eq!(Generation::total_bytes(&stored), total, "no table grows or shrinks");
    assert_eq!(Generation::decode(&stored), Ok(generation), "a generation comes back as it was");
}

/// A line of the segment table: comes back as it was; cuts ascend.
pub fn segment(data: &[u8]) {
    let mut reader = Reader::new("segment", data);
    let Ok(segment) = Segment::decode(&mut reader) else { return };
    let mut writer = Writer::new();
    segment.encode(&mut writer);
    let stored = writer.finish();
    assert_eq!(stored.len(), data.len() - reader.remaining(), "no line grows or shrinks");
    assert_eq!(Segment::decode(&mut Reader::new("segment", &stored)), Ok(segment.clone()));
    let near = |row: u32| [row.saturating_sub(1), row, row.saturating_add(1)];
    let mut rows: Vec<u32> = segment.cuts.iter().flat_map(|c| near(c.row)).collect();
    rows.sort_unstable();
    let epochs = rows.iter().map(|row| segment.oldest_epoch_at(*row));
    assert!(epochs.is_sorted(), "what counts only becomes younger");
}

/// A record header: one stored form; every payload block lies in its rectangle, each at a place of its own.
pub fn record(data: &[u8]) {
    judge_record(data);
    judge_record(&sealed_block(data));
}

fn judge_record(block: &[u8]) {
    let Ok(header) = RecordHeader::decode(block) else { return };
    let mut stored = vec![0; BLOCK_BYTES];
    header.encode(&mut stored);
    assert!(stored == block, "a record header has one stored form");
    assert!(header.end_seq() >= header.first_seq);
    let mut places = std::collections::BTreeSet::from([(0, header.row)]);
    for (index, _, _) in header.payload() {
        let (column, row) = header.payload_place(index);
        assert!(column < usize::from(header.k) && (header.row..header.row + header.rows).contains(&row));
        assert!(places.insert((column, row)), "no two blocks share a place");
    }
    assert_eq!(places.len() as u64, u64::from(header.rows) * u64::from(header.k), "the rectangle is full");
}

/// A node of the map: one stored form.
pub fn node(data: &[u8]) {
    for block in [data, &block_of(data)] {
        let Ok(node) = Node::decode(block) else { continue };
        let mut stored = vec![0; BLOCK_BYTES];
        assert_eq!(node.encode(&mut stored), crc32c(block));
        assert!(stored == block, "a node has one stored form");
        assert!(node.uniform().is_none_or(|r| node.0.iter().filter(|n| **n == r).count() == NODE_REFS));
    }
}

/// The bytes as one block: cut, or zeros behind.
fn block_of(data: &[u8]) -> Vec<u8> {
    let mut block = data[..data.len().min(BLOCK_BYTES)].to_vec();
    block.resize(BLOCK_BYTES, 0);
    block
}

/// The bytes as one block with the checksum of labels and record headers.
#[must_use]
pub fn sealed_block(data: &[u8]) -> Vec<u8> {
    let mut block = block_of(data);
    seal(&mut block);
    block
}

/// Makes the checksum in the first four bytes that of the rest.
pub fn seal(image: &mut [u8]) {
    if image.len() >= 4 {
        let crc = crc32c(&image[4..]);
        image[..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Makes the checksum of a generation right, and its length possible.
pub fn seal_generation(image: &mut [u8]) {
    let Some(length) = image.get(12..16).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes) else { return };
    let total = (length as usize).min(image.len());
    image[12..16].copy_from_slice(&(total as u32).to_le_bytes());
    if total >= 16 {
        seal(&mut image[..total]);
    }
}
