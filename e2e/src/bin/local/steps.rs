//! What is done with the device, step by step. A step leaves the volume attached or not, as it likes, and asks for what it needs.

use std::thread;
use std::time::{Duration, Instant};

use e2e::failure::require;
use e2e::fio::{has_verified, verifying};
use e2e::linux::numbers;
use e2e::stepwise::Step;
use e2e::{OrFail, Result};

use crate::fabrics;
use crate::world::{ARRAY, DIR, DRIVE, LINK, VOLUME, VOLUME_BYTES, World};

/// All, in order.
pub const ALL: &[Step<World>] = &[
    Step {
        name: "attach",
        about: "a volume becomes a block device, goes, and comes back with its contents",
        run: attach,
    },
    Step {
        name: "ext4",
        about: "mkfs, mount, fio with checksums, fsck; detach of what is mounted is refused",
        run: ext4,
    },
    Step { name: "xfs", about: "the same with XFS", run: xfs },
    Step {
        name: "discard",
        about: "blkdiscard and write zeroes: zeroes, and the room is free after a restart",
        run: discard,
    },
    Step { name: "member", about: "a member fails and is rebuilt under fio", run: member },
    Step { name: "sigkill", about: "the server is killed ten times under fio; nothing answered is lost", run: sigkill },
    Step { name: "deep", about: "killed while the kernel asks all it can", run: deep },
    Step { name: "restart", about: "SIGTERM and a new server, three times under fio on a mounted ext4", run: restart },
    Step {
        name: "arriving",
        about: "SIGTERM and SIGKILL, ten times, while requests keep coming and wait",
        run: arriving,
    },
    Step { name: "read-only", about: "a read-only server makes a read-only device", run: read_only },
    Step {
        name: "nvmet-tcp",
        about: "the kernel's target over TCP: allowed hosts only, detach refused, nothing left",
        run: fabrics::tcp_by_name,
    },
    Step {
        name: "nvmet-torn",
        about: "the server is killed in the middle of export and --remove, four times",
        run: fabrics::torn,
    },
    Step {
        name: "nvmet-rdma",
        about: "ext4 and fio over soft RoCE; the server is killed ten times under it",
        run: fabrics::rdma_sigkill,
    },
    Step {
        name: "nvmet-drives",
        about: "over soft RoCE: blkdiscard and write zeroes, XFS, a member fails and is rebuilt under fio",
        run: fabrics::rdma_drives,
    },
    Step {
        name: "nvmet-left",
        about: "the tree that a dead server left is taken over; what is missing is made, what is others' stays",
        run: fabrics::left,
    },
    Step {
        name: "nvmet-caught",
        about: "a process that waits in the kernel when the server is killed ends with the next server",
        run: fabrics::caught,
    },
    Step {
        name: "nvmet-stop",
        about: "ashlar stop leaves nothing in the kernel; the host waits, and goes on",
        run: fabrics::stop,
    },
    Step { name: "grow", about: "a larger volume, attached again: XFS takes the rest", run: grow },
    Step {
        name: "grow-in-use",
        about: "a volume grows under a mounted XFS, which takes the rest; before Linux 6.16 the device keeps its size, and it is said",
        run: grow_in_use,
    },
    Step { name: "stop", about: "ashlar stop leaves no device", run: stop },
    Step {
        name: "unnoticed",
        about: "the kernel takes a device for served whose server died while it took it over: made again, or detached by force",
        run: unnoticed,
    },
    Step {
        name: "attach-torn",
        about: "killed while the kernel reads partitions, which it never ends: the array and its volume are served again",
        run: attach_torn,
    },
];

/// How long one fio may take. A guest does a thousand requests a second.
pub const FIO_MAX: Duration = Duration::from_secs(240);
const REBUILD_MAX: Duration = Duration::from_secs(90);
/// Devices that are made until one is caught.
const ATTACHES_MAX: u32 = 10;
/// Where Linux ends the reading of partitions by itself, none is; so many are tried.
const ATTACHES_OF_NEWER: u32 = 4;
/// The first Linux that does.
const ENDS_READING: [u64; 2] = [6, 19];

