//! The sparse contents of a modelled drive: 64 KiB pages, absent ones read as zeros.
//!
//! Not here: what is durable and what is not (`cache`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::pages::spans;

const PAGE_BYTES: usize = 64 << 10;

/// Bytes by address. Copies share the pages that neither has changed since.
#[derive(Clone, Default)]
pub(super) struct Image {
    pages: BTreeMap<u64, Rc<Vec<u8>>>,
}

impl Image {
    pub(super) fn read(&self, at: u64, into: &mut [u8]) {
        for (page, within, part) in spans::<PAGE_BYTES>(at, into.len()) {
            let target = &mut into[part];
            match self.pages.get(&(page as u64)) {
                Some(page) => target.copy_from_slice(&page[within..within + target.len()]),
                None => target.fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, at: u64, data: &[u8]) {
        for (page, within, part) in spans::<PAGE_BYTES>(at, data.len()) {
            let source = &data[part];
            let page = self.pages.entry(page as u64).or_insert_with(|| Rc::new(vec![0; PAGE_BYTES]));
            Rc::make_mut(page)[within..within + source.len()].copy_from_slice(source);
        }
    }

    pub(super) fn zero(&mut self, at: u64, len: u64) {
        let end = at + len;
        let page_bytes = PAGE_BYTES as u64;
        let touched: Vec<u64> =
            self.pages.range(at / page_bytes..end.div_ceil(page_bytes)).map(|(page, _)| *page).collect();
        for page in touched {
            let start = page * page_bytes;
            if at <= start && start + page_bytes <= end {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                let from = at.saturating_sub(start) as usize;
                let to = (end - start).min(page_bytes) as usize;
                Rc::make_mut(bytes)[from..to].fill(0);
            }
        }
    }

    /// The parts of a byte range that were ever written.
    pub(super) fn written(&self, at: u64, len: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let end = at + len;
        let page_bytes = PAGE_BYTES as u64;
        self.pages
            .range(at / page_bytes..end.div_ceil(page_bytes))
            .map(move |(page, _)| (page * page_bytes).max(at)..((page + 1) * page_bytes).min(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_see_writes_and_zeroed_pages_go() {
        let mut image = Image::default();
        let at = PAGE_BYTES as u64 - 4096;
        let data: Vec<u8> = (0..3 * PAGE_BYTES).map(|i| (i / 4096) as u8 + 1).collect();
        image.write(at, &data);
        let mut back = vec![9; data.len()];
        image.read(at, &mut back);
        assert_eq!(back, data);
        let zeroed = at + 8192..at + 8192 + 2 * PAGE_BYTES as u64;
        image.zero(zeroed.start, zeroed.end - zeroed.start);
        assert_eq!(image.pages.len(), 3);
        image.read(at, &mut back);
        for (i, b) in back.iter().enumerate() {
            let want = if zeroed.contains(&(at + i as u64)) { 0 } else { data[i] };
            assert_eq!(*b, want, "byte {i}");
        }
        let written: Vec<_> = image.written(0, 1 << 40).collect();
        assert_eq!(written.len(), 3);
        assert!(image.written(at, 4096).eq(std::iter::once(at..at + 4096)));
    }
}
