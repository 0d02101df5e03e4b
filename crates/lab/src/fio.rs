//! fio: one cell is one call. What is pinned for every cell, and why:
//!
//! | option | why |
//! |---|---|
//! | `time_based`, `runtime`, `ramp_time` | a job ends by time, never because the file was read once |
//! | `norandommap`, `randrepeat=0` | no map of a large range in memory; no two cells with the same addresses |
//! | `refill_buffers` | a drive cannot compress or merge what is written, but for the shares that the suite states |
//! | `group_reporting` | bins of all threads are merged by fio |
//! | `lat_percentiles`, but with histograms in the logs | bins from the call to the answer: requests that end while they are handed over take no time otherwise |
//! | `continue_on_error` | one request that fails is counted, and fails the cell; the others are still measured |
//! | `allow_file_create=0` | a name with a slip in it makes no file in /dev |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::model::{Access, Load};
use crate::suite::CHECKSUM_BYTES;
use crate::target::{Kind, Target};

/// fio as it is on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fio {
    /// The program.
    pub program: PathBuf,
    /// "fio-3.33".
    pub version: String,
    engines: Vec<String>,
}

/// How long, and how fast at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds before that.
    pub ramp_seconds: f64,
    /// Requests a second of all threads together.
    pub iops_max: Option<f64>,
    /// Ends when the range was gone through once, however long it takes.
    pub once: bool,
    /// Ends when so many bytes were written, or its seconds are over.
    pub bytes: Option<u64>,
    /// Between two histograms of latency in the logs, whose times are then those of day.
    pub histogram_seconds: Option<u32>,
}

/// A load on a target.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// On what.
    pub target: &'a Target,
    /// Which.
    pub load: &'a Load,
    /// How long and how fast.
    pub pace: Pace,
    /// Which of the load's hosts makes it, from 0.
    pub host: u32,
}

