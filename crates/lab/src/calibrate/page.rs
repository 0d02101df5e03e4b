//! `docs/model.md`: what the model says beside what was published, and what it says of layouts.

use std::fmt::Write as _;

use predict::{DRIVES, DriveFile, sheet_errors};

use super::cases::cases;
use super::flagship::{Entry, flagship};
use super::table::{Line, SEED, first_sight, summary};
use crate::error::Error;

/// Likely causes of errors above 25 %, by row.
const CAUSES: [(&str, &str); 12] = [
    ("perc12-005", "Vdbench with 32 threads a drive makes 5.2 GB/s of one; fio makes 6.8: its threads, not the drives"),
    (
        "perc12-007",
        "sequential streams of Vdbench on a slice of a drive that was filled: far below the sheet, as in qlc24-007",
    ),
    ("perc12-008", "the same behind the card"),
    ("perc12-057", "the firmware does less than twice what the card before it did, which was assumed"),
    ("perc12-058", "the same on two cards"),
    ("perc12-061", "the same for writes of RAID 5"),
    ("perc12-062", "the same on two cards"),
    (
        "perc12-065",
        "reads wait for the rows that writes have locked, too; the review prints the rate of writes alone for the mix",
    ),
    ("perc12-066", "the same on two cards"),
    ("perc11-003", "a card of 2013 with SATA drives: a ceiling for reads that no row states"),
    (
        "qlc24-003",
        "the sheet says 3.6 GB/s; on the slice of a drive that was filled the review measured 2.3 GB/s of each",
    ),
    ("qlc24-007", "the same with 64K"),
];

const HEAD: &str = "# The model\n\n\
    What `ashlar lab predict` rests on, and how far off it was. `ASHLAR_RENEW_TEXTS=1 cargo test --release -p lab --test model`\n\
    writes this page; do not edit it.\n\n";

const PARTS: &str = "\
## What is modelled\n\n\
A system is servers in a row: CPUs, network, RAID card, and drives with link, buffer, channels and dies. A request takes its time of each;\n\
the simulation is of single requests, in virtual time, and ends when the rate is known within 1 %, or after 2 virtual seconds. The cost of\n\
cleaning is a formula, which a test compares with the translation layer of the modelled drives.\n\
[ADR 38](adr/0038-a-model-of-whole-systems.md) says why.\n\n\
| part | where its figures come from |\n|---|---|\n\
| drives (`crates/predict/drives`) | the maker's sheet; what has no source is `assumed` and counts in no table of errors |\n\
| links of cards | one row each way: perc12-014 and perc12-021, perc11-015 |\n\
| ceilings of a card, by level | optimal rows of that card alone |\n\
| CPU of a request | assumed for fio; one row for Vdbench, direct and behind a card; `docs/performance.md` for Ashlar |\n\n\
*Fitted* is a row from which a figure of a file comes. *Held out* is every other: two cards, rebuilds, mixes, slices. Whoever wrote the model had\n\
read the reviews; held out means that no figure was computed from the row. What was changed after the first comparison is marked so in the\n\
files, and *first sight* is the error before that.\n\n\
Not modelled: page caches, md's stripe cache, read-ahead of hosts, heat and power limits, reviews' charts without numbers, and why sequential\n\
writes on a slice fall below the sheet.\n\n";

/// The page.
///
/// # Errors
/// When a row or a system is wrong.
pub fn page(lines: &[Line]) -> Result<String, Error> {
    let mut out = HEAD.to_owned();
    summaries(&mut out, lines)?;
    out.push_str(PARTS);
    sheets(&mut out)?;
    rows(&mut out, lines)?;
    tables(&mut out)?;
    left_out(&mut out)?;
    Ok(out)
}

fn percent(share: f64) -> String {
    format!("{:+.0} %", share * 100.0)
}

