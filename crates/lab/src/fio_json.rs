//! What fio prints: `--output-format=json` and `json+`. Both directions of a mix and all jobs become one set of
//! figures; latencies are merged by bins where there are bins, and percentiles are told only then or when one job did
//! one direction.

use serde_json::Value;

use crate::bins::Bins;
use crate::error::Error;
use crate::model::{Access, Figures, Latency, Load, Reducible, Share};

/// What one call of fio did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// "fio-3.33".
    pub version: String,
    /// One for each reported job: threads under `group_reporting` are one.
    pub jobs: Vec<Job>,
}

/// What one job did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// The host that made it, and the port of its server, when a client tells.
    pub host: Option<(String, u16)>,
    /// Its load, as far as its options tell.
    pub load: Load,
    /// Its options, with those of all jobs.
    pub options: Vec<(String, String)>,
    /// What came out.
    pub figures: Figures,
    /// Latencies of both directions.
    pub bins: Bins,
    /// Latencies of reads, and of writes.
    pub sides: (Bins, Bins),
    /// Requests that failed, and the first error.
    pub errors: u64,
    /// Requests that were shorter than asked for, or given up.
    pub short: u64,
    /// CPU of the generator, hundredths of one CPU for each thread.
    pub cpu_percent: f64,
    /// Requests a second that were asked for.
    pub asked_iops: Option<f64>,
    /// Seconds that were asked for.
    pub asked_seconds: Option<f64>,
}

/// Reads a file of fio's. Words before the JSON (warnings) are skipped.
///
/// # Errors
/// When there is no result of fio in it.
pub fn parse(text: &str) -> Result<Output, Error> {
    let wrong = |why: &str| Error::format("fio's output", why);
    let start = text.find('{').ok_or_else(|| wrong("it contains no JSON"))?;
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    let root = values.next().ok_or_else(|| wrong("it contains no JSON"))?.map_err(|e| wrong(&e.to_string()))?;
    // A client prints what its servers measured.
    let jobs = root.get("jobs").or(root.get("client_stats")).and_then(Value::as_array);
    let jobs = jobs.ok_or_else(|| wrong("it has no \"jobs\""))?;
    let global = options(root.get("global options"));
    // The sum over all clients would count everything twice.
    let own = jobs.iter().filter(|j| j.get("jobname").and_then(Value::as_str) != Some("All clients"));
    let mut jobs: Vec<Job> = own.map(|job| one(job, &global)).collect();
    let disk_busy_percent = disk_busy(&root);
    jobs.iter_mut().for_each(|j| j.figures.disk_busy_percent = disk_busy_percent);
    let version = root.get("fio version").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Output { version, jobs })
}

/// The busiest disk below the files of a call.
fn disk_busy(root: &Value) -> Option<f64> {
    let disks = root.get("disk_util").and_then(Value::as_array)?;
    disks.iter().filter_map(|d| d["util"].as_f64()).reduce(f64::max)
}

fn options(value: Option<&Value>) -> Vec<(String, String)> {
    let map = value.and_then(Value::as_object);
    map.into_iter().flatten().map(|(k, v)| (k.clone(), v.as_str().map_or(v.to_string(), str::to_owned))).collect()
}

