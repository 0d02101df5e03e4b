//! How bad is it? What `status`, its JSON, `--check` and the log say while drives fail one after the other.

use std::thread;
use std::time::{Duration, Instant};

use e2e::failure::require;
use e2e::{Failure, OrFail, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Case;
use super::libnbd::nbdsh;
use crate::fixture::{ARRAY, Lab, Served, Traffic};

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "exposure-declustered",
        about: "RAID 5 of width 3 over five drives, which fail one after the other: each step is told apart",
        run: declustered,
    },
    Case {
        name: "exposure-full-width",
        about: "the same of RAID 5, 6 and 10 of full width, also paused",
        run: full_width,
    },
    Case {
        name: "exposure-rebuilding",
        about: "a rebuild under way, paused, and going on: what may fail, alarms, --check",
        run: rebuilding,
    },
    Case { name: "exposure-full", about: "a full array: the alarm, --check, the log, and the end of it", run: full },
    Case { name: "exposure-absent", about: "an array most of whose drives are gone: status, --check", run: absent },
    Case { name: "check-never-hangs", about: "status --check of a server that does not answer", run: silent },
];

const BYTES: u64 = 24 << 20;
/// A rebuild of a few MiB ends within this.
const REBUILT_MAX: Duration = Duration::from_secs(60);

/// What an operator and a script see.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    state: String,
    may_fail: u64,
    check: Option<i32>,
    worst_alarm: Option<String>,
}

fn look(served: &Served) -> Result<Seen> {
    let status = served.ashlar.status(ARRAY)?;
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let worst_alarm = status["alarms"].as_array().and_then(|all| word(&all.first()?["code"]));
    let check = served.ashlar.run(&["status", ARRAY, "--check"])?.code;
    Ok(Seen {
        state: word(&status["state"]).unwrap_or_default(),
        may_fail: status["exposure"]["may_fail"].as_u64().unwrap_or(u64::MAX),
        check,
        worst_alarm,
    })
}

fn seen(state: &str, may_fail: u64, check: i32, alarm: Option<&str>) -> Seen {
    Seen { state: state.to_owned(), may_fail, check: Some(check), worst_alarm: alarm.map(str::to_owned) }
}

fn expect(served: &Served, when: &str, wanted: &Seen) -> Result<()> {
    let found = look(served)?;
    require(found == *wanted, when, || format!("{found:?}, and should be {wanted:?}\n{}", served.server.log_end()))
}

