//! Open: every part, or none.

use ondisk::PartOf;
use rt::{Drive, Rt};

use super::end_all;
use super::find::find;
use super::job::{Had, Job, do_all};
use crate::canary::{Canary, planted};
use crate::engine::Array;
use crate::fault::{Refused, RefusedCode};
use crate::open::OpenHow;
use crate::owner::{self, Admitted, OwnerHow};

/// Opens the array of `drives`: all its parts, in order; each recovers first. `how.part` does not matter.
///
/// # Errors
/// When the drives are not of one array, or [`Array::open`] refuses a part; then none is open.
pub async fn open(rt: &Rt, drives: Vec<Drive>, how: OpenHow) -> Result<Vec<Array>, Refused> {
    open_by(rt, drives, how, async |job, slices| job.run(rt, slices).await).await
}

/// [`open`], where `place` opens each part on the core that is to have it.
///
/// # Errors
/// As [`open`].
pub async fn open_by<T: Had>(
    rt: &Rt,
    drives: Vec<Drive>,
    how: OpenHow,
    place: impl AsyncFn(Job, Vec<Drive>) -> Result<T, Refused>,
) -> Result<Vec<T>, Refused> {
    let parts = find(rt, drives.clone()).await?;
    let jobs = |parts: Vec<(PartOf, Vec<Drive>)>, how| {
        parts.into_iter().map(move |(part, slices)| (Job::open(part, how), slices))
    };
    if how.previous && !how.read_only && parts.len() > 1 {
        // No part gives anything up before all are known to open.
        let trial = OpenHow { read_only: true, ..how };
        let try_one = async |job: Job, slices| {
            let array = job.run(rt, slices).await?;
            array.refuse_previous_with_too_few().map(|()| array)
        };
        end_all(do_all(jobs(parts.clone(), trial), try_one).await?).await;
    }
    let admitted = match how.owner.carried {
        None if !how.read_only => {
            let slices: Vec<Vec<Drive>> = parts.iter().map(|(_, slices)| slices.clone()).collect();
            owner::admit(rt, &slices, &drives, how.owner).await?
        }
        _ => None,
    };
    let carried = admitted.as_ref().map(Admitted::carried).or(how.owner.carried);
    let opened = do_all(jobs(parts, OpenHow { owner: OwnerHow { carried, ..how.owner }, ..how }), place).await;
    if let (Err(refused), Some(admitted)) = (&opened, admitted) {
        if refused.code == RefusedCode::Io && !planted(Canary::LateWriteReleased) {
            // What was written may land late: the next server is to look twice.
            tracing::warn!("the owner marks stay, since a drive may still write what it was asked for");
        } else {
            admitted.withdraw().await;
        }
    }
    opened
}
