//! The foreign programs of the end-to-end tests: which Debian package has each, and installing them.
//!
//! Invariant: without root nothing is installed, and what is missing is an error.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program and its package.
const PROGRAMS: &[(&str, &str)] = &[
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdsh", "python3-libnbd"),
    ("nbdfuse", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("fio", "fio"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("resize2fs", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("nvme", "nvme-cli"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("ip", "iproute2"),
    ("setpriv", "util-linux"),
    ("losetup", "mount"),
    ("chromium", "chromium"),
    ("mdadm", "mdadm"),
    ("prometheus", "prometheus"),
    ("systemctl", "systemd"),
    ("debootstrap", "debootstrap"),
    ("lintian", "lintian"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("udevadm", "udev"),
    ("valgrind", "valgrind"),
];

/// Debian's own Python.
const PYTHON: &str = "/usr/bin/python3";

/// The modules that it must have, and their packages.
const MODULES: [(&str, &str); 2] = [("import nbd", "python3-libnbd"), ("import ensurepip", "python3-venv")];

/// A kernel for the guest, with its modules: any.
const KERNEL: &str = "linux-image-amd64";

/// Where root's programs lie: a user's PATH on Debian has not all of these.
const MORE_PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Sees to it that everything is there.
///
/// # Errors
/// What is missing and cannot be installed.
pub fn provide(may_install: bool) -> Result<(), String> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().copied().collect();
    let by_hand = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    let list = format!("the end-to-end tests need programs of these Debian packages: {}", packages.join(" "));
    if !may_install || !is_root() {
        return Err(format!("{list}\ninstall them as root: {by_hand}"));
    }
    if !is_there("apt-get") {
        return Err(format!("{list}\nthere is no apt-get here: install them by the means of this system"));
    }
    println!("xtask: {list}");
    println!("xtask: installing them, as root: apt-get update; {by_hand}");
    apt_get(&["update", "-q"])?;
    let mut args = vec!["install", "-y", "-q", "--no-install-recommends"];
    args.extend(&packages);
    apt_get(&args)?;
    let still = self::missing();
    if still.is_empty() {
        return Ok(());
    }
    Err(format!("apt-get succeeded, but this is still missing: {still:?}"))
}

fn missing() -> BTreeSet<&'static str> {
    let mut packages: BTreeSet<_> =
        PROGRAMS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    for (import, package) in MODULES {
        let imports = Command::new(PYTHON).args(["-c", import]).stderr(Stdio::null()).status();
        if !imports.is_ok_and(|status| status.success()) {
            packages.insert(package);
        }
    }
    if !has_kernel() {
        packages.insert(KERNEL);
    }
    packages
}

/// Whether /boot has a kernel whose modules are there.
fn has_kernel() -> bool {
    let names =
        fs::read_dir("/boot").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut versions = names.filter_map(|name| Some(name.strip_prefix("vmlinuz-")?.to_owned()));
    versions.any(|version| Path::new("/lib/modules").join(version).join("modules.dep").is_file())
}

fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(MORE_PLACES.iter().map(PathBuf::from))
        .any(|dir| Path::new(&dir).join(program).is_file())
}

/// Whether the effective user is root, as the kernel tells it.
fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap_or_default();
    ids.split_whitespace().nth(1) == Some("0")
}

fn apt_get(args: &[&str]) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("apt-get {}: {status}", args.join(" "))),
        Err(e) => Err(format!("apt-get: {e}")),
    }
}
