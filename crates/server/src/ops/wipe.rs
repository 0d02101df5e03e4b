//! `wipe`: takes our labels off one drive, so that it can be used for something else.

use std::path::Path;

use api::{Done, Problem};
use rt::Drive;

use super::World;
use crate::drives::Source;
use crate::drives::checks::{Checks, Purpose};

/// Opens the drive at `path`, if it may be wiped.
///
/// # Errors
/// As of [`run`].
pub async fn may(world: &World, path: &Path, force: bool, take_from: &[String]) -> Result<Drive, Problem> {
    let checks = Checks { rt: &world.rt, registry: &world.registry, purpose: Purpose::Wipe, force, take_from };
    let drive = checks.open(&Source::Path(path.to_owned())).await?;
    array::owner::refuse_in_use(&world.rt, std::slice::from_ref(&drive)).await?;
    Ok(drive)
}

/// Wipes the drive at `path`.
///
/// # Errors
/// When it is mounted, held, in use in an array that is served or (unless it is in `take_from`) known on this machine, or
/// holds something that is not ours (unless `force`).
pub async fn run(world: &World, path: &Path, force: bool, take_from: &[String]) -> Result<Done, Problem> {
    let source = Source::Path(path.to_owned());
    let drive = may(world, path, force, take_from).await?;
    let failed = |e| Problem::failed(format!("drive {}", source.name()), e, "check the drive and its cabling");
    let Some(identity) = array::identify(&drive).await.map_err(failed)? else {
        if force {
            array::wipe(&drive).await.map_err(failed)?;
            return Ok(Done::new(format!("drive {} is wiped; it carried no Ashlar label", source.name())));
        }
        return Ok(Done::new(format!("drive {} carries no Ashlar label: nothing to wipe", source.name())));
    };
    array::wipe(&drive).await.map_err(failed)?;
    let mut done = Done::new(format!("drive {} is wiped", source.name()));
    done.notes.push(format!("it was seat {} of array {}", identity.number(), identity.array_name));
    Ok(done)
}
