//! The memory drive: sparse pages of 1 MiB, allocated by the first write that is not a deallocate.
//!
//! It does an operation at the first poll and answers at the second, so that a loop of memory I/O does not starve
//! the other tasks.
//!
//! Not here: faults and latency (`model`).

use std::cell::RefCell;

const PAGE_BYTES: usize = 1 << 20;

type Page = Box<[u8]>;

/// The contents of a memory drive.
pub(crate) struct Memory {
    /// By page number; grows to the highest page written.
    pages: RefCell<Vec<Option<Page>>>,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory {
            pages: RefCell::default(),
        }
    }

    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        let pages = self.pages.borrow();
        for (page, within, part) in spans(at, into.len()) {
            let target = &mut into[part];
            match pages.get(page).and_then(Option::as_ref) {
                Some(page) => target.copy_from_slice(&page[within..within + target.len()]),
                None => target.fill(0),
            }
        }
    }

    pub(crate) fn write(&self, at: u64, data: &[u8]) {
        let mut pages = self.pages.borrow_mut();
        for (page, within, part) in spans(at, data.len()) {
            let source = &data[part];
            if page >= pages.len() {
                pages.resize(page + 1, None);
            }
            let page = pages[page].get_or_insert_with(|| vec![0; PAGE_BYTES].into_boxed_slice());
            page[within..within + source.len()].copy_from_slice(source);
        }
    }

    pub(crate) fn deallocate(&self, at: u64, len: u64) {
        let mut pages = self.pages.borrow_mut();
        let end = (at + len).min((pages.len() * PAGE_BYTES) as u64);
        if end <= at {
            return;
        }
        for (page, within, part) in spans(at, (end - at) as usize) {
            if part.len() == PAGE_BYTES {
                pages[page] = None;
            } else if let Some(page) = &mut pages[page] {
                page[within..within + part.len()].fill(0);
            }
        }
    }
}

/// Cuts a byte range at page borders: page number, offset within the page, range of the caller's slice.
fn spans(at: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_see_writes_across_pages_and_deallocated_is_zero() {
        let memory = Memory::new();
        let at = PAGE_BYTES as u64 - 4096;
        let data: Vec<u8> = (0..3 * PAGE_BYTES)
            .map(|i| (i / 4096 % 251) as u8 + 1)
            .collect();
        memory.write(at, &data);
        let mut back = vec![9; data.len() + 8192];
        memory.read(at - 4096, &mut back);
        assert!(back[..4096].iter().all(|&b| b == 0));
        assert!(back[4096..4096 + data.len()] == data[..]);
        memory.deallocate(at + 4096, 2 * PAGE_BYTES as u64);
        memory.deallocate(1 << 40, 1 << 30);
        assert!(memory.pages.borrow()[1].is_none() && memory.pages.borrow()[3].is_some());
        memory.read(at, &mut back[..data.len()]);
        for (i, b) in back[..data.len()].iter().enumerate() {
            let gone = (4096..4096 + 2 * PAGE_BYTES).contains(&i);
            assert_eq!(*b, if gone { 0 } else { data[i] }, "byte {i}");
        }
    }
}
