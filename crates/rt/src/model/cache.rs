//! The volatile write cache of a modelled drive: writes that were answered and are not yet durable.
//!
//! Invariants: writes are kept in the order of their answers and become durable from the oldest on; `newest` names
//! for every block that differs from the image the latest write that covers it; reads see it.
//!
//! Not here: what a power cut makes of them (`cut`).

use std::collections::{BTreeMap, VecDeque};

use base::{BLOCK_BYTES, BlockCount, MemberLba};

use super::image::Image;
use crate::Bytes;

/// Beyond this the oldest writes become durable by themselves, as in a drive whose cache is full.
const CACHE_BYTES_MAX: u64 = 64 << 20;

/// An answered write, or a deallocate when it has no data.
pub(super) struct Write {
    pub(super) at: MemberLba,
    pub(super) blocks: BlockCount,
    pub(super) data: Option<Bytes>,
}

impl Write {
    /// Puts the whole of it into the image.
    pub(super) fn apply(&self, image: &mut Image) {
        match &self.data {
            Some(data) => image.write(self.at.byte_offset(), data),
            None => image.zero(self.at.byte_offset(), self.blocks.bytes()),
        }
    }
}

/// The cache.
#[derive(Default)]
pub(super) struct Cache {
    writes: VecDeque<Write>,
    /// Number of the oldest in `writes`; the others follow without a gap.
    first: u64,
    newest: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Cache {
    /// The number that the next write will get: all below have been answered.
    pub(super) fn next(&self) -> u64 {
        self.first + self.writes.len() as u64
    }

    /// Takes a write in; writes that no longer fit become durable.
    pub(super) fn add(&mut self, write: Write, image: &mut Image) {
        let number = self.next();
        let blocks = write.at.0..write.at.0 + write.blocks.0;
        if write.data.is_some() {
            self.bytes += write.blocks.bytes();
            self.newest.extend(blocks.map(|b| (b, number)));
        } else {
            // Blocks that were never written read as zeros anyway.
            let mut covered: Vec<u64> = self.newest.range(blocks).map(|(b, _)| *b).collect();
            for bytes in image.written(write.at.byte_offset(), write.blocks.bytes()) {
                covered.extend(bytes.start / BLOCK_BYTES as u64..bytes.end / BLOCK_BYTES as u64);
            }
            self.newest.extend(covered.into_iter().map(|b| (b, number)));
        }
        self.writes.push_back(write);
        while self.bytes > CACHE_BYTES_MAX {
            self.settle(self.first + 1, image);
        }
    }

    /// Lays what is newer than the image over `into`, which holds the image's bytes from block `at` on.
    pub(super) fn overlay(&self, at: MemberLba, into: &mut [u8]) {
        if self.newest.is_empty() {
            return;
        }
        let end = at.0 + (into.len() / BLOCK_BYTES) as u64;
        for (block, number) in self.newest.range(at.0..end) {
            let write = &self.writes[(number - self.first) as usize];
            let target = &mut into[(block - at.0) as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            match &write.data {
                Some(data) => {
                    target.copy_from_slice(&data[(block - write.at.0) as usize * BLOCK_BYTES..][..BLOCK_BYTES])
                }
                None => target.fill(0),
            }
        }
    }

    /// Whether any of these blocks differs from the image.
    pub(super) fn covers(&self, at: MemberLba, n: BlockCount) -> bool {
        self.newest.range(at.0..at.0 + n.0).next().is_some()
    }

    /// Whether it has the contents of a block.
    pub(super) fn holds(&self, block: u64) -> bool {
        self.newest.get(&block).is_some_and(|number| self.writes[(number - self.first) as usize].data.is_some())
    }

    /// Makes the writes with a number below `end` durable.
    pub(super) fn settle(&mut self, end: u64, image: &mut Image) {
        if end >= self.next() {
            self.newest.clear();
        }
        while self.first < end
            && let Some(write) = self.writes.pop_front()
        {
            let number = self.first;
            self.first += 1;
            write.apply(image);
            if write.data.is_some() {
                self.bytes -= write.blocks.bytes();
            }
            let mine: Vec<u64> = self
                .newest
                .range(write.at.0..write.at.0 + write.blocks.0)
                .filter(|(_, n)| **n == number)
                .map(|(b, _)| *b)
                .collect();
            for block in mine {
                self.newest.remove(&block);
            }
        }
    }

    /// Empties the cache; the writes in the order of their answers.
    pub(super) fn take(&mut self) -> VecDeque<Write> {
        self.first = self.next();
        self.newest.clear();
        self.bytes = 0;
        std::mem::take(&mut self.writes)
    }

    /// The answered writes that are not durable, oldest first.
    pub(super) fn writes(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64, blocks: u64, fill: Option<u8>) -> Write {
        let blocks = BlockCount(blocks);
        let data = fill.map(|f| Bytes::from_slice(&vec![f; blocks.len()]));
        Write { at: MemberLba(at), blocks, data }
    }

    fn seen(cache: &Cache, image: &Image, blocks: u64) -> Vec<u8> {
        let mut all = vec![0xEE; blocks as usize * BLOCK_BYTES];
        image.read(0, &mut all);
        cache.overlay(MemberLba(0), &mut all);
        all.chunks(BLOCK_BYTES).map(|b| b[0]).collect()
    }

    #[test]
    fn reads_see_the_newest_and_settling_keeps_what_they_see() {
        let mut image = Image::default();
        image.write(0, &vec![9; 6 * BLOCK_BYTES]);
        let mut cache = Cache::default();
        for w in [write(0, 3, Some(1)), write(2, 2, Some(2)), write(1, 2, None), write(5, 1, Some(3))] {
            cache.add(w, &mut image);
        }
        let want = [1, 0, 0, 2, 9, 3];
        assert_eq!(seen(&cache, &image, 6), want);
        assert_eq!(seen(&Cache::default(), &image, 6), [9; 6]);
        let durable = [[9, 9, 9, 9, 9, 9], [1, 1, 1, 9, 9, 9], [1, 1, 2, 2, 9, 9], [1, 0, 0, 2, 9, 9], want];
        for (end, durable) in durable.iter().enumerate() {
            cache.settle(end as u64, &mut image);
            assert_eq!(seen(&cache, &image, 6), want, "settled {end}");
            assert_eq!(seen(&Cache::default(), &image, 6), durable, "settled {end}");
        }
        assert!(cache.newest.is_empty() && cache.bytes == 0);
    }

    #[test]
    fn a_full_cache_settles_the_oldest() {
        let mut image = Image::default();
        let mut cache = Cache::default();
        let megabyte = write(0, 256, Some(1)).data;
        for i in 0..70u64 {
            cache.add(Write { at: MemberLba(i * 256), blocks: BlockCount(256), data: megabyte.clone() }, &mut image);
        }
        assert_eq!(cache.len(), 64);
        assert!(!cache.covers(MemberLba(0), BlockCount(6 * 256)));
        assert!(cache.covers(MemberLba(6 * 256), BlockCount(1)));
    }
}
