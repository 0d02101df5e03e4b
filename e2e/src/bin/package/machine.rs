//! A machine with systemd and four drives, on which the package is installed, upgraded under load and purged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::ashlar::Ashlar;
use e2e::failure::require;
use e2e::guest::Guest;
use e2e::{OrFail, Result};

/// The array.
const ARRAY: &str = "lab";
/// The machine, as a host.
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:5f0a7f9e-6c55-4d0c-9d0c-0d5a3a1f2b03";
const DRIVES: usize = 4;
const CPUS: u32 = 2;
/// How long dpkg may take: an emulated machine is some thirty times slower. Triggers, such as the index of all manual pages, are
/// left out.
const INSTALL_MAX: Duration = Duration::from_secs(300);
/// How long the server may take to be there.
const START_MAX: Duration = Duration::from_secs(120);
const SERVER: &str = "systemctl show -P MainPID ashlar.service";

/// The machine.
pub struct Machine {
    guest: Guest,
    ashlar: Ashlar,
    /// The volume's node.
    device: String,
}

impl Machine {
    /// Boots it, with the packages in its root and none installed.
    pub fn new(program: &Path, dir: &Path, packages: &[PathBuf]) -> Result<Machine> {
        let dir = dir.join("machine");
        let files = dir.join("files");
        fs::create_dir_all(files.join("packages")).or_fail("a directory")?;
        let ashlar = Ashlar::new(program, &dir);
        let names: Vec<String> = (0..DRIVES).map(|n| format!("drive{n}")).collect();
        let create = ["create", ARRAY, "--raid", "5", "--size", "288M"].into_iter();
        ashlar.done(&create.chain(names.iter().map(String::as_str)).collect::<Vec<_>>())?;
        ashlar.done(&["volume", "create", &format!("{ARRAY}/db"), "64M"])?;
        let status = ashlar.status(ARRAY)?;
        let uuid = status["volumes"][0]["uuid"].as_str().unwrap_or_default().to_owned();
        require(!uuid.is_empty(), "ashlar status", || format!("no uuid of a volume: {status}"))?;
        for (n, package) in packages.iter().enumerate() {
            fs::copy(package, files.join(format!("packages/{n}.deb"))).or_fail("a package")?;
        }
        let nodes: Vec<String> = names.iter().map(|name| format!("\"/dev/disk/by-id/virtio-{name}\"")).collect();
        let config = format!(
            "nvme = [\"tcp:127.0.0.1:4420\"]\nallow_hosts = [\"{HOST}\"]\n\n\
             [[array]]\nname = \"{ARRAY}\"\ndrives = [{}]\n",
            nodes.join(", ")
        );
        fs::create_dir_all(files.join("etc/nvme")).or_fail("a directory")?;
        for (path, text) in [
            ("packages/ashlar.toml", config.as_str()),
            ("etc/nvme/hostnqn", HOST),
            ("etc/nvme/hostid", HOST.rsplit(':').next().unwrap_or_default()),
        ] {
            fs::write(files.join(path), text).or_fail(path)?;
        }
        let drives: Vec<String> = names.iter().flat_map(|name| drive(&dir, name)).collect();
        let guest = Guest::boot_systemd(&dir, CPUS, &drives, &files)?;
        Ok(Machine { guest, ashlar, device: format!("/dev/disk/by-id/nvme-uuid.{uuid}") })
    }

    /// The package is installed, its configuration written, and its service answers, as the user and with the watchdog that the
    /// unit says.
    pub fn install(&mut self) -> Result<()> {
        let g = &mut self.guest;
        // The guest's root is this machine's, whose arrays are none of the service's.
        g.sh("rm -rf /usr/sbin/policy-rc.d /var/lib/ashlar")?;
        g.sh_within(INSTALL_MAX, "dpkg --no-triggers -i /packages/0.deb 2>&1")?;
        g.sh("systemctl is-enabled ashlar.service && systemctl is-active ashlar.service || \
             { journalctl -u ashlar --no-pager | tail -20; exit 1; }")?;
        g.sh_within(
            START_MAX,
            "cp /packages/ashlar.toml /etc/ashlar/ashlar.toml && systemctl restart ashlar.service || \
             { journalctl -u ashlar --no-pager | tail -20; exit 1; }",
        )?;
        // Type=notify: what was waited for has answered.
        g.sh(&format!("ashlar clients && ashlar status {ARRAY} | grep -q optimal"))?;
        let show = "systemctl show -P StatusText -P WatchdogUSec ashlar.service";
        let shown = g.sh(&format!("{show}; stat -c 'of %U' /proc/$({SERVER})"))?;
        let has = |what: &str| shown.contains(what);
        require(has("serving lab") && has("1min") && has("of ashlar"), "systemctl show", || shown.clone())?;
        g.sh_within(START_MAX, &format!("systemctl start ashlar-attach@{ARRAY}.service"))?;
        g.wait(START_MAX, &format!("test -b {}", self.device)).map(drop)
    }

