//! Volumes: what their hosts ask for, how long it takes, what fails.

use std::fmt;

use api::{HistogramView, TrafficView, VolumeState, VolumeView, WorkView};

use super::labels;
use super::page::{Labels, Page};
use crate::snapshot::Snapshot;

/// Adds them.
pub fn add(page: &mut Page<'_>, s: &Snapshot) -> fmt::Result {
    let all = || {
        s.status
            .arrays
            .iter()
            .flat_map(|a| a.volumes.iter().filter(|v| v.state == VolumeState::Live).map(move |v| (a.name.as_str(), v)))
    };
    let info = all().map(|(array, v)| (labels!(array = array, volume = v.name, uuid = v.uuid), 1.0));
    page.gauge("ashlar_volume_info", "What a volume is.", info)?;
    let of = |value: fn(&VolumeView) -> f64| {
        all().map(move |(array, v)| (labels!(array = array, volume = v.name), value(v)))
    };
    page.gauge("ashlar_volume_size_bytes", "Size of a volume.", of(|v| v.bytes as f64))?;
    page.gauge(
        "ashlar_volume_mapped_bytes",
        "What of it is written: as of the last checkpoint, with what came since at most.",
        of(|v| v.mapped_bytes as f64),
    )?;
    let requests = all().flat_map(|(array, v)| {
        let by_op = [("read", v.reads), ("write", v.writes), ("flush", v.flushes), ("deallocate", v.deallocates)];
        by_op.map(|(op, n)| (labels!(array = array, volume = v.name, op = op), n as f64))
    });
    page.counter("ashlar_volume_requests", "Requests of hosts, since the open.", requests)?;
    let bytes = all().flat_map(|(array, v)| {
        let by_op = [("read", v.bytes_read), ("write", v.bytes_written)];
        by_op.map(|(op, n)| (labels!(array = array, volume = v.name, op = op), n as f64))
    });
    page.counter("ashlar_volume_bytes", "Bytes that hosts read and wrote, since the open.", bytes)?;
    page.counter("ashlar_volume_limited_requests", "Requests that waited for the limits.", of(|v| v.limited as f64))?;
    let enabled = s.iostat.arrays.iter().map(|a| {
        let told = a.volumes.iter().all(|v| v.work.is_some());
        (labels!(array = a.array), f64::from(u8::from(told)))
    });
    let why = "Whether times of volumes are told: not of arrays with more than 128 volumes.";
    page.gauge("ashlar_volume_histograms_enabled", why, enabled)?;
    let took = worked(s).flat_map(|(of, work)| {
        let by_op = ["read", "write", "flush", "deallocate"].into_iter().zip(work.histograms());
        by_op.map(|(op, times)| (with(&of, "op", op), times)).collect::<Vec<(Labels, &HistogramView)>>()
    });
    page.histogram("ashlar_volume_request_seconds", "How long requests of hosts took.", took)?;
    let faults = worked(s).flat_map(|(of, work)| {
        work.faults.iter().map(|(fault, n)| (with(&of, "fault", fault), *n as f64)).collect::<Vec<_>>()
    });
    page.counter("ashlar_volume_errors", "Requests that failed, by why.", faults)?;
    let waited = worked(s).map(|(of, work)| (of, work.limited_nanos as f64 / 1e9));
    page.counter("ashlar_volume_limited_seconds", "How long requests waited for the limits.", waited)?;
    let flying = worked(s).map(|(of, work)| (of, work.in_flight as f64));
    page.gauge("ashlar_volume_inflight", "Requests in flight.", flying)?;
    let busy = worked(s).map(|(of, work)| (of, work.busy_nanos as f64 / work.parts.max(1) as f64 / 1e9));
    page.counter("ashlar_volume_busy_seconds", "Time with a request in flight.", busy)
}

fn worked(s: &Snapshot) -> impl Iterator<Item = (Labels, &WorkView)> {
    let of_array = |a: &str, v: &TrafficView| -> Labels { labels!(array = a, volume = v.name) };
    s.iostat
        .arrays
        .iter()
        .flat_map(move |a| a.volumes.iter().filter_map(move |v| Some((of_array(&a.array, v), v.work.as_deref()?))))
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}
