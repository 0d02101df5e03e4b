//! Vdbench: the flatfile, whose columns have names, and the totals, whose lines are read by place. Megabytes are 2^20
//! there, times milliseconds. The average of a run is taken, its intervals are not.
//!
//! A run without a limit and the runs after it that ask the same load for whole hundredths of its rate are a load curve.
//! Threads are those of each storage definition, one request each; a file does not tell how many there are. Where the
//! run without a limit has a whole number of times as many in flight, that number is inferred.

use super::Found;
use crate::error::Error;
use crate::model::{Access, Figures, Latency, Load, Part};

/// Bytes of Vdbench's megabyte.
const MB: f64 = 1_048_576.0;

/// The averages in a flatfile.
pub fn flatfile(text: &str) -> Result<Vec<Found>, Error> {
    let mut heads: Vec<&str> = vec![];
    let mut found = vec![];
    for line in text.lines().filter(|l| !l.trim_start().starts_with(['*', '<'])) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.contains(&"reqrate") {
            heads = words;
            continue;
        }
        let get = |name: &str| heads.iter().position(|h| *h == name).and_then(|at| words.get(at)).copied();
        let number = |name: &str| get(name).and_then(|w| w.parse::<f64>().ok());
        let average = get("Interval").is_some_and(|i| i.starts_with("avg"));
        let (true, Some(iops)) = (average, number("rate")) else { continue };
        let asked = number("reqrate").filter(|r| *r > 0.0 && !UNLIMITED.contains(r));
        let count = |name: &str| number(name).map(|n| n as u32).filter(|n| *n > 0);
        found.push(Found {
            name: get("Run").unwrap_or_default().to_owned(),
            load: Load {
                // seekpct is the share of requests that go elsewhere.
                access: number("seekpct").and_then(access),
                read_percent: number("rdpct").or(number("read%")),
                block_bytes: number("xfersize").or(number("bytes/io")).filter(|b| *b > 0.0).map(|b| b as u64),
                threads: count("threads"),
                ..Load::default()
            },
            figures: figures(iops, number("MB/sec"), number("resp"), number("resp_max")),
            asked_iops: asked,
            note: "threads are those of each storage definition; latency has no percentiles".to_owned(),
            ..Found::default()
        });
    }
    if heads.is_empty() {
        return Err(Error::format("flatfile", "it has no line of column names"));
    }
    curves(&mut found);
    Ok(found)
}

/// Requested rates that mean without a limit: `iorate=max`, and what a curve begins with (`MAX_RATE` and `CURVE_RATE` of
/// Vdbench 5).
const UNLIMITED: [f64; 2] = [999_988.0, 999_977.0];
/// A point's rate may be off a whole percent of the largest by this much of it, as Vdbench rounds it.
const POINT_MAX: f64 = 0.002;
/// Points of a curve, at most: percents of the largest rate.
const PERCENT_MAX: f64 = 200.0;
/// Requests in flight may be off a whole number of times the threads by this share.
const TIMES_MAX: f64 = 0.05;

/// Finds the curves among runs, and what their run without a limit tells of the number of storage definitions.
fn curves(found: &mut [Found]) {
    let mut at = 0;
    while at < found.len() {
        let (max, rest) = found[at..].split_first_mut().expect("`at` is inside");
        let percents: Vec<u32> = rest.iter().map_while(|point| percent(max, point)).collect();
        let targets = targets(max);
        for (point, percent) in rest.iter_mut().zip(&percents) {
            point.part = Some(Part::Curve { percent: *percent });
            share_out(&mut point.load, targets);
        }
        if !percents.is_empty() {
            max.part = Some(Part::CurveMax);
        }
        share_out(&mut max.load, targets);
        at += 1 + percents.len();
    }
}

/// Which hundredths of the rate of `max` a run asks for; nothing when it is no point of a curve of it.
fn percent(max: &Found, point: &Found) -> Option<u32> {
    let same = (max.asked_iops, &max.name) == (None, &point.name) && is_same_load(&max.load, &point.load);
    let share = point.asked_iops? / max.figures.iops.filter(|n| same && *n > 0.0)? * 100.0;
    let whole = share.round();
    let is_point = (1.0..=PERCENT_MAX).contains(&whole) && (share - whole).abs() <= 100.0 * POINT_MAX;
    is_point.then_some(whole as u32)
}

