//! The comparison: every subject in every condition under every load, round after round, on the same drives.
//!
//! ```text
//! for each round: for each condition: for each subject: make it on the drives, fill, age, take a drive;
//!                                                       for each load: warm up, measure
//! ```
//!
//! Invariant: a ratio is made within a round, from figures seconds apart, before medians are taken.

use std::time::Duration;

use base::MemberLba;
use rt::{Drive, DriveKind, Rt};

use crate::condition::{Condition, Fill, State, age, bring_into, is_rebuilding};
use crate::drives::{give_back, touch};
use crate::error::{Error, Impossible};
use crate::figures::{Figures, Sample, median};
use crate::generate::{FILL_BLOCK_BYTES, fill, generate};
use crate::limit::{self, Case};
use crate::load::{Load, Order, Until};
use crate::report::{Group, Per, Report, Row};
use crate::stripe::failed;
use crate::subject::Subject;
use crate::target::Target;
use crate::team::{Asks, CORES_MAX};

/// The default working set, at most: it is filled once per subject and round.
const WORKING_SET_BYTES_MAX: u64 = 1 << 30;

/// What to compare. **Everything on the drives is lost.**
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The drives.
    pub drives: Vec<Drive>,
    /// What is made of them; ratios want [`Subject::Direct`] among them.
    pub subjects: Vec<Subject>,
    /// The conditions, in this order. Levels without redundancy are left out where a drive is taken.
    pub conditions: Vec<Condition>,
    /// What cores ask for, where there are several.
    pub asks: Asks,
    /// The loads, in this order.
    pub loads: Vec<Load>,
    /// Bytes that are filled and worked on, where the condition does not say how many.
    pub working_set_bytes: u64,
    /// What a read costs the drives, in writes, if that is known.
    pub read_cost: Option<f64>,
    /// Blocks of a zone; `None`: as `create` chooses.
    pub zone_blocks: Option<u32>,
    /// Rounds; figures are medians over them.
    pub rounds: usize,
    /// How long one load is measured on one subject in one round.
    pub time: Duration,
    /// How many bytes it moves meanwhile, at most.
    pub bytes_max: u64,
    /// How long it runs before that.
    pub warm_up: Duration,
    /// Decides the addresses.
    pub seed: u64,
}

impl Comparison {
    /// All levels over `drives`, with rounds and times that make medians worth reading; loads are to be set.
    #[must_use]
    pub fn new(drives: Vec<Drive>) -> Comparison {
        let subjects = Subject::all_levels(drives.len());
        let smallest = drives.iter().map(|d| d.info().blocks.bytes()).min().unwrap_or(0);
        let raw = smallest * drives.len() as u64;
        Comparison {
            subjects,
            conditions: vec![Condition::default()],
            asks: Asks::All,
            loads: Vec::new(),
            read_cost: None,
            // At most half of what the costliest usual level (two copies) may be filled with: with the writes of a round the
            // array stays below the point where it cleans.
            working_set_bytes: (raw / 8).min(WORKING_SET_BYTES_MAX).next_multiple_of(u64::from(FILL_BLOCK_BYTES)),
            zone_blocks: None,
            rounds: 3,
            time: Duration::from_secs(1),
            bytes_max: u64::MAX,
            warm_up: Duration::from_millis(100),
            seed: 1,
            drives,
        }
    }

    /// Spreads `total` over all measurements; a fifth of it warms up.
    #[must_use]
    pub fn lasting(mut self, total: Duration) -> Comparison {
        let measurements = (self.rounds * self.conditions.len() * self.subjects.len() * self.loads.len()).max(1) as u32;
        let each = total / measurements;
        self.warm_up = each / 5;
        self.time = each - self.warm_up;
        self
    }
}

/// Runs it; `progress` is told what comes next: the round (from 1), the condition, the subject. Leaves no array on the
/// drives.
///
/// # Errors
/// When the drives do not suffice, or a request fails.
pub async fn compare(
    rt: &Rt,
    what: &Comparison,
    mut progress: impl FnMut(usize, Condition, Subject),
) -> Result<Report, Error> {
    what.check(rt)?;
    let what = &Comparison { zone_blocks: what.zones(), ..what.clone() };
    let samples = all_rounds(rt, what, &mut progress).await;
    for drive in what.drives.iter().filter(|_| what.subjects.iter().any(|s| *s != Subject::Direct)) {
        array::wipe(drive).await.map_err(|e| failed(drive, e))?;
    }
    report(rt, what, &samples?)
}

