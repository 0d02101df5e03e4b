//! The comparison: every subject under every load, round after round, on the same drives.
//!
//! ```text
//! for each round: for each subject: make it on the drives, fill, settle; for each load: warm up, measure
//! ```
//!
//! Invariant: a ratio is made within a round, from figures seconds apart, before medians are taken.

use std::time::Duration;

use rt::{Drive, DriveKind, Rt};

use crate::error::{Error, Impossible};
use crate::figures::{Figures, Sample, median};
use crate::generate::{FILL_BLOCK_BYTES, fill, generate};
use crate::limit;
use crate::load::{Load, Until};
use crate::report::{Group, Per, Report, Row};
use crate::stripe::failed;
use crate::subject::Subject;

/// The default working set, at most: it is filled once per subject and round.
const WORKING_SET_BYTES_MAX: u64 = 1 << 30;

/// What to compare. **Everything on the drives is lost.**
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The drives.
    pub drives: Vec<Drive>,
    /// What is made of them; ratios want [`Subject::Direct`] among them.
    pub subjects: Vec<Subject>,
    /// The loads, in this order.
    pub loads: Vec<Load>,
    /// Bytes that are filled and worked on.
    pub working_set_bytes: u64,
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
            loads: Vec::new(),
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
        let measurements = (self.rounds * self.subjects.len() * self.loads.len()).max(1) as u32;
        let each = total / measurements;
        self.warm_up = each / 5;
        self.time = each - self.warm_up;
        self
    }
}

/// Runs it; `progress` is told what comes next: the round (from 1), the subject. Leaves no array on the drives.
///
/// # Errors
/// When the drives do not suffice, or a request fails.
pub async fn compare(rt: &Rt, what: &Comparison, mut progress: impl FnMut(usize, Subject)) -> Result<Report, Error> {
    if what.drives.is_empty() {
        return Err(Impossible::NoDrives.into());
    }
    let samples = all_rounds(rt, what, &mut progress).await;
    for drive in what.drives.iter().filter(|_| what.subjects.iter().any(|s| *s != Subject::Direct)) {
        array::wipe(drive).await.map_err(|e| failed(drive, e))?;
    }
    report(rt, what, &samples?)
}

/// Samples by subject, load and round.
type Samples = Vec<Vec<Vec<Sample>>>;

async fn all_rounds(rt: &Rt, what: &Comparison, progress: &mut impl FnMut(usize, Subject)) -> Result<Samples, Error> {
    let mut samples: Samples = vec![vec![Vec::new(); what.loads.len()]; what.subjects.len()];
    for round in 0..what.rounds {
        for (s, subject) in what.subjects.iter().enumerate() {
            progress(round + 1, *subject);
            let round_samples = one_subject(rt, what, *subject, round as u64).await?;
            for (of_load, sample) in samples[s].iter_mut().zip(round_samples) {
                of_load.push(sample);
            }
        }
    }
    Ok(samples)
}

async fn one_subject(rt: &Rt, what: &Comparison, subject: Subject, round: u64) -> Result<Vec<Sample>, Error> {
    let working_set = what.working_set_bytes.next_multiple_of(u64::from(FILL_BLOCK_BYTES));
    let target = subject.make(rt, &what.drives, what.zone_blocks, working_set).await?;
    fill(rt, &target, working_set).await?;
    let mut samples = Vec::with_capacity(what.loads.len());
    for load in &what.loads {
        let seed = what.seed.wrapping_add(round);
        let for_time = |time| Until::Elapsed { time, bytes_max: what.bytes_max };
        generate(rt, &target, load, 0..working_set, for_time(what.warm_up), !seed).await?;
        samples.push(generate(rt, &target, load, 0..working_set, for_time(what.time), seed).await?);
        if !load.pattern.only_reads() {
            target.settle().await?;
        }
    }
    target.close().await?;
    Ok(samples)
}

fn report(rt: &Rt, what: &Comparison, samples: &[Vec<Vec<Sample>>]) -> Result<Report, Error> {
    let direct = what.subjects.iter().position(|s| *s == Subject::Direct);
    let first = what.drives.first().map(rt::Drive::info);
    let in_memory = what.drives.iter().all(|d| d.info().kind == DriveKind::Memory);
    let per = if in_memory && !rt.is_modelled() { Per::CoreSecond } else { Per::Second };
    let mut groups = Vec::with_capacity(what.loads.len());
    for (l, load) in what.loads.iter().enumerate() {
        let mut rows = Vec::with_capacity(what.subjects.len());
        for (s, subject) in what.subjects.iter().enumerate() {
            let scheme = subject.scheme(&what.drives, what.zone_blocks);
            let of = &samples[s][l];
            let figures = Figures::of(of)?;
            let ratio = direct.map(|d| median(rounds_ratio(per, of, &samples[d][l])));
            let share = |ratio: f64| scheme.map_or(ratio, |s| ratio * limit::drive_bytes_per_host_byte(s));
            rows.push(Row {
                subject: *subject,
                scheme: scheme.map(|s| s.to_string()),
                figures,
                ratio,
                limit: scheme.map_or(1.0, |s| limit::ratio(load.pattern, s)),
                ratio_per_data_drive: ratio.map(share).filter(|_| load.pattern.only_writes()),
                drive_bytes_per_host_byte_min: scheme.map(limit::drive_bytes_per_host_byte),
            });
        }
        groups.push(Group { load: *load, rows });
    }
    Ok(Report {
        drives: what.drives.len(),
        drive_kind: match first.map(|i| i.kind) {
            Some(DriveKind::Block) => "block",
            Some(DriveKind::File) => "file",
            Some(DriveKind::Modelled) => "modelled",
            Some(DriveKind::Memory) | None => "memory",
        },
        drive_bytes: first.map_or(0, |i| i.blocks.bytes()),
        working_set_bytes: what.working_set_bytes,
        rounds: what.rounds,
        seconds_each: what.time.as_secs_f64(),
        virtual_time: rt.is_modelled(),
        per,
        groups,
    })
}

/// Rate over rate, round by round.
fn rounds_ratio(per: Per, of: &[Sample], direct: &[Sample]) -> Vec<f64> {
    let rate = |s: &Sample| match per {
        Per::Second => s.bytes_per_sec(),
        Per::CoreSecond => s.bytes_per_cpu_sec(),
    };
    of.iter().zip(direct).map(|(a, d)| rate(a) / rate(d)).collect()
}
