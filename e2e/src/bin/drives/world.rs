//! A guest with four NVMe drives, on which it makes and serves an array.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use e2e::failure::require;
use e2e::guest::Guest;
use e2e::{Failure, OrFail, Result};
use serde_json::Value;

/// The drives.
pub const DRIVES: usize = 4;
/// Length of a drive.
const DRIVE_BYTES: u64 = 288 << 20;
/// What drives differ in: size of an LBA, and longest transfer (4 KiB to the power of `mdts`).
const KINDS: [&str; DRIVES] = ["", ",mdts=4", ",logical_block_size=4096,physical_block_size=4096", ",mdts=3"];
/// The array.
const ARRAY: &str = "lab";
/// How long a start with its recovery may take: the predecessor's drives may be held for some seconds.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long a change may take to be seen.
const NOTICE_MAX: Duration = Duration::from_secs(30);
/// How long the kernel may take to write 64 MiB to new drives: a second or two.
const CLEAR_MAX: Duration = Duration::from_secs(20);
/// How often a machine is started whose drives do not answer their kernel.
const BOOTS_MAX: u32 = 4;
/// How long one fio may take. A guest does a thousand requests a second.
const FIO_MAX: Duration = Duration::from_secs(120);

/// All that steps work with.
pub struct World {
    /// The machine with the drives.
    pub guest: Guest,
    /// `ashlar` with its directories.
    ashlar: String,
    /// Files of the guest.
    dir: PathBuf,
    /// Its drives, as arguments of QEMU.
    machine: Vec<String>,
}

impl World {
    /// Boots.
    pub fn new(program: &Path, dir: &Path) -> Result<World> {
        let mut machine = vec![];
        for (n, kind) in KINDS.iter().enumerate() {
            let file = dir.join(format!("nvme{n}"));
            File::create(&file).and_then(|f| f.set_len(DRIVE_BYTES)).or_fail(file.display().to_string())?;
            let file = file.display();
            machine.extend(["-drive".to_owned(), format!("if=none,id=d{n},format=raw,discard=unmap,file={file}")]);
            machine.extend(["-device".to_owned(), format!("nvme,serial=drive{n},drive=d{n}{kind}")]);
        }
        let guest = Guest::boot_with(dir, 1, &machine)?;
        let ashlar = format!("{} --control /tmp/control --state-dir /tmp/state", program.display());
        Ok(World { guest, ashlar, dir: dir.to_owned(), machine })
    }

    /// The program.
    pub fn program(&self) -> &str {
        self.ashlar.split(' ').next().unwrap_or_default()
    }

    /// All drives, with this many queues for polling, and an array on them that holds nothing.
    ///
    /// About one time in a hundred a queue of QEMU 7.2's controllers is dead from the moment the kernel has made it, and
    /// stays so over the kernel's resets of the controller. Nothing of ours has used the drives since: the machine is
    /// started anew, and that is printed.
    pub fn begin(&mut self, poll_queues: u32) -> Result<()> {
        let mut boots = 1;
        while let Err(failure) = self.clear(poll_queues) {
            if boots == BOOTS_MAX {
                return Err(failure);
            }
            boots += 1;
            println!("        the kernel's drives do not answer it; boot {boots}\n  {failure}");
            self.guest.kill();
            self.guest = Guest::boot_with(&self.dir, 1, &self.machine)?;
        }
        let (ashlar, create) = (self.ashlar.clone(), format!("create {ARRAY} --raid 5 /dev/nvme?n1"));
        self.guest.sh(&format!("{ashlar} {create} && {ashlar} volume create {ARRAY}/v 128M")).map(drop)
    }

    /// Gives the drives to the kernel anew, and writes zeros where members have their system areas.
    fn clear(&mut self, poll_queues: u32) -> Result<()> {
        self.guest.sh("modprobe -r nvme; rm -rf /tmp/state; echo 1 >/sys/bus/pci/rescan")?;
        self.guest.sh(&format!("modprobe nvme poll_queues={poll_queues}"))?;
        self.guest.wait(NOTICE_MAX, &format!("test $(ls /dev/nvme?n1 | wc -l) = {DRIVES}"))?;
        let clear = "for d in /dev/nvme?n1; do for at in 0 280; do \
                     dd if=/dev/zero of=$d bs=1M count=8 seek=$at oflag=direct 2>/dev/null || exit 1; done; done";
        self.guest.sh_within(CLEAR_MAX, clear).map(drop)
    }

