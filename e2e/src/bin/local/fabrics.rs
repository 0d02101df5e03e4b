//! What is done with exports by the guest's own NVMe target: its initiator connects to it over TCP and over soft RoCE.

use std::thread;
use std::time::Duration;

use e2e::Result;
use e2e::failure::require;
use e2e::fio::{has_verified, verifying};

use crate::steps::{FIO_MAX, discard_on, rebuilt_under_fio};
use crate::world::{DIR, LINK, VOLUME, World};

/// The guest's address.
const ADDRESS: &str = "10.0.2.15";
/// The host that may connect, and one that may not.
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
const STRANGER: &str = "nqn.2014-08.org.nvmexpress:uuid:99999999-2222-4333-8444-555555555555";
/// The kernel does not go on making the file system when it is mounted.
const NOTHING_LATER: &str = "-E lazy_itable_init=0,lazy_journal_init=0";
const TREE: &str = "/sys/kernel/config/nvmet";
/// In which a host has connected again, and found its namespace.
const AGAIN_MAX: Duration = Duration::from_secs(90);

fn tcp() -> String {
    format!("tcp:{ADDRESS}:4421")
}

fn rdma() -> String {
    format!("rdma:{ADDRESS}:4420")
}

/// A server that lets the host in. Nobody has loaded the target, or mounted its tree.
fn served(world: &mut World) -> Result<()> {
    world.end("TERM")?;
    world.flags = format!("--allow-host {HOST}");
    world.start()
}

/// The name of the array's subsystem.
fn subsystem(world: &mut World) -> Result<String> {
    let uuid = world.status()?["uuid"].as_str().unwrap_or_default().to_owned();
    Ok(format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}"))
}

fn connect(world: &mut World, host: &str, (transport, port): (&str, u16)) -> Result<String> {
    let nqn = subsystem(world)?;
    // An identity for each name.
    let id = &host[host.len() - 36..];
    Ok(format!(
        "nvme connect -t {transport} -a {ADDRESS} -s {port} -n {nqn} --hostnqn={host} --hostid={id} \
         --ctrl-loss-tmo=-1 --reconnect-delay=1 --nr-io-queues=2 2>&1"
    ))
}

/// Connects; the volume's device at the host.
fn connected(world: &mut World, at: (&str, u16)) -> Result<String> {
    world.guest.sh("modprobe -a nvme_tcp nvme_rdma")?;
    let line = connect(world, HOST, at)?;
    world.guest.sh(&line)?;
    let uuid = world.status()?["volumes"][0]["uuid"].as_str().unwrap_or_default().to_owned();
    let found = world.guest.wait(AGAIN_MAX, &format!("grep -lx {uuid} /sys/block/nvme*/uuid | grep -v c[0-9]"))?;
    let name = found.trim().split('/').nth(3).unwrap_or_default().to_owned();
    world.guest.wait(AGAIN_MAX, &format!("test -b /dev/{name}"))?;
    Ok(format!("/dev/{name}"))
}

/// Nothing of ours is in the kernel's tree, but the names of hosts.
fn nothing_left(world: &mut World) -> Result<()> {
    world.guest.sh(&format!("! ls {TREE}/subsystems {TREE}/ports 2>/dev/null | grep -v : | grep .")).map(drop)
}

fn exported_at(world: &mut World) -> Result<String> {
    Ok(world.status()?["volumes"][0]["exported_at"].to_string())
}

