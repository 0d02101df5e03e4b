//! Files with secrets: read only where nobody else can read them.
//!
//! Invariant: what was looked at is what is read: a file that is put in its place meanwhile is another one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use api::Problem;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::registry::give_to_owner;

/// A larger file is no key.
const BYTES_MAX: u64 = 64 << 10;

/// Mode bits that nobody may have: everything for others; more than reading for the group. The owner's are its own affair.
const NEVER: u32 = 0o037;

/// Reading for the group, which a file of root may have: a server that is not root reads its key so.
const GROUP_READS: u32 = 0o040;

/// Reads `path`, which is called `what` (a key file).
///
/// # Errors
/// When it is not there, is a link or no regular file, or others may read it.
pub fn read(what: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let todo = "a regular file, of mode 0600; or of root, of mode 0640";
    let no = |why: String| Problem::usage(format!("{what} {}", path.display()), why, todo);
    // A device or a pipe is not waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(|e| match e.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
            no("it is a symbolic link, not a regular file".to_owned())
        }
        Some(_) | None => no(e.to_string()),
    })?;
    let meta = file.metadata().map_err(|e| no(e.to_string()))?;
    if !meta.is_file() {
        return Err(no("it is not a regular file".to_owned()));
    }
    let never = if meta.uid() == 0 { NEVER } else { NEVER | GROUP_READS };
    if meta.mode() & never != 0 {
        return Err(no(format!("others may read it (mode {:o})", meta.mode() & 0o777)));
    }
    if meta.len() > BYTES_MAX {
        return Err(no(format!("it has {} bytes; {BYTES_MAX} are the most", meta.len())));
    }
    // With room for all of it: a vector that grows leaves pieces behind.
    let mut text = Zeroizing::new(Vec::with_capacity(BYTES_MAX as usize + 1));
    file.take(BYTES_MAX + 1).read_to_end(&mut text).map_err(|e| no(e.to_string()))?;
    if text.trim_ascii().is_empty() {
        return Err(no("it is empty".to_owned()));
    }
    Ok(text)
}

/// Writes a file whole, of mode 0600: beside, then renamed. What root writes is the directory's owner's.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_added_extension("new");
    match std::fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    path.parent().map_or(Ok(()), |dir| give_to_owner(&file, dir))?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        replace(&path, b"secret\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let root = rustix::process::geteuid().is_root();
        let kept = [(0o600, true), (0o400, true), (0o700, true), (0o500, true)];
        let shown = [(0o640, root), (0o660, false), (0o644, false), (0o604, false), (0o710, false), (0o701, false)];
        let modes = kept.into_iter().chain(shown);
        for (mode, fine) in modes {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let said = read("key file", &path);
            assert_eq!(said.is_ok(), fine, "{mode:o}");
            assert!(said.err().is_none_or(|problem| problem.why.contains("others may read it")), "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read("key file", &link).unwrap_err().why.contains("symbolic link"));
        assert!(read("key file", dir.path()).unwrap_err().why.contains("not a regular file"));
        assert!(read("key file", &dir.path().join("none")).is_err());
        fs::write(&path, " \n").unwrap();
        assert!(read("key file", &path).unwrap_err().why.contains("empty"));
        fs::write(&path, vec![b'x'; BYTES_MAX as usize + 1]).unwrap();
        assert!(read("key file", &path).unwrap_err().why.contains("bytes"));
    }
}
