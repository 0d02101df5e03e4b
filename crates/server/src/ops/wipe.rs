//! `wipe`: takes our labels off one drive, so that it can be used for something else.

use std::path::Path;

use super::World;
use crate::Problem;
use crate::drives::Source;
use crate::drives::checks::{Checks, Purpose};
use crate::view::Done;

/// Wipes the drive at `path`.
///
/// # Errors
/// When it is mounted, held, belongs to an array that is being served, or holds something that is not ours (unless
/// `force`).
pub async fn run(world: &World, path: &Path, force: bool) -> Result<Done, Problem> {
    let source = Source::Path(path.to_owned());
    let checks = Checks { rt: &world.rt, registry: &world.registry, purpose: Purpose::Wipe, force };
    let drive = checks.open(&source).await?;
    array::owner::refuse_in_use(&world.rt, std::slice::from_ref(&drive)).await?;
    let failed = |e| Problem::failed(format!("drive {}", source.name()), e, "check the drive and its cabling");
    let Some(identity) = array::identify(&drive).await.map_err(failed)? else {
        if force {
            array::wipe(&drive).await.map_err(failed)?;
            return Ok(Done::new(format!("drive {} is wiped; it carried no label of ours", source.name())));
        }
        return Ok(Done::new(format!("drive {} carries no label of ours: nothing to wipe", source.name())));
    };
    array::wipe(&drive).await.map_err(failed)?;
    let mut done = Done::new(format!("drive {} is wiped", source.name()));
    done.notes.push(format!("it was seat {} of array {}", identity.seat, identity.array_name));
    Ok(done)
}
