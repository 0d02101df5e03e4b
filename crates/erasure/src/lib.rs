//! Redundancy of a row: XOR (P), P and Q, and the reconstruction of up to two lost columns. Slices in, slices out.
//!
//! A row has `k` data columns `d[0..k]` and `m` (0, 1 or 2) parity columns, all of one length:
//!
//! ```text
//!   P = d[0] + d[1] + ... + d[k-1]                       + is XOR
//!   Q = d[0] + g*d[1] + ... + g^(k-1)*d[k-1]             byte by byte in GF(2^8)
//!                                                        generator g = 2, polynomial 0x11d
//! ```
//!
//! That is the convention of Linux md RAID 6 and of ISA-L's `pq_gen`, so that other tools can check our rows.
//!
//! Invariants: every kernel computes the same bytes; no kernel allocates; slices need no alignment.
//!
//! Does not: detect damage (checksums do), know rows or drives, handle more than two lost columns, speed up machines
//! other than x86-64 (they run the portable kernel).

#![deny(unsafe_op_in_unsafe_fn)]

mod encode;
mod gf;
mod kernel;
mod reconstruct;
mod sweep;

pub use encode::{encode, matches};
pub use kernel::{Kernel, kernel};
pub use reconstruct::{TooManyLost, reconstruct};

/// Most data columns of a row: with two parity columns a row then has 64, and a set of columns fits a `u64`.
pub const DATA_COLUMNS_MAX: usize = 62;

/// Column lengths are multiples of this: one AVX-512 register.
pub const LENGTH_STEP: usize = 64;

fn assert_shape(k: usize, m: usize, length: usize) {
    assert!((1..=DATA_COLUMNS_MAX).contains(&k), "a row has 1 to {DATA_COLUMNS_MAX} data columns, not {k}");
    assert!(m <= 2, "a row has at most two parity columns, not {m}");
    assert!(length.is_multiple_of(LENGTH_STEP), "a column's length is a multiple of {LENGTH_STEP}, not {length}");
}
