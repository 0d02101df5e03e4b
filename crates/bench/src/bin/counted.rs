//! How many instructions a request costs, counted by valgrind: the same on a busy machine as on an idle one.
//!
//!     counted                 counts, and compares with `counted.toml`; off by more than 3 %: exit code 1
//!     counted --write FILE    writes what was counted into FILE
//!     counted --run LOAD N    what runs under valgrind: N requests of a load
//!
//! A load is run with two numbers of requests, and the difference is divided: what is made before them does not count. The
//! array lies over eight memory drives in virtual time, so that neither kernel nor clock takes part; what the drives
//! copy is in the count. Valgrind knows AVX2 and nothing newer, and glibc is told to copy in one way on every machine.

// It runs valgrind: a process is its subject.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::{Command, ExitCode};

use bench::generate::{fill, generate};
use bench::{Load, Pattern, Subject, Until, drives};
use ondisk::Level;
use rt::Rt;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What was counted when it was last looked at: instructions of a request.
const COUNTED: &str = include_str!("../../counted.toml");
/// Off by more than this is a failure, in either direction: what has become cheaper is written down.
const SHARE_MAX: f64 = 0.03;

const DRIVES: usize = 8;
const DRIVE_BYTES: u64 = 96 << 20;
const ZONE_BLOCKS: u32 = 256;
const WORKING_SET: u64 = 16 << 20;
/// One way of copying, which does not go by the size of a cache.
const COPIES: &str = "glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000:\
                      glibc.cpu.x86_non_temporal_threshold=0x40000000:glibc.cpu.hwcaps=-ERMS,-FSRM";

/// A load, by its name: on the drives alone or on RAID 5 7+1.
struct Counted {
    name: &'static str,
    subject: Subject,
    load: Load,
    /// The smaller number of requests; the larger is three times that.
    requests: u64,
}

fn all() -> Vec<Counted> {
    let array = Subject::Level { level: Level::Raid5, width: Some(DRIVES) };
    let one = |name, subject, pattern, block_bytes, depth, requests| {
        let load = Load::new(pattern, block_bytes, depth);
        Counted { name, subject, load, requests }
    };
    vec![
        one("direct-4k-random-read", Subject::Direct, Pattern::RANDOM_READ, 4096, 64, 4000),
        one("direct-4k-random-write", Subject::Direct, Pattern::RANDOM_WRITE, 4096, 64, 4000),
        one("raid5-4k-random-read", array, Pattern::RANDOM_READ, 4096, 64, 4000),
        one("raid5-4k-random-write", array, Pattern::RANDOM_WRITE, 4096, 64, 4000),
        one("raid5-4k-random-write-alone", array, Pattern::RANDOM_WRITE, 4096, 1, 1000),
        one("raid5-128k-sequential-read", array, Pattern::SEQUENTIAL_READ, 128 << 10, 16, 400),
        one("raid5-128k-sequential-write", array, Pattern::SEQUENTIAL_WRITE, 128 << 10, 16, 400),
    ]
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["--run", name, requests] => run(name, requests).map(|()| true),
        ["--write", file] => count().and_then(|counted| Ok(write(file, &counted)?)),
        [] => count().and_then(|counted| compare(&counted)),
        _ => Err("usage: counted [--write FILE | --run LOAD REQUESTS]".into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("counted: {error}");
            ExitCode::from(2)
        }
    }
}

/// Carries a load out.
fn run(name: &str, requests: &str) -> Outcome<()> {
    let all = all();
    let what = all.iter().find(|c| c.name == name).ok_or("unknown load")?;
    let until = Until::Requests(requests.parse()?);
    let rt = Rt::modelled(1);
    rt.block_on(async {
        let drives = drives::memory(&rt, DRIVES, DRIVE_BYTES).await?;
        let target = what.subject.make(&rt, &drives, Some(ZONE_BLOCKS), WORKING_SET).await?;
        fill(&rt, &target, WORKING_SET).await?;
        let sample = generate(&rt, &target, &what.load, 0..WORKING_SET, until, 1).await?;
        println!("{} requests", sample.requests);
        target.close().await?;
        Ok(())
    })
}

/// Instructions of a request, load by load.
fn count() -> Outcome<BTreeMap<String, f64>> {
    let mut counted = BTreeMap::new();
    for what in all() {
        let (few, many) = (what.requests, 3 * what.requests);
        let instructions = instructions(what.name, many)?.saturating_sub(instructions(what.name, few)?);
        counted.insert(what.name.to_owned(), (instructions as f64 / (many - few) as f64).round());
    }
    Ok(counted)
}

/// All instructions of a run.
fn instructions(name: &str, requests: u64) -> Outcome<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe()?).args(["--run", name, &requests.to_string()]);
    let out = command.env("GLIBC_TUNABLES", COPIES).output().map_err(|e| format!("valgrind: {e}"))?;
    let text = String::from_utf8_lossy(&out.stderr);
    let told = text.lines().find_map(|line| line.split_once("refs:")).map(|(_, number)| number.trim().replace(',', ""));
    match told.and_then(|number| number.parse().ok()).filter(|_| out.status.success()) {
        Some(number) => Ok(number),
        None => Err(format!("{name}: {}\n{text}", out.status).into()),
    }
}

/// The table, for people; whether all is as it was.
fn compare(counted: &BTreeMap<String, f64>) -> Outcome<bool> {
    let known: BTreeMap<String, f64> = toml::from_str(COUNTED)?;
    let (mut passed, mut failed) = (0, 0);
    println!("instructions of a request         was       is");
    for (name, is) in counted {
        let was = known.get(name).copied().unwrap_or(0.0);
        let off = is / was - 1.0;
        let good = off.abs() <= SHARE_MAX;
        println!("{name:<28} {was:>8} {is:>8}  {:+.1} %{}", off * 100.0, if good { "" } else { "  FAILED" });
        *(if good { &mut passed } else { &mut failed }) += 1;
    }
    println!("{passed} passed, {failed} failed");
    if failed > 0 {
        println!("if that is intended: counted --write crates/bench/counted.toml, and say why in the commit");
    }
    Ok(failed == 0)
}

fn write(file: &str, counted: &BTreeMap<String, f64>) -> std::io::Result<bool> {
    let lines: String = counted.iter().map(|(name, n)| format!("{name} = {n:.1}\n")).collect();
    let head = "# Instructions of a request under valgrind: made by `counted --write`, compared by `counted`.\n";
    std::fs::write(file, head.to_owned() + &lines)?;
    Ok(true)
}