fn one(job: &Value, global: &[(String, String)]) -> Job {
    let mut options_of = options(job.get("job options"));
    for (name, value) in global {
        if !options_of.iter().any(|(n, _)| n == name) {
            options_of.push((name.clone(), value.clone()));
        }
    }
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let (read, write) = (Direction::of(&job["read"]), Direction::of(&job["write"]));
    let mut bins = read.bins.clone();
    bins.merge(&write.bins);
    let both = [&read, &write];
    let count: f64 = both.iter().map(|d| d.count).sum();
    let mean_us = weighted(&both);
    let max_us = both.iter().filter_map(|d| d.max_us).reduce(f64::max);
    let latency = match (bins.count(), read.count > 0.0, write.count > 0.0) {
        (0, true, false) => read.told,
        (0, false, true) => write.told,
        (0, _, _) => Latency { mean_us, max_us, ..Latency::default() },
        (_, _, _) => bins.latency(mean_us, max_us),
    };
    let mix = read.count > 0.0 && write.count > 0.0;
    let figures = Figures {
        iops: (count > 0.0).then_some(read.iops + write.iops),
        bytes_per_sec: (count > 0.0).then_some(read.bytes_per_sec + write.bytes_per_sec),
        latency,
        read: mix.then(|| read.share()),
        write: mix.then(|| write.share()),
        seconds: Some(read.seconds.max(write.seconds)).filter(|s| *s > 0.0),
        written_bytes: Some(write.bytes as u64),
        cpu_percent: None,
        disk_busy_percent: None,
    };
    let get = |name: &str| options_of.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let load = load_of(&get);
    let threads = f64::from(load.threads.unwrap_or(1));
    let port = || job["port"].as_u64().and_then(|p| u16::try_from(p).ok());
    Job {
        host: job["hostname"].as_str().and_then(|name| Some((name.to_owned(), port()?))),
        name: job["jobname"].as_str().unwrap_or_default().to_owned(),
        asked_iops: get("rate_iops").and_then(|t| {
            let rates: Vec<f64> = t.split(',').filter_map(|p| p.trim().parse().ok()).collect();
            (!rates.is_empty()).then(|| rates.iter().sum::<f64>() * threads)
        }),
        asked_seconds: get("runtime").and_then(|t| crate::units::seconds(t).ok()),
        load,
        figures,
        bins,
        sides: (read.bins, write.bins),
        errors: (number(job, "total_err") as u64).saturating_add(u64::from(number(job, "error") != 0.0)),
        short: [&job["read"], &job["write"]]
            .iter()
            .map(|d| (number(d, "short_ios") + number(d, "drop_ios")) as u64)
            .fold(0, u64::saturating_add),
        cpu_percent: number(job, "usr_cpu") + number(job, "sys_cpu"),
        options: options_of,
    }
}

/// Jobs that ran at the same time as one: rates are added, latencies merged by their bins, never by their percentiles. It
/// is as long as the shortest. Nothing when there are none.
pub fn together(jobs: &[Job]) -> Option<Job> {
    let mut all = jobs.first()?.clone();
    all.bins = Bins::default();
    jobs.iter().for_each(|j| all.bins.merge(&j.bins));
    let sum = |of: fn(&Figures) -> Option<f64>| jobs.iter().filter_map(|j| of(&j.figures)).reduce(|a, b| a + b);
    let side = |of: fn(&Figures) -> Option<Share>, bins: fn(&Job) -> &Bins| {
        let mut all = Bins::default();
        jobs.iter().for_each(|j| all.merge(bins(j)));
        let told = all.latency(None, None);
        let shares: Vec<Share> = jobs.iter().filter_map(|j| of(&j.figures)).collect();
        let iops: f64 = shares.iter().map(|s| s.iops).sum();
        let mean = shares.iter().map(|s| Some(s.mean_us? * s.iops)).sum::<Option<f64>>();
        let bytes_per_sec = shares.iter().map(|s| s.bytes_per_sec).sum();
        (iops > 0.0).then(|| Share {
            iops,
            bytes_per_sec,
            mean_us: mean.map(|m| m / iops),
            p50_us: told.p50_us,
            p99_us: told.p99_us,
            p999_us: told.p999_us,
        })
    };
    // Without bins (plain JSON) a job counts as its rate; they are as long as each other.
    let bins = jobs.iter().all(|j| j.bins.count() > 0);
    let weight = |j: &Job| if bins { j.bins.count() as f64 } else { j.figures.iops.unwrap_or(0.0) };
    let told = jobs.iter().filter_map(|j| Some((j.figures.latency.mean_us?, weight(j))));
    let (total, count) = told.fold((0.0, 0.0), |(total, count), (mean, n)| (total + mean * n, count + n));
    let mean_us = (count > 0.0).then(|| total / count);
    let max_us = jobs.iter().filter_map(|j| j.figures.latency.max_us).reduce(f64::max);
    let latency = match (all.bins.count(), jobs.len()) {
        (_, 1) => all.figures.latency,
        (0, _) => Latency { mean_us, max_us, ..Latency::default() },
        (_, _) => all.bins.latency(mean_us, max_us),
    };
    let seconds = jobs.iter().map(|j| j.figures.seconds).collect::<Option<Vec<f64>>>();
    all.figures = Figures {
        iops: sum(|f| f.iops),
        bytes_per_sec: sum(|f| f.bytes_per_sec),
        latency,
        read: side(|f| f.read, |j| &j.sides.0),
        write: side(|f| f.write, |j| &j.sides.1),
        seconds: seconds.and_then(|s| s.into_iter().reduce(f64::min)),
        written_bytes: jobs.iter().filter_map(|j| j.figures.written_bytes).reduce(u64::saturating_add),
        cpu_percent: None,
        disk_busy_percent: jobs.iter().filter_map(|j| j.figures.disk_busy_percent).reduce(f64::max),
    };
    all.errors = jobs.iter().fold(0, |sum, j| sum.saturating_add(j.errors));
    all.short = jobs.iter().fold(0, |sum, j| sum.saturating_add(j.short));
    all.asked_iops = jobs.iter().filter_map(|j| j.asked_iops).reduce(|a, b| a + b);
    Some(all)
}