/// What one subject gave in one condition: samples by load and round.
struct Measured {
    condition: Condition,
    subject: Subject,
    loads: Vec<Vec<Sample>>,
    /// Rounds in which its rate was not steady when the measurement began.
    unsteady: usize,
}

async fn all_rounds(
    rt: &Rt,
    what: &Comparison,
    progress: &mut impl FnMut(usize, Condition, Subject),
) -> Result<Vec<Measured>, Error> {
    let mut measured: Vec<Measured> = Vec::new();
    for &condition in &what.conditions {
        for &subject in what.subjects.iter().filter(|s| s.allows(condition)) {
            measured.push(Measured { condition, subject, loads: vec![Vec::new(); what.loads.len()], unsteady: 0 });
        }
    }
    let mut memory_is_here = true;
    for round in 0..what.rounds {
        for one in &mut measured {
            progress(round + 1, one.condition, one.subject);
            // One core uses the drives that there are; of several each has memory of its own instead.
            let wanted = one.condition.cores == 1;
            if wanted != memory_is_here {
                for drive in what.drives.iter().filter(|d| d.info().kind == DriveKind::Memory) {
                    if wanted { touch(drive).await? } else { give_back(drive).await? }
                }
                memory_is_here = wanted;
            }
            one_subject(rt, what, one, round as u64).await?;
        }
    }
    Ok(measured)
}

async fn one_subject(rt: &Rt, what: &Comparison, one: &mut Measured, round: u64) -> Result<(), Error> {
    // A rebuild does not last for all loads: each has one of its own.
    let rebuilding = matches!(one.condition.state, State::Rebuilding(_));
    let together = if rebuilding { 1 } else { what.loads.len().max(1) };
    let loads: Vec<usize> = (0..what.loads.len()).collect();
    for loads in loads.chunks(together) {
        let (target, working_set) = prepared(rt, what, one, round).await?;
        // A pause lets cleaners run ahead, and buffers drain: what follows it is not steady until it was overwritten again.
        let mut paused = false;
        for &l in loads {
            let load = &what.loads[l];
            let aged = one.condition.fill != Fill::Fresh && !rebuilding;
            if paused && aged && !load.pattern.only_reads() {
                let steady = age(rt, &target, working_set, round, what.per(rt)).await?;
                one.unsteady += usize::from(!steady);
            }
            paused = true;
            let seed = what.seed.wrapping_add(round);
            let for_time = |time| Until::Elapsed { time, bytes_max: what.bytes_max };
            warm_up(rt, what, one.condition, &target, load, working_set).await?;
            one.loads[l].push(generate(rt, &target, load, 0..working_set, for_time(what.time), seed).await?);
            if rebuilding {
                if let Some(array) = target.whole()
                    && !is_rebuilding(&array).await?
                {
                    return Err(Impossible::RebuildOver.into());
                }
            } else if !load.pattern.only_reads() {
                target.settle().await?;
            }
        }
        target.close().await?;
    }
    Ok(())
}

/// Runs a load until what came before it does not matter any more.
async fn warm_up(
    rt: &Rt,
    what: &Comparison,
    condition: Condition,
    target: &Target,
    load: &Load,
    working_set: u64,
) -> Result<(), Error> {
    let aged = condition.fill != Fill::Fresh && !matches!(condition.state, State::Rebuilding(_));
    let mut until = Until::Elapsed { time: what.warm_up, bytes_max: what.bytes_max };
    if aged && load.pattern.only_reads() {
        rest(rt, target).await?;
    } else if aged {
        // A rest gave the cleaner more room than writes leave it.
        until = Until::Requests((working_set as f64 * REFRESHED) as u64 / u64::from(load.block_bytes));
    }
    generate(rt, target, load, 0..working_set, until, !what.seed).await?;
    Ok(())
}

/// Lets an array end what writes left it to do.
async fn rest(rt: &Rt, target: &Target) -> Result<(), Error> {
    target.settle().await?;
    rt.sleep(REST).await;
    Ok(())
}

