//! What a request is made of, each beside `memcpy` of the same bytes: checksum, checksum and parity in one pass, a
//! record's header, a map node, a look-up.
//!
//! Throughput counts data bytes. `cargo bench -p bench -- 'pass'` runs a part.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;
use std::time::Duration;

use array::{Array, CreateSpec};
use base::{ArrayUuid, BLOCK_BYTES, Epoch, Generation, Lba, Pba, SegmentId, Seq, VolumeId};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use erasure::{Kernel, encode};
use ondisk::crc::crc32c;
use ondisk::{Entry, Level, MapRef, NODE_REFS, Node, Place, RecordHeader};
use rt::{Buf, Drive, Rt};

/// Rows of a pass: of a lone request, of a record of 64 KiB and more, of the largest record.
const ROWS: [usize; 3] = [1, 4, 32];

fn blocks(n: usize) -> Vec<u8> {
    (0..n * BLOCK_BYTES).map(|at| (at * 31 + at / 4096) as u8).collect()
}

/// One pass over `k` columns of `rows` blocks: the checksum of each block of a row, then the row's parity.
fn pass(kernel: Kernel, data: &[u8], rows: usize, parity: &mut [Vec<u8>]) -> u32 {
    let k = data.len() / (rows * BLOCK_BYTES);
    let mut sum = 0;
    for row in 0..rows {
        let block = |column: usize| &data[(column * rows + row) * BLOCK_BYTES..][..BLOCK_BYTES];
        let of_row: Vec<&[u8]> = (0..k).map(block).collect();
        of_row.iter().for_each(|block| sum ^= crc32c(block));
        let here = row * BLOCK_BYTES..(row + 1) * BLOCK_BYTES;
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|p| &mut p[here.clone()]).collect();
        encode(kernel, &of_row, &mut targets);
    }
    sum
}

fn passes(c: &mut Criterion) {
    for (k, m) in [(7, 1), (6, 2)] {
        for rows in ROWS {
            let mut group = c.benchmark_group(format!("pass {k}+{m}, {rows} rows"));
            let data = blocks(k * rows);
            let mut to = data.clone();
            let mut parity = vec![vec![0; rows * BLOCK_BYTES]; m];
            group.throughput(Throughput::Bytes(data.len() as u64));
            group.bench_function("memcpy", |b| b.iter(|| black_box(&mut to).copy_from_slice(black_box(&data))));
            group.bench_function("checksum", |b| {
                b.iter(|| black_box(&data).chunks_exact(BLOCK_BYTES).fold(0, |sum, block| sum ^ crc32c(block)));
            });
            for kernel in Kernel::available() {
                group.bench_function(BenchmarkId::new("checksum and parity", kernel.name()), |b| {
                    b.iter(|| pass(kernel, black_box(&data), rows, black_box(&mut parity)));
                });
            }
        }
    }
}

/// The same over data that no cache holds, in records of 32 rows.
fn passes_in_memory(c: &mut Criterion) {
    const RECORDS: usize = 256;
    for (k, m) in [(7, 1), (6, 2)] {
        let mut group = c.benchmark_group(format!("pass {k}+{m}, from memory"));
        let record = k * 32 * BLOCK_BYTES;
        let data = blocks(RECORDS * k * 32);
        let mut to = data.clone();
        let mut parity = vec![vec![0; 32 * BLOCK_BYTES]; m];
        group.sample_size(10).throughput(Throughput::Bytes(data.len() as u64));
        group.bench_function("memcpy", |b| b.iter(|| black_box(&mut to).copy_from_slice(black_box(&data))));
        for kernel in Kernel::available() {
            group.bench_function(BenchmarkId::new("checksum and parity", kernel.name()), |b| {
                b.iter(|| data.chunks_exact(record).fold(0, |sum, data| sum ^ pass(kernel, data, 32, &mut parity)));
            });
        }
    }
}

fn header(entries: usize) -> RecordHeader {
    let entry = |i: u64| Entry::Data { volume: VolumeId(1), lba: Lba(i * 1003), crc: i as u32 };
    RecordHeader {
        array: ArrayUuid::default(),
        segment: SegmentId(7),
        row: 0,
        rows: (entries + 1).div_ceil(7) as u32,
        k: 7,
        epoch: Epoch(1),
        generation: Generation(1),
        first_seq: Seq(1),
        durable_row: 0,
        log: 0,
        entries: (0..entries as u64).map(entry).collect(),
    }
}

fn records(c: &mut Criterion) {
    let mut group = c.benchmark_group("record header");
    for entries in [6, 55, 237] {
        let header = header(entries);
        let mut block = vec![0; BLOCK_BYTES];
        header.encode(&mut block);
        group.bench_function(BenchmarkId::new("encode", entries), |b| {
            let mut to = vec![0; BLOCK_BYTES];
            b.iter(|| black_box(&header).encode(black_box(&mut to)));
        });
        group.bench_function(BenchmarkId::new("decode", entries), |b| {
            b.iter(|| RecordHeader::decode(black_box(&block)));
        });
    }
    group.finish();
}

fn nodes(c: &mut Criterion) {
    let mut group = c.benchmark_group("map node");
    let mut node = Node::filled(MapRef::Hole);
    for slot in 0..NODE_REFS {
        let pba = Pba { segment: SegmentId(3), block: slot as u32 * 2 };
        node.0[slot] = MapRef::At(Place { pba, crc: slot as u32 });
    }
    let mut block = vec![0; BLOCK_BYTES];
    node.encode(&mut block);
    group.bench_function("encode", |b| b.iter(|| black_box(&node).encode(black_box(&mut block))));
    group.bench_function("decode", |b| b.iter(|| Node::decode(black_box(&block))));
    group.finish();
}

/// A block's place, looked up in the trees of a volume of 64 MiB that was written in requests of 128 KiB.
fn look_up(c: &mut Criterion) {
    const BYTES: u64 = 64 << 20;
    let rt = Rt::real().expect("io_uring");
    let drives = (0..8).map(|i| Drive::memory(&rt, &format!("m{i}"), 512 << 20)).collect();
    let spec = CreateSpec { name: "b".into(), level: Level::Raid5, width: Some(8), zone_blocks: None, force: false };
    let array = rt.block_on(async {
        let array = Array::create(&rt, drives, &spec).await.expect("an array");
        array.volume_create("v", BYTES).await.expect("a volume");
        let volume = array.volume("v").expect("it is there");
        for at in (0..BYTES).step_by(128 << 10) {
            let data = Buf::from_slice(&[at as u8; 128 << 10]).freeze();
            volume.write(at, data, false).await.expect("a write");
        }
        array.checkpoint().await.expect("a checkpoint");
        array
    });
    let volume = array.volume("v").expect("it is there");
    let mut at = 0;
    c.bench_function("look-up, map in memory", |b| {
        b.iter(|| {
            at = (at + 1_000_003 * 4096) % BYTES;
            rt.block_on(volume.locate(at))
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = passes, passes_in_memory, records, nodes, look_up
}
criterion_main!(benches);