/// One direction of a job.
struct Direction {
    iops: f64,
    bytes: f64,
    bytes_per_sec: f64,
    seconds: f64,
    count: f64,
    mean_us: Option<f64>,
    max_us: Option<f64>,
    told: Latency,
    bins: Bins,
}

impl Direction {
    fn of(value: &Value) -> Direction {
        let number = |name: &str| value.get(name).and_then(Value::as_f64);
        // `lat` is from the call to the answer; `clat`, from the hand-over on, is the one with bins.
        let (total, done) = (&value["lat_ns"], &value["clat_ns"]);
        let total = if total["N"].as_f64().unwrap_or(0.0) > 0.0 { total } else { done };
        let us = |v: &Value| v.as_f64().map(|ns| ns / 1e3);
        let binned = [total, done].into_iter().find(|l| l.get("bins").is_some_and(Value::is_object));
        let mut bins = Bins::default();
        for (ns, count) in binned.and_then(|l| l["bins"].as_object()).into_iter().flatten() {
            if let (Ok(ns), Some(count)) = (ns.parse(), count.as_u64()) {
                bins.add(ns, count);
            }
        }
        let percentiles = [total, done].into_iter().find_map(|l| l.get("percentile"));
        let percentile = |name: &str| percentiles.and_then(|p| us(&p[name])).filter(|v| *v > 0.0);
        let count = number("total_ios").unwrap_or(0.0);
        let (mean_us, max_us) = (us(&total["mean"]).filter(|_| count > 0.0), us(&total["max"]).filter(|_| count > 0.0));
        Direction {
            iops: number("iops").unwrap_or(0.0),
            bytes: number("io_bytes").unwrap_or(0.0),
            bytes_per_sec: number("bw_bytes").or(number("bw").map(|kib| kib * 1024.0)).unwrap_or(0.0),
            seconds: number("runtime").unwrap_or(0.0) / 1e3,
            count,
            mean_us,
            max_us,
            told: Latency {
                mean_us,
                p50_us: percentile("50.000000"),
                p95_us: percentile("95.000000"),
                p99_us: percentile("99.000000"),
                p999_us: percentile("99.900000"),
                p9999_us: percentile("99.990000"),
                p99999_us: percentile("99.999000"),
                max_us,
            },
            bins,
        }
    }

    fn share(&self) -> Share {
        let latency = if self.bins.count() > 0 { self.bins.latency(self.mean_us, self.max_us) } else { self.told };
        Share::of(self.iops, self.bytes_per_sec, self.mean_us, latency)
    }
}

/// Means may be weighted by their counts; percentiles may not.
fn weighted(both: &[&Direction]) -> Option<f64> {
    let told = || both.iter().filter_map(|d| Some((d.mean_us?, d.count)));
    let count: f64 = told().map(|(_, n)| n).sum();
    (count > 0.0).then(|| told().map(|(mean, n)| mean * n).sum::<f64>() / count)
}

