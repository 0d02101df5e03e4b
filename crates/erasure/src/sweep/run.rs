//! The loop over a row: sums of one step, and what each task does with them.
//!
//! Invariants: `at + U * WIDTH <= length` at every step; the last steps take one register instead of `U`. No closures:
//! a closure is compiled without the lane's instructions (measured: AVX2 thirty times slower).

#![allow(unsafe_code)]

use super::{
    job::{Job, Solution, Sources, Task},
    lane::Lane,
};

type Registers<L, const U: usize> = [<L as Lane>::Vector; U];

/// Runs a job with lane `L`, `U` registers at a time. False when a comparing task finds a difference.
///
/// # Safety
/// The machine has the lane's instructions; the job's pointers are good (its invariant).
#[inline(always)]
pub unsafe fn perform<L: Lane, const U: usize>(job: &Job<'_>) -> bool {
    let sources = &job.sources;
    // SAFETY: the caller's promise, for every arm; `each_step` keeps offsets within the columns.
    unsafe {
        match &job.task {
            Task::Xor { into } => each_step::<L, U>(sources, &mut StoreXor { into: into.pointer }),
            Task::XorIsZero => each_step::<L, U>(sources, &mut CompareXor),
            Task::Store { p, q } => {
                let p = p.as_ref().map(|p| p.pointer);
                each_step::<L, U>(sources, &mut Store { p, q: q.pointer })
            }
            Task::Compare { p, q } => each_step::<L, U>(sources, &mut Compare { p: p.as_ptr(), q: q.as_ptr() }),
            Task::Solve { p, q, targets } => {
                let [p, q] = [p, q].map(|column| column.map(<[u8]>::as_ptr));
                let [first, second] = targets;
                let targets = [Factors::<L>::new(first), Factors::<L>::new(second)];
                each_step::<L, U>(sources, &mut Solve { p, q, targets })
            }
        }
    }
}

/// What happens at one step, `U` registers from byte `at`; false stops the sweep.
trait Step<L: Lane> {
    unsafe fn step<const U: usize>(&mut self, sources: &Sources<'_>, at: usize) -> bool;
}

#[inline(always)]
unsafe fn each_step<L: Lane, const U: usize>(sources: &Sources<'_>, task: &mut impl Step<L>) -> bool {
    let mut at = 0;
    while at + U * L::WIDTH <= sources.length {
        // SAFETY: `U` registers from `at` lie within the columns.
        if !unsafe { task.step::<U>(sources, at) } {
            return false;
        }
        at += U * L::WIDTH;
    }
    while at < sources.length {
        // SAFETY: `length` and `at` are multiples of WIDTH, so one more register lies within the columns.
        if !unsafe { task.step::<1>(sources, at) } {
            return false;
        }
        at += L::WIDTH;
    }
    true
}

#[inline(always)]
unsafe fn load<L: Lane, const U: usize>(column: *const u8, at: usize) -> Registers<L, U> {
    // SAFETY: the caller's promise: `U` registers from `at` lie within the column.
    unsafe {
        let mut v = [L::zero(); U];
        for (u, v) in v.iter_mut().enumerate() {
            *v = L::load(column.add(at + u * L::WIDTH));
        }
        v
    }
}

#[inline(always)]
unsafe fn store<L: Lane, const U: usize>(column: *mut u8, at: usize, v: Registers<L, U>) {
    for (u, v) in v.into_iter().enumerate() {
        // SAFETY: the caller's promise: `U` registers from `at` lie within the column.
        unsafe { L::store(column.add(at + u * L::WIDTH), v) };
    }
}

/// Sum of all sources, none absent.
#[inline(always)]
unsafe fn xor_of<L: Lane, const U: usize>(sources: &Sources<'_>, at: usize) -> Registers<L, U> {
    // SAFETY: the caller's promise.
    unsafe {
        let columns = sources.data.get_unchecked(..sources.len);
        let (first, rest) = columns.split_first().unwrap_unchecked();
        let mut p = load::<L, U>(*first, at);
        let pairs = rest.chunks_exact(2);
        let last = pairs.remainder();
        for pair in pairs {
            let (a, b) = (load::<L, U>(pair[0], at), load::<L, U>(pair[1], at));
            for u in 0..U {
                p[u] = L::xor3(p[u], a[u], b[u]);
            }
        }
        for column in last {
            let a = load::<L, U>(*column, at);
            for u in 0..U {
                p[u] = L::xor(p[u], a[u]);
            }
        }
        p
    }
}

/// p and q of the sources, none absent, by Horner's rule from the last column down, two columns at a time.
#[inline(always)]
unsafe fn sums_of<L: Lane, const U: usize>(sources: &Sources<'_>, at: usize) -> (Registers<L, U>, Registers<L, U>) {
    // SAFETY: the caller's promise; a job has at least one source.
    unsafe {
        let columns = sources.data.get_unchecked(..sources.len);
        let (last, rest) = columns.split_last().unwrap_unchecked();
        let mut p = load::<L, U>(*last, at);
        let mut q = p;
        let pairs = rest.rchunks_exact(2);
        let first = pairs.remainder();
        for pair in pairs {
            let (low, high) = (load::<L, U>(pair[0], at), load::<L, U>(pair[1], at));
            for u in 0..U {
                p[u] = L::xor3(p[u], high[u], low[u]);
                q[u] = L::horner2(q[u], high[u], low[u]);
            }
        }
        for column in first {
            add::<L, U>(*column, at, &mut p, &mut q);
        }
        (p, q)
    }
}

/// p and q of the sources that are present.
#[inline(always)]
unsafe fn sums_of_present<L: Lane, const U: usize>(
    sources: &Sources<'_>,
    at: usize,
) -> (Registers<L, U>, Registers<L, U>) {
    // SAFETY: the caller's promise; absent columns are not read.
    unsafe {
        let (mut p, mut q) = ([L::zero(); U], [L::zero(); U]);
        for column in sources.data.get_unchecked(..sources.len).iter().rev() {
            add::<L, U>(*column, at, &mut p, &mut q);
        }
        (p, q)
    }
}

/// One step of Horner's rule with a column that may be absent.
#[inline(always)]
unsafe fn add<L: Lane, const U: usize>(column: *const u8, at: usize, p: &mut Registers<L, U>, q: &mut Registers<L, U>) {
    // SAFETY: the caller's promise; an absent column is not read.
    unsafe {
        for q in q.iter_mut() {
            *q = L::double(*q);
        }
        if !column.is_null() {
            let d = load::<L, U>(column, at);
            for u in 0..U {
                p[u] = L::xor(p[u], d[u]);
                q[u] = L::xor(q[u], d[u]);
            }
        }
    }
}

struct StoreXor {
    into: *mut u8,
}

impl<L: Lane> Step<L> for StoreXor {
    #[inline(always)]
    unsafe fn step<const U: usize>(&mut self, sources: &Sources<'_>, at: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { store::<L, U>(self.into, at, xor_of::<L, U>(sources, at)) };
        true
    }
}

struct CompareXor;

impl<L: Lane> Step<L> for CompareXor {
    #[inline(always)]
    unsafe fn step<const U: usize>(&mut self, sources: &Sources<'_>, at: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let mut differs = false;
            for p in xor_of::<L, U>(sources, at) {
                differs |= !L::is_zero(p);
            }
            !differs
        }
    }
}

