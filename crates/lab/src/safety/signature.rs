//! What a block device holds, by the marks that file systems, partition tables and volume managers leave.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much is read at the beginning, and at the end.
const HEAD_BYTES: usize = 1 << 20;
const TAIL_BYTES: usize = 128 << 10;

/// Where from the beginning, which bytes, and what leaves them.
const HEAD: [(usize, &[u8], &str); 22] = [
    (0x438, b"\x53\xef", "ext2, ext3 or ext4"),
    (0, b"XFSB", "XFS"),
    (0x10040, b"_BHRfS_M", "btrfs"),
    (0x200, b"EFI PART", "GPT partitions"),
    (0x1000, b"EFI PART", "GPT partitions"),
    (0x18, b"LVM2 001", "LVM"),
    (0x218, b"LVM2 001", "LVM"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "md member"),
    (0, b"\xfc\x4e\x2b\xa9", "md member"),
    (0, b"LUKS\xba\xbe", "LUKS"),
    (0xff6, b"SWAPSPACE2", "swap"),
    (0xff6, b"SWAP-SPACE", "swap"),
    (3, b"NTFS    ", "NTFS"),
    (3, b"EXFAT   ", "exFAT"),
    (0x36, b"FAT", "FAT"),
    (0x52, b"FAT32", "FAT"),
    (0x8001, b"CD001", "ISO 9660"),
    (0x400, b"\x10\x20\xf5\xf2", "F2FS"),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "bcache"),
    (0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9", "bcachefs"),
    (0, b"BLUE", "Ceph BlueStore"),
    (0, b"hsqs", "squashfs"),
];

/// Marks of ZFS: one of many, every KiB of the second 128 KiB.
const ZFS: [&[u8]; 2] = [b"\x0c\xb1\xba\x00\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\xba\xb1\x0c"];

/// What is found, if anything.
///
/// # Errors
/// When it cannot be read.
pub fn of(path: &Path, bytes: u64) -> io::Result<Option<&'static str>> {
    let file = File::open(path)?;
    let mut head = vec![0; HEAD_BYTES.min(bytes as usize)];
    file.read_exact_at(&mut head, 0)?;
    let mut tail = vec![0; TAIL_BYTES.min(bytes as usize)];
    let tail_at = bytes - tail.len() as u64;
    file.read_exact_at(&mut tail, tail_at)?;
    Ok(in_head(&head).or_else(|| in_tail(&tail)))
}

fn in_head(head: &[u8]) -> Option<&'static str> {
    let at = |place: usize, mark: &[u8]| head.get(place..place + mark.len()) == Some(mark);
    if let Some((_, _, what)) = HEAD.iter().find(|(place, mark, _)| at(*place, mark)) {
        return Some(what);
    }
    if (0..128).any(|i| ZFS.iter().any(|mark| at((128 + i) << 10, mark))) {
        return Some("ZFS");
    }
    if at(510, b"\x55\xaa") && mbr(head) {
        return Some("MBR partitions");
    }
    // Every drive of an array of ours begins with a label.
    at(4, b"AshL").then_some("Ashlar")
}

/// Whether the four entries are those of a partition table: random data ends in 55 AA now and then.
fn mbr(head: &[u8]) -> bool {
    let entries: Vec<&[u8]> = (0..4).filter_map(|i| head.get(446 + 16 * i..462 + 16 * i)).collect();
    let plausible = entries.iter().all(|e| matches!(e[0], 0 | 0x80));
    plausible && entries.iter().any(|e| e[4] != 0)
}

fn in_tail(tail: &[u8]) -> Option<&'static str> {
    let from_end = |distance: usize, mark: &[u8]| {
        let place = tail.len().checked_sub(distance);
        place.is_some_and(|p| tail.get(p..p + mark.len()) == Some(mark))
    };
    if from_end(512, b"EFI PART") || from_end(4096, b"EFI PART") {
        return Some("GPT partitions");
    }
    // md 0.90 lies 64 KiB aligned at least 64 KiB before the end, md 1.0 8 KiB before it.
    let md = tail.chunks_exact(4096).any(|c| c.starts_with(b"\xfc\x4e\x2b\xa9"));
    md.then_some("md member")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_and_nothing_is_found_in_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let look = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            of(&path, bytes.len() as u64).unwrap()
        };
        assert_eq!(look(&vec![0; 2 << 20]), None);
        for (place, mark, what) in HEAD {
            let mut bytes = vec![0; 2 << 20];
            bytes[place..place + mark.len()].copy_from_slice(mark);
            assert!(look(&bytes).is_some(), "{what}");
        }
        let mut bytes = vec![0; 2 << 20];
        let end = bytes.len();
        bytes[end - 512..end - 504].copy_from_slice(b"EFI PART");
        assert_eq!(look(&bytes), Some("GPT partitions"));
        assert_eq!(look(b"short"), None);
    }

    #[test]
    fn random_data_that_ends_like_an_mbr_is_none() {
        let mut head = vec![0x37; 4096];
        head[510..512].copy_from_slice(b"\x55\xaa");
        assert_eq!(in_head(&head), None);
        head[446..510].fill(0);
        head[450] = 0x83;
        assert_eq!(in_head(&head), Some("MBR partitions"));
    }
}