impl Fio {
    /// Looks for it.
    ///
    /// # Errors
    /// When it is not there, or does not answer.
    pub fn find() -> Result<Fio, Error> {
        let program = PathBuf::from(std::env::var_os("ASHLAR_FIO").unwrap_or_else(|| "fio".into()));
        let ask = |arg: &str| {
            let out = Command::new(&program).arg(arg).output();
            out.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).map_err(|e| Error::Program {
                program: program.display().to_string(),
                why: format!("{e}; install the package fio, or name it in ASHLAR_FIO"),
            })
        };
        let version = ask("--version")?.trim().to_owned();
        let engines = ask("--enghelp")?.lines().skip(1).map(|l| l.trim().to_owned()).collect();
        Ok(Fio { program, version, engines })
    }

    /// Its engine for a target.
    ///
    /// # Errors
    /// When this fio has none.
    pub fn engine(&self, kind: Kind) -> Result<&'static str, Error> {
        let wanted: &[&str] = match kind {
            Kind::Nbd => &["nbd"],
            Kind::Nvme | Kind::Model => &[],
            Kind::File | Kind::Block => &["io_uring", "libaio"],
        };
        let has =
            |name: &&&str| self.engines.iter().any(|e| e == **name) && (**name != "io_uring" || io_uring_allowed());
        match wanted.iter().find(has).copied() {
            Some("nbd") => Ok("nbd"),
            Some("io_uring") => Ok("io_uring"),
            Some("libaio") => Ok("libaio"),
            Some(_) | None => Err(Error::Program {
                program: self.version.clone(),
                why: format!("it has no engine for {kind:?}: {}", wanted.join(" or ")),
            }),
        }
    }

    /// The arguments of one cell on this machine; `dir` takes what fio writes.
    ///
    /// # Errors
    /// When this fio has no engine for the target.
    pub fn arguments(&self, job: &Job<'_>, dir: &Path) -> Result<Vec<String>, Error> {
        Ok(arguments_of(&[self.options(job, &dir.join("log"))?], job.load, dir))
    }

    /// What a job is, as lines of a job file; `log` is the beginning of its logs' names.
    ///
    /// # Errors
    /// When this fio has no engine for the target.
    pub fn options(&self, job: &Job<'_>, log: &Path) -> Result<Vec<String>, Error> {
        let Job { target, load, pace, .. } = *job;
        let mut lines: Vec<String> = vec![
            format!("rw={}", mode(load)),
            format!("bs={}", block(load)),
            format!("iodepth={}", load.depth.unwrap_or(1).max(1)),
            format!("numjobs={}", threads(load)),
            "thread".into(),
            "group_reporting".into(),
            "norandommap".into(),
            "randrepeat=0".into(),
            "log_avg_msec=1000".into(),
            format!("write_iops_log={}", log.display()),
            format!("write_lat_log={}", log.display()),
            "per_job_logs=0".into(),
        ];
        match pace.histogram_seconds {
            None => lines.extend(["lat_percentiles=1".into(), "clat_percentiles=0".into()]),
            Some(seconds) => {
                lines.push(format!("write_hist_log={}", log.display()));
                lines.push(format!("log_hist_msec={}", 1000 * u64::from(seconds)));
            }
        }
        if pace.histogram_seconds.is_some() || load.hosts.is_some() {
            lines.push("log_unix_epoch=1".into());
        }
        lines.extend(self.place(target, load.cached == Some(true))?);
        lines.extend(job.range());
        lines.extend(load.writes().then(|| "refill_buffers".into()));
        if let Some(shares) = load.reducible.filter(|_| load.writes()) {
            lines.push(format!("dedupe_percentage={}", shares.duplicate_percent));
            lines.push(format!("buffer_compress_percentage={}", shares.compressible_percent));
        }
        lines.extend(load.fsync.filter(|_| load.writes()).map(|writes| format!("fsync={writes}")));
        if let Some(percent) = load.read_percent.filter(|p| *p > 0.0 && *p < 100.0) {
            lines.push(format!("rwmixread={percent:.0}"));
        }
        if load.checksums && (load.writes() || pace.once) {
            lines.extend(["verify=crc32c".into(), format!("verify_interval={CHECKSUM_BYTES}")]);
            // It would be left wherever the lab was called.
            lines.push("verify_state_save=0".into());
            // Writes only leave checksums.
            lines.extend(load.writes().then(|| "do_verify=0".into()));
        }
        // Errors are counted, and fail the cell: the load goes on. A check counts every block that does not match, too.
        let checks = load.checksums && pace.once && !load.writes();
        lines.push(if checks { "continue_on_error=all" } else { "continue_on_error=io" }.into());
        lines.extend((load.cached == Some(true) && load.warm).then(|| "invalidate=0".into()));
        if pace.once {
            lines.extend(load.writes().then(|| "end_fsync=1".into()));
        } else if let Some(bytes) = pace.bytes {
            // Each thread writes its part.
            lines.push(format!("io_size={}", (bytes / u64::from(threads(load))).max(block(load))));
            lines.push(format!("runtime={}", pace.seconds.ceil()));
        } else {
            lines.push("time_based".into());
            lines.push(format!("runtime={}", pace.seconds.ceil()));
            lines.push(format!("ramp_time={}", pace.ramp_seconds.ceil()));
        }
        if let Some(iops) = pace.iops_max {
            let times = load.hosts.unwrap_or(1).max(1) * load.targets.unwrap_or(1).max(1);
            lines.push(rate_of(load, iops / f64::from(threads(load)) / f64::from(times)));
        }
        Ok(lines)
    }

    /// Where a target is, and by which engine.
    ///
    /// # Errors
    /// When this fio has none for it.
    pub fn place(&self, target: &Target, cached: bool) -> Result<Vec<String>, Error> {
        let engine = format!("ioengine={}", self.engine(target.kind)?);
        Ok(match target.kind {
            Kind::File | Kind::Block => vec![
                engine,
                // fio takes a colon in a file name for the end of it.
                format!("filename={}", target.name.replace(':', "\\:")),
                format!("direct={}", u8::from(!cached)),
                "allow_file_create=0".to_owned(),
            ],
            Kind::Nbd => vec![engine, format!("uri={}", target.name)],
            // No engine was found above.
            Kind::Nvme | Kind::Model => vec![],
        })
    }

    /// The whole command as people would type it.
    pub fn command_line(&self, args: &[String]) -> String {
        command_line(&self.program, args)
    }
}

/// A program and its arguments as people would type them.
pub fn command_line(program: &Path, args: &[String]) -> String {
    let quoted = args.iter().map(|a| {
        if a.contains([' ', '?', '&', '\\', '\'']) { format!("'{}'", a.replace('\'', "'\\''")) } else { a.clone() }
    });
    format!("{} {}", program.display(), quoted.collect::<Vec<_>>().join(" "))
}

