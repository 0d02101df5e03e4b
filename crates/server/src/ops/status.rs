//! `status` and `iostat` of arrays that are not being served.

use super::World;
use super::open::{self, How};
use crate::Problem;
use crate::view::{Absent, ArrayState, Arrays, MemberState, VERSION};

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
                    let whole = view.members.iter().all(|m| matches!(m.state, MemberState::In | MemberState::Spare));
                    view.state = if whole { ArrayState::Optimal } else { ArrayState::Degraded };
                }
                view.alarms.extend(opened.notes.iter().cloned());
                all.arrays.push(view);
                opened.close(world).await?;
            }
            Err(problem) => all.absent.push(Absent { name: known.name, problem }),
        }
    }
    Ok(all)
}
