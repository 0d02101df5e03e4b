//! `rename`: another name for an array.

use api::{Done, Problem};

use super::World;
use super::open::{Opened, named, remember};

/// Calls an array `to`, on its drives and in the list of known arrays.
///
/// # Errors
/// When another array that is known here has that name, it is none, or the array takes no writes.
pub async fn run(world: &World, opened: &Opened, to: &str) -> Result<Done, Problem> {
    let first = opened.array.first();
    let (from, uuid) = (first.name(), first.uuid());
    if from == to {
        return Ok(Done::new(format!("Array {to} has this name already")));
    }
    if world.registry.list()?.iter().any(|known| known.name == to && known.uuid != uuid) {
        return Err(Problem::refused(
            "array_name_taken",
            format!("array {to}"),
            "another array that is known here has this name",
            "choose another name (`ashlar list` shows all)",
        ));
    }
    world.registry.prepare()?;
    opened.array.rename(to).await.map_err(|refused| named(&opened.array, refused))?;
    remember(world, to, uuid, &[], None)?;
    let mut done = Done::new(format!("Renamed array {from} to {to}"));
    done.notes.push(format!(
        "configuration files and scripts that name {from} have to name {to} from now on: hosts that are allowed for \
         {from} alone are refused until then when they connect again"
    ));
    done.notes.push(format!("NBD hosts connect again to {to}/VOLUME; NVMe/TCP hosts know the array by its identity"));
    Ok(done)
}
