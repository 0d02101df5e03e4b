//! A served array, and a guest whose disks are its volumes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::ashlar::Ashlar;
use e2e::guest::Guest;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result};

/// The array.
pub const ARRAY: &str = "lab";
/// Its volume.
pub const VOLUME: &str = "lab/v";
/// Another one, of a machine that moves.
pub const OTHER: &str = "lab/moves";
/// Length of the volume: a little more than XFS wants at least.
pub const VOLUME_BYTES: u64 = 320 << 20;
/// Size of a drive.
pub const DRIVE: &str = "512M";
/// The volume in the guest.
pub const DISK: &str = "/dev/vda";
/// Its queues.
pub const QUEUES: u32 = 2;
/// How long a disk may take to answer again after its server was gone.
const BACK_MAX: Duration = Duration::from_secs(90);

/// All that steps work with.
pub struct World {
    /// The binary.
    pub ashlar: Ashlar,
    /// The server.
    pub server: Server,
    /// The client.
    pub guest: Guest,
    /// Where all of it is.
    pub dir: PathBuf,
}

impl World {
    /// Serves a RAID 5 of four drives, and boots.
    pub fn new(program: &Path, dir: &Path) -> Result<World> {
        let ashlar = Ashlar::new(program, dir);
        fs::create_dir_all(dir.join("d")).or_fail("the drives' directory")?;
        ashlar.done(&["create", ARRAY, "--raid", "5", "--size", DRIVE, "d/0", "d/1", "d/2", "d/3"])?;
        ashlar.done(&["volume", "create", VOLUME, &format!("{}M", VOLUME_BYTES >> 20)])?;
        let mut server = Server::new(&ashlar).with_flags(&["--guests", "g"]);
        server.start()?;
        let disk = disk(&ashlar, VOLUME, QUEUES, 1024)?;
        let mut guest = Guest::boot_with(dir, 2, &disk)?;
        guest.sh("modprobe -a virtio_blk ext4 xfs crc32c_generic")?;
        guest.wait(BACK_MAX, &format!("test -b {DISK}"))?;
        Ok(World { ashlar, server, guest, dir: dir.to_owned() })
    }

    /// Kills the server and starts the next one; when it returns, the disk answers again.
    pub fn killed(&mut self) -> Result<()> {
        self.server.kill()?;
        self.server.start()?;
        self.answers()
    }

    /// Ends the server in order and starts the next one; when it returns, the disk answers again.
    pub fn restarted(&mut self) -> Result<()> {
        self.server.stop()?;
        self.server.start()?;
        self.answers()
    }

    /// Waits until the disk answers.
    pub fn answers(&mut self) -> Result<()> {
        let read = format!("dd if={DISK} of=/dev/null iflag=direct bs=4k count=1");
        let log = self.server.log_end();
        self.guest.sh_within(BACK_MAX, &read).map(drop).map_err(|f| Failure::new(f.what, format!("{}\n{log}", f.why)))
    }
}

/// How QEMU is told of a machine's memory, in MiB, and of its disk.
pub fn disk(ashlar: &Ashlar, volume: &str, queues: u32, memory: u32) -> Result<Vec<String>> {
    let told = ashlar.json(&["attach", "--by", "vhost-user", volume])?;
    let socket = told[0]["socket"].as_str().map(str::to_owned);
    let socket = socket.ok_or_else(|| Failure::new("ashlar attach", format!("no socket: {told}")))?;
    let object = format!("memory-backend-memfd,id=memory,size={memory}M,share=on");
    let chardev = format!("socket,id=v,path={socket},{}", reconnect()?);
    let device = format!("vhost-user-blk-pci,chardev=v,num-queues={queues}");
    let memory = memory.to_string();
    let words = [
        "-m",
        &memory,
        "-object",
        &object,
        "-machine",
        "memory-backend=memory",
        "-chardev",
        &chardev,
        "-device",
        &device,
    ];
    Ok(words.map(str::to_owned).to_vec())
}

/// How QEMU is told to connect again each second: in milliseconds since 9.2.
fn reconnect() -> Result<&'static str> {
    let said = Command::new("qemu-system-x86_64").arg("--version").output().or_fail("qemu-system-x86_64 --version")?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = text.split("version ").nth(1).unwrap_or_default();
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let is_new = (numbers.next(), numbers.next()) >= (Some(9), Some(2));
    Ok(if is_new { "reconnect-ms=1000" } else { "reconnect=1" })
}