fn until_not(served: &Served, state: &str) -> Result<()> {
    let begun = Instant::now();
    while served.state()? == state {
        if begun.elapsed() > REBUILT_MAX {
            return Err(Failure::new("status", format!("it is {state} for {REBUILT_MAX:?}")));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The log has the alarm, at its level; alarms are looked at every five seconds.
fn logged(served: &Served, level: &str, text: &str) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(12) {
        if served.server.log_end().lines().any(|line| line.contains(level) && line.contains(text)) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
    Err(Failure::new("the log", format!("no {level} line says \"{text}\":\n{}", served.server.log_end())))
}

fn declustered(lab: &Lab) -> Result<()> {
    let mut served = lab.array_of("a", &["--raid", "5", "--width", "3", "--size", "512M"], 5, "48M")?;
    served.server.start()?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    traffic.run(&served, Duration::from_millis(300))?;
    expect(&served, "at first", &seen("optimal", 1, 0, None))?;
    for (drive, alarm) in [(0, "drive_failed"), (1, "no_rebuild_place")] {
        served.ashlar.done(&["rebuild", ARRAY, "pause"])?;
        served.fail(drive)?;
        expect(&served, "one more failed", &seen("degraded", 0, 2, Some("no_redundancy")))?;
        logged(&served, "WARN", &format!("(seat {drive})"))?;
        served.ashlar.done(&["rebuild", ARRAY, "resume"])?;
        until_not(&served, "degraded")?;
        until_not(&served, "rebuilding")?;
        expect(&served, "rebuilt", &seen("rebuilt", 1, 1, Some(alarm)))?;
        traffic.verify(&served)?;
    }
    served.fail(2)?;
    expect(&served, "three failed", &seen("degraded", 0, 2, Some("no_redundancy")))?;
    logged(&served, "ERROR", "no further drive may fail")?;
    traffic.verify(&served)?;
    let text = served.ashlar.done(&["status", ARRAY])?;
    require(!text.contains("seat 2) is"), "status", || text.clone())?;
    require(text.matches("FAILED").count() == 4, "status", || format!("not three rows FAILED, and a sum:\n{text}"))?;
    served.server.stop()
}

fn full_width(lab: &Lab) -> Result<()> {
    for (raid, drives, tolerates) in [("5", 3, 1), ("6", 4, 2), ("10", 4, 1)] {
        let mut served = lab.served(&format!("a{raid}"), raid, drives, "48M")?;
        let mut traffic = Traffic::new(lab, BYTES)?;
        traffic.run(&served, Duration::from_millis(200))?;
        served.ashlar.done(&["rebuild", ARRAY, "pause"])?;
        for lost in 1..=tolerates {
            served.fail(lost - 1)?;
            let left = (tolerates - lost) as u64;
            let (check, alarm) = if left == 0 { (2, "no_redundancy") } else { (1, "degraded") };
            expect(&served, &format!("RAID {raid}, {lost} failed"), &seen("degraded", left, check, Some(alarm)))?;
        }
        traffic.verify(&served)?;
        served.server.stop()?;
    }
    Ok(())
}

/// At a MiB a second a rebuild lasts long enough to be looked at.
fn rebuilding(lab: &Lab) -> Result<()> {
    let mut served = lab.array_of("a", &["--raid", "5", "--width", "3", "--size", "512M"], 5, "48M")?;
    served.server.start()?;
    let mut traffic = Traffic::new(lab, BYTES)?;
    traffic.run(&served, Duration::from_millis(300))?;
    served.ashlar.done(&["rebuild", ARRAY, "--priority", "1M"])?;
    served.fail(0)?;
    until_not(&served, "degraded")?;
    expect(&served, "rebuilding", &seen("rebuilding", 0, 2, Some("no_redundancy")))?;
    served.ashlar.done(&["rebuild", ARRAY, "pause"])?;
    until_not(&served, "rebuilding")?;
    expect(&served, "paused", &seen("degraded", 0, 2, Some("no_redundancy")))?;
    require(codes(&served)?.contains(&"rebuild_paused".to_owned()), "paused", || "no alarm says so".into())?;
    served.ashlar.done(&["rebuild", ARRAY, "resume"])?;
    served.ashlar.done(&["rebuild", ARRAY, "--priority", "high"])?;
    until_not(&served, "degraded")?;
    until_not(&served, "rebuilding")?;
    expect(&served, "rebuilt", &seen("rebuilt", 1, 1, Some("drive_failed")))?;
    traffic.verify(&served)?;
    served.server.stop()
}

/// The codes of all alarms.
fn codes(served: &Served) -> Result<Vec<String>> {
    let status = served.ashlar.status(ARRAY)?;
    let all = status["alarms"].as_array().cloned().unwrap_or_default();
    Ok(all.iter().filter_map(|alarm| alarm["code"].as_str().map(str::to_owned)).collect())
}

fn full(lab: &Lab) -> Result<()> {
    const FILL: &str = "try:\n    for i in range(2000): h.pwrite(bytes([i & 255, 1]) * (1 << 19), i << 20)\n\
                        except nbd.Error as e: assert e.errnum == 28, e.errnum\nelse: assert False";
    let mut served = lab.served("a", "5", 3, "2G")?;
    expect(&served, "at first", &seen("optimal", 1, 0, None))?;
    nbdsh(&served, &served.uri(), FILL)?;
    expect(&served, "full", &seen("optimal", 1, 2, Some("full")))?;
    logged(&served, "ERROR", "no space is left")?;
    nbdsh(&served, &served.uri(), "for i in range(8): h.trim(32 << 20, i << 25)\nh.flush()")?;
    let begun = Instant::now();
    while codes(&served)?.contains(&"full".to_owned()) {
        require(begun.elapsed() < REBUILT_MAX, "given back", || "it is still called full".into())?;
        thread::sleep(Duration::from_millis(100));
    }
    logged(&served, "INFO", "there is space again")?;
    served.server.stop()
}

fn absent(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "6", 5, "16M")?;
    served.server.stop()?;
    // A server that has nothing else to serve does not start.
    served.ashlar.done(&["create", "other", "--raid", "5", "--size", "288M", "e/0", "e/1", "e/2"])?;
    served.remove(&[0, 1, 2, 3, 4])?;
    served.server.start()?;
    let status = served.ashlar.json(&["status"])?;
    let name = &status["absent"][0]["name"];
    require(name == ARRAY, "status --json", || format!("it is not absent: {status}"))?;
    let text = served.ashlar.done(&["status"])?;
    require(text.contains("ABSENT"), "status", || text.clone())?;
    let check = served.ashlar.run(&["status", "--check"])?.expect(2)?;
    require(check.out.starts_with("CRITICAL: lab: absent"), "status --check", || check.out.clone())?;
    logged(&served, "ERROR", "array lab: none of its 5 drives is here")?;
    served.server.stop()?;
    served.put_back(&[0, 1, 2, 3, 4])?;
    served.server.start()?;
    expect(&served, "they are back", &seen("optimal", 2, 0, None))?;
    served.server.stop()
}

fn silent(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "5", 3, "16M")?;
    let pid = served.server.pid().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let pid = pid.ok_or_else(|| Failure::new("the server", "it has no process"))?;
    kill_process(pid, Signal::STOP).or_fail("SIGSTOP")?;
    let begun = Instant::now();
    let ended = served.ashlar.run(&["status", ARRAY, "--check"]);
    let took = begun.elapsed();
    kill_process(pid, Signal::CONT).or_fail("SIGCONT")?;
    let ended = ended?.expect(3)?;
    require(ended.out.starts_with("UNKNOWN"), "status --check", || ended.out.clone())?;
    require(took < Duration::from_secs(20), "status --check", || format!("it took {took:?}"))?;
    served.ashlar.run(&["status", "--check", "--no-such-flag"])?.expect(3)?;
    served.ashlar.run(&["status", "no-such-array", "--check"])?.expect(3)?;
    served.server.stop()
}
