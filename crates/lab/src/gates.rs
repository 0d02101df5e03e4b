//! The verdicts on a cell that the lab measured, or imported as far as it tells: on its arithmetic and the machine here, on
//! what it was measured on in `target`.

mod target;

use crate::compare::fifths;
use crate::curve::SERVED;
use crate::host::Busy;
use crate::model::{Cell, Check, Gate, Part, Verdict};
use crate::steady::Excursion;
use crate::units::{grouped, rate};
use crate::written::{Contents, Written};

/// Measured over asked seconds, at least.
const DURATION_MIN: f64 = 0.90;
/// Little's law may be missed by this much.
const LITTLE_MAX: f64 = 0.05;
/// Rate x block and bandwidth may differ by this much.
const BANDWIDTH_MAX: f64 = 0.01;
/// A CPU that is busier is the limit.
const CPU_PERCENT_MAX: f64 = 90.0;
/// CPU that others may use, hundredths of all.
const NOISE_PERCENT_MAX: f64 = 5.0;
/// Writes can be steady once the range was overwritten so many times.
const OVERWRITTEN_MIN: f64 = 1.0;
/// Of a link's rate: above this it is the limit.
const LINK_SHARE_MAX: f64 = 0.95;

/// What was seen beside the cell.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What is known of its range, before it was read; absent: nobody looked.
    pub written: Option<Written>,
    /// The same, after it.
    pub written_after: Option<Written>,
    /// What lies in the range; absent: nobody looked.
    pub contents: Option<Contents>,
    /// How often the range was overwritten since it was filled, this cell included.
    pub overwritten: Option<f64>,
    /// The user says that it was.
    pub trusted: bool,
    /// Requests that failed; requests that fell short.
    pub errors: Option<(u64, u64)>,
    /// The machine's CPUs meanwhile.
    pub busy: Option<Busy>,
    /// The generator's share of that, hundredths of all CPUs.
    pub own_cpu_percent: Option<f64>,
    /// The share of what serves the target on this machine.
    pub served_cpu_percent: f64,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// What the link carries, bytes a second in one direction.
    pub link_bytes_per_sec: Option<f64>,
    /// Temperature after it, and the drive's warning threshold.
    pub heat: Option<(f64, Option<f64>)>,
    /// How the target differs at the end from the beginning of the run; absent: nobody looked.
    pub changes: Option<Vec<String>>,
    /// The memory that O_DIRECT ends at, where that is not the drive.
    pub memory_below: Option<String>,
    /// Whether what was written cannot be compressed.
    pub incompressible: Option<bool>,
    /// Whether the cache was left out as asked, when the engine has one.
    pub direct_is_known: bool,
}

/// All verdicts on a cell. What could not be looked at has no gate, but for what every number needs.
pub fn judge(cell: &Cell, seen: &Seen) -> Vec<Gate> {
    let all = [
        duration(cell),
        target::written(cell, seen),
        target::contents(cell, seen),
        target::cache(cell, seen),
        target::range(cell, seen),
        steady(cell, seen),
        errors(cell, seen),
        little(cell),
        bandwidth(cell),
        link(cell, seen),
        host(seen),
        achieved(cell),
        target::identity(seen),
        target::data(cell, seen),
        noise(seen),
        heat(seen),
    ];
    all.into_iter().flatten().collect()
}

fn duration(cell: &Cell) -> Option<Gate> {
    let asked = cell.asked_seconds?;
    let Some(took) = cell.figures.seconds else {
        return Some(Gate::fail(Check::Duration, "nothing was measured"));
    };
    let text = format!("{took:.1} of {asked:.1} s");
    Some(if took >= DURATION_MIN * asked {
        Gate::pass(Check::Duration, text)
    } else {
        Gate::fail(Check::Duration, format!("it ended after {text}"))
    })
}

