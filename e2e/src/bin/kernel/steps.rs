//! What the kernel does, step by step. A step leaves the volume in use or not, as it likes, and asks for what it needs.

use std::thread;
use std::time::{Duration, Instant};

use e2e::failure::require;
use e2e::fio::{has_verified, verifying as fio};
use e2e::stepwise::Step;
use e2e::{Failure, OrFail, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{ARRAY, DRIVE, FRIEND, STRANGER, VOLUME, VOLUME_BYTES, World, text};

/// All, in order.
pub const ALL: &[Step<World>] = &[
    Step { name: "discover", about: "a host sees the array that it may use, another host nothing", run: discover },
    Step { name: "strangers", about: "a host that may not use the array is refused", run: strangers },
    Step { name: "identify", about: "list, id-ctrl, id-ns, descriptors, features, logs", run: identify },
    Step { name: "ext4", about: "mkfs, mount, fio with checksums, fsck; again after a new connection", run: ext4 },
    Step { name: "xfs", about: "the same with XFS", run: xfs },
    Step {
        name: "discard",
        about: "blkdiscard and write zeroes: read as zeroes, and the room is free after a restart",
        run: discard,
    },
    Step { name: "grow", about: "a volume grows while it is in use, and the kernel notices", run: grow },
    Step { name: "errors", about: "what the server refuses is in the error log", run: errors },
    Step { name: "queues", about: "1 to 8 I/O queues, with and without digests and flow control", run: queues },
    Step { name: "member", about: "a member fails and is rebuilt under fio; the health log warns", run: member },
    Step {
        name: "sigkill",
        about: "the server is killed three times under fio; nothing answered is lost",
        run: sigkill,
    },
    Step { name: "stall", about: "the server stands still until the kernel gives up and comes back", run: stall },
    Step { name: "cores", about: "the same queues and SIGKILL again, with queues on two other cores", run: cores },
    Step { name: "attach", about: "ashlar attach and detach on the host of the array itself", run: attach },
    Step {
        name: "quickstart",
        about: "eight files to a mounted ext4 by one command, and back by one",
        run: quickstart,
    },
];

/// How long a kernel may take to notice a change: the server looks twice a second.
const NOTICE_MAX: Duration = Duration::from_secs(10);
/// How long a connection may take to come back: the kernel tries once a second, and gives each try up to 10 s.
const BACK_MAX: Duration = Duration::from_secs(30);
/// How long one fio may take. A guest does a thousand requests a second.
const FIO_MAX: Duration = Duration::from_secs(120);
const REBUILD_MAX: Duration = Duration::from_secs(60);
/// That the kernel's controller is connected.
const LIVE: &str = "cat /sys/class/nvme/nvme*/state | grep -qx live";

fn discover(world: &mut World) -> Result<()> {
    let line = world.nvme("discover", FRIEND);
    let seen = world.guest.sh(&line)?;
    require(seen.contains(&world.nqn) && seen.contains("Number of Records 1"), "nvme discover", || seen.clone())?;
    let line = world.nvme("discover", STRANGER);
    let seen = world.guest.sh(&line)?;
    require(!seen.contains(&world.nqn), "nvme discover as a stranger", || seen.clone())?;
    // What the discovery log says is enough to connect.
    let line = format!("{} --reconnect-delay=1", world.nvme("connect-all", FRIEND));
    world.guest.sh(&line)?;
    world.device()?;
    world.disconnect()
}

fn strangers(world: &mut World) -> Result<()> {
    let line = format!("{} -n {}", world.nvme("connect", STRANGER), world.nqn);
    world.guest.sh_failing(&line)?;
    let seen = world.guest.sh("ls /sys/block")?;
    require(!seen.contains("nvme"), "a stranger's devices", || seen.clone())
}

fn identify(world: &mut World) -> Result<()> {
    world.connect("")?;
    let (device, controller) = (world.device()?, world.controller()?);
    let list = world.guest.sh("nvme list")?;
    require(list.contains(&device) && list.contains("Ashlar lab"), "nvme list", || list.clone())?;
    let id = world.json(&format!("nvme id-ctrl {controller}"))?;
    let nqn = world.nqn.clone();
    require(id["mdts"] == 8 && id["subnqn"] == nqn.as_str() && id["ver"] == 0x2_0000, "nvme id-ctrl", || {
        id.to_string()
    })?;
    let id = world.json(&format!("nvme id-ns {device}"))?;
    let uuid = text(&world.ashlar.status(ARRAY)?["volumes"][0], "uuid")?;
    let bare = uuid.replace('-', "");
    require(id["nsze"] == VOLUME_BYTES / 512 && id["nguid"] == bare.as_str(), "nvme id-ns", || id.to_string())?;
    let seen = world.guest.sh(&format!("nvme ns-descs {device}; cat /sys/block/{}/uuid", &device[5..]))?;
    require(seen.contains(&uuid), "nvme ns-descs", || seen.clone())?;
    let log = world.json(&format!("nvme smart-log {controller}"))?;
    require(log["critical_warning"] == 0, "nvme smart-log", || log.to_string())?;
    for verb in ["error-log", "fw-log", "changed-ns-list-log", "ana-log", "get-feature -f 7", "list-ns"] {
        world.guest.sh(&format!("nvme {verb} {controller}"))?;
    }
    world.guest.sh(&format!("nvme flush {device} && nvme get-feature -f 6 {controller}")).map(drop)
}

/// Makes a file system, works in it, and looks at it again after a new connection.
fn file_system(world: &mut World, make: &str, check: &str) -> Result<()> {
    world.connected()?;
    let device = world.device()?;
    world.guest.sh_within(FIO_MAX, &format!("{make} {device} && mkdir -p /mnt/v && mount {device} /mnt/v"))?;
    let printed = world.guest.sh_within(FIO_MAX, &fio("/mnt/v/fio", 8, "--end_fsync=1"))?;
    has_verified(&printed)?;
    let sums = "cd /mnt/v && sha256sum a fio";
    world.guest.sh("cp /usr/bin/fio /mnt/v/a && sync")?;
    let before = world.guest.sh(sums)?;
    world.guest.sh("umount /mnt/v")?;
    world.disconnect()?;
    world.connect("")?;
    let device = world.device()?;
    world.guest.sh_within(FIO_MAX, &format!("{check} {device} && mount {device} /mnt/v"))?;
    let after = world.guest.sh(sums)?;
    require(before == after && before.contains("  a"), "files after a new connection", || format!("{before}{after}"))?;
    world.guest.sh("umount /mnt/v").map(drop)
}

fn ext4(world: &mut World) -> Result<()> {
    file_system(world, "mkfs.ext4 -qF", "fsck.ext4 -fn")
}

fn xfs(world: &mut World) -> Result<()> {
    file_system(world, "mkfs.xfs -qf", "xfs_repair -n")
}

fn discard(world: &mut World) -> Result<()> {
    world.connected()?;
    let device = world.device()?;
    let pattern = "yes ashlar | dd iflag=fullblock bs=1M count=16";
    world.guest.sh(&format!("{pattern} of={device} oflag=direct && blockdev --flushbufs {device}"))?;
    let same = |from: u32, count: u32| {
        format!("dd if={device} iflag=direct bs=64k skip={from} count={count} 2>/dev/null | cmp -n {} - ", count << 16)
    };
    world.guest.sh(&format!("blkdiscard -o 1M -l 4M {device} && blkdiscard -z -o 8M -l 4M {device}"))?;
    world.guest.sh(&format!("{} /dev/zero && {} /dev/zero", same(16, 64), same(128, 64)))?;
    // What was not discarded is there.
    world.guest.sh(&format!("{pattern} of=/tmp/pattern 2>/dev/null; {} /tmp/pattern", same(0, 16)))?;
    world.guest.sh(&format!("blkdiscard {device}"))?;
    world.guest.sh(&format!("{} /dev/zero", same(0, 256)))?;
    // What a volume holds is counted when its array is closed.
    world.server.stop()?;
    world.server.start()?;
    world.guest.wait(BACK_MAX, LIVE)?;
    let volume = world.ashlar.status(ARRAY)?["volumes"][0].clone();
    require(volume["mapped_bytes"].as_u64() == Some(0), "a discarded volume", || volume.to_string())
}

fn grow(world: &mut World) -> Result<()> {
    world.connected()?;
    let device = world.device()?;
    let bytes = VOLUME_BYTES + (64 << 20);
    let size = format!("{}M", bytes >> 20);
    world.guest.sh(&format!("mkfs.ext4 -qF {device} && mkdir -p /mnt/v && mount {device} /mnt/v"))?;
    world.ashlar.done(&["volume", "grow", VOLUME, &size])?;
    world.guest.wait(NOTICE_MAX, &format!("test $(blockdev --getsize64 {device}) = {bytes}"))?;
    let seen = world.guest.sh(&format!("resize2fs {device} 2>&1 && df -BM --output=size /mnt/v && umount /mnt/v"))?;
    let grown = seen.lines().filter_map(|line| line.trim().strip_suffix('M')?.parse::<u64>().ok()).next();
    require(grown.is_some_and(|m| m > VOLUME_BYTES >> 20), "the grown file system", || seen.clone())?;
    world.guest.sh(&format!("fsck.ext4 -fn {device}")).map(drop)
}

fn errors(world: &mut World) -> Result<()> {
    world.connected()?;
    let (device, controller) = (world.device()?, world.controller()?);
    let beyond = format!(
        "nvme io-passthru {device} --opcode=2 --namespace-id=1 --cdw10=0xffffffff --cdw11=0 --data-len=512 --read"
    );
    let seen = world.guest.sh_failing(&beyond)?;
    require(seen.contains("LBA_RANGE") || seen.contains("LBA Out of Range"), "a read past the end", || seen.clone())?;
    let seen = world.guest.sh_failing(&format!("nvme get-log {controller} --log-id=0xee --log-len=512"))?;
    require(seen.to_lowercase().contains("log page"), "a log page that is none", || seen.clone())?;
    let log = world.json(&format!("nvme error-log {controller}"))?;
    let newest = log["errors"].get(0).cloned().unwrap_or_default();
    require(newest["error_count"].as_u64() >= Some(2), "nvme error-log", || log.to_string())
}

/// Numbers of I/O queues, and what `nvme connect` is told for them.
const QUEUES: [(u32, &str); 8] = [
    (1, "-i 1"),
    (2, "-i 2 --hdr-digest"),
    (3, "-i 3 --data-digest"),
    (4, "-i 4 --hdr-digest --data-digest --disable-sqflow"),
    (5, "-i 4 --nr-write-queues=1"),
    (6, "-i 4 --nr-write-queues=2 --queue-size=16"),
    (7, "-i 4 --nr-write-queues=3 --data-digest --disable-sqflow"),
    (8, "-i 4 --nr-write-queues=4 --hdr-digest --data-digest"),
];

fn queues(world: &mut World) -> Result<()> {
    with_queues(world, &QUEUES)
}

fn with_queues(world: &mut World, all: &[(u32, &str)]) -> Result<()> {
    if world.guest.sh("ls /sys/block")?.contains("nvme") {
        world.disconnect()?;
    }
    for (count, flags) in all {
        world.connect(flags).map_err(|f| f.within(flags))?;
        let (device, controller) = (world.device()?, world.controller()?);
        let seen = world.guest.sh(&format!("cat /sys/class/nvme/{}/queue_count", &controller[5..]))?;
        require(seen.trim() == (count + 1).to_string(), flags, || format!("with the admin queue {}", seen.trim()))?;
        let sizes = "--bsrange=4k-256k --iodepth=8";
        let printed = world.guest.sh_within(FIO_MAX, &fio(&device, 2, sizes)).map_err(|f| f.within(flags))?;
        has_verified(&printed)?;
        world.disconnect()?;
    }
    Ok(())
}

fn member(world: &mut World) -> Result<()> {
    world.connected()?;
    let (device, controller) = (world.device()?, world.controller()?);
    world.guest.start("fio", &fio(&device, 24, ""))?;
    thread::sleep(Duration::from_secs(2));
    world.ashlar.done(&["drive", "fail", "--force", ARRAY, &world.drives[1]])?;
    let warns =
        |warning: u32| format!("nvme smart-log {controller} -o json | grep -Eq '\"critical_warning\" *: *{warning},'");
    world.guest.wait(NOTICE_MAX, &warns(4))?;
    world.ashlar.done(&["drive", "replace", ARRAY, &world.drives[1], "d/new", "--size", DRIVE])?;
    "d/new".clone_into(&mut world.drives[1]);
    let begun = Instant::now();
    while world.ashlar.status(ARRAY)?["state"] != "optimal" {
        require(begun.elapsed() < REBUILD_MAX, "the rebuild", || world.server.log_end())?;
        thread::sleep(Duration::from_millis(50));
    }
    world.guest.wait(NOTICE_MAX, &warns(0))?;
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)?;
    // What was rebuilt is as good as what was lost.
    world.ashlar.done(&["drive", "fail", "--force", ARRAY, &world.drives[2]])?;
    let again = fio(&device, 24, "--verify_only");
    let printed = world.guest.sh_within(FIO_MAX, &again)?;
    require(printed.contains("err= 0"), "fio --verify_only", || printed.clone())?;
    world.ashlar.done(&["drive", "replace", ARRAY, &world.drives[2], "d/newer", "--size", DRIVE])?;
    "d/newer".clone_into(&mut world.drives[2]);
    Ok(())
}

