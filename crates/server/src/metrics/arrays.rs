//! Arrays: their state, their room, what was written, rebuilds and scrubs, alarms.

use std::fmt;

use api::{ArrayState, ArrayView, ScrubKind, Severity};

use super::labels;
use super::page::{Labels, Page};
use crate::snapshot::Snapshot;

/// A figure of an array: its name, what it is, and where it stands.
type Figure = (&'static str, &'static str, fn(&ArrayView) -> Option<f64>);

const GAUGES: &[Figure] = &[
    ("ashlar_array_redundancy_left", "Drives that may fail now without a loss, whichever they are.", |a| {
        Some(a.exposure.may_fail as f64)
    }),
    ("ashlar_array_redundancy_full", "Drives that may fail when none is out.", |a| Some(a.exposure.tolerates as f64)),
    ("ashlar_array_rebuild_place", "Whether one more loss could be rebuilt: 1 or 0.", |a| {
        Some(f64::from(u8::from(a.exposure.rebuild_place)))
    }),
    ("ashlar_array_raw_bytes", "All zones of all drives.", |a| Some(a.raw_bytes as f64)),
    ("ashlar_array_usable_bytes", "What volumes can hold.", |a| Some(a.usable_bytes as f64)),
    (
        "ashlar_array_used_bytes",
        "What volumes hold, with the room of the map: as of the last checkpoint, with what came since at most.",
        |a| Some(a.used_bytes as f64),
    ),
    ("ashlar_array_provisioned_bytes", "Sizes of all volumes together.", |a| Some(a.provisioned_bytes as f64)),
    ("ashlar_array_map_room_bytes", "Room that the map takes.", |a| Some(a.map_room_bytes as f64)),
    ("ashlar_array_live_ratio", "Live blocks per block of the segments in use.", |a| Some(a.live_share)),
    ("ashlar_array_segments_free", "Segments that are free.", |a| Some(a.segments_free as f64)),
    ("ashlar_array_replay_entries", "Entries that an open after a crash would replay.", |a| {
        Some(a.unmerged_entries as f64)
    }),
    ("ashlar_array_memtable_ratio", "Share of what may wait for a checkpoint that does: one begins at 1.", |a| {
        Some(a.memtable_share)
    }),
    (
        "ashlar_array_checkpoint_timestamp_seconds",
        "When the last checkpoint was done, in seconds since 1970; absent when there was none since the open.",
        |a| a.checkpoint_at.map(|at| at as f64),
    ),
    ("ashlar_array_map_memory_bytes", "Memory of the map.", |a| Some(a.map_memory_bytes as f64)),
    ("ashlar_rebuild_done_bytes", "Bytes written by the running rebuild.", |a| {
        a.rebuild.as_ref().map(|r| r.bytes_moved as f64)
    }),
    ("ashlar_rebuild_all_bytes", "Bytes that the running rebuild writes in all.", |a| {
        a.rebuild.as_ref().map(|r| r.bytes_total as f64)
    }),
    ("ashlar_rebuild_bytes_per_second", "Current rate of the running rebuild.", |a| {
        a.rebuild.as_ref().map(|r| r.bytes_per_second as f64)
    }),
    ("ashlar_rebuild_paused", "Whether rebuilds wait until they are told to go on: 1 or 0.", |a| {
        Some(f64::from(u8::from(a.rebuild_paused)))
    }),
    ("ashlar_scrub_progress_ratio", "Share of the running scrub that is done.", |a| {
        a.scrub.running.as_ref().map(|r| r.segments_done as f64 / r.segments_total.max(1) as f64)
    }),
];

const COUNTERS: &[Figure] = &[
    ("ashlar_array_generation", "Generations of the system area.", |a| Some(a.generation as f64)),
    ("ashlar_array_opens", "Opens for writing.", |a| Some(f64::from(a.epoch))),
    ("ashlar_array_repaired_blocks", "Blocks written back after a mismatch, since the open.", |a| {
        Some(a.repaired_blocks as f64)
    }),
    ("ashlar_array_map_hits", "Map nodes found in memory, since the open.", |a| Some(a.map_hits as f64)),
    ("ashlar_array_map_misses", "Map nodes read from drives, since the open.", |a| Some(a.map_misses as f64)),
];

/// Adds them.
pub fn add(page: &mut Page<'_>, s: &Snapshot) -> fmt::Result {
    let arrays = &s.status.arrays;
    let info = arrays
        .iter()
        .map(|a| (labels!(array = a.name, uuid = a.uuid, level = a.level, scheme = a.scheme, parts = a.parts), 1.0));
    page.gauge("ashlar_array_info", "What an array is.", info)?;
    let state = arrays.iter().map(|a| (labels!(array = a.name, state = word(a.state)), 1.0));
    page.gauge("ashlar_array_state", "How an array is: 1 for the state it has.", state)?;
    for (name, help, figure) in GAUGES {
        page.gauge(name, help, known(arrays, *figure))?;
    }
    for (name, help, figure) in COUNTERS {
        page.counter(name, help, known(arrays, *figure))?;
    }
    let written = arrays.iter().flat_map(|a| {
        let w = a.written;
        let by_what = [
            ("host", w.host_bytes),
            ("moved", w.moved_bytes),
            ("map", w.map_bytes),
            ("header", w.header_bytes),
            ("redundancy", w.redundancy_bytes),
        ];
        by_what.map(|(what, bytes)| (labels!(array = a.name, what = what), bytes as f64))
    });
    page.counter("ashlar_array_written_bytes", "Bytes written to drives since the open, by what they are.", written)?;
    let finished = arrays.iter().flat_map(|a| {
        let times = [(ScrubKind::Media, a.scrub.media.finished_at), (ScrubKind::Parity, a.scrub.parity.finished_at)];
        let ended = times.into_iter().filter(|(_, at)| *at > 0);
        ended.map(|(kind, at)| (labels!(array = a.name, kind = kind), at as f64)).collect::<Vec<_>>()
    });
    let scrubbed = "When the last scrub ended, in seconds since 1970; absent when there was none.";
    page.gauge("ashlar_scrub_last_timestamp_seconds", scrubbed, finished)?;
    let alarms = arrays.iter().flat_map(|a| a.alarms.iter().map(|alarm| (Some(&a.name), alarm)));
    let alarms = alarms.chain(s.status.alarms.iter().map(|alarm| (None, alarm)));
    let alarms = alarms.map(|(array, alarm)| {
        let severity = match alarm.severity {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        };
        let mut of: Labels = labels!(code = alarm.code, severity = severity);
        of.extend(array.map(|name| ("array", name.clone())));
        of.extend(alarm.seat.map(|seat| ("seat", seat.to_string())));
        (of, 1.0)
    });
    page.gauge("ashlar_alarm", "Alarms that are raised now.", alarms)
}

fn known(arrays: &[ArrayView], figure: fn(&ArrayView) -> Option<f64>) -> impl Iterator<Item = (Labels, f64)> {
    arrays.iter().filter_map(move |a| Some((labels!(array = a.name), figure(a)?)))
}

const fn word(state: ArrayState) -> &'static str {
    match state {
        ArrayState::Optimal => "optimal",
        ArrayState::Rebuilt => "rebuilt",
        ArrayState::Degraded => "degraded",
        ArrayState::Rebuilding => "rebuilding",
        ArrayState::Frozen => "frozen",
        ArrayState::ReadOnly => "read_only",
        ArrayState::Closed => "closed",
    }
}