fn attach(world: &mut World) -> Result<()> {
    let device = world.attach()?;
    let seen =
        world.guest.sh(&format!("blockdev --getsize64 --getss --getro {device}; readlink -f {device} {LINK}"))?;
    let lines: Vec<&str> = seen.lines().collect();
    let length = VOLUME_BYTES.to_string();
    require(lines[..3] == [length.as_str(), "512", "0"] && lines[3] == lines[4], "the device", || seen.clone())?;
    require(lines[3].starts_with("/dev/ublkb"), "the device", || seen.clone())?;
    let again = world.attach()?;
    require(again == device, "ashlar attach, again", || again.clone())?;
    let pattern = "yes ashlar | dd iflag=fullblock bs=1M count=4";
    world.guest.sh(&format!("{pattern} of={device} oflag=direct"))?;
    world.ashlar(&format!("detach {VOLUME}"))?;
    world.guest.sh(&format!("! ls /dev/ublkb* && ! ls {LINK}"))?;
    world.ashlar_failing(&format!("detach {VOLUME}"))?;
    let device = world.attach()?;
    world.guest.sh(&format!("{pattern} 2>/dev/null | cmp -n 4194304 - {device}")).map(drop)
}

/// Makes a file system, works in it, and looks at it again when the device has gone and come.
fn file_system(world: &mut World, make: &str, check: &str) -> Result<()> {
    world.attached()?;
    world.guest.sh_within(FIO_MAX, &format!("{make} {LINK} && mkdir -p /mnt/v && mount {LINK} /mnt/v"))?;
    let printed = world.guest.sh_within(FIO_MAX, &verifying("/mnt/v/fio", 8, "--end_fsync=1"))?;
    has_verified(&printed)?;
    let sums = "cd /mnt/v && sha256sum a fio";
    world.guest.sh("cp /usr/bin/fio /mnt/v/a && sync")?;
    let before = world.guest.sh(sums)?;
    world.ashlar_failing(&format!("detach {VOLUME}"))?;
    world.guest.sh("umount /mnt/v")?;
    world.ashlar(&format!("detach {VOLUME}"))?;
    world.attach()?;
    world.guest.sh_within(FIO_MAX, &format!("{check} {LINK} && mount {LINK} /mnt/v"))?;
    let after = world.guest.sh(sums)?;
    require(before == after && before.contains("  a"), "files of a device that came back", || {
        format!("{before}{after}")
    })?;
    world.guest.sh("umount /mnt/v").map(drop)
}

fn ext4(world: &mut World) -> Result<()> {
    file_system(world, "mkfs.ext4 -qF", "fsck.ext4 -fn")
}

fn xfs(world: &mut World) -> Result<()> {
    file_system(world, "mkfs.xfs -qf", "xfs_repair -n")
}

/// Discards and zeroes parts of what is on a device, then all of it.
pub fn discard_on(world: &mut World, device: &str) -> Result<()> {
    let pattern = "yes ashlar | dd iflag=fullblock bs=1M count=16";
    world.guest.sh(&format!("{pattern} of={device} oflag=direct && blockdev --flushbufs {device}"))?;
    let same = |from: u32, count: u32| {
        format!("dd if={device} iflag=direct bs=64k skip={from} count={count} 2>/dev/null | cmp -n {} - ", count << 16)
    };
    world.guest.sh(&format!("blkdiscard -o 1M -l 4M {device} && blkdiscard -z -o 8M -l 4M {device}"))?;
    world.guest.sh(&format!("{} /dev/zero && {} /dev/zero", same(16, 64), same(128, 64)))?;
    world.guest.sh(&format!("{pattern} of=/tmp/pattern 2>/dev/null; {} /tmp/pattern", same(0, 16)))?;
    world.guest.sh(&format!("blkdiscard {device} && {} /dev/zero", same(0, 256))).map(drop)
}

fn discard(world: &mut World) -> Result<()> {
    world.attached()?;
    discard_on(world, LINK)?;
    // What a volume holds is counted when its array is closed.
    world.restart("TERM")?;
    let volume = world.status()?["volumes"][0].clone();
    require(volume["mapped_bytes"].as_u64() == Some(0), "a discarded volume", || volume.to_string())
}

fn member(world: &mut World) -> Result<()> {
    world.attached()?;
    rebuilt_under_fio(world, LINK, ("1", "new"))?;
    // What was rebuilt is as good as what was lost.
    world.ashlar(&format!("drive fail --force {ARRAY} {DIR}/d/2"))?;
    let printed = world.guest.sh_within(FIO_MAX, &verifying(LINK, 24, "--verify_only"))?;
    require(printed.contains("err= 0"), "fio --verify_only", || printed.clone())?;
    world.ashlar(&format!("drive replace {ARRAY} {DIR}/d/2 {DIR}/d/newer --size {DRIVE}")).map(drop)
}

