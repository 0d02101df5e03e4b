//! Lost columns from the others.
//!
//! With `s` and `t` the sums that the present data columns leave of P and Q (`s = P + sum d[i]`,
//! `t = Q + sum g^i d[i]`, over present `i`; a lost P or Q counts as zero in them), each loss is a linear combination:
//!
//! | lost | s, t | columns |
//! |---|---|---|
//! | d\[x\] | s = d\[x\] | d\[x\] = s |
//! | P; Q | | encode again |
//! | P, Q | | encode again |
//! | d\[x\], P | t = g^x d\[x\] | d\[x\] = g^-x t; P = s + d\[x\] |
//! | d\[x\], Q | s = d\[x\] | d\[x\] = s; Q = t + g^x s |
//! | d\[x\], d\[y\] | s = d\[x\] + d\[y\], t = g^x d\[x\] + g^y d\[y\] | d\[x\] = (g^y s + t) / (g^x + g^y); d\[y\] = s + d\[x\] |
//!
//! (H. P. Anvin, "The mathematics of RAID-6", sections 3 and 4, has the same cases.)
//!
//! Does not: check that the present columns are right; a wrong one makes wrong columns.

use crate::{
    assert_shape, gf,
    kernel::Kernel,
    sweep::{Job, Solution, Sources, Target, Task},
};

/// More columns are lost than the row has parity columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyLost {
    /// Columns lost.
    pub lost: usize,
    /// Parity columns of the row.
    pub parity: usize,
}

impl std::fmt::Display for TooManyLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} columns of a row are lost and its {} parity columns cannot replace them", self.lost, self.parity)
    }
}

impl std::error::Error for TooManyLost {}

/// Recomputes lost columns in place.
///
/// `columns` are the `k` data columns, then the `m` parity columns; `lost` holds their indices in rising order. Present
/// columns are read, lost ones are written. Nothing lost is nothing done.
///
/// # Errors
/// [`TooManyLost`] when `lost` is longer than `m`; no column is touched.
///
/// # Panics
/// When the shape is impossible (as for [`encode`](crate::encode)), `lost` is not rising or out of range, or the kernel
/// does not run on this machine.
pub fn reconstruct(
    kernel: Kernel,
    k: usize,
    m: usize,
    columns: &mut [&mut [u8]],
    lost: &[usize],
) -> Result<(), TooManyLost> {
    let length = columns.first().map_or(0, |column| column.len());
    assert_shape(k, m, length);
    assert_eq!(columns.len(), k + m, "a row of {k}+{m} has that many columns");
    assert!(lost.is_sorted_by(|a, b| a < b), "lost columns are named once, in rising order");
    assert!(lost.last().is_none_or(|last| *last < k + m), "a lost column is one of the row");
    match lost {
        [] => Ok(()),
        _ if lost.len() > m => Err(TooManyLost { lost: lost.len(), parity: m }),
        [x] => {
            one(kernel, k, columns, *x, length);
            Ok(())
        }
        [x, y] => {
            two(kernel, k, columns, [*x, *y], length);
            Ok(())
        }
        _ => unreachable!("m is at most two"),
    }
}

/// One loss: Q needs the data columns; all else is the sum of the data columns and P without itself.
fn one(kernel: Kernel, k: usize, columns: &mut [&mut [u8]], lost: usize, length: usize) {
    let mut sources = Sources::new(length);
    let mut target = None;
    let read = if lost == k + 1 { k } else { k + 1 };
    for (i, column) in columns.iter_mut().enumerate() {
        if i == lost {
            target = Some(Target::new(column));
        } else if i < read {
            sources.push(column);
        }
    }
    let into = target.expect("the lost column is one of the row, as checked");
    let task = if lost == k + 1 { Task::Store { p: None, q: into } } else { Task::Xor { into } };
    Job::new(sources, task).run(kernel);
}

/// Two losses, with m = 2.
fn two(kernel: Kernel, k: usize, columns: &mut [&mut [u8]], [x, y]: [usize; 2], length: usize) {
    let mut sources = Sources::new(length);
    let (mut p, mut q) = (None, None);
    let (mut first, mut second) = (None, None);
    for (i, column) in columns.iter_mut().enumerate() {
        if i < k && (i == x || i == y) {
            sources.push_absent();
        } else if i < k {
            sources.push(column);
            continue;
        }
        if i == x {
            first = Some(Target::new(column));
        } else if i == y {
            second = Some(Target::new(column));
        } else if i == k {
            p = Some(&**column);
        } else {
            q = Some(&**column);
        }
    }
    let first = first.expect("x is a column of the row, as checked");
    let second = second.expect("y is a column of the row, as checked");
    if x == k {
        Job::new(sources, Task::Store { p: Some(first), q: second }).run(kernel);
        return;
    }
    let [by_first, by_second] = factors(k, x, y);
    let targets = [
        Solution { into: first, by_s: by_first.0, by_t: by_first.1 },
        Solution { into: second, by_s: by_second.0, by_t: by_second.1 },
    ];
    Job::new(sources, Task::Solve { p, q, targets }).run(kernel);
}

/// The factors of s and t for lost data column `x` and for lost column `y` > x (data, P or Q): the module's table.
fn factors(k: usize, x: usize, y: usize) -> [(u8, u8); 2] {
    let gx = gf::power(x);
    if y == k {
        let by_t = gf::INVERSES[gx as usize];
        return [(0, by_t), (1, by_t)];
    }
    if y == k + 1 {
        return [(1, 0), (gx, 1)];
    }
    let gy = gf::power(y);
    let common = gf::INVERSES[(gx ^ gy) as usize];
    let by_s = gf::multiply(gy, common);
    [(by_s, common), (by_s ^ 1, common)]
}
