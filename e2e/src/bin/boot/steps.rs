//! What an administrator does, and what the machine does by itself then.

use std::time::Duration;

use e2e::Result;
use e2e::failure::require;
use e2e::stepwise::Step;

use crate::world::{ARRAY, ATTACH, PLACE, World};

/// All, in order; each goes on where the one before has ended.
pub const ALL: &[Step<World>] = &[
    Step { name: "enable", about: "systemctl enable --now: served and attached; mkfs, fstab, mount", run: enable },
    Step { name: "off", about: "power off: unmounted, detached, closed, in this order", run: off },
    Step { name: "on", about: "the next boot mounts it, with what was written, by itself", run: on },
    Step { name: "restart", about: "a restart and a SIGKILL of the server under a writer", run: restart },
    Step { name: "check", about: "power off again; all that is on the drives agrees", run: check },
    Step {
        name: "ublk",
        about: "the packaged server, with a kernel that has ublk: a volume is a block device; a restart and a SIGKILL under a writer",
        run: ublk,
    },
];

/// How long units may take to start: an emulated machine is some thirty times slower.
const START_MAX: Duration = Duration::from_secs(120);
/// How long a server may take to be there again: its predecessor's drives may be held for some seconds.
const BACK_MAX: Duration = Duration::from_secs(60);
/// The server's process.
const SERVER: &str = "systemctl show -P MainPID ashlar.service";

fn enable(world: &mut World) -> Result<()> {
    world.guest.sh_within(START_MAX, &format!("systemctl enable --now ashlar.service {ATTACH} 2>&1"))?;
    let (mount, device) = (world.mount.clone(), world.device.clone());
    world.guest.wait(Duration::from_secs(10), &format!("test -b {device}"))?;
    world.guest.sh(&format!("mkfs.ext4 -qF {device} && echo '{mount}' >>/etc/fstab && systemctl daemon-reload"))?;
    world.guest.sh_within(START_MAX, &format!("mkdir -p {PLACE} && mount {PLACE}"))?;
    world.guest.sh(&format!("dd if=/dev/urandom of={PLACE}/data bs=1M count=24 2>/dev/null"))?;
    world.guest.sh(&format!("cd {PLACE} && sha256sum data >sum")).map(drop)
}

fn off(world: &mut World) -> Result<()> {
    world.power_off()
}

fn on(world: &mut World) -> Result<()> {
    world.boot_enabled()?;
    world.guest.wait(START_MAX, &format!("mountpoint -q {PLACE}"))?;
    world.guest.sh(&format!("cd {PLACE} && sha256sum -c sum"))?;
    let failed = world.guest.sh("systemctl --failed --plain --no-legend")?;
    require(!failed.contains("ashlar") && !failed.contains("srv"), "units that failed", || failed.clone())?;
    // A journal is replayed after a file system that was not unmounted.
    let kernel = world.guest.sh("dmesg | grep 'EXT4-fs' ; true")?;
    require(kernel.contains("mounted filesystem") && !kernel.contains("recovery"), "the kernel", || kernel.clone())
}

fn restart(world: &mut World) -> Result<()> {
    restarts_under_a_writer(world, &format!("systemctl is-active {ATTACH} && mountpoint {PLACE}"))
}

/// Something is written again and again to the file system while the server ends in two ways and is there again; what must `hold` then.
fn restarts_under_a_writer(world: &mut World, hold: &str) -> Result<()> {
    let write = format!(
        "trap '' PIPE; for n in $(seq 40); do dd if={PLACE}/data of={PLACE}/copy bs=1M conv=fsync 2>&1 || exit 1; \
         cmp {PLACE}/data {PLACE}/copy || exit 1; test -e /tmp/enough && exit 0; done; exit 2"
    );
    world.guest.start("writer", &write)?;
    for end in ["systemctl restart ashlar.service", &format!("kill -9 $({SERVER})")] {
        let before = world.guest.sh(SERVER)?;
        world.guest.sh_within(START_MAX, end)?;
        let other = format!("pid=$({SERVER}); test $pid != 0 && test $pid != {}", before.trim());
        world.guest.wait(BACK_MAX, &format!("{other} && ashlar status {ARRAY}"))?;
        world.guest.sh(hold)?;
    }
    world.guest.sh("touch /tmp/enough")?;
    world.guest.finish("writer", START_MAX)?;
    world.guest.sh(&format!("cd {PLACE} && sha256sum -c sum")).map(drop)
}

fn check(world: &mut World) -> Result<()> {
    world.power_off()?;
    let seen = world.ashlar.done(&["check", ARRAY])?;
    require(seen.contains("Everything agrees"), "ashlar check", || seen.clone())
}

/// Without `--by`: the kernel and the packaged server can do ublk.
fn ublk(world: &mut World) -> Result<()> {
    world.boot_with_ublk()?;
    world.guest.wait(START_MAX, &format!("systemctl is-active ashlar.service && ashlar status {ARRAY}"))?;
    let printed = world.guest.sh_within(START_MAX, &format!("ashlar attach {ARRAY}/db"))?;
    require(printed.contains("/dev/ublkb"), "ashlar attach", || printed.clone())?;
    let device = format!("/dev/ashlar/{ARRAY}/db");
    world.guest.sh_within(START_MAX, &format!("mkdir -p {PLACE} && mount {device} {PLACE}"))?;
    world.guest.sh(&format!("cd {PLACE} && sha256sum -c sum"))?;
    restarts_under_a_writer(world, &format!("mountpoint {PLACE} && test -b {device}"))?;
    world.guest.sh_failing(&format!("ashlar detach {ARRAY}/db"))?;
    world.guest.sh_within(START_MAX, &format!("umount {PLACE} && ashlar detach {ARRAY}/db"))?;
    world.guest.sh(&format!("! test -e {device} && ! ls /dev/ublkb*"))?;
    world.power_off_unmounted()?;
    let seen = world.ashlar.done(&["check", ARRAY])?;
    require(seen.contains("Everything agrees"), "ashlar check", || seen.clone())
}
