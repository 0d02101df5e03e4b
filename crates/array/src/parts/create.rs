//! Create: checks everything, then makes the parts from the last to the first.
//!
//! The label in the drives' first blocks comes last: what was never made to its end has a part without drives, which
//! [`super::open`] refuses, and is known by the label of its last part, for `wipe` and for the next create.

use base::ArrayUuid;
use ondisk::PartOf;
use rt::{Drive, Rt};

use super::job::{Had, Job, do_all};
use super::{plan, wipe};
use crate::engine::Array;
use crate::fault::Refused;
use crate::label::slices::slices_of;
use crate::open::create::{random_uuid, refuse_labelled};
use crate::space::plan::CreateSpec;

/// Makes an array of `parts` parts of `drives` and opens it for reading and writing. In one piece it is what
/// [`Array::create`] makes.
///
/// With `spec.force` what the drives carried is wiped first: no old array is seen beside half of a new one.
///
/// # Errors
/// When level, width, drives and parts do not go together, or a drive belongs to an array: then nothing is written. When
/// a drive fails: then no part is open, and the drives want to be wiped, or to be given again with `force`.
pub async fn create(rt: &Rt, drives: Vec<Drive>, spec: &CreateSpec, parts: u8) -> Result<Vec<Array>, Refused> {
    if parts == 1 {
        return Ok(vec![Array::create(rt, drives, spec).await?]);
    }
    create_by(rt, drives, spec, parts, async |job, slices| job.run(rt, slices).await).await
}

/// [`create`] of several parts, each of which `place` makes on the core that is to have it.
///
/// # Errors
/// As [`create`].
pub async fn create_by<T: Had>(
    rt: &Rt,
    drives: Vec<Drive>,
    spec: &CreateSpec,
    parts: u8,
    place: impl AsyncFn(Job, Vec<Drive>) -> Result<T, Refused>,
) -> Result<Vec<T>, Refused> {
    // One column for each part of each drive.
    let sliced: Vec<Vec<Drive>> = drives.iter().map(|drive| slices_of(drive, parts)).collect::<Result<_, _>>()?;
    let of_part = |index: u8| sliced.iter().map(|slices| slices[usize::from(index)].clone()).collect::<Vec<Drive>>();
    let blocks: Vec<u64> = drives.iter().map(|drive| drive.info().blocks.0).collect();
    plan(spec, &blocks, parts)?;
    for drive in &drives {
        if spec.force {
            crate::owner::refuse_in_use(rt, std::slice::from_ref(drive)).await?;
            let failed = |e| Refused::io(&format!("cannot write to {}", drive.info().name), e);
            wipe(drive).await.map_err(failed)?;
        } else {
            refuse_labelled(drive).await?;
        }
    }
    let array = ArrayUuid(random_uuid(rt));
    // They are looked at already, as whole drives.
    let spec = CreateSpec { force: true, ..spec.clone() };
    let job = |index| (Job::create(PartOf { index, of: parts }, spec.clone(), array), of_part(index));
    let mut made = do_all((0..parts).rev().map(job), place).await?;
    made.reverse();
    Ok(made)
}
