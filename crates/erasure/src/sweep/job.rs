//! What a sweep reads and what it does with the sums: slices turned into checked pointers.
//!
//! Invariant: every pointer in here was taken from a slice of exactly `length` bytes that outlives `'a`; a target was
//! taken from a `&mut` slice, so no other pointer of the job reaches it. Only `Task::Solve` has absent columns.

use std::marker::PhantomData;

use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::{DATA_COLUMNS_MAX, kernel::Kernel};

/// Most columns of a row.
pub const COLUMNS_MAX: usize = DATA_COLUMNS_MAX + 2;

/// The columns that are read. A lost one is absent: it counts as zero, but keeps its place.
pub struct Sources<'a> {
    pub(super) data: [*const u8; COLUMNS_MAX],
    pub(super) len: usize,
    pub(super) length: usize,
    slices: PhantomData<&'a [u8]>,
}

impl<'a> Sources<'a> {
    pub fn new(length: usize) -> Self {
        Sources { data: [std::ptr::null(); COLUMNS_MAX], len: 0, length, slices: PhantomData }
    }

    /// Adds the next column.
    pub fn push(&mut self, column: &'a [u8]) {
        assert_eq!(column.len(), self.length, "the columns of a row have one length");
        self.data[self.len] = column.as_ptr();
        self.len += 1;
    }

    /// Leaves the next column's place empty.
    pub fn push_absent(&mut self) {
        self.len += 1;
        assert!(self.len <= COLUMNS_MAX);
    }
}

/// A column that is written.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub(super) pointer: *mut u8,
    length: usize,
    slice: PhantomData<&'a mut [u8]>,
}

impl<'a> Target<'a> {
    pub fn new(column: &'a mut [u8]) -> Self {
        Target { pointer: column.as_mut_ptr(), length: column.len(), slice: PhantomData }
    }
}

/// What is done with the sums `p` and `q` of the sources.
pub enum Task<'a> {
    /// `into = p`, where all sources count once.
    Xor { into: Target<'a> },
    /// True when `p` is zero, where all sources count once.
    XorIsZero,
    /// `p` and `q` are stored; no source is absent here and in `Compare`.
    Store { p: Option<Target<'a>>, q: Target<'a> },
    /// True when `p` equals the stored P and `q` the stored Q.
    Compare { p: &'a [u8], q: &'a [u8] },
    /// With `s = p + P`, `t = q + Q` (an absent P or Q counts as zero): each target becomes `s * by_s + t * by_t`.
    Solve { p: Option<&'a [u8]>, q: Option<&'a [u8]>, targets: [Solution<'a>; 2] },
}

/// One lost column as a linear combination of the two syndromes.
pub struct Solution<'a> {
    pub into: Target<'a>,
    pub by_s: u8,
    pub by_t: u8,
}

/// A checked sweep.
pub struct Job<'a> {
    pub(super) sources: Sources<'a>,
    pub(super) task: Task<'a>,
}

impl<'a> Job<'a> {
    pub fn new(sources: Sources<'a>, task: Task<'a>) -> Self {
        let length = sources.length;
        let equal = match &task {
            Task::Xor { into } => into.length == length,
            Task::XorIsZero => true,
            Task::Store { p, q } => p.as_ref().is_none_or(|p| p.length == length) && q.length == length,
            Task::Compare { p, q } => p.len() == length && q.len() == length,
            Task::Solve { p, q, targets } => {
                [p, q].into_iter().flatten().all(|c| c.len() == length)
                    && targets.iter().all(|t| t.into.length == length)
            }
        };
        assert!(equal, "the columns of a row have one length");
        let whole = sources.data[..sources.len].iter().all(|column| !column.is_null());
        assert!(sources.len > 0 && (whole || matches!(task, Task::Solve { .. })), "only solving skips columns");
        Job { sources, task }
    }

    /// Does the job; the answer has a meaning for the comparing tasks only.
    #[allow(unsafe_code)]
    pub fn run(self, kernel: Kernel) -> bool {
        kernel.assert_available();
        match kernel {
            // SAFETY: the machine has the instructions (asserted above); the pointers are good by this type's invariant.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512Gfni => unsafe { avx512::run(&self) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => unsafe { avx2::run(&self) },
            // SAFETY: the pointers are good by this type's invariant.
            _ => unsafe { portable::run(&self) },
        }
    }
}
