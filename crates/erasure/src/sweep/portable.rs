//! The lane of any machine: four `u64`, which the compiler turns into whatever vectors the target has.

#![allow(unsafe_code)]

use super::{job::Job, lane::Lane, run};
use crate::gf::REDUCTION;

/// Registers per step: on SSE2 more only spill.
const UNROLL: usize = 1;

const HIGH_BITS: u64 = u64::MAX / 0xff * 0x80;
const REDUCTIONS: u64 = u64::MAX / 0xff * REDUCTION as u64;

type Words = [u64; 4];

struct Portable;

/// # Safety
/// The job's pointers are good (its invariant).
pub unsafe fn run(job: &Job<'_>) -> bool {
    // SAFETY: the caller's promise; this lane needs no special instructions.
    unsafe { run::perform::<Portable, UNROLL>(job) }
}

#[inline(always)]
fn xor(mut a: Words, b: Words) -> Words {
    for i in 0..a.len() {
        a[i] ^= b[i];
    }
    a
}

#[inline(always)]
fn double(a: Words) -> Words {
    a.map(|a| {
        let overflow = a & HIGH_BITS;
        // 0xff in each byte that overflows: its high bit moved up one byte, minus itself at the bottom of its byte.
        let mask = (overflow << 1).wrapping_sub(overflow >> 7);
        ((a & !HIGH_BITS) << 1) ^ (mask & REDUCTIONS)
    })
}

// SAFETY: WIDTH is the size of `Words`; loads and stores are unaligned and stay within it.
unsafe impl Lane for Portable {
    type Vector = Words;
    type Factor = u8;
    const WIDTH: usize = size_of::<Words>();

    #[inline(always)]
    unsafe fn zero() -> Words {
        [0; 4]
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Words {
        // SAFETY: the caller's promise; `Words` has no invalid bit patterns.
        unsafe { from.cast::<Words>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, v: Words) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<Words>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn xor(a: Words, b: Words) -> Words {
        xor(a, b)
    }

    #[inline(always)]
    unsafe fn double(a: Words) -> Words {
        double(a)
    }

    #[inline(always)]
    unsafe fn factor(c: u8) -> u8 {
        c
    }

    #[inline(always)]
    unsafe fn multiply(a: Words, by: u8) -> Words {
        let mut product = [0; 4];
        for bit in (0..8).rev() {
            product = double(product);
            if by >> bit & 1 != 0 {
                product = xor(product, a);
            }
        }
        product
    }

    #[inline(always)]
    unsafe fn is_zero(a: Words) -> bool {
        a.iter().fold(0, |all, word| all | word) == 0
    }
}
