//! A Debian kernel in QEMU, by software emulation, that runs shell commands: a client that is no program of ours.
//!
//! ```text
//!   host                                    guest
//!   sh("nvme list")  -> second serial port -> a shell that reads lines and runs each
//!   output, "@@END 0" <-                    its root: this machine's /, read-only, under a layer of memory
//!   127.0.0.1        <- user network       <- 10.0.2.2
//! ```
//!
//! Every program of this machine runs in the guest as it is; what it writes is gone with it. The kernel is the newest of
//! /boot, or another one (`linux`). Its first process is the shell, or this machine's systemd.
//!
//! Invariant: QEMU ends with this value, and with this process whatever happens to it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::linux::Kernel;
use crate::{Failure, OrFail, Result, tools};

/// This machine, as the guest reaches it.
pub const HOST: &str = "10.0.2.2";
/// What it takes to mount its root and to reach the host.
const MODULES: [&str; 5] = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net"];
/// What file systems and digests of NVMe/TCP ask for by the checksum's name: the first that the kernel has. Newer ones have no generic one.
const CRC32C: [&str; 2] = ["crc32c_generic", "crc32c_cryptoapi"];
/// How long a boot may take: 4 s on an idle machine, more than a minute with systemd beside two compilers.
const BOOT_MAX: Duration = Duration::from_secs(150);
/// Boots until it is given up: now and then one stands still before its first process, which nothing here tests. The second
/// says what it does.
const BOOTS: [&str; 2] = ["quiet", "ignore_loglevel"];
/// Lines of the console that a failure shows: the last ones; of a kernel that found itself broken, those from there on.
const CONSOLE_LINES: usize = 25;
const BROKEN_LINES: usize = 120;
/// What it says then.
const BROKEN: [&str; 4] = ["kernel BUG at", "BUG: ", "Oops: ", "Kernel panic"];