    /// A reload uses what can change, names what waits for a restart, and refuses a file that is not valid; the kernel stays
    /// connected.
    pub fn reload(&mut self) -> Result<()> {
        let g = &mut self.guest;
        let before = g.sh(SERVER)?;
        let status = "systemctl show -P StatusText ashlar.service";
        let config = "/etc/ashlar/ashlar.toml";
        g.sh(&format!("sed -i '1i cores = 2\\nspares = [\"/dev/none\"]' {config} && systemctl reload ashlar.service"))?;
        g.wait(START_MAX, &format!("{status} | grep 'a restart is needed for cores$'"))?;
        g.sh(&format!("sed -i '1i corse = 2' {config}"))?;
        g.sh_failing("systemctl reload ashlar.service")?;
        g.wait(START_MAX, "journalctl -u ashlar --no-pager | grep 'did you mean \"cores\"'")?;
        // Also when the check is passed over.
        g.sh("systemctl kill --kill-whom=main -s HUP ashlar.service")?;
        g.wait(START_MAX, &format!("{status} | grep 'nothing has changed'"))?;
        g.sh(&format!("cp /packages/ashlar.toml {config} && systemctl reload ashlar.service"))?;
        g.wait(START_MAX, &format!("{status} | grep 'reload: done$'"))?;
        let after = g.sh(SERVER)?;
        require(before == after, "the server", || format!("{before} {after}"))?;
        g.sh(&format!("dd if={} of=/dev/null bs=4k count=1 iflag=direct 2>&1", self.device)).map(drop)
    }

    /// The package is upgraded while the kernel writes and reads: not one request fails.
    pub fn upgrade(&mut self) -> Result<()> {
        let (g, device) = (&mut self.guest, &self.device);
        g.sh("dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null")?;
        let write = format!(
            "for n in $(seq 400); do dd if=/tmp/data of={device} bs=64k seek=$(( n % 6 * 128 )) oflag=direct conv=notrunc \
             2>&1 || exit 1; dd if={device} bs=64k skip=$(( n % 6 * 128 )) count=128 iflag=direct 2>/dev/null | cmp - /tmp/data \
             || exit 1; test -e /tmp/enough && echo rounds $n && exit 0; done; exit 2"
        );
        g.start("writer", &write)?;
        let before = g.sh(SERVER)?;
        g.sh_within(INSTALL_MAX, "dpkg --no-triggers -i /packages/1.deb 2>&1")?;
        let after = g.sh(SERVER)?;
        require(before.trim() != after.trim() && after.trim() != "0", "the upgrade", || format!("{before} {after}"))?;
        g.sh("systemctl is-active ashlar.service && cmp /packages/ashlar.toml /etc/ashlar/ashlar.toml")?;
        g.sh("sleep 2; touch /tmp/enough")?;
        g.finish("writer", START_MAX)?;
        // Of the volume itself: an attempt on a path that was cut (nvme0c0n1) is repeated on the next connection.
        let errors = g.sh("dmesg | grep -E 'error.*dev nvme[0-9]+n[0-9]' ; true")?;
        require(errors.trim().is_empty(), "the kernel", || errors.clone())
    }

    /// The package is purged, and the array is whole.
    pub fn purge(&mut self) -> Result<()> {
        let g = &mut self.guest;
        g.sh_within(START_MAX, &format!("systemctl stop ashlar-attach@{ARRAY}.service"))?;
        g.sh_within(INSTALL_MAX, "dpkg --no-triggers -P ashlar 2>&1")?;
        g.sh("! test -e /etc/ashlar && ! test -e /var/lib/ashlar && ! test -e /run/ashlar && ! pgrep -x ashlar")?;
        g.sh("systemctl poweroff --no-block")?;
        g.ended(START_MAX)?;
        let seen = self.ashlar.done(&["check", ARRAY])?;
        require(seen.contains("Everything agrees"), "ashlar check", || seen.clone())
    }
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
