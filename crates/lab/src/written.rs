//! What of a target was written: reads of what never was are answered from tables, not from flash.
//!
//! Files tell by their holes; extents that are allocated and not written count as holes, once the page cache is written
//! back. Other targets tell nothing: there the lab knows only what it filled itself.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, SeekFrom};
use rustix::io::Errno;

/// What is known of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All of it.
    All,
    /// Some bytes were never written.
    Missing {
        /// How many.
        bytes: u64,
    },
    /// The target does not tell, and the lab did not fill it.
    Unknown,
}

/// Of a file's range.
///
/// # Errors
/// When the file cannot be read.
pub fn of_file(path: &Path, offset: u64, bytes: u64) -> std::io::Result<Written> {
    let file = File::open(path)?;
    // What is dirty in the page cache is not yet an extent.
    file.sync_data()?;
    let end = offset + bytes;
    let len = file.metadata()?.len();
    let mut holes = end.saturating_sub(len.max(offset));
    let end = end.min(len);
    let mut at = offset;
    while at < end {
        let data = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            // No data from here on.
            Err(Errno::NXIO) => end,
            // The file system does not tell.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Written::Unknown),
            Err(e) => return Err(e.into()),
        };
        holes += data - at;
        if data == end {
            break;
        }
        at = match rustix::fs::seek(&file, SeekFrom::Hole(data)) {
            Ok(hole) if hole > data => hole,
            Ok(_) => return Ok(Written::Unknown),
            Err(e) => return Err(e.into()),
        };
    }
    Ok(if holes == 0 { Written::All } else { Written::Missing { bytes: holes } })
}

/// What blocks of a range hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Blocks that were looked at, spread over the range.
    pub blocks: u32,
    /// Those that are zeros throughout.
    pub zeros: u32,
    /// Those that are the same as another one, zeros not counted.
    pub repeats: u32,
}

/// Blocks that are looked at.
const LOOKS: u64 = 64;
/// Size of each.
const LOOK_BYTES: u64 = 4096;

/// Looks at blocks of a file's or a device's range; what is read is not left in the page cache.
///
/// # Errors
/// When it cannot be read.
pub fn contents(path: &Path, offset: u64, bytes: u64) -> std::io::Result<Contents> {
    let file = File::open(path)?;
    let looks = (bytes / LOOK_BYTES).min(LOOKS);
    let (mut found, mut seen) = (Contents::default(), BTreeSet::new());
    for nth in 0..looks {
        let at = offset + (bytes - LOOK_BYTES) / looks.max(1) * nth / LOOK_BYTES * LOOK_BYTES;
        let mut block = vec![0; LOOK_BYTES as usize];
        file.read_exact_at(&mut block, at)?;
        let _ = rustix::fs::fadvise(&file, at, std::num::NonZeroU64::new(LOOK_BYTES), Advice::DontNeed);
        found.blocks += 1;
        if block.iter().all(|b| *b == 0) {
            found.zeros += 1;
        } else if !seen.insert(block) {
            found.repeats += 1;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    #[test]
    fn allocated_is_not_written() {
        // Where temporary files lie decides whether this can be seen; on ext4, XFS and tmpfs it can.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = File::create(&path).unwrap();
        if fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).is_err() {
            file.set_len(1 << 20).unwrap();
        }
        assert_eq!(of_file(&path, 0, 1 << 20).unwrap(), Written::Missing { bytes: 1 << 20 });
        file.write_all_at(&vec![7; 512 << 10], 0).unwrap();
        assert_eq!(of_file(&path, 0, 512 << 10).unwrap(), Written::All);
        assert_eq!(of_file(&path, 0, 1 << 20).unwrap(), Written::Missing { bytes: 512 << 10 });
        assert_eq!(of_file(&path, 256 << 10, 256 << 10).unwrap(), Written::All);
        file.write_all_at(&vec![7; 512 << 10], 512 << 10).unwrap();
        assert_eq!(of_file(&path, 0, 1 << 20).unwrap(), Written::All);
        assert_eq!(of_file(&path, 0, 2 << 20).unwrap(), Written::Missing { bytes: 1 << 20 }, "beyond the end");
    }

    #[test]
    fn contents_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let look = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            contents(&path, 0, bytes.len() as u64).unwrap()
        };
        assert_eq!(look(&vec![0; 1 << 20]), Contents { blocks: 64, zeros: 64, repeats: 0 });
        assert_eq!(look(&vec![7; 1 << 20]), Contents { blocks: 64, zeros: 0, repeats: 63 });
        let mut mixed: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
        assert_eq!(look(&mixed), Contents { blocks: 64, zeros: 0, repeats: 0 });
        mixed[..512 << 10].fill(0);
        let half = look(&mixed);
        assert!((30..=34).contains(&half.zeros), "{half:?}");
        assert!(contents(&path, 1 << 20, 1 << 20).is_err(), "beyond the end");
    }
}
