//! Two servers on the same SCSI drives by two paths, as two machines would be: the kernel's own target, with two initiators' ports.
//! Its drives take persistent reservations.

use std::time::Duration;

use e2e::Result;
use e2e::failure::{OrFail, require};
use serde_json::Value;

use crate::world::World;

/// Three drives, each of which is there twice: once by each port. The names of the first port's are in /tmp/a.drives, those of the
/// second's in /tmp/b.drives.
const DRIVES: &str = "modprobe target_core_file; modprobe tcm_loop; modprobe sd_mod; \
    mount -t configfs c /sys/kernel/config 2>/dev/null; C=/sys/kernel/config/target; mkdir -p /var/target/pr /etc/target/pr; \
    for k in 1 2 3; do truncate -s 300M /run/lun$k; mkdir -p $C/core/fileio_$k/d; \
    echo fd_dev_name=/run/lun$k,fd_dev_size=314572800 >$C/core/fileio_$k/d/control; \
    echo 1 >$C/core/fileio_$k/d/enable; done; \
    for n in 1 2; do W=naa.500140500000000$n; for k in 1 2 3; do mkdir -p $C/loopback/$W/tpgt_1/lun/lun_$k; done; \
    echo naa.600140500000000$n >$C/loopback/$W/tpgt_1/nexus; \
    for k in 1 2 3; do ln -s $C/core/fileio_$k/d $C/loopback/$W/tpgt_1/lun/lun_$k/x; done; done; \
    for s in /sys/class/scsi_host/host*; do grep -qi loop $s/proc_name && echo - - - >$s/scan; done; \
    ls -d /sys/block/sd* | while read d; do echo $(readlink -f $d | grep -o host[0-9]*) /dev/${d##*/}; done | sort >/tmp/all; \
    awk 'NR == 1 {h = $1} $1 == h {printf \"%s \", $2}' /tmp/all >/tmp/a.drives; \
    awk 'NR == 1 {h = $1} $1 != h {printf \"%s \", $2}' /tmp/all >/tmp/b.drives; \
    test $(wc -w </tmp/a.drives) = 3 && test $(wc -w </tmp/b.drives) = 3 ";

/// Writes block after block, each with its number, and keeps how many were answered, until one is refused.
const WRITER: &str = r#"printf 'import nbd, struct\nh = nbd.NBD()\nh.connect_uri("nbd+unix:///two/v?socket=/tmp/a.nbd")\nn = 0\ntry:\n  while True:\n    h.pwrite(struct.pack("<Q", n) * 512, (n & 511) * 4096)\n    n += 1\n    open("/tmp/answered", "w").write(str(n))\nexcept nbd.Error as e:\n  open("/tmp/refused", "w").write(str(e))\n' >/tmp/writer.py"#;

/// What was answered is there, or what was written there later.
const READER: &str = r#"printf 'import nbd, struct\nh = nbd.NBD()\nh.connect_uri("nbd+unix:///two/v?socket=/tmp/b.nbd")\nn = int(open("/tmp/answered").read())\nfor i in range(max(n - 512, 0), n):\n  b = h.pread(4096, (i & 511) * 4096)\n  v = struct.unpack("<Q", b[:8])[0]\n  assert b == struct.pack("<Q", v) * 512 and v >= i and v & 511 == i & 511, (i, v, n)\nprint(n)\n' >/tmp/reader.py"#;

/// How long a start may take.
const READY_MAX: Duration = Duration::from_secs(60);

fn verb(world: &World, who: &str, verb: &str) -> String {
    format!("{} --control /tmp/{who}.control --state-dir /tmp/{who}.state {verb}", world.program())
}

fn serve(world: &mut World, who: &str, flags: &str) -> Result<()> {
    let serve = verb(world, who, &format!("serve --nbd unix:/tmp/{who}.nbd {flags} $(cat /tmp/{who}.drives)"));
    world.guest.start(who, &format!("exec sh -c \"echo \\$\\$ >/tmp/{who}.pid; exec {serve}\""))?;
    world.guest.wait(READY_MAX, &format!("grep -q ready: /tmp/{who}.out || test -s /tmp/{who}.end"))?;
    world.guest.sh(&format!("test ! -s /tmp/{who}.end || {{ cat /tmp/{who}.out; false; }}")).map(drop)
}

fn stop(world: &mut World, who: &str) -> Result<()> {
    let line = verb(world, who, "stop --force");
    world.guest.sh(&line)?;
    world.guest.finish(who, READY_MAX).map(drop)
}

/// The second is refused; by --take-over it has the drives, and the first is stopped by its next request.
pub fn reserved(world: &mut World) -> Result<()> {
    world.guest.sh(DRIVES)?;
    let create = verb(world, "a", "create two --raid 5 --force $(cat /tmp/a.drives)");
    let volume = verb(world, "a", "volume create two/v 8M");
    world.guest.sh(&format!("{create} && {volume} && {WRITER} && {READER}"))?;
    serve(world, "a", "")?;
    world.guest.start("writer", "/usr/bin/python3 /tmp/writer.py")?;
    world.guest.wait(READY_MAX, "test $(cat /tmp/answered) -gt 20")?;
    let refused = verb(world, "b", "serve --nbd unix:/tmp/b.nbd $(cat /tmp/b.drives) 2>&1");
    let said = world.guest.sh_failing(&refused)?;
    require(said.contains("reserved by key") && said.contains("host"), "the second server", || said.clone())?;
    require(world.guest.is_running("writer")?, "the first server", || "it stopped for one that was refused".into())?;

    serve(world, "b", "--take-over two")?;
    world.guest.finish("writer", READY_MAX)?;
    world.guest.sh("test -s /tmp/refused")?;
    let status = verb(world, "a", "status two --json");
    let said = world.guest.sh(&status)?;
    let status: Value = serde_json::from_str(&said).or_fail(&status)?;
    let array = &status["arrays"][0];
    // The volume's errors are those that its host was told.
    let blamed = array["members"].as_array().is_some_and(|all| all.iter().any(|member| member["errors"] != 0));
    require(array["state"] == "frozen" && !blamed, "the first server", || said.clone())?;
    world.guest.sh("/usr/bin/python3 /tmp/reader.py")?;

    // Its own reservation does not keep it out when it was killed.
    world.guest.sh("kill -9 $(cat /tmp/b.pid)")?;
    serve(world, "b", "")?;
    world.guest.sh("/usr/bin/python3 /tmp/reader.py")?;
    stop(world, "a")?;
    world.guest.sh("/usr/bin/python3 /tmp/reader.py")?;
    stop(world, "b")?;
    let check = verb(world, "b", "check two");
    world.guest.sh(&check)?;
    // Given up in order: the first port's drives are free.
    serve(world, "a", "")?;
    stop(world, "a")
}
