//! What every [`Namespace`] does, as one function that runs on any of them.
//!
//! A failed expectation panics with what was expected: these are tests that happen to be reusable. The contents of the
//! first 8 MiB and of the last blocks of the namespace are overwritten.
//!
//! Does not: check durability (the simulator cuts the power), speed, or misaligned requests (protocols refuse them).

use std::future::Future;

use futures::future::join_all;
use rt::{Buf, Bytes};

use crate::namespace::{ExtentState, Fault, Namespace};

/// The part of the namespace that the suite works on.
const SPAN_BYTES: u64 = 8 << 20;

/// Runs everything on a writable namespace of at least 8 MiB. It overwrites contents.
///
/// # Panics
/// When the namespace does not behave; or is read-only or too small.
pub async fn run<N: Namespace>(ns: &N) {
    run_without_contents(ns).await;
    writes_are_read_back(ns).await;
    neighbours_stay(ns).await;
    zeroes_are_zero(ns).await;
    deallocated_contents_are_stable(ns).await;
    extents_tell_the_truth(ns).await;
    concurrent_writes_land(ns).await;
    overlapping_writes_do_not_mix(ns).await;
    the_largest_request_works(ns).await;
}

/// The part of the suite that holds for a namespace that keeps nothing.
///
/// # Panics
/// As [`run`].
pub async fn run_without_contents<N: Namespace>(ns: &N) {
    info_is_sane(ns);
    reads_have_the_length_asked_for(ns).await;
    the_end_is_the_end(ns).await;
    every_command_is_accepted(ns).await;
    extents_cover_their_range(ns).await;
}

/// Runs on a namespace whose `info` says that it is read-only.
///
/// # Panics
/// When it can be changed, or cannot be read.
pub async fn run_read_only<N: Namespace>(ns: &N) {
    let info = ns.info();
    assert!(info.read_only, "info says read-only");
    let block = u64::from(info.min_block);
    let before = read(ns, 0, block).await;
    expect(ns.write(0, pattern(1, block), false), Err(Fault::ReadOnly), "write").await;
    expect(ns.write_zeroes(0, block, true, false), Err(Fault::ReadOnly), "write zeroes").await;
    expect(ns.deallocate(0, block, false), Err(Fault::ReadOnly), "deallocate").await;
    expect(ns.flush(), Ok(()), "flush").await;
    assert!(read(ns, 0, block).await == before, "contents of a read-only namespace changed");
}

fn info_is_sane<N: Namespace>(ns: &N) {
    let info = ns.info();
    assert!(!info.read_only, "the suite writes");
    assert!(info.bytes >= SPAN_BYTES, "the suite needs {SPAN_BYTES} bytes");
    assert!(info.min_block.is_power_of_two() && (512..=65536).contains(&info.min_block), "{info:?}");
    assert!(info.preferred_block.is_power_of_two() && info.preferred_block >= info.min_block, "{info:?}");
    assert!(u64::from(info.preferred_block) * 4 <= SPAN_BYTES / 8, "{info:?}");
    assert!(info.max_request >= info.preferred_block && info.max_request >= 1 << 20, "{info:?}");
    assert!(info.bytes.is_multiple_of(u64::from(info.min_block)), "{info:?}");
}

/// Offsets and lengths around block, page and MiB boundaries, all multiples of the minimum block.
fn ranges<N: Namespace>(ns: &N) -> Vec<(u64, u64)> {
    let info = ns.info();
    let (min, preferred) = (u64::from(info.min_block), u64::from(info.preferred_block));
    let mut ranges = vec![
        (0, min),
        (min, min),
        (0, preferred),
        (preferred - min, min * 2),
        (preferred, preferred * 3),
        (preferred * 3 - min, preferred + 2 * min),
        ((1 << 20) - preferred, 2 * preferred),
        ((1 << 20) - min, min * 2),
        (64 << 10, 64 << 10),
        ((64 << 10) - min, (128 << 10) + 2 * min),
        (0, 1 << 20),
        ((1 << 20) + min, 1 << 20),
        ((2 << 20) - preferred, 1 << 20),
    ];
    ranges.push((info.bytes - min, min));
    ranges.push((info.bytes / preferred * preferred - preferred, preferred));
    ranges
}

async fn reads_have_the_length_asked_for<N: Namespace>(ns: &N) {
    for (offset, bytes) in ranges(ns) {
        assert_eq!(read(ns, offset, bytes).await.len() as u64, bytes, "read of {bytes} at {offset}");
    }
}

