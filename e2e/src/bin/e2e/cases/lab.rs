//! `ashlar lab` on an array of ours: failed and rebuilt under the load of fio, over the control socket and by hooks.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use e2e::ashlar::Ashlar;
use e2e::server::Server;
use e2e::{Failure, OrFail, Result};
use serde_json::Value;

use super::Case;
use crate::fixture::{ARRAY, Lab, Served, VOLUME};

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "lab-unwritten", about: "an export tells the lab what of it was never written", run: unwritten },
    Case { name: "lab-states", about: "two loads through all states of a RAID 5", run: states },
    Case { name: "lab-hooks", about: "the same by commands, which nobody asks the array beside", run: hooks },
    Case {
        name: "lab-modelled",
        about: "modelled drives: stopped and resumed, the cells are the same bytes",
        run: modelled,
    },
    Case {
        name: "lab-resumed",
        about: "the lab killed while a drive is out goes on, and repeats nothing",
        run: resumed,
    },
    Case { name: "lab-nvme-tcp", about: "an export by NVMe/TCP: the bench makes the load", run: nvme_tcp },
];

const DRIVES: usize = 4;
const DRIVE_BYTES: u64 = 288 << 20;
const VOLUME_SIZE: &str = "96M";
const STATES: [&str; 4] = ["optimal", "degraded", "rebuilding", "rebuilt"];
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A model takes as long as the machine lets it.
const MODEL_MAX: Duration = Duration::from_secs(300);

/// What the machine's speed would make of a load: 100 writes of 4 KiB a second where 95 of 100 requests are reads.
const IOPS_MAX: &str = "2000";

/// Seconds of a state, where the machine itself does the work.
const SECONDS: u32 = 4;
/// Threads of a load, and the depth of each.
const BUSY: [u32; 2] = [2, 4];

/// A fill, a load of its own, and these loads through the states, with so many threads of that depth.
pub(super) fn suite(loads: &[(&str, u32)], [threads, depth]: [u32; 2], seconds: u32) -> String {
    let mut text = "about = \"a test\"\nfor_publication = false\n\
                    [[test]]\nname = \"fill\"\nkind = \"fill\"\naccess = \"sequential\"\nreads = 0\nblock = \"1M\"\n\
                    [[test]]\nname = \"before\"\nkind = \"load\"\naccess = \"random\"\nreads = 100\nblock = \"4K\"\n\
                    seconds = 1\n"
        .to_owned();
    for (name, reads) in loads {
        text.push_str(&format!(
            "[[test]]\nname = \"{name}\"\nkind = \"states\"\naccess = \"random\"\nreads = {reads}\nblock = \"4K\"\n\
             threads = [{threads}]\ndepth = [{depth}]\nseconds = {seconds}\nramp = 1\nrebuild = 240\n"
        ));
    }
    text + "[[test]]\nname = \"check\"\nkind = \"check\"\naccess = \"sequential\"\nreads = 100\nblock = \"1M\"\n"
}

/// An array that is rebuilt slowly, a spare for its drive 1, and the suite.
fn prepare(lab: &Lab, loads: &[(&str, u32)]) -> Result<Served> {
    let served = lab.served("a", "5", DRIVES, VOLUME_SIZE)?;
    // What is written while a drive is out has nothing to be rebuilt: as many writes as a fast machine makes of a few
    // in a hundred are all of the volume.
    served.ashlar.done(&["volume", "limit", VOLUME, "--iops", IOPS_MAX])?;
    // 96 MiB over three data columns: a rebuild takes some seconds, whatever the machine.
    served.ashlar.done(&["rebuild", ARRAY, "--priority", "4M"])?;
    let spare = File::create(served.dir().join("d/spare")).or_fail("the spare")?;
    spare.set_len(DRIVE_BYTES).or_fail("the spare")?;
    fs::write(served.dir().join("states.toml"), suite(loads, BUSY, SECONDS)).or_fail("the suite")?;
    Ok(served)
}

