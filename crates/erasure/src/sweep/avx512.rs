//! The AVX-512 lane: 64 bytes; multiplication by a constant is one `GF2P8AFFINEQB`, a sum of three one `VPTERNLOG`.

#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_test_epi64_mask, _mm512_xor_si512,
};

use super::{job::Job, lane::Lane, run};
use crate::gf::{MATRICES, matrix};

/// Registers per step: four independent chains hide the latency of the affine instruction.
const UNROLL: usize = 4;

/// Truth table of a ^ b ^ c.
const XOR3: i32 = 0x96;

const DOUBLE: i64 = matrix(2) as i64;
const QUADRUPLE: i64 = matrix(4) as i64;

struct Avx512Gfni;

/// # Safety
/// The machine has AVX-512 F and BW and GFNI; the job's pointers are good (its invariant).
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub unsafe fn run(job: &Job<'_>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { run::perform::<Avx512Gfni, UNROLL>(job) }
}

// SAFETY: WIDTH is the size of `__m512i`; loads and stores are unaligned and stay within it.
unsafe impl Lane for Avx512Gfni {
    type Vector = __m512i;
    /// The bit matrix, in each of the eight parts of the register.
    type Factor = __m512i;
    const WIDTH: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        // SAFETY: the caller's promise (AVX-512).
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        // SAFETY: the caller's promise (AVX-512; 64 readable bytes).
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, v: __m512i) {
        // SAFETY: the caller's promise (AVX-512; 64 writable bytes).
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn xor(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the caller's promise (AVX-512).
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: the caller's promise (AVX-512).
        unsafe { _mm512_ternarylogic_epi64::<XOR3>(a, b, c) }
    }

    #[inline(always)]
    unsafe fn double(a: __m512i) -> __m512i {
        // SAFETY: the caller's promise (GFNI).
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(a, _mm512_set1_epi64(DOUBLE)) }
    }

    /// Half the chain of two doublings: 4*q and 2*high do not wait for each other.
    #[inline(always)]
    unsafe fn horner2(q: __m512i, high: __m512i, low: __m512i) -> __m512i {
        // SAFETY: the caller's promise (AVX-512, GFNI).
        unsafe {
            let q = _mm512_gf2p8affine_epi64_epi8::<0>(q, _mm512_set1_epi64(QUADRUPLE));
            _mm512_ternarylogic_epi64::<XOR3>(q, Self::double(high), low)
        }
    }

    #[inline(always)]
    unsafe fn factor(c: u8) -> __m512i {
        // SAFETY: the caller's promise (AVX-512).
        unsafe { _mm512_set1_epi64(MATRICES[c as usize] as i64) }
    }

    #[inline(always)]
    unsafe fn multiply(a: __m512i, by: __m512i) -> __m512i {
        // SAFETY: the caller's promise (GFNI).
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(a, by) }
    }

    #[inline(always)]
    unsafe fn is_zero(a: __m512i) -> bool {
        // SAFETY: the caller's promise (AVX-512).
        unsafe { _mm512_test_epi64_mask(a, a) == 0 }
    }
}
