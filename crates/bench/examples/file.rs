//! IOPS for each second of CPU time of 4 KiB random reads of a file by O_DIRECT: our generator and runtime beside fio's
//! io_uring engine, at the same depth, in turn.
//!
//!     cargo run --release -p bench --example file -- DIRECTORY
//!
//! fio submits and collects 16 at a time. Its CPU time is what it says of itself; ours is this process's.

// It runs fio: a process is its subject.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bench::generate::fill;
use bench::stripe::Stripe;
use bench::{Load, Pattern, Target, Until, generate};
use rt::{Drive, OpenDrive, Rt};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BYTES: u64 = 1 << 30;
const DEPTH: usize = 64;
const SECONDS: u64 = 4;
const ROUNDS: usize = 5;

fn main() -> Outcome<()> {
    let directory = std::env::args().nth(1).ok_or("name a directory on a disk")?;
    let path = Path::new(&directory).join("ashlar-bench-file");
    fs::File::create(&path)?.set_len(BYTES)?;
    let measured = measure(&path);
    fs::remove_file(&path)?;
    measured
}

fn measure(path: &Path) -> Outcome<()> {
    let rt = Rt::real()?;
    let name = path.to_string_lossy().into_owned();
    let target = rt.block_on(async {
        let drive = Drive::open(&rt, path, OpenDrive { read_only: false, lock: false }).await?;
        let target = Target::Direct(Stripe::new(vec![drive])?);
        fill(&rt, &target, BYTES).await?;
        Ok::<_, Box<dyn Error>>(target)
    })?;
    let mut all = [vec![], vec![]];
    for round in 0..ROUNDS {
        all[0].push(ours(&rt, &target, round as u64)?);
        all[1].push(fio(&name)?);
    }
    let [ours, fio] = all.map(|mut rounds| {
        rounds.sort_by(|a: &Rate, b| a.per_cpu_second.total_cmp(&b.per_cpu_second));
        rounds[ROUNDS / 2]
    });
    println!("                kIOPS   kIOPS for a second of CPU time");
    println!("Ashlar      {:>9.1} {:>9.1}", ours.iops / 1e3, ours.per_cpu_second / 1e3);
    println!("fio io_uring{:>9.1} {:>9.1}", fio.iops / 1e3, fio.per_cpu_second / 1e3);
    println!("Ashlar : fio{:>9.2} {:>9.2}", ours.iops / fio.iops, ours.per_cpu_second / fio.per_cpu_second);
    Ok(())
}

#[derive(Clone, Copy)]
struct Rate {
    iops: f64,
    per_cpu_second: f64,
}

fn ours(rt: &Rt, target: &Target, seed: u64) -> Outcome<Rate> {
    let load = Load::new(Pattern::RANDOM_READ, 4096, DEPTH);
    let until = Until::Elapsed { time: Duration::from_secs(SECONDS), bytes_max: u64::MAX };
    let before = cpu_seconds()?;
    let sample = rt.block_on(generate(rt, target, &load, 0..BYTES, until, seed))?;
    let requests = sample.requests as f64;
    Ok(Rate { iops: requests / sample.elapsed.as_secs_f64(), per_cpu_second: requests / (cpu_seconds()? - before) })
}

/// CPU time of this process, the kernel's for it included, in seconds.
fn cpu_seconds() -> Outcome<f64> {
    let mut ns = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        let account = fs::read_to_string(thread?.path().join("schedstat"))?;
        ns += account.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(ns as f64 / 1e9)
}

fn fio(file: &str) -> Outcome<Rate> {
    let output = Command::new("fio")
        .args(["--name=f", "--ioengine=io_uring", "--direct=1", "--rw=randread", "--bs=4k", "--output-format=json"])
        .args(["--iodepth_batch_submit=16", "--iodepth_batch_complete_min=1", "--iodepth_batch_complete_max=16"])
        .arg(format!("--iodepth={DEPTH}"))
        .arg(format!("--runtime={SECONDS}"))
        .args(["--time_based", "--norandommap", "--random_generator=tausworthe64"])
        .arg(format!("--filename={file}"))
        .arg(format!("--size={BYTES}"))
        .output()?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let job = &json["jobs"][0];
    let number = |v: &serde_json::Value| v.as_f64().ok_or("fio says no number");
    let iops = number(&job["read"]["iops"])?;
    let busy = (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0;
    Ok(Rate { iops, per_cpu_second: iops / busy })
}
