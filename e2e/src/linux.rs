//! Kernels for guests: the newest of /boot, or one that Debian has for later, fetched and not installed.
//!
//! ```text
//!   target/kernels/apt      apt's lists and packages, of the mirror that this machine uses
//!   target/kernels/root     what the package has: boot/vmlinuz-VERSION, lib/modules/VERSION
//!   target/kernels/stable   the same two for the kernel of Debian stable's backports
//! ```
//!
//! Invariants: nothing of this machine's packages or of apt's own state changes; what was fetched once is used again.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::{Failure, OrFail, Result, tools};

/// The first version whose ublk has all that is used.
const UBLK_SINCE: [u64; 2] = [6, 6];

/// A kernel and its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its version, as its files are named.
    pub version: String,
    /// The directory that has boot and lib/modules.
    pub root: PathBuf,
}

impl Kernel {
    /// The newest kernel of this machine, which need not be the one that runs.
    ///
    /// # Errors
    /// When there is none.
    pub fn installed() -> Result<Kernel> {
        newest(Path::new("/")).ok_or_else(|| {
            Failure::new("/boot", "no kernel with modules; Debian has one: apt-get install linux-image-amd64")
        })
    }

    /// One that serves block devices (ublk): this machine's, if it is new enough, or the newest backport.
    ///
    /// # Errors
    /// When there is none, and none can be fetched.
    pub fn with_ublk() -> Result<Kernel> {
        if let Some(kernel) = newest(Path::new("/")).filter(Kernel::has_ublk) {
            return Ok(kernel);
        }
        let release = fs::read_to_string("/etc/os-release").or_fail("/etc/os-release")?;
        let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let codename = codename.ok_or_else(|| Failure::new("/etc/os-release", "it names no release"))?;
        Kernel::backport(codename.trim_matches('"'), "kernels")
    }

    /// The newest that Debian has for its stable release, whatever this machine's is.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub fn of_stable() -> Result<Kernel> {
        Kernel::backport("stable", "kernels/stable")
    }

    /// The newest backport for a release of Debian: fetched, or kept in that directory of target.
    fn backport(release: &str, dir: &str) -> Result<Kernel> {
        let target = std::env::current_exe().or_fail("the path of this program")?;
        let target = target.parent().and_then(Path::parent).ok_or_else(|| Failure::new("target", "it is not there"))?;
        let (dir, root) = (target.join(dir), target.join(dir).join("root"));
        if newest(&root).is_none() {
            fetch(&dir, &root, release)?;
        }
        let none = || Failure::new("a kernel with ublk", format!("the backports of Debian {release} have none"));
        newest(&root).filter(Kernel::has_ublk).ok_or_else(none)
    }

    /// Whether it lies where a running kernel looks for modules.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Its modules.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.root.join("lib/modules").join(&self.version)
    }

    fn has_ublk(&self) -> bool {
        let has = ["ublk_drv.ko", "ublk_drv.ko.xz", "ublk_drv.ko.zst"]
            .map(|name| self.modules().join("kernel/drivers/block").join(name));
        numbers(&self.version)[..] >= UBLK_SINCE[..] && has.iter().any(|path| path.is_file())
    }

    /// Files of a module and of those that it needs, in the order of loading.
    ///
    /// # Errors
    /// When it has no such module.
    pub fn module_files(&self, dir: &Path, module: &str) -> Result<Vec<String>> {
        let root = self.root.display().to_string();
        let args = ["--dirname", &root, "--show-depends", "--set-version", &self.version, module];
        let list = tools::run(dir, "modprobe", &args)?;
        Ok(list.lines().filter_map(|line| line.strip_prefix("insmod ")).map(|path| path.trim().to_owned()).collect())
    }

    /// The kernel without its wrapping, so that the guest need not unpack it, which takes it half a minute. One that is
    /// packed in another way than Debian's unpacks itself.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn unpacked(&self, dir: &Path) -> Result<PathBuf> {
        const PACKERS: [(&[u8], &str); 2] = [(b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];
        let wrapped = self.root.join(format!("boot/vmlinuz-{}", self.version));
        let bytes = fs::read(&wrapped).or_fail(wrapped.display().to_string())?;
        let Some(payload) = payload(&bytes) else { return Ok(wrapped) };
        let packer =
            PACKERS.iter().find(|(magic, packer)| payload.starts_with(magic) && tools::path_of(packer).is_ok());
        let Some((_, packer)) = packer else { return Ok(wrapped) };
        fs::write(dir.join("vmlinux.packed"), payload).or_fail("the packed kernel")?;
        tools::run(dir, "sh", &["-c", &format!("{packer} -dc <vmlinux.packed >vmlinux")])?;
        Ok(dir.join("vmlinux"))
    }
}

