//! Importers on files that fio 3.33 really wrote (the name of the file it worked on is shortened).

#![allow(clippy::unwrap_used)]

use std::path::Path;

use lab::import::import;
use lab::model::{Access, Check, Part, Run, Subject, Verdict};

fn read(name: &str) -> Run {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    import(&path, &Subject::default()).unwrap()
}

#[test]
fn a_mix_of_two_threads_is_one_cell_with_merged_bins() {
    let run = read("fio-mix.json");
    let [cell] = &run.cells[..] else { panic!("{} cells", run.cells.len()) };
    assert_eq!((cell.load.name().as_str(), cell.load.pressure().as_str()), ("8K random 70/30", "2 x 8"));
    let (iops, bytes) = (cell.figures.iops.unwrap(), cell.figures.bytes_per_sec.unwrap());
    assert!((bytes / iops / 8192.0 - 1.0).abs() < 0.001);
    let read = cell.figures.read.unwrap();
    assert!((read.iops / iops - 0.7).abs() < 0.02, "{read:?}");
    // As many requests in the bins as the rate and the time say.
    let count: u64 = cell.bins.iter().map(|b| b.1).sum();
    assert!((count as f64 / (iops * cell.figures.seconds.unwrap()) - 1.0).abs() < 0.01);
    assert!(cell.figures.latency.p99_us > cell.figures.latency.p50_us);
    assert!((cell.in_flight().unwrap() / 16.0 - 1.0).abs() < 0.1, "{:?}", cell.in_flight());
}

#[test]
fn hosts_of_a_client_are_one_load() {
    let run = read("fio-hosts.json");
    let [cell] = &run.cells[..] else { panic!("{} cells", run.cells.len()) };
    assert_eq!(cell.load.pressure(), "2 x 2 from each of 2 hosts");
    // Two hosts with two threads each, 70 reads and 30 writes a second for every thread.
    assert_eq!(cell.asked_iops, Some(400.0));
    assert!((0.95..1.05).contains(&cell.achieved().unwrap()), "{:?}", cell.achieved());
    assert!((cell.figures.read.unwrap().iops / 280.0 - 1.0).abs() < 0.05, "{:?}", cell.figures.read);
    let count: u64 = cell.bins.iter().map(|b| b.1).sum();
    assert!((count as f64 / (cell.figures.iops.unwrap() * cell.figures.seconds.unwrap()) - 1.0).abs() < 0.02);
}

#[test]
fn plain_json_tells_percentiles_without_bins() {
    let run = read("fio-plain.json");
    let cell = &run.cells[0];
    assert!(cell.bins.is_empty() && cell.figures.latency.p99_us.is_some());
    assert_eq!((cell.load.cached, cell.load.access), (Some(false), Some(Access::Random)));
    let gate = |check| cell.gates.iter().find(|g| g.check == check).map(|g| g.verdict);
    assert_eq!((gate(Check::Bandwidth), gate(Check::Errors)), (Some(Verdict::Pass), Some(Verdict::Pass)));
    assert_eq!(gate(Check::Disclosure), Some(Verdict::Warn), "no file tells whether its range was written");
}

#[test]
fn two_jobs_take_what_they_share_from_the_global_options() {
    let run = read("fio-two.json");
    let loads: Vec<String> = run.cells.iter().map(|c| c.load.name()).collect();
    assert_eq!(loads, ["128K sequential read", "4K random write"]);
    assert!(run.cells.iter().all(|c| c.load.cached == Some(false)));
    assert_eq!(run.cells[1].asked_iops, Some(500.0));
    assert!(run.cells[1].achieved().unwrap() > 0.9);
}

#[test]
fn a_directory_of_bench_fio_is_one_result() {
    let run = read("bench-fio");
    let mut cells: Vec<String> =
        run.cells.iter().map(|c| format!("{}, {}", c.load.name(), c.load.pressure())).collect();
    cells.sort();
    assert_eq!(
        cells,
        ["4K random read, 1 x 1", "4K random read, 1 x 8", "4K random write, 1 x 1", "4K random write, 1 x 8"]
    );
    assert!(run.cells.iter().all(|c| c.source.as_ref().unwrap().starts_with("f/4k/")));
}

#[test]
fn clones_without_group_reporting_are_one_load() {
    let run = read("bench-fio-clones");
    assert_eq!(run.cells.len(), 2, "a file is a load, however many clones it tells of");
    let cell = |name: &str| run.cells.iter().find(|c| c.load.name() == name).unwrap();
    let (reads, mix) = (cell("4K random read"), cell("4K random 70/30"));
    // fio told 10,132.6 and 9,696.4.
    assert_eq!((reads.load.pressure().as_str(), reads.figures.iops.unwrap().round()), ("2 x 4", 19_829.0));
    assert!(reads.id.ends_with("randread-4-2") && mix.id.ends_with("randrw-4-2"), "{} {}", reads.id, mix.id);
    for cell in [reads, mix] {
        assert!((cell.in_flight().unwrap() / 8.0 - 1.0).abs() < 0.05, "{:?}", cell.in_flight());
        // Plain JSON has no bins: clones have a mean together, and no percentiles.
        assert!(cell.bins.is_empty() && cell.figures.latency.p99_us.is_none());
    }
    assert_eq!(mix.load.threads, Some(2));
    // The logs of both clones lie beside one of the files.
    assert!(reads.series.len() >= 2 && mix.series.is_empty(), "{:?}", reads.series);
    assert!((reads.series[0].iops / reads.figures.iops.unwrap() - 1.0).abs() < 0.2, "{:?}", reads.series);
}

#[test]
fn requests_of_several_sizes_have_no_size() {
    let run = read("fio-range.json");
    let cell = &run.cells[0];
    assert_eq!((cell.load.block_bytes, cell.load.name().as_str()), (None, "random read"));
    assert!(cell.note.contains("4k-64k"), "{}", cell.note);
    assert!(cell.gates.iter().all(|g| g.check != Check::Bandwidth), "{:?}", cell.gates);
    assert!(cell.gates.iter().any(|g| g.reason.contains("block size")), "{:?}", cell.gates);
}

#[test]
fn a_curve_of_vdbench_is_a_curve_in_the_report() {
    let run = read("vdbench-curve.html");
    let parts: Vec<Part> = run.cells.iter().map(|c| c.part).collect();
    assert_eq!((parts.len(), parts[0], parts[12]), (13, Part::CurveMax, Part::Curve { percent: 120 }));
    let page = lab::report::page(&[run], &lab::report::Extra::default());
    assert!(page.contains("id=\"curves\""), "{page}");
}

#[test]
fn what_is_imported_is_compared_and_reported() {
    let (a, b) = (read("bench-fio"), read("fio-plain.json"));
    let page = lab::report::page(&[a, b], &lab::report::Extra::default());
    // 1 x 1 and 1 x 8 against 1 x 4: no difference is told.
    assert!(page.contains("depth: 1 and 4") && page.contains("depth: 8 and 4"), "{page}");
}