fn run_args(served: &Served, control: &[&str]) -> Vec<String> {
    let uri = served.uri();
    let args =
        ["lab", "run", "states.toml", &uri, "--size", VOLUME_SIZE, "--destroy", VOLUME, "--out", "out", "--json"];
    args.iter().chain(control).map(|a| (*a).to_owned()).collect()
}

const SERVED: [&str; 6] = ["--array", ARRAY, "--array-drive", "d/1", "--array-spare", "d/spare"];

fn result(served: &Served) -> Result<Value> {
    let text = fs::read_to_string(served.dir().join("out/result.json")).or_fail("result.json")?;
    serde_json::from_str(&text).or_fail("result.json")
}

pub(super) fn demand(holds: bool, what: &str, seen: impl std::fmt::Display) -> Result<()> {
    if holds { Ok(()) } else { Err(Failure::new(what, format!("it does not hold: {seen}"))) }
}

/// The verdict of a gate of a cell.
fn gate(cell: &Value, check: &str) -> String {
    let gates = cell["gates"].as_array().cloned().unwrap_or_default();
    let found = gates.iter().find(|g| g["check"] == check);
    found.map_or("none".to_owned(), |g| format!("{}: {}", g["verdict"], g["reason"]))
}

/// The cells of a load, in order, each measured in its state.
pub(super) fn check_states(result: &Value, load: &str, state_verdict: &str) -> Result<()> {
    let cells = result["cells"].as_array().cloned().unwrap_or_default();
    let cells: Vec<&Value> = cells.iter().filter(|c| c["test"] == load).collect();
    let states: Vec<&str> = cells.iter().filter_map(|c| c["subject"]["state"].as_str()).collect();
    demand(states == STATES, "the states of the cells", format!("{states:?}"))?;
    for cell in cells {
        let what = format!("cell {}", cell["id"]);
        demand(gate(cell, "state").starts_with(state_verdict), &what, gate(cell, "state"))?;
        demand(cell["figures"]["iops"].as_f64().is_some_and(|n| n > 10.0), &what, &cell["figures"])?;
        demand(cell["figures"]["latency"]["p99_us"].is_f64(), &what, &cell["figures"])?;
        demand(gate(cell, "errors").starts_with("\"PASS"), &what, gate(cell, "errors"))?;
    }
    let lines = result["timelines"].as_array().cloned().unwrap_or_default();
    let line = lines.iter().find(|t| t["name"].as_str().is_some_and(|n| n.starts_with(load)));
    let line = line.ok_or_else(|| Failure::new(load, "it has no timeline"))?;
    let events: Vec<&str> =
        line["events"].as_array().into_iter().flatten().filter_map(|e| e["what"].as_str()).collect();
    demand(events == ["fail", "replace", "rebuilt"], "the events of the timeline", format!("{events:?}"))?;
    let moments = line["moments"].as_array().cloned().unwrap_or_default();
    demand(moments.len() >= 15, "moments of the timeline", moments.len())?;
    let with_p99 = moments.iter().filter(|m| m["p99_us"].is_f64()).count();
    demand(with_p99 * 2 > moments.len(), "moments with a 99th percentile", with_p99)
}

/// How far the first rebuild had come, moment by moment.
pub(super) fn percents(result: &Value) -> Vec<f64> {
    let moments = result["timelines"][0]["moments"].as_array();
    moments.into_iter().flatten().filter_map(|m| m["rebuilt_percent"].as_f64()).collect()
}

/// What was written is read back at the end.
pub(super) fn check_data(result: &Value) -> Result<()> {
    let cells = result["cells"].as_array().cloned().unwrap_or_default();
    let check = cells.last().cloned().unwrap_or_default();
    let told = gate(&check, "errors");
    demand(check["test"] == "check" && told.starts_with("\"PASS\": \"every block"), "the check", told)
}

/// The array is whole, and its redundancy is real.
fn check_whole(served: &mut Served) -> Result<()> {
    let begun = Instant::now();
    while served.state()? != "optimal" && begun.elapsed() < WAIT_MAX {
        std::thread::sleep(Duration::from_millis(20));
    }
    demand(served.state()? == "optimal", "the array is whole", served.state()?)?;
    served.server.stop()?;
    served.ashlar.run(&["check", ARRAY])?.expect(0).map(drop)
}

