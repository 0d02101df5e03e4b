//! A machine that moves from one QEMU to another on the same host, its disk with it, while it reads and writes.
//!
//! The machine has no other disk and no directory of this host, which would keep it where it is: a script in its memory reads the
//! disk into its page cache, which the device writes while pages are copied, and compares later what is there.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use e2e::guest::{first_files, shown};
use e2e::linux::Kernel;
use e2e::{Failure, OrFail, Result, tools};

/// How long anything here may take; seconds on an idle machine.
const MAX: Duration = Duration::from_secs(120);
/// Machines that are moved at most. When the kernel of one fails after it has arrived, another is moved: QEMU 7.2 breaks machines that it
/// emulates when they move, also with a disk of its own. The disk's contents must be right in each.
const TRIES: u32 = 2;
/// Where it arrives, one after the other.
const ARRIVE: [&str; 2] = ["b", "c"];
/// What it says of contents that are not as written.
const WRONG: &str = "@@WRONG";
/// Rounds that must be done before and after.
const ROUNDS: usize = 3;

/// Each round writes 8 MiB, each block by its number, forgets what it knows of the disk, reads all of it into the page cache, and
/// compares what is there then.
const INIT: &str = r#"#!/bin/busybox sh
B=/bin/busybox
$B mkdir -p /proc /sys /dev
$B mount -t proc proc /proc
$B mount -t devtmpfs dev /dev
for m in /modules/*; do $B insmod $m; done
until [ -b /dev/vda ]; do $B sleep 0.1; done
i=0
while true; do
  i=$((i+1))
  $B yes "round $i of a machine that moves" | $B head -c 8388608 >/p
  $B dd if=/p of=/dev/vda bs=64k conv=fsync 2>/dev/null || echo @@WRONG write
  echo 3 >/proc/sys/vm/drop_caches
  $B dd if=/dev/vda of=/dev/null bs=64k count=128 2>/dev/null || echo @@WRONG read
  $B dd if=/dev/vda bs=64k count=128 2>/dev/null | $B cmp - /p || echo @@WRONG contents
  echo @@ROUND $i
done
"#;

/// A QEMU that has the machine, or waits for it.
struct Machine {
    qemu: Child,
    console: PathBuf,
    monitor: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _gone = self.qemu.kill();
        let _status = self.qemu.wait();
    }
}

/// Moves a machine with this disk there and back again.
pub fn there_and_back(dir: &Path, disk: &[String]) -> Result<()> {
    for attempt in 1..TRIES {
        let dir = dir.join(format!("moved{attempt}"));
        match once(&dir, disk) {
            Err(failure) if fails_after_move(&dir) => {
                eprintln!("another machine is moved, since the kernel failed:\n{failure}")
            }
            ended => return ended,
        }
    }
    once(&dir.join("moved"), disk)
}

/// Whether a machine that arrived has a kernel that failed, and the right contents.
fn fails_after_move(dir: &Path) -> bool {
    let consoles = ARRIVE.map(|name| fs::read(console(dir, name)).unwrap_or_default());
    let says = |what: &str| consoles.iter().any(|console| String::from_utf8_lossy(console).contains(what));
    says("Kernel panic") && !says(WRONG)
}

fn console(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.console"))
}

fn once(dir: &Path, disk: &[String]) -> Result<()> {
    fs::create_dir_all(dir).or_fail("a directory")?;
    let kernel = Kernel::installed()?;
    let image = kernel.unpacked(dir)?;
    let memory = first_files(&kernel, dir, &["virtio_pci", "virtio_blk"], &[("init", INIT)])?;
    let begin = |name: &str, more: &[String]| Machine::begin(dir, name, (&image, &memory), &[disk, more].concat());
    let mut here = begin("a", &[])?;
    here.does_rounds(ROUNDS)?;
    for name in ARRIVE {
        let door = dir.join(format!("to-{name}"));
        let way = format!("unix:{}", door.display());
        let mut there = begin(name, &["-incoming".to_owned(), way.clone()])?;
        there.waits_at(&door)?;
        here.moves(&way)?;
        there.does_rounds(ROUNDS)?;
        here = there;
    }
    Ok(())
}

impl Machine {
    fn begin(dir: &Path, name: &str, (kernel, memory): (&Path, &Path), more: &[String]) -> Result<Machine> {
        let (console, monitor) = (console(dir, name), dir.join(format!("{name}.monitor")));
        let qemu = Command::new(tools::path_of("setpriv")?)
            .args(["--pdeathsig", "KILL"])
            .arg(tools::path_of("qemu-system-x86_64")?)
            .args(["-accel", "tcg", "-cpu", "max", "-M", "q35", "-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-no-reboot", "-smp", "1", "-kernel"])
            .arg(kernel)
            .arg("-initrd")
            .arg(memory)
            .args(["-append", "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nowatchdog"])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-monitor", &format!("unix:{},server=on,wait=off", monitor.display())])
            .args(more)
            .stdin(Stdio::null())
            .stderr(fs::File::create(dir.join(format!("{name}.errors"))).or_fail("a file")?)
            .spawn()
            .or_fail("qemu-system-x86_64")?;
        Ok(Machine { qemu, console, monitor })
    }

    /// Waits until so many rounds are done on this side, all of them right.
    fn does_rounds(&mut self, rounds: usize) -> Result<()> {
        let begun = Instant::now();
        loop {
            // A kernel that fails ends its QEMU.
            let ended = self.qemu.try_wait().or_fail("QEMU")?.is_some();
            let text = String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned();
            if text.contains(WRONG) || ended || begun.elapsed() > MAX {
                let why = format!("{}\n{}", self.console.display(), shown(&text));
                return Err(Failure::new("a machine that moves", why));
            }
            if text.matches("@@ROUND").count() >= rounds {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a machine can come.
    fn waits_at(&self, door: &Path) -> Result<()> {
        let begun = Instant::now();
        while !door.exists() {
            if begun.elapsed() > MAX {
                return Err(Failure::new("a QEMU that waits for a machine", "it does not"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Moves the machine to the QEMU that waits there.
    fn moves(&self, way: &str) -> Result<()> {
        self.say(&format!("migrate -d {way}"))?;
        let begun = Instant::now();
        loop {
            let told = self.say("info migrate")?;
            if told.contains("Migration status: completed") {
                return Ok(());
            }
            if told.contains("failed") || told.contains("Error") || begun.elapsed() > MAX {
                return Err(Failure::new("migrate", told));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// A line for QEMU's monitor, and its answer.
    fn say(&self, line: &str) -> Result<String> {
        let mut monitor = UnixStream::connect(&self.monitor).or_fail("the monitor")?;
        monitor.set_read_timeout(Some(MAX)).or_fail("the monitor")?;
        until_prompt(&mut monitor)?;
        monitor.write_all(format!("{line}\n").as_bytes()).or_fail(line)?;
        until_prompt(&mut monitor)
    }
}

fn until_prompt(monitor: &mut UnixStream) -> Result<String> {
    let (mut text, mut byte) = (vec![], [0]);
    while !text.ends_with(b"(qemu) ") {
        monitor.read_exact(&mut byte).or_fail("the monitor")?;
        text.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
