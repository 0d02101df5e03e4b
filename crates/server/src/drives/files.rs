//! File drives that a verb makes: sparse, never over an existing file, and taken away again when the verb fails.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use api::Problem;
use rt::{Rt, probe};

use crate::size::Size;

/// Files made so far; removed on drop unless [`NewFiles::keep`] is called.
#[derive(Default)]
pub struct NewFiles {
    made: Vec<PathBuf>,
    /// Directories, from the root on.
    dirs: Vec<PathBuf>,
}

impl NewFiles {
    /// Makes `path` a sparse file of `size`, with its directory, if there is nothing yet; refuses a file of another
    /// size.
    ///
    /// # Errors
    /// When the file has another size or cannot be made.
    pub async fn ensure(&mut self, rt: &Rt, path: &Path, size: Size) -> Result<(), Problem> {
        let wanted = path.to_owned();
        // Its directory may lie anywhere, and what is made is made durable.
        let absent = missing_dirs(path);
        let made = rt.apart(move || make(&wanted, size)).await;
        // Also those on the way to a file that could not be made.
        self.dirs.extend(absent.into_iter().filter(|dir| dir.is_dir()));
        if made? {
            self.made.push(path.to_owned());
        }
        Ok(())
    }

    /// The verb has succeeded: they stay.
    pub fn keep(mut self) {
        self.made.clear();
        self.dirs.clear();
    }
}

/// Directories on the way to a file that are not there, from the root on.
fn missing_dirs(path: &Path) -> Vec<PathBuf> {
    let named = |dir: &&Path| !dir.as_os_str().is_empty();
    let mut absent: Vec<PathBuf> =
        path.ancestors().skip(1).filter(named).take_while(|dir| !dir.exists()).map(Path::to_owned).collect();
    absent.reverse();
    absent
}

/// Makes a file, unless there is one of this size: then false.
fn make(path: &Path, size: Size) -> Result<bool, Problem> {
    let what = format!("drive {}", path.display());
    let failed = |e: io::Error| {
        let (why, todo) = (format!("cannot be created: {e}"), "choose another path");
        // A path that cannot be, or where the server may not write, is no failure of a drive or a file system.
        if matches!(
            e.kind(),
            ErrorKind::PermissionDenied
                | ErrorKind::NotFound
                | ErrorKind::NotADirectory
                | ErrorKind::IsADirectory
                | ErrorKind::InvalidFilename
                | ErrorKind::InvalidInput
                | ErrorKind::ReadOnlyFilesystem
        ) {
            return Problem::refused("drive_path", what.clone(), why, todo);
        }
        Problem::failed(what.clone(), why, todo)
    };
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() != size.0 => {
            return Err(Problem::refused(
                "drive_size",
                what,
                format!("it exists already and has {}, not {size}", Size(meta.len())),
                "leave out --size to use it as it is, or delete it first",
            ));
        }
        Ok(_) => return Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    probe::create_sparse_file(path, size.0).map_err(failed)?;
    Ok(true)
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.made {
            if let Err(e) = fs::remove_file(path) {
                tracing::warn!("{}: cannot be removed again: {e}", path.display());
            }
        }
        for dir in self.dirs.iter().rev() {
            // Somebody may have put something there meanwhile: then it stays.
            let _ = fs::remove_dir(dir);
        }
    }
}