/// A drive fails under fio, and another takes its place.
pub fn rebuilt_under_fio(world: &mut World, file: &str, (fails, takes): (&str, &str)) -> Result<()> {
    world.guest.start("fio", &verifying(file, 24, ""))?;
    thread::sleep(Duration::from_secs(2));
    world.ashlar(&format!("drive fail --force {ARRAY} {DIR}/d/{fails}"))?;
    world.ashlar(&format!("drive replace {ARRAY} {DIR}/d/{fails} {DIR}/d/{takes} --size {DRIVE}"))?;
    let begun = Instant::now();
    while world.status()?["state"] != "optimal" {
        require(begun.elapsed() < REBUILD_MAX, "the rebuild", || format!("it goes on after {REBUILD_MAX:?}"))?;
        thread::sleep(Duration::from_millis(200));
    }
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)
}

/// Before Linux 6.16 a device keeps its size: it goes, and comes back larger.
fn grow(world: &mut World) -> Result<()> {
    world.attached()?;
    let free = "stat -f -c %b /mnt/v";
    world.guest.sh_within(FIO_MAX, &format!("mkfs.xfs -qf {LINK} && mkdir -p /mnt/v && mount {LINK} /mnt/v"))?;
    let before = world.guest.sh(free)?;
    world.guest.sh("cp /usr/bin/fio /mnt/v/a && sync && umount /mnt/v")?;
    world.ashlar(&format!("detach {VOLUME}"))?;
    world.ashlar(&format!("volume grow {VOLUME} {}", VOLUME_BYTES * 2))?;
    world.attach()?;
    let length = world.guest.sh(&format!("blockdev --getsize64 {LINK}"))?;
    require(length.trim() == (VOLUME_BYTES * 2).to_string(), "a device of a larger volume", || length.clone())?;
    world
        .guest
        .sh_within(FIO_MAX, &format!("mount {LINK} /mnt/v && xfs_growfs /mnt/v && cmp /usr/bin/fio /mnt/v/a"))?;
    let after = world.guest.sh(free)?;
    let blocks = |said: &str| said.trim().parse::<u64>().unwrap_or(0);
    require(blocks(&after) > blocks(&before) * 3 / 2, "xfs_growfs", || format!("{before}{after}"))?;
    let printed = world.guest.sh_within(FIO_MAX, &verifying("/mnt/v/fio", 8, "--end_fsync=1"))?;
    has_verified(&printed)?;
    world.guest.sh_within(FIO_MAX, &format!("umount /mnt/v && xfs_repair -n {LINK}")).map(drop)
}

/// From Linux 6.16 on a device grows while it is used.
fn grow_in_use(world: &mut World) -> Result<()> {
    world.attached()?;
    world.guest.sh_within(FIO_MAX, &format!("mkfs.xfs -qf {LINK} && mkdir -p /mnt/v && mount {LINK} /mnt/v"))?;
    world.guest.sh("cp /usr/bin/fio /mnt/v/a && sync")?;
    let length = |world: &mut World| -> Result<u64> {
        let printed = world.guest.sh(&format!("blockdev --getsize64 {LINK}"))?;
        printed.trim().parse().or_fail(printed)
    };
    let before = length(world)?;
    let larger = before + VOLUME_BYTES;
    let said = world.ashlar(&format!("volume grow {VOLUME} {larger}"))?;
    if said.contains("keeps its size") {
        require(length(world)? == before, "a device that keeps its size", || said.clone())?;
        world.guest.sh("umount /mnt/v")?;
        world.ashlar(&format!("detach {VOLUME}"))?;
        world.attach()?;
        return require(length(world)? == larger, "a device that came back", || said.clone());
    }
    require(length(world)? == larger, "a device that grew", || said.clone())?;
    let grow = "xfs_growfs /mnt/v && cmp /usr/bin/fio /mnt/v/a && rm /mnt/v/a";
    world.guest.sh_within(FIO_MAX, grow)?;
    let printed = world.guest.sh_within(FIO_MAX, &verifying("/mnt/v/fio", 8, "--end_fsync=1"))?;
    has_verified(&printed)?;
    world.guest.sh_within(FIO_MAX, &format!("umount /mnt/v && xfs_repair -n {LINK}"))?;
    // Beyond the old end, from one block to the last.
    let write = format!("--offset={before} --end_fsync=1");
    has_verified(&world.guest.sh_within(FIO_MAX, &verifying(LINK, 24, &write))?)?;
    let last = format!("dd if=/dev/zero of={LINK} bs=4k count=1 oflag=direct seek={}", larger / 4096 - 1);
    world.guest.sh(&last).map(drop)
}

