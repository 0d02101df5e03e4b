//! A copy that goes to memory past the processor's caches, as a drive's DMA does.
//!
//! A plain store to a line that is not in a cache reads the line first. What is written to a drive is seldom read soon, and would
//! take the place of what hosts and the array work with.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

/// What one round of the loop copies: a line of the cache, all of it, so that nothing of it is read.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Copies `from` into `into`, which is as long.
///
/// # Panics
/// When the lengths differ.
#[cfg(target_arch = "x86_64")]
pub(super) fn store(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy is as long as what is copied");
    // Streaming stores want addresses of whole 16 bytes, and pay for whole lines.
    let before = into.as_ptr().align_offset(LINE_BYTES).min(into.len());
    let (head, rest) = into.split_at_mut(before);
    let (from_head, from_rest) = from.split_at(before);
    head.copy_from_slice(from_head);
    let (mut lines, from_lines) = (rest.chunks_exact_mut(LINE_BYTES), from_rest.chunks_exact(LINE_BYTES));
    let from_tail = from_lines.remainder();
    for (line, from_line) in lines.by_ref().zip(from_lines) {
        let (to, from) = (line.as_mut_ptr().cast::<__m128i>(), from_line.as_ptr().cast::<__m128i>());
        // SAFETY: both are 64 bytes, `to` begins a line, and SSE2 is part of x86_64.
        unsafe {
            let parts = [0, 1, 2, 3].map(|i| _mm_loadu_si128(from.add(i)));
            for (i, part) in parts.into_iter().enumerate() {
                _mm_stream_si128(to.add(i), part);
            }
        }
    }
    lines.into_remainder().copy_from_slice(from_tail);
    // SAFETY: SSE2. Streaming stores are in no order with others until this.
    unsafe { _mm_sfence() }
}

/// Copies `from` into `into`, which is as long.
///
/// # Panics
/// When the lengths differ.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn store(into: &mut [u8], from: &[u8]) {
    into.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_from_and_to_any_place() {
        let from: Vec<u8> = (0..400).map(|i| (i % 251) as u8 + 1).collect();
        for (at, from_at, len) in [(0, 0, 256), (0, 1, 256), (1, 0, 300), (63, 7, 65), (5, 5, 3), (64, 0, 0), (17, 3, 64)] {
            let mut into = vec![0; 400];
            store(&mut into[at..at + len], &from[from_at..from_at + len]);
            assert!(into[at..at + len] == from[from_at..from_at + len], "{len} bytes to {at}");
            assert!(into[..at].iter().chain(&into[at + len..]).all(|&b| b == 0), "nothing beside {len} bytes at {at}");
        }
    }
}