fn steady(cell: &Cell, seen: &Seen) -> Option<Gate> {
    // Rounds are judged together; a fill and a precondition are on the way; a limited rate is as steady as its limit.
    let judged = matches!(
        cell.part,
        Part::Alone
            | Part::CurveMax
            | Part::Matrix
            | Part::Unallocated
            | Part::OneOf { .. }
            | Part::Together
            | Part::States
    );
    if !judged || cell.asked_iops.is_some() {
        return None;
    }
    let Some(e) = Excursion::of(&fifths(cell)) else {
        return cell.load.writes().then(|| Gate::warn(Check::Steady, "too short to say whether it was steady"));
    };
    let text = format!("five parts of it: range {:.1} %, trend {:+.1} %", e.range * 100.0, e.slope * 100.0);
    let fresh = seen.overwritten.filter(|times| cell.load.writes() && *times < OVERWRITTEN_MIN);
    Some(match (e.is_steady(), fresh) {
        (false, _) => Gate::warn(Check::Steady, format!("not steady; {text}")),
        // A cache or a burst allowance is as steady as a drive, until it is used up.
        (true, Some(times)) => Gate::warn(
            Check::Steady,
            format!(
                "{text}; but {:.0} % of the range were overwritten since its fill: this may not last",
                times * 100.0
            ),
        ),
        (true, None) => Gate::pass(Check::Steady, text),
    })
}

fn errors(cell: &Cell, seen: &Seen) -> Option<Gate> {
    let checked = cell.part == Part::Check;
    Some(match seen.errors? {
        (0, 0) if checked => Gate::pass(Check::Errors, "every block reads as it was written"),
        (errors, 0) if checked => {
            Gate::fail(Check::Errors, format!("{errors} blocks do not read as they were written"))
        }
        (0, 0) => Gate::pass(Check::Errors, "none"),
        (errors, short) => Gate::fail(Check::Errors, format!("{errors} requests failed, {short} were short")),
    })
}

fn little(cell: &Cell) -> Option<Gate> {
    if cell.part == Part::Check {
        // Between its requests it reckons checksums, and nobody asks how fast it is.
        return None;
    }
    let (flying, most) = (cell.in_flight()?, cell.load.outstanding()?);
    if cell.asked_iops.is_some() || cell.load.fsync.is_some() {
        // A limited rate keeps fewer in flight, and none are while a flush is waited for; more than there are is impossible.
        let impossible = flying > most * (1.0 + LITTLE_MAX);
        return impossible.then(|| Gate::fail(Check::Little, format!("{flying:.1} in flight of {most:.0} at most")));
    }
    let off = flying / most - 1.0;
    let text = format!("{flying:.1} in flight for {most:.0} ({:+.1} %)", off * 100.0);
    Some(if off.abs() <= LITTLE_MAX { Gate::pass(Check::Little, text) } else { Gate::warn(Check::Little, text) })
}

fn bandwidth(cell: &Cell) -> Option<Gate> {
    let (told, reckoned) = (cell.figures.bytes_per_sec?, cell.figures.iops? * cell.load.block_bytes? as f64);
    let off = told / reckoned - 1.0;
    // fio counts bytes and requests at different moments: what is in flight at either end is a share of a slow or short cell.
    let requests = cell.figures.iops? * cell.figures.seconds.unwrap_or(f64::INFINITY);
    let at_the_ends = cell.load.outstanding().map_or(0.0, |flying| flying / requests.max(1.0));
    Some(if off.abs() <= BANDWIDTH_MAX + at_the_ends {
        Gate::pass(Check::Bandwidth, "rate x block size")
    } else {
        Gate::fail(Check::Bandwidth, format!("{} reported, rate x block size is {}", rate(told), rate(reckoned)))
    })
}

fn link(cell: &Cell, seen: &Seen) -> Option<Gate> {
    let (most, bytes) = (seen.link_bytes_per_sec?, cell.figures.bytes_per_sec?);
    // Of a mix the larger direction counts.
    let reads = cell.load.read_percent.unwrap_or(100.0) / 100.0;
    let bytes = bytes * reads.max(1.0 - reads);
    let text = format!("{} of {}", rate(bytes), rate(most));
    Some(if bytes > LINK_SHARE_MAX * most {
        Gate::warn(Check::Link, format!("link-bound: {text}"))
    } else {
        Gate::pass(Check::Link, text)
    })
}

