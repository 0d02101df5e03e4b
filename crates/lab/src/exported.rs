//! `ashlar bench --export` as the engine of NVMe/TCP exports: one cell is one call, as of fio.
//!
//! The generator is one thread with threads x depth requests in flight, over as many queues as these want. It says the
//! rate of every second as fio does, and writes its result into a file.

use std::path::Path;

use serde::Deserialize;

use crate::bench::{DEPTH_MAX, pattern};
use crate::bins::Bins;
use crate::error::Error;
use crate::fio::Pace;
use crate::fio_json::Job;
use crate::model::{Access, Figures, Load, Part, Second, Share};
use crate::target::Target;

/// What of a step it cannot do, if anything.
pub fn refuses(part: Part, load: &Load) -> Option<&'static str> {
    let in_flight = u64::from(load.threads.unwrap_or(1)) * u64::from(load.depth.unwrap_or(1));
    match part {
        Part::Check => Some("the bench does not verify what it reads: attach the namespace, and name its block device"),
        Part::States => Some("the bench keeps no logs to cut: attach the namespace, and name its block device"),
        _ if load.fsync.is_some() => Some("the bench does not flush: attach the namespace, and name its block device"),
        _ if load.cached == Some(true) => Some("the bench has no page cache"),
        _ if load.reducible.is_some() => Some("what the bench writes cannot be reduced"),
        _ if load.access == Some(Access::Sequential) && load.reads() && load.writes() => {
            Some("the bench has no sequential mix")
        }
        _ if in_flight > DEPTH_MAX => Some("more requests in flight than the bench supports"),
        _ => None,
    }
}

/// Where its result goes.
pub fn result_path(dir: &Path) -> std::path::PathBuf {
    dir.join("bench.json")
}

/// The arguments of one cell; `dir` takes the result.
///
/// # Errors
/// When it has no such load.
pub fn arguments(target: &Target, load: &Load, pace: Pace, dir: &Path) -> Result<Vec<String>, Error> {
    let depth = u64::from(load.threads.unwrap_or(1)) * u64::from(load.depth.unwrap_or(1));
    let pattern = pattern(load).map_err(|why| Error::usage(&target.name, why))?;
    let mut args = vec![
        "bench".to_owned(),
        format!("--export={}", target.name),
        format!("--pattern={pattern}"),
        format!("--block={}", load.block_bytes.unwrap_or(4096)),
        format!("--depth={depth}"),
        format!("--offset={}", load.offset_bytes.unwrap_or(0)),
        format!("--working-set={}", load.range_bytes.unwrap_or(target.bytes)),
        format!("--output={}", result_path(dir).display()),
    ];
    if pace.once {
        args.push("--once".to_owned());
    } else {
        args.push(format!("--seconds={}", pace.seconds));
        args.push(format!("--ramp={}", pace.ramp_seconds));
    }
    args.extend(pace.iops_max.map(|iops| format!("--rate={}", (iops.round() as u64).max(1))));
    args.extend(load.writes().then(|| "--force".to_owned()));
    Ok(args)
}

#[derive(Debug, Deserialize)]
struct Report {
    loads: Vec<Told>,
}

#[derive(Debug, Deserialize)]
struct Told {
    seconds: f64,
    max_us: f64,
    read: Side,
    write: Side,
    cpu_share: Option<f64>,
    series: Vec<Second>,
}

#[derive(Debug, Deserialize)]
struct Side {
    requests: u64,
    bytes: u64,
    iops: f64,
    bytes_per_sec: f64,
    mean_us: Option<f64>,
    bins: Vec<(u64, u64)>,
}

impl Side {
    fn share(&self) -> Share {
        let latency = Bins::of(&self.bins).latency(None, None);
        Share::of(self.iops, self.bytes_per_sec, self.mean_us, latency)
    }
}

