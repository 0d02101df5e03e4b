//! A socket file that is never open to others, not even for a moment.
//!
//! Invariant: a socket has its name once its mode is set; what was at that place stays there.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Directories that others, or a process that was killed, may have left.
const TRIES: u32 = 16;

/// Listens at `path`; before the socket has that name, `open` sets the mode and the group of the file that it is given.
///
/// # Errors
/// `AlreadyExists` when something is there; when `open` fails; when the directory cannot be written.
pub fn bind_closed(path: &Path, open: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<UnixListener> {
    let closed = closed_beside(path)?;
    let inner = closed.join("s");
    let bound = UnixListener::bind(&inner).and_then(|listener| {
        open(&inner)?;
        // Not a rename: that would take the place of a server that has just begun.
        fs::hard_link(&inner, path)?;
        Ok(listener)
    });
    // They are our own.
    let _ = (fs::remove_file(&inner), fs::remove_dir(&closed));
    bound
}

/// A new directory that only its owner enters: what is made in it has the mode that the umask gives, and nobody comes to it.
fn closed_beside(path: &Path) -> io::Result<PathBuf> {
    let mut tried = 0;
    loop {
        // Hardly longer than the name itself: a path of a socket has 107 bytes at most.
        let closed = path.with_file_name(format!(".a{}-{tried}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&closed) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tried < TRIES => tried += 1,
            made => return made.map(|()| closed),
        }
    }
}