fn unwritten(lab: &Lab) -> Result<()> {
    const BEFORE: &str = "[[test]]\nname = \"before\"";
    let served = prepare(lab, &[])?;
    let all = suite(&[], BUSY, SECONDS);
    // The reads alone, before anything was written and after.
    let head = &all[..all.find("[[test]]").unwrap_or(0)];
    let reads = &all[all.find(BEFORE).unwrap_or(0)..all.rfind("[[test]]").unwrap_or(all.len())];
    fs::write(served.dir().join("reads.toml"), format!("{head}{reads}")).or_fail("the suite")?;
    let uri = served.uri();
    let told = |out: &str| -> Result<String> {
        served.ashlar.done(&["lab", "run", "reads.toml", &uri, "--out", out])?;
        let text = fs::read_to_string(served.dir().join(out).join("result.json")).or_fail("result.json")?;
        let result: Value = serde_json::from_str(&text).or_fail("result.json")?;
        Ok(gate(&result["cells"][0], "written"))
    };
    let before = told("before")?;
    demand(before.starts_with("\"FAIL\": \"unwritten: 101 MB"), "reads of nothing", before)?;
    served.ashlar.done(&run_args(&served, &[]))?;
    let after = told("after")?;
    demand(after.starts_with("\"PASS"), "reads of what another run filled", after)
}

fn states(lab: &Lab) -> Result<()> {
    let mut served = prepare(lab, &[("reads", 100), ("mix", 95)])?;
    served.ashlar.done(&run_args(&served, &SERVED))?;
    let result = result(&served)?;
    check_states(&result, "reads", "\"PASS")?;
    check_states(&result, "mix", "\"PASS")?;
    check_data(&result)?;
    let percents = percents(&result);
    demand(percents.first() < percents.last(), "a rebuild comes on", format!("{percents:?}"))?;
    let page = fs::read_to_string(served.dir().join("out/report.html")).or_fail("the report")?;
    demand(page.contains("Rebuilds over time") && page.contains("% kept"), "the report shows it", page.len())?;
    check_whole(&mut served)
}

fn hooks(lab: &Lab) -> Result<()> {
    let mut served = prepare(lab, &[("reads", 100)])?;
    // The lab's own environment is that of its hooks.
    let program = lab.program.display();
    let fail = format!("{program} drive fail --force {ARRAY} d/1");
    let replace = format!("{program} drive replace {ARRAY} d/1 d/spare --force");
    let wait = format!("until {program} status {ARRAY} --json | grep -q '\"state\": *\"optimal\"'; do sleep 0.2; done");
    let control = ["--hook-fail", &fail, "--hook-replace", &replace, "--hook-wait", &wait];
    served.ashlar.done(&run_args(&served, &control))?;
    let result = result(&served)?;
    check_states(&result, "reads", "\"WARN")?;
    let told = result["disclosure"].to_string();
    demand(told.contains("drive fail --force lab d/1"), "the hooks are disclosed", &told)?;
    check_whole(&mut served)
}

fn resumed(lab: &Lab) -> Result<()> {
    let mut served = prepare(lab, &[("reads", 100)])?;
    let mut child = Killed(
        served
            .ashlar
            .command(&run_args(&served, &SERVED))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .or_fail("ashlar lab")?,
    );
    let begun = Instant::now();
    while served.state()? == "optimal" {
        demand(begun.elapsed() < WAIT_MAX, "a drive is failed", format!("{:?}", begun.elapsed()))?;
        std::thread::sleep(Duration::from_millis(20));
    }
    child.0.kill().or_fail("SIGKILL")?;
    child.0.wait().or_fail("the killed lab")?;
    let before = files(&served.dir().join("out/cells"))?;
    demand(before.len() == 2, "steps before", before.len())?;
    served.ashlar.done(&["lab", "run", "--resume", "out", "--destroy", VOLUME, "--json"])?;
    let after = files(&served.dir().join("out/cells"))?;
    demand(
        after.len() == 4 && before.iter().all(|cell| after.contains(cell)),
        "what was measured is left alone",
        after.len(),
    )?;
    check_states(&result(&served)?, "reads", "\"PASS")?;
    check_whole(&mut served)
}

