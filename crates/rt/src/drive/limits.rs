//! What one command of a drive can move, and the pieces of a request that are such.
//!
//! The kernel does not split passthrough commands: one that is longer than the controller takes (MDTS), or has more
//! pieces of memory than its driver takes, is refused. What is polled it must not have to split (`polling`).
//!
//! Invariant: pieces are whole blocks, in order, none empty, and together the whole.

use std::collections::VecDeque;
use std::ops::Range;

use base::BLOCK_BYTES;

use crate::Bytes;

/// What one command may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Whole blocks.
    pub(super) bytes: usize,
    /// Pages of memory, if none lies behind another: what the driver calls segments.
    pub(super) pages: usize,
}

impl Limits {
    /// None when a block that lies over two pages is too much.
    pub(super) fn new(bytes: usize, segments: usize) -> Option<Limits> {
        /// The kernel's UIO_MAXIOV: each part lies on a page at least.
        const PARTS_MAX: usize = 1024;
        let (bytes, pages) = (bytes - bytes % BLOCK_BYTES, segments.min(PARTS_MAX));
        (bytes >= BLOCK_BYTES && pages >= 2).then_some(Limits { bytes, pages })
    }

    /// Ranges of a buffer of `len` bytes that begins on a page.
    pub(super) fn ranges(self, len: usize) -> impl Iterator<Item = Range<usize>> {
        let step = self.bytes.min(self.pages * BLOCK_BYTES);
        (0..len).step_by(step).map(move |from| from..len.min(from + step))
    }

    /// Takes what one command can move off the front.
    pub(super) fn take(self, parts: &mut VecDeque<Bytes>) -> Vec<Bytes> {
        let (mut taken, mut bytes, mut pages) = (Vec::with_capacity(parts.len()), 0, 0);
        while let Some(part) = parts.pop_front() {
            let room = self.blocks_that_fit(&part, self.bytes - bytes, self.pages - pages) * BLOCK_BYTES;
            if room >= part.len() {
                (bytes, pages) = (bytes + part.len(), pages + pages_of(part.as_ptr(), part.len()));
                taken.push(part);
                continue;
            }
            if room > 0 {
                taken.push(part.slice(0..room));
            }
            parts.push_front(part.slice(room..part.len()));
            break;
        }
        taken
    }

    fn blocks_that_fit(self, part: &Bytes, bytes: usize, pages: usize) -> usize {
        // A part that does not begin on a page ends on one more.
        let straddles = pages_of(part.as_ptr(), BLOCK_BYTES) - 1;
        let blocks = part.len() / BLOCK_BYTES;
        blocks.min(bytes / BLOCK_BYTES).min(pages.saturating_sub(straddles))
    }
}

/// The pages that `len` bytes of memory from `start` on lie on.
pub(super) fn pages_of(start: *const u8, len: usize) -> usize {
    (start as usize % BLOCK_BYTES + len).div_ceil(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole blocks that begin `off` a page's first byte.
    fn part(blocks: usize, off: usize, fill: u8) -> Bytes {
        let all = Bytes::from_slice(&vec![fill; blocks * BLOCK_BYTES + off]);
        all.slice(off..all.len())
    }

    fn check(limits: Limits, parts: &[Bytes], want: &[usize]) {
        let mut rest: VecDeque<Bytes> = parts.iter().cloned().collect();
        let (mut lengths, mut moved) = (vec![], vec![]);
        while !rest.is_empty() {
            let piece = limits.take(&mut rest);
            let len: usize = piece.iter().map(Bytes::len).sum();
            let pages: usize = piece.iter().map(|p| pages_of(p.as_ptr(), p.len())).sum();
            assert!(len > 0 && len <= limits.bytes && pages <= limits.pages);
            assert!(piece.iter().all(|p| !p.is_empty() && p.len().is_multiple_of(BLOCK_BYTES)));
            lengths.push(len / BLOCK_BYTES);
            piece.iter().for_each(|p| moved.extend_from_slice(p));
        }
        assert_eq!(lengths, want);
        assert_eq!(moved, parts.iter().flat_map(|p| p.to_vec()).collect::<Vec<_>>());
    }

    #[test]
    fn parts_are_cut_at_blocks() {
        let limits = Limits::new(8 * BLOCK_BYTES, 8).unwrap();
        check(limits, &[part(8, 0, 1)], &[8]);
        check(limits, &[part(9, 0, 1)], &[8, 1]);
        check(limits, &[part(3, 0, 1), part(4, 0, 2), part(10, 0, 3)], &[8, 8, 1]);
        // One that lies across pages takes one page more.
        check(limits, &[part(8, 512, 1)], &[7, 1]);
        check(limits, &[part(1, 512, 1), part(1, 512, 2), part(1, 512, 3), part(1, 512, 4), part(1, 512, 5)], &[4, 1]);
        check(limits, &[part(7, 0, 1), part(1, 512, 2)], &[7, 1]);
        check(Limits::new(BLOCK_BYTES, 2).unwrap(), &[part(3, 512, 1)], &[1, 1, 1]);
    }

    #[test]
    fn buffers_are_cut_at_blocks() {
        let cut = |bytes, segments, len: usize| Limits::new(bytes, segments).unwrap().ranges(len).collect::<Vec<_>>();
        assert_eq!(cut(8192, 127, 0), vec![]);
        assert_eq!(cut(8192, 127, 8192), vec![0..8192]);
        assert_eq!(cut(10_000, 127, 20_480), vec![0..8192, 8192..16384, 16384..20_480]);
        assert_eq!(cut(1 << 20, 2, 12_288), vec![0..8192, 8192..12_288]);
    }

    #[test]
    fn too_narrow_to_be_used() {
        assert_eq!((Limits::new(4095, 127), Limits::new(4096, 1)), (None, None));
    }
}
