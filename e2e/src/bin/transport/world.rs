//! A guest whose drives are memory, and a server outside of it whose volume is one of its disks.
//!
//! Invariant: an array of the guest has six empty drives and one volume, of which nothing was written.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::ashlar::Ashlar;
use e2e::guest::Guest;
use e2e::linux::Kernel;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result};
use serde_json::Value;

use crate::ways::Way;

/// The array.
const ARRAY: &str = "lab";
/// Its volume.
pub const VOLUME: &str = "lab/v";
/// The volume's length, in MiB.
const VOLUME_MIB: u32 = 320;
/// Of each drive, in MiB: what is written over the volume again and again finds room.
const DRIVE_MIB: u32 = 384;
const DRIVES: usize = 6;
/// The guest's address.
pub const ADDRESS: &str = "10.0.2.15";
/// The guest as a host.
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
/// The disk by vhost-user.
pub const DISK: &str = "/dev/vda";
/// The directory of all its files, in the guest.
const DIR: &str = "/run/transport";
/// Where the guest finds the directory of the results.
const OUT: &str = "/mnt/out";
/// How long something of the kernel's may take.
pub const WAIT_MAX: Duration = Duration::from_secs(90);
/// How long the suite may take on one way.
const SUITE_MAX: Duration = Duration::from_secs(3600);
const MODULES: &str =
    "ublk_drv nbd nvme_tcp nvmet nvmet_tcp nvmet_rdma nvme_rdma rdma_rxe rdma_ucm virtio_blk crc32c_generic";

/// All that ways work with.
pub struct World {
    /// The machine.
    pub guest: Guest,
    /// The binary, with its flags.
    ashlar: String,
    /// The server of vhost-user. It is outside, and ends after the guest.
    _outside: Server,
}

/// Names of a volume.
pub struct Volume {
    /// Its subsystem.
    pub subsystem: String,
    /// Itself.
    pub uuid: String,
}

impl World {
    /// Serves an array outside, and boots.
    pub fn new(program: &Path, dir: &Path, out: &Path) -> Result<World> {
        let (outside, socket) = outside(program, dir)?;
        let mut words = vec!["-m".to_owned(), "4096".to_owned()];
        let memory = "memory-backend-memfd,id=memory,size=4096M,share=on";
        let chardev = format!("socket,id=v,path={socket}");
        let device = "vhost-user-blk-pci,chardev=v,num-queues=1";
        let share = format!("local,id=out,path={},security_model=none", out.display());
        let tagged = "virtio-9p-pci,fsdev=out,mount_tag=out";
        for (option, value) in [
            ("-object", memory),
            ("-machine", "memory-backend=memory"),
            ("-chardev", &chardev),
            ("-device", device),
            ("-fsdev", &share),
            ("-device", tagged),
        ] {
            words.extend([option.to_owned(), value.to_owned()]);
        }
        let mut guest = Guest::boot_kernel(dir, 2, &words, &Kernel::with_ublk()?)?;
        guest.sh(&format!("modprobe brd rd_nr={DRIVES} rd_size={} && modprobe -a {MODULES}", DRIVE_MIB << 10))?;
        guest
            .sh(&format!("mkdir -p {DIR} {OUT} /etc/nvme && mount -t 9p -o trans=virtio,version=9p2000.L out {OUT}"))?;
        guest.sh(&format!("echo {HOST} >/etc/nvme/hostnqn && echo {} >/etc/nvme/hostid", &HOST[HOST.len() - 36..]))?;
        let ashlar = format!("{} --control {DIR}/control --state-dir {DIR}/state", program.display());
        Ok(World { guest, ashlar, _outside: outside })
    }

    /// Its version.
    pub fn kernel(&mut self) -> Result<String> {
        Ok(self.guest.sh("uname -r")?.trim().to_owned())
    }

    /// Runs a verb, which must succeed; what it printed.
    pub fn ashlar(&mut self, verb: &str) -> Result<String> {
        let line = format!("cd {DIR} && {} {verb} 2>&1", self.ashlar);
        self.guest.sh_within(WAIT_MAX, &line)
    }

