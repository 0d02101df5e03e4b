//! The control socket's file: claimed, never open to others, taken away at the end.
//!
//! Invariants: a socket that a live server answers is never taken; a dead one's file is; only those who may connect.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use api::Problem;

use crate::http;

/// The claimed socket; its file goes when this is dropped.
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Takes the socket at `path`.
    ///
    /// # Errors
    /// When another Ashlar answers there, or it cannot be made.
    pub fn claim(path: &Path) -> Result<(Socket, String), Problem> {
        let what = || format!("control socket {}", path.display());
        let failed = |e: io::Error| {
            Problem::failed(
                what(),
                format!("cannot be created: {e}"),
                "choose another with --control or ASHLAR_CONTROL",
            )
        };
        if UnixStream::connect(path).is_ok() {
            return Err(Problem::refused(
                "already_running",
                what(),
                "an Ashlar is already running there",
                "`ashlar import NAME` hands it more arrays; a second server needs its own --control and --nbd",
            ));
        }
        if fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
            fs::remove_file(path).map_err(failed)?;
        }
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            fs::create_dir_all(dir).map_err(failed)?;
        }
        let socket = Socket { listener: bind_closed(path).map_err(failed)?, path: path.to_owned() };
        socket.listener.set_nonblocking(true).map_err(failed)?;
        Ok((socket, path.display().to_string()))
    }
}

/// Listens at `path` for those who may: never for others, not even for a moment. It is made in a directory that only its owner
/// enters, and gets its name when its mode is set.
fn bind_closed(path: &Path) -> io::Result<UnixListener> {
    // Hardly longer than the name itself: a path of a socket has 107 bytes at most.
    let closed = path.with_file_name(format!(".a{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&closed)?;
    let inner = closed.join("s");
    let bound = UnixListener::bind(&inner).and_then(|listener| {
        let opened = http::readers().map(|group| chown(&inner, None, Some(group)));
        if let Some(Err(e)) = &opened {
            tracing::warn!("control socket: it stays closed to the group ashlar-read: {e}");
        }
        // Who may connect has a role, or is told that it has none.
        let mode = if matches!(opened, Some(Ok(()))) { 0o660 } else { 0o600 };
        fs::set_permissions(&inner, fs::Permissions::from_mode(mode))?;
        // Not a rename: that would take the place of a server that has just begun.
        fs::hard_link(&inner, path)?;
        Ok(listener)
    });
    // They are our own.
    let _ = (fs::remove_file(&inner), fs::remove_dir(&closed));
    bound
}

impl Socket {
    /// Whoever connects.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Somebody may have taken the file away; the stop goes on.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::Mode;
    use rustix::process::umask;

    use super::*;

    /// Its mode does not come from the umask, and what it was made in is gone: between the two there is no open moment.
    #[test]
    fn it_is_closed_to_others_whatever_the_umask_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        let before = umask(Mode::empty());
        let claimed = Socket::claim(&path);
        umask(before);
        let (socket, _) = claimed.unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert!(matches!(mode, 0o600 | 0o660), "{mode:o}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        drop(socket);
        assert!(!path.exists());
    }
}
