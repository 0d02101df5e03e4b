//! A guest with a kernel that has ublk, and in it a server, its array on files in memory.
//!
//! Invariant: what the server has written outlives it, and ends with the guest.

use std::path::Path;
use std::time::Duration;

use e2e::guest::Guest;
use e2e::linux::Kernel;
use e2e::{Failure, OrFail, Result};
use serde_json::Value;

/// The array.
pub const ARRAY: &str = "lab";
/// Its volume.
pub const VOLUME: &str = "lab/v";
/// Length of the volume: a little more than XFS wants at least.
pub const VOLUME_BYTES: u64 = 320 << 20;
/// Size of a drive.
pub const DRIVE: &str = "512M";
/// The directory of all its files, in the guest.
pub const DIR: &str = "/run/local";
/// The volume's name in /dev that stays.
pub const LINK: &str = "/dev/ashlar/lab/v";
/// How long a server may take to answer, and a device to have a server again.
const READY_MAX: Duration = Duration::from_secs(90);
/// How long a server may take to end.
const END_MAX: Duration = Duration::from_secs(60);

/// All that steps work with.
pub struct World {
    /// The machine.
    pub guest: Guest,
    /// The binary, with its flags.
    pub ashlar: String,
    /// Flags of `serve`.
    pub flags: String,
    starts: u32,
}

impl World {
    /// Boots the first kernel that has ublk, makes a RAID 5 of four drives, and serves it.
    pub fn new(program: &Path, dir: &Path) -> Result<World> {
        World::of(program, dir, &Kernel::with_ublk()?)
    }

    /// The same with the newest kernel that Debian has for its stable release.
    pub fn of_newer_kernel(program: &Path, dir: &Path) -> Result<World> {
        World::of(program, dir, &Kernel::of_stable()?)
    }

    fn of(program: &Path, dir: &Path, kernel: &Kernel) -> Result<World> {
        // Four drives that are full, and a guest that works beside them.
        let memory = ["-m", "4096"].map(str::to_owned);
        let mut guest = Guest::boot_kernel(dir, 2, &memory, kernel)?;
        guest.sh("modprobe -a ublk_drv ext4 xfs")?;
        guest.sh(&format!("mkdir {DIR} && mount -t tmpfs -o size=2560m drives {DIR} && mkdir {DIR}/d"))?;
        let ashlar = format!("{} --control {DIR}/control --state-dir {DIR}/state", program.display());
        let mut world = World { guest, ashlar, flags: String::new(), starts: 0 };
        world.ashlar(&format!("create {ARRAY} --raid 5 --size {DRIVE} {DIR}/d/0 {DIR}/d/1 {DIR}/d/2 {DIR}/d/3"))?;
        world.ashlar(&format!("volume create {VOLUME} {}M", VOLUME_BYTES >> 20))?;
        world.start()?;
        Ok(world)
    }

    /// Runs a verb, which must succeed; what it printed.
    pub fn ashlar(&mut self, verb: &str) -> Result<String> {
        let line = format!("cd {DIR} && {} {verb}", self.ashlar);
        self.guest.sh(&line)
    }

    /// Runs a verb, which must fail; what it printed.
    pub fn ashlar_failing(&mut self, verb: &str) -> Result<String> {
        let line = format!("cd {DIR} && {} {verb} 2>&1", self.ashlar);
        self.guest.sh_failing(&line)
    }

    /// The status of the array.
    pub fn status(&mut self) -> Result<Value> {
        let printed = self.ashlar(&format!("status {ARRAY} --json"))?;
        let status: Value = serde_json::from_str(&printed).or_fail(printed)?;
        Ok(status["arrays"][0].clone())
    }

    /// Starts the server and waits until it answers.
    pub fn start(&mut self) -> Result<()> {
        self.starts += 1;
        let serve = format!("exec {} serve --nbd unix:{DIR}/nbd {}", self.ashlar, self.flags);
        let line = format!("cd {DIR} && exec sh -c 'echo $$ >{DIR}/pid; {serve}'");
        self.guest.start(&self.server(), &line)?;
        // Not `status`, which looks at the drives itself where no server answers.
        let answers = format!("{} clients", self.ashlar);
        self.guest.wait(READY_MAX, &answers).map(drop).map_err(|failure| self.with_log(failure))
    }

    /// Sends the server a signal and waits until it is gone.
    pub fn end(&mut self, signal: &str) -> Result<()> {
        // The guest's shell ends the waiting, so that it can be asked what the server waits for.
        let gone = format!(
            "p=$(cat {DIR}/pid); kill -{signal} $p; end=$(($(date +%s) + {})); \
             while kill -0 $p 2>/dev/null; do \
             test $(date +%s) -lt $end || {{ echo w >/proc/sysrq-trigger; exit 1; }}; sleep 0.05; done",
            END_MAX.as_secs()
        );
        self.guest.sh_within(READY_MAX, &format!("({gone})")).map(drop).map_err(|failure| self.with_log(failure))
    }

    /// Ends the server and starts the next one; when it returns, the device is served again.
    pub fn restart(&mut self, signal: &str) -> Result<()> {
        self.end(signal)?;
        self.start()?;
        let read = format!("dd if={LINK} of=/dev/null iflag=direct bs=4k count=1");
        self.guest.sh_within(READY_MAX, &read).map(drop).map_err(|failure| self.with_log(failure))
    }

    /// Waits until the server has ended by itself, which must be well.
    pub fn ended(&mut self) -> Result<()> {
        let server = self.server();
        self.guest.finish(&server, READY_MAX).map(drop)
    }

    /// Attaches the volume; its device, as it was printed.
    pub fn attach(&mut self) -> Result<String> {
        let printed = self.ashlar(&format!("attach {VOLUME} --by ublk")).map_err(|failure| self.with_log(failure))?;
        let device = printed.split_whitespace().rfind(|word| word.starts_with("/dev/")).map(str::to_owned);
        device.ok_or_else(|| Failure::new("ashlar attach", format!("it printed no device: {printed}")))
    }

    /// Attaches it if no step has done it; its name in sysfs.
    pub fn attached(&mut self) -> Result<String> {
        self.attach()?;
        let seen = self.guest.sh(&format!("basename $(readlink -f {LINK})"))?;
        Ok(seen.trim().to_owned())
    }

    fn server(&self) -> String {
        format!("serve{}", self.starts)
    }

    fn with_log(&mut self, failure: Failure) -> Failure {
        let log = self.guest.sh(&format!("tail -n 25 /tmp/{}.out; dmesg | tail -n 80", self.server()));
        Failure::new(failure.what, format!("{}\n{}", failure.why, log.unwrap_or_default()))
    }
}
