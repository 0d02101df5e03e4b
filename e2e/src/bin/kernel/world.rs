//! An array that is served over NVMe/TCP on loopback, and a guest whose kernel may use it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::ashlar::Ashlar;
use e2e::guest::{Guest, HOST};
use e2e::server::Server;
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
/// The host that may use the array.
pub const FRIEND: &str = "nqn.2014-08.org.nvmexpress:uuid:5f0a7f9e-6c55-4d0c-9d0c-0d5a3a1f2b01";
/// One that may not.
pub const STRANGER: &str = "nqn.2014-08.org.nvmexpress:uuid:5f0a7f9e-6c55-4d0c-9d0c-0d5a3a1f2b02";

/// All that steps work with.
pub struct World {
    /// The binary.
    pub ashlar: Ashlar,
    /// Its path, which is the same in the guest.
    pub program: PathBuf,
    /// The server.
    pub server: Server,
    /// The client.
    pub guest: Guest,
    /// Its drives' files, relative to the directory.
    pub drives: Vec<String>,
    /// The array's qualified name.
    pub nqn: String,
    port: u16,
}

impl World {
    /// Serves a RAID 5 of four drives, and boots.
    pub fn new(program: &Path, dir: &Path) -> Result<World> {
        let ashlar = Ashlar::new(program, dir);
        let drives: Vec<String> = (0..4).map(|n| format!("d/{n}")).collect();
        fs::create_dir_all(dir.join("d")).or_fail("the drives' directory")?;
        let mut create = vec!["create", ARRAY, "--raid", "5", "--size", DRIVE];
        create.extend(drives.iter().map(String::as_str));
        ashlar.done(&create)?;
        ashlar.done(&["volume", "create", VOLUME, &format!("{}M", VOLUME_BYTES >> 20)])?;
        // The port must be the same after a restart, and known before.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).or_fail("a free port")?.port();
        let (listen, advertise) = (format!("tcp:127.0.0.1:{port}"), format!("{HOST}:{port}"));
        let flags = ["--nvme", &listen, "--nvme-advertise", &advertise, "--allow-host", FRIEND];
        let mut server = Server::new(&ashlar).with_flags(&flags);
        server.start()?;
        let uuid = text(&ashlar.status(ARRAY)?, "uuid")?;
        let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}");
        let mut guest = Guest::boot(dir, 4)?;
        guest.sh("modprobe -a nvme_tcp ext4 xfs crc32c_generic")?;
        Ok(World { ashlar, program: program.to_owned(), server, guest, drives, nqn, port })
    }

    /// `nvme VERB` to the server, as a host.
    pub fn nvme(&self, verb: &str, host: &str) -> String {
        let id = host.rsplit(':').next().unwrap_or_default();
        format!("nvme {verb} -t tcp -a {HOST} -s {} --hostnqn={host} --hostid={id}", self.port)
    }

    /// Connects with these flags.
    pub fn connect(&mut self, flags: &str) -> Result<()> {
        let patience = "--reconnect-delay=1 --ctrl-loss-tmo=60 --keep-alive-tmo=5";
        let connect = format!("{} -n {} {patience} {flags}", self.nvme("connect", FRIEND), self.nqn);
        self.guest.sh(&connect).map_err(|f| Failure::new(f.what, format!("{}\n{}", f.why, self.server.log_end())))?;
        self.device().map(drop)
    }

    /// Disconnects.
    pub fn disconnect(&mut self) -> Result<()> {
        let line = format!("nvme disconnect -n {}", self.nqn);
        self.guest.sh(&line)?;
        self.guest.wait(Duration::from_secs(10), "! ls /sys/block | grep nvme").map(drop)
    }

    /// Connects if no step has done it.
    pub fn connected(&mut self) -> Result<()> {
        if self.guest.sh("ls /sys/block")?.contains("nvme") { Ok(()) } else { self.connect("") }
    }

    /// The volume's node in the guest.
    pub fn device(&mut self) -> Result<String> {
        let seen = self.guest.wait(Duration::from_secs(10), "cd /dev && ls nvme*n1")?;
        Ok(format!("/dev/{}", seen.lines().next().unwrap_or_default().trim()))
    }

    /// The controller's node in the guest.
    pub fn controller(&mut self) -> Result<String> {
        let line = format!("cd /sys/class/nvme && for c in *; do grep -q {} $c/subsysnqn && echo $c; done", self.nqn);
        let seen = self.guest.sh(&format!("{line}; true"))?;
        Ok(format!("/dev/{}", seen.lines().next().unwrap_or_default().trim()))
    }

    /// What `nvme` prints as JSON.
    pub fn json(&mut self, line: &str) -> Result<Value> {
        let printed = self.guest.sh(&format!("{line} -o json"))?;
        serde_json::from_str(&printed).or_fail(format!("{line}: {printed}"))
    }
}

/// A field that is a text.
pub fn text(value: &Value, field: &str) -> Result<String> {
    let found = value[field].as_str().map(str::to_owned);
    found.ok_or_else(|| Failure::new(field, format!("not in {value}")))
}
