//! The verdicts on what a cell was measured on: whether it was written and stayed so, what answered, and what lies there.

use super::Seen;
use crate::model::{Cell, Check, Gate, Part};
use crate::units::capacity;
use crate::written::Written;

/// What the cache of a common RAID card, or of a drive, may hold.
const CACHE_BYTES: u64 = 8_000_000_000;
/// Of blocks looked at: more zeros, or more that are alike, are no accident.
const REDUCIBLE_MAX: f64 = 0.05;

/// The range that was read had been written, and was so to the end.
pub fn written(cell: &Cell, seen: &Seen) -> Option<Gate> {
    let known = seen.written?;
    if !cell.load.reads() {
        return None;
    }
    let named = cell.part == Part::Unallocated;
    Some(match (known, seen.written_after) {
        (Written::All, _) if named => {
            Gate::fail(Check::Written, "the range was written, so these are not reads of unallocated blocks")
        }
        (Written::All, Some(Written::Missing { bytes })) => {
            Gate::fail(Check::Written, format!("{} of the range were taken away while it was read", capacity(bytes)))
        }
        (Written::All, _) => Gate::pass(Check::Written, "all of the range was written"),
        (Written::Missing { bytes }, _) if named => Gate::warn(
            Check::Written,
            format!("unallocated by intent ({}): the path is measured, not the drive", capacity(bytes)),
        ),
        (Written::Missing { bytes }, _) => Gate::fail(
            Check::Written,
            format!(
                "unwritten: {} of the range were never written, and reads of them cost no drive anything",
                capacity(bytes)
            ),
        ),
        (Written::Unknown, _) if named => Gate::warn(Check::Written, "nothing shows that these blocks are unallocated"),
        (Written::Unknown, _) if seen.trusted => Gate::warn(Check::Written, "stated to be written, not verified"),
        (Written::Unknown, _) => {
            Gate::fail(Check::Written, "possibly unwritten: the lab did not fill it, and the target does not report it")
        }
    })
}

/// What is read is data.
pub fn contents(cell: &Cell, seen: &Seen) -> Option<Gate> {
    let found = seen.contents.filter(|c| c.blocks > 0 && cell.load.reads() && cell.load.reducible.is_none())?;
    if cell.part == Part::Unallocated {
        return None;
    }
    let most = f64::from(found.blocks) * REDUCIBLE_MAX;
    let of = |count, what| format!("{count} of {} blocks that were looked at {what}", found.blocks);
    Some(if found.zeros == found.blocks {
        Gate::fail(Check::Data, format!("{}: reads as if nothing had been written", of(found.zeros, "are zeros")))
    } else if f64::from(found.zeros) > most {
        Gate::warn(Check::Data, format!("{}: a device may answer them from tables", of(found.zeros, "are zeros")))
    } else if f64::from(found.repeats) > most {
        Gate::warn(Check::Data, format!("{}: a device may have reduced them", of(found.repeats, "repeat another")))
    } else {
        Gate::pass(Check::Data, format!("{} blocks that were looked at differ, and are no zeros", found.blocks))
    })
}

/// The page cache was left out, or was meant.
pub fn cache(cell: &Cell, seen: &Seen) -> Option<Gate> {
    match (cell.load.cached, &seen.memory_below) {
        (Some(false), Some(memory)) => {
            Some(Gate::warn(Check::Cache, format!("O_DIRECT ends at {memory}: memory of this machine answers")))
        }
        (Some(false), None) if seen.direct_is_known => Some(Gate::pass(Check::Cache, "O_DIRECT")),
        (Some(false) | None, _) => None,
        (Some(true), _) => Some(match (cell.load.range_bytes, seen.memory_bytes) {
            (Some(range), Some(memory)) if range > 2 * memory => {
                Gate::warn(Check::Cache, "through the page cache, on more than twice the memory")
            }
            (_, _) => Gate::warn(Check::Cache, "page cache: this is the host's memory as much as the drives"),
        }),
    }
}

/// The range is larger than what a cache behind the host may hold.
pub fn range(cell: &Cell, seen: &Seen) -> Option<Gate> {
    // What was looked at beside the cell says that this is a target, and not a file of another tool.
    let looked = seen.changes.is_some() || seen.written.is_some() || seen.direct_is_known;
    let measured = !matches!(cell.part, Part::Fill | Part::Precondition | Part::Check | Part::Unallocated);
    let bytes = cell.load.range_bytes.filter(|_| looked && measured && cell.load.cached != Some(true))?;
    let bytes = bytes.saturating_mul(u64::from(cell.load.targets.unwrap_or(1)));
    Some(if bytes > CACHE_BYTES {
        Gate::pass(Check::Range, format!("{} are more than caches hold", capacity(bytes)))
    } else {
        Gate::warn(
            Check::Range,
            format!("{}: the cache of a card or a drive may hold it ({})", capacity(bytes), capacity(CACHE_BYTES)),
        )
    })
}

/// The target is what it was.
pub fn identity(seen: &Seen) -> Option<Gate> {
    seen.changes.as_ref().map(|changes| {
        if changes.is_empty() {
            Gate::pass(Check::Identity, "the same target at the end")
        } else {
            Gate::fail(Check::Identity, format!("another target at the end: {}", changes.join("; ")))
        }
    })
}

/// What was written cannot be compressed, unless stated.
pub fn data(cell: &Cell, seen: &Seen) -> Option<Gate> {
    let incompressible = seen.incompressible.filter(|_| cell.load.writes())?;
    Some(match (incompressible, cell.load.reducible) {
        (true, Some(shares)) => Gate::pass(Check::Data, format!("as stated: {shares}")),
        (true, None) => Gate::pass(Check::Data, "random, new for each request"),
        (false, _) => Gate::warn(Check::Data, "buffers were reused: the written data may be reduced"),
    })
}
