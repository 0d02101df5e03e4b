//! Each way to a drive: the same things with each of the first two, less with the others.

use std::thread;
use std::time::Duration;

use e2e::Result;
use e2e::failure::require;
use e2e::stepwise::Step;

use crate::world::World;

/// All, in order.
pub const ALL: &[Step<World>] = &[
    Step { name: "passthrough", about: "NVMe commands: verified, SIGKILL, a drive is pulled", run: passthrough },
    Step { name: "polled", about: "the same by O_DIRECT, polled; idle it takes no time", run: polled },
    Step {
        name: "reserved",
        about: "SCSI drives with reservations: a second server, by force",
        run: crate::two::reserved,
    },
    Step { name: "plain", about: "O_DIRECT where nothing else is wanted, and where nothing else is there", run: plain },
];

/// Requests of these drives that the kernel's block layer has counted: it does not count passthrough commands.
const COUNTED: &str = "cat /sys/block/nvme?n1/stat | awk '{n += $1 + $5} END {print n}'";
/// Interrupts of I/O queues.
const INTERRUPTS: &str = "awk '/nvme[0-9]+q[1-9]/ {n += $2} END {print n + 0}' /proc/interrupts";
/// Ticks of 10 ms in which the server ran.
const TICKS: &str = "awk '{print $14 + $15}' /proc/$(cat /tmp/pid)/stat";

/// What came of a load.
struct Seen {
    /// Requests of drives, by the array's own count.
    requests: u64,
    /// By the block layer's.
    counted: u64,
    interrupts: u64,
}

/// Writes and reads back, and flushes on the way.
fn load(world: &mut World, more: &str) -> Result<Seen> {
    let before = (requests(world)?, world.number(COUNTED)?, world.number(INTERRUPTS)?);
    world.fio(more)?;
    let after = (requests(world)?, world.number(COUNTED)?, world.number(INTERRUPTS)?);
    Ok(Seen { requests: after.0 - before.0, counted: after.1 - before.1, interrupts: after.2 - before.2 })
}

fn requests(world: &mut World) -> Result<u64> {
    let status = world.status()?;
    let members = status["members"].as_array().cloned().unwrap_or_default();
    Ok(members.iter().filter_map(|m| Some(m["reads"].as_u64()? + m["writes"].as_u64()?)).sum())
}

/// SIGKILL while fio writes elsewhere; what was answered before is there.
fn survives_sigkill(world: &mut World, flags: &str, access: &str) -> Result<()> {
    world.fio("--do_verify=0 --end_fsync=1")?;
    world.fio_beside("--do_verify=0 --offset=64m --time_based --runtime=60 --randseed=8")?;
    world.kill()?;
    world.serve(flags, access)?;
    world.fio("--verify_only").map(drop)
}

/// A drive is pulled under fio, which does not notice.
fn survives_pull(world: &mut World, n: usize) -> Result<()> {
    world.fio_beside("--rate_iops=300")?;
    world.pull(n)?;
    world.until("degraded")?;
    world.fio_ends()?;
    world.fio("--verify_only").map(drop)
}

fn passthrough(world: &mut World) -> Result<()> {
    const ACCESS: &str = "passthrough";
    const FLAGS: &str = "--io passthrough";
    world.begin(0)?;
    world.serve(FLAGS, ACCESS)?;
    let seen = load(world, "--fsync=32")?;
    require(seen.requests > 150 && seen.counted == 0, ACCESS, || {
        format!("{} requests, {} past the block layer", seen.requests, seen.counted)
    })?;
    survives_sigkill(world, FLAGS, ACCESS)?;
    survives_pull(world, 1)?;
    world.stop()
}

fn polled(world: &mut World) -> Result<()> {
    const ACCESS: &str = "direct, polled";
    const FLAGS: &str = "--io poll";
    world.begin(1)?;
    world.serve(FLAGS, ACCESS)?;
    let seen = load(world, "--end_fsync=1")?;
    require(seen.counted > 150 && seen.interrupts < seen.requests / 4, ACCESS, || {
        format!("{} requests, {} counted, {} interrupts", seen.requests, seen.counted, seen.interrupts)
    })?;
    idles(world)?;
    survives_sigkill(world, FLAGS, ACCESS)?;
    survives_pull(world, 3)?;
    idles(world)?;
    world.stop()
}

fn plain(world: &mut World) -> Result<()> {
    world.begin(1)?;
    world.serve("", "direct")?;
    let seen = load(world, "--end_fsync=1")?;
    require(seen.counted > 150 && seen.interrupts > seen.requests / 4, "direct", || {
        format!("{} requests, {} counted, {} interrupts", seen.requests, seen.counted, seen.interrupts)
    })?;
    world.stop()?;
    // What one way has written the others read.
    for (flags, access) in [("--io poll", "direct, polled"), ("--io passthrough", "passthrough")] {
        world.serve(flags, access)?;
        world.fio("--verify_only")?;
        world.stop()?;
    }
    world.guest.sh("rm /dev/ng*")?;
    world.serve(
        "--io passthrough",
        "direct (no passthrough: its character device cannot be opened and locked: No such",
    )?;
    world.stop()?;
    world.begin(0)?;
    world.serve("--io poll", "direct (not polled: its driver has no poll queues (nvme.poll_queues))")?;
    world.stop()
}

/// A server that nobody asks for anything sleeps.
fn idles(world: &mut World) -> Result<()> {
    // What is merged and written behind hosts first.
    thread::sleep(Duration::from_secs(1));
    let before = world.number(TICKS)?;
    thread::sleep(Duration::from_secs(2));
    let ticks = world.number(TICKS)? - before;
    require(ticks < 50, "an idle server", || format!("it ran for {ticks} ticks of about 200"))
}