fn sigkill(world: &mut World) -> Result<()> {
    world.attached()?;
    // Slow enough to be at it through ten kills, on any machine.
    world.guest.start("fio", &verifying(LINK, 64, "--rate_iops=4000,300"))?;
    for _ in 0..10 {
        thread::sleep(Duration::from_secs(1));
        require(world.guest.is_running("fio")?, "SIGKILL under fio", || "fio was done before".to_owned())?;
        world.restart("KILL")?;
    }
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)
}

/// More requests than there are tags. One tag is left unused, so that the kernel notices the death at once.
fn deep(world: &mut World) -> Result<()> {
    let name = world.attached()?;
    let many = "--iodepth=256 --iodepth_batch_submit=256";
    world.guest.start("fio", &verifying(LINK, 32, many))?;
    world.guest.wait(FIO_MAX, &format!("read reads writes </sys/block/{name}/inflight; test $writes -gt 100"))?;
    world.restart("KILL")?;
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)
}

fn restart(world: &mut World) -> Result<()> {
    world.attached()?;
    world.guest.sh_within(FIO_MAX, &format!("mkfs.ext4 -qF {LINK} && mkdir -p /mnt/v && mount {LINK} /mnt/v"))?;
    world.guest.start("fio", &verifying("/mnt/v/fio", 32, "--rate_iops=4000,300"))?;
    for _ in 0..3 {
        thread::sleep(Duration::from_secs(1));
        require(world.guest.is_running("fio")?, "SIGTERM under fio", || "fio was done before".to_owned())?;
        world.restart("TERM")?;
    }
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)?;
    world.guest.sh_within(FIO_MAX, &format!("umount /mnt/v && fsck.ext4 -fn {LINK}")).map(drop)
}

/// Requests that come one by one, however long the others wait: some come in the moment in which the server's ring ends. Before 6.15 Linux
/// breaks its memory, or never ends the server, where a ring is closed with such a request in it by a process that lives on.
fn arriving(world: &mut World) -> Result<()> {
    let name = world.attached()?;
    let fio = format!(
        "fio --name=job --filename={LINK} --rw=randread --bs=4k --direct=1 --thread --numjobs=100 --group_reporting \
         --rate_iops=1 --rate_process=poisson --time_based --runtime=600"
    );
    let reads = format!("set -- $(cat /sys/block/{name}/stat); echo $1");
    let read = |world: &mut World| -> Result<u64> {
        let printed = world.guest.sh(&reads)?;
        printed.trim().parse().or_fail(printed)
    };
    world.guest.sh("dmesg -C")?;
    world.guest.start("fio", &fio)?;
    for round in 0..10 {
        // All readers are at it.
        let enough = read(world)? + 100;
        world.guest.wait(FIO_MAX, &format!("{reads} | (read n; test $n -ge {enough})"))?;
        world.restart(if round % 2 == 0 { "TERM" } else { "KILL" })?;
        world.guest.sh("! dmesg | grep -m1 -A40 -E 'BUG: |kernel BUG|WARNING: '")?;
    }
    require(world.guest.is_running("fio")?, "SIGTERM and SIGKILL under fio", || "fio has ended".to_owned())?;
    world.guest.sh("pkill -x fio")?;
    let printed = world.guest.sh_within(FIO_MAX, "until test -s /tmp/fio.end; do sleep 0.1; done; cat /tmp/fio.out")?;
    require(printed.contains("err= 0"), "fio", || printed.clone())
}

fn read_only(world: &mut World) -> Result<()> {
    world.attached()?;
    let pattern = "yes ashlar | dd iflag=fullblock bs=1M count=1";
    world.guest.sh(&format!("{pattern} of={LINK} oflag=direct"))?;
    world.ashlar(&format!("detach {VOLUME}"))?;
    world.end("TERM")?;
    "--read-only".clone_into(&mut world.flags);
    world.start()?;
    let name = world.attached()?;
    let seen = world.guest.sh(&format!("cat /sys/block/{name}/ro"))?;
    require(seen.trim() == "1", "a read-only device", || seen.clone())?;
    world.guest.sh_failing(&format!("dd if=/dev/zero of={LINK} bs=4k count=1 oflag=direct"))?;
    world.guest.sh(&format!("{pattern} 2>/dev/null | cmp -n 1048576 - {LINK}"))?;
    world.ashlar(&format!("detach {VOLUME}"))?;
    world.end("TERM")?;
    world.flags.clear();
    world.start()
}

