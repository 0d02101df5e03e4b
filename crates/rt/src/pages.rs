//! Pages of what is kept in memory.

use std::ops::Range;

/// Cuts a byte range at page borders: page number, offset within the page, range of the caller's slice.
pub(crate) fn spans<const PAGE_BYTES: usize>(
    at: u64,
    len: usize,
) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let here = at + done as u64;
        let within = (here % PAGE_BYTES as u64) as usize;
        let n = (PAGE_BYTES - within).min(len - done);
        let part = done..done + n;
        done += n;
        Some(((here / PAGE_BYTES as u64) as usize, within, part))
    })
}