fn summaries(out: &mut String, lines: &[Line]) -> Result<(), Error> {
    let (first, held_out) = (first_sight()?, |l: &&Line| l.held_out());
    let now = summary(lines.iter().filter(held_out).map(Line::error));
    let then = summary(lines.iter().filter(held_out).filter_map(|l| first.get(&l.id).copied()));
    for (what, found) in [("Held-out figures", now), ("The same at first sight", then)] {
        if let Some(s) = found {
            let _ = writeln!(
                out,
                "{what}: median error {:.0} %, 90th percentile {:.0} %, {:.0} % of {} rows within 25 %.\n",
                s.median * 100.0,
                s.p90 * 100.0,
                s.within_quarter * 100.0,
                s.rows
            );
        }
    }
    out.push_str("| held out | rows | median | 90th percentile | within 25 % |\n|---|---|---|---|---|\n");
    let mut kinds: Vec<&str> = lines.iter().filter(held_out).map(|l| l.role.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        if let Some(s) = summary(lines.iter().filter(|l| l.role == kind).map(Line::error)) {
            let (name, [median, p90, within]) =
                (kind.trim_start_matches("held out: "), [s.median, s.p90, s.within_quarter].map(|v| v * 100.0));
            let _ = writeln!(out, "| {name} | {} | {median:.0} % | {p90:.0} % | {within:.0} % |", s.rows);
        }
    }
    out.push('\n');
    Ok(())
}

fn sheets(out: &mut String) -> Result<(), Error> {
    out.push_str("## Single drives against their sheets\n\n| drive | load | in flight | sheet | model | error | source |\n|---|---|---|---|---|---|---|\n");
    for (name, _) in DRIVES {
        let wrong = |e: predict::Error| Error::format(name, e);
        for e in sheet_errors(&DriveFile::named(name).map_err(wrong)?, SEED).map_err(wrong)? {
            let error = if e.row.assumed { "assumed".to_owned() } else { format!("{:+.1} %", e.error() * 100.0) };
            let _ = writeln!(
                out,
                "| {name} | {}, {} | {} | {} {} | {} | {error} | {} |",
                e.row.load,
                e.row.condition,
                e.row.in_flight,
                number(e.row.value),
                e.row.unit,
                number(e.modelled),
                e.row.source
            );
        }
    }
    out.push('\n');
    Ok(())
}

fn rows(out: &mut String, lines: &[Line]) -> Result<(), Error> {
    let first = first_sight()?;
    out.push_str("## Published figures beside the model's\n\n| row | system | load | condition | published | model | error | at first sight | |\n|---|---|---|---|---|---|---|---|---|\n");
    for line in lines {
        let seen = first.get(&line.id).map_or("-".to_owned(), |e| percent(*e));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} {} | {} | {} | {seen} | {} |",
            line.id,
            line.system,
            line.load,
            line.condition,
            number(line.published),
            line.unit,
            number(line.modelled),
            percent(line.error()),
            line.role
        );
    }
    out.push_str("\nErrors above 25 % of held-out rows, and what they are likely to come from:\n\n| row | error | likely cause |\n|---|---|---|\n");
    for line in lines.iter().filter(|l| l.held_out() && l.error().abs() > 0.25) {
        let cause = CAUSES.iter().find(|(id, _)| *id == line.id).map_or("not known", |(_, cause)| cause);
        let _ = writeln!(out, "| {} | {} | {cause} |", line.id, percent(line.error()));
    }
    out.push('\n');
    Ok(())
}

fn tables(out: &mut String) -> Result<(), Error> {
    out.push_str(
        "## Random writes by layout\n\n\
        Steady, 32 requests in flight for each drive, a host of 64 cores, PERC 12 cards for eight drives each. RAID in place has half of the cores. Ashlar has 16, one for each of the most parts that an array can have; an array that is created without `--parts` has one, and makes a sixteenth of the rate where the CPUs are the limit.\n\
        *drive* is bytes that drives are given for a byte of a host, *inside* what a drive programs for each of those, *flash* both. *Life* is in\n\
        years when hosts write the capacity of all drives each day. *busy* are shares: drives inside, their links, card, CPUs. An array that writes\n\
        in place is taken to pass deallocations on, and never to have been synchronised in full, which favours it. Ashlar's volumes hold 85 % of the data drives'\n\
        space, and `full` is of that.\n\n",
    );
    let tables = flagship()?;
    for (title, entries) in &tables {
        let _ = writeln!(
            out,
            "### {title}\n\n| layout | IOPS | to direct | p99 ms | drive | inside | flash | life | CPU us | busy |\n|---|---|---|---|---|---|---|---|---|---|"
        );
        let direct = entries.first().map_or(1.0, |e| e.answer.iops);
        for entry in entries {
            let _ = writeln!(out, "{}", line_of(entry, direct));
        }
        out.push('\n');
    }
    losses(out, &tables);
    Ok(())
}

