//! The back end in memory: sparse, exact, without persistence. For tests, demonstrations and measurements.
//!
//! Invariants: a page is present when something was written to it; an absent page reads as zero; every operation takes
//! effect in one step, so requests that overlap never mix.
//!
//! Does not: limit its memory below its size, or survive the process.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use rt::{Buf, Bytes};

use crate::namespace::{Answer, Extent, ExtentState, Fault, Namespace, NamespaceInfo, Request};

/// Unit of allocation: 64 KiB keeps the tree small (16 384 pages per GiB) and a lone 4 KiB write cheap to allocate.
const PAGE_BYTES: u64 = 64 << 10;

/// A namespace in memory. Clones share the contents.
#[derive(Clone)]
pub struct Memory {
    inner: Rc<Inner>,
}

struct Inner {
    info: NamespaceInfo,
    pages: RefCell<BTreeMap<u64, Buf>>,
}

/// A part of a range within one page.
struct Part {
    page: u64,
    start: usize,
    len: usize,
}

impl Part {
    fn is_whole_page(&self) -> bool {
        self.len as u64 == PAGE_BYTES
    }
}

/// The pages of a range, in order.
fn parts(mut offset: u64, bytes: u64) -> impl Iterator<Item = Part> {
    let end = offset + bytes;
    std::iter::from_fn(move || {
        (offset < end).then(|| {
            let start = offset % PAGE_BYTES;
            let len = (PAGE_BYTES - start).min(end - offset);
            let part = Part { page: offset / PAGE_BYTES, start: start as usize, len: len as usize };
            offset += len;
            part
        })
    })
}

impl Memory {
    /// An empty namespace of `bytes`, rounded down to whole 512 B blocks.
    #[must_use]
    pub fn new(name: &str, bytes: u64) -> Self {
        let info = NamespaceInfo {
            name: name.to_owned(),
            uuid: NamespaceInfo::uuid_of_name(name),
            bytes: bytes / 512 * 512,
            min_block: 512,
            preferred_block: 4096,
            max_request: 32 << 20,
            read_only: false,
            volatile_cache: false,
            description: "memory: gone with the process".to_owned(),
        };
        Memory::with_info(info)
    }

    /// An empty namespace that describes itself as told, for instance as read-only.
    #[must_use]
    pub fn with_info(info: NamespaceInfo) -> Self {
        Memory { inner: Rc::new(Inner { info, pages: RefCell::default() }) }
    }

    /// Memory in use, in whole pages.
    #[must_use]
    pub fn bytes_allocated(&self) -> u64 {
        self.inner.pages.borrow().len() as u64 * PAGE_BYTES
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), Fault> {
        let info = &self.inner.info;
        let block = u64::from(info.min_block);
        if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(Fault::Misaligned);
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= info.bytes => Ok(()),
            _ => Err(Fault::OutOfRange),
        }
    }

    fn check_write(&self, offset: u64, bytes: u64) -> Result<(), Fault> {
        if self.inner.info.read_only { Err(Fault::ReadOnly) } else { self.check(offset, bytes) }
    }
}

impl Memory {
    fn copy_out(&self, offset: u64, bytes: u32) -> Result<Vec<Bytes>, Fault> {
        self.check(offset, u64::from(bytes))?;
        let mut data = Buf::zeroed(bytes as usize);
        let pages = self.inner.pages.borrow();
        let mut at = 0;
        for part in parts(offset, u64::from(bytes)) {
            if let Some(page) = pages.get(&part.page) {
                data[at..at + part.len].copy_from_slice(&page[part.start..part.start + part.len]);
            }
            at += part.len;
        }
        Ok(vec![data.freeze()])
    }

    fn copy_in(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.check_write(offset, data.len() as u64)?;
        let mut pages = self.inner.pages.borrow_mut();
        let mut at = 0;
        for part in parts(offset, data.len() as u64) {
            let page = pages.entry(part.page).or_insert_with(|| Buf::zeroed(PAGE_BYTES as usize));
            page[part.start..part.start + part.len].copy_from_slice(&data[at..at + part.len]);
            at += part.len;
        }
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64, may_deallocate: bool) -> Result<(), Fault> {
        self.check_write(offset, bytes)?;
        let mut pages = self.inner.pages.borrow_mut();
        for part in parts(offset, bytes) {
            if may_deallocate && part.is_whole_page() {
                pages.remove(&part.page);
            } else if may_deallocate && !pages.contains_key(&part.page) {
                // Absent already reads as zero.
            } else {
                let page = pages.entry(part.page).or_insert_with(|| Buf::zeroed(PAGE_BYTES as usize));
                page[part.start..part.start + part.len].fill(0);
            }
        }
        Ok(())
    }

    fn runs(&self, offset: u64, bytes: u64, at_most: usize) -> Result<Vec<Extent>, Fault> {
        self.check(offset, bytes)?;
        let pages = self.inner.pages.borrow();
        let mut extents: Vec<Extent> = Vec::new();
        for part in parts(offset, bytes) {
            let present = pages.contains_key(&part.page);
            let state = if present { ExtentState::Allocated } else { ExtentState::Hole };
            let full = extents.len() == at_most;
            match extents.last_mut() {
                Some(last) if last.state == state => last.bytes += part.len as u64,
                _ if full => break,
                _ => extents.push(Extent { bytes: part.len as u64, state }),
            }
        }
        Ok(extents)
    }
}

impl Namespace for Memory {
    fn info(&self) -> NamespaceInfo {
        self.inner.info.clone()
    }

    async fn submit(&self, request: Request) -> Result<Answer, Fault> {
        match request {
            Request::Read { offset, bytes } => self.copy_out(offset, bytes).map(Answer::Data),
            Request::Write { offset, data, .. } => self.copy_in(offset, &data).map(|()| Answer::Done),
            Request::Flush => Ok(Answer::Done),
            Request::WriteZeroes { offset, bytes, may_deallocate, .. } => {
                self.zero(offset, bytes, may_deallocate).map(|()| Answer::Done)
            }
            Request::Deallocate { offset, bytes, .. } => self.zero(offset, bytes, true).map(|()| Answer::Done),
            Request::Extents { offset, bytes, at_most } => self.runs(offset, bytes, at_most).map(Answer::Extents),
        }
    }
}
