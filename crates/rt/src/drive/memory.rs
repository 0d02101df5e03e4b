//! The memory drive: sparse pages of 1 MiB, two to a frame of memory, allocated by the first write that is not a deallocate.
//!
//! It does an operation at the first poll and answers at the second, so that a loop of memory I/O does not starve
//! the other tasks.
//!
//! A real drive reaches memory without the processor's page tables. With pages of 4 KiB a random read waits for these about as long as for its
//! data. So a frame of which an eighth was written becomes a huge page of the processor, where the kernel can do it; one that holds a label
//! takes 4 KiB.
//!
//! Not here: faults and latency (`model`).
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ops::Range;

use memmap2::{MmapMut, MmapOptions};

use crate::IoError;
use crate::pages::spans;

const PAGE_BYTES: usize = 1 << 20;

/// Pages of a frame, which is as long as a huge page of the processor.
const FRAME_PAGES: usize = 2;
const FRAME_BYTES: usize = FRAME_PAGES * PAGE_BYTES;

/// What a frame holds that becomes a huge page.
const HUGE_FROM: usize = FRAME_BYTES / 8;

/// Of linux/mman.h, since Linux 6.1.
const MADV_COLLAPSE: libc::c_int = 25;

/// Deallocated frames kept for the next writes, at most: giving memory back and faulting it in anew costs more than a
/// drive's write.
const SPARE_FRAMES: usize = 32;

/// A page: what lies beyond `filled` reads as zeros, whatever it holds. Beyond `touched` it holds zeros, as the kernel gave them.
#[derive(Clone, Copy, Default)]
struct Page {
    filled: usize,
    touched: usize,
}

/// Memory for pages that lie behind each other. It is given back when none of them holds anything.
struct Frame {
    /// Twice as long as a frame, so that one that is aligned lies in it, from `start` on.
    memory: MmapMut,
    start: usize,
    pages: [Page; FRAME_PAGES],
    /// Bytes that were written beyond what the pages had.
    grown: usize,
}

impl Frame {
    fn new() -> Result<Frame, IoError> {
        let memory = MmapOptions::new().len(2 * FRAME_BYTES).no_reserve_swap().map_anon();
        let memory = memory.map_err(|_| IoError::NoSpace)?;
        let start = memory.as_ptr().align_offset(FRAME_BYTES);
        Ok(Frame { memory, start, pages: Default::default(), grown: 0 })
    }

    fn is_empty(&self) -> bool {
        self.pages.iter().all(|page| page.filled == 0)
    }

    /// Where a page lies in the memory.
    fn place(&self, which: usize) -> Range<usize> {
        let start = self.start + which * PAGE_BYTES;
        start..start + PAGE_BYTES
    }

    fn write(&mut self, which: usize, at: usize, data: &[u8]) {
        let (Page { filled, touched }, end, place) = (self.pages[which], at + data.len(), self.place(which));
        let bytes = &mut self.memory[place];
        if filled < at.min(touched) {
            bytes[filled..at.min(touched)].fill(0);
        }
        bytes[at..end].copy_from_slice(data);
        self.pages[which] = Page { filled: filled.max(end), touched: touched.max(end) };
        let before = self.grown;
        self.grown += end.saturating_sub(filled.max(at));
        if before < HUGE_FROM && self.grown >= HUGE_FROM {
            self.become_huge();
        }
    }

    fn deallocate(&mut self, which: usize, range: Range<usize>) {
        let (filled, place) = (self.pages[which].filled, self.place(which));
        if range.start >= filled {
            return;
        }
        if range.end >= filled {
            self.pages[which].filled = range.start;
        } else {
            self.memory[place][range].fill(0);
        }
    }

    fn become_huge(&mut self) {
        let start = self.memory[self.start..].as_mut_ptr();
        // SAFETY: the range lies in this mapping, and its contents stay. An error leaves it as it was, which is only slower.
        let _as_it_was = unsafe { libc::madvise(start.cast(), FRAME_BYTES, MADV_COLLAPSE) };
    }
}