    /// Serves; the drives must be used in this way then, of which `access` is the beginning as `status` says it.
    pub fn serve(&mut self, flags: &str, access: &str) -> Result<()> {
        let serve = format!("{} serve --nbd unix:/tmp/nbd {flags}", self.ashlar);
        self.guest.start("serve", &format!("exec sh -c \"echo \\$\\$ >/tmp/pid; exec {serve}\""))?;
        let ready = "grep -q ready: /tmp/serve.out || test -s /tmp/serve.end";
        self.guest.wait(READY_MAX, ready)?;
        let status = self.status()?;
        let members = status["members"].as_array().cloned().unwrap_or_default();
        let (way, why) = access.split_once(" (").unwrap_or((access, ""));
        let is_used = |m: &&Value| is_at_work(m) && m["access"] == way && m["access_why"].is_null() == why.is_empty();
        let used = members.iter().filter(is_used).count();
        let wanted = members.iter().filter(|m| is_at_work(m)).count();
        if used == 0 || used != wanted {
            return Err(self.broken(access, format!("not by all drives: {members:?}")));
        }
        let line = format!("  access    {access}");
        let shown = self.guest.sh(&format!("{} status {ARRAY}", self.ashlar))?;
        require(shown.lines().any(|l| l.starts_with(&line)), "ashlar status", || shown.clone())
    }

    /// The array, as `status --json` has it.
    pub fn status(&mut self) -> Result<Value> {
        let printed = match self.guest.sh(&format!("{} status {ARRAY} --json", self.ashlar)) {
            Ok(printed) => printed,
            Err(failure) => return Err(self.broken("status", failure.to_string())),
        };
        let all: Value = serde_json::from_str(&printed).or_fail(format!("status: {printed}"))?;
        Ok(all["arrays"][0].clone())
    }

    /// Waits until the array is in this state.
    pub fn until(&mut self, state: &str) -> Result<()> {
        let line = format!("{} status {ARRAY} --json | grep -q '\"state\": *\"{state}\"'", self.ashlar);
        self.guest.wait(NOTICE_MAX, &line).map(drop)
    }

    /// Kills the server.
    pub fn kill(&mut self) -> Result<()> {
        self.guest.sh("kill -9 $(cat /tmp/pid)").map(drop)
    }

    /// Stops the server in order.
    pub fn stop(&mut self) -> Result<()> {
        self.guest.sh(&format!("{} stop --force", self.ashlar))?;
        self.guest.finish("serve", READY_MAX).map(drop)
    }

    /// Pulls drive `n` as a hand would.
    pub fn pull(&mut self, n: usize) -> Result<()> {
        self.guest.sh(&format!("echo 1 >/sys/block/nvme{n}n1/device/device/remove")).map(drop)
    }

    /// fio over NBD, in requests that are longer than what some drives take at once.
    pub fn fio(&mut self, more: &str) -> Result<String> {
        match self.guest.sh_within(FIO_MAX, &fio(more)) {
            Ok(printed) => Ok(printed),
            Err(failure) => Err(self.broken("fio", failure.to_string())),
        }
    }

    /// Starts fio beside other things; it is called `fio`.
    pub fn fio_beside(&mut self, more: &str) -> Result<()> {
        self.guest.start("fio", &fio(more))?;
        thread::sleep(Duration::from_millis(1500));
        require(self.guest.is_running("fio")?, "fio", || "it was done at once".to_owned())
    }

    /// Waits for it.
    pub fn fio_ends(&mut self) -> Result<()> {
        match self.guest.finish("fio", FIO_MAX) {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.broken("fio", failure.to_string())),
        }
    }

    /// A number that a line of shell prints.
    pub fn number(&mut self, line: &str) -> Result<u64> {
        let printed = self.guest.sh(line)?;
        printed.trim().parse().or_fail(format!("{line}: {printed}"))
    }

    /// A failure with the end of the server's log.
    fn broken(&mut self, what: &str, why: String) -> Failure {
        let log = self.guest.sh("tail -25 /tmp/serve.out").unwrap_or_default();
        Failure::new(what, format!("{why}\nthe server's log:\n{log}"))
    }
}

fn fio(more: &str) -> String {
    format!(
        "fio --name=job --ioengine=nbd --uri='nbd+unix:///{ARRAY}/v?socket=/tmp/nbd' --rw=randwrite \
         --bssplit=4k/88:64k/10:1m/2 --iodepth=8 --size=8m --verify=crc32c --verify_fatal=1 --randseed=7 {more}"
    )
}

/// Whether a member is neither failed nor missing nor replaced.
fn is_at_work(member: &Value) -> bool {
    !["failed", "missing", "replaced"].iter().any(|state| member["state"] == *state)
}