const OVER_NVME: &str = "about = \"a test\"\nfor_publication = false\n\
    [[test]]\nname = \"fill\"\nkind = \"fill\"\naccess = \"sequential\"\nreads = 0\nblock = \"1M\"\n\
    [[test]]\nname = \"mix\"\nkind = \"load\"\naccess = \"random\"\nreads = 70\nblock = \"4K\"\nthreads = [2]\n\
    depth = [100]\nseconds = 3\nramp = 1\n\
    [[test]]\nname = \"curve\"\nkind = \"curve\"\naccess = \"random\"\nreads = 100\nblock = \"4K\"\ndepth = [8]\n\
    seconds = 2\npercents = [20]\n\
    [[test]]\nname = \"states\"\nkind = \"states\"\naccess = \"random\"\nreads = 100\nblock = \"4K\"\nseconds = 2\n\
    [[test]]\nname = \"check\"\nkind = \"check\"\naccess = \"sequential\"\nreads = 100\nblock = \"1M\"\n";

fn nvme_tcp(lab: &Lab) -> Result<()> {
    let mut served = lab.array("a", "5", DRIVES, VOLUME_SIZE)?;
    served.server = Server::new(&served.ashlar).with_flags(&["--nvme", "tcp:127.0.0.1:0", "--allow-any"]);
    served.server.start()?;
    fs::write(served.dir().join("over.toml"), OVER_NVME).or_fail("the suite")?;
    let all = served.ashlar.json(&["status"])?;
    let address = all["nvme"][0].as_str().and_then(|a| a.strip_prefix("tcp:"));
    let address = address.ok_or_else(|| Failure::new("ashlar status", format!("no NVMe/TCP address: {all}")))?;
    let uri = format!("nvme+tcp://{address}");
    // The one namespace of the one subsystem is found, and its own name is asked for.
    let args = ["lab", "run", "over.toml", &uri, "--out", "out", "--json"];
    let refused = served.ashlar.run(&args)?;
    let refused = refused.out + &refused.err;
    let after = refused.split("--destroy ").nth(1).unwrap_or_default();
    let serial = after.split(['"', ' ', '\n']).next().unwrap_or_default();
    demand(serial.starts_with("nqn.") && serial.ends_with("/1"), "the serial that is asked for", &refused)?;
    let another = ["--destroy", "nqn.2014-08.org.x:y/1"];
    served.ashlar.run(&[&args[..], &another].concat())?.expect(3)?;
    served.ashlar.done(&[&args[..], &["--destroy", serial]].concat())?;
    let result = result(&served)?;
    let cells = result["cells"].as_array().cloned().unwrap_or_default();
    demand(cells.len() == 4, "cells", cells.len())?;
    for cell in &cells {
        let what = format!("cell {}", cell["id"]);
        let figures = &cell["figures"];
        demand(figures["iops"].as_f64().is_some_and(|n| n > 10.0), &what, figures)?;
        demand(figures["latency"]["p50_us"].is_f64() && figures["latency"]["max_us"].is_f64(), &what, figures)?;
        demand(gate(cell, "errors").starts_with("\"PASS"), &what, gate(cell, "errors"))?;
        let command = cell["command"].as_str().unwrap_or_default();
        demand(command.contains("--export=nvme+tcp://") && command.contains("nsid=1"), &what, command)?;
        if cell["test"] != "fill" {
            demand(gate(cell, "written").starts_with("\"PASS"), &what, gate(cell, "written"))?;
            demand(cell["series"].as_array().is_some_and(|s| s.len() >= 2), &what, &cell["series"])?;
        }
    }
    let mix = &cells[1]["figures"];
    let (reads, writes) = (mix["read"]["iops"].as_f64(), mix["write"]["iops"].as_f64());
    let share = reads.zip(writes).map_or(0.0, |(reads, writes)| reads / (reads + writes));
    demand((0.6..0.8).contains(&share), "seven of ten read", share)?;
    demand(
        gate(&cells[3], "achieved").starts_with("\"PASS"),
        "a fifth of the largest rate is served",
        &cells[3]["figures"],
    )?;
    demand(
        result["system"].to_string().contains("serial"),
        "the controller's serial number is told",
        &result["system"],
    )?;
    let not_run = result["not_run"].to_string();
    demand(not_run.contains("nothing controls") && not_run.contains("does not verify"), "what is not run", &not_run)?;
    // What has been measured is not measured again.
    let before = files(&served.dir().join("out/cells"))?;
    served.ashlar.done(&["lab", "run", "--resume", "out", "--json"])?;
    demand(files(&served.dir().join("out/cells"))? == before, "a run that is whole stays as it is", before.len())?;
    served.server.stop()?;
    served.ashlar.run(&["check", ARRAY])?.expect(0).map(drop)
}

