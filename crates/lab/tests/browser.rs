//! The report in a real browser: headless Chromium lays it out at the width of a phone and of a desk.
//!
//! A page around the report holds it in a frame of that width, looks at what came out, and leaves what it found where
//! `--dump-dom` shows it. Screenshots are left in the target directory (`tmp/lab-*.png`), for people.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::model::{
    Access, Cell, Check, Event, Figures, Gate, Latency, Load, Moment, Origin, Page, Pair, Part, Rounds, Run, Second,
    State, Subject, Timeline,
};
use lab::published;
use lab::report::{Extra, page};
use lab::store::Store;
use serde::Deserialize;

const WIDTHS: [u32; 2] = [390, 1400];
/// Letters of a chart that are smaller cannot be read on a phone.
const LETTER_PX_MIN: f64 = 8.0;

/// What a browser makes of a page.
#[derive(Debug, Deserialize)]
struct Found {
    /// Pixels that its content is wide.
    content: f64,
    /// Charts that take room.
    charts: usize,
    /// Charts that take none, or reach beyond the page.
    bad_charts: Vec<String>,
    /// Rows of tables, without their heads, that take room.
    rows: usize,
    /// Tables of which a part is out of sight.
    scrolled: Vec<String>,
    /// Texts that leave their chart.
    cut: Vec<String>,
    /// Height of the smallest letters of a chart.
    letters: f64,
    /// Errors of scripts.
    errors: Vec<String>,
}

const LOOK: &str = r#"
const errors = [];
window.onerror = (m) => { errors.push(String(m)); };
const frame = document.getElementById('frame');
frame.onload = () => {
  const win = frame.contentWindow, doc = win.document;
  win.onerror = (m) => { errors.push(String(m)); };
  const charts = [...doc.querySelectorAll('svg')];
  const bad_charts = [], cut = [];
  const rows = [...doc.querySelectorAll('tbody tr')].filter((r) => r.getBoundingClientRect().height > 8).length;
  const scrolled = [...doc.querySelectorAll('.wide')].filter((w) => w.scrollWidth > w.clientWidth + 1)
    .map((w) => w.textContent.slice(0, 60));
  let letters = 1000, shown = 0;
  for (const chart of charts) {
    const box = chart.getBoundingClientRect();
    const name = chart.getAttribute('aria-label') || chart.textContent.slice(0, 40);
    if (box.width < 100 || box.height < 20 || box.right > frame.clientWidth + 0.5) bad_charts.push(name);
    else shown += 1;
    for (const text of chart.querySelectorAll('text')) {
      const at = text.getBoundingClientRect();
      if (at.width === 0) continue;
      letters = Math.min(letters, parseFloat(win.getComputedStyle(text).fontSize) * box.width
        / chart.viewBox.baseVal.width);
      if (at.left < box.left - 2 || at.right > box.right + 2 || at.top < box.top - 3 || at.bottom > box.bottom + 3)
        cut.push(name + ': ' + text.textContent);
    }
  }
  document.getElementById('found').textContent = JSON.stringify({
    content: doc.documentElement.scrollWidth, charts: shown, bad_charts, rows, scrolled, cut, letters, errors,
  });
};
frame.srcdoc = REPORT;
"#;