/// Totals tell the share of reads and the size as they came out, not as they were asked for.
fn is_same_load(a: &Load, b: &Load) -> bool {
    let near = |a: Option<f64>, b: Option<f64>, off: f64| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= off,
        (a, b) => a == b,
    };
    (a.access, a.threads, a.block_bytes) == (b.access, b.threads, b.block_bytes)
        && near(a.read_percent, b.read_percent, 1.0)
}

/// How many times its threads a run without a limit has in flight, when that is a whole number.
fn targets(max: &Found) -> Option<u32> {
    let threads = f64::from(max.load.threads.filter(|_| max.asked_iops.is_none())?);
    let times = max.figures.iops? * max.figures.latency.mean_us? / 1e6 / threads;
    let whole = times.round();
    (whole >= 1.0 && (times / whole - 1.0).abs() <= TIMES_MAX).then_some(whole as u32)
}

/// Writes down that a load is of so many storage definitions, one request for each thread.
fn share_out(load: &mut Load, targets: Option<u32>) {
    let Some(targets) = targets else { return };
    load.depth = Some(1);
    load.targets = Some(targets).filter(|n| *n > 1);
    load.inferred = vec!["depth".to_owned()];
    load.inferred.extend((targets > 1).then(|| "targets".to_owned()));
}

fn access(seek_percent: f64) -> Option<Access> {
    match seek_percent {
        100.0 => Some(Access::Random),
        0.0 => Some(Access::Sequential),
        _ => None,
    }
}

/// The averages in totals: time, "avg_2-5", rate, MB/s, bytes of a request, share of reads, response time, ...
pub fn totals(text: &str) -> Result<Vec<Found>, Error> {
    let mut found = vec![];
    let (mut name, mut asked) = (String::new(), None);
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("Starting RD=") {
            name = rest.split(';').next().unwrap_or_default().trim().to_owned();
            // "I/O rate: 5000", or words where there is no limit.
            let rate = rest.split_once("I/O rate:").map_or("", |(_, r)| r.split(';').next().unwrap_or_default());
            asked = rate.trim().replace(',', "").parse().ok();
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|w| w.starts_with("avg_")) else { continue };
        let number = |n: usize| words.get(at + n).and_then(|w| w.replace(',', "").parse::<f64>().ok());
        let Some(iops) = number(1).filter(|n| *n > 0.0) else { continue };
        found.push(Found {
            name: name.split_whitespace().next().unwrap_or_default().to_owned(),
            load: Load {
                read_percent: number(4).map(f64::round),
                block_bytes: number(3).filter(|b| *b > 0.0).map(|b| b as u64),
                ..Load::default()
            },
            figures: figures(iops, number(2), number(5), None),
            asked_iops: asked,
            note: "totals contain neither threads nor the order of addresses; share of reads as observed".to_owned(),
            ..Found::default()
        });
    }
    curves(&mut found);
    Ok(found)
}