async fn the_end_is_the_end<N: Namespace>(ns: &N) {
    let info = ns.info();
    let block = u64::from(info.min_block);
    let last_block = u64::MAX / block * block - block;
    for (offset, bytes) in [(info.bytes, block), (info.bytes - block, 2 * block), (last_block, block)] {
        let what = format!("{bytes} at {offset} of {}", info.bytes);
        assert_eq!(ns.read(offset, bytes as u32).await.err(), Some(Fault::OutOfRange), "read {what}");
        expect(ns.write(offset, pattern(1, bytes), false), Err(Fault::OutOfRange), &what).await;
        expect(ns.write_zeroes(offset, bytes, true, false), Err(Fault::OutOfRange), &what).await;
        expect(ns.deallocate(offset, bytes, false), Err(Fault::OutOfRange), &what).await;
        assert_eq!(ns.extents(offset, bytes, 1).await.err(), Some(Fault::OutOfRange), "extents {what}");
    }
}

async fn every_command_is_accepted<N: Namespace>(ns: &N) {
    for (offset, bytes) in ranges(ns) {
        for fua in [false, true] {
            let what = format!("{bytes} at {offset}, fua {fua}");
            expect(ns.write(offset, pattern(2, bytes), fua), Ok(()), &what).await;
            expect(ns.write_zeroes(offset, bytes, false, fua), Ok(()), &what).await;
            expect(ns.write_zeroes(offset, bytes, true, fua), Ok(()), &what).await;
            expect(ns.deallocate(offset, bytes, fua), Ok(()), &what).await;
        }
    }
    expect(ns.flush(), Ok(()), "flush").await;
    expect(ns.flush(), Ok(()), "flush with nothing to do").await;
}

async fn extents_cover_their_range<N: Namespace>(ns: &N) {
    for (offset, bytes) in ranges(ns) {
        for at_most in [1, 2, 1000] {
            let extents = ns.extents(offset, bytes, at_most).await.expect("extents of a good range");
            let what = format!("{extents:?} for {bytes} at {offset}, at most {at_most}");
            let sum: u64 = extents.iter().map(|e| e.bytes).sum();
            assert!((1..=at_most).contains(&extents.len()), "{what}");
            assert!(extents.iter().all(|e| e.bytes > 0), "{what}");
            assert!(sum == bytes || sum < bytes && extents.len() == at_most, "{what}");
        }
    }
}

async fn writes_are_read_back<N: Namespace>(ns: &N) {
    for (i, (offset, bytes)) in ranges(ns).into_iter().enumerate() {
        let data = pattern(i as u64 + 100, bytes);
        expect(ns.write(offset, data.clone(), i % 2 == 0), Ok(()), "write").await;
        assert!(read(ns, offset, bytes).await == data[..], "{bytes} written at {offset} are read back");
        if i % 3 == 0 {
            expect(ns.flush(), Ok(()), "flush").await;
            assert!(read(ns, offset, bytes).await == data[..], "{bytes} at {offset} are read back after a flush");
        }
    }
}

/// A write, write zeroes or deallocate changes its range and nothing beside it.
async fn neighbours_stay<N: Namespace>(ns: &N) {
    let span = 4 << 20;
    for (offset, bytes) in ranges(ns).into_iter().filter(|(offset, bytes)| offset + bytes <= span) {
        for what in ["write", "write zeroes", "deallocate"] {
            let mut expected = pattern(7, span).to_vec();
            expect(ns.write(0, Bytes::from_slice(&expected), false), Ok(()), "write").await;
            let inside = offset as usize..(offset + bytes) as usize;
            let done = match what {
                "write" => {
                    let data = pattern(8, bytes);
                    expected[inside.clone()].copy_from_slice(&data);
                    ns.write(offset, data, false).await
                }
                "write zeroes" => {
                    expected[inside.clone()].fill(0);
                    ns.write_zeroes(offset, bytes, true, false).await
                }
                _ => ns.deallocate(offset, bytes, false).await,
            };
            assert_eq!(done, Ok(()), "{what}");
            let mut found = read(ns, 0, span).await;
            if what == "deallocate" {
                found[inside.clone()].copy_from_slice(&expected[inside]);
            }
            assert!(found == expected, "{what} of {bytes} at {offset} changed its range and nothing else");
        }
    }
}

async fn zeroes_are_zero<N: Namespace>(ns: &N) {
    for (offset, bytes) in ranges(ns) {
        for may_deallocate in [false, true] {
            expect(ns.write(offset, pattern(9, bytes), false), Ok(()), "write").await;
            expect(ns.write_zeroes(offset, bytes, may_deallocate, false), Ok(()), "write zeroes").await;
            let zero = read(ns, offset, bytes).await.iter().all(|b| *b == 0);
            assert!(zero, "{bytes} zeroed at {offset} read as zero, may deallocate: {may_deallocate}");
            let data = pattern(10, bytes);
            expect(ns.write(offset, data.clone(), false), Ok(()), "write over zeroes").await;
            assert!(read(ns, offset, bytes).await == data[..], "{bytes} written over zeroes at {offset}");
        }
    }
}