fn host(seen: &Seen) -> Option<Gate> {
    let busy = seen.busy?;
    let text = format!("the busiest of {} CPUs was busy for {:.0} %", busy.cpus, busy.most_percent);
    Some(if busy.most_percent > CPU_PERCENT_MAX {
        Gate::warn(Check::Host, format!("host-bound: {text}"))
    } else {
        Gate::pass(Check::Host, text)
    })
}

fn achieved(cell: &Cell) -> Option<Gate> {
    let achieved = cell.achieved()?;
    let text =
        format!("{} of {} IOPS ({:.1} %)", grouped(cell.figures.iops?), grouped(cell.asked_iops?), achieved * 100.0);
    let below_max = matches!(cell.part, Part::Curve { percent } if percent < 100);
    Some(match (achieved >= SERVED, below_max) {
        (true, _) => Gate::pass(Check::Achieved, text),
        (false, true) => {
            Gate::fail(Check::Achieved, format!("below its own maximum, but not all requested load was served: {text}"))
        }
        (false, false) => Gate::warn(Check::Achieved, format!("saturated: {text}")),
    })
}

fn noise(seen: &Seen) -> Option<Gate> {
    let busy = seen.busy?;
    let known = busy.steal_percent + seen.own_cpu_percent? + seen.served_cpu_percent;
    let others = (busy.all_percent - known).max(0.0);
    let mut text = format!("other programs used {others:.0} % of the CPUs, other guests {:.0} %", busy.steal_percent);
    if seen.served_cpu_percent >= 0.5 {
        text.push_str(&format!(", what serves the target {:.0} %", seen.served_cpu_percent));
    }
    Some(if others + busy.steal_percent > NOISE_PERCENT_MAX {
        Gate::warn(Check::Noise, text)
    } else {
        Gate::pass(Check::Noise, text)
    })
}

/// Reads and writes of one load that are level to this share have one limit.
const LEVEL_MAX: f64 = 0.003;

/// Marks loads without a limit whose reads and writes are level, as drives' are not: both are held back by one thing.
pub fn mark_level(cells: &mut [Cell]) {
    let may = |c: &Cell| matches!(c.part, Part::Alone | Part::CurveMax | Part::Matrix | Part::OneOf { .. });
    let level = |a: &Cell, b: &Cell| {
        let (x, y) = (a.figures.iops.filter(|n| *n > 0.0)?, b.figures.iops?);
        let opposite = (a.load.read_percent, b.load.read_percent) == (Some(100.0), Some(0.0));
        let alike = (a.load.access, a.load.block_bytes) == (b.load.access, b.load.block_bytes)
            && a.subject == b.subject
            && a.load.cached == b.load.cached;
        (opposite && alike && may(a) && may(b) && (y / x - 1.0).abs() <= LEVEL_MAX).then_some((x, y))
    };
    let mut found = vec![];
    for (i, a) in cells.iter().enumerate() {
        for (j, b) in cells.iter().enumerate() {
            if let Some((reads, writes)) = level(a, b) {
                let text = format!("reads and writes are level ({} and {} IOPS)", grouped(reads), grouped(writes));
                let gate = Gate::warn(Check::Link, format!("{text}: one limit for both, such as a rate cap or a link"));
                found.extend([(i, gate.clone()), (j, gate)]);
            }
        }
    }
    for (at, gate) in found {
        let gates = &mut cells[at].gates;
        if gates.iter().all(|g| g.check != Check::Link || g.verdict == Verdict::Pass) {
            gates.retain(|g| g.check != Check::Link);
            gates.push(gate);
        }
    }
}

