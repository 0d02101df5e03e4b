//! `destroy`: an array's end. All its drives are wiped and can be used for something else.

use api::{Done, Problem};
use rt::Drive;
use uuid::Uuid;

use super::World;
use super::open::{self, Members, Opened, Patience};

/// Destroys the array called `name`, which nobody serves.
///
/// # Errors
/// When it is not known, is being served, or a drive fails.
pub async fn offline(world: &World, name: &str) -> Result<Done, Problem> {
    let known = world.registry.find(name)?;
    let Members { drives, notes } = open::members(world, &known, false, Patience::Short).await?;
    let mut done = wipe_all(world, &known.name, known.uuid, &drives).await?;
    done.notes.extend(notes);
    Ok(done)
}

/// Refuses what cannot be destroyed, before anything has changed.
///
/// # Errors
/// When it is open for reading only.
pub fn may_be_destroyed(opened: &Opened) -> Result<(), Problem> {
    if !opened.read_only {
        return Ok(());
    }
    Err(Problem::refused(
        "read_only",
        format!("array {}", opened.array.first().name()),
        "it is open for reading only: its drives cannot be wiped",
        "start `ashlar serve` without --read-only, or `ashlar stop` the array first",
    ))
}

/// Destroys an array that is open here.
///
/// # Errors
/// When it is open for reading only, or a drive fails.
pub async fn opened(world: &World, opened: Opened) -> Result<Done, Problem> {
    may_be_destroyed(&opened)?;
    let (name, uuid) = (opened.array.first().name(), opened.array.first().uuid());
    let (closed, drives) = opened.end(world).await;
    // A checkpoint that fails does not matter to an array that is about to go.
    if let Err(problem) = closed {
        tracing::warn!("{}", problem.line());
    }
    wipe_all(world, &name, uuid, &drives).await
}

async fn wipe_all(world: &World, name: &str, uuid: Uuid, drives: &[Drive]) -> Result<Done, Problem> {
    // By a server elsewhere, also if this one had it before.
    array::owner::refuse_in_use(&world.rt, drives).await?;
    let mut problems = vec![];
    for drive in drives {
        if let Err(e) = array::wipe(drive).await {
            let what = format!("drive {}", drive.info().name);
            problems.push(Problem::failed(
                what,
                format!("cannot be wiped: {e}"),
                "wipe it with `ashlar wipe` once it answers",
            ));
        }
    }
    world.registry.forget(uuid)?;
    match Problem::all(problems) {
        Some(problem) => Err(problem),
        None => Ok(Done::new(format!("array {name} is destroyed and its {} drives are free", drives.len()))),
    }
}