/// A load from fio's options.
fn load_of<'a>(get: &impl Fn(&str) -> Option<&'a str>) -> Load {
    let mode = get("rw").or(get("readwrite")).unwrap_or("read");
    let percent = || {
        get("rwmixread")
            .and_then(|t| t.parse().ok())
            .or(get("rwmixwrite").and_then(|t| Some(100.0 - t.parse::<f64>().ok()?)))
    };
    let (access, read_percent) = match mode.split(':').next().unwrap_or_default() {
        "read" => (Some(Access::Sequential), Some(100.0)),
        "write" => (Some(Access::Sequential), Some(0.0)),
        "rw" | "readwrite" => (Some(Access::Sequential), Some(percent().unwrap_or(50.0))),
        "randread" => (Some(Access::Random), Some(100.0)),
        "randwrite" => (Some(Access::Random), Some(0.0)),
        "randrw" => (Some(Access::Random), Some(percent().unwrap_or(50.0))),
        _ => (None, None),
    };
    let whole = |name: &str, usual: u32| get(name).map_or(Some(usual), |t| t.parse().ok());
    let direct = get("direct").map(|t| t == "1").or(get("buffered").map(|t| t == "0")).unwrap_or(false);
    Load {
        access,
        read_percent,
        block_bytes: if sizes(get).is_some() {
            None
        } else {
            get("bs").or(get("blocksize")).map_or(Some(4096), |t| crate::units::bytes(t).ok())
        },
        threads: whole("numjobs", 1),
        depth: whole("iodepth", 1),
        hosts: None,
        targets: None,
        cached: if get("uri").is_some() { None } else { Some(!direct) },
        warm: get("invalidate") == Some("0"),
        offset_bytes: get("offset").and_then(|t| crate::units::bytes(t).ok()),
        range_bytes: get("size").and_then(|t| crate::units::bytes(t).ok()),
        slice_percent: None,
        reducible: reducible(get),
        fsync: get("fsync").or(get("fdatasync")).and_then(|n| n.parse().ok()).filter(|n| *n > 0),
        checksums: get("verify").is_some(),
        inferred: vec![],
    }
}

/// Sizes of requests that differ, as the options have them.
fn sizes<'a>(get: &impl Fn(&str) -> Option<&'a str>) -> Option<&'a str> {
    let told = get("bsrange").or(get("blocksize_range"));
    let range = told.filter(|t| t.split_once('-').is_none_or(|(least, most)| least != most));
    range.or(get("bssplit")).or(get("bs").filter(|t| t.contains(',')))
}

/// Sizes of requests that differ ("4k-64k"), for people; nothing when there is one size.
pub fn block_range(options: &[(String, String)]) -> Option<&str> {
    sizes(&|name: &str| options.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()))
}

/// Shares of what is written, when its options state any.
fn reducible<'a>(get: &impl Fn(&str) -> Option<&'a str>) -> Option<Reducible> {
    let share = |name: &str| get(name).and_then(|t| t.trim_end_matches('%').parse().ok()).unwrap_or(0);
    let shares = Reducible {
        duplicate_percent: share("dedupe_percentage"),
        compressible_percent: share("buffer_compress_percentage"),
    };
    (shares != Reducible::default()).then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_fio_is_refused() {
        for text in ["", "fio: no such file", "{}", "{\"jobs\": 3}", "{\"jobs\": ["] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mix_is_merged_by_its_bins_and_the_sum_of_clients_is_left_out() {
        let side = |iops: f64, mean: f64, bin: u64, n: u64| {
            format!(
                r#"{{"iops":{iops},"bw_bytes":{},"io_bytes":1,"runtime":2000,"total_ios":{n},"lat_ns":{{"mean":{mean},"max":9000,"N":{n}}},
                "clat_ns":{{"mean":1,"N":{n},"percentile":{{"50.000000":1}},"bins":{{"{bin}":{n}}}}}}}"#,
                iops * 4096.0
            )
        };
        let job = |name: &str| {
            format!(
                r#"{{"jobname":"{name}","error":0,"read":{},"write":{},"job options":{{"rw":"randrw","rwmixread":"75","bs":"4k"}}}}"#,
                side(300.0, 1000.0, 1000, 300),
                side(100.0, 5000.0, 5000, 100)
            )
        };
        let text = format!(
            r#"note: words first
            {{"fio version":"fio-3.33","global options":{{"numjobs":"2","iodepth":"8","direct":"1"}},"client_stats":[{},{}]}}"#,
            job("a"),
            job("All clients")
        );
        let output = parse(&text).unwrap();
        assert_eq!(output.jobs.len(), 1);
        let job = &output.jobs[0];
        assert_eq!((job.figures.iops, job.figures.latency.mean_us), (Some(400.0), Some(2.0)));
        assert_eq!((job.figures.latency.p50_us, job.bins.count()), (Some(1.0), 400));
        assert_eq!(
            (job.load.threads, job.load.depth, job.load.read_percent, job.load.cached),
            (Some(2), Some(8), Some(75.0), Some(false))
        );
    }
}