const MODELLED: &str = "about = \"a test\"\nfor_publication = false\n\
    [[test]]\nname = \"curve\"\nkind = \"curve\"\naccess = \"random\"\nreads = 100\nblock = \"4K\"\ndepth = [4]\n\
    seconds = 1\npercents = [50, 120]\n\
    [[test]]\nname = \"matrix\"\nkind = \"matrix\"\naccess = \"random\"\nreads = 70\nblock = \"4K\"\nthreads = [2]\n\
    depth = [1, 2]\nseconds = 1\n\
    [[test]]\nname = \"states\"\nkind = \"states\"\naccess = \"random\"\nreads = 0\nblock = \"4K\"\ndepth = [64]\n\
    seconds = 1\n";

fn modelled(lab: &Lab) -> Result<()> {
    let ashlar = Ashlar::new(&lab.program, &lab.dir);
    fs::write(lab.dir.join("modelled.toml"), MODELLED).or_fail("the suite")?;
    let target = "model:equal-cost:5x512M,raid=5";
    let run = ["lab", "run", "modelled.toml", target, "--json", "--out"];
    let args = |out| run.iter().copied().chain([out]).collect::<Vec<&str>>();
    ashlar.done(&args("whole"))?;
    let whole = files(&lab.dir.join("whole/cells"))?;
    demand(whole.len() == 6, "steps", whole.len())?;
    // Stopped after its third step.
    let mut child = Killed(ashlar.command(&args("halves")).stdout(Stdio::null()).spawn().or_fail("ashlar lab")?);
    let begun = Instant::now();
    while files(&lab.dir.join("halves/cells")).map_or(0, |f| f.len()) < 3 {
        demand(begun.elapsed() < MODEL_MAX, "three steps", format!("{:?}", begun.elapsed()))?;
        std::thread::sleep(Duration::from_millis(5));
    }
    child.0.kill().or_fail("SIGKILL")?;
    child.0.wait().or_fail("the killed lab")?;
    let before = files(&lab.dir.join("halves/cells"))?;
    demand(before.len() < whole.len(), "it was stopped on its way", before.len())?;
    ashlar.done(&["lab", "run", "--resume", "halves", "--json"])?;
    let halves = files(&lab.dir.join("halves/cells"))?;
    demand(halves == whole, "the same cells, byte by byte", halves.len())?;
    let text = fs::read_to_string(lab.dir.join("whole/result.json")).or_fail("result.json")?;
    let result: Value = serde_json::from_str(&text).or_fail("result.json")?;
    let cells = result["cells"].as_array().cloned().unwrap_or_default();
    let states: Vec<&str> = cells.iter().filter_map(|c| c["subject"]["state"].as_str()).collect();
    demand(states.ends_with(&["optimal", "degraded", "rebuilding"]), "states", format!("{states:?}"))?;
    let half = cells.iter().find(|c| c["part"]["percent"] == 50).cloned().unwrap_or_default();
    demand(gate(&half, "achieved").starts_with("\"PASS"), "half of the largest rate is served", gate(&half, "achieved"))
}

/// Names and bytes of the JSON in a directory.
fn files(dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = vec![];
    for entry in fs::read_dir(dir).or_fail("cells")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".json") {
            found.push((name, fs::read(entry.path()).or_fail("a cell")?));
        }
    }
    found.sort();
    Ok(found)
}

/// A child that does not outlive its case.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}