fn sigkill(world: &mut World) -> Result<()> {
    world.connected()?;
    let device = world.device()?;
    // Slow enough to be at it through three kills, on any machine.
    world.guest.start("fio", &fio(&device, 48, "--rate_iops=1200,1200"))?;
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(1500));
        world.server.kill()?;
        require(world.guest.is_running("fio")?, "SIGKILL under fio", || "fio was done before".to_owned())?;
        thread::sleep(Duration::from_millis(500));
        world.server.start()?;
        world.guest.wait(BACK_MAX, LIVE)?;
    }
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)
}

/// Longer than the kernel waits for a keep-alive command: it closes its connections, comes back, and sends again what was
/// not answered. What waited in the sockets of the old connections must not land on it.
fn cores(world: &mut World) -> Result<()> {
    if world.guest.sh("ls /sys/block")?.contains("nvme") {
        world.disconnect()?;
    }
    world.server.stop()?;
    world.server.add_flags(&["--cores", "3", "--deal", "connect"]);
    world.server.start()?;
    with_queues(world, &QUEUES[4..])?;
    world.connect("-i 4")?;
    let printed = world.ashlar.done(&["status", "--placement"])?;
    require(printed.contains("2 + 2 connections"), "status --placement", || printed.clone())?;
    sigkill(world)
}