/// The subject made, filled and brought into its condition; and the bytes to work on.
async fn prepared(rt: &Rt, what: &Comparison, one: &mut Measured, round: u64) -> Result<(Target, u64), Error> {
    if rt.is_modelled() {
        // As they come from the factory: what was on them before must not cost the next one.
        for drive in &what.drives {
            drive.deallocate(MemberLba(0), drive.info().blocks).await.map_err(|e| failed(drive, e))?;
        }
    }
    let working_set = what.working_set(one.subject, one.condition);
    let target = match one.condition.cores {
        1 => one.subject.make(rt, &what.drives, what.zone_blocks, working_set).await?,
        cores => one.subject.make_on(rt, &what.drives, what.zone_blocks, working_set, cores, what.asks).await?,
    };
    let usable = match (one.subject, one.condition.fill) {
        (Subject::InPlaceRaid10, Fill::Usable(percent)) => target.bytes() as f64 * f64::from(percent) / 100.0,
        _ => target.bytes() as f64,
    };
    let working_set = working_set.min(usable as u64 / FILL * FILL);
    fill(rt, &target, working_set).await?;
    if one.condition.fill != Fill::Fresh && !age(rt, &target, working_set, round, what.per(rt)).await? {
        one.unsteady += 1;
    }
    if let Some(array) = target.whole()
        && one.condition.state != State::Optimal
    {
        rest(rt, &target).await?;
        bring_into(rt, &array, one.condition.state).await?;
    }
    Ok((target, working_set))
}

/// How long an array rests that was written to.
const REST: Duration = Duration::from_millis(200);

/// The part of the working set that is written anew before writes to an aged array are measured.
const REFRESHED: f64 = 1.0 / 16.0;

/// Working sets are whole ones of these.
const FILL: u64 = FILL_BLOCK_BYTES as u64;

impl Comparison {
    /// Whether it can be made at all.
    fn check(&self, rt: &Rt) -> Result<(), Impossible> {
        if self.drives.is_empty() {
            return Err(Impossible::NoDrives);
        }
        for Condition { cores, .. } in &self.conditions {
            match cores {
                0 => return Err(Impossible::Cores(cores.to_string())),
                1 => {}
                _ if *cores > CORES_MAX => return Err(Impossible::Cores(cores.to_string())),
                _ if rt.is_modelled() => return Err(Impossible::CoresModelled),
                _ if self.subjects.contains(&Subject::InPlaceRaid10) => return Err(Impossible::CoresInPlace),
                _ => {}
            }
        }
        Ok(())
    }

    /// Blocks of a zone. Where slices for the most cores are too small for what `create` chooses, zones are smaller in all
    /// arrays, so that they differ in nothing but the cores.
    fn zones(&self) -> Option<u32> {
        let most = self.conditions.iter().map(|c| c.cores).max().unwrap_or(1);
        if self.zone_blocks.is_some() || most == 1 {
            return self.zone_blocks;
        }
        let arrays = self.subjects.iter().filter(|s| matches!(s, Subject::Level { .. }));
        let fits = |zone| arrays.clone().all(|s| s.plan(&self.drives, zone, most).is_some());
        [None, Some(512), Some(256), Some(128), Some(64)].into_iter().find(|zone| fits(*zone)).unwrap_or(None)
    }

    fn working_set(&self, subject: Subject, condition: Condition) -> u64 {
        match (condition.fill, subject.plan(&self.drives, self.zone_blocks, condition.cores)) {
            (Fill::Fresh, _) => self.working_set_bytes.next_multiple_of(FILL),
            (Fill::Usable(percent), Some(plan)) => {
                (plan.usable_bytes as f64 * f64::from(percent) / 100.0) as u64 / FILL * FILL
            }
            // Direct drives, wholly; a mirror, as far as it goes.
            (Fill::Usable(_), None) => u64::MAX,
        }
    }

    /// Whether a random write costs these drives what a sequential one does.
    fn costs_known(&self) -> bool {
        self.read_cost.is_some() || self.in_memory()
    }

    fn in_memory(&self) -> bool {
        self.drives.iter().all(|d| d.info().kind == DriveKind::Memory)
    }

    /// What rates are per: where the drives take no time, the core's.
    fn per(&self, rt: &Rt) -> Per {
        if self.in_memory() && !rt.is_modelled() { Per::CoreSecond } else { Per::Second }
    }

