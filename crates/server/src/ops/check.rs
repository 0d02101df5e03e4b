//! `check`: reads a whole array and proves that log, map, counts and parity agree. Writes nothing.

use api::{CheckView, Problem, VERSION};
use array::CheckProgress;

use super::World;
use super::find;
use super::open::{self, Members, Patience};

/// Drives that are out: the array is degraded, also when all that is there agrees.
fn about_missing(n: u64, ok: bool) -> Option<String> {
    let drives = match n {
        0 => return None,
        1 => "1 drive is out or missing".to_owned(),
        n => format!("{n} drives are out or missing"),
    };
    Some(if ok {
        format!("{drives}: redundancy may be reduced; `ashlar status` shows what is left")
    } else {
        format!("{drives}: what only they hold counts as damage here; reconnect them and check again")
    })
}

/// Checks the array called `name`.
///
/// # Errors
/// When it is not known, is being served, or cannot be opened. Damage is a result, not an error.
pub async fn run(world: &World, name: &str, progress: impl FnMut(CheckProgress)) -> Result<CheckView, Problem> {
    let known = world.registry.find(name)?;
    let Members { drives, mut notes } = open::members(world, &known, true, Patience::Short).await?;
    if let Some(user) = array::owner::in_use(&world.rt, &drives).await {
        notes.push(format!("another server has the array ({}): what is found may be a change in progress", user.by));
    }
    if find::is_half_missing(world, &drives).await {
        notes.push(find::HALF_MISSING.to_owned());
    }
    let report = array::parts::check(&world.rt, drives, progress).await?;
    notes.extend(about_missing(report.members_missing, report.ok()));
    Ok(CheckView {
        version: VERSION,
        array: known.name,
        ok: report.ok(),
        errors_total: report.error_count,
        errors: report.errors,
        members_missing: report.members_missing,
        records: report.records,
        leaves: report.leaves,
        nodes: report.nodes,
        blocks: report.blocks,
        segments: report.segments,
        rows: report.rows,
        bytes_read: report.bytes_read,
        notes,
    })
}
