//! A device with a queue on each of two cores; before Linux 6.16 it has one queue.

use std::thread;
use std::time::Duration;

use e2e::Result;
use e2e::failure::require;
use e2e::fio::{has_verified, verifying};
use e2e::linux::numbers;

use crate::steps::{FIO_MAX, started};
use crate::world::{DIR, World};

/// The array of parts, its volume, and the name of that in /dev.
const ARRAY: &str = "two";
const VOLUME: &str = "two/v";
const LINK: &str = "/dev/ashlar/two/v";
const MEBIBYTES: u32 = 48;
/// How the server is started each time: with so many cores, after this signal.
const RESTARTS: [(&str, u8); 6] = [("KILL", 2), ("KILL", 2), ("TERM", 1), ("KILL", 1), ("TERM", 2), ("KILL", 2)];

/// The first Linux whose devices have several queues.
const SEVERAL_SINCE: [u64; 2] = [6, 16];

/// Serves an array of two parts on two cores, and on one, under fio on each CPU of the guest.
pub fn queues(world: &mut World) -> Result<()> {
    started(world)?;
    let has_several = numbers(&world.guest.sh("uname -r")?)[..] >= SEVERAL_SINCE[..];
    let queues = if has_several { 2 } else { 1 };
    world.end("TERM")?;
    "--cores 2".clone_into(&mut world.flags);
    let drives = format!("{DIR}/d/a {DIR}/d/b {DIR}/d/c {DIR}/d/e");
    world.ashlar(&format!("create {ARRAY} --raid 5 --parts 2 --size 544M {drives}"))?;
    world.ashlar(&format!("volume create {VOLUME} {}M", 2 * MEBIBYTES))?;
    world.start()?;
    world.ashlar(&format!("attach {VOLUME} --by ublk"))?;
    let seen = world.guest.sh(&format!("ls -d /sys/block/$(basename $(readlink -f {LINK}))/mq/* | wc -l"))?;
    require(seen.trim() == queues.to_string(), "the queues of the device", || seen.clone())?;
    require(connections(world)? == queues, "the queues in ashlar clients", || format!("not {queues}"))?;
    // A queue of two has the requests of one CPU. Slow enough to be at it through all restarts.
    for cpu in 0..2 {
        let place = format!("--cpus_allowed={cpu} --offset={}m --rate_iops=4000,200", cpu * MEBIBYTES);
        world.guest.start(&format!("fio{cpu}"), &verifying(LINK, MEBIBYTES, &place))?;
    }
    for (signal, cores) in RESTARTS {
        thread::sleep(Duration::from_secs(1));
        for cpu in 0..2 {
            let is_running = world.guest.is_running(&format!("fio{cpu}"))?;
            require(is_running, "a restart under fio", || format!("fio on CPU {cpu} was done before"))?;
        }
        world.flags = format!("--cores {cores}");
        world.restart_of(signal, LINK)?;
        let told = connections(world)?;
        require(told == queues, "the queues after a restart", || format!("{told} by {cores} cores"))?;
    }
    for cpu in 0..2 {
        has_verified(&world.guest.finish(&format!("fio{cpu}"), FIO_MAX)?)?;
    }
    world.guest.sh(&format!("blkdiscard {LINK} && cmp -n {} {LINK} /dev/zero", MEBIBYTES << 21))?;
    world.ashlar(&format!("detach {VOLUME}"))?;
    // A server of one core makes one queue.
    world.end("TERM")?;
    world.flags.clear();
    world.start()?;
    world.ashlar(&format!("attach {VOLUME} --by ublk"))?;
    require(connections(world)? == 1, "the queues of a server of one core", || "not 1".to_owned())?;
    world.ashlar(&format!("detach {VOLUME}"))?;
    world.ashlar(&format!("stop {ARRAY}"))?;
    world.ashlar(&format!("destroy {ARRAY} --yes"))?;
    world.guest.sh(&format!("rm -f {drives}")).map(drop)
}

/// How many queues the device has, as `ashlar clients` has it.
fn connections(world: &mut World) -> Result<u64> {
    let printed = world.ashlar("clients --json")?;
    let said: serde_json::Value =
        serde_json::from_str(&printed).map_err(|e| e2e::Failure::new("ashlar clients", e.to_string()))?;
    let all = said["clients"].as_array().cloned().unwrap_or_default();
    Ok(all
        .iter()
        .find(|client| client["array"] == ARRAY)
        .and_then(|client| client["connections"].as_u64())
        .unwrap_or(0))
}