/// The arguments of a call with these jobs at once; each is reported on its own.
pub fn arguments_of(jobs: &[Vec<String>], load: &Load, dir: &Path) -> Vec<String> {
    let mut args: Vec<String> = frame(dir).into();
    args.extend(["--eta=always".to_owned(), "--eta-interval=1000ms".to_owned()]);
    // fio would make a file longer before it reads it.
    args.extend((!load.writes()).then(|| "--readonly".to_owned()));
    for (nth, options) in jobs.iter().enumerate() {
        args.push(if jobs.len() > 1 { format!("--name=target-{}", nth + 1) } else { "--name=cell".to_owned() });
        args.extend(options.iter().map(|option| format!("--{option}")));
        args.extend((nth > 0).then(|| "--new_group".to_owned()));
    }
    args
}

/// Where a call's result goes.
pub fn frame(dir: &Path) -> [String; 2] {
    ["--output-format=json+".to_owned(), format!("--output={}", dir.join("fio.json").display())]
}

impl Job<'_> {
    /// What of the target it works on.
    fn range(&self) -> Vec<String> {
        let (load, block) = (self.load, block(self.load));
        let (offset, range) = (load.offset_bytes.unwrap_or(0), load.range_bytes.unwrap_or(self.target.bytes));
        let hosts = load.hosts.unwrap_or(1).max(1);
        // Sequential threads get a part of the range each: otherwise all but one read what the first just read.
        let parts = u64::from(hosts) * u64::from(threads(load));
        let apart = load.access == Some(Access::Sequential) && parts > 1;
        let size = if apart { range / parts / block * block } else { range / block * block };
        let first = if apart { offset + u64::from(self.host * threads(load)) * size } else { offset };
        let mut lines = vec![format!("offset={first}"), format!("size={size}")];
        lines.extend(apart.then(|| format!("offset_increment={size}")));
        lines
    }
}

fn threads(load: &Load) -> u32 {
    load.threads.unwrap_or(1).max(1)
}

fn block(load: &Load) -> u64 {
    load.block_bytes.unwrap_or(4096)
}

/// fio's word for a load.
fn mode(load: &Load) -> &'static str {
    match (load.access, load.read_percent) {
        (Some(Access::Sequential), Some(100.0)) => "read",
        (Some(Access::Sequential), Some(0.0)) => "write",
        (Some(Access::Sequential), _) => "rw",
        (_, Some(100.0)) => "randread",
        (_, Some(0.0)) => "randwrite",
        (_, _) => "randrw",
    }
}

/// The rate of one thread; of a mix both directions have their own.
fn rate_of(load: &Load, iops: f64) -> String {
    let reads = load.read_percent.unwrap_or(100.0) / 100.0;
    let share = |part: f64| ((iops * part).round() as u64).max(1);
    match (load.reads(), load.writes()) {
        (true, true) => format!("rate_iops={},{}", share(reads), share(1.0 - reads)),
        (true, false) | (false, true) | (false, false) => format!("rate_iops={}", share(1.0)),
    }
}