/// What a call measured, as of fio, and its seconds.
///
/// # Errors
/// When it is no result of the bench.
pub fn parse(text: &str) -> Result<(Job, Vec<Second>), Error> {
    let wrong = |why: &dyn ToString| Error::format("the bench's result", why.to_string());
    let report: Report = serde_json::from_str(text).map_err(|e| wrong(&e))?;
    let Some(told) = report.loads.into_iter().next() else { return Err(wrong(&"it measured nothing")) };
    let mut bins = Bins::of(&told.read.bins);
    bins.merge(&Bins::of(&told.write.bins));
    let sides = [&told.read, &told.write];
    let requests: u64 = sides.iter().map(|s| s.requests).sum();
    let waited: f64 = sides.iter().filter_map(|s| Some(s.mean_us? * s.requests as f64)).sum();
    let any = requests > 0;
    let mix = sides.iter().all(|s| s.requests > 0);
    let figures = Figures {
        iops: any.then(|| sides.iter().map(|s| s.iops).sum()),
        bytes_per_sec: any.then(|| sides.iter().map(|s| s.bytes_per_sec).sum()),
        latency: bins.latency(any.then(|| waited / requests as f64), any.then_some(told.max_us)),
        read: mix.then(|| told.read.share()),
        write: mix.then(|| told.write.share()),
        seconds: Some(told.seconds),
        written_bytes: Some(told.write.bytes),
        cpu_percent: None,
        disk_busy_percent: None,
    };
    let cpu_percent = told.cpu_share.unwrap_or(0.0) * 100.0;
    Ok((Job { figures, bins, cpu_percent, ..Job::default() }, told.series))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "nvme+tcp://127.0.0.1:4420/nqn.a?nsid=1";

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

    #[test]
    fn a_cell_is_one_call() {
        let target = Target::look(NAME, Some(1 << 30)).unwrap();
        let pace = Pace {
            seconds: 5.0,
            ramp_seconds: 1.0,
            iops_max: Some(400.0),
            once: false,
            bytes: None,
            histogram_seconds: None,
        };
        let with = |load: &Load, pace| arguments(&target, load, pace, Path::new("/d")).unwrap().join(" ");
        let args = with(&load(), pace);
        for part in ["--pattern=random-70", "--depth=32", "--seconds=5", "--ramp=1", "--rate=400", "--force"] {
            assert!(args.contains(part), "{part}: {args}");
        }
        let fill = Load { access: Some(Access::Sequential), read_percent: Some(0.0), ..load() };
        let args = with(&fill, Pace { once: true, iops_max: None, ..pace });
        assert!(args.contains("--once") && !args.contains("--seconds") && !args.contains("--rate"), "{args}");
        let reads = Load { read_percent: Some(100.0), ..load() };
        assert!(!with(&reads, pace).contains("--force"));
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        for (part, load) in [
            (Part::Check, load()),
            (Part::States, load()),
            (Part::Alone, Load { cached: Some(true), ..load() }),
            (Part::Alone, Load { access: Some(Access::Sequential), ..load() }),
            (Part::Alone, Load { threads: Some(64), depth: Some(65), ..load() }),
        ] {
            assert!(refuses(part, &load).is_some(), "{part:?} {load:?}");
        }
        assert_eq!(refuses(Part::Alone, &load()), None);
    }

    #[test]
    fn both_directions_become_one_job() {
        let side = |requests: u64, mean: f64, ns: u64| {
            format!(
                r#"{{"requests":{requests},"bytes":{bytes},"iops":{requests},"bytes_per_sec":{bytes},"mean_us":{mean},"bins":[[{ns},{requests}]]}}"#,
                bytes = requests * 4096
            )
        };
        let text = format!(
            r#"{{"loads":[{{"seconds":1.0,"max_us":50.5,"read":{},"write":{},"cpu_share":0.5,"series":[{{"at":1.0,"iops":40.0,"mean_us":2.5}}]}}]}}"#,
            side(30, 2.0, 2000),
            side(10, 4.0, 4000)
        );
        let (job, series) = parse(&text).unwrap();
        let figures = &job.figures;
        assert_eq!(
            (figures.iops, figures.bytes_per_sec, figures.written_bytes),
            (Some(40.0), Some(163_840.0), Some(40_960))
        );
        assert_eq!((figures.latency.mean_us, figures.latency.max_us), (Some(2.5), Some(50.5)));
        assert_eq!((figures.read.map(|s| s.iops), job.bins.count(), job.cpu_percent), (Some(30.0), 40, 50.0));
        assert_eq!(series.len(), 1);
        assert!(parse("{}").is_err() && parse(r#"{"loads":[]}"#).is_err());
    }
}