fn figures(iops: f64, mb_per_sec: Option<f64>, mean_ms: Option<f64>, max_ms: Option<f64>) -> Figures {
    let latency =
        Latency { mean_us: mean_ms.map(|ms| ms * 1e3), max_us: max_ms.map(|ms| ms * 1e3), ..Latency::default() };
    Figures { iops: Some(iops), bytes_per_sec: mb_per_sec.map(|mb| mb * MB), latency, ..Figures::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flatfile_is_read_by_its_names() {
        let text = "\
* what the columns are
      tod   Run  Interval reqrate     rate  MB/sec bytes/io  read%   resp resp_max xfersize threads rdpct seekpct
 10:00:01   rd1         1 1000.00   999.00    3.90     4096 100.00  0.100     2.00     4096       8   100     100
 10:00:05   rd1   avg_2-5 1000.00  1000.00 3.90625     4096 100.00  0.120     3.00     4096       8   100     100
 10:01:05   rd2   avg_2-5  999988 52000.00  3250.0    65536   0.00  1.500    30.00    65536      16     0       0
";
        let found = flatfile(text).unwrap();
        assert_eq!(found.len(), 2, "averages, not intervals");
        let (first, second) = (&found[0], &found[1]);
        assert_eq!((first.name.as_str(), first.asked_iops, first.figures.iops), ("rd1", Some(1000.0), Some(1000.0)));
        assert_eq!((first.figures.bytes_per_sec, first.figures.latency.mean_us), (Some(4_096_000.0), Some(120.0)));
        assert_eq!(
            (first.load.access, first.load.threads, first.load.name().as_str()),
            (Some(Access::Random), Some(8), "4K random read")
        );
        assert_eq!((second.asked_iops, second.load.name().as_str()), (None, "64K sequential write"));
        assert!(flatfile("nothing").is_err());
    }

    /// A curve as the flatfile of Vdbench has it: `max` requests a second, then points, on `sds` with 128 threads each.
    fn curve_of(max: f64, sds: f64) -> String {
        let mut text =
            "tod Run Interval reqrate rate MB/sec bytes/io read% resp xfersize threads rdpct seekpct\n".to_owned();
        let mut line = |asked: f64, rate: f64, resp: f64| {
            let mb = rate * 4096.0 / MB;
            text.push_str(&format!("1 rd1 avg_2-5 {asked} {rate} {mb} 4096 100 {resp} 4096 128 100 100\n"));
        };
        line(999_977.0, max, sds * 128.0 / max * 1e3);
        for percent in (10..=120).step_by(10) {
            let asked = (max * f64::from(percent) / 100.0).round();
            line(asked, asked.min(max), 0.1);
        }
        text
    }

    #[test]
    fn a_curve_is_a_curve_and_keeps_every_rate_that_was_asked_for() {
        let found = flatfile(&curve_of(5_550_000.0, 8.0)).unwrap();
        assert_eq!((found.len(), found[0].part, found[0].asked_iops), (13, Some(Part::CurveMax), None));
        for (nth, point) in found[1..].iter().enumerate() {
            let percent = 10 * (nth as u32 + 1);
            assert_eq!(point.part, Some(Part::Curve { percent }));
            assert_eq!(point.asked_iops, Some(55_500.0 * f64::from(percent)), "a million is a rate");
        }
        // 1,024 in flight are 128 of each of eight drives.
        let load = &found[3].load;
        assert_eq!((load.threads, load.depth, load.targets), (Some(128), Some(1), Some(8)));
        assert_eq!(load.inferred, ["depth", "targets"]);
    }

    #[test]
    fn what_is_no_curve_stays_alone() {
        // In flight are 3.4 times the threads: of how many storage definitions nothing tells.
        let text = curve_of(500_000.0, 3.4);
        let found = flatfile(&text).unwrap();
        assert_eq!((found[0].load.depth, found[0].load.targets), (None, None));
        // Another run's rate, and one of another block size.
        for change in ["rd2 avg_2-5 50000 ", "rd1 avg_2-5 50000 50000 195.3 8192 100 0.1 8192 "] {
            let from = if change.starts_with("rd2") {
                "rd1 avg_2-5 50000 "
            } else {
                "rd1 avg_2-5 50000 50000 195.3125 4096 100 0.1 4096 "
            };
            assert!(text.contains(from));
            let found = flatfile(&text.replace(from, change)).unwrap();
            assert_eq!((found[0].part, found[1].part), (None, None), "{change}");
        }
    }

    #[test]
    fn totals_are_read_by_place() {
        let text = "\
16:24:31.001 Starting RD=rd1; I/O rate: 100; elapsed=5; For loops: None
Jan 24, 2019    interval        i/o   MB/sec   bytes   read     resp     read    write     read    write     resp  queue  cpu%  cpu%
                               rate  1024**2     i/o    pct     time     resp     resp      max      max   stddev  depth sys+u   sys
16:24:32.018           1       84.0     0.08    1024  53.57    0.013    0.010    0.015     0.03     0.05    0.006    0.0  19.2   1.5
16:24:36.025     avg_2-5      100.5     0.10    1024  50.20    0.011    0.009    0.013     0.09     0.15    0.007    0.0   8.2   1.1
16:24:37.001 Starting RD=rd2; I/O rate: Uncontrolled MAX; elapsed=5; For loops: None
16:24:42.025     avg_2-5        0.0     0.00       0   0.00    0.000    0.000    0.000     0.00     0.00    0.000    0.0   NaN   NaN
";
        let found = totals(text).unwrap();
        assert_eq!(found.len(), 1, "a run that did nothing is none");
        assert_eq!(
            (found[0].name.as_str(), found[0].asked_iops, found[0].figures.iops),
            ("rd1", Some(100.0), Some(100.5))
        );
        assert_eq!((found[0].load.read_percent, found[0].figures.latency.mean_us), (Some(50.0), Some(11.0)));
    }
}
