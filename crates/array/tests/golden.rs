//! Whole arrays as an earlier program left them still open, and hold what was written.
//!
//! An image is never changed: it is what a drive in the field looks like. It has every block that is not zeros: number of the
//! drive, number of the block, and the block, or the one byte that fills it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use api::ArrayState;
use array::{Array, CreateSpec, Notebook, OpenHow, parts};
use base::{BlockCount, MemberLba};
use ondisk::Level;
use rt::model::{Disk, DiskParams};
use rt::{Bytes, Drive, Rt};

const BLOCK: usize = 4096;

/// One array that was frozen.
struct Golden {
    file: &'static str,
    level: Level,
    drives: usize,
    parts: u8,
    drive_bytes: u64,
    /// Handed over in order; else killed, with records to replay.
    closed: bool,
    /// With a notebook in its first part, in which something is noted.
    notebook: bool,
}

const GOLDEN: [Golden; 3] = [
    Golden {
        file: "array-v2.bin",
        level: Level::Raid5,
        drives: 4,
        parts: 1,
        drive_bytes: 40 << 20,
        closed: false,
        notebook: false,
    },
    Golden {
        file: "array-notebook-v2.bin",
        level: Level::Raid5,
        drives: 4,
        parts: 1,
        drive_bytes: 40 << 20,
        closed: false,
        notebook: true,
    },
    Golden {
        file: "array-parts-v2.bin",
        level: Level::Raid6,
        drives: 5,
        parts: 2,
        drive_bytes: 72 << 20,
        closed: true,
        notebook: false,
    },
];

/// What block `lba` of the volume of part `part` holds.
fn content(part: usize, lba: u64) -> u8 {
    (lba % 11) as u8 * 16 + part as u8 + 1
}

