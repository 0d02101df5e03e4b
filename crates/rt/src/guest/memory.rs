//! Memory of another process in files that it has passed, mapped here.
//!
//! Invariants: a range that is not wholly within the regions is refused before anything is copied; the files keep their length (they
//! are sealed against shrinking before they are mapped, and a seal is for ever) and their pages (no huge pages, of which the kernel
//! may have none left when one is touched), so that a touch does not end this process by SIGBUS. A page that cannot be read from swap
//! still would.
//!
//! Does not: order accesses, but for those of 8, 16 and 64 bits, which are atomic.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use vm_memory::{
    Bytes as _, FileOffset, GuestAddress, GuestMemory as _, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    MmapRegion, Permissions,
};

use super::foreign::{Foreign, drop_elsewhere};

/// Regions of one memory, at most: a guest with hot-plugged memory has some.
pub const REGIONS_MAX: usize = 32;
/// All regions together: a guest of 4 TiB. The address space of this process, 128 TiB, is shared by all guests.
const BYTES_MAX: u64 = 4 << 40;
/// What this process has mapped of all guests: a quarter of its address space.
const ALL_BYTES_MAX: u64 = 32 << 40;
/// Of linux/magic.h.
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// A run of memory and where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The guest's address of it.
    pub guest: u64,
    /// Its length.
    pub bytes: u64,
    /// Its address in the process that passed it.
    pub user: u64,
    /// Where it begins in the file.
    pub offset: u64,
}

/// Why memory is not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Its file may be cut short, and a touch of what is cut off would end this process.
    #[error(
        "the memory's file is not sealed against shrinking: give the guest memory of \
         `-object memory-backend-memfd,id=ID,size=SIZE,share=on`, which QEMU seals, not of memory-backend-file"
    )]
    NotSealed,
    /// It has huge pages.
    #[error(
        "the memory has huge pages (hugetlb), of which the kernel may run out: use \
         `-object memory-backend-memfd,id=ID,size=SIZE,share=on` without hugetlb=on"
    )]
    HugePages,
    /// A region is not within its file, or has no bytes.
    #[error("a region of {bytes} bytes at {offset} is not within its file of {file} bytes")]
    Beyond {
        /// Its length.
        bytes: u64,
        /// Where it begins in the file.
        offset: u64,
        /// The file's length.
        file: u64,
    },
    /// There are too many, they are too long, or two have one address.
    #[error("the regions overlap, or are more than {REGIONS_MAX}, or longer than 4 TiB")]
    Regions,
    /// All guests of this process have as much as they may.
    #[error("the guests of this process have more memory than 32 TiB together")]
    Full,
    /// The kernel does not map it.
    #[error("the kernel does not map it: {0}")]
    Kernel(#[from] io::Error),
}

/// A range is not wholly in a guest's memory, or not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address is not in the guest's memory")]
pub struct OutOfMemory;

/// Mapped regions. Clones share the mappings, which end with the last of them, on another thread.
#[derive(Clone)]
pub struct GuestMemory {
    all: GuestMemoryMmap,
    regions: Vec<(Region, Arc<GuestRegionMmap>, Arc<Charge>)>,
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        drop_elsewhere((mem::take(&mut self.all), mem::take(&mut self.regions)));
    }
}

static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Bytes that count as mapped until they are not any more.
struct Charge(u64);

