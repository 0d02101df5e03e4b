//! Vdbench: the flatfile, whose columns have names, and the totals, whose lines are read by place. Megabytes are 2^20
//! there, times milliseconds. The average of a run is taken, its intervals are not.

use super::Found;
use crate::error::Error;
use crate::model::{Access, Figures, Latency, Load};

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
        let asked = number("reqrate").filter(|r| *r > 0.0 && *r < UNLIMITED);
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
            note: "one request for each thread; latency has no percentiles".to_owned(),
            ..Found::default()
        });
    }
    if heads.is_empty() {
        return Err(Error::format("flatfile", "it has no line of column names"));
    }
    Ok(found)
}

/// A requested rate from here on means without a limit (999988 and above).
const UNLIMITED: f64 = 999_980.0;

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