struct Store {
    p: Option<*mut u8>,
    q: *mut u8,
}

impl<L: Lane> Step<L> for Store {
    #[inline(always)]
    unsafe fn step<const U: usize>(&mut self, sources: &Sources<'_>, at: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let (p, q) = sums_of::<L, U>(sources, at);
            if let Some(into) = self.p {
                store::<L, U>(into, at, p);
            }
            store::<L, U>(self.q, at, q);
        }
        true
    }
}

struct Compare {
    p: *const u8,
    q: *const u8,
}

impl<L: Lane> Step<L> for Compare {
    #[inline(always)]
    unsafe fn step<const U: usize>(&mut self, sources: &Sources<'_>, at: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let (p, q) = sums_of::<L, U>(sources, at);
            let (stored_p, stored_q) = (load::<L, U>(self.p, at), load::<L, U>(self.q, at));
            let mut differs = false;
            for u in 0..U {
                differs |= !L::is_zero(L::xor(p[u], stored_p[u]));
                differs |= !L::is_zero(L::xor(q[u], stored_q[u]));
            }
            !differs
        }
    }
}

struct Factors<L: Lane> {
    into: *mut u8,
    by_s: L::Factor,
    by_t: L::Factor,
}

impl<L: Lane> Factors<L> {
    #[inline(always)]
    unsafe fn new(solution: &Solution<'_>) -> Self {
        // SAFETY: the caller's promise.
        let (by_s, by_t) = unsafe { (L::factor(solution.by_s), L::factor(solution.by_t)) };
        Factors { into: solution.into.pointer, by_s, by_t }
    }
}

struct Solve<L: Lane> {
    p: Option<*const u8>,
    q: Option<*const u8>,
    targets: [Factors<L>; 2],
}

impl<L: Lane> Step<L> for Solve<L> {
    #[inline(always)]
    unsafe fn step<const U: usize>(&mut self, sources: &Sources<'_>, at: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut s, mut t) = sums_of_present::<L, U>(sources, at);
            for (sum, parity) in [(&mut s, self.p), (&mut t, self.q)] {
                if let Some(parity) = parity {
                    let parity = load::<L, U>(parity, at);
                    for u in 0..U {
                        sum[u] = L::xor(sum[u], parity[u]);
                    }
                }
            }
            for target in &self.targets {
                let mut solved = s;
                for u in 0..U {
                    solved[u] = L::xor(L::multiply(s[u], target.by_s), L::multiply(t[u], target.by_t));
                }
                store::<L, U>(target.into, at, solved);
            }
        }
        true
    }
}