async fn deallocated_contents_are_stable<N: Namespace>(ns: &N) {
    for (offset, bytes) in ranges(ns) {
        expect(ns.write(offset, pattern(11, bytes), false), Ok(()), "write").await;
        expect(ns.deallocate(offset, bytes, false), Ok(()), "deallocate").await;
        let first = read(ns, offset, bytes).await;
        assert!(read(ns, offset, bytes).await == first, "deallocated {bytes} at {offset} read alike twice");
        let data = pattern(12, bytes);
        expect(ns.write(offset, data.clone(), false), Ok(()), "write over a hole").await;
        assert!(read(ns, offset, bytes).await == data[..], "{bytes} written over a hole at {offset}");
    }
}

async fn extents_tell_the_truth<N: Namespace>(ns: &N) {
    let data = pattern(13, SPAN_BYTES);
    for at in (0..SPAN_BYTES).step_by(1 << 20) {
        expect(ns.write(at, data.slice(at as usize..(at + (1 << 20)) as usize), false), Ok(()), "write").await;
    }
    expect(ns.write_zeroes(1 << 20, 2 << 20, true, false), Ok(()), "write zeroes").await;
    expect(ns.deallocate(5 << 20, 1 << 20, false), Ok(()), "deallocate").await;
    let mut at = 0;
    while at < SPAN_BYTES {
        for extent in ns.extents(at, SPAN_BYTES - at, 3).await.expect("extents of a good range") {
            if extent.state != ExtentState::Allocated {
                let zero = read(ns, at, extent.bytes).await.iter().all(|b| *b == 0);
                assert!(zero, "{extent:?} at {at} reads as zero");
            }
            at += extent.bytes;
        }
    }
    assert_eq!(at, SPAN_BYTES);
}

async fn concurrent_writes_land<N: Namespace>(ns: &N) {
    let preferred = u64::from(ns.info().preferred_block);
    let pieces: Vec<u64> = (0..64).collect();
    let writes = pieces.iter().map(|i| ns.write(i * preferred, pattern(i + 200, preferred), false));
    assert!(join_all(writes).await.iter().all(Result::is_ok), "64 writes at once");
    let reads = pieces.iter().map(|i| read(ns, i * preferred, preferred));
    for (i, found) in join_all(reads).await.into_iter().enumerate() {
        assert!(found == pattern(i as u64 + 200, preferred)[..], "piece {i} of 64 written at once");
    }
}

/// Of writes to one block that are in flight together, one wins wholly.
async fn overlapping_writes_do_not_mix<N: Namespace>(ns: &N) {
    let preferred = u64::from(ns.info().preferred_block);
    for round in 0..8 {
        let candidates: Vec<Bytes> = (0..8).map(|i| pattern(1000 + round * 8 + i, preferred)).collect();
        let done = join_all(candidates.iter().map(|data| ns.write(preferred, data.clone(), false))).await;
        assert!(done.iter().all(Result::is_ok), "8 writes of one block at once");
        let found = read(ns, preferred, preferred).await;
        assert!(candidates.iter().any(|data| data[..] == found), "a block holds a mixture of two writes");
    }
}

async fn the_largest_request_works<N: Namespace>(ns: &N) {
    let info = ns.info();
    let bytes = u64::from(info.max_request).min(info.bytes / u64::from(info.min_block) * u64::from(info.min_block));
    let data = pattern(14, bytes);
    expect(ns.write(0, data.clone(), false), Ok(()), "the largest write").await;
    assert!(read(ns, 0, bytes).await == data[..], "the largest write is read back");
}

async fn expect(operation: impl Future<Output = Result<(), Fault>>, expected: Result<(), Fault>, what: &str) {
    assert_eq!(operation.await, expected, "{what}");
}

async fn read<N: Namespace>(ns: &N, offset: u64, bytes: u64) -> Vec<u8> {
    let length = u32::try_from(bytes).expect("the suite reads less than 4 GiB at once");
    let parts = ns.read(offset, length).await;
    let mut data = Vec::with_capacity(bytes as usize);
    for part in parts.unwrap_or_else(|fault| panic!("read of {bytes} at {offset}: {fault}")) {
        data.extend_from_slice(&part);
    }
    data
}

/// Bytes that are different for each seed and at each 8-byte place, and never zero in a whole block.
fn pattern(seed: u64, bytes: u64) -> Bytes {
    let mut data = Buf::zeroed(bytes as usize);
    for (i, word) in data.chunks_mut(8).enumerate() {
        let value = (seed << 32 | 1).wrapping_add(i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
    data.freeze()
}
