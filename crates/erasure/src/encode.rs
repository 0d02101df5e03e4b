//! Parity from data, and the check of stored parity.

use crate::{
    assert_shape,
    kernel::Kernel,
    sweep::{Job, Sources, Target, Task},
};

/// Computes the parity columns of a row: `parity` is `[]`, `[P]` or `[P, Q]`.
///
/// # Panics
/// When the shape is impossible (no or too many columns, different lengths, a length that is not a multiple of
/// [`LENGTH_STEP`](crate::LENGTH_STEP)), or the kernel does not run on this machine.
pub fn encode(kernel: Kernel, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    let length = data.first().map_or(0, |column| column.len());
    assert_shape(data.len(), parity.len(), length);
    let mut sources = Sources::new(length);
    data.iter().for_each(|column| sources.push(column));
    let task = match parity {
        [] => return,
        [p] => Task::Xor { into: Target::new(p) },
        [p, q] => Task::Store { p: Some(Target::new(p)), q: Target::new(q) },
        _ => unreachable!("the shape was checked"),
    };
    Job::new(sources, task).run(kernel);
}

/// True when `parity` (`[]`, `[P]` or `[P, Q]`) is what [`encode`] computes from `data`.
///
/// # Panics
/// As [`encode`].
#[must_use]
pub fn matches(kernel: Kernel, data: &[&[u8]], parity: &[&[u8]]) -> bool {
    let length = data.first().map_or(0, |column| column.len());
    assert_shape(data.len(), parity.len(), length);
    let mut sources = Sources::new(length);
    data.iter().for_each(|column| sources.push(column));
    let task = match parity {
        [] => return true,
        [p] => {
            sources.push(p);
            Task::XorIsZero
        }
        [p, q] => Task::Compare { p, q },
        _ => unreachable!("the shape was checked"),
    };
    Job::new(sources, task).run(kernel)
}
