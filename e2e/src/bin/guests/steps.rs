//! What a guest does with its disk, step by step.

use std::thread;
use std::time::{Duration, Instant};

use e2e::Result;
use e2e::failure::require;
use e2e::fio::{has_verified, verifying};
use e2e::stepwise::Step;

use crate::moved::there_and_back;
use crate::world::{ARRAY, DISK, DRIVE, OTHER, QUEUES, VOLUME, VOLUME_BYTES, World, disk};

/// All, in order.
pub const ALL: &[Step<World>] = &[
    Step { name: "disk", about: "the disk has the volume's size, name and queues; who has it is told", run: looks },
    Step { name: "ext4", about: "mkfs, mount, fio with checksums on two queues, fsck", run: ext4 },
    Step { name: "xfs", about: "the same with XFS", run: xfs },
    Step { name: "discard", about: "blkdiscard and write zeroes: zeroes, and the room is free", run: discard },
    Step { name: "member", about: "a member fails and is rebuilt under fio", run: member },
    Step { name: "sigkill", about: "the server is killed ten times under fio; nothing answered is lost", run: sigkill },
    Step { name: "restart", about: "SIGTERM and a new server, three times under fio on a mounted ext4", run: restart },
    Step { name: "grow", about: "the volume grows, and the guest sees it", run: grow },
    Step {
        name: "moved",
        about: "a machine that reads and writes moves to another QEMU, and on to a third",
        run: moved,
    },
    Step { name: "refused", about: "what would take the disk away is refused, and forced it waits", run: refused },
];

/// How long one fio may take. A guest does a thousand requests a second.
const FIO_MAX: Duration = Duration::from_secs(240);
const REBUILD_MAX: Duration = Duration::from_secs(90);
const PATTERN: &str = "yes ashlar | dd iflag=fullblock bs=1M";

fn looks(world: &mut World) -> Result<()> {
    let seen = world.guest.sh(&format!("blockdev --getsize64 --getro {DISK}; ls /sys/block/vda/mq | wc -l"))?;
    let expected = [VOLUME_BYTES.to_string(), "0".to_owned(), QUEUES.to_string()];
    require(seen.split_whitespace().eq(expected.iter().map(String::as_str)), "the disk", || seen.clone())?;
    let volume = world.ashlar.status(ARRAY)?["volumes"][0].clone();
    let uuid = volume["uuid"].as_str().unwrap_or_default().replace('-', "");
    let serial = world.guest.sh("cat /sys/block/vda/serial")?;
    // A disk of virtio has a name of 20 characters.
    require(serial.trim() == &uuid[..20], "the disk's serial", || format!("{serial}, of {uuid}"))?;
    let clients = world.ashlar.json(&["clients"])?;
    let client = &clients["clients"][0];
    let is_told = client["protocol"] == "vhost_user" && client["volume"] == "v";
    require(is_told, "ashlar clients", || clients.to_string())?;
    let lines = world.ashlar.done(&["attach", "--by", "vhost-user", VOLUME])?;
    require(lines.contains("-device vhost-user-blk-pci"), "ashlar attach --by vhost-user", || lines.clone())
}

fn file_system(world: &mut World, make: &str, check: &str) -> Result<()> {
    world.guest.sh_within(FIO_MAX, &format!("{make} {DISK} && mkdir -p /mnt/v && mount {DISK} /mnt/v"))?;
    let printed = world
        .guest
        .sh_within(FIO_MAX, &verifying("/mnt/v/fio", 8, "--numjobs=2 --offset_increment=8m --end_fsync=1"))?;
    has_verified(&printed)?;
    world.guest.sh_within(FIO_MAX, &format!("umount /mnt/v && {check} {DISK}")).map(drop)
}

fn ext4(world: &mut World) -> Result<()> {
    file_system(world, "mkfs.ext4 -qF", "fsck.ext4 -fn")
}

fn xfs(world: &mut World) -> Result<()> {
    file_system(world, "mkfs.xfs -qf", "xfs_repair -n")
}

fn discard(world: &mut World) -> Result<()> {
    world.guest.sh(&format!("{PATTERN} count=16 of={DISK} oflag=direct"))?;
    let same = |from: u32, count: u32| {
        format!("dd if={DISK} iflag=direct bs=64k skip={from} count={count} 2>/dev/null | cmp -n {} - ", count << 16)
    };
    world.guest.sh(&format!("blkdiscard -o 1M -l 4M {DISK} && blkdiscard -z -o 8M -l 4M {DISK}"))?;
    world.guest.sh(&format!("{} /dev/zero && {} /dev/zero", same(16, 64), same(128, 64)))?;
    world.guest.sh(&format!("{PATTERN} count=16 of=/tmp/pattern 2>/dev/null; {} /tmp/pattern", same(0, 16)))?;
    world.guest.sh(&format!("blkdiscard {DISK} && {} /dev/zero", same(0, 256)))?;
    // What a volume holds is counted when its array is closed.
    world.restarted()?;
    let volume = world.ashlar.status(ARRAY)?["volumes"][0].clone();
    require(volume["mapped_bytes"].as_u64() == Some(0), "a discarded volume", || volume.to_string())
}