    /// Makes an array and serves it; `flags` are further ones of `serve`.
    pub fn serve(&mut self, flags: &str) -> Result<()> {
        let drives: Vec<String> = (0..DRIVES).map(|n| format!("/dev/ram{n}")).collect();
        self.ashlar(&format!("create {ARRAY} --raid 5 --force {}", drives.join(" ")))?;
        self.ashlar(&format!("volume create {VOLUME} {VOLUME_MIB}M"))?;
        let nbd = if flags.contains("--nbd") { String::new() } else { format!("--nbd unix:{DIR}/nbd") };
        let serve = format!("cd {DIR} && exec {} serve {nbd} {flags} --allow-host {HOST}", self.ashlar);
        self.guest.start("serve", &serve)?;
        let answers = format!("{} clients", self.ashlar);
        self.guest.wait(WAIT_MAX, &answers).map(drop)
    }

    /// Ends the server and the array.
    pub fn unserve(&mut self) -> Result<()> {
        self.ashlar("stop --force")?;
        self.guest.finish("serve", WAIT_MAX)?;
        self.ashlar(&format!("destroy {ARRAY} --yes --force")).map(drop)
    }

    /// Attaches the volume; its device.
    pub fn attach(&mut self, by: &str) -> Result<String> {
        let printed = self.ashlar(&format!("attach {VOLUME} --by {by}"))?;
        let device = printed.split_whitespace().rfind(|word| word.starts_with("/dev/")).map(str::to_owned);
        device.ok_or_else(|| Failure::new("ashlar attach", printed))
    }

    /// Names of the volume.
    pub fn volume(&mut self) -> Result<Volume> {
        let printed = self.ashlar(&format!("status {ARRAY} --json"))?;
        let status: Value = serde_json::from_str(&printed).or_fail(printed)?;
        let array = &status["arrays"][0];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(Volume {
            subsystem: format!("nqn.2014-08.org.nvmexpress:uuid:{}", text(&array["uuid"])),
            uuid: text(&array["volumes"][0]["uuid"]),
        })
    }

    /// Runs the suite on a device; how it went, in the lab's words.
    pub fn measure(&mut self, suite: &Path, device: &str, way: &Way) -> Result<String> {
        let suite = suite.display();
        let plan = self.ashlar(&format!("lab plan {suite} {device} --json"))?;
        let plan: Value = serde_json::from_str(&plan).or_fail(plan)?;
        let serial = plan["serial"].as_str().unwrap_or_default().to_owned();
        let (id, name) = (way.id, way.name);
        let run = format!(
            "rm -rf {OUT}/{id} {DIR}/{id} && cd {DIR} && {} lab run {suite} {device} --destroy '{serial}' --name '{name}' \
             --level RAID5 --drives 'memory, 384 MiB' --drive-count {DRIVES} --out {id} 2>&1",
            self.ashlar
        );
        let printed = self.guest.sh_within(SUITE_MAX, &run)?;
        // Measured beside no other file system; and the result belongs to this machine.
        self.guest.sh_within(WAIT_MAX, &format!("cp -r {DIR}/{id} {OUT}/ && rm -rf {DIR}/{id}"))?;
        let said = printed.lines().rfind(|line| line.contains(" FAIL: ")).unwrap_or_default();
        // The line takes the place of one that told how far it is.
        let said = said.rsplit("\x1b[K").next().unwrap_or_default();
        Ok(said.split(": ").next().unwrap_or_default().to_owned())
    }
}

/// A server of an array in memory, on this machine; and the socket of its volume for guests.
fn outside(program: &Path, dir: &Path) -> Result<(Server, String)> {
    let drives = vec![format!("\"mem:{DRIVE_MIB}M\""); DRIVES].join(", ");
    let array = format!("[[array]]\nname = \"{ARRAY}\"\ncreate = true\nraid = \"5\"\ndrives = [{drives}]\n");
    let volume = format!("[[array.volume]]\nname = \"v\"\nsize = \"{VOLUME_MIB}M\"\n");
    let config = dir.join("config.toml");
    fs::write(&config, array + &volume).or_fail("the configuration")?;
    let ashlar = Ashlar::new(program, dir);
    let mut server = Server::new(&ashlar).with_flags(&["--guests", "g", "--config", "config.toml"]);
    server.start()?;
    let told = ashlar.json(&["attach", "--by", "vhost-user", VOLUME])?;
    let socket = told[0]["socket"].as_str().map(str::to_owned);
    Ok((server, socket.ok_or_else(|| Failure::new("ashlar attach", format!("no socket: {told}")))?))
}
