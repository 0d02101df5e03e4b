//! The verdicts on a cell that the lab measured, or imported as far as it tells.

use crate::compare::fifths;
use crate::curve::SERVED;
use crate::host::Busy;
use crate::model::{Cell, Check, Gate, Part};
use crate::steady::Excursion;
use crate::units::{capacity, grouped, rate};
use crate::written::Written;

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
/// Of a link's rate: above this it is the limit.
const LINK_SHARE_MAX: f64 = 0.95;

/// What was seen beside the cell.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What is known of its range, before it was read; absent: nobody looked.
    pub written: Option<Written>,
    /// The user says that it was.
    pub trusted: bool,
    /// Requests that failed; requests that fell short.
    pub errors: Option<(u64, u64)>,
    /// The machine's CPUs meanwhile.
    pub busy: Option<Busy>,
    /// The generator's share of that, hundredths of all CPUs.
    pub own_cpu_percent: Option<f64>,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// What the link carries, bytes a second in one direction.
    pub link_bytes_per_sec: Option<f64>,
    /// Temperature after it, and the drive's warning threshold.
    pub heat: Option<(f64, Option<f64>)>,
    /// Whether the device was still the same at the end.
    pub same_device: Option<bool>,
    /// Whether what was written cannot be compressed.
    pub incompressible: Option<bool>,
    /// Whether the cache was left out as asked, when the engine has one.
    pub direct_is_known: bool,
}

/// All verdicts on a cell. What could not be looked at has no gate, but for what every number needs.
pub fn judge(cell: &Cell, seen: &Seen) -> Vec<Gate> {
    let all = [
        duration(cell),
        written(cell, seen),
        cache(cell, seen),
        steady(cell),
        errors(cell, seen),
        little(cell),
        bandwidth(cell),
        link(cell, seen),
        host(seen),
        achieved(cell),
        identity(seen),
        data(cell, seen),
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

fn written(cell: &Cell, seen: &Seen) -> Option<Gate> {
    let known = seen.written?;
    if !cell.load.reads() {
        return None;
    }
    let named = cell.part == Part::Unallocated;
    Some(match known {
        Written::All if named => {
            Gate::fail(Check::Written, "the range was written, so these are not reads of unallocated blocks")
        }
        Written::All => Gate::pass(Check::Written, "all of the range was written"),
        Written::Missing { bytes } if named => Gate::warn(
            Check::Written,
            format!("unallocated by intent ({}): the path is measured, not the drive", capacity(bytes)),
        ),
        Written::Missing { bytes } => Gate::fail(
            Check::Written,
            format!(
                "unwritten: {} of the range were never written, and reads of them cost no drive anything",
                capacity(bytes)
            ),
        ),
        Written::Unknown if named => Gate::warn(Check::Written, "nothing shows that these blocks are unallocated"),
        Written::Unknown if seen.trusted => Gate::warn(Check::Written, "stated to be written, not verified"),
        Written::Unknown => {
            Gate::fail(Check::Written, "possibly unwritten: the lab did not fill it, and the target does not report it")
        }
    })
}

fn cache(cell: &Cell, seen: &Seen) -> Option<Gate> {
    match cell.load.cached {
        Some(false) if seen.direct_is_known => Some(Gate::pass(Check::Cache, "O_DIRECT")),
        Some(false) | None => None,
        Some(true) => Some(match (cell.load.range_bytes, seen.memory_bytes) {
            (Some(range), Some(memory)) if range > 2 * memory => {
                Gate::warn(Check::Cache, "through the page cache, on more than twice the memory")
            }
            (_, _) => Gate::warn(Check::Cache, "page cache: this is the host's memory as much as the drives"),
        }),
    }
}

fn steady(cell: &Cell) -> Option<Gate> {
    // Rounds are judged together; a fill and a precondition are on the way; a limited rate is as steady as its limit.
    let judged = matches!(
        cell.part,
        Part::Alone | Part::CurveMax | Part::Matrix | Part::Unallocated | Part::OneOf { .. } | Part::Together
    );
    if !judged {
        return None;
    }
    let Some(e) = Excursion::of(&fifths(cell)) else {
        return cell.load.writes().then(|| Gate::warn(Check::Steady, "too short to say whether it was steady"));
    };
    let text = format!("five parts of it: range {:.1} %, trend {:+.1} %", e.range * 100.0, e.slope * 100.0);
    Some(if e.is_steady() {
        Gate::pass(Check::Steady, text)
    } else {
        Gate::warn(Check::Steady, format!("not steady; {text}"))
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
    if cell.asked_iops.is_some() {
        // A limited rate keeps fewer in flight; more than there are is impossible.
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
    Some(if off.abs() <= BANDWIDTH_MAX {
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

fn identity(seen: &Seen) -> Option<Gate> {
    seen.same_device.map(|same| {
        if same {
            Gate::pass(Check::Identity, "the same device at the end")
        } else {
            Gate::fail(Check::Identity, "a different device at the end")
        }
    })
}

fn data(cell: &Cell, seen: &Seen) -> Option<Gate> {
    let incompressible = seen.incompressible.filter(|_| cell.load.writes())?;
    Some(match (incompressible, cell.load.reducible) {
        (true, Some(shares)) => Gate::pass(Check::Data, format!("as stated: {shares}")),
        (true, None) => Gate::pass(Check::Data, "random, new for each request"),
        (false, _) => Gate::warn(Check::Data, "buffers were reused: the written data may be reduced"),
    })
}

fn noise(seen: &Seen) -> Option<Gate> {
    let busy = seen.busy?;
    let others = (busy.all_percent - busy.steal_percent - seen.own_cpu_percent?).max(0.0);
    let text = format!("other programs used {others:.0} % of the CPUs, other guests {:.0} %", busy.steal_percent);
    Some(if others + busy.steal_percent > NOISE_PERCENT_MAX {
        Gate::warn(Check::Noise, text)
    } else {
        Gate::pass(Check::Noise, text)
    })
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
    use crate::model::{Access, Figures, Latency, Load, Second, Subject, Verdict};

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
                range_bytes: Some(1 << 30),
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
        off.asked_iops = Some(100_000.0);
        assert_eq!(verdict(&off, &seen(), Check::Little), None, "a limited rate keeps fewer in flight");
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
}
