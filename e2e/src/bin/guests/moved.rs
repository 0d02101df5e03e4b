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

use e2e::guest::{first_files, is_broken, shown};
use e2e::linux::Kernel;
use e2e::{Failure, OrFail, Result, tools};

/// How long anything here may take; seconds on an idle machine.
const MAX: Duration = Duration::from_secs(120);
/// Of three machines one may arrive with a kernel that fails: QEMU 7.2 loses some of the memory of a machine that it emulates when it moves,
/// seen with a disk of its own, too. What the disk's contents are is asked of each.
const TRIES: u32 = 3;
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
    for attempt in 1..=TRIES {
        let dir = dir.join(format!("moved{attempt}"));
        fs::create_dir_all(&dir).or_fail("a directory")?;
        match once(&dir, disk) {
            Err(Ended::Kernel(console)) if attempt < TRIES => {
                eprintln!("the kernel of a machine that moved failed; another machine is moved\n{console}");
            }
            Err(Ended::Kernel(console)) => {
                return Err(Failure::new(
                    "a machine that moves",
                    format!("its kernel failed, {TRIES} times\n{console}"),
                ));
            }
            Err(Ended::Failed(failure)) => return Err(failure),
            Ok(()) => return Ok(()),
        }
    }
    unreachable!("the last attempt returns")
}

/// Why a machine was not moved.
enum Ended {
    /// Its kernel has failed; the console.
    Kernel(String),
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failed(failure)
    }
}

fn once(dir: &Path, disk: &[String]) -> std::result::Result<(), Ended> {
    let kernel = Kernel::installed()?;
    let image = kernel.unpacked(dir)?;
    let memory = first_files(&kernel, dir, &["virtio_pci", "virtio_blk"], &[("init", INIT)])?;
    let begin = |name: &str, more: &[String]| Machine::begin(dir, name, (&image, &memory), &[disk, more].concat());
    let mut here = begin("a", &[])?;
    here.does_rounds(ROUNDS)?;
    for name in ["b", "c"] {
        let door = dir.join(format!("to-{name}"));
        let way = format!("unix:{}", door.display());
        let there = begin(name, &["-incoming".to_owned(), way.clone()])?;
        there.waits_at(&door)?;
        here.moves(&way)?;
        there.does_rounds(ROUNDS)?;
        here = there;
    }
    Ok(())
}

impl Machine {
    fn begin(dir: &Path, name: &str, (kernel, memory): (&Path, &Path), more: &[String]) -> Result<Machine> {
        let (console, monitor) = (dir.join(format!("{name}.console")), dir.join(format!("{name}.monitor")));
        let qemu = Command::new(tools::path_of("setpriv")?)
            .args(["--pdeathsig", "KILL"])
            .arg(tools::path_of("qemu-system-x86_64")?)
            .args(["-accel", "tcg", "-cpu", "max", "-M", "q35", "-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-no-reboot", "-smp", "1", "-kernel"])
            .arg(kernel)
            .arg("-initrd")
            .arg(memory)
            .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off nowatchdog"])
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
    fn does_rounds(&self, rounds: usize) -> std::result::Result<(), Ended> {
        let begun = Instant::now();
        loop {
            let text = String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned();
            if text.contains("@@WRONG") || begun.elapsed() > MAX && !is_broken(&text) {
                return Err(Failure::new("a machine that moves", shown(&text)).into());
            }
            // A moment later all of what it says is there.
            if text.contains("end Kernel panic") || begun.elapsed() > MAX {
                return Err(Ended::Kernel(shown(&text)));
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