/// By TCP: who may, what is refused, and the way out.
pub fn tcp_by_name(world: &mut World) -> Result<()> {
    served(world)?;
    let at = tcp();
    let said = world.ashlar_failing(&format!("export --nvmet tcp:10.9.9.9:4421 {VOLUME}"))?;
    require(said.contains("does not have the address"), "an address of another machine", || said.clone())?;
    nothing_left(world)?;
    let said = world.ashlar(&format!("export --nvmet {at} {VOLUME}"))?;
    require(said.contains("nvme connect -t tcp"), "ashlar export", || said.clone())?;
    world.ashlar(&format!("export --nvmet {at} {VOLUME}"))?;
    let device = connected(world, ("tcp", 4421))?;
    let line = connect(world, STRANGER, ("tcp", 4421))?;
    world.guest.sh_failing(&line)?;
    let printed = world.guest.sh_within(FIO_MAX, &verifying(&device, 4, ""))?;
    has_verified(&printed)?;
    let seen = exported_at(world)?;
    require(seen.contains(&at), "status", || seen.clone())?;
    let said = world.ashlar_failing(&format!("detach {VOLUME}"))?;
    require(said.contains("--remove"), "detach of what is exported", || said.clone())?;
    world.guest.sh("nvme disconnect-all")?;
    // A process that writes the tree lives: no second one is begun, and the server answers.
    world.guest.start("lock", &format!("flock {DIR}/state/nvmet-apply.lock sleep 4"))?;
    world.guest.wait(AGAIN_MAX, &format!("! flock -n {DIR}/state/nvmet-apply.lock true"))?;
    let said = world.ashlar_failing(&format!("export --nvmet {at} --remove {VOLUME}"))?;
    require(said.contains("has not ended"), "a second process", || said.clone())?;
    world.guest.finish("lock", AGAIN_MAX)?;
    world.ashlar(&format!("export --nvmet {at} --remove {VOLUME}"))?;
    nothing_left(world)?;
    world.ashlar_failing(&format!("export --nvmet {at} --remove {VOLUME}"))?;
    world.ashlar(&format!("detach {VOLUME}")).map(drop)
}

/// The server is killed in the middle of verbs; what they left is finished or taken away, and nothing stays for ever.
pub fn torn(world: &mut World) -> Result<()> {
    served(world)?;
    // A device that is killed while it is made hangs in the kernel for good: the step `attach-torn`, the last one.
    world.attach()?;
    let at = tcp();
    for (round, millis) in [60, 150, 300, 90].into_iter().enumerate() {
        let remove = if round % 2 == 0 { "" } else { "--remove" };
        world.guest.start("verb", &format!("{} export --nvmet {at} {remove} {VOLUME}", world.ashlar))?;
        thread::sleep(Duration::from_millis(millis));
        world.end("KILL")?;
        world.start()?;
    }
    let listed = world.guest.sh(&format!("cat {DIR}/state/nvmet.toml 2>/dev/null; true"))?;
    world.ashlar(&format!("export --nvmet {at} {VOLUME}"))?;
    let seen = exported_at(world)?;
    require(seen.contains(&at), "an export after torn verbs", || format!("{seen}\n{listed}"))?;
    world.ashlar(&format!("export --nvmet {at} --remove {VOLUME}"))?;
    nothing_left(world)?;
    world.ashlar(&format!("detach {VOLUME}")).map(drop)
}

/// By soft RoCE: a file system under fio, the server killed again and again.
pub fn rdma_sigkill(world: &mut World) -> Result<()> {
    served(world)?;
    world.guest.sh("modprobe -a rdma_rxe rdma_ucm && rdma link add rxe0 type rxe netdev eth0")?;
    let at = rdma();
    world.ashlar(&format!("export --nvmet {at} {VOLUME}"))?;
    let device = connected(world, ("rdma", 4420))?;
    let make = format!("mkfs.ext4 -qF {device} && mkdir -p /mnt/v && mount {device} /mnt/v");
    world.guest.sh_within(FIO_MAX, &make)?;
    world.guest.start("fio", &verifying("/mnt/v/fio", 64, "--rate_iops=4000,250"))?;
    for _ in 0..10 {
        thread::sleep(Duration::from_secs(1));
        require(world.guest.is_running("fio")?, "SIGKILL under fio", || "fio was done before".to_owned())?;
        world.restart("KILL")?;
    }
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)
}

/// By soft RoCE: what a device can besides, and a drive that is lost.
pub fn rdma_drives(world: &mut World) -> Result<()> {
    let device = world.guest.sh("findmnt -no SOURCE /mnt/v")?.trim().to_owned();
    world.guest.sh_within(FIO_MAX, &format!("umount /mnt/v && fsck.ext4 -fn {device}"))?;
    discard_on(world, &device)?;
    world.guest.sh_within(FIO_MAX, &format!("mkfs.xfs -qf {device} && mount {device} /mnt/v"))?;
    rebuilt_under_fio(world, "/mnt/v/fio", ("3", "newest"))?;
    world.guest.sh_within(FIO_MAX, &format!("umount /mnt/v && xfs_repair -n {device}"))?;
    world
        .guest
        .sh_within(FIO_MAX, &format!("mkfs.ext4 -qF {NOTHING_LATER} {device} && mount {device} /mnt/v"))
        .map(drop)
}

