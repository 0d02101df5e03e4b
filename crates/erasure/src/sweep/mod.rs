//! One pass over the columns of a row, written once for all kernels.
//!
//! A [`Job`] names the columns that are read and what is done with their sums. A [`Lane`] is one kernel's register and
//! its arithmetic. [`Job::run`] picks the lane; [`run::perform`] is the loop, compiled once per lane with that lane's
//! instructions enabled:
//!
//! ```text
//!   for each step of U registers (U * WIDTH bytes):
//!       p = 0, q = 0
//!       for i in (0..k).rev():   p += d[i];   q = 2*q + d[i]        Horner: only doublings inside the loop
//!       finish: store p and q | solve for two lost columns | compare
//! ```
//!
//! Invariants: a job's pointers cover `length` bytes each for the job's life (its lifetime says so); targets are
//! distinct from each other and from every source; nothing is read or written beyond `length`.
//!
//! Does not: know which columns were lost; `reconstruct` turns losses into jobs.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod job;
mod lane;
mod portable;
mod run;

pub use job::{Job, Solution, Sources, Target, Task};