/// Runs Chromium on a page of ours.
fn chromium(dir: &Path, more: &[String]) -> (String, String) {
    let out = Command::new("timeout")
        .args(["90", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--no-first-run", "--disable-extensions", "--enable-logging=stderr", "--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(more)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "chromium: {}\n{}", out.status, text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

/// Lays `report` out in `width` pixels.
fn look(name: &str, report: &str, width: u32) -> Found {
    let dir = tempfile::tempdir().unwrap();
    let around = dir.path().join("around.html");
    // "</script>" in a string would end the script.
    let text = serde_json::to_string(report).unwrap().replace("</", "<\\/");
    let html = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body style=\"margin:0\"><pre id=\"found\"></pre>\
         <iframe id=\"frame\" width=\"{width}\" height=\"900\" style=\"border:0\"></iframe>\
         <script>{}</script>",
        LOOK.replace("REPORT", &text)
    );
    fs::write(&around, html).unwrap();
    let address = format!("file://{}", around.display());
    let (dom, log) = chromium(dir.path(), &["--window-size=1500,1000".to_owned(), "--dump-dom".to_owned(), address]);
    // Chromium tells attributes of charts that make no sense, too.
    let console: Vec<&str> = log.lines().filter(|l| l.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{name}: {console:?}");
    let found = dom.split("<pre id=\"found\">").nth(1).and_then(|rest| rest.split("</pre>").next()).unwrap();
    let found = found.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    serde_json::from_str(&found).unwrap_or_else(|e| panic!("{name}: {e}: \"{found}\""))
}

/// The page as it is, for people to look at.
fn screenshot(name: &str, report: &str, width: u32) -> PathBuf {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.html");
    fs::write(&path, report).unwrap();
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lab-{name}-{width}.png"));
    let more = [
        format!("--window-size={width},3000"),
        format!("--screenshot={}", picture.display()),
        format!("file://{}", path.display()),
    ];
    chromium(dir.path(), &more);
    picture
}

#[test]
#[ignore = "needs chromium: cargo xtask test --only lab"]
fn every_report_is_readable_on_a_phone_and_on_a_desk() {
    let mut reports: Vec<(&str, Vec<Run>)> =
        published::REVIEWS.iter().map(|r| (r.name, vec![published::run(r.name).unwrap()])).collect();
    reports.push(("all", vec![everything()]));
    reports.push(("beside", vec![everything(), published::run("perc12").unwrap()]));
    let mut third = everything();
    third.name = "a-run-with-a-long-name (/srv/results/of/last/week/lab-raid-card-with-another-card)".to_owned();
    reports.push(("three", vec![third, everything(), published::run("perc11").unwrap()]));
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    for begun in ["2026-11-22T20:00:00Z", "2026-11-23T20:00:00Z"] {
        let mut run = everything();
        run.begun = Some(begun.to_owned());
        // Without states the history has numbers.
        run.cells.retain(|c| c.part != Part::States);
        store.keep(&run).unwrap();
    }
    store.write_index().unwrap();
    let index = fs::read_to_string(store.index()).unwrap();
    for width in WIDTHS {
        let found = look("index", &index, width);
        assert!(found.content <= f64::from(width) && found.charts == 1 && found.cut.is_empty(), "{width}: {found:?}");
        assert!(found.rows > 2 && found.bad_charts.is_empty() && found.letters >= LETTER_PX_MIN, "{width}: {found:?}");
    }
    for (name, runs) in reports {
        let report = page(&runs, &Extra::default());
        for width in WIDTHS {
            let found = look(name, &report, width);
            let what = format!("{name} at {width}: {found:?}");
            assert!(found.errors.is_empty() && found.bad_charts.is_empty() && found.cut.is_empty(), "{what}");
            assert!(found.content <= f64::from(width), "it is wider than the page: {what}");
            assert!(found.letters >= LETTER_PX_MIN, "{what}");
            assert!(found.scrolled.is_empty(), "{:?} {what}", found.scrolled);
            assert_eq!(found.charts, report.matches("<svg").count(), "{what}");
            // A review that prints no figures of loads has only tables.
            let measured = runs.iter().any(|r| !r.cells.is_empty());
            assert_eq!(found.charts > 0, measured, "{what}");
            // A narrow page shows rows as cards, without their heads.
            let rows = report.matches("<tr").count() - report.matches("<thead>").count();
            assert!(found.rows > 0 && found.rows == rows, "{rows} rows, {what}");
        }
    }
}

#[test]
#[ignore = "needs chromium: cargo xtask test --only lab"]
fn the_browser_tells_what_does_not_fit() {
    // The test above passes only for what this one sees.
    let wide = "<!DOCTYPE html><body><div style=\"width:900px\">wide</div>\
                <svg viewBox=\"0 0 400 100\" width=\"300\"><text x=\"390\" y=\"50\" style=\"font-size:3px\">cut off here \
                and there</text></svg>\
                <svg viewBox=\"0 0 400 100\" width=\"800\"></svg>\
                <div class=\"wide\" style=\"overflow-x:auto\"><table style=\"width:2000px\"><tbody><tr><td>wide</td></tr></tbody></table></div>";
    let found = look("wide", wide, 390);
    assert!(found.content > 890.0 && found.letters < LETTER_PX_MIN, "{found:?}");
    assert_eq!((found.cut.len(), found.bad_charts.len(), found.charts), (1, 1, 1), "{found:?}");
    assert_eq!(found.scrolled, ["wide"]);
}

#[test]
#[ignore = "needs chromium: cargo xtask test --only lab"]
fn pictures_are_left_for_people() {
    let report = page(&[everything()], &Extra::default());
    for width in [500, 1400] {
        let picture = screenshot("all", &report, width);
        assert!(fs::metadata(&picture).unwrap().len() > 20_000, "{}", picture.display());
    }
}

/// A result with something for every section of the report.
fn everything() -> Run {
    let mut run = Run::new("everything", "All that a report can show", Origin::Measured);
    run.begun = Some("2026-11-22T20:00:00Z".to_owned());
    run.ended = run.begun.clone();
    run.system = vec![Pair::new("CPU", "2 x something"), Pair::new("target", "/dev/a-device-with-a-long-name/by-id")];
    run.cells.push(cell("max", Part::CurveMax, State::Optimal, 400_000.0));
    for percent in [10, 50, 90, 100, 120] {
        let part = Part::Curve { percent };
        run.cells.push(cell(&format!("point-{percent}"), part, State::Optimal, 4000.0 * f64::from(percent.min(100))));
    }
    for (threads, depth) in [(1, 1), (1, 8), (1, 32), (2, 1), (2, 8), (2, 32), (4, 1), (4, 8), (4, 32)] {
        let mut one = cell(&format!("t{threads}-d{depth}"), Part::Matrix, State::Optimal, 9000.0);
        one.load.threads = Some(threads);
        one.load.depth = Some(depth);
        one.figures.iops = Some(9000.0 * f64::from(threads * depth).sqrt());
        run.cells.push(one);
    }
    for (state, iops) in [
        (State::Optimal, 400_000.0),
        (State::Degraded, 210_000.0),
        (State::Rebuilding, 140_000.0),
        (State::Rebuilt, 399_000.0),
    ] {
        run.cells.push(cell(&format!("states-{state}"), Part::States, state, iops));
    }
    let [one, two] = [1, 2].map(|number| Part::OneOf { number });
    for (id, part, iops) in [("one", one, 210_000.0), ("two", two, 205_000.0), ("both", Part::Together, 390_000.0)] {
        let mut cell = cell(id, part, State::Optimal, iops);
        cell.subject.system = format!("/dev/md{id}");
        cell.load.targets = (part == Part::Together).then_some(2);
        run.cells.push(cell);
    }
    for number in 1..=7 {
        let iops = 300_000.0 + 90_000.0 / f64::from(number);
        run.cells.push(cell(&format!("round-{number}"), Part::Round { number }, State::Optimal, iops));
    }
    let values = (1..=7).map(|n| 300_000.0 + 90_000.0 / f64::from(n)).collect();
    run.rounds.push(Rounds { test: "4K random write".to_owned(), tracked: "IOPS".to_owned(), values, steady: true });
    run.timelines.push(timeline());
    run.not_run.push(Pair::new("4K random write", "not run: writes of 4096 are below the indirection unit of 65536"));
    let command = "fio --name=cell --ioengine=io_uring --rw=randread --bs=4096 --iodepth=32 ".repeat(4);
    run.disclosure.push(Page { title: "Suite".to_owned(), text: command });
    run
}

fn cell(id: &str, part: Part, state: State, iops: f64) -> Cell {
    let point = matches!(part, Part::Curve { .. });
    Cell {
        id: id.to_owned(),
        test: if point || part == Part::CurveMax { "curve" } else { "4K random read" }.to_owned(),
        part,
        source: None,
        subject: Subject { system: "array".to_owned(), level: Some("RAID5".to_owned()), state, ..Subject::default() },
        load: Load {
            access: Some(Access::Random),
            read_percent: Some(100.0),
            block_bytes: Some(4096),
            threads: Some(8),
            depth: Some(32),
            cached: Some(false),
            ..Load::default()
        },
        asked_iops: point.then_some(iops * 1.01),
        asked_seconds: Some(30.0),
        figures: Figures {
            iops: Some(iops),
            bytes_per_sec: Some(iops * 4096.0),
            latency: Latency {
                mean_us: Some(256e6 / iops),
                p50_us: Some(240e6 / iops),
                p99_us: Some(900e6 / iops),
                p999_us: Some(2000e6 / iops),
                ..Latency::default()
            },
            seconds: Some(30.0),
            ..Figures::default()
        },
        bins: (1..40).map(|n: u64| (n * n * 10_000, 10_000_000_000 / n.pow(5))).collect(),
        series: (1..=30).map(|at| Second { at: f64::from(at), iops, mean_us: Some(256e6 / iops) }).collect(),
        gates: vec![
            Gate::pass(Check::Written, "all of the range was written"),
            Gate::warn(Check::Noise, "other programs used 12 % of the CPUs, other guests 0 %"),
        ],
        command: Some("fio --filename=/a/very/long/path/without/any/place/to/break/it/that/goes/on/and/on".to_owned()),
        note: String::new(),
    }
}

fn timeline() -> Timeline {
    let moment = |second: u32| {
        let (iops, rebuilt) = match second {
            0..30 => (400_000.0, None),
            30..60 => (210_000.0, None),
            60..160 => (140_000.0, Some(f64::from(second - 60))),
            _ => (399_000.0, Some(100.0)),
        };
        Moment {
            at: f64::from(second),
            iops: Some(iops),
            p50_us: Some(240e6 / iops),
            p95_us: Some(600e6 / iops),
            p99_us: Some(900e6 / iops),
            p999_us: Some(2000e6 / iops),
            rebuilt_percent: rebuilt,
        }
    };
    let event = |at: f64, what: &str| Event { at, what: what.to_owned() };
    Timeline {
        name: "4K random read through all states".to_owned(),
        optimal_iops: Some(400_000.0),
        moments: (0..190).map(moment).collect(),
        events: vec![event(30.0, "fail"), event(60.0, "replace"), event(160.0, "rebuilt")],
    }
}
