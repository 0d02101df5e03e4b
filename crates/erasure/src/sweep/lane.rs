//! One kernel's register and its arithmetic.
//!
//! Invariant: implementations are `#[inline(always)]`, so that they are compiled inside the function that enables the
//! kernel's instructions.

#![allow(unsafe_code)]

/// A register of bytes in GF(2^8).
///
/// # Safety
/// Callers run on a machine with the lane's instructions; pointers reach `WIDTH` bytes, at any alignment.
#[allow(clippy::missing_safety_doc, reason = "the trait's Safety section holds for every method")]
pub unsafe trait Lane {
    /// The register.
    type Vector: Copy;
    /// A constant prepared for multiplication.
    type Factor: Copy;
    /// Bytes in a register; divides `LENGTH_STEP`.
    const WIDTH: usize;

    unsafe fn zero() -> Self::Vector;
    unsafe fn load(from: *const u8) -> Self::Vector;
    unsafe fn store(to: *mut u8, v: Self::Vector);
    unsafe fn xor(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn double(a: Self::Vector) -> Self::Vector;
    unsafe fn factor(c: u8) -> Self::Factor;
    unsafe fn multiply(a: Self::Vector, by: Self::Factor) -> Self::Vector;
    unsafe fn is_zero(a: Self::Vector) -> bool;

    /// a + b + c.
    #[inline(always)]
    unsafe fn xor3(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { Self::xor(Self::xor(a, b), c) }
    }

    /// Two steps of Horner's rule: 4*q + 2*high + low.
    #[inline(always)]
    unsafe fn horner2(q: Self::Vector, high: Self::Vector, low: Self::Vector) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { Self::xor(Self::double(Self::xor(Self::double(q), high)), low) }
    }
}
