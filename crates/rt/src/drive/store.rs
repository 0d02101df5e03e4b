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
    #[cfg(target_arch = "x86_64")]
    if from.len() >= avx::PIECE_BYTES && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX.
        return unsafe { avx::store(into, from) };
    }
    into.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
mod avx {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    /// What one round of the loop copies: whole lines of the cache, so that nothing of them is read.
    pub const PIECE_BYTES: usize = 256;

    const LINE_BYTES: usize = 64;
    const VECTORS: usize = PIECE_BYTES / size_of::<__m256i>();

    /// Both are as long.
    #[target_feature(enable = "avx")]
    pub fn store(into: &mut [u8], from: &[u8]) {
        let before = into.as_ptr().align_offset(LINE_BYTES).min(into.len());
        let (head, rest) = into.split_at_mut(before);
        let (from_head, from_rest) = from.split_at(before);
        head.copy_from_slice(from_head);
        let (pieces, tail) = rest.as_chunks_mut::<PIECE_BYTES>();
        let (from_pieces, from_tail) = from_rest.as_chunks::<PIECE_BYTES>();
        for (piece, from_piece) in pieces.iter_mut().zip(from_pieces) {
            let (to, from) = (piece.as_mut_ptr().cast::<__m256i>(), from_piece.as_ptr().cast::<__m256i>());
            for i in 0..VECTORS {
                // SAFETY: both are a piece long; a piece begins a line, as a streaming store wants it.
                unsafe { _mm256_stream_si256(to.add(i), _mm256_loadu_si256(from.add(i))) }
            }
        }
        tail.copy_from_slice(from_tail);
        // Streaming stores are in no order with others until this.
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_from_and_to_any_place() {
        let from: Vec<u8> = (0..2000).map(|i| (i % 251) as u8 + 1).collect();
        let places = [(0, 0, 1024), (0, 1, 256), (1, 0, 300), (63, 7, 1025), (5, 5, 3), (64, 0, 0), (17, 3, 319), (17, 3, 320)];
        for (at, from_at, len) in places {
            let mut into = vec![0; 2000];
            store(&mut into[at..at + len], &from[from_at..from_at + len]);
            assert!(into[at..at + len] == from[from_at..from_at + len], "{len} bytes to {at}");
            assert!(into[..at].iter().chain(&into[at + len..]).all(|&b| b == 0), "nothing beside {len} bytes at {at}");
        }
    }
}
