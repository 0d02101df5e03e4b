//! What a server may take in memory, as the user says it.
//!
//! Not here: what connections may have in flight (`export`, fixed).

use api::Problem;
use array::Array;

use crate::size::Size;

/// The least for the map of an array: some hundred nodes, the upper ones of most arrays among them.
const MAP_MIN: Size = Size(1 << 20);

/// The least for the memtable of an array: a checkpoint for some thousand writes.
const MEMTABLE_MIN: Size = Size(1 << 20);

/// The most: what is not merged is replayed by the next start after a crash.
const MEMTABLE_MAX: Size = Size(1 << 30);

/// Memory of this machine, as the kernel tells it.
#[must_use]
pub fn of_machine() -> Option<u64> {
    kernel_says("MemTotal:")
}

/// Memory that can be taken without swapping, as the kernel estimates it.
#[must_use]
pub fn available() -> Option<u64> {
    kernel_says("MemAvailable:")
}

fn kernel_says(line: &str) -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let value = info.lines().find_map(|l| l.strip_prefix(line))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

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
            let todo = format!("give at least {MAP_MIN} (default 256 MiB)");
            return no("--map-memory (map_memory)", format!("{size} is too little"), todo);
        }
        if let Some(size) = self.memtable.filter(|size| !(MEMTABLE_MIN..=MEMTABLE_MAX).contains(size)) {
            let todo = format!("give {MEMTABLE_MIN} to {MEMTABLE_MAX} (default 60 MiB)");
            return no("--memtable-memory (memtable_memory)", format!("{size} is not possible"), todo);
        }
        Ok(self)
    }

    /// # Errors
    /// When a size is larger than the machine's memory.
    pub fn within(self, machine: Option<u64>) -> Result<Memory, Problem> {
        let sizes =
            [("--map-memory", self.map), ("--memtable-memory", self.memtable), ("--buffer-memory", self.buffers)];
        let machine = machine.unwrap_or(u64::MAX);
        match sizes.into_iter().find_map(|(what, size)| Some((what, size.filter(|size| size.0 > machine)?))) {
            None => Ok(self),
            Some((what, size)) => {
                let why = format!("{size} is more than this machine has: {}", Size(machine));
                Err(Problem::usage(what, why, "give less; what other programs use is not free either"))
            }
        }
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
            part.set_map_memory(share(self.map, usual.map_memory_bytes_max));
        }
        if self.memtable.is_some() || of > 1 {
            part.set_memtable_memory(share(self.memtable, usual.memtable_bytes_max));
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
        let told = |map| Memory { map: Some(Size(map)), ..Memory::default() }.within(Some(24 << 30));
        assert!(told(24 << 30).is_ok());
        assert_eq!(told(100 << 40).unwrap_err().why, "100 TiB is more than this machine has: 24 GiB");
        let said = Memory { map: mib(5), ..Memory::default() }.or(all);
        assert_eq!((said.map, said.memtable), (mib(5), mib(1024)));
    }
}