/// Whether the kernel lets programs have a ring.
fn io_uring_allowed() -> bool {
    fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|t| t.trim() == "0")
        || !Path::new("/proc/sys/kernel/io_uring_disabled").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fio() -> Fio {
        Fio { program: "fio".into(), version: "fio-3.33".into(), engines: vec!["libaio".into(), "nbd".into()] }
    }

    fn load() -> Load {
        Load {
            access: Some(Access::Random),
            read_percent: Some(70.0),
            block_bytes: Some(8192),
            threads: Some(4),
            depth: Some(8),
            ..Load::default()
        }
    }

    fn pace() -> Pace {
        Pace { seconds: 5.0, ramp_seconds: 1.0, iops_max: None, once: false, bytes: None, histogram_seconds: None }
    }

    #[test]
    fn a_cell_is_one_call() {
        let target = Target::look("/no-such-place/a:b", Some(1 << 30)).unwrap();
        let with = |load: &Load, pace| {
            let job = Job { target: &target, load, pace, host: 0 };
            fio().arguments(&job, Path::new("/d")).unwrap().join(" ")
        };
        let args = with(&load(), pace());
        for part in [
            "--rw=randrw",
            "--rwmixread=70",
            "--direct=1",
            "--time_based",
            "--refill_buffers",
            "a\\:b",
            "--ioengine=libaio",
            "--size=1073741824",
        ] {
            assert!(args.contains(part), "{part}: {args}");
        }
        let limited = with(&load(), Pace { iops_max: Some(4000.0), ..pace() });
        assert!(limited.contains("--rate_iops=700,300"), "{limited}");
        let sequential =
            Load { access: Some(Access::Sequential), read_percent: Some(100.0), cached: Some(true), ..load() };
        let args = with(&sequential, pace());
        assert!(args.contains("--size=268435456 --offset_increment=268435456"), "{args}");
        assert!(args.contains("--direct=0") && !args.contains("refill"), "{args}");
        let fill = Load { read_percent: Some(0.0), threads: Some(1), ..sequential };
        let args = with(&fill, Pace { once: true, ..pace() });
        assert!(!args.contains("time_based") && args.contains("--rw=write"), "{args}");
    }

    #[test]
    fn hosts_share_a_rate_and_a_sequential_range() {
        let target = Target::look("/no-such-place/a", Some(1 << 30)).unwrap();
        let load = Load { access: Some(Access::Sequential), hosts: Some(2), ..load() };
        let lines = |host| {
            let pace = Pace { iops_max: Some(8000.0), ..pace() };
            fio().options(&Job { target: &target, load: &load, pace, host }, Path::new("/d")).unwrap().join(" ")
        };
        assert!(lines(0).contains("offset=0 size=134217728 offset_increment=134217728"), "{}", lines(0));
        assert!(lines(1).contains("offset=536870912 size=134217728"), "{}", lines(1));
        assert!(lines(1).contains("rate_iops=700,300") && lines(1).contains("log_unix_epoch=1"), "{}", lines(1));
    }

    #[test]
    fn flushes_follow_writes_only() {
        let target = Target::look("/no-such-place/a", Some(1 << 30)).unwrap();
        let of = |load: &Load| {
            fio().options(&Job { target: &target, load, pace: pace(), host: 0 }, Path::new("/d")).unwrap()
        };
        let writes = Load { read_percent: Some(0.0), fsync: Some(4), ..load() };
        assert!(of(&writes).contains(&"fsync=4".to_owned()));
        for load in [Load { fsync: None, ..writes.clone() }, Load { read_percent: Some(100.0), ..writes }] {
            assert!(!of(&load).iter().any(|line| line.starts_with("fsync")), "{load:?}");
        }
    }

    #[test]
    fn targets_share_a_rate_and_a_warm_cache_is_kept() {
        let target = Target::look("/no-such-place/a", Some(1 << 30)).unwrap();
        let lines = |load: &Load, pace| {
            fio().options(&Job { target: &target, load, pace, host: 0 }, Path::new("/d")).unwrap().join(" ")
        };
        let load = Load { targets: Some(8), ..load() };
        let limited = lines(&load, Pace { iops_max: Some(32_000.0), ..pace() });
        assert!(limited.contains("rate_iops=700,300"), "{limited}");
        let cached = Load { cached: Some(true), ..load.clone() };
        assert!(!lines(&cached, pace()).contains("invalidate"), "fio drops it");
        assert!(lines(&Load { warm: true, ..cached }, pace()).contains("invalidate=0"));
        let twice = lines(&load, Pace { bytes: Some(2 << 30), ..pace() });
        assert!(twice.contains("io_size=536870912 runtime=5") && !twice.contains("time_based"), "{twice}");
    }

    #[test]
    fn an_export_is_asked_by_its_address() {
        let target = Target::look("nbd+unix:///v?socket=/tmp/s", Some(1 << 20)).unwrap();
        let job = Job { target: &target, load: &load(), pace: pace(), host: 0 };
        let args = fio().arguments(&job, Path::new("/d")).unwrap();
        assert!(args.contains(&"--uri=nbd+unix:///v?socket=/tmp/s".to_owned()));
        assert!(!args.iter().any(|a| a.starts_with("--filename") || a.starts_with("--direct")));
        assert!(fio().command_line(&args).contains("'--uri="));
    }
}