/// What a kernel's image has packed: its place is in the header (Documentation/arch/x86/boot.rst, protocol 2.08), and the last four
/// bytes are its length unpacked.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let protected = (usize::from(*image.get(0x1f1)?) + 1) * 512;
    let start = protected + word(0x248)?;
    image.get(start..start + word(0x24c)?.checked_sub(4)?)
}

/// The newest kernel below a root, by its numbers.
fn newest(root: &Path) -> Option<Kernel> {
    let names = fs::read_dir(root.join("boot")).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let versions = names.filter_map(|name| Some(name.strip_prefix("vmlinuz-")?.to_owned()));
    let kernels = versions.map(|version| Kernel { version, root: root.to_owned() });
    kernels.filter(|kernel| kernel.modules().join("modules.dep").is_file()).max_by_key(|k| numbers(&k.version))
}

/// The numbers that a version begins with: of 6.12.43+deb12-amd64, as `uname -r` says it, 6, 12, 43 and 12.
#[must_use]
pub fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok()).collect()
}

/// Fetches the newest backport for a release of Debian, and unpacks it into `root`.
fn fetch(dir: &Path, root: &Path, release: &str) -> Result<()> {
    println!("fetching a kernel from the backports of Debian {release} into {}", dir.display());
    let apt = dir.join("apt");
    for place in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(place)).or_fail("a directory for apt")?;
    }
    let source = format!("deb {} {release}-backports main\n", tools::mirror()?);
    fs::write(apt.join("backports.list"), source).or_fail("a list of sources")?;
    let place = apt.display();
    let options = [
        format!("-oDir::Etc::sourcelist={place}/backports.list"),
        "-oDir::Etc::sourceparts=-".to_owned(),
        format!("-oDir::State::lists={place}/lists"),
        format!("-oDir::Cache={place}/cache"),
        // It cannot reach every directory, and need not.
        "-oAPT::Sandbox::User=root".to_owned(),
    ];
    let run = |program: &str, args: &[&str]| {
        let all: Vec<&str> = options.iter().map(String::as_str).chain(args.iter().copied()).collect();
        tools::run(&apt, program, &all)
    };
    run("apt-get", &["update", "-q"])?;
    // The package of that name has nothing but this.
    let depends = |package: &str| -> Result<Vec<String>> {
        let printed = run("apt-cache", &["depends", package])?;
        Ok(printed.lines().filter_map(|line| line.trim().strip_prefix("Depends: ").map(str::to_owned)).collect())
    };
    let all = depends("linux-image-amd64")?;
    let package = all.iter().rfind(|name| name.starts_with("linux-image-"));
    let package = package.ok_or_else(|| Failure::new("apt-cache depends linux-image-amd64", all.join(" ")))?;
    // Debian 13 and later have the kernel and its modules in packages of their own.
    let mut packages = depends(package)?;
    packages
        .retain(|name| ["linux-base-", "linux-binary-", "linux-modules-"].iter().any(|kind| name.starts_with(kind)));
    packages.push(package.clone());
    let download: Vec<&str> = ["download", "-q"].into_iter().chain(packages.iter().map(String::as_str)).collect();
    run("apt-get", &download)?;
    // Complete, or not there.
    let partial = dir.join("partial");
    let _old = fs::remove_dir_all(&partial);
    fs::create_dir(&partial).or_fail("a directory")?;
    for package in &packages {
        tools::run(&apt, "sh", &["-c", &format!("dpkg -x {package}_*.deb '{}'", partial.display())])?;
    }
    let version = package.trim_start_matches("linux-image-").trim_end_matches("-unsigned");
    // Debian 13 and later have both below /usr/lib/modules, where this machine's tools do not look.
    if !partial.join("lib").exists() {
        symlink("usr/lib", partial.join("lib")).or_fail("a link to the modules")?;
    }
    if !partial.join("boot").exists() {
        fs::create_dir(partial.join("boot")).or_fail("a directory for the kernel")?;
        let (image, name) = (format!("../lib/modules/{version}/vmlinuz"), format!("boot/vmlinuz-{version}"));
        symlink(image, partial.join(name)).or_fail("a link to the kernel")?;
    }
    tools::run(&apt, "depmod", &["-b", &partial.display().to_string(), version])?;
    fs::rename(&partial, root).or_fail("the unpacked kernel")
}
