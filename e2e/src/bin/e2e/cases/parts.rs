//! Arrays in parts: served by one core or several, they lose nothing, and a drive is one drive.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use e2e::failure::require;
use e2e::server::Server;
use e2e::{OrFail, Result};

use super::Case;
use super::rebuild::wait_whole;
use crate::fixture::{ARRAY, Lab, Served, Traffic, VOLUME, words};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "parts-killed", about: "SIGKILL under load, by 2, 1 and 3 cores; then a check", run: killed },
    Case { name: "parts-replace", about: "a drive fails and is replaced under load, killed between", run: replace },
    Case {
        name: "parts-limits",
        about: "limits are those of all parts together; sizes are whole stripes",
        run: limits,
    },
    Case { name: "parts-pinned", about: "each core on a CPU of its own, commands on any", run: pinned },
];

const DRIVES: usize = 5;
/// Room for twice the fewest zones.
const DRIVE: &str = "640M";
const BYTES: u64 = 48 << 20;

fn parts(lab: &Lab) -> Result<Served> {
    let flags = ["--raid", "5", "--size", DRIVE, "--parts", "2"];
    let mut served = lab.array_of("a", &flags, DRIVES, "48M")?;
    by_cores(&mut served, 2)?;
    Ok(served)
}

/// Serves with so many cores.
fn by_cores(served: &mut Served, cores: u32) -> Result<()> {
    served.server = Server::new(&served.ashlar).with_flags(&["--cores", &cores.to_string()]);
    served.server.start().map(drop)
}

fn killed(lab: &Lab) -> Result<()> {
    let mut served = parts(lab)?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    for cores in [1, 3, 2] {
        traffic.run(&served, Duration::from_millis(300))?;
        served.server.kill()?;
        by_cores(&mut served, cores)?;
        traffic.verify(&served)?;
    }
    served.server.stop()?;
    served.ashlar.run(&["check", ARRAY])?.expect(0).map(drop)
}

fn pinned(lab: &Lab) -> Result<()> {
    let mut served = parts(lab)?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    served.server.stop()?;
    served.server = Server::new(&served.ashlar).with_flags(&["--cores", "2", "--pin"]);
    served.server.start()?;
    traffic.run(&served, Duration::from_millis(300))?;
    traffic.verify(&served)?;
    let pid = served.server.pid().ok_or_else(|| served.server.broken("it has no process".to_owned()))?;
    let cpus = cpus_of_threads(pid)?;
    let (data, other) = (&cpus[&pid.to_string()], &cpus["core 1"]);
    let one = |cpus: &str| cpus.parse::<u32>().is_ok();
    require(one(data) && one(other) && data != other, "a CPU for each core", || format!("{cpus:?}"))?;
    require(!one(&cpus["control"]), "commands go where they may", || format!("{cpus:?}"))?;
    let placement = served.ashlar.json(&["status", "--placement"])?;
    require(
        placement["pinned"] == serde_json::json!([data.parse().unwrap_or(0), other.parse().unwrap_or(0)]),
        "placement",
        || placement.to_string(),
    )?;
    served.server.stop()
}

/// The CPUs that each thread of a process may use, by the thread's name; those of the first by the process's number.
fn cpus_of_threads(pid: u32) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).or_fail("its threads")?.flatten() {
        let status = fs::read_to_string(task.path().join("status")).or_fail("a thread")?;
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("").trim().to_owned();
        let name = if task.file_name().to_str() == Some(&pid.to_string()) { pid.to_string() } else { field("Name:") };
        all.insert(name, field("Cpus_allowed_list:"));
    }
    Ok(all)
}

fn replace(lab: &Lab) -> Result<()> {
    let mut served = parts(lab)?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    traffic.run(&served, Duration::from_millis(300))?;
    served.fail(1)?;
    traffic.run(&served, Duration::from_millis(100))?;
    let more = served.ashlar.run(&["drive", "fail", ARRAY, &served.drives[2]])?.expect(3)?;
    require(more.err.contains("redundancy"), "drive fail past the redundancy", || more.err.clone())?;
    let verb = words(&["drive", "replace", ARRAY, &served.drives[1], "d/new", "--size", DRIVE]);
    traffic.run_with_verbs(&served, &[verb])?;
    for millis in [1, 20] {
        std::thread::sleep(Duration::from_millis(millis));
        served.crash()?;
    }
    wait_whole(&served)?;
    traffic.verify(&served)?;
    // A copy of one that is in; then yet another may go.
    let verb = words(&["drive", "replace", ARRAY, &served.drives[0], "d/new0", "--size", DRIVE]);
    traffic.run_with_verbs(&served, &[verb])?;
    wait_whole(&served)?;
    served.fail(3)?;
    traffic.verify(&served)?;
    served.crash()?;
    traffic.verify(&served)?;
    served.server.stop()?;
    served.ashlar.run(&["check", ARRAY])?.expect(0).map(drop)
}

fn limits(lab: &Lab) -> Result<()> {
    let served = parts(lab)?;
    served.ashlar.done(&["volume", "create", "lab/odd", "5M"])?;
    served.ashlar.done(&["volume", "limit", VOLUME, "--iops", "200"])?;
    let status = served.ashlar.status(ARRAY)?;
    let of = |name: &str| status["volumes"].as_array().into_iter().flatten().find(|v| v["name"] == name).cloned();
    let odd = of("odd").unwrap_or_default();
    require(odd["bytes"] == 6 << 20, "5 MiB in two parts", || odd.to_string())?;
    let fio = e2e::tools::run(
        served.dir(),
        "fio",
        &[
            "--name=limited",
            "--ioengine=nbd",
            &format!("--uri={}", served.uri()),
            "--rw=randread",
            "--bs=4k",
            "--iodepth=32",
            "--time_based",
            "--runtime=3",
            "--output-format=json",
        ],
    )?;
    // It may say something before.
    let object = fio.find('{').map_or("", |at| &fio[at..]);
    let fio: serde_json::Value = serde_json::from_str(object).or_fail("what fio says")?;
    let iops = fio["jobs"][0]["read"]["iops"].as_f64().unwrap_or(0.0);
    require((150.0..=215.0).contains(&iops), "200 requests a second", || format!("{iops}"))
}
