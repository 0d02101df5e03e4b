//! Drives of other sizes than those the array was made of, as sparse files of up to 15 TB.

use std::time::{Duration, Instant};

use e2e::{Failure, Result};
use serde_json::Value;

use super::Case;
use super::libnbd::nbdsh;
use crate::fixture::{ARRAY, DRIVE, Lab, Served, Traffic};

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "sizes-larger",
        about: "spares, replacements and added drives of any larger size are taken",
        run: larger,
    },
    Case { name: "sizes-grow", about: "four drives replaced by twice as large ones: usable grows", run: grow },
    Case { name: "sizes-smaller", about: "a smaller drive is refused where what is stored does not fit", run: smaller },
];

const PATIENCE: Duration = Duration::from_secs(30);

fn expect(holds: bool, what: impl std::fmt::Display) -> Result<()> {
    if holds { Ok(()) } else { Err(Failure::new("the drives' sizes", what)) }
}

/// The member on this drive, once it takes part or stands by alone in its place.
fn member(served: &Served, drive: &str) -> Result<Value> {
    let begun = Instant::now();
    loop {
        let status = served.ashlar.status(ARRAY)?;
        let all = status["members"].as_array().cloned().unwrap_or_default();
        let leaving = all.iter().any(|m| m["state"] == "leaving");
        match all.into_iter().find(|m| m["drive"].as_str().is_some_and(|d| d.ends_with(drive))) {
            Some(member) if !leaving => return Ok(member),
            _ if begun.elapsed() > PATIENCE => {
                return Err(served.server.broken(format!("{drive} is not alone in its place: {status}")));
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// How much of a drive is used.
fn used(served: &Served, drive: &str) -> Result<(u64, u64)> {
    let member = member(served, drive)?;
    Ok((member["bytes"].as_u64().unwrap_or(0), member["bytes_used"].as_u64().unwrap_or(0)))
}

/// Arrays of drives of four sizes; each takes larger ones in all three ways, and all of each, as far as eight times as large.
fn larger(lab: &Lab) -> Result<()> {
    const ROWS: [(&str, &[&str]); 4] = [
        ("960G", &["979G", "1056G", "1200G", "1920G", "3840G", "15360G"]),
        ("1920G", &["2112G", "2400G", "3840G", "7680G"]),
        ("3840G", &["4224G", "4800G", "6400G", "7680G", "15360G"]),
        ("7680G", &["8448G", "9600G", "15360G"]),
    ];
    for (of, sizes) in ROWS {
        let mut served = lab.array_of(of, &["--raid", "5", "--size", of], 3, "1G")?;
        served.server.start()?;
        let mut last = served.drives[0].clone();
        for (nth, size) in sizes.iter().enumerate() {
            let [spare, new, more] = ["s", "r", "g"].map(|way| format!("d/{way}{size}"));
            served.ashlar.done(&["drive", "add", ARRAY, &spare, "--size", size])?;
            let (bytes, all) = used(&served, &spare)?;
            served.ashlar.done(&["drive", "retire", ARRAY, &spare])?;
            served.ashlar.done(&["drive", "replace", ARRAY, &last, &new, "--size", size])?;
            expect(used(&served, &new)? == (bytes, all), format!("{new} is used as {spare}"))?;
            if nth == 0 {
                served.ashlar.done(&["drive", "add", "--grow", ARRAY, &more, "--size", size])?;
                expect(used(&served, &more)? == (bytes, all), format!("{more} is used as {spare}"))?;
            }
            expect(
                bytes == all || (of, *size) == ("960G", "15360G"),
                format!("{all} of {bytes} used, {size} in {of}"),
            )?;
            last = new;
        }
        if of == "960G" {
            let status = served.ashlar.done(&["status", ARRAY])?;
            expect(status.contains("r15360G: 15 TiB, of which"), status)?;
        }
        served.server.stop()?;
        served.ashlar.run(&["check", ARRAY])?.expect(0)?;
    }
    Ok(())
}

/// What volumes may fill.
fn usable(served: &Served) -> Result<u64> {
    Ok(served.ashlar.status(ARRAY)?["usable_bytes"].as_u64().unwrap_or(0))
}

/// Four of 3.84 TB, one by one by 7.68 TB, with a check after each.
fn grow(lab: &Lab) -> Result<()> {
    let mut served = lab.array_of("a", &["--raid", "5", "--size", "3840G"], 4, "48M")?;
    let plan =
        served.ashlar.json(&["create", "b", "--raid", "5", "--dry-run", "--size", "3840G", "x/0", "x/1", "x/2"])?;
    let room = plan["plan"]["largest_drive_bytes"].as_u64().unwrap_or(0);
    expect(room >= 8 * (3840 << 30), format!("room for drives up to {room} bytes"))?;
    served.server.start()?;
    let mut traffic = Traffic::new(lab, 48 << 20)?;
    traffic.run(&served, Duration::from_millis(200))?;
    served.server.stop()?;
    let before = usable(&served)?;
    for drive in 0..4 {
        expect(usable(&served)? == before, "it grows with the last one")?;
        let new = format!("d/large{drive}");
        let verb = ["drive", "replace", ARRAY, &served.drives[drive], &new, "--size", "7680G"];
        let replaced = served.ashlar.run(&verb)?.expect(0)?;
        let said = format!("{}{}", replaced.out, replaced.err);
        expect(said.contains("usable grows from") == (drive == 3), said)?;
        served.ashlar.run(&["check", ARRAY])?.expect(0)?;
    }
    let after = usable(&served)?;
    expect(after * 100 > before * 198, format!("{before} bytes before, {after} after"))?;
    served.ashlar.done(&["volume", "create", "lab/large", "16T"])?;
    served.server.start()?;
    traffic.run(&served, Duration::from_millis(200))?;
    traffic.verify(&served)?;
    served.server.stop()
}

/// What is refused for its size leaves no file; with --force it is taken, and what it costs is said.
fn smaller(lab: &Lab) -> Result<()> {
    let size = "400M";
    let mut served = lab.array_of("a", &["--raid", "5", "--size", size], 3, "1G")?;
    served.server.start()?;
    let before = usable(&served)?;
    let plenty = served.ashlar.run(&["drive", "replace", ARRAY, "d/0", "d/fits", "--size", DRIVE])?.expect(0)?;
    expect(format!("{}{}", plenty.out, plenty.err).contains("usable shrinks from"), plenty.out)?;
    member(&served, "d/fits")?;
    let less = usable(&served)?;
    expect(less < before, format!("{before} bytes before, {less} after"))?;
    served.ashlar.done(&["drive", "replace", ARRAY, "d/fits", "d/again", "--size", size])?;
    member(&served, "d/again")?;
    let mib = (less >> 20) + 20;
    let fill = format!("for i in range({mib}): h.pwrite(bytes([i & 255]) * (1 << 20), i << 20)");
    nbdsh(&served, &served.uri(), &fill)?;
    let refused = served.ashlar.run(&["drive", "replace", ARRAY, "d/1", "d/small", "--size", DRIVE])?.expect(3)?;
    expect(refused.err.contains("are stored"), refused.err)?;
    expect(!served.dir().join("d/small").exists(), "no file is left")?;
    served.ashlar.run(&["drive", "add", ARRAY, "d/small", "--size", DRIVE])?.expect(3)?;
    let forced = served.ashlar.run(&["drive", "add", ARRAY, "d/small", "--size", DRIVE, "--force"])?.expect(0)?;
    expect(format!("{}{}", forced.out, forced.err).contains("smaller than the drives in use"), forced.out)?;
    let again = format!("for i in range({mib}): assert h.pread(1 << 20, i << 20) == bytes([i & 255]) * (1 << 20), i");
    nbdsh(&served, &served.uri(), &again).map(drop)
}
