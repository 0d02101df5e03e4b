//! Foreign programs the tests run, and the Debian package of each.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Failure, OrFail, Result};

/// Program, package.
pub const TOOLS: [(&str, &str); 31] = [
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdsh", "python3-libnbd"),
    ("nbdfuse", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("du", "coreutils"),
    ("tar", "tar"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("fio", "fio"),
    ("nbd-client", "nbd-client"),
    ("nvme", "nvme-cli"),
    ("mkfs.ext4", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("depmod", "kmod"),
    ("setpriv", "util-linux"),
    ("mdadm", "mdadm"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("debootstrap", "debootstrap"),
    ("lintian", "lintian"),
    ("systemd-analyze", "systemd"),
    ("unshare", "util-linux"),
];

/// Where root's programs lie: a user's PATH on Debian has not all of these.
const MORE_PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Where `program` lies.
///
/// # Errors
/// When it is not installed; says which package has it.
pub fn path_of(program: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .chain(MORE_PLACES.iter().map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|p| p.is_file());
    found.ok_or_else(|| {
        let package = TOOLS.iter().find(|(tool, _)| *tool == program).map_or("?", |(_, package)| package);
        Failure::new(
            program,
            format!("not installed; Debian has it in the package {package}: apt-get install {package}"),
        )
    })
}

/// Sees to it that these are installed, before anything begins.
///
/// # Errors
/// When one of them is not; says which package has it.
pub fn wanted(programs: &[&str]) -> Result<()> {
    programs.iter().try_for_each(|program| path_of(program).map(drop))
}

/// Runs `program` in `dir`; it must end well. Returns its standard output.
///
/// # Errors
/// When it is not installed or fails; with what it printed.
pub fn run<S: AsRef<str>>(dir: &Path, program: &str, args: &[S]) -> Result<String> {
    let (shown, mut command) = command(dir, program, args)?;
    let output = command.output().or_fail(shown.as_str())?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    let err = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(shown, format!("{}\n{}{}", output.status, out, err.trim_end())))
}

/// Runs `program`, which must fail; returns what it printed on standard error.
///
/// # Errors
/// When it is not installed or succeeds.
pub fn run_failing<S: AsRef<str>>(dir: &Path, program: &str, args: &[S]) -> Result<String> {
    let (shown, mut command) = command(dir, program, args)?;
    let output = command.output().or_fail(shown.as_str())?;
    if output.status.success() {
        return Err(Failure::new(shown, "it succeeded, and must not"));
    }
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Starts `program`; [`finish`] waits for it.
///
/// # Errors
/// When it is not installed.
pub fn start<S: AsRef<str>>(dir: &Path, program: &str, args: &[S]) -> Result<Child> {
    let (shown, mut command) = command(dir, program, args)?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().or_fail(shown)
}

/// Waits for a started program, which must end well.
///
/// # Errors
/// When it does not; with what it printed.
pub fn finish(child: Child, what: &str) -> Result<String> {
    let output = child.wait_with_output().or_fail(what)?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    let err = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(what, format!("{}\n{}{}", output.status, out, err.trim_end())))
}

fn command<S: AsRef<str>>(dir: &Path, program: &str, args: &[S]) -> Result<(String, Command)> {
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let mut command = Command::new(path_of(program)?);
    command.args(&args).current_dir(dir).stdin(Stdio::null());
    Ok((format!("{program} {}", args.join(" ")), command))
}

/// The mirror of Debian's packages that this machine uses.
///
/// # Errors
/// When apt is told of none.
pub fn mirror() -> Result<String> {
    let lists = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().filter_map(|e| Some(e.ok()?.path()));
    let texts = lists.chain([PathBuf::from("/etc/apt/sources.list")]).filter_map(|path| fs::read_to_string(path).ok());
    let words: Vec<String> = texts.flat_map(|t| t.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    let found = words.iter().find(|w| w.starts_with("http") && w.trim_end_matches('/').ends_with("/debian"));
    found.cloned().ok_or_else(|| Failure::new("/etc/apt", "it names no mirror of Debian"))
}