impl Charge {
    fn of(bytes: u64) -> Result<Charge, MapError> {
        let charge = Charge(bytes);
        let before = MAPPED.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > ALL_BYTES_MAX { Err(MapError::Full) } else { Ok(charge) }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        MAPPED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl GuestMemory {
    /// Maps regions and their files.
    ///
    /// # Errors
    /// When a file is not sealed, or a region does not fit.
    pub fn map<F: Into<Foreign>>(files: Vec<(Region, F)>) -> Result<GuestMemory, MapError> {
        let mut memory = GuestMemory { all: GuestMemoryMmap::default(), regions: vec![] };
        for (region, file) in files {
            // What was mapped before one that is refused is taken away as all is.
            memory.regions.push(map(region, file.into())?);
        }
        memory.together()
    }

    fn together(mut self) -> Result<GuestMemory, MapError> {
        let regions = &self.regions;
        let bytes = regions.iter().try_fold(0_u64, |sum, (region, ..)| sum.checked_add(region.bytes));
        let fits = regions.len() <= REGIONS_MAX && bytes.is_some_and(|bytes| bytes <= BYTES_MAX);
        let mut users: Vec<(u64, u64)> = regions.iter().map(|(region, ..)| (region.user, region.bytes)).collect();
        users.sort_unstable();
        let are_apart = users.windows(2).all(|two| two[0].0.checked_add(two[0].1).is_some_and(|end| end <= two[1].0));
        if !fits || !are_apart {
            return Err(MapError::Regions);
        }
        let mut sorted: Vec<_> = regions.iter().map(|(_, mapped, _)| mapped.clone()).collect();
        sorted.sort_by_key(|mapped| mapped.start_addr());
        self.all = GuestMemoryMmap::from_arc_regions(sorted).map_err(|_| MapError::Regions)?;
        Ok(self)
    }

    /// The same memory and one more region.
    ///
    /// # Errors
    /// As with [`GuestMemory::map`].
    pub fn with(&self, region: Region, file: impl Into<Foreign>) -> Result<GuestMemory, MapError> {
        let mut memory = self.clone();
        memory.regions.push(map(region, file.into())?);
        memory.together()
    }

    /// Whether it has a region.
    #[must_use]
    pub fn has_region(&self, region: &Region) -> bool {
        self.regions.iter().any(|(other, ..)| is_same(other, region))
    }

    /// The same memory without a region; none, where it was the only one.
    #[must_use]
    pub fn without(&self, region: &Region) -> Option<GuestMemory> {
        let mut memory = self.clone();
        memory.regions.retain(|(other, ..)| !is_same(other, region));
        memory.together().ok()
    }

    /// How many regions it has.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// The guest's address of what the process that passed the memory has at `user`.
    #[must_use]
    pub fn guest_address(&self, user: u64) -> Option<u64> {
        let within = |region: &Region| user.checked_sub(region.user).filter(|at| *at < region.bytes);
        self.regions.iter().find_map(|(region, ..)| Some(region.guest + within(region)?))
    }

    /// Whether a range is in the memory.
    #[must_use]
    pub fn has(&self, at: u64, bytes: u64) -> bool {
        usize::try_from(bytes).is_ok_and(|bytes| {
            at.checked_add(bytes as u64).is_some()
                && self.all.check_range(GuestAddress(at), bytes, Permissions::ReadWrite)
        })
    }

    /// Copies what is at a guest's address now.
    ///
    /// # Errors
    /// When the range is not in the memory.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), OutOfMemory> {
        if !self.has(at, into.len() as u64) {
            return Err(OutOfMemory);
        }
        self.all.read_slice(into, GuestAddress(at)).map_err(|_| OutOfMemory)
    }

    /// Copies to a guest's address.
    ///
    /// # Errors
    /// When the range is not in the memory.
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), OutOfMemory> {
        if !self.has(at, from.len() as u64) {
            return Err(OutOfMemory);
        }
        self.all.write_slice(from, GuestAddress(at)).map_err(|_| OutOfMemory)
    }

    /// A number of 16 bits, little-endian: what was written before it was is seen after this.
    ///
    /// # Errors
    /// When it is not in the memory, or not aligned.
    pub fn load(&self, at: u64) -> Result<u16, OutOfMemory> {
        self.all.load(GuestAddress(at), Ordering::Acquire).map(u16::from_le).map_err(|_| OutOfMemory)
    }

    /// Sets a number of 16 bits, little-endian: who sees it sees what was written before.
    ///
    /// # Errors
    /// When it is not in the memory, or not aligned.
    pub fn store(&self, at: u64, value: u16) -> Result<(), OutOfMemory> {
        self.all.store(value.to_le(), GuestAddress(at), Ordering::Release).map_err(|_| OutOfMemory)
    }

    /// Sets a byte, as [`GuestMemory::store`] does.
    ///
    /// # Errors
    /// When it is not in the memory.
    pub fn store_byte(&self, at: u64, value: u8) -> Result<(), OutOfMemory> {
        self.all.store(value, GuestAddress(at), Ordering::Release).map_err(|_| OutOfMemory)
    }

    /// Sets a number of 64 bits, little-endian, as [`GuestMemory::store`] does.
    ///
    /// # Errors
    /// When it is not in the memory, or not aligned.
    pub fn store_long(&self, at: u64, value: u64) -> Result<(), OutOfMemory> {
        self.all.store(value.to_le(), GuestAddress(at), Ordering::Release).map_err(|_| OutOfMemory)
    }
}

/// Front ends tell of a region again without its place in the file.
fn is_same(one: &Region, other: &Region) -> bool {
    (one.guest, one.user, one.bytes) == (other.guest, other.user, other.bytes)
}

