//! What somebody else keeps on a drive: mounts, holders, signatures; and files to be used as drives.
//!
//! For create, import and wipe, before an array takes a drive. Blocking calls, for the real world only.
//!
//! Not here: our own labels (`ondisk`).

mod mounts;
mod signature;
mod smart;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub use mounts::mounted_at;
pub use signature::{FIRST_BYTES, LAST_BYTES, ends, signature};
pub use smart::{Smart, smart};

/// Makes a file of `bytes` that takes no space yet, readable and writable by its owner only.
///
/// # Errors
/// `AlreadyExists` when there is anything at `path`; that is never touched.
pub fn create_sparse_file(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let made = file.set_len(bytes).and_then(|()| file.sync_all()).and_then(|()| sync_parent(path));
    if made.is_err() {
        // It is the one made above.
        std::fs::remove_file(path)?;
    }
    made
}

/// Makes the name durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent)?.sync_all()
}

/// Space that this user can still fill in the file system of `dir`.
///
/// # Errors
/// When the file system cannot be asked.
pub fn free_bytes(dir: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_sparse_file_and_never_an_existing_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drive");
        create_sparse_file(&path, 1 << 30).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.len(), meta.mode() & 0o777), (1 << 30, 0o600));
        assert!(meta.blocks() < 100);
        assert_eq!(create_sparse_file(&path, 5).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 30);
        assert!(create_sparse_file(&dir.path().join("huge"), u64::MAX).is_err());
        assert!(!dir.path().join("huge").exists());
        assert!(free_bytes(dir.path()).unwrap() > 0);
    }
}
