//! `status` and `iostat` of arrays that are not being served.

use api::{Absent, AlarmView, ArrayState, ArrayView, Arrays, Problem, Severity, VERSION};

use super::World;
use super::find;
use super::open::{self, How};

/// The array called `name`, or all known arrays. Nothing is written: each is recovered in memory.
///
/// # Errors
/// When `name` is not known, or the registry cannot be read. An array that cannot be opened is listed as absent.
pub async fn offline(world: &World, name: Option<&str>) -> Result<Arrays, Problem> {
    let known = match name {
        Some(name) => vec![world.registry.find(name)?],
        None => world.registry.list()?,
    };
    let mut all = Arrays { version: VERSION, ..Arrays::default() };
    for known in known {
        match open::known(world, &known, How::READ_ONLY).await {
            Ok(opened) => {
                let mut view = opened.view().await;
                // Read-only is how it was opened just now, not how it is.
                if view.state == ArrayState::ReadOnly {
                    view.state = state_of(&view);
                }
                if find::is_half_missing(world, &opened.drives()).await {
                    view.alarms.insert(0, half_missing());
                }
                view.alarms.extend(opened.notes.iter().map(|note| found_on_the_way(note)));
                all.arrays.push(view);
                opened.close(world).await?;
            }
            Err(problem) => all.absent.push(Absent { name: known.name, problem }),
        }
    }
    Ok(all)
}

/// The state of an array that is not being served, by its drives and what may fail.
fn state_of(view: &ArrayView) -> ArrayState {
    let whole = view.members.iter().all(|m| !m.state.is_out());
    match view.exposure.may_fail >= view.exposure.tolerates {
        true if whole => ArrayState::Optimal,
        true => ArrayState::Rebuilt,
        false => ArrayState::Degraded,
    }
}

/// What is here can be shown, and is not opened unasked.
fn half_missing() -> AlarmView {
    AlarmView {
        code: "half_missing".to_owned(),
        severity: Severity::Critical,
        seat: None,
        what: find::HALF_MISSING.to_owned(),
        todo: "Connect the others, or open it with --degraded".to_owned(),
        acknowledged: None,
    }
}

/// A note of an open as an alarm.
fn found_on_the_way(note: &str) -> AlarmView {
    AlarmView {
        code: "open_note".to_owned(),
        severity: Severity::Warning,
        seat: None,
        what: note.to_owned(),
        todo: "Check the drive".to_owned(),
        acknowledged: None,
    }
}
