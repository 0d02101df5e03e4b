//! The AVX2 lane: 32 bytes; multiplication by a constant as two look-ups of 16 bytes.

#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8,
    _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
    _mm256_storeu_si256, _mm256_testz_si256, _mm256_xor_si256,
};

use super::{job::Job, lane::Lane, run};
use crate::gf::{NIBBLES, REDUCTION};

/// Registers per step: with four, p and q and their temporaries spill.
const UNROLL: usize = 2;

struct Avx2;

/// # Safety
/// The machine has AVX2; the job's pointers are good (its invariant).
#[target_feature(enable = "avx2")]
pub unsafe fn run(job: &Job<'_>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { run::perform::<Avx2, UNROLL>(job) }
}

// SAFETY: WIDTH is the size of `__m256i`; loads and stores are unaligned and stay within it.
unsafe impl Lane for Avx2 {
    type Vector = __m256i;
    /// Multiples by the low and by the high half of a byte.
    type Factor = (__m256i, __m256i);
    const WIDTH: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the caller's promise (AVX2).
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        // SAFETY: the caller's promise (AVX2; 32 readable bytes).
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, v: __m256i) {
        // SAFETY: the caller's promise (AVX2; 32 writable bytes).
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn xor(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller's promise (AVX2).
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn double(a: __m256i) -> __m256i {
        // SAFETY: the caller's promise (AVX2). A byte whose high bit is set is negative: 0 > a selects it.
        unsafe {
            let overflow = _mm256_cmpgt_epi8(_mm256_setzero_si256(), a);
            let reduction = _mm256_and_si256(overflow, _mm256_set1_epi8(REDUCTION as i8));
            _mm256_xor_si256(_mm256_add_epi8(a, a), reduction)
        }
    }

    #[inline(always)]
    unsafe fn factor(c: u8) -> Self::Factor {
        let (low, high) = &NIBBLES[c as usize];
        // SAFETY: the caller's promise (AVX2); both tables have 16 bytes.
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast())),
            )
        }
    }

    #[inline(always)]
    unsafe fn multiply(a: __m256i, by: Self::Factor) -> __m256i {
        // SAFETY: the caller's promise (AVX2).
        unsafe {
            let half = _mm256_set1_epi8(0x0f);
            let low = _mm256_shuffle_epi8(by.0, _mm256_and_si256(a, half));
            let high = _mm256_shuffle_epi8(by.1, _mm256_and_si256(_mm256_srli_epi16::<4>(a), half));
            _mm256_xor_si256(low, high)
        }
    }

    #[inline(always)]
    unsafe fn is_zero(a: __m256i) -> bool {
        // SAFETY: the caller's promise (AVX2).
        unsafe { _mm256_testz_si256(a, a) == 1 }
    }
}
