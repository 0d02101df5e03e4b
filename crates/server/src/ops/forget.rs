//! `forget`: takes an array off the list of those this machine knows. Its drives are not touched.

use api::{Done, Problem};
use rt::{Drive, OpenDrive};

use super::World;
use crate::registry::Known;

/// Forgets the array called `name`, which is not served.
///
/// # Errors
/// When it is not known, or drives of it are here and `force` was not said.
pub async fn run(world: &World, name: &str, force: bool) -> Result<(Done, Known), Problem> {
    let known = world.registry.find(name)?;
    let here = drives_here(world, &known).await;
    if !here.is_empty() && !force {
        return Err(Problem::refused(
            "array_here",
            format!("array {}", known.name),
            format!("{} of its {} drives are here: {}", here.len(), known.drives.len(), here.join(", ")),
            "`ashlar export` hands it over to another host, `ashlar destroy` ends it; --force forgets it nevertheless",
        ));
    }
    world.registry.forget(known.uuid)?;
    let mut done = Done::new(format!("array {} ({}) is forgotten; no drive was touched", known.name, known.uuid));
    done.notes.push(format!("its drives were: {}", known.drives.join(", ")));
    done.notes.push(format!("if they come back: `ashlar import {}`", known.uuid));
    Ok((done, known))
}

async fn drives_here(world: &World, known: &Known) -> Vec<String> {
    let mut here = vec![];
    for name in &known.drives {
        let how = OpenDrive { read_only: true, lock: false };
        let Ok(drive) = Drive::open(&world.rt, name.as_ref(), how).await else { continue };
        if matches!(array::identify(&drive).await, Ok(Some(identity)) if identity.array.0 == known.uuid) {
            here.push(name.clone());
        }
    }
    here
}
