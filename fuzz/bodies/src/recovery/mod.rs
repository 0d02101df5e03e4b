//! Recovery from mutated drives: a small array with a history is damaged as the input says, then opened, read, written,
//! handed over, opened again and checked.
//!
//! Promises, the strongest first (`judge` says what each block may read as):
//! - whatever the bytes: no panic, and everything ends within ten minutes of virtual time;
//! - bytes damaged on any drives, no checksum made to fit: a block reads as something that was once written there, as
//!   zeros, or as an error;
//! - bytes damaged on no more drives than the redundancy covers: the array opens, without the damaged drives if need be,
//!   and every block reads as its last acknowledged write.
//!
//! Not here: power cuts, drives that fail while the array runs (the simulator).

mod judge;
mod plan;
mod scene;

use std::time::Duration;

use array::{Array, Fault, OpenHow, RefusedCode, Volume, check, identify, inspect};
use base::BLOCK_BYTES;
use futures::future::{Either, select};
use rt::model::Disk;
use rt::{Drive, Rt};

pub use judge::{Claim, content};
pub use plan::{Area, Damage, Op, Plan, STEPS_MAX, Step};
pub use scene::{SCENES, Scene, VOLUME_BLOCKS};

/// Virtual time in which an open, a check, all reads and a hand-over end.
const PATIENCE: Duration = Duration::from_secs(600);

/// Blocks read at once; each by itself when that fails.
const RUN: u64 = 64;

/// Blocks that are written after the open: some old ones, some new.
const WRITTEN_AFTER: [u64; 4] = [0, 5, 130, VOLUME_BLOCKS - 1];

/// Damages the drives of a scene as `data` says, and judges what comes of it.
pub fn body(data: &[u8]) {
    let plan = Plan::parse(data);
    scene::with(plan.scene(), |scene| {
        let disks: Vec<Disk> = scene.disks.iter().map(Disk::fork).collect();
        let damage = plan.apply(scene, &disks);
        let claim = Claim::of(scene, &damage);
        let copies: Vec<Disk> = disks.iter().map(Disk::fork).collect();
        look(&copies, &claim, plan.seed());
        use_it(&disks, &damage, &claim, &plan);
    });
}

/// What changes nothing: inspecting every drive, and the offline check.
fn look(disks: &[Disk], claim: &Claim<'_>, seed: u64) {
    let report = in_time(seed, async |rt| {
        for disk in disks {
            inspect(&Drive::modelled(rt, disk)).await;
        }
        let drives = members(rt, disks, &[]).await;
        check(rt, drives, |_| {}).await
    });
    if claim.is_unharmed() {
        let report = report.expect("an array without damage can be checked");
        assert!(report.ok(), "an array without damage has no errors: {:?}", report.errors);
    }
}

/// Opens for writing, reads, writes, hands over; and once more, reading.
fn use_it(disks: &[Disk], damage: &Damage, claim: &Claim<'_>, plan: &Plan) {
    let (mut left_out, mut how) = (Vec::new(), plan.how());
    let mut opened = session(disks, &left_out, how, claim, plan.seed(), true);
    if claim.is_covered() && matches!(opened, Err(ref code) if *code != RefusedCode::NotFound) {
        // What the refusal asks for: leave the drives out that are not right, and go on without them.
        (left_out, how) = (damage.drives(), OpenHow { degraded: true, ..how });
        opened = session(disks, &left_out, how, claim, plan.seed(), true);
    }
    if claim.is_covered() && !how.read_only {
        assert_eq!(opened, Ok(()), "damage within the redundancy does not keep an array from opening");
    }
    if opened.is_ok() && !how.read_only {
        let again = session(disks, &left_out, how, claim, plan.seed() + 1, false);
        assert!(!claim.is_covered() || again.is_ok(), "what was handed over opens again: {again:?}");
        let copies: Vec<Disk> = disks.iter().map(Disk::fork).collect();
        let _ = in_time(plan.seed() + 2, async |rt| check(rt, members(rt, &copies, &[]).await, |_| {}).await);
    }
}

/// One life of the array: every block is judged; with `first`, some are written. Why it does not open.
fn session(
    disks: &[Disk],
    left_out: &[usize],
    how: OpenHow,
    claim: &Claim<'_>,
    seed: u64,
    first: bool,
) -> Result<(), RefusedCode> {
    in_time(seed, async |rt| {
        let array = Array::open(rt, members(rt, disks, left_out).await, how).await.map_err(|refused| refused.code)?;
        let Some(volume) = array.volume("v") else {
            claim.volume_missing();
            let _ = array.close().await;
            return Ok(());
        };
        let _ = volume.extents(0, volume.bytes(), usize::MAX).await;
        judge_all(&volume, claim, !first).await;
        if first {
            for lba in WRITTEN_AFTER {
                let written = volume.write(lba * BLOCK_BYTES as u64, content(lba, judge::AFTER), false).await;
                if written.is_ok() {
                    claim.written_after(lba);
                }
            }
            let _ = volume.flush().await;
            judge_all(&volume, claim, true).await;
        }
        let _ = array.checkpoint().await;
        judge_all(&volume, claim, true).await;
        let _ = array.close().await;
        Ok(())
    })
}

/// Reads every block that the volume has and judges it.
async fn judge_all(volume: &Volume, claim: &Claim<'_>, after: bool) {
    let block = BLOCK_BYTES as u64;
    let blocks = VOLUME_BLOCKS.min(volume.bytes() / block);
    if blocks < VOLUME_BLOCKS {
        claim.volume_missing();
    }
    for first in (0..blocks).step_by(RUN as usize) {
        let n = RUN.min(blocks - first);
        match read(volume, first, n).await {
            Ok(whole) => {
                let each = (first..).zip(whole.chunks(BLOCK_BYTES));
                each.for_each(|(lba, found)| claim.judge(lba, Ok(found), after));
            }
            Err(_) => {
                for lba in first..first + n {
                    let found = read(volume, lba, 1).await;
                    claim.judge(lba, found.as_deref().map_err(|fault| *fault), after);
                }
            }
        }
    }
}

/// Some blocks of a volume.
async fn read(volume: &Volume, first: u64, n: u64) -> Result<Vec<u8>, Fault> {
    let parts = volume.read(first * BLOCK_BYTES as u64, n * BLOCK_BYTES as u64).await?;
    Ok(parts.iter().map(|part| &part[..]).collect::<Vec<_>>().concat())
}

/// The drives that say that they are members; others an operator would not name.
async fn members(rt: &Rt, disks: &[Disk], left_out: &[usize]) -> Vec<Drive> {
    let mut drives = Vec::new();
    for (i, disk) in disks.iter().enumerate() {
        let drive = Drive::modelled(rt, disk);
        if !left_out.contains(&i) && matches!(identify(&drive).await, Ok(Some(_))) {
            drives.push(drive);
        }
    }
    drives
}

/// Runs `work` in a world of its own, to its end, which must come.
fn in_time<T>(seed: u64, work: impl AsyncFnOnce(&Rt) -> T) -> T {
    let rt = Rt::modelled(seed);
    let done = rt.block_on(async {
        let work = Box::pin(work(&rt));
        match select(work, Box::pin(rt.sleep(PATIENCE))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    });
    rt.end();
    done.expect("everything ends in time")
}
