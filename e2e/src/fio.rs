//! fio with checksums, in a guest: the line of shell, and what it must have printed.

use crate::Result;
use crate::failure::require;

/// fio that writes here and there, and then reads all of it back against its checksums.
///
/// Linux sends a command in its caller's time where it can: one whose connection has just broken gets SIGPIPE for it.
#[must_use]
pub fn verifying(file: &str, mebibytes: u32, more: &str) -> String {
    format!(
        "trap '' PIPE; fio --name=job --filename={file} --size={mebibytes}m --rw=randwrite --bs=4k --iodepth=16 --ioengine=libaio \
         --direct=1 --verify=crc32c --verify_fatal=1 {more}"
    )
}

/// That fio has read back as much as it has written.
///
/// # Errors
/// When it has not.
pub fn has_verified(printed: &str) -> Result<()> {
    let read = printed.lines().any(|line| line.trim_start().starts_with("read: IOPS="));
    let clean = printed.contains("err= 0") && !printed.contains("verify:");
    require(read && clean, "fio --verify", || printed.to_owned())
}