    /// Measured, in the words of a report.
    fn row(&self, one: &Measured, l: usize, per: Per, beside: Beside<'_>) -> Result<Row, Error> {
        let pattern = self.loads[l].pattern;
        let plan = one.subject.plan(&self.drives, self.zone_blocks, one.condition.cores);
        let scheme = one.subject.scheme(&self.drives, self.zone_blocks);
        let live_share = plan
            .filter(|_| one.condition.fill != Fill::Fresh)
            .map(|plan| self.working_set(one.subject, one.condition) as f64 / plan.data_bytes as f64);
        let case = scheme.map(|scheme| Case {
            scheme,
            drives: self.drives.len(),
            degraded: one.condition.state != State::Optimal,
            live_share,
            read_cost: self.read_cost,
        });
        let ratio = beside.direct.map(|d| median(rounds_ratio(per, &one.loads[l], &d.loads[l])));
        let cpu = beside.first_count.map(|f| rounds_cpu_ratio(&one.loads[l], &f.loads[l]));
        let share = |ratio: f64| scheme.map_or(ratio, |s| ratio * limit::drive_bytes_per_host_byte(s));
        Ok(Row {
            subject: one.subject,
            scheme: scheme.map(|s| s.to_string()),
            figures: Figures::of(&one.loads[l])?,
            ratio,
            limit: match case {
                // Direct drives that clean for themselves pay for random writes; what an array does not.
                Some(_)
                    if one.condition.fill != Fill::Fresh
                        && pattern.order != Order::Sequential
                        && !pattern.only_reads()
                        && !self.costs_known() =>
                {
                    None
                }
                Some(case) => Some(case.ratio(pattern)),
                None => Some(1.0),
            },
            cpu_ratio_to_first_core_count: cpu.filter(|rounds| !rounds.is_empty()).map(median),
            ratio_per_data_drive: ratio.map(share).filter(|_| pattern.only_writes()),
            drive_bytes_per_host_byte_min: scheme.map(limit::drive_bytes_per_host_byte),
            unsteady: one.unsteady > 0,
        })
    }
}

fn report(rt: &Rt, what: &Comparison, measured: &[Measured]) -> Result<Report, Error> {
    let drive = what.drives.first().map(rt::Drive::info);
    let per = what.per(rt);
    let mut groups = Vec::with_capacity(what.loads.len() * what.conditions.len());
    // What differs in nothing but the cores stands side by side.
    let mut firsts: Vec<Condition> = vec![];
    for &condition in &what.conditions {
        if !firsts.iter().any(|first| first.is_same_but_for_cores(&condition)) {
            firsts.push(condition);
        }
    }
    for first in firsts {
        for (l, load) in what.loads.iter().enumerate() {
            for &condition in what.conditions.iter().filter(|c| c.is_same_but_for_cores(&first)) {
                let of =
                    |condition, subject| measured.iter().find(|m| m.condition == condition && m.subject == subject);
                let row = |one: &Measured| {
                    let first_count = of(first, one.subject).filter(|_| condition.cores != first.cores);
                    what.row(one, l, per, Beside { direct: of(condition, Subject::Direct), first_count })
                };
                let of_it = measured.iter().filter(|m| m.condition == condition);
                let rows = of_it.map(row).collect::<Result<_, _>>()?;
                groups.push(Group { load: *load, condition, rows });
            }
        }
    }
    Ok(Report {
        drives: what.drives.len(),
        drive_kind: match drive.map(|i| i.kind) {
            Some(DriveKind::Block) => "block",
            Some(DriveKind::File) => "file",
            Some(DriveKind::Modelled) => "modelled",
            Some(DriveKind::Memory) | None => "memory",
        },
        drive_bytes: drive.map_or(0, |i| i.blocks.bytes()),
        working_set_bytes: what.working_set_bytes,
        rounds: what.rounds,
        seconds_each: what.time.as_secs_f64(),
        virtual_time: rt.is_modelled(),
        per,
        groups,
    })
}

/// What one subject is compared with.
#[derive(Clone, Copy)]
struct Beside<'a> {
    /// The direct drives in the same condition.
    direct: Option<&'a Measured>,
    /// Itself on the first number of cores, when it is measured on another.
    first_count: Option<&'a Measured>,
}

/// CPU time of a request over that of another, round by round, where it is known.
fn rounds_cpu_ratio(of: &[Sample], first: &[Sample]) -> Vec<f64> {
    of.iter().zip(first).filter_map(|(a, f)| Some(a.cpu_us_per_request()? / f.cpu_us_per_request()?)).collect()
}

/// Rate over rate, round by round.
fn rounds_ratio(per: Per, of: &[Sample], direct: &[Sample]) -> Vec<f64> {
    of.iter().zip(direct).map(|(a, d)| a.rate(per) / d.rate(per)).collect()
}
