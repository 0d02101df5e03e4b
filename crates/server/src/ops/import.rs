//! `import`: finds arrays by the labels on their drives, opens them and remembers them.

use api::{ImportRequest, ImportedArray, Kind, Problem};

use super::World;
use super::open::{self, How, Opened, Patience};
use crate::drives::find::{self, FoundArray};
use crate::registry::Known;

/// Refuses a request that does not say which arrays it means: whatever drives this machine can see, they may be another's.
///
/// # Errors
/// When it names none, and does not mean all.
pub fn says_which(request: &ImportRequest) -> Result<(), Problem> {
    if request.all || request.array.is_some() {
        return Ok(());
    }
    let todo = "name the array, or give --all; `ashlar import` lists what it finds";
    Err(Problem::usage("import", "it does not say which array to open", todo))
}

/// Finds the arrays that a request means.
///
/// # Errors
/// When there is none.
pub async fn search(world: &World, request: &ImportRequest) -> Result<(Vec<FoundArray>, Vec<Problem>), Problem> {
    let places: Vec<_> = request.places.iter().map(Into::into).collect();
    let known: Vec<_> = world.registry.list()?.into_iter().flat_map(|k| k.drives).map(Into::into).collect();
    let mut found = find::search(&world.rt, &places, &known).await?;
    if let Some(wanted) = &request.array {
        found.arrays.retain(|a| a.name == *wanted || a.uuid.to_string() == *wanted);
    }
    if let (Some(wanted), [_, _, ..]) = (&request.array, &found.arrays[..]) {
        let all: Vec<String> = found.arrays.iter().map(|a| a.uuid.to_string()).collect();
        return Err(Problem::refused(
            "array_ambiguous",
            format!("array {wanted}"),
            format!("{} arrays have this name: {}", all.len(), all.join(", ")),
            "name it by its identity; `ashlar import` shows which drives each has",
        ));
    }
    if found.arrays.is_empty() {
        if let Some(problem) = Problem::all(found.problems) {
            return Err(problem);
        }
        let place =
            if places.is_empty() { "the block devices and the known drives".into() } else { request.places.join(", ") };
        let whose = if request.array.is_some() { "this array" } else { "an Ashlar array" };
        return Err(Problem::new(
            Kind::NotFound,
            "no_array_found",
            request.array.as_ref().map_or_else(|| "import".into(), |a| format!("array \"{a}\"")),
            format!("no drive with a label of {whose} among {place} ({} looked at)", found.looked_at),
            "name the directory or the drives, with a slash in it: `ashlar import NAME ./DIR`; `ashlar import` lists \
             all",
        ));
    }
    if let Some(name) = request.take_over.as_ref().filter(|name| found.arrays.iter().all(|a| a.name != **name)) {
        return Err(unknown_to_take(name, found.arrays.iter().map(|a| a.name.as_str())));
    }
    Ok((found.arrays, found.problems))
}

/// The array to be taken over is none of those that would be opened.
pub fn unknown_to_take<'a>(name: &str, others: impl Iterator<Item = &'a str>) -> Problem {
    let others: Vec<&str> = others.collect();
    let found = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
    Problem::usage(
        format!("--take-over {name}"),
        format!("no array of this name was found; found: {found}"),
        "give the name of the array that is to be taken over",
    )
}

/// Opens one array that was found, with the drives found and those that were known before.
///
/// # Errors
/// When its drives are held or do not suffice.
pub async fn open(
    world: &World,
    found: &FoundArray,
    request: &ImportRequest,
    patience: Patience,
) -> Result<Opened, Problem> {
    let how = How {
        read_only: request.read_only,
        degraded: request.degraded,
        force_diverged: request.force_diverged,
        accept_loss: request.accept_loss,
        previous: request.previous_generation,
        take_over: request.take_over.as_ref().is_some_and(|name| *name == found.name),
        patience,
    };
    let drives = found.drives.iter().map(|d| d.stable_name.clone()).collect();
    let known = Known { name: found.name.clone(), uuid: found.uuid, drives };
    let mut opened = open::known(world, &known, how).await?;
    let name = opened.array.first().name();
    // The name in the label is from the day the drive joined; the generation's name is the one in force.
    let drives = opened.drives().iter().map(|d| d.info().stable_name.clone()).collect();
    let known = Known { name, drives, ..known };
    if let Err(problem) = world.registry.remember(known) {
        opened.notes.push(problem.to_string());
    }
    Ok(opened)
}

/// What `import` answers about an array.
pub async fn answer(opened: &Opened) -> ImportedArray {
    ImportedArray { array: opened.view().await, recovery: opened.recovery().await, notes: opened.notes.clone() }
}
