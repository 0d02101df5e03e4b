//! The control socket's file: claimed, never open to others, taken away at the end.
//!
//! Invariants: a socket that a live server answers is never taken; a dead one's file is; only those who may connect.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use api::Problem;
use rt::net::bind_closed;

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
        let socket = Socket { listener: bind_closed(path, open_to_readers).map_err(failed)?, path: path.to_owned() };
        socket.listener.set_nonblocking(true).map_err(failed)?;
        Ok((socket, path.display().to_string()))
    }
}

/// Who may connect has a role, or is told that it has none.
fn open_to_readers(path: &Path) -> io::Result<()> {
    let opened = http::readers().map(|group| chown(path, None, Some(group)));
    if let Some(Err(e)) = &opened {
        tracing::warn!("control socket: it stays closed to the group ashlar-read: {e}");
    }
    let mode = if matches!(opened, Some(Ok(()))) { 0o660 } else { 0o600 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, PoisonError};
    use std::thread;

    use rustix::fs::Mode;
    use rustix::process::umask;

    use super::*;

    /// There is one umask for all tests.
    static UMASK: Mutex<()> = Mutex::new(());

    /// Runs this while the umask forbids nothing.
    fn without_umask<T>(run: impl FnOnce() -> T) -> T {
        let _one = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
        let before = umask(Mode::empty());
        let done = run();
        umask(before);
        done
    }

    /// Somebody looks all the time, as root, who enters every directory: the socket has no open moment, nor has what it is made in.
    #[test]
    fn nobody_sees_it_open_while_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut seen = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    for entry in fs::read_dir(dir.path()).unwrap().flatten() {
                        let Ok(meta) = entry.metadata() else { continue };
                        assert_eq!(meta.permissions().mode() & 0o007, 0, "{:?}", entry.path());
                        seen += 1;
                    }
                }
                seen
            });
            let made = without_umask(|| (0..500).filter(|_| Socket::claim(&path).is_ok()).count());
            done.store(true, Ordering::Relaxed);
            assert!(looking.join().unwrap() > 0);
            assert_eq!(made, 500);
        });
    }

    /// Its mode does not come from the umask, and what it was made in is gone: between the two there is no open moment.
    #[test]
    fn it_is_closed_to_others_whatever_the_umask_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        let (socket, _) = without_umask(|| Socket::claim(&path)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert!(matches!(mode, 0o600 | 0o660), "{mode:o}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        drop(socket);
        assert!(!path.exists());
    }
}
