//! `scrub`: start, stop, schedule.

use api::{Done, Problem, ScrubKind, ScrubSchedule, ScrubStart};
use array::ScrubPlan;

use super::open::{Opened, named};
use crate::problem;

/// Starts a scrub; it runs in the background. `unlimited`: as fast as the drives are.
///
/// # Errors
/// When one is running, or the array takes no writes.
pub async fn start(opened: &Opened, request: &ScrubStart, unlimited: bool) -> Result<Done, Problem> {
    let (kind, word) = match request.parity {
        false => (ScrubKind::Media, "media"),
        true => (ScrubKind::Parity, "parity"),
    };
    opened.array.scrub_start(kind, unlimited).await.map_err(|r| named(&opened.array, r))?;
    let mut done = Done::new(format!("a {word} scrub of {} has started", opened.array.first().name()));
    done.notes.push("`ashlar status` shows how far it is and what it found".to_owned());
    Ok(done)
}

/// Ends the scrub under way.
///
/// # Errors
/// When there is none.
pub async fn stop(opened: &Opened) -> Result<Done, Problem> {
    let name = opened.array.first().name();
    if opened.array.scrub_stop().await.map_err(|f| problem::fault(format!("array {name}"), f))? {
        return Ok(Done::new(format!("the scrub of {name} has stopped; the next one starts from the beginning")));
    }
    Err(Problem::refused("no_scrub", format!("array {name}"), "no scrub is running", "nothing"))
}

/// Sets how often scrubs run by themselves, and how fast.
///
/// # Errors
/// When the array takes no writes.
pub async fn schedule(opened: &Opened, request: &ScrubSchedule) -> Result<Done, Problem> {
    let change = ScrubPlan {
        media_hours: request.media_every_hours,
        parity_hours: request.parity_every_hours,
        bytes_per_second: request.bytes_per_second,
    };
    opened.array.scrub_schedule(change).await.map_err(|r| named(&opened.array, r))?;
    let status = opened.view().await.scrub;
    let every = |hours: u32| if hours == 0 { "not automatically".to_owned() } else { format!("every {hours} hours") };
    Ok(Done::new(format!(
        "scrubs of {}: media {}, parity {}, at most {} MiB/s",
        opened.array.first().name(),
        every(status.media.every_hours),
        every(status.parity.every_hours),
        status.bytes_per_second >> 20
    )))
}
