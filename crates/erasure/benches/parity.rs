//! Parity and reconstruction per kernel, beside `memcpy` of the same data bytes.
//!
//! Throughput counts the data columns only, as in ADR 2. `cargo bench -p erasure -- 'encode 8\+2'` runs a part.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use erasure::{Kernel, encode, matches, reconstruct};

const SHAPES: [(usize, usize); 3] = [(8, 1), (6, 2), (8, 2)];
const LENGTHS: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];

fn row(columns: usize, length: usize) -> Vec<Vec<u8>> {
    (0..columns).map(|i| (0..length).map(|at| (at * 31 + i * 7) as u8).collect()).collect()
}

fn size(length: usize) -> String {
    if length < 1 << 20 { format!("{} KiB", length >> 10) } else { format!("{} MiB", length >> 20) }
}

fn copy(c: &mut Criterion) {
    let mut group = c.benchmark_group("memcpy 8");
    for length in LENGTHS {
        let (from, mut to) = (row(8, length), row(8, length));
        group.throughput(Throughput::Bytes((8 * length) as u64));
        group.bench_function(size(length), |b| {
            b.iter(|| {
                to.iter_mut().zip(&from).for_each(|(to, from)| to.copy_from_slice(from));
                std::hint::black_box(&mut to);
            });
        });
    }
}

fn parity(c: &mut Criterion) {
    for (k, m) in SHAPES {
        let mut group = c.benchmark_group(format!("encode {k}+{m}"));
        for length in LENGTHS {
            let (data, mut parity) = (row(k, length), row(m, length));
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
            group.throughput(Throughput::Bytes((k * length) as u64));
            for kernel in Kernel::available() {
                group.bench_function(BenchmarkId::new(kernel.name(), size(length)), |b| {
                    b.iter(|| encode(kernel, &data, &mut parity));
                });
            }
        }
    }
}

fn check(c: &mut Criterion) {
    let (k, m, length) = (8, 2, 64 << 10);
    let (data, mut parity) = (row(k, length), row(m, length));
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    encode(Kernel::detect(), &data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    let parity: Vec<&[u8]> = parity.iter().map(Vec::as_slice).collect();
    let mut group = c.benchmark_group("matches 8+2");
    group.throughput(Throughput::Bytes((k * length) as u64));
    for kernel in Kernel::available() {
        group.bench_function(BenchmarkId::new(kernel.name(), size(length)), |b| {
            b.iter(|| assert!(matches(kernel, &data, &parity)));
        });
    }
}

fn lost(c: &mut Criterion) {
    for (name, m, lost) in
        [("8+1 without d", 1, &[3][..]), ("8+2 without d d", 2, &[2, 5]), ("8+2 without d P", 2, &[2, 8])]
    {
        let mut group = c.benchmark_group(format!("reconstruct {name}"));
        for length in LENGTHS {
            let mut columns = row(8 + m, length);
            let mut columns: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
            group.throughput(Throughput::Bytes((8 * length) as u64));
            for kernel in Kernel::available() {
                group.bench_function(BenchmarkId::new(kernel.name(), size(length)), |b| {
                    b.iter(|| reconstruct(kernel, 8, m, &mut columns, lost).is_ok());
                });
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = copy, parity, check, lost
}
criterion_main!(benches);
