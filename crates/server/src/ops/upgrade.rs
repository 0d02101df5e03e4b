//! `upgrade`: switches on features of the format.

use api::{Done, EventCode, Problem};
use array::Whole;

use super::open::named;

/// Switches on every feature that this program knows; then does `then`, and notes what was done.
///
/// # Errors
/// When the array takes no writes, or has no room.
pub async fn run(array: &Whole, then: impl FnOnce()) -> Result<Done, Problem> {
    let (name, missing) = (array.first().name(), array.first().features().1);
    if missing.is_empty() {
        then();
        return Ok(Done::new(format!("Array {name} had every feature that this Ashlar knows already")));
    }
    array.upgrade().await.map_err(|refused| named(array, refused))?;
    then();
    let missing = missing.join(", ");
    let text = format!("upgraded: {missing}; an Ashlar that does not know this refuses the array from now on");
    array.first().note(EventCode::ArrayUpgraded, &text);
    Ok(Done::new(format!("Array {name} has got: {missing}")))
}