fn heat(seen: &Seen) -> Option<Gate> {
    let (now, most) = seen.heat?;
    Some(match most {
        Some(most) if now >= most => Gate::warn(Check::Heat, format!("{now:.0} C, the drive warns at {most:.0} C")),
        Some(most) => Gate::pass(Check::Heat, format!("{now:.0} C, the drive warns at {most:.0} C")),
        None => Gate::pass(Check::Heat, format!("{now:.0} C")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Access, Figures, Latency, Load, Second, Subject};

    /// 4K random reads, 4 threads 8 deep, that keep every promise.
    fn cell() -> Cell {
        Cell {
            id: "c".to_owned(),
            test: "t".to_owned(),
            part: Part::Alone,
            source: None,
            subject: Subject::default(),
            load: Load {
                access: Some(Access::Random),
                read_percent: Some(100.0),
                block_bytes: Some(4096),
                threads: Some(4),
                depth: Some(8),
                cached: Some(false),
                range_bytes: Some(1 << 40),
                ..Load::default()
            },
            asked_iops: None,
            asked_seconds: Some(10.0),
            figures: Figures {
                iops: Some(100_000.0),
                bytes_per_sec: Some(409_600_000.0),
                latency: Latency { mean_us: Some(320.0), ..Latency::default() },
                seconds: Some(10.0),
                ..Figures::default()
            },
            bins: vec![],
            series: (1..=10).map(|at| Second { at: f64::from(at), iops: 100_000.0, mean_us: None }).collect(),
            gates: vec![],
            command: None,
            note: String::new(),
        }
    }

    fn seen() -> Seen {
        Seen { written: Some(Written::All), errors: Some((0, 0)), direct_is_known: true, ..Seen::default() }
    }

    fn verdict(cell: &Cell, seen: &Seen, check: Check) -> Option<Verdict> {
        judge(cell, seen).into_iter().find(|g| g.check == check).map(|g| g.verdict)
    }

    #[test]
    fn a_good_cell_passes_everything() {
        let gates = judge(&cell(), &seen());
        assert!(gates.len() >= 7 && gates.iter().all(|g| g.verdict == Verdict::Pass), "{gates:?}");
    }

    #[test]
    fn the_trap_of_unwritten_blocks() {
        let with = |written, trusted| Seen { written: Some(written), trusted, ..seen() };
        let hole = with(Written::Missing { bytes: 4096 }, true);
        assert_eq!(verdict(&cell(), &hole, Check::Written), Some(Verdict::Fail), "no word of the user changes that");
        let gate = judge(&cell(), &hole).into_iter().find(|g| g.check == Check::Written).unwrap();
        assert!(gate.reason.starts_with("unwritten"), "{}", gate.reason);
        assert_eq!(verdict(&cell(), &with(Written::Unknown, false), Check::Written), Some(Verdict::Fail));
        assert_eq!(verdict(&cell(), &with(Written::Unknown, true), Check::Written), Some(Verdict::Warn));
        let named = Cell { part: Part::Unallocated, ..cell() };
        assert_eq!(verdict(&named, &hole, Check::Written), Some(Verdict::Warn));
        assert_eq!(verdict(&named, &seen(), Check::Written), Some(Verdict::Fail), "a name is kept");
        let mut writes = cell();
        writes.load.read_percent = Some(0.0);
        assert_eq!(verdict(&writes, &hole, Check::Written), None, "writes need nothing written");
    }

    #[test]
    fn a_job_that_ended_early_fails() {
        let mut short = cell();
        short.figures.seconds = Some(1.404);
        assert_eq!(verdict(&short, &seen(), Check::Duration), Some(Verdict::Fail));
        short.figures.seconds = None;
        assert_eq!(verdict(&short, &seen(), Check::Duration), Some(Verdict::Fail));
    }

    #[test]
    fn arithmetic_is_checked() {
        let mut off = cell();
        off.figures.latency.mean_us = Some(250.0);
        assert_eq!(verdict(&off, &seen(), Check::Little), Some(Verdict::Warn));
        off.figures.bytes_per_sec = Some(4e9);
        assert_eq!(verdict(&off, &seen(), Check::Bandwidth), Some(Verdict::Fail));
        // 16 requests more than the 800 of two seconds, of 16 in flight.
        let mut slow = cell();
        (slow.load.threads, slow.load.depth, slow.load.block_bytes) = (Some(1), Some(16), Some(65_536));
        (slow.figures.iops, slow.figures.seconds) = (Some(400.0), Some(2.0));
        slow.figures.bytes_per_sec = Some(408.0 * 65_536.0);
        assert_eq!(verdict(&slow, &seen(), Check::Bandwidth), Some(Verdict::Pass));
        slow.figures.bytes_per_sec = Some(416.0 * 65_536.0);
        assert_eq!(verdict(&slow, &seen(), Check::Bandwidth), Some(Verdict::Fail));
        off.asked_iops = Some(100_000.0);
        assert_eq!(verdict(&off, &seen(), Check::Little), None, "a limited rate keeps fewer in flight");
        let flushed = Load { fsync: Some(1), ..off.load.clone() };
        let flushed = Cell { asked_iops: None, load: flushed, ..off.clone() };
        assert_eq!(verdict(&flushed, &seen(), Check::Little), None, "none are in flight during a flush");
        off.figures.latency.mean_us = Some(1000.0);
        assert_eq!(verdict(&off, &seen(), Check::Little), Some(Verdict::Fail));
    }

    #[test]
    fn what_was_asked_for_below_the_maximum_is_served() {
        let point = |percent, iops| Cell { part: Part::Curve { percent }, asked_iops: Some(iops), ..cell() };
        for (percent, iops, want) in [
            (50, 100_500.0, Verdict::Pass),
            (50, 120_000.0, Verdict::Fail),
            (100, 105_000.0, Verdict::Warn),
            (120, 170_000.0, Verdict::Warn),
        ] {
            assert_eq!(verdict(&point(percent, iops), &seen(), Check::Achieved), Some(want), "{percent} {iops}");
        }
    }

    #[test]
    fn the_machine_and_the_link_are_looked_at() {
        let busy = Busy { all_percent: 50.0, most_percent: 95.0, steal_percent: 1.0, cpus: 4 };
        let seen = Seen { busy: Some(busy), own_cpu_percent: Some(40.0), link_bytes_per_sec: Some(420e6), ..seen() };
        for check in [Check::Host, Check::Noise, Check::Link] {
            assert_eq!(verdict(&cell(), &seen, check), Some(Verdict::Warn), "{check}");
        }
        let quiet = Busy { all_percent: 42.0, most_percent: 50.0, steal_percent: 0.0, cpus: 4 };
        assert_eq!(verdict(&cell(), &Seen { busy: Some(quiet), ..seen }, Check::Noise), Some(Verdict::Pass));
    }

    #[test]
    fn a_rate_that_falls_is_not_steady() {
        let mut falling = cell();
        falling.series.iter_mut().for_each(|s| s.iops -= 5000.0 * s.at);
        assert_eq!(verdict(&falling, &seen(), Check::Steady), Some(Verdict::Warn));
        falling.series.clear();
        assert_eq!(verdict(&falling, &seen(), Check::Steady), None, "reads of a few seconds");
        falling.load.read_percent = Some(0.0);
        assert_eq!(verdict(&falling, &seen(), Check::Steady), Some(Verdict::Warn));
    }

    #[test]
    fn what_holds_before_must_hold_after() {
        let after = |after| Seen { written_after: Some(after), ..seen() };
        assert_eq!(verdict(&cell(), &after(Written::All), Check::Written), Some(Verdict::Pass));
        let holes = after(Written::Missing { bytes: 4096 });
        assert_eq!(verdict(&cell(), &holes, Check::Written), Some(Verdict::Fail), "punched meanwhile");
        let changes =
            |changes: &[&str]| Seen { changes: Some(changes.iter().map(|c| (*c).to_owned()).collect()), ..seen() };
        assert_eq!(verdict(&cell(), &changes(&[]), Check::Identity), Some(Verdict::Pass));
        assert_eq!(verdict(&cell(), &changes(&["it is shorter"]), Check::Identity), Some(Verdict::Fail));
    }

    #[test]
    fn a_burst_is_not_a_steady_state() {
        let mut writes = cell();
        writes.load.read_percent = Some(0.0);
        let with = |overwritten| Seen { overwritten, ..seen() };
        assert_eq!(verdict(&writes, &with(Some(0.6)), Check::Steady), Some(Verdict::Warn));
        assert_eq!(verdict(&writes, &with(Some(1.2)), Check::Steady), Some(Verdict::Pass));
        assert_eq!(verdict(&writes, &with(None), Check::Steady), Some(Verdict::Pass), "nobody counted");
        assert_eq!(verdict(&cell(), &with(Some(0.0)), Check::Steady), Some(Verdict::Pass), "reads wear nothing");
        writes.part = Part::States;
        assert_eq!(verdict(&writes, &with(Some(1.2)), Check::Steady), Some(Verdict::Pass), "states have the gate, too");
        writes.asked_iops = Some(100_000.0);
        assert_eq!(verdict(&writes, &with(Some(0.6)), Check::Steady), None, "a limit is steady");
    }

    #[test]
    fn memory_below_direct_io_and_small_ranges_are_told() {
        let memory = Seen { memory_below: Some("a RAM disk (ram0)".to_owned()), ..seen() };
        assert_eq!(verdict(&cell(), &memory, Check::Cache), Some(Verdict::Warn));
        let mut small = cell();
        small.load.range_bytes = Some(1 << 20);
        assert_eq!(verdict(&small, &seen(), Check::Range), Some(Verdict::Warn));
        assert_eq!(verdict(&cell(), &seen(), Check::Range), Some(Verdict::Pass));
        small.part = Part::Fill;
        assert_eq!(verdict(&small, &seen(), Check::Range), None, "what is filled is not measured");
    }

    #[test]
    fn zeros_are_not_data() {
        let with = |zeros, repeats| Seen { contents: Some(Contents { blocks: 64, zeros, repeats }), ..seen() };
        for (zeros, repeats, want) in
            [(0, 0, Verdict::Pass), (64, 0, Verdict::Fail), (20, 0, Verdict::Warn), (0, 30, Verdict::Warn)]
        {
            assert_eq!(verdict(&cell(), &with(zeros, repeats), Check::Data), Some(want), "{zeros} {repeats}");
        }
        let mut stated = cell();
        stated.load.reducible = Some(crate::model::Reducible { duplicate_percent: 50, compressible_percent: 0 });
        assert_eq!(verdict(&stated, &with(0, 30), Check::Data), None, "as it was meant");
    }

    #[test]
    fn what_serves_the_target_is_not_noise() {
        let busy = Busy { all_percent: 90.0, most_percent: 90.0, steal_percent: 0.0, cpus: 2 };
        let with =
            |served| Seen { busy: Some(busy), own_cpu_percent: Some(30.0), served_cpu_percent: served, ..seen() };
        assert_eq!(verdict(&cell(), &with(0.0), Check::Noise), Some(Verdict::Warn));
        assert_eq!(verdict(&cell(), &with(58.0), Check::Noise), Some(Verdict::Pass));
    }

    #[test]
    fn reads_and_writes_that_are_level_have_one_limit() {
        let pair = |reads: f64, writes: f64| {
            let mut cells = [cell(), cell()];
            cells[1].load.read_percent = Some(0.0);
            (cells[0].figures.iops, cells[1].figures.iops) = (Some(reads), Some(writes));
            mark_level(&mut cells);
            cells.map(|c| c.gates.iter().any(|g| g.check == Check::Link && g.verdict == Verdict::Warn))
        };
        assert_eq!(pair(12_797.0, 12_800.0), [true, true]);
        assert_eq!(pair(12_797.0, 12_000.0), [false, false]);
    }
}
