//! Page-aligned memory for I/O: [`Buf`] is owned and writable, [`Bytes`] is shared and immutable.
//!
//! Invariants: the first byte of a `Buf` lies on a 4096-byte boundary (O_DIRECT asks for it); the memory does not
//! move while the `Buf` or any `Bytes` made from it lives, also when the value itself is moved; a `Bytes` never
//! changes.
//!
//! Freed buffers of up to 2 MiB are kept for the thread's next ones of their size class (64 MiB at most, or what
//! [`keep_at_most`] says): mapping and clearing fresh memory costs more than filling it.
//!
//! Not here: registered buffers.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::rc::Rc;

/// Alignment of every buffer: a page, and the largest logical sector of a drive.
pub(crate) const ALIGN: usize = 4096;

/// The largest buffer that is kept.
const KEPT_LARGEST: usize = 2 << 20;

/// Bytes kept per thread, at most, unless it is told otherwise.
pub(crate) const KEPT_BYTES: usize = 64 << 20;

/// Zeros that a thread keeps.
const KEPT_ZEROS: usize = 1 << 20;

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
    static ZEROS: Bytes = Buf::zeroed(KEPT_ZEROS).freeze();
}

/// Freed memory by size class (powers of two), all of it initialised.
struct Kept {
    classes: [Vec<NonNull<u8>>; CLASSES],
    bytes: usize,
    bytes_max: usize,
    hits: u64,
    misses: u64,
}

/// Freed buffers that a thread keeps for its next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBuffers {
    /// What they take.
    pub bytes: u64,
    /// What they may take.
    pub bytes_max: u64,
    /// Buffers of up to 2 MiB that were there when they were asked for.
    pub hits: u64,
    /// Those that were not.
    pub misses: u64,
}

/// From now on this thread keeps freed buffers of `bytes` at most; what it has beyond that goes.
pub fn keep_at_most(bytes: usize) {
    KEPT.with_borrow_mut(|kept| {
        kept.bytes_max = bytes;
        if kept.bytes > bytes {
            kept.free();
        }
    });
}

/// What this thread keeps.
#[must_use]
pub fn kept() -> KeptBuffers {
    KEPT.with_borrow(|k| KeptBuffers {
        bytes: k.bytes as u64,
        bytes_max: k.bytes_max as u64,
        hits: k.hits,
        misses: k.misses,
    })
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { classes: Default::default(), bytes: 0, bytes_max: KEPT_BYTES, hits: 0, misses: 0 }
    }
}

/// Size classes of the buffers that are kept.
pub(crate) const CLASSES: usize = 10;

impl Kept {
    fn class(capacity: usize) -> Option<usize> {
        (capacity <= KEPT_LARGEST).then(|| (capacity / ALIGN).trailing_zeros() as usize)
    }

    fn take(&mut self, capacity: usize) -> Option<NonNull<u8>> {
        let start = self.classes[Self::class(capacity)?].pop();
        match start {
            Some(_) => (self.bytes, self.hits) = (self.bytes - capacity, self.hits + 1),
            None => self.misses += 1,
        }
        start
    }

    /// One that nobody here asked for.
    fn spare(&mut self, class: usize) -> Option<NonNull<u8>> {
        let start = self.classes[class].pop()?;
        self.bytes -= ALIGN << class;
        Some(start)
    }

    fn keep(&mut self, start: NonNull<u8>, capacity: usize) -> bool {
        let Some(class) = Self::class(capacity).filter(|_| self.bytes + capacity <= self.bytes_max) else {
            return false;
        };
        self.classes[class].push(start);
        self.bytes += capacity;
        true
    }

    fn free(&mut self) {
        for (class, all) in self.classes.iter_mut().enumerate() {
            for start in all.drain(..) {
                // SAFETY: kept memory was allocated with its class's size and is owned by nobody else.
                unsafe { alloc::dealloc(start.as_ptr(), Buf::layout(ALIGN << class)) };
            }
        }
        self.bytes = 0;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.free();
    }
}

/// Page-aligned memory with one owner.
pub struct Buf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a Buf is the only owner of its memory, as a Vec<u8> is, and has no thread-bound state.
unsafe impl Send for Buf {}
// SAFETY: a shared reference gives only reads.
unsafe impl Sync for Buf {}

impl Buf {
    /// `len` bytes of zero.
    #[must_use]
    pub fn zeroed(len: usize) -> Buf {
        let (mut buf, fresh) = Self::take(len);
        if !fresh {
            buf.fill(0);
        }
        buf
    }

    /// `len` bytes of anything, for who overwrites them all.
    #[must_use]
    pub fn for_overwrite(len: usize) -> Buf {
        Self::take(len).0
    }

    /// A copy of `data`.
    #[must_use]
    pub fn from_slice(data: &[u8]) -> Buf {
        let mut buf = Self::for_overwrite(data.len());
        buf.copy_from_slice(data);
        buf
    }

