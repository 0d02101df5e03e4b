//! A machine with four drives, an array on them, and the units of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::guest::Guest;
use e2e::linux::Kernel;
use e2e::{OrFail, Result, tools};

/// The array.
pub const ARRAY: &str = "lab";
/// Where its file system is mounted.
pub const PLACE: &str = "/srv/db";
/// The unit that makes it a block device.
pub const ATTACH: &str = "ashlar-attach@lab.service";
/// The machine, as a host.
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:5f0a7f9e-6c55-4d0c-9d0c-0d5a3a1f2b03";
/// Size of a drive.
const DRIVE: &str = "288M";
const VOLUME: &str = "128M";
const DRIVES: usize = 4;
const CPUS: u32 = 2;
/// The server's user, as the package makes it, if with another number.
const USER: &str = "ashlar:x:61184:61184::/var/lib/ashlar:/usr/sbin/nologin";
const GROUP: &str = "ashlar:x:61184:";

/// What the package has beside units.
const UDEV: &str = include_str!("../../../../package/60-ashlar.rules");
const TMPFILES: &str = include_str!("../../../../package/tmpfiles.conf");
const SERVER_UNIT: &str = include_str!("../../../../systemd/ashlar.service");
const ATTACH_UNIT: &str = include_str!("../../../../systemd/ashlar-attach@.service");

/// How long all units may take to be stopped, and the machine to end.
const STOP_MAX: Duration = Duration::from_secs(120);

/// All that steps work with.
pub struct World {
    /// The machine.
    pub guest: Guest,
    /// The binary, on the machine that runs the test.
    pub ashlar: Ashlar,
    /// The line of fstab.
    pub mount: String,
    /// The volume's node.
    pub device: String,
    dir: PathBuf,
    /// What is laid over the machine's root.
    files: PathBuf,
    /// Its drives, as arguments of QEMU.
    drives: Vec<String>,
}