fn member(world: &mut World) -> Result<()> {
    world.guest.start("fio", &verifying(DISK, 24, ""))?;
    thread::sleep(Duration::from_secs(2));
    world.ashlar.done(&["drive", "fail", "--force", ARRAY, "d/1"])?;
    world.ashlar.done(&["drive", "replace", ARRAY, "d/1", "d/new", "--size", DRIVE])?;
    let begun = Instant::now();
    while world.ashlar.status(ARRAY)?["state"] != "optimal" {
        require(begun.elapsed() < REBUILD_MAX, "the rebuild", || format!("it goes on after {REBUILD_MAX:?}"))?;
        thread::sleep(Duration::from_millis(200));
    }
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)?;
    // What was rebuilt is as good as what was lost.
    world.ashlar.done(&["drive", "fail", "--force", ARRAY, "d/2"])?;
    let printed = world.guest.sh_within(FIO_MAX, &verifying(DISK, 24, "--verify_only"))?;
    require(printed.contains("err= 0"), "fio --verify_only", || printed.clone())?;
    world.ashlar.done(&["drive", "replace", ARRAY, "d/2", "d/newer", "--size", DRIVE]).map(drop)
}

fn sigkill(world: &mut World) -> Result<()> {
    // Slow enough to be at it through ten kills, on any machine.
    world.guest.start("fio", &verifying(DISK, 64, "--rate_iops=4000,300"))?;
    for _ in 0..10 {
        thread::sleep(Duration::from_secs(1));
        require(world.guest.is_running("fio")?, "SIGKILL under fio", || "fio was done before".to_owned())?;
        world.killed()?;
    }
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)
}

fn restart(world: &mut World) -> Result<()> {
    world.guest.sh_within(FIO_MAX, &format!("mkfs.ext4 -qF {DISK} && mkdir -p /mnt/v && mount {DISK} /mnt/v"))?;
    world.guest.start("fio", &verifying("/mnt/v/fio", 32, "--rate_iops=4000,300"))?;
    for _ in 0..3 {
        thread::sleep(Duration::from_secs(1));
        require(world.guest.is_running("fio")?, "SIGTERM under fio", || "fio was done before".to_owned())?;
        world.restarted()?;
    }
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)?;
    world.guest.sh_within(FIO_MAX, &format!("umount /mnt/v && fsck.ext4 -fn {DISK}")).map(drop)
}

fn grow(world: &mut World) -> Result<()> {
    let bytes = VOLUME_BYTES + (64 << 20);
    let done = world.ashlar.done(&["volume", "grow", VOLUME, &format!("{}M", bytes >> 20)])?;
    require(done.contains("guest"), "ashlar volume grow", || done.clone())?;
    world.guest.wait(Duration::from_secs(20), &format!("test $(blockdev --getsize64 {DISK}) = {bytes}"))?;
    let last = format!("of={DISK} oflag=direct seek={} count=1", (bytes >> 20) - 1);
    world.guest.sh(&format!("{PATTERN} {last}")).map(drop)
}

fn moved(world: &mut World) -> Result<()> {
    world.ashlar.done(&["volume", "create", OTHER, "64M"])?;
    let disk = disk(&world.ashlar, OTHER, 1, 192)?;
    there_and_back(&world.dir, &disk)?;
    world.answers()
}

fn refused(world: &mut World) -> Result<()> {
    for verb in [["volume", "delete", VOLUME, "--yes"].as_slice(), &["stop", ARRAY], &["stop"]] {
        let refused = world.ashlar.run(verb)?.expect(3)?;
        require(refused.err.contains("vhost-user"), "the refusal", || refused.err.clone())?;
    }
    // Taken away by force, the disk waits; nothing fails.
    world.guest.start("fio", &verifying(DISK, 16, "--rate_iops=4000,300"))?;
    thread::sleep(Duration::from_secs(1));
    world.ashlar.done(&["stop", ARRAY, "--force"])?;
    thread::sleep(Duration::from_secs(2));
    require(world.guest.is_running("fio")?, "fio on a disk that waits", || "it has ended".to_owned())?;
    world.ashlar.done(&["import", ARRAY])?;
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)?;
    world.ashlar.done(&["stop", "--force"])?;
    let ended = world.server.wait_end()?;
    require(ended.success(), "ashlar stop", || ended.to_string())?;
    let left = std::fs::read_dir(world.ashlar.dir().join("g")).map_or(0, Iterator::count);
    require(left == 0, "ashlar stop", || format!("{left} sockets are left"))?;
    world.server.start()?;
    world.answers()
}