fn line_of(entry: &Entry, direct: f64) -> String {
    let (a, busy) = (&entry.answer, entry.answer.busy.map(|b| format!("{:.0}", b * 100.0)));
    let written = a.drive_bytes_per_byte > 0.0;
    let cost = |v: f64| if written { format!("{v:.2}") } else { "-".to_owned() };
    format!(
        "| {} | {} | {:.2} | {:.2} | {} | {} | {} | {} | {:.1} | {} {} {} {} |",
        entry.system.title().split_once(", ").map_or("", |(_, rest)| rest),
        number(a.iops),
        a.iops / direct,
        a.p99_us / 1e3,
        cost(a.drive_bytes_per_byte),
        cost(a.flash_amplification),
        cost(entry.flash_bytes_per_byte),
        entry.years.map_or("-".to_owned(), |y| format!("{y:.1}")),
        a.cpu_us,
        busy[0],
        busy[1],
        busy[2],
        busy[3]
    )
}

/// Where Ashlar is behind another layout of the same drives.
fn losses(out: &mut String, tables: &[(String, Vec<Entry>)]) {
    out.push_str(
        "Where Ashlar is behind: in requests a second to any layout, in the p99, bytes to flash and CPU of a request to layouts of the\n\
        same level (more than 5 %).\n\n| load | Ashlar | behind | by |\n|---|---|---|---|\n",
    );
    let name = |e: &Entry| e.system.title().split_once(", ").map_or(String::new(), |(_, t)| t.to_owned());
    for (title, entries) in tables {
        for ours in entries.iter().filter(|e| e.system.engine == predict::Engine::Ashlar) {
            for other in entries.iter().filter(|e| e.system.engine != ours.system.engine) {
                let mut by = vec![];
                let more = |what: &str, theirs: f64, ours: f64| {
                    (theirs > 0.0 && ours > 1.05 * theirs).then(|| format!("{what} {:.2} times", ours / theirs))
                };
                if other.answer.iops > 1.05 * ours.answer.iops {
                    by.push(format!("IOPS {:.2} of it", ours.answer.iops / other.answer.iops));
                }
                if other.system.level == ours.system.level {
                    by.extend(more("p99", other.answer.p99_us, ours.answer.p99_us));
                    by.extend(more("flash", other.flash_bytes_per_byte, ours.flash_bytes_per_byte));
                    by.extend(more("CPU", other.answer.cpu_us, ours.answer.cpu_us));
                }
                if !by.is_empty() {
                    let _ = writeln!(out, "| {title} | {} | {} | {} |", name(ours), name(other), by.join(", "));
                }
            }
        }
    }
    out.push_str(
        "\nThe engine itself on modelled TLC drives (`ashlar bench --model tlc:8x512M --raid 5 --width 8 --fill 80 --depth 256`) makes 2.83 million\n\
        random writes a second at 80 % of usable, 1.55 times bare drives that are full, with 2.21 bytes to drives for one of a host and 1.14 inside: this is\n\
        where *inside* of Ashlar comes from, and the difference to its row above is what the formulas leave out. Reads in order of what was written at\n\
        random are not modelled; Ashlar reads such volumes as small pieces.\n\n",
    );
}

fn left_out(out: &mut String) -> Result<(), Error> {
    out.push_str("## Measurements that the model does not cover\n\n| row | load | why |\n|---|---|---|\n");
    for (row, why) in cases()?.1 {
        let _ = writeln!(out, "| {} | {} | {why} |", row.id, row.workload.replace('|', "/"));
    }
    Ok(())
}

/// Three digits, with commas: "1,730,000", "28.1", "0.551".
fn number(value: f64) -> String {
    let digits = 10f64.powf(2.0 - value.abs().max(1e-12).log10().floor());
    let value = (value * digits).round() / digits;
    if value < 1000.0 {
        let places = (2.0 - value.abs().max(1e-12).log10().floor()).clamp(0.0, 3.0) as usize;
        return format!("{value:.places$}");
    }
    let whole = format!("{value:.0}");
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}