fn map(region: Region, file: Foreign) -> Result<(Region, Arc<GuestRegionMmap>, Arc<Charge>), MapError> {
    let kernel = |errno: rustix::io::Errno| MapError::Kernel(errno.into());
    // A file that knows no seals says so by an error, and is not sealed.
    if !rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Err(MapError::NotSealed);
    }
    if rustix::fs::fstatfs(&file).map_err(kernel)?.f_type.cast_unsigned() & u64::from(u32::MAX) == HUGETLBFS_MAGIC {
        return Err(MapError::HugePages);
    }
    let length = rustix::fs::fstat(&file).map_err(kernel)?.st_size.cast_unsigned();
    let is_within = region.offset.checked_add(region.bytes).is_some_and(|end| end <= length);
    if region.bytes == 0 || !is_within {
        return Err(MapError::Beyond { bytes: region.bytes, offset: region.offset, file: length });
    }
    if region.user.checked_add(region.bytes).is_none() || region.bytes > BYTES_MAX {
        return Err(MapError::Regions);
    }
    let charge = Arc::new(Charge::of(region.bytes)?);
    // It is memory: its close is ours alone.
    let place = FileOffset::new(File::from(file.into_owned()), region.offset);
    let mapped = MmapRegion::from_file(place, region.bytes as usize).map_err(io::Error::other)?;
    let mapped = GuestRegionMmap::new(mapped, GuestAddress(region.guest)).map(Arc::new).ok_or(MapError::Regions)?;
    Ok((region, mapped, charge))
}

/// New memory to share, of zeroes, whose length never changes.
///
/// # Errors
/// When the kernel has none.
pub fn sealed_memory(bytes: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("ashlar", flags)?;
    rustix::fs::ftruncate(&file, bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u64 = 0x7000_0000;

    fn region(guest: u64, bytes: u64) -> Region {
        Region { guest, bytes, user: USER + guest, offset: 0 }
    }

    fn memory(guests: &[u64]) -> GuestMemory {
        let file = |guest: &u64| (region(*guest, 8192), sealed_memory(8192).unwrap());
        GuestMemory::map(guests.iter().map(file).collect()).unwrap()
    }

    #[test]
    fn ranges() {
        let memory = memory(&[0, 8192, 1 << 20]);
        memory.write(8000, &[7; 400]).unwrap();
        let mut back = [0; 400];
        memory.read(8000, &mut back).unwrap();
        assert_eq!(back, [7; 400]);
        for (at, bytes, is_there) in [
            (0, 16384, true),
            (0, 16385, false),
            (16384, 1, false),
            (1 << 20, 8192, true),
            ((1 << 20) + 8192, 1, false),
            (u64::MAX, 1, false),
            (u64::MAX - 3, 8, false),
            (0, u64::MAX, false),
        ] {
            assert_eq!(memory.has(at, bytes), is_there, "{at} {bytes}");
            if bytes <= 16385 {
                assert_eq!(memory.write(at, &vec![1; bytes as usize]).is_ok(), is_there, "{at} {bytes}");
            }
        }
        assert_eq!((memory.store(2, 0x1234), memory.load(2), memory.load(3)), (Ok(()), Ok(0x1234), Err(OutOfMemory)));
        assert_eq!(memory.store(16384, 1), Err(OutOfMemory));
        assert_eq!(memory.guest_address(USER + 8193), Some(8193));
        assert_eq!((memory.guest_address(USER + 16384), memory.guest_address(0)), (None, None));
        let without = memory.without(&region(8192, 8192)).unwrap();
        assert!(without.has(0, 8192) && !without.has(8192, 1) && memory.has(8192, 1));
        assert!(!memory.has_region(&region(8192, 4096)) && memory.has_region(&region(8192, 8192)));
    }

    #[test]
    fn what_may_be_cut_short_is_refused() {
        let open = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 8192).unwrap();
        let grows = open.try_clone().unwrap();
        rustix::fs::fcntl_add_seals(&grows, SealFlags::GROW).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let null = File::open("/dev/null").unwrap();
        for file in [open, grows, file.into(), null.into()] {
            let error = GuestMemory::map(vec![(region(0, 4096), file)]).err().unwrap();
            assert!(matches!(error, MapError::NotSealed), "{error}");
        }
    }

    #[test]
    fn regions_that_do_not_fit() {
        let at = |region: Region| GuestMemory::map(vec![(region, sealed_memory(8192).unwrap())]).err().unwrap();
        for wrong in [
            region(0, 0),
            region(0, 8193),
            Region { offset: 4096, ..region(0, 8192) },
            Region { offset: u64::MAX, ..region(0, 8192) },
        ] {
            assert!(matches!(at(wrong), MapError::Beyond { .. }), "{wrong:?}");
        }
        assert!(matches!(at(Region { user: u64::MAX, ..region(0, 4096) }), MapError::Regions));
        assert!(matches!(at(Region { guest: u64::MAX, ..region(0, 4096) }), MapError::Regions));
        assert!(matches!(at(Region { offset: 1, ..region(0, 4096) }), MapError::Kernel(_)));
        let memory = memory(&[0]);
        assert!(memory.with(region(4096, 8192), sealed_memory(8192).unwrap()).is_err());
        assert!(memory.with(region(8192, 8192), sealed_memory(8192).unwrap()).is_ok());
        assert!(GuestMemory::map(Vec::<(Region, OwnedFd)>::new()).is_err());
        assert!(Charge::of(ALL_BYTES_MAX + 1).is_err());
    }
}
