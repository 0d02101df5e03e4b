//! What a server may take in memory, as the user says it.
//!
//! Not here: what connections may have in flight (`export`, fixed).

use array::Array;

use crate::Problem;
use crate::size::Size;

/// The least for the map of an array: some hundred nodes, the upper ones of most arrays among them.
const MAP_MIN: Size = Size(1 << 20);

/// The least for the memtable of an array: a checkpoint for some thousand writes.
const MEMTABLE_MIN: Size = Size(1 << 20);

/// The most: what is not merged is replayed by the next start after a crash.
const MEMTABLE_MAX: Size = Size(1 << 30);

/// What was said; nothing is the usual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Of each array, for map nodes.
    pub map: Option<Size>,
    /// Of each array, for what is not merged into the map.
    pub memtable: Option<Size>,
    /// Freed buffers that are kept for the next requests.
    pub buffers: Option<Size>,
}

impl Memory {
    /// The same, with what this does not say from `other`.
    #[must_use]
    pub fn or(self, other: Memory) -> Memory {
        Memory {
            map: self.map.or(other.map),
            memtable: self.memtable.or(other.memtable),
            buffers: self.buffers.or(other.buffers),
        }
    }

    /// # Errors
    /// When a size makes no sense.
    pub fn checked(self) -> Result<Memory, Problem> {
        let no = |what: &str, why: String, todo: String| Err(Problem::usage(what, why, todo));
        if let Some(size) = self.map.filter(|size| *size < MAP_MIN) {
            let todo = format!("give each array {MAP_MIN} at least; what is not said is 256 MiB");
            return no("--map-memory", format!("{size} is too little for the map"), todo);
        }
        if let Some(size) = self.memtable.filter(|size| !(MEMTABLE_MIN..=MEMTABLE_MAX).contains(size)) {
            let todo = format!("give each array {MEMTABLE_MIN} to {MEMTABLE_MAX}; what is not said is 60 MiB");
            return no("--memtable-memory", format!("{size} is not what a memtable can be"), todo);
        }
        Ok(self)
    }

    /// For the calling thread's buffers.
    pub fn settle(&self) {
        if let Some(size) = self.buffers {
            rt::buf::keep_at_most(usize::try_from(size.0).unwrap_or(usize::MAX));
        }
    }

    /// For a part of an array, which has so many.
    pub fn give(&self, part: &Array, of: u8) {
        let usual = part.status();
        let share = |said: Option<Size>, usual: u64| said.map_or(usual, |size| size.0) / u64::from(of);
        if self.map.is_some() || of > 1 {
            part.set_map_memory(share(self.map, usual.map_memory.bytes_max));
        }
        if self.memtable.is_some() || of > 1 {
            part.set_memtable_memory(share(self.memtable, usual.memtable_memory.bytes_max));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_within_reason() {
        let mib = |n: u64| Some(Size(n << 20));
        let all = Memory { map: mib(1), memtable: mib(1024), buffers: Some(Size(0)) };
        assert!(all.checked().is_ok() && Memory::default().checked().is_ok());
        for wrong in [
            Memory { map: Some(Size(4096)), ..all },
            Memory { memtable: Some(Size(4096)), ..all },
            Memory { memtable: mib(1025), ..all },
        ] {
            assert!(wrong.checked().is_err(), "{wrong:?}");
        }
        let said = Memory { map: mib(5), ..Memory::default() }.or(all);
        assert_eq!((said.map, said.memtable), (mib(5), mib(1024)));
    }
}