/// A server that leaves by SIGTERM leaves the tree; what is missing of it after a crash is made again.
pub fn left(world: &mut World) -> Result<()> {
    let tree =
        format!("cd {TREE} && find . -type l | sort; cat subsystems/*/namespaces/*/device_* subsystems/*/attr_serial");
    let before = world.guest.sh(&tree)?;
    world.end("TERM")?;
    let waiting = world.guest.sh(&tree)?;
    require(before == waiting, "the tree of a server that has left", || format!("{before}{waiting}"))?;
    world.start()?;
    // A request that the dead server has not answered would keep its port. So the device is served first, and the host asks no more.
    world
        .guest
        .sh_within(AGAIN_MAX, &format!("dd if={LINK} of=/dev/null iflag=direct bs=4k count=1 && fsfreeze -f /mnt/v"))?;
    world.end("KILL")?;
    // Its process that writes the tree may outlive it for a moment, and makes what is missing.
    world.guest.wait(AGAIN_MAX, "! pgrep -f nvmet-[a]pply")?;
    // As if it had died in between.
    world.guest.sh(&format!("cd {TREE}/ports/41000 && rm subsystems/* && cd .. && rmdir 41000"))?;
    // Another program has the number by now.
    world.guest.sh(&format!("mkdir {TREE}/ports/41000 && echo tcp >{TREE}/ports/41000/addr_trtype && echo 9 >{TREE}/ports/41000/addr_trsvcid"))?;
    world.start()?;
    world.guest.wait(AGAIN_MAX, &format!("ls {TREE}/ports/41001/subsystems | grep uuid"))?;
    let theirs = world.guest.sh(&format!("cat {TREE}/ports/41000/addr_trsvcid && rmdir {TREE}/ports/41000"))?;
    require(theirs.trim() == "9", "a port of another program", || theirs.clone())?;
    world.guest.sh("fsfreeze -u /mnt/v")?;
    let printed = world.guest.sh_within(FIO_MAX, &verifying("/mnt/v/again", 4, ""))?;
    has_verified(&printed)
}

/// A process that waits in the kernel for a device whose server is gone keeps nothing that the next server needs, and ends with its help.
pub fn caught(world: &mut World) -> Result<()> {
    let nqn = subsystem(world)?;
    world.guest.start("fio", &verifying("/mnt/v/fio", 8, "--rate_iops=4000,250"))?;
    thread::sleep(Duration::from_secs(1));
    world.guest.sh(&format!("kill -STOP $(cat {DIR}/pid)"))?;
    thread::sleep(Duration::from_secs(1));
    let device = world.guest.sh("ls /dev/ublkb*")?;
    let plan = format!(
        r#"{{"lock":"{DIR}/state/nvmet-apply.lock","plan":{{"subsystems":[],"gone":["{nqn}"],"ports":[],"ports_gone":[],"served":["{}"]}}}}"#,
        device.trim()
    );
    let apply = format!("echo '{plan}' | {} nvmet-apply", world.ashlar);
    world.guest.start("apply", &apply)?;
    thread::sleep(Duration::from_secs(2));
    require(world.guest.is_running("apply")?, "a process that waits", || "it does not wait".to_owned())?;
    world.restart("KILL")?;
    let said = world.guest.finish("apply", AGAIN_MAX)?;
    require(said.contains("rmdir subsystems"), "a process that was caught", || said.clone())?;
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)
}

/// `ashlar stop` leaves nothing, and the next server brings all again to a host that waits.
pub fn stop(world: &mut World) -> Result<()> {
    world.guest.start("fio", &verifying("/mnt/v/fio", 8, "--rate_iops=4000,150"))?;
    thread::sleep(Duration::from_secs(1));
    world.ashlar("stop")?;
    world.ended()?;
    nothing_left(world)?;
    world.guest.sh("! ls /dev/ublkb*")?;
    require(world.guest.is_running("fio")?, "a stop under fio", || "fio has ended".to_owned())?;
    world.start()?;
    let printed = world.guest.finish("fio", FIO_MAX)?;
    has_verified(&printed)?;
    let device = world.guest.sh("findmnt -no SOURCE /mnt/v")?;
    world.guest.sh_within(FIO_MAX, &format!("umount /mnt/v && fsck.ext4 -fn {}", device.trim()))?;
    world.guest.sh("nvme disconnect-all")?;
    world.ashlar(&format!("detach --force {VOLUME}"))?;
    nothing_left(world)?;
    world.guest.sh(&format!("! grep -q ^volume {DIR}/state/nvmet.toml && ! ls /dev/ublkb*"))?;
    world.end("TERM")?;
    world.flags.clear();
    world.start()
}