fn stall(world: &mut World) -> Result<()> {
    const STALL: Duration = Duration::from_secs(13);
    world.connected()?;
    let device = world.device()?;
    let pid = world.server.pid().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let pid = pid.ok_or_else(|| Failure::new("the server", "it has no process"))?;
    world.guest.start("fio", &fio(&device, 32, "--verify_backlog=64"))?;
    thread::sleep(Duration::from_secs(2));
    kill_process(pid, Signal::STOP).or_fail("SIGSTOP")?;
    thread::sleep(STALL);
    let state = world.guest.sh("cat /sys/class/nvme/nvme*/state")?;
    kill_process(pid, Signal::CONT).or_fail("SIGCONT")?;
    require(state.trim() != "live", "a server that stands still", || "the kernel did not notice".to_owned())?;
    world.guest.wait(BACK_MAX, LIVE)?;
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)?;
    world.disconnect()
}

/// The guest serves an array of its own to its own kernel.
fn attach(world: &mut World) -> Result<()> {
    if world.guest.sh("ls /sys/block")?.contains("nvme") {
        world.disconnect()?;
    }
    let ashlar = format!("{} --control /tmp/control --state-dir /tmp/state", world.program.display());
    let array = "[[array]]\\nname = \"a\"\\ncreate = true\\nraid = \"5\"\\ndrives = [\"mem:300M\", \"mem:300M\", \"mem:300M\"]\\n";
    let volume = "[[array.volume]]\\nname = \"v\"\\nsize = \"64M\"\\n";
    world.guest.sh(&format!("printf '{array}{volume}' >/tmp/config"))?;
    let nvme = "--nvme tcp:127.0.0.1:4420 --nbd unix:/tmp/nbd";
    let serve = format!("{ashlar} serve --config /tmp/config {nvme} --allow-host {FRIEND}");
    let prepare =
        format!("mkdir -p /etc/nvme; echo {FRIEND} >/etc/nvme/hostnqn; echo {} >/etc/nvme/hostid", &FRIEND[32..]);
    world.guest.sh(&prepare)?;
    world.guest.start("serve", &serve)?;
    let seen = world.guest.sh(&format!("{ashlar} attach --wait 30 a/v"))?;
    let device = seen.trim().strip_prefix("a/v is ").unwrap_or_default().to_owned();
    require(device.starts_with("/dev/nvme"), "ashlar attach", || seen.clone())?;
    let again = world.guest.sh(&format!("{ashlar} attach a"))?;
    require(again == seen, "ashlar attach, again", || again.clone())?;
    world
        .guest
        .sh(&format!("mkfs.ext4 -qF {device} && mkdir -p /mnt/v && mount {device} /mnt/v && cp /etc/passwd /mnt/v"))?;
    let refused = world.guest.sh_failing(&format!("{ashlar} detach a/v"))?;
    require(refused.contains("/mnt/v"), "ashlar detach of what is mounted", || refused.clone())?;
    world.guest.sh("umount /mnt/v")?;
    world.guest.sh(&format!("{ashlar} detach a/v && ! ls /sys/block | grep nvme"))?;
    world.guest.sh_failing(&format!("{ashlar} detach a/v"))?;
    let seen = world.guest.sh(&format!("{ashlar} attach a/v"))?;
    let device = seen.trim().strip_prefix("a/v is ").unwrap_or_default().to_owned();
    world.guest.sh(&format!("mount {device} /mnt/v && cmp /mnt/v/passwd /etc/passwd; s=$?; umount /mnt/v; exit $s"))?;
    world.guest.sh(&format!("{ashlar} detach a && {ashlar} stop"))?;
    world.guest.finish("serve", Duration::from_secs(20)).map(drop)
}

