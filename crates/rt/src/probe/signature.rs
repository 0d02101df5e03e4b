//! The marks that other systems leave on a drive.
//!
//! One table: where, which bytes, whose. The marks are the public ones of each format. What has no mark (raw data,
//! some encryption) is not found; absence of a mark is no proof of an empty drive.
//!
//! Not here: our own labels (`ondisk`); versions and contents of what is found.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much of a drive's beginning is looked at.
pub const FIRST_BYTES: u64 = 1 << 20;

/// How much of its end: md 0.90 leaves its mark up to 128 KiB before it.
pub const LAST_BYTES: u64 = 128 << 10;

/// A mark at a fixed place from the start.
struct Mark(usize, &'static [u8], &'static str);

/// In the order of asking: what contains others (an encrypted or stacked drive) before what could be left over, and
/// the boot sector's plain marks last.
const MARKS: &[Mark] = &[
    Mark(0, b"LUKS\xba\xbe", "LUKS"),
    Mark(0, b"\xfc\x4e\x2b\xa9", "mdadm"),
    Mark(4096, b"\xfc\x4e\x2b\xa9", "mdadm"),
    Mark(0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache"),
    Mark(0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "bcachefs"),
    Mark(0, b"bluestore block device", "Ceph BlueStore"),
    Mark(0, b"XFSB", "xfs"),
    Mark(0x438, b"\x53\xef", "ext4"),
    Mark(0x10040, b"_BHRfS_M", "btrfs"),
    Mark(0x400, b"\x10\x20\xf5\xf2", "F2FS"),
    Mark(0x400, b"\xe2\xe1\xf5\xe0", "EROFS"),
    Mark(0, b"hsqs", "SquashFS"),
    Mark(0x406, b"\x34\x34", "NILFS2"),
    Mark(0x8000, b"JFS1", "JFS"),
    Mark(0x10034, b"ReIsEr", "ReiserFS"),
    Mark(0x10000, b"\x01\x16\x19\x70", "GFS2"),
    Mark(0x2000, b"OCFSV2", "OCFS2"),
    Mark(0x8001, b"CD001", "ISO 9660"),
    Mark(0x20, b"NXSB", "APFS"),
    Mark(0x400, b"H+", "HFS+"),
    Mark(0x400, b"HX", "HFS+"),
    Mark(4086, b"SWAPSPACE2", "swap"),
    Mark(4086, b"SWAP-SPACE", "swap"),
    Mark(65526, b"SWAPSPACE2", "swap"),
    Mark(512, b"EFI PART", "GPT"),
    Mark(4096, b"EFI PART", "GPT"),
    Mark(3, b"NTFS    ", "NTFS"),
    Mark(3, b"EXFAT   ", "exFAT"),
    Mark(3, b"-FVE-FS-", "BitLocker"),
    Mark(0x52, b"FAT32   ", "FAT"),
    Mark(0x36, b"FAT12   ", "FAT"),
    Mark(0x36, b"FAT16   ", "FAT"),
];

/// Marks at a distance from the end.
const MARKS_FROM_END: &[Mark] = &[
    Mark(512, b"EFI PART", "GPT"),
    Mark(4096, b"EFI PART", "GPT"),
    Mark(1024, b"Intel Raid ISM Cfg Sig. ", "Intel RST RAID"),
    Mark(512, b"\xde\x11\xde\x11", "DDF RAID"),
];

/// What [`signature`] looks at of a drive or a file of `bytes`.
///
/// # Errors
/// When it cannot be read.
pub fn ends(path: &Path, bytes: u64) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let file = File::open(path)?;
    let mut first = vec![0; bytes.min(FIRST_BYTES) as usize];
    file.read_exact_at(&mut first, 0)?;
    let last_bytes = bytes.min(LAST_BYTES);
    let mut last = vec![0; last_bytes as usize];
    file.read_exact_at(&mut last, bytes - last_bytes)?;
    Ok((first, last))
}

/// Whose mark is on a drive with these first and last bytes, if anybody's.
#[must_use]
pub fn signature(first: &[u8], last: &[u8]) -> Option<&'static str> {
    let at_start = |m: &&Mark| has(first, m.0, m.1);
    let at_end = |m: &&Mark| last.len().checked_sub(m.0).is_some_and(|at| has(last, at, m.1));
    lvm(first)
        .or_else(|| MARKS.iter().find(at_start).map(|m| m.2))
        .or_else(|| zfs(first))
        .or_else(|| MARKS_FROM_END.iter().find(at_end).map(|m| m.2))
        .or_else(|| mdadm_at_end(last))
        .or_else(|| zfs(last))
        .or_else(|| mbr(first))
}

