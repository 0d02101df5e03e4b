//! `ashlar lab` on an md array, in a guest: this machine's kernel need not have md.

use std::fs;
use std::time::Duration;

use e2e::guest::Guest;
use e2e::{Failure, OrFail, Result};
use serde_json::Value;

use super::Case;
use super::lab::{check_data, check_states, demand, percents, suite};
use crate::fixture::Lab;

/// The case.
pub const CASES: &[Case] =
    &[Case { name: "lab-md", about: "a load through all states of an md RAID 5, in a guest of QEMU", run: md }];

/// Seconds of a state: a guest of software has few requests in one.
const SECONDS: u32 = 8;
/// A guest of software takes a minute and a half; the lab itself waits four minutes for the rebuild.
const LIMIT: Duration = Duration::from_secs(480);
/// The thread that begins md's rebuild is the one that serves its hosts, and it begins nothing while they keep it busy.
const ONE_BY_ONE: [u32; 2] = [1, 1];
/// Lines that a failure shows.
const LAST_LINES: usize = 25;

/// Four drives of memory; md rebuilds 32 MiB in about fifteen seconds. It rests while hosts are busy unless it has a least
/// rate, and they always are. The hooks are those of docs/lab.md.
const SCRIPT: &str = r#"set -e
modprobe brd rd_nr=4 rd_size=32768
modprobe raid456
mdadm --create /dev/md0 --run --assume-clean --level=5 --raid-devices=4 --chunk=64 --bitmap=none /dev/ram[0-3]
echo 1500 >/proc/sys/dev/raid/speed_limit_min
echo 2000 >/proc/sys/dev/raid/speed_limit_max
state=$(cat <<'END'
    awk '/^md0/ {getline; s = /_/ ? "degraded" : "optimal"; getline
         if (/recovery/) {sub(/.*recovery = */, ""); sub(/%.*/, ""); s = "rebuilding " $1}; print s}' /proc/mdstat
END
)
"$ASHLAR" lab run states.toml /dev/md0 --destroy "$(cat /sys/block/md0/md/uuid)" --level RAID5 --out run \
    --hook-fail 'mdadm /dev/md0 --fail /dev/ram1 && mdadm /dev/md0 --remove /dev/ram1' \
    --hook-replace 'mdadm --zero-superblock /dev/ram1 && mdadm /dev/md0 --add /dev/ram1' \
    --hook-state "$state"
cat /proc/mdstat
echo @@RESULT
cat run/result.json
"#;

fn md(lab: &Lab) -> Result<()> {
    let (suite, script) = (suite(&[("mix", 50)], ONE_BY_ONE, SECONDS), lab.dir.join("script"));
    fs::write(lab.dir.join("states.toml"), suite).or_fail("the suite")?;
    fs::write(&script, SCRIPT).or_fail("the script")?;
    let mut guest = Guest::boot(&lab.dir, 1)?;
    let run = format!(
        "cd '{}' && ASHLAR='{}' sh script >out 2>&1; code=$?; cat out; exit $code",
        lab.dir.display(),
        lab.program.display()
    );
    let printed = guest.sh_within(LIMIT, &run)?;
    let Some((printed, text)) = printed.split_once("@@RESULT\n") else {
        return Err(Failure::new("the script in the guest", format!("it has no result\n{printed}")));
    };
    let lines: Vec<&str> = printed.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
    demand(printed.contains("[4/4] [UUUU]"), "md is whole at the end", last)?;
    let result: Value = serde_json::from_str(text).or_fail("result.json")?;
    check_states(&result, "mix", "\"PASS")?;
    check_data(&result)?;
    let percents = percents(&result);
    demand(percents.first() < percents.last(), "a rebuild comes on", format!("{percents:?}"))
}