/// Eight sparse files become a mounted file system by one command, which asks first; another one takes all of it back.
fn quickstart(world: &mut World) -> Result<()> {
    if world.guest.sh("ls /sys/block")?.contains("nvme") {
        world.disconnect()?;
    }
    let ashlar = format!("{} --control /tmp/q/control --state-dir /tmp/q/state", world.program.display());
    let drives = (0..8).map(|n| format!("/tmp/q/d{n}")).collect::<Vec<_>>().join(" ");
    let quick = format!("{ashlar} quickstart quick --mount /mnt/quick --size 1G {drives}");
    let refused = world.guest.sh_failing(&format!("mkdir -p /tmp/q && {quick} </dev/null"))?;
    require(refused.contains("--yes"), "quickstart without an answer", || refused.clone())?;
    world.guest.sh("! ls /tmp/q/d0 /tmp/q/state /mnt/quick")?;
    let said = world.guest.sh(&format!("{quick} --yes"))?;
    require(said.contains("6/6") && said.contains("is mounted at /mnt/quick"), "quickstart", || said.clone())?;
    world.guest.sh("grep ' /mnt/quick ext4 ' /proc/mounts && cp /etc/passwd /mnt/quick/ && sync && cmp /etc/passwd /mnt/quick/passwd")?;
    let status = world.guest.sh(&format!("{ashlar} status quick"))?;
    require(status.contains("RAID 6") && status.contains("optimal"), "status", || status.clone())?;
    let again = world.guest.sh_failing(&format!("{quick} --yes"))?;
    require(again.contains("--undo"), "quickstart again", || again.clone())?;
    world.guest.sh_failing(&format!("{ashlar} quickstart quick --undo </dev/null"))?;
    world.guest.sh(&format!("{ashlar} quickstart quick --undo --yes"))?;
    world
        .guest
        .sh("! grep /mnt/quick /proc/mounts && ! ls /sys/block | grep nvme && ! ls /tmp/q/d0 && ! ls -d /mnt/quick")?;
    world.guest.sh_failing(&format!("{ashlar} status quick")).map(drop)
}