fn has(bytes: &[u8], at: usize, mark: &[u8]) -> bool {
    bytes.get(at..at + mark.len()) == Some(mark)
}

/// The label lies in one of the first four sectors.
fn lvm(first: &[u8]) -> Option<&'static str> {
    let found = (0..4).any(|s| has(first, s * 512, b"LABELONE") && has(first, s * 512 + 24, b"LVM2 001"));
    found.then_some("LVM")
}

/// Any uberblock: a ring of them in each label, each at a multiple of 1 KiB, in the writer's byte order.
fn zfs(bytes: &[u8]) -> Option<&'static str> {
    const MAGIC: u64 = 0x00ba_b10c;
    let found = bytes.chunks_exact(1024).any(|c| c[..8] == MAGIC.to_le_bytes() || c[..8] == MAGIC.to_be_bytes());
    found.then_some("ZFS")
}

/// Versions 0.90 (64 to 128 KiB from the end) and 1.0 (8 to 12 KiB) lie at multiples of 4 KiB.
fn mdadm_at_end(last: &[u8]) -> Option<&'static str> {
    let whole = &last[last.len() % 4096..];
    let found = whole.chunks(4096).any(|c| {
        has(c, 0, b"\xfc\x4e\x2b\xa9") && c.get(4..8).is_some_and(|major| major == [0; 4] || major == [1, 0, 0, 0])
    });
    found.then_some("mdadm")
}

/// A boot record with a partition: flags of 0 or 0x80, and a type.
fn mbr(first: &[u8]) -> Option<&'static str> {
    if !has(first, 510, b"\x55\xaa") {
        return None;
    }
    let entries = || first[446..510].chunks_exact(16);
    let plausible = entries().all(|e| e[0] & 0x7f == 0) && entries().any(|e| e[4] != 0);
    Some(if plausible { "MBR partition table" } else { "boot sector" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(marks: &[(usize, &[u8])], end: &[(usize, &[u8])]) -> Option<&'static str> {
        let (mut first, mut last) = (vec![0; FIRST_BYTES as usize], vec![0; LAST_BYTES as usize]);
        for (at, mark) in marks {
            first[*at..*at + mark.len()].copy_from_slice(mark);
        }
        for (at, mark) in end {
            let at = last.len() - at;
            last[at..at + mark.len()].copy_from_slice(mark);
        }
        signature(&first, &last)
    }

    #[test]
    fn every_mark_of_the_tables_is_found() {
        assert_eq!(drive(&[], &[]), None);
        for Mark(at, mark, name) in MARKS {
            assert_eq!(drive(&[(*at, mark)], &[]), Some(*name));
        }
        for Mark(at, mark, name) in MARKS_FROM_END {
            assert_eq!(drive(&[], &[(*at, mark)]), Some(*name));
        }
    }

    #[test]
    fn marks_with_a_rule() {
        let mbr = [0x80, 0, 0, 0, 0x83];
        assert_eq!(drive(&[(512, b"LABELONE"), (536, b"LVM2 001")], &[]), Some("LVM"));
        assert_eq!(drive(&[(512, b"LABELONE")], &[]), None);
        assert_eq!(drive(&[(131 << 10, &0x00ba_b10c_u64.to_le_bytes())], &[]), Some("ZFS"));
        assert_eq!(drive(&[], &[(3 << 10, &0x00ba_b10c_u64.to_be_bytes())]), Some("ZFS"));
        assert_eq!(drive(&[], &[(8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0")]), Some("mdadm"));
        for from_end in [64 << 10, 96 << 10, 128 << 10] {
            assert_eq!(drive(&[], &[(from_end, b"\xfc\x4e\x2b\xa9\0\0\0\0")]), Some("mdadm"));
        }
        assert_eq!(drive(&[(510, b"\x55\xaa"), (446, &mbr)], &[]), Some("MBR partition table"));
        assert_eq!(drive(&[(510, b"\x55\xaa"), (446, &mbr), (512, b"EFI PART")], &[]), Some("GPT"));
        assert_eq!(drive(&[(510, b"\x55\xaa")], &[]), Some("boot sector"));
    }

    #[test]
    fn short_and_random_bytes_do_not_panic() {
        for len in [0, 1, 511, 512, 4096, 5000] {
            let _ = signature(&vec![0x55; len], &vec![0xaa; len]);
        }
    }
}