    /// Initialised memory, and whether it is fresh, that is, zero.
    fn take(len: usize) -> (Buf, bool) {
        let layout = Self::layout(len);
        if len == 0 {
            return (Buf { start: layout.dangling_ptr(), len }, true);
        }
        let kept = KEPT.try_with(|k| k.borrow_mut().take(layout.size())).ok().flatten();
        if let Some(start) = kept {
            return (Buf { start, len }, false);
        }
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => (Buf { start, len }, true),
            None => alloc::handle_alloc_error(layout),
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its memory, for a kernel that fills parts of it in several operations. Nobody may look at it meanwhile.
    pub(crate) fn memory(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The size class of its memory; nothing for what is never kept.
    pub(crate) fn class(&self) -> Option<usize> {
        (self.len > 0).then(|| Kept::class(Self::layout(self.len).size())).flatten()
    }

    /// One that this thread keeps, of a size class.
    pub(crate) fn spare(class: usize) -> Option<Buf> {
        let len = ALIGN << class;
        let start = KEPT.try_with(|k| k.borrow_mut().spare(class)).ok().flatten()?;
        Some(Buf { start, len })
    }

    /// Ends writing: the memory becomes shared and immutable. No copy.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from(self)
    }

    /// The memory behind a buffer of `len` bytes: some lengths share a size, so that freed memory is used again.
    #[must_use]
    pub fn memory_of(len: usize) -> usize {
        if len == 0 || len > KEPT_LARGEST { len } else { len.next_power_of_two().max(ALIGN) }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(Self::memory_of(len), ALIGN).expect("a buffer is far smaller than the address space")
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if self.len > 0 {
            let layout = Self::layout(self.len);
            let kept = KEPT.try_with(|k| k.borrow_mut().keep(self.start, layout.size()));
            if !kept.unwrap_or(false) {
                // SAFETY: allocated in `take` with this very layout, and freed only here or by `Kept`.
                unsafe { alloc::dealloc(self.start.as_ptr(), layout) };
            }
        }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes that this Buf owns (dangling and 0 is fine too).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` proves that nobody else looks.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

impl Default for Buf {
    fn default() -> Self {
        Buf::zeroed(0)
    }
}

/// A shared, immutable range of a [`Buf`].
#[derive(Clone)]
pub struct Bytes {
    memory: Rc<Buf>,
    start: usize,
    len: usize,
}

impl Bytes {
    /// `len` bytes of zero. Up to 1 MiB they are a part of what the thread keeps for this.
    #[must_use]
    pub fn zeroed(len: usize) -> Bytes {
        let kept = || ZEROS.try_with(|zeros| zeros.slice(0..len)).ok();
        let part = if (1..=KEPT_ZEROS).contains(&len) { kept() } else { None };
        part.unwrap_or_else(|| Buf::zeroed(len).freeze())
    }

    /// A copy of `data`.
    #[must_use]
    pub fn from_slice(data: &[u8]) -> Bytes {
        Buf::from_slice(data).freeze()
    }

    /// A part of it. No copy.
    ///
    /// # Panics
    /// When the range does not lie within.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        assert!(range.start <= range.end && range.end <= self.len, "slice {range:?} of {} bytes", self.len);
        Bytes { memory: self.memory.clone(), start: self.start + range.start, len: range.end - range.start }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its memory and the range, if nobody shares it; else a copy.
    pub(crate) fn into_parts(self) -> (Buf, Range<usize>) {
        let Bytes { memory, start, len } = self;
        match Rc::try_unwrap(memory) {
            Ok(buf) => (buf, start..start + len),
            Err(shared) => (Buf::from_slice(&shared[start..start + len]), 0..len),
        }
    }

    /// A range of memory.
    pub(crate) fn from_parts(memory: Buf, range: Range<usize>) -> Bytes {
        assert!(range.start <= range.end && range.end <= memory.len(), "a range within the buffer");
        Bytes { memory: Rc::new(memory), start: range.start, len: range.len() }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl From<Buf> for Bytes {
    fn from(memory: Buf) -> Bytes {
        let len = memory.len();
        Bytes { memory: Rc::new(memory), start: 0, len }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Bytes {}

impl Default for Bytes {
    fn default() -> Self {
        Bytes::zeroed(0)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_zeroed_and_exact() {
        for len in [0, 1, 511, 4096, 5000, 1 << 20] {
            let mut buf = Buf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % ALIGN, 0);
            assert!(buf.iter().all(|&b| b == 0));
            buf.fill(7);
            assert!(Buf::from_slice(&buf)[..] == buf[..]);
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_counted() {
        std::thread::spawn(|| {
            keep_at_most(3 << 20);
            drop((0..4).map(|_| Buf::zeroed(1 << 20)).collect::<Vec<_>>());
            let three = KeptBuffers { bytes: 3 << 20, bytes_max: 3 << 20, hits: 0, misses: 4 };
            assert_eq!(kept(), three);
            drop(Buf::for_overwrite(1 << 20));
            assert_eq!(kept(), KeptBuffers { hits: 1, ..three });
            keep_at_most(1 << 20);
            assert_eq!(kept().bytes, 0, "what is beyond the limit goes at once");
        })
        .join()
        .expect("no assertion failed");
    }

    #[test]
    fn slices_share_memory() {
        let all = Buf::from_slice(b"0123456789").freeze();
        let middle = all.slice(2..8);
        assert_eq!(&middle[..], b"234567");
        let inner = middle.slice(1..3);
        assert_eq!(&inner[..], b"34");
        assert_eq!(inner.as_ptr() as usize, all.as_ptr() as usize + 3);
        drop((all, middle));
        assert_eq!(&inner[..], b"34");
    }

    #[test]
    #[should_panic(expected = "slice 3..11")]
    fn slice_beyond_the_end() {
        let _ = Bytes::zeroed(10).slice(3..11);
    }
}
