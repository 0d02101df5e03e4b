//! `export`: hands an array over, so that another host can import it.

use api::{Done, Problem, SeatState};

use super::World;
use super::open::{self, How, Opened};

/// Exports the array called `name`, which nobody serves: opens it, so that nothing is left to recover, and closes it.
///
/// # Errors
/// When it is not known, is being served, or cannot be opened or closed.
pub async fn offline(world: &World, name: &str) -> Result<Done, Problem> {
    let opened = open::by_name(world, name, How::default()).await?;
    let notes = opened.notes.clone();
    let mut done = self::opened(world, opened).await?;
    done.notes.extend(notes);
    Ok(done)
}

/// Exports an array that is open here.
///
/// # Errors
/// When it cannot be closed cleanly: it stays known then.
pub async fn opened(world: &World, opened: Opened) -> Result<Done, Problem> {
    let view = opened.view().await;
    let what = format!("array {}", view.name);
    if opened.volatile {
        return Err(Problem::refused(
            "memory_drive",
            what,
            "it is in memory: no other host can use it",
            "`ashlar stop` ends it",
        ));
    }
    if opened.read_only {
        return Err(Problem::refused(
            "read_only",
            what,
            "it is open for reading only, so its log cannot be merged to its drives",
            "start `ashlar serve` without --read-only, or `ashlar stop` the array first",
        ));
    }
    opened.close(world).await?;
    world.registry.forget(view.uuid)?;
    let here = |state| matches!(state, SeatState::In | SeatState::Spare);
    let drives: Vec<&str> = view.members.iter().filter(|m| here(m.state)).map(|m| m.drive.as_str()).collect();
    let mut done = Done::new(format!("{what} is exported: it needs no recovery, and this machine has forgotten it"));
    done.notes.push(format!("its drives: {}", drives.join(", ")));
    let name = &view.name;
    done.notes.push(format!("on the other host: `ashlar import {name}`; the drives may have other names there"));
    if drives.len() < view.members.len() {
        done.notes.push(match view.members.len() - drives.len() {
            1 => "1 drive is out or missing; leave it here".to_owned(),
            n => format!("{n} drives are out or missing; leave them here"),
        });
    }
    Ok(done)
}