const INIT: &str = r#"#!/bin/busybox sh
B=/bin/busybox
$B mkdir -p /proc /sys /dev /ro /rw /new
$B mount -t proc proc /proc
$B mount -t devtmpfs dev /dev
for m in /modules/*; do $B insmod $m; done
$B mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 root /ro
$B mount -t tmpfs layer /rw
$B mkdir /rw/upper /rw/work
$B mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work root /new
$B cp /prepare /talk /new/
[ -d /files ] && $B rm -rf /new/.dockerenv /new/etc/fstab /new/etc/systemd/system && $B cp -a /files/. /new/
$B umount /proc
[ -d /files ] && exec $B switch_root /new /lib/systemd/systemd
exec $B switch_root /new /bin/sh /prepare
"#;

const PREPARE: &str = r#"export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
for d in /run /mnt /dev/shm; do mount -t tmpfs memory $d; done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
exec /bin/sh /talk
"#;

const TALK: &str = r#"export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
exec </dev/ttyS1 >/dev/ttyS1 2>&1
stty raw -echo
echo @@READY
while IFS= read -r line; do
  ( eval "$line" ) </dev/null
  printf '\n@@END %d\n' $?
done
"#;

/// The shell as a service of systemd, which goes on while others are stopped.
const TALK_SERVICE: &str = "[Unit]\nDefaultDependencies=no\nAfter=sysinit.target\n\
                            [Service]\nExecStart=/bin/sh /talk\nKillMode=process\n";

/// A running guest.
pub struct Guest {
    qemu: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    console: PathBuf,
}

impl Guest {
    /// Boots it with `cpus` processors; its files go into `dir`.
    ///
    /// # Errors
    /// When something is not installed, or it does not come up.
    pub fn boot(dir: &Path, cpus: u32) -> Result<Guest> {
        Guest::boot_with(dir, cpus, &[])
    }

    /// The same with systemd, to multi-user.target. It has no units but those that packages enable by themselves, and those of
    /// `files`: a directory that is laid over the root. `more` are arguments of QEMU.
    ///
    /// # Errors
    /// As [`Guest::boot`].
    pub fn boot_systemd(dir: &Path, cpus: u32, more: &[String], files: &Path) -> Result<Guest> {
        Guest::boot_systemd_kernel(dir, cpus, more, files, &Kernel::installed()?)
    }

    /// The same with another kernel.
    ///
    /// # Errors
    /// As [`Guest::boot`].
    pub fn boot_systemd_kernel(dir: &Path, cpus: u32, more: &[String], files: &Path, kernel: &Kernel) -> Result<Guest> {
        let units = files.join("etc/systemd/system");
        fs::create_dir_all(units.join("multi-user.target.wants")).or_fail("a directory of units")?;
        fs::write(units.join("talk.service"), TALK_SERVICE).or_fail("a unit")?;
        // Else each file of this machine's /tmp is removed from the layer at boot, which takes minutes.
        let rules = files.join("etc/tmpfiles.d");
        fs::create_dir_all(&rules).and_then(|()| fs::write(rules.join("tmp.conf"), "")).or_fail("tmp.conf")?;
        let enabled = ["../talk.service", "/lib/systemd/system/remote-fs.target"];
        tools::run(&units, "ln", &["-sf", enabled[0], enabled[1], "multi-user.target.wants/"])?;
        if !kernel.is_installed() {
            let modules = files.join("usr/lib/modules");
            fs::create_dir_all(&modules).or_fail("a directory for modules")?;
            tools::run(&modules, "ln", &["-sfn", &kernel.modules().display().to_string(), &kernel.version])?;
        }
        Guest::started(dir, cpus, more, Some(files), kernel)
    }

    /// The same with more arguments of QEMU: drives, for instance.
    ///
    /// # Errors
    /// As [`Guest::boot`].
    pub fn boot_with(dir: &Path, cpus: u32, more: &[String]) -> Result<Guest> {
        Guest::boot_kernel(dir, cpus, more, &Kernel::installed()?)
    }

    /// The same with another kernel.
    ///
    /// # Errors
    /// As [`Guest::boot`].
    pub fn boot_kernel(dir: &Path, cpus: u32, more: &[String], kernel: &Kernel) -> Result<Guest> {
        let mut guest = Guest::started(dir, cpus, more, None, kernel)?;
        if !kernel.is_installed() {
            guest.sh(&format!("mkdir -p /lib/modules && ln -sfn {} /lib/modules/", kernel.modules().display()))?;
        }
        Ok(guest)
    }

    fn started(dir: &Path, cpus: u32, more: &[String], files: Option<&Path>, kernel: &Kernel) -> Result<Guest> {
        let (kernel, memory) = (kernel.unpacked(dir)?, initramfs(kernel, dir, files)?);
        let mut last = Failure::new("guest", "no boot was tried");
        for says in BOOTS {
            let guest = Guest::launched(dir, (&kernel, &memory), says, cpus, more)?;
            match guest.until("the boot", BOOT_MAX, |line| line.contains("@@READY").then_some(0)) {
                Ok(_) => return Ok(guest),
                Err(failure) => {
                    eprintln!("{failure}");
                    last = failure;
                }
            }
        }
        Err(last)
    }

    /// QEMU, begun; `says` is what the kernel tells of its boot.
    fn launched(dir: &Path, (kernel, memory): (&Path, &Path), says: &str, cpus: u32, more: &[String]) -> Result<Guest> {
        let console = dir.join("console");
        // Instructions are counted by one thread.
        let threads = if more.iter().any(|word| word == "-icount") { "single" } else { "multi" };
        let mut qemu = Command::new(tools::path_of("setpriv")?)
            .args(["--pdeathsig", "KILL"])
            .arg(tools::path_of("qemu-system-x86_64")?)
            .args(["-accel", &format!("tcg,thread={threads},tb-size=512"), "-cpu", "max", "-M", "q35"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-smp", &cpus.to_string(), "-m", "1536"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(memory)
            .arg("-append")
            .arg(format!(
                "console=ttyS0 {says} panic=-1 oops=panic nokaslr mitigations=off nowatchdog audit=0 \
                systemd.unit=multi-user.target systemd.show_status=1 systemd.status_unit_format=name SYSTEMD_COLORS=0"
            ))
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-chardev", "stdio,id=talk,signal=off", "-serial", "chardev:talk"])
            .args(["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"])
            .args(["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"])
            .args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .or_fail("qemu-system-x86_64")?;
        let (Some(input), Some(output)) = (qemu.stdin.take(), qemu.stdout.take()) else {
            return Err(Failure::new("qemu-system-x86_64", "it has no pipes"));
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(std::result::Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Ok(Guest { qemu, input, lines, console })
    }

    /// Runs a line of shell, which must succeed; what it printed.
    ///
    /// # Errors
    /// When it fails, or takes longer than `limit`.
    pub fn sh_within(&mut self, limit: Duration, line: &str) -> Result<String> {
        match self.run(limit, line)? {
            (0, printed) => Ok(printed),
            (code, printed) => Err(self.broken(line, format!("exit code {code}\n{printed}"))),
        }
    }

    /// The same within a minute.
    ///
    /// # Errors
    /// As [`Guest::sh_within`].
    pub fn sh(&mut self, line: &str) -> Result<String> {
        self.sh_within(Duration::from_secs(60), line)
    }

    /// Runs a line of shell that must fail; what it printed.
    ///
    /// # Errors
    /// When it succeeds.
    pub fn sh_failing(&mut self, line: &str) -> Result<String> {
        match self.run(Duration::from_secs(60), line)? {
            (0, printed) => Err(self.broken(line, format!("it succeeded, and must not\n{printed}"))),
            (_, printed) => Ok(printed),
        }
    }

    /// Starts a line of shell beside others; `name` is for [`Guest::finish`].
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn start(&mut self, name: &str, line: &str) -> Result<()> {
        self.sh(&format!("rm -f /tmp/{name}.end; ( ({line}) >/tmp/{name}.out 2>&1; echo $? >/tmp/{name}.end ) &"))
            .map(drop)
    }

    /// Whether what was started goes on.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn is_running(&mut self, name: &str) -> Result<bool> {
        Ok(self.run(Duration::from_secs(60), &format!("test -s /tmp/{name}.end"))?.0 != 0)
    }

    /// Waits for what was started, which must succeed; what it printed.
    ///
    /// # Errors
    /// When it fails, or takes longer than `limit`.
    pub fn finish(&mut self, name: &str, limit: Duration) -> Result<String> {
        let wait = format!("until test -s /tmp/{name}.end; do sleep 0.1; done; cat /tmp/{name}.out");
        let end = format!("; exit $(cat /tmp/{name}.end)");
        self.sh_within(limit, &(wait + &end))
    }

    /// Waits until a line of shell succeeds; what it printed then.
    ///
    /// # Errors
    /// When it does not within `limit`.
    pub fn wait(&mut self, limit: Duration, line: &str) -> Result<String> {
        let begun = Instant::now();
        loop {
            match self.run(Duration::from_secs(60), line)? {
                (0, printed) => return Ok(printed),
                (_, printed) if begun.elapsed() > limit => {
                    return Err(self.broken(line, format!("not within {limit:?}\n{printed}")));
                }
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn run(&mut self, limit: Duration, line: &str) -> Result<(i32, String)> {
        assert!(!line.contains('\n'), "one line: {line}");
        self.input.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.input.flush()).or_fail(line)?;
        self.until(line, limit, |line| line.strip_prefix("@@END ")?.trim().parse().ok())
    }

    /// All lines up to the one that is the end.
    fn until(&self, what: &str, limit: Duration, end: impl Fn(&str) -> Option<i32>) -> Result<(i32, String)> {
        let (begun, mut printed) = (Instant::now(), String::new());
        loop {
            match self.lines.recv_timeout(limit.saturating_sub(begun.elapsed())) {
                Ok(line) => match end(&line) {
                    Some(code) => return Ok((code, printed)),
                    None => printed += &(line + "\n"),
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.broken(what, format!("no end within {limit:?}\n{printed}")));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.broken(what, format!("the guest has ended\n{printed}")));
                }
            }
        }
    }

    /// Waits until it has ended by itself: after a `poweroff`.
    ///
    /// # Errors
    /// When it does not within `limit`.
    pub fn ended(&mut self, limit: Duration) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            match self.qemu.try_wait().or_fail("qemu-system-x86_64")? {
                Some(status) => return Ok(status),
                None if begun.elapsed() > limit => return Err(self.broken("the end", format!("not within {limit:?}"))),
                None => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// What is on the console.
    #[must_use]
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Ends it at once; whatever is asked of it later fails.
    pub fn kill(&mut self) {
        let _gone = self.qemu.kill();
        let _status = self.qemu.wait();
    }

    /// A failure with the end of the console.
    #[must_use]
    pub fn broken(&self, what: &str, why: String) -> Failure {
        let shown = shown(&self.console());
        Failure::new(format!("guest: {what}"), format!("{}\n{shown}", why.trim_end()))
    }
}

/// The part of a console that a failure shows: from the kernel's first complaint on, else the end.
#[must_use]
pub fn shown(console: &str) -> String {
    let lines: Vec<_> = console.lines().collect();
    let complaint = lines.iter().position(|line| BROKEN.iter().any(|says| line.contains(says)));
    let shown = match complaint {
        Some(from) => &lines[from..lines.len().min(from + BROKEN_LINES)],
        None => &lines[lines.len().saturating_sub(CONSOLE_LINES)..],
    };
    shown.iter().map(|line| format!("  console: {line}\n")).collect()
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the kernel begins with: busybox, modules, the way to the root, and what is laid over that.
fn initramfs(kernel: &Kernel, dir: &Path, files: Option<&Path>) -> Result<PathBuf> {
    let root = dir.join("initramfs");
    if let Some(files) = files {
        fs::create_dir_all(&root).or_fail("a directory")?;
        tools::run(&root, "sh", &["-c", &format!("rm -rf files && cp -a '{}' files", files.display())])?;
    }
    let crc32c = CRC32C.into_iter().find(|module| kernel.module_files(dir, module).is_ok());
    let modules: Vec<&str> = MODULES.into_iter().chain(crc32c).collect();
    first_files(kernel, dir, &modules, &[("init", INIT), ("prepare", PREPARE), ("talk", TALK)])
}

/// Files that a kernel begins with: busybox, these modules in the order of loading in /modules, and these texts.
///
/// # Errors
/// When a module is not there, or a program of this machine.
pub fn first_files(kernel: &Kernel, dir: &Path, modules: &[&str], texts: &[(&str, &str)]) -> Result<PathBuf> {
    let root = dir.join("initramfs");
    for place in ["bin", "modules"] {
        fs::create_dir_all(root.join(place)).or_fail("a directory")?;
    }
    fs::copy(tools::path_of("busybox")?, root.join("bin/busybox")).or_fail("busybox")?;
    let mut loaded: Vec<String> = vec![];
    for module in modules {
        for path in kernel.module_files(dir, module)? {
            if loaded.contains(&path) {
                continue;
            }
            let to = root.join(format!("modules/{:02}.ko", loaded.len()));
            loaded.push(path.clone());
            match path.strip_suffix(".xz") {
                Some(_) => {
                    let unpack = format!("xz -dc {path} >{}", to.display());
                    tools::run(dir, "sh", &["-c", &unpack]).map(drop)?;
                }
                None => fs::copy(&path, to).map(drop).or_fail(path)?,
            }
        }
    }
    for (name, text) in texts {
        fs::write(root.join(name), text).or_fail(*name)?;
    }
    tools::run(&root, "sh", &["-c", "chmod 755 init && find . | busybox cpio -o -H newc >../initrd"])?;
    Ok(dir.join("initrd"))
}