impl World {
    /// Makes an array of a volume, and boots a machine that has the units and does not use them.
    pub fn new(program: &Path, dir: &Path) -> Result<World> {
        let ashlar = Ashlar::new(program, dir);
        let names: Vec<String> = (0..DRIVES).map(|n| format!("drive{n}")).collect();
        let create = ["create", ARRAY, "--raid", "5", "--size", DRIVE].into_iter();
        ashlar.done(&create.chain(names.iter().map(String::as_str)).collect::<Vec<_>>())?;
        ashlar.done(&["volume", "create", &format!("{ARRAY}/db"), VOLUME])?;
        let status = ashlar.status(ARRAY)?;
        let uuid = status["volumes"][0]["uuid"].as_str().unwrap_or_default().to_owned();
        require(!uuid.is_empty(), "ashlar status", || format!("no uuid of a volume: {status}"))?;
        let device = format!("/dev/disk/by-id/nvme-uuid.{uuid}");
        let mount = format!("{device} {PLACE} ext4 _netdev,nofail,x-systemd.requires={ATTACH} 0 2");

        let files = dir.join("files");
        let nodes: Vec<String> = names.iter().map(|name| format!("\"/dev/disk/by-id/virtio-{name}\"")).collect();
        let config = format!(
            "nvme = [\"tcp:127.0.0.1:4420\"]\nallow_hosts = [\"{HOST}\"]\n\n\
             [[array]]\nname = \"{ARRAY}\"\ndrives = [{}]\n",
            nodes.join(", ")
        );
        for (path, text) in [
            ("etc/ashlar/ashlar.toml", config.as_str()),
            ("etc/passwd", &with_line("/etc/passwd", USER)?),
            ("etc/group", &with_line("/etc/group", GROUP)?),
            ("etc/nvme/hostnqn", HOST),
            ("etc/nvme/hostid", HOST.rsplit(':').next().unwrap_or_default()),
            ("etc/udev/rules.d/60-ashlar.rules", UDEV),
            ("etc/tmpfiles.d/ashlar.conf", TMPFILES),
            ("etc/systemd/system/ashlar.service", SERVER_UNIT),
            ("etc/systemd/system/ashlar-attach@.service", ATTACH_UNIT),
        ] {
            let to = files.join(path);
            to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&to, text)).or_fail(path)?;
        }
        fs::create_dir_all(files.join("usr/bin")).or_fail("a directory")?;
        // No link: what lies below /tmp here is not there on the machine.
        fs::copy(program, files.join("usr/bin/ashlar")).or_fail("the program")?;

        let drives: Vec<String> = names.iter().flat_map(|name| drive(dir, name)).collect();
        let guest = Guest::boot_systemd(dir, CPUS, &drives, &files)?;
        Ok(World { guest, ashlar, mount, device, dir: dir.to_owned(), files, drives })
    }

    /// Powers the machine off. The file system is let go of before the device, and that before the server stops.
    pub fn power_off(&mut self) -> Result<()> {
        self.guest.sh("systemctl poweroff --no-block")?;
        let status = self.guest.ended(STOP_MAX)?;
        let console = self.guest.console();
        require(status.success(), "the machine", || self.guest.broken("poweroff", status.to_string()).to_string())?;
        let at = |done: &str| console.lines().position(|line| line.contains("OK") && line.contains(done));
        let order = ["Unmounted srv-db.mount", &format!("Stopped {ATTACH}"), "Stopped ashlar.service"].map(at);
        let in_order = order.iter().all(Option::is_some) && order.is_sorted();
        // What else this system starts may fail in a guest: IPMI, say.
        let ours = |line: &&str| line.contains("FAILED") && (line.contains("ashlar") || line.contains("srv-db"));
        let failed = console.lines().find(ours);
        require(in_order && failed.is_none(), "the order of the end", || format!("{order:?}\n{console}"))
    }

    /// Boots it again, with the units enabled and the file system in fstab.
    pub fn boot_enabled(&mut self) -> Result<()> {
        let root = format!("--root={}", self.files.display());
        tools::run(&self.dir, "systemctl", &[&root, "enable", "ashlar.service", ATTACH])?;
        fs::write(self.files.join("etc/fstab"), format!("{}\n", self.mount)).or_fail("fstab")?;
        self.guest = Guest::boot_systemd(&self.dir, CPUS, &self.drives, &self.files)?;
        Ok(())
    }

    /// Boots it with a kernel that has ublk: the server is enabled, and nothing else.
    pub fn boot_with_ublk(&mut self) -> Result<()> {
        let root = format!("--root={}", self.files.display());
        tools::run(&self.dir, "systemctl", &[&root, "enable", "ashlar.service"])?;
        tools::run(&self.dir, "systemctl", &[&root, "disable", ATTACH])?;
        fs::write(self.files.join("etc/fstab"), "").or_fail("fstab")?;
        let kernel = Kernel::with_ublk()?;
        self.guest = Guest::boot_systemd_kernel(&self.dir, CPUS, &self.drives, &self.files, &kernel)?;
        Ok(())
    }

    /// Powers it off, when nothing is mounted.
    pub fn power_off_unmounted(&mut self) -> Result<()> {
        self.guest.sh("systemctl poweroff --no-block")?;
        let status = self.guest.ended(STOP_MAX)?;
        require(status.success(), "the machine", || self.guest.broken("poweroff", status.to_string()).to_string())
    }
}

/// A file of this machine with a line more, unless it has one of that name.
fn with_line(path: &str, line: &str) -> Result<String> {
    let text = fs::read_to_string(path).or_fail(path)?;
    let is_there = text.lines().any(|l| l.split(':').next() == line.split(':').next());
    Ok(if is_there { text } else { format!("{text}{line}\n") })
}

/// A drive as arguments of QEMU.
fn drive(dir: &Path, name: &str) -> [String; 4] {
    let file = dir.join(name);
    [
        "-drive".to_owned(),
        format!("if=none,id={name},format=raw,discard=unmap,file={}", file.display()),
        "-device".to_owned(),
        format!("virtio-blk-pci,drive={name},serial={name}"),
    ]
}
