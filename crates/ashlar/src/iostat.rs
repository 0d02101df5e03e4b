//! `ashlar iostat`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{HistogramView, Iostats, Problem, TrafficView, WorkView, add_work};

use crate::context::Context;
use crate::exit::{Finding, Outcome};
use crate::output;
use crate::text::{self, Table, count, per_second};

const EXAMPLES: &str = "\
Examples:
  ashlar iostat                  rates during one second
  ashlar iostat fast --every 5   every five seconds
  ashlar iostat --json           the counters since the arrays were opened";

/// Show I/O statistics
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this array
    array: Option<String>,
    /// Repeats every SECONDS
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// Stops after this many reports
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Prints counters for scripts (one object per line with --every)
    #[arg(long)]
    pub json: bool,
}

/// Shows it.
pub fn run(context: &Context, args: &Args) -> Outcome {
    let interval = Duration::from_secs(args.every.unwrap_or(1));
    let mut before = fetch(context, args)?;
    let mut left = args.count.unwrap_or(if args.every.is_some() { u64::MAX } else { 1 });
    while left > 0 {
        if args.json {
            text::print_json(&before);
        }
        left -= 1;
        if args.json && left == 0 {
            break;
        }
        if !output::pause(interval) {
            break;
        }
        let now = fetch(context, args)?;
        if !args.json {
            show(&before, &now);
        }
        before = now;
    }
    Ok(Finding::Good)
}

fn fetch(context: &Context, args: &Args) -> Result<Iostats, Problem> {
    let client = context.running("iostat")?;
    let mut all: Iostats = client.get("/v1/iostat")?;
    if let Some(array) = &args.array {
        all.arrays.retain(|a| a.array == *array);
        if all.arrays.is_empty() {
            let why = "this Ashlar does not serve it";
            return Err(Problem::refused(
                "array_not_served",
                format!("array {array}"),
                why,
                "`ashlar status` lists them",
            ));
        }
    }
    Ok(all)
}

fn show(before: &Iostats, now: &Iostats) {
    let time = Duration::from_millis(now.at_millis.saturating_sub(before.at_millis).max(1));
    let table = table(before, now, time);
    if table.is_empty() {
        text::print("no volumes and no drives");
    } else {
        text::print(&format!("{} UTC, {:.1} s", clock(SystemTime::now()), time.as_secs_f64()));
        table.print();
        text::print("");
    }
}

/// Rates of volumes and of drives; and the sum of each kind where there are several.
fn table(before: &Iostats, now: &Iostats, time: Duration) -> Table {
    let columns =
        ["", "NAME", ">READ/s", ">READ", ">MEAN", ">P99", ">WRITE/s", ">WRITTEN", ">MEAN", ">P99", ">QUEUE", ">BUSY"];
    let mut table = Table::new(&columns).flush_left();
    for array in &now.arrays {
        let Some(old) = before.arrays.iter().find(|a| a.array == array.array) else { continue };
        let kinds = [
            ("volume", format!("{}/", array.array), &array.volumes, &old.volumes),
            ("drive", String::new(), &array.drives, &old.drives),
        ];
        for (kind, prefix, new, old) in kinds {
            let gone_by: Vec<TrafficView> = new.iter().map(|t| since(t, old)).collect();
            gone_by.iter().for_each(|t| table.row(row(kind, format!("{prefix}{}", t.name), t, time)));
            if gone_by.len() > 1 {
                table.row(row("total", format!("{} {kind}s of {}", gone_by.len(), array.array), &sum(&gone_by), time));
            }
        }
    }
    table
}

/// What has come on top of what was there before.
fn since(now: &TrafficView, before: &[TrafficView]) -> TrafficView {
    let zero = TrafficView::default();
    let was = before.iter().find(|o| o.name == now.name).unwrap_or(&zero);
    TrafficView {
        name: now.name.clone(),
        reads: now.reads.saturating_sub(was.reads),
        writes: now.writes.saturating_sub(was.writes),
        bytes_read: now.bytes_read.saturating_sub(was.bytes_read),
        bytes_written: now.bytes_written.saturating_sub(was.bytes_written),
        errors: now.errors.saturating_sub(was.errors),
        work: now.work.as_ref().map(|now| match &was.work {
            Some(was) => Box::new(now.since(was)),
            None => now.clone(),
        }),
    }
}

fn sum(all: &[TrafficView]) -> TrafficView {
    let of = |value: fn(&TrafficView) -> u64| all.iter().map(value).sum();
    let mut work = None;
    all.iter().for_each(|t| add_work(&mut work, t.work.clone()));
    TrafficView {
        name: String::new(),
        reads: of(|t| t.reads),
        writes: of(|t| t.writes),
        bytes_read: of(|t| t.bytes_read),
        bytes_written: of(|t| t.bytes_written),
        errors: of(|t| t.errors),
        work,
    }
}

fn row(kind: &str, name: String, t: &TrafficView, time: Duration) -> Vec<String> {
    let rate = |n: u64| count(n as f64 / time.as_secs_f64());
    let work = t.work.as_deref();
    let mut row = vec![kind.to_owned(), name, rate(t.reads), per_second(t.bytes_read, time)];
    row.extend(took(work.map(|w| &w.reads)));
    row.extend([rate(t.writes), per_second(t.bytes_written, time)]);
    row.extend(took(work.map(|w| &w.writes)));
    row.extend(load(work, time));
    row
}

/// Mean and p99.
fn took(times: Option<&HistogramView>) -> [String; 2] {
    let words = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), text::latency);
    [words(times.and_then(HistogramView::mean)), words(times.and_then(|t| t.quantile(0.99)))]
}

/// Requests in flight on the mean (all they took, by the time), and the share of the time with one in flight. Of several
/// volumes or drives: of all together, and the mean.
fn load(work: Option<&WorkView>, time: Duration) -> [String; 2] {
    let Some(work) = work else { return ["-".to_owned(), "-".to_owned()] };
    let nanos = time.as_nanos() as f64;
    let queue = work.histograms().iter().map(|times| times.nanos as f64).sum::<f64>() / nanos;
    [
        format!("{queue:.1}"),
        format!("{:.0} %", (work.busy_nanos as f64 / work.parts.max(1) as f64 / nanos * 100.0).min(100.0)),
    ]
}

/// The time of day.
fn clock(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()) % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use api::IostatView;

    use super::*;

    fn stats(at_millis: u64, reads: [u64; 3]) -> Iostats {
        let traffic = |name: &str, reads: u64| TrafficView {
            name: name.to_owned(),
            reads,
            bytes_read: reads << 12,
            ..TrafficView::default()
        };
        let array = IostatView {
            array: "fast".into(),
            volumes: vec![traffic("db", reads[0])],
            drives: vec![traffic("/d/0", reads[1]), traffic("/d/1", reads[2])],
        };
        Iostats { at_millis, arrays: vec![array], ..Iostats::default() }
    }

    #[test]
    fn volumes_and_drives_are_told_apart_and_summed() {
        let table = table(&stats(0, [0, 10, 20]), &stats(2000, [100, 50, 80]), Duration::from_secs(2));
        let lines = table.lines();
        let starts = |n: usize, start: &str| assert!(lines[n].starts_with(start), "{lines:#?}");
        starts(1, "volume  fast/db");
        starts(2, "drive   /d/0");
        starts(4, "total   2 drives of fast");
        assert!(lines[1].contains("50") && lines[4].contains("50"), "{lines:#?}");
        assert_eq!((lines.len(), clock(UNIX_EPOCH + Duration::from_secs(86_400 + 3723))), (5, "01:02:03".into()));
    }
}