/// The blocks that were written: some in one go and merged, some here and there and only in the log.
fn written() -> Vec<(u64, u64)> {
    vec![(0, 40), (300, 3), (1000, 1), (1500, 20)]
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

fn disks(golden: &Golden) -> Vec<Disk> {
    let params = DiskParams { bytes: golden.drive_bytes, ..DiskParams::default() };
    (0..golden.drives).map(|i| Disk::new(&format!("d{i}"), params, i as u64)).collect()
}

fn handles(rt: &Rt, disks: &[Disk]) -> Vec<Drive> {
    disks.iter().map(|disk| Drive::modelled(rt, disk)).collect()
}

/// The drives of a frozen array.
fn load(golden: &Golden) -> Vec<Disk> {
    let disks = disks(golden);
    let bytes = fs::read(path(golden.file)).unwrap();
    let mut rest = &bytes[..];
    while let [drive, b0, b1, b2, b3, filled, tail @ ..] = rest {
        let at = MemberLba(u64::from(u32::from_le_bytes([*b0, *b1, *b2, *b3])));
        let len = if *filled == 1 { 1 } else { BLOCK };
        let block = if *filled == 1 { vec![tail[0]; BLOCK] } else { tail[..BLOCK].to_vec() };
        disks[usize::from(*drive)].image_write(at, &block);
        rest = &tail[len..];
    }
    assert!(rest.is_empty(), "{} is cut short", golden.file);
    disks
}

async fn opened(rt: &Rt, disks: &[Disk], how: OpenHow) -> Vec<Array> {
    parts::open(rt, handles(rt, disks), how).await.unwrap()
}

/// What is noted in a notebook.
fn noted() -> Vec<Vec<u8>> {
    (1..=40).map(|n| vec![n; 150]).collect()
}

async fn holds_what_was_noted(array: &Array, more: u64) {
    let volume = array.notebook().expect("it has a notebook");
    let (mut notebook, found) = Notebook::open(volume, *array.uuid().as_bytes()).await.unwrap();
    let records: Vec<Vec<u8>> = found.into_iter().map(|f| f.record).collect();
    let mut expected = noted();
    expected.extend((0..more).map(|n| vec![n as u8; 20]));
    assert_eq!(records, expected);
    notebook.append(&[vec![more as u8; 20]]).await.unwrap();
}

async fn holds_what_was_written(parts: &[Array]) {
    for (part, array) in parts.iter().enumerate() {
        assert_eq!(array.state(), ArrayState::Optimal, "part {part}");
        let volume = array.volume("v").unwrap();
        for (from, blocks) in written() {
            for lba in from..from + blocks {
                let read = volume.read(lba * BLOCK as u64, BLOCK as u64).await.unwrap();
                let all: Vec<u8> = read.iter().flat_map(|b| b.iter().copied()).collect();
                assert_eq!(all, vec![content(part, lba); BLOCK], "part {part}, block {lba}");
            }
        }
    }
}

#[test]
fn frozen_arrays_open_and_hold_what_was_written() {
    for golden in GOLDEN {
        let disks = load(&golden);
        let rt = Rt::modelled(3);
        rt.block_on(async {
            let report = parts::check(&rt, handles(&rt, &disks), |_| {}).await.unwrap();
            assert!(report.ok(), "{}: {:?}", golden.file, report.errors);
            let read_only = opened(&rt, &disks, OpenHow { read_only: true, ..OpenHow::default() }).await;
            assert_eq!(read_only.len(), usize::from(golden.parts));
            drop(read_only);
            for round in 0..2 {
                let parts = opened(&rt, &disks, OpenHow::default()).await;
                holds_what_was_written(&parts).await;
                match golden.notebook {
                    true => holds_what_was_noted(&parts[0], round).await,
                    false => assert!(parts.iter().all(|array| array.notebook().is_none())),
                }
                for (part, array) in parts.iter().enumerate() {
                    let lba = 1700 + round;
                    let fill = Bytes::from_slice(&vec![content(part, lba); BLOCK]);
                    array.volume("v").unwrap().write(lba * BLOCK as u64, fill, true).await.unwrap();
                }
                for array in parts {
                    array.close().await.unwrap();
                }
            }
            let report = parts::check(&rt, handles(&rt, &disks), |_| {}).await.unwrap();
            assert!(report.ok(), "{}: {:?}", golden.file, report.errors);
        });
        rt.end();
    }
}

/// Makes the images of a new version; never touches one that is there.
#[test]
#[ignore = "by hand, once for each version"]
fn freeze_missing_images() {
    for golden in GOLDEN.iter().filter(|g| !path(g.file).exists()) {
        let disks = disks(golden);
        let rt = Rt::modelled(1);
        rt.block_on(make(&rt, golden, &disks));
        rt.end();
        disks.iter().for_each(|disk| disk.crash(1));
        fs::write(path(golden.file), frozen(golden, &disks)).unwrap();
    }
}

async fn make(rt: &Rt, golden: &Golden, disks: &[Disk]) {
    let spec = CreateSpec {
        name: "golden".into(),
        level: golden.level,
        width: Some(golden.drives),
        zone_blocks: Some(64),
        force: false,
    };
    let parts = parts::create(rt, handles(rt, disks), &spec, golden.parts).await.unwrap();
    for (part, array) in parts.iter().enumerate() {
        array.volume_create("v", 8 << 20).await.unwrap();
        let volume = array.volume("v").unwrap();
        for (n, (from, blocks)) in written().into_iter().enumerate() {
            if n == 2 {
                array.checkpoint().await.unwrap();
            }
            let fill: Vec<u8> = (from..from + blocks).flat_map(|lba| vec![content(part, lba); BLOCK]).collect();
            volume.write(from * BLOCK as u64, Bytes::from_slice(&fill), false).await.unwrap();
        }
        volume.flush().await.unwrap();
    }
    if golden.notebook {
        parts[0].upgrade().await.unwrap();
        let volume = parts[0].notebook().unwrap();
        let (mut notebook, _) = Notebook::open(volume, *parts[0].uuid().as_bytes()).await.unwrap();
        notebook.append(&noted()).await.unwrap();
    }
    if golden.closed {
        for array in parts {
            array.close().await.unwrap();
        }
    }
}

fn frozen(golden: &Golden, disks: &[Disk]) -> Vec<u8> {
    let mut image = Vec::new();
    for (drive, disk) in disks.iter().enumerate() {
        for at in 0..golden.drive_bytes / BLOCK as u64 {
            let block = disk.image_read(MemberLba(at), BlockCount(1));
            let filled = block.iter().all(|byte| *byte == block[0]);
            if filled && block[0] == 0 {
                continue;
            }
            image.push(drive as u8);
            image.extend((at as u32).to_le_bytes());
            image.push(u8::from(filled));
            image.extend(if filled { &block[..1] } else { &block[..] });
        }
    }
    image
}
