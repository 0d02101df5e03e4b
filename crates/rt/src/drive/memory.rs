//! The memory drive: sparse pages of 1 MiB, allocated by the first write that is not a deallocate.
//!
//! It does an operation at the first poll and answers at the second, so that a loop of memory I/O does not starve
//! the other tasks.
//!
//! Not here: faults and latency (`model`).

use std::cell::{Cell, RefCell};

use crate::drive::store::store;
use crate::pages::spans;

const PAGE_BYTES: usize = 1 << 20;

/// A page begins at a page of the processor, so that a block needs one translation of its address, not two.
const ALIGN: usize = 4096;

/// A page: what lies beyond `filled` was never written and reads as zeros, whatever it holds.
struct Page {
    /// Longer than a page, so that one that is aligned lies in it, from `start` on.
    memory: Box<[u8]>,
    start: usize,
    filled: usize,
}

impl Page {
    fn new() -> Page {
        // The kernel's zeros take no memory until they are written; an aligned allocation writes them at once.
        let memory = vec![0; PAGE_BYTES + ALIGN].into_boxed_slice();
        let start = memory.as_ptr().align_offset(ALIGN);
        Page { memory, start, filled: 0 }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + PAGE_BYTES]
    }
}

/// The contents of a memory drive.
pub(crate) struct Memory {
    /// By page number; grows to the highest page written.
    pages: RefCell<Vec<Option<Page>>>,
    /// Deallocated pages, for the next writes: giving memory back and faulting it in anew costs more than a drive's write. A drive that
    /// holds nothing has none: of an array each one holds its labels.
    spare: RefCell<Vec<Page>>,
    /// How many pages are no spares.
    held: Cell<usize>,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { pages: RefCell::default(), spare: RefCell::default(), held: Cell::new(0) }
    }

    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        let pages = self.pages.borrow();
        for (page, within, part) in spans::<PAGE_BYTES>(at, into.len()) {
            let target = &mut into[part];
            let there = pages.get(page).and_then(Option::as_ref);
            let filled = there.map_or(0, |p| p.filled.saturating_sub(within).min(target.len()));
            if let Some(page) = there {
                let from = page.start + within;
                target[..filled].copy_from_slice(&page.memory[from..from + filled]);
            }
            target[filled..].fill(0);
        }
    }

    pub(crate) fn write(&self, at: u64, data: &[u8]) {
        let mut pages = self.pages.borrow_mut();
        for (page, within, part) in spans::<PAGE_BYTES>(at, data.len()) {
            let source = &data[part];
            if page >= pages.len() {
                pages.resize_with(page + 1, || None);
            }
            let page = pages[page].get_or_insert_with(|| self.new_page());
            let (filled, end) = (page.filled, within + source.len());
            if filled < within {
                page.bytes()[filled..within].fill(0);
            }
            store(&mut page.bytes()[within..end], source);
            page.filled = filled.max(end);
        }
    }

    /// Whether no page that these bytes lie on holds anything: none was written, or they were deallocated whole. What was
    /// written beside the bytes on such a page counts.
    pub(crate) fn is_empty(&self, at: u64, len: u64) -> bool {
        let (first, end) = (at / PAGE_BYTES as u64, (at + len).div_ceil(PAGE_BYTES as u64));
        let pages = self.pages.borrow();
        let there = pages.len() as u64;
        pages[first.min(there) as usize..end.min(there) as usize].iter().all(Option::is_none)
    }

    fn new_page(&self) -> Page {
        self.held.set(self.held.get() + 1);
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(Page::new)
    }

    pub(crate) fn deallocate(&self, at: u64, len: u64) {
        let mut pages = self.pages.borrow_mut();
        let end = (at + len).min((pages.len() * PAGE_BYTES) as u64);
        if end <= at {
            return;
        }
        for (page, within, part) in spans::<PAGE_BYTES>(at, (end - at) as usize) {
            let Some(there) = &mut pages[page] else { continue };
            if within > 0 || part.len() < there.filled {
                there.bytes()[within..within + part.len()].fill(0);
                continue;
            }
            let gone = pages[page].take().expect("it is there");
            self.held.set(self.held.get() - 1);
            self.spare.borrow_mut().push(Page { filled: 0, ..gone });
        }
        if self.held.get() == 0 {
            self.spare.borrow_mut().clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_where_no_page_is() {
        const PAGE: u64 = PAGE_BYTES as u64;
        let memory = Memory::new();
        assert!(memory.is_empty(0, 1 << 40));
        memory.write(2 * PAGE + 4096, &[1; 4096]);
        assert!(memory.is_empty(0, 2 * PAGE) && memory.is_empty(3 * PAGE, 1 << 40) && memory.is_empty(1 << 50, 4096));
        assert!(!memory.is_empty(2 * PAGE, PAGE) && !memory.is_empty(0, 2 * PAGE + 4096));
        memory.deallocate(2 * PAGE, PAGE);
        assert!(memory.is_empty(0, 1 << 40));
    }

    #[test]
    fn pages_begin_at_pages_of_the_processor() {
        let mut page = Page::new();
        assert!(page.bytes().as_ptr().addr().is_multiple_of(ALIGN));
        assert_eq!(page.bytes().len(), PAGE_BYTES);
    }

    #[test]
    fn pages_are_used_again_until_the_drive_is_empty() {
        const PAGE: u64 = PAGE_BYTES as u64;
        let memory = Memory::new();
        memory.write(0, &[1; 3 * PAGE_BYTES]);
        let places = || memory.pages.borrow().iter().flatten().map(|page| page.memory.as_ptr()).collect::<Vec<_>>();
        let before = places();
        memory.deallocate(PAGE, 2 * PAGE);
        assert_eq!(memory.spare.borrow().len(), 2);
        memory.write(5 * PAGE + 4096, &[2; 8192]);
        assert_eq!((places(), memory.spare.borrow().len()), (vec![before[0], before[2]], 1));
        let mut back = vec![9; PAGE_BYTES];
        memory.read(5 * PAGE, &mut back);
        assert!(
            back[..4096].iter().chain(&back[12288..]).all(|&b| b == 0) && back[4096..12288].iter().all(|&b| b == 2)
        );
        // No whole page at the end, but all that was written to it.
        memory.deallocate(0, 5 * PAGE + 12288);
        assert!(memory.spare.borrow().is_empty() && places().is_empty());
    }

    #[test]
    fn reads_see_writes_across_pages_and_deallocated_is_zero() {
        let memory = Memory::new();
        let at = PAGE_BYTES as u64 - 4096;
        let data: Vec<u8> = (0..3 * PAGE_BYTES).map(|i| (i / 4096 % 251) as u8 + 1).collect();
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
