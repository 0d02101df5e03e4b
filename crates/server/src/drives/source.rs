//! Where a drive comes from: a path, or memory ("mem:4G").

use std::path::{Path, PathBuf};
use std::str::FromStr;

use api::Problem;
use rt::{Drive, OpenDrive, OpenError, Rt};

use crate::size::Size;

/// A drive that is not open yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A block device or a regular file.
    Path(PathBuf),
    /// This process's memory: gone when the process ends.
    Memory(Size),
}

/// What no path has.
const NUL: &str = "a drive's name has a NUL byte";

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        match text.strip_prefix("mem:") {
            Some(size) => Ok(Source::Memory(size.parse()?)),
            None if text.is_empty() => Err("a drive's name is empty".to_owned()),
            None if text.contains('\0') => Err(NUL.to_owned()),
            None => Ok(Source::Path(PathBuf::from(text))),
        }
    }
}

impl Source {
    /// The path, if it has one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Source::Path(path) => Some(path),
            Source::Memory(_) => None,
        }
    }

    /// As a user names it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Source::Path(path) => path.display().to_string(),
            Source::Memory(size) => format!("mem:{}", crate::size::human(size.0).replace([' ', 'i', 'B'], "")),
        }
    }

    /// Opens it. `nth` tells memory drives of one array apart.
    ///
    /// # Errors
    /// When it is not there, is held by somebody, or is no drive.
    pub async fn open(&self, rt: &Rt, nth: usize, how: OpenDrive) -> Result<Drive, Problem> {
        match self {
            Source::Memory(size) => Ok(Drive::memory(rt, &format!("{}#{nth}", self.name()), size.0)),
            Source::Path(path) => Drive::open(rt, path, how).await.map_err(|e| open_problem(path, &e)),
        }
    }
}

/// Why `path` could not be opened, for people and scripts.
#[must_use]
pub fn open_problem(path: &Path, e: &OpenError) -> Problem {
    let what = format!("drive {}", path.display());
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Problem::usage(what, NUL, "name it by its path");
    }
    match e {
        OpenError::NotFound(_) => Problem::new(
            api::Kind::NotFound,
            "drive_not_found",
            what,
            "no such drive or file",
            "`ls -l /dev/disk/by-id` shows the block devices",
        ),
        OpenError::Permission(_) => {
            Problem::refused("drive_permission", what, "this user may not open it", "run as root, or get access to it")
        }
        OpenError::ReadOnly(_) => Problem::refused(
            "drive_read_only",
            what,
            "it is read-only, or on a file system that is mounted read-only",
            "mount that file system for writing, or choose another drive",
        ),
        OpenError::Locked(_) => Problem::refused(
            "drive_locked",
            what,
            "a running Ashlar or another program holds its lock",
            "stop that program first; `ashlar stop ARRAY` releases the drives of an array that is served",
        ),
        OpenError::Busy(_) => Problem::refused(
            "drive_busy",
            what,
            "the kernel uses it (mount, swap, md or device mapper)",
            "release it there first",
        ),
        OpenError::NotADrive(_) => Problem::refused(
            "not_a_drive",
            what,
            "it is neither a block device nor a regular file",
            "give a block device, a file or mem:SIZE",
        ),
        OpenError::TooSmall(_) => {
            Problem::refused("drive_too_small", what, "it is smaller than one block of 4 KiB", "give a larger drive")
        }
        OpenError::Modelled(_) => Problem::refused(
            "drive_modelled",
            what,
            "files cannot be opened in the modelled world",
            "use a modelled drive",
        ),
        OpenError::Os(_, e) => Problem::failed(what, e, "the kernel log (`dmesg`) may tell more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_print() {
        assert_eq!("mem:4G".parse(), Ok(Source::Memory(Size(4 << 30))));
        assert_eq!(Source::Memory(Size(512 << 20)).name(), "mem:512M");
        assert_eq!("/dev/sda".parse(), Ok(Source::Path("/dev/sda".into())));
        assert!("mem:".parse::<Source>().is_err());
        assert!("".parse::<Source>().is_err());
        assert!("/dev/s\0da".parse::<Source>().is_err());
        let wrong = open_problem(Path::new("/dev/s\0da"), &OpenError::Locked(PathBuf::new()));
        assert_eq!((wrong.kind, wrong.why.as_str()), (api::Kind::Usage, NUL));
    }
}