/// The contents of a memory drive.
pub(crate) struct Memory {
    /// By number; grows to the highest page written.
    frames: RefCell<Vec<Option<Frame>>>,
    spare: RefCell<Vec<Frame>>,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { frames: RefCell::default(), spare: RefCell::default() }
    }

    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        let frames = self.frames.borrow();
        for (page, within, part) in spans::<PAGE_BYTES>(at, into.len()) {
            let (target, which) = (&mut into[part], page % FRAME_PAGES);
            let there = frames.get(page / FRAME_PAGES).and_then(Option::as_ref);
            let filled = there.map_or(0, |f| f.pages[which].filled.saturating_sub(within).min(target.len()));
            if let Some(frame) = there {
                target[..filled].copy_from_slice(&frame.memory[frame.place(which)][within..within + filled]);
            }
            target[filled..].fill(0);
        }
    }

    /// # Errors
    /// When the kernel has no more memory.
    pub(crate) fn write(&self, at: u64, data: &[u8]) -> Result<(), IoError> {
        let mut frames = self.frames.borrow_mut();
        for (page, within, part) in spans::<PAGE_BYTES>(at, data.len()) {
            let number = page / FRAME_PAGES;
            if number >= frames.len() {
                frames.resize_with(number + 1, || None);
            }
            let frame = match &mut frames[number] {
                Some(frame) => frame,
                empty => empty.insert(self.spare.borrow_mut().pop().map_or_else(Frame::new, Ok)?),
            };
            frame.write(page % FRAME_PAGES, within, &data[part]);
        }
        Ok(())
    }

    /// Whether no page that these bytes lie on holds anything: none was written, or they were deallocated. What was
    /// written beside the bytes on such a page counts.
    pub(crate) fn is_empty(&self, at: u64, len: u64) -> bool {
        let (first, end) = (at / PAGE_BYTES as u64, (at + len).div_ceil(PAGE_BYTES as u64));
        let frames = self.frames.borrow();
        let there = (frames.len() * FRAME_PAGES) as u64;
        (first.min(there)..end.min(there)).all(|page| {
            let (number, which) = (page as usize / FRAME_PAGES, page as usize % FRAME_PAGES);
            frames[number].as_ref().is_none_or(|frame| frame.pages[which].filled == 0)
        })
    }

    pub(crate) fn deallocate(&self, at: u64, len: u64) {
        let mut frames = self.frames.borrow_mut();
        let end = (at + len).min((frames.len() * FRAME_BYTES) as u64);
        if end <= at {
            return;
        }
        for (page, within, part) in spans::<PAGE_BYTES>(at, (end - at) as usize) {
            let place = &mut frames[page / FRAME_PAGES];
            let Some(frame) = place else { continue };
            frame.deallocate(page % FRAME_PAGES, within..within + part.len());
            if frame.is_empty() {
                let mut spare = self.spare.borrow_mut();
                if let Some(frame) = place.take().filter(|_| spare.len() < SPARE_FRAMES) {
                    spare.push(frame);
                }
            }
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
        memory.write(2 * PAGE + 4096, &[1; 4096]).unwrap();
        assert!(memory.is_empty(0, 2 * PAGE) && memory.is_empty(3 * PAGE, 1 << 40) && memory.is_empty(1 << 50, 4096));
        assert!(!memory.is_empty(2 * PAGE, PAGE) && !memory.is_empty(0, 2 * PAGE + 4096));
        memory.deallocate(2 * PAGE, PAGE);
        assert!(memory.is_empty(0, 1 << 40));
    }

    #[test]
    fn pages_that_share_memory_are_empty_apart() {
        const PAGE: u64 = PAGE_BYTES as u64;
        let memory = Memory::new();
        memory.write(PAGE - 4096, &[1; 4096]).unwrap();
        assert!(!memory.is_empty(0, PAGE) && memory.is_empty(PAGE, PAGE));
        memory.write(PAGE, &[2; PAGE_BYTES]).unwrap();
        memory.deallocate(0, PAGE);
        assert!(memory.is_empty(0, PAGE) && !memory.is_empty(PAGE, PAGE));
        // In two parts, the first of which is not the end of what was written.
        memory.deallocate(PAGE, PAGE / 2);
        assert!(!memory.is_empty(PAGE, PAGE) && memory.frames.borrow()[0].is_some());
        memory.deallocate(PAGE + PAGE / 2, PAGE / 2);
        memory.deallocate(PAGE, PAGE / 2);
        assert!(memory.frames.borrow()[0].is_none());
    }

    #[test]
    fn more_than_an_eighth_is_a_huge_page_where_there_are_some() {
        let memory = Memory::new();
        memory.write(0, &[1; 4096]).unwrap();
        (0..1000).for_each(|_| memory.write(0, &[2; 4096]).unwrap());
        assert_eq!(memory.frames.borrow()[0].as_ref().unwrap().grown, 4096, "the same bytes again");
        memory.write(4096, &[3; HUGE_FROM]).unwrap();
        let frames = memory.frames.borrow();
        let frame = frames[0].as_ref().unwrap();
        assert!(frame.grown >= HUGE_FROM && frame.memory[frame.start..].as_ptr().addr() % FRAME_BYTES == 0);
        let there = &frame.memory[frame.start..frame.start + HUGE_FROM + 8192];
        assert!(there[..4096].iter().all(|&b| b == 2) && there[4096..4096 + HUGE_FROM].iter().all(|&b| b == 3));
        assert!(there[4096 + HUGE_FROM..].iter().all(|&b| b == 0));
    }

    #[test]
    fn what_was_deallocated_does_not_come_back_in_a_gap() {
        let memory = Memory::new();
        memory.write(0, &[7; PAGE_BYTES]).unwrap();
        memory.deallocate(0, PAGE_BYTES as u64);
        memory.write(PAGE_BYTES as u64 / 2, &[8; 4096]).unwrap();
        let mut back = vec![9; PAGE_BYTES];
        memory.read(0, &mut back);
        let half = PAGE_BYTES / 2;
        assert!(back[..half].iter().all(|&b| b == 0) && back[half..half + 4096].iter().all(|&b| b == 8));
        assert!(back[half + 4096..].iter().all(|&b| b == 0));
    }

    #[test]
    fn reads_see_writes_across_pages_and_deallocated_is_zero() {
        let memory = Memory::new();
        let at = PAGE_BYTES as u64 - 4096;
        let data: Vec<u8> = (0..3 * PAGE_BYTES).map(|i| (i / 4096 % 251) as u8 + 1).collect();
        memory.write(at, &data).unwrap();
        let mut back = vec![9; data.len() + 8192];
        memory.read(at - 4096, &mut back);
        assert!(back[..4096].iter().all(|&b| b == 0));
        assert!(back[4096..4096 + data.len()] == data[..]);
        memory.deallocate(at + 4096, 2 * PAGE_BYTES as u64);
        memory.deallocate(1 << 40, 1 << 30);
        assert!(memory.is_empty(PAGE_BYTES as u64, PAGE_BYTES as u64) && !memory.is_empty(3 * PAGE_BYTES as u64, 4096));
        memory.read(at, &mut back[..data.len()]);
        for (i, b) in back[..data.len()].iter().enumerate() {
            let gone = (4096..4096 + 2 * PAGE_BYTES).contains(&i);
            assert_eq!(*b, if gone { 0 } else { data[i] }, "byte {i}");
        }
    }
}