fn stop(world: &mut World) -> Result<()> {
    world.attached()?;
    world.ashlar("stop")?;
    world.ended()?;
    world.guest.sh(&format!("! ls /dev/ublkb* && ! ls /dev/ublkc* && ! ls {LINK}")).map(drop)
}

/// A server dies while it takes a device over, and its last command reaches the kernel later. Linux 6.12 then takes the device for served for
/// good, and its requests wait. The next server makes the device again where nobody has it open.
fn unnoticed(world: &mut World) -> Result<()> {
    started(world)?;
    let device = world.attach()?;
    take_over_for_the_dead(world, &device)?;
    let served = format!("{} status --json | grep -q '\"block_device\": *\"/dev/ublkb'", world.ashlar);
    let read = format!("dd if={LINK} of=/dev/null iflag=direct bs=64k count=1");
    world.start()?;
    world.guest.wait(REBUILD_MAX, &served)?;
    world.guest.sh(&read)?;
    world.guest.start("opener", &format!("exec sleep 300 <{device}"))?;
    take_over_for_the_dead(world, &device)?;
    world.start()?;
    let said = world.ashlar_failing(&format!("detach {VOLUME}"))?;
    require(said.contains("is in use"), "detach of what is open", || said.clone())?;
    world.ashlar(&format!("detach --force {VOLUME}"))?;
    world.guest.sh("pkill -xf 'sleep 300'")?;
    world.attach()?;
    world.guest.sh(&read)?;
    world.ashlar(&format!("detach {VOLUME}")).map(drop)
}

/// A server runs, whatever step was before.
fn started(world: &mut World) -> Result<()> {
    let is_gone = world.guest.sh(&format!("kill -0 $(cat {DIR}/pid) 2>/dev/null || echo gone"))?.trim() == "gone";
    if is_gone { world.start() } else { Ok(()) }
}

/// Kills the server and sends END_USER_RECOVERY for its device once the kernel has noticed that.
fn take_over_for_the_dead(world: &mut World, device: &str) -> Result<()> {
    let number = device.trim_start_matches("/dev/ublkb");
    world.end("KILL")?;
    let bytes = "b() { printf \"\\\\$(printf %03o $(($1 >> $2 & 255)))\"; }; w() { b $1 0; b $1 8; b $1 16; b $1 24; }";
    let command = format!("(w $$; w 3223352593; w {number}; w 0; w 0) >/tmp/command");
    let line = format!("sh -c '{bytes}; {command}; {} ublk-control </tmp/command >/tmp/answer; true'", world.ashlar);
    world
        .guest
        .wait(REBUILD_MAX, &format!("{line}; od -An -td4 -N4 /tmp/answer | (read n; echo answer $n; test $n = 0)"))
        .map(drop)
}

/// The kernel, until 6.19, waits for ever for the partitions of a device whose server dies while it reads them. That device is lost until the
/// machine boots; the array is not, and the volume gets another device. Later ones lose nothing.
fn attach_torn(world: &mut World) -> Result<()> {
    let hanging = |world: &mut World| world.guest.sh("pgrep -fc ublk-control; true");
    let devices = "set -- /sys/block/ublkb*; test -e $1 || set --; ";
    started(world)?;
    let never_hangs = numbers(&world.guest.sh("uname -r")?)[..] >= ENDS_READING[..];
    let mut rounds = 0..if never_hangs { ATTACHES_OF_NEWER } else { ATTACHES_MAX };
    let before = hanging(world)?;
    while hanging(world)? == before {
        if rounds.next().is_none() {
            let why = || "it was never caught".to_owned();
            return require(never_hangs, "SIGKILL while partitions are read", why);
        }
        let attach = format!("{} attach {VOLUME} --by ublk", world.ashlar);
        world.guest.start("attach", &attach)?;
        let kill = format!(
            "p=$(cat {DIR}/pid); {devices} n=$#; until test $# -gt $n || test -s /tmp/attach.end; do {devices} done; kill -KILL $p"
        );
        world.guest.sh(&kill)?;
        world.end("KILL")?;
        world.start()?;
        let device = world.attach()?;
        world.guest.sh(&format!("dd if={device} of=/dev/null iflag=direct bs=64k count=1 && blkdiscard {device}"))?;
        world.ashlar(&format!("detach {VOLUME}"))?;
    }
    require(!never_hangs, "SIGKILL while partitions are read", || "a process waits in the kernel".to_owned())
}
