//! A copy that goes to memory past the processor's caches, as a drive's DMA does.
//!
//! A plain store to a line that is not in a cache reads the line first. What is written to a drive is seldom read soon, and would
//! take the place of what hosts and the array work with.
#![allow(unsafe_code)]

/// Copies `from` into `into`, which is as long.
///
/// # Panics
/// When the lengths differ.
pub(super) fn store(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy is as long as what is copied");
    let past_caches = past_caches(into, from);
    if past_caches < from.len() {
        into[past_caches..].copy_from_slice(&from[past_caches..]);
    }
}

/// Copies what can go past the caches; how many bytes that were.
#[cfg(target_arch = "x86_64")]
fn past_caches(into: &mut [u8], from: &[u8]) -> usize {
    let pieces = into.len() / avx::PIECE_BYTES;
    if !into.as_ptr().addr().is_multiple_of(avx::LINE_BYTES) || !std::arch::is_x86_feature_detected!("avx") {
        return 0;
    }
    // SAFETY: both hold so many pieces, `into` begins a line, and the processor has AVX.
    unsafe { avx::store(into.as_mut_ptr(), from.as_ptr(), pieces) };
    pieces * avx::PIECE_BYTES
}

#[cfg(not(target_arch = "x86_64"))]
fn past_caches(_: &mut [u8], _: &[u8]) -> usize {
    0
}

#[cfg(target_arch = "x86_64")]
mod avx {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    /// What one round of the loop copies: whole lines of the cache, so that nothing of them is read.
    pub const PIECE_BYTES: usize = 1024;

    pub const LINE_BYTES: usize = 64;

    const VECTORS: usize = PIECE_BYTES / size_of::<__m256i>();

    /// # Safety
    /// Both are valid for so many pieces and do not overlap; `into` begins a line.
    #[target_feature(enable = "avx")]
    pub unsafe fn store(into: *mut u8, from: *const u8, pieces: usize) {
        let (mut to, mut from) = (into.cast::<__m256i>(), from.cast::<__m256i>());
        for _ in 0..pieces {
            // SAFETY: by the caller; a streaming store wants an address of whole 32 bytes.
            unsafe {
                for i in 0..VECTORS {
                    _mm256_stream_si256(to.add(i), _mm256_loadu_si256(from.add(i)));
                }
                (to, from) = (to.add(VECTORS), from.add(VECTORS));
            }
        }
        // Streaming stores are in no order with others until this.
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_begins_a_line_goes_past_the_caches() {
        let mut into = crate::Buf::zeroed(4096);
        let whole = if std::arch::is_x86_feature_detected!("avx") { 2 * avx::PIECE_BYTES } else { 0 };
        assert_eq!(past_caches(&mut into[64..64 + 2100], &[1; 2100]), whole);
        assert_eq!(past_caches(&mut into[16..16 + 2100], &[1; 2100]), 0);
    }

    #[test]
    fn copies_from_and_to_any_place() {
        let from: Vec<u8> = (0..2500).map(|i| (i % 251) as u8 + 1).collect();
        let places = [
            (0, 0, 2048),
            (0, 1, 1024),
            (1, 0, 1025),
            (64, 7, 1300),
            (5, 5, 3),
            (64, 0, 0),
            (128, 3, 1023),
            (128, 3, 1025),
        ];
        for (at, from_at, len) in places {
            let mut into = crate::Buf::zeroed(2500);
            store(&mut into[at..at + len], &from[from_at..from_at + len]);
            assert!(into[at..at + len] == from[from_at..from_at + len], "{len} bytes to {at}");
            assert!(into[..at].iter().chain(&into[at + len..]).all(|&b| b == 0), "nothing beside {len} bytes at {at}");
        }
    }
}
