//! The server itself: its version, its cores, its exports, the age of what is said.

use std::collections::BTreeMap;
use std::fmt;

use super::labels;
use super::page::Page;
use crate::snapshot::Snapshot;

/// Adds them.
pub fn add(page: &mut Page<'_>, s: &Snapshot) -> fmt::Result {
    page.gauge("ashlar_build_info", "The program.", [(labels!(version = s.program), 1.0)])?;
    let began = "When the server began, in seconds since 1970.";
    page.gauge("ashlar_start_timestamp_seconds", began, [(vec![], s.began_at as f64)])?;
    let age = "Age of these figures: more than a second says that the first core does not answer.";
    page.gauge("ashlar_snapshot_age_seconds", age, [(vec![], s.age().as_secs_f64())])?;
    let cores = || s.cores.iter().enumerate().filter_map(|(number, core)| Some((number, core.as_ref()?)));
    let busy = cores().map(|(number, core)| (labels!(core = number), core.busy.as_secs_f64()));
    page.counter("ashlar_core_busy_seconds", "CPU time of each core's thread; core 0 is the first core.", busy)?;
    let turns = cores().map(|(number, core)| (labels!(core = number), &core.turns));
    let what =
        "How long turns of a core's event loop took, one in seven: times of requests are too short by at most one.";
    page.histogram("ashlar_core_turn_seconds", what, turns)?;
    let kept = cores().map(|(number, core)| (labels!(core = number), core.buffers.bytes as f64));
    page.gauge("ashlar_buffers_bytes", "Freed buffers that a core keeps.", kept)?;
    let asked = cores().flat_map(|(number, core)| {
        [("hit", core.buffers.hits), ("miss", core.buffers.misses)]
            .map(|(result, n)| (labels!(core = number, result = result), n as f64))
    });
    page.counter("ashlar_buffers_requests", "Buffers that a core asked for.", asked)?;
    let mut connections: BTreeMap<&str, usize> = BTreeMap::new();
    for client in &s.clients {
        *connections.entry(client.protocol.as_str()).or_default() += client.connections as usize;
    }
    let connections = connections.into_iter().map(|(protocol, n)| (labels!(protocol = protocol), n as f64));
    page.gauge("ashlar_export_connections", "Connections of hosts, by protocol.", connections)?;
    let absent = s.status.absent.iter().map(|a| (labels!(array = a.name, code = a.problem.code), 1.0));
    page.gauge("ashlar_array_absent", "Arrays that should be served and could not be opened.", absent)
}
