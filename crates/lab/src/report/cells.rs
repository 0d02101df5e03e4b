//! Every cell with all its numbers, its verdict and why. Columns that no cell fills are left out.

use super::Section;
use super::html::{badge, escape, reasons, table_of_known};
use super::page::own_places;
use super::scales::Scales;
use crate::findings::{Build, short};
use crate::model::{Cell, Run, Share};
use crate::units::{grouped, latency, rate};

const HEADS: [&str; 19] = [
    "cell",
    "verdict",
    "load",
    "threads x depth",
    "system",
    "IOPS",
    "bandwidth",
    "IOPS per drive",
    "IOPS per busy CPU",
    "CPU",
    "disk busy",
    "mean",
    "p50",
    "p99",
    "p99.9",
    "p99.99",
    "longest",
    "got / asked",
    "in flight",
];

/// The section, if there are cells.
pub fn section(runs: &[Run], _: &Scales) -> Option<Section> {
    let mut body = String::new();
    for (nth, run) in runs.iter().enumerate().filter(|(_, r)| !r.cells.is_empty()) {
        let cpus = cpus(run);
        let rows: Vec<Vec<String>> = run.cells.iter().flat_map(|c| rows(c, cpus)).collect();
        let table = own_places(runs, nth, &table_of_known(&HEADS, &rows, true));
        body.push_str(&format!("<h3>{}</h3>{table}", escape(&run.name)));
    }
    (!body.is_empty()).then(|| Section::new("cells", "Every cell", body))
}

/// CPUs of the machine that measured: its card begins with their number.
pub fn cpus(run: &Run) -> Option<f64> {
    let card = run.system.iter().find(|p| p.name == "CPU")?;
    card.value.split_whitespace().next()?.parse().ok()
}

/// Requests a second for each CPU that was busy all the time.
pub fn iops_per_cpu(cell: &Cell, cpus: Option<f64>) -> Option<f64> {
    let busy = cpus? * cell.figures.cpu_percent? / 100.0;
    (busy > 0.0).then_some(cell.figures.iops? / busy)
}

/// Requests a second for each drive.
pub fn iops_per_drive(cell: &Cell) -> Option<f64> {
    Some(cell.figures.iops? / f64::from(cell.subject.drive_count.filter(|n| *n > 0)?))
}

/// A cell, the directions of a mix below it, and what is to be said of it.
fn rows(cell: &Cell, cpus: Option<f64>) -> Vec<Vec<String>> {
    let mut rows = vec![row(cell, cpus)];
    rows.extend(cell.figures.read.map(|s| share("of these, reads", &s)));
    rows.extend(cell.figures.write.map(|s| share("of these, writes", &s)));
    let mut why = reasons(&cell.gates);
    if !cell.note.is_empty() {
        let between = if why.is_empty() { "" } else { "<br>" };
        why = format!("{why}{between}<i>{}</i>", escape(&cell.note));
    }
    rows.extend((!why.is_empty()).then(|| vec![format!("<span class=\"why\">{why}</span>")]));
    rows
}

fn told(value: Option<f64>, text: fn(f64) -> String) -> String {
    value.map_or("-".to_owned(), text)
}

fn row(cell: &Cell, cpus: Option<f64>) -> Vec<String> {
    let (figures, subject) = (&cell.figures, &cell.subject);
    let name = cell.load.name();
    let name = if name.is_empty() || cell.load.read_percent.is_none() { cell.test.clone() } else { name };
    // A single drive has no level, and is in no state.
    let mut system = vec![short(&subject.system), Build::of(cell).text()];
    system.extend(subject.level.is_some().then(|| subject.state.to_string()));
    system.retain(|w| !w.is_empty());
    vec![
        format!("<span id=\"{0}\">{0}</span>", escape(&cell.id)),
        badge(&cell.gates),
        escape(&name),
        escape(&cell.load.pressure()),
        escape(&system.join(", ")),
        told(figures.iops, grouped),
        told(figures.bytes_per_sec, rate),
        told(iops_per_drive(cell), grouped),
        told(iops_per_cpu(cell, cpus), grouped),
        told(figures.cpu_percent, |p| format!("{p:.0} %")),
        told(figures.disk_busy_percent, |p| format!("{p:.0} %")),
        told(figures.latency.mean_us, latency),
        told(figures.latency.p50_us, latency),
        told(figures.latency.p99_us, latency),
        told(figures.latency.p999_us, latency),
        told(figures.latency.p9999_us, latency),
        told(figures.latency.max_us, latency),
        told(cell.achieved(), |a| format!("{:.1} %", a * 100.0)),
        told(cell.in_flight(), |n| format!("{n:.1}")),
    ]
}

fn share(what: &str, share: &Share) -> Vec<String> {
    let mut row = vec![String::new(); HEADS.len()];
    row[2] = what.to_owned();
    row[5] = grouped(share.iops);
    row[6] = rate(share.bytes_per_sec);
    row[11] = told(share.mean_us, latency);
    row[12] = told(share.p50_us, latency);
    row[13] = told(share.p99_us, latency);
    row[14] = told(share.p999_us, latency);
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Origin, Pair};

    #[test]
    fn a_mix_tells_its_directions_apart_and_a_drive_and_a_cpu_their_share() {
        let text = include_str!("../../tests/data/fio-mix.json");
        let job = crate::fio_json::parse(text).unwrap().jobs.remove(0);
        let mut run = Run::new("r", "", Origin::Measured);
        run.system.push(Pair::new("CPU", "4 x something"));
        let mut cell = crate::published::run("perc12").unwrap().cells.remove(0);
        cell.figures = job.figures.clone();
        cell.figures.cpu_percent = Some(50.0);
        let busy = cell.figures.disk_busy_percent.unwrap();
        cell.subject.drive_count = Some(2);
        let iops = cell.figures.iops.unwrap();
        let (read, write) = (cell.figures.read.unwrap(), cell.figures.write.unwrap());
        assert_ne!(read.p99_us, write.p99_us);
        run.cells.push(cell);
        let body = section(&[run], &Scales::default()).unwrap().body;
        for text in [
            "of these, reads".to_owned(),
            "of these, writes".to_owned(),
            latency(read.p99_us.unwrap()),
            latency(write.p99_us.unwrap()),
            grouped(iops / 2.0),
            "IOPS per busy CPU".to_owned(),
            "disk busy".to_owned(),
            format!("{busy:.0} %"),
        ] {
            assert!(body.contains(&text), "{text}: {body}");
        }
        assert!(!body.contains("got / asked"), "nothing was asked");
    }
}
