//! Members: their state, what goes to them, how long it takes, what they say of their health.

use std::fmt;

use api::{HistogramView, MemberView, SeatState};
use rt::probe::Smart;

use super::labels;
use super::page::{Labels, Page};
use crate::snapshot::Snapshot;

/// Adds them.
pub fn add(page: &mut Page<'_>, s: &Snapshot) -> fmt::Result {
    let all = || s.status.arrays.iter().flat_map(|a| a.members.iter().map(move |m| (a.name.as_str(), m)));
    let info = all().map(|(array, m)| {
        let (access, path) = (m.access.as_deref().unwrap_or(""), &m.drive);
        (labels!(array = array, seat = m.seat, serial = m.drive_name, drive = path, access = access), 1.0)
    });
    page.gauge("ashlar_drive_info", "What a drive is.", info)?;
    let state = all().map(|(array, m)| (with(of(array, m), "state", word(m.state)), 1.0));
    page.gauge("ashlar_drive_state", "How a drive is: 1 for the state it has.", state)?;
    let gauge = |value: fn(&MemberView) -> f64| all().map(move |(array, m)| (of(array, m), value(m)));
    page.gauge("ashlar_drive_size_bytes", "Size of a drive.", gauge(|m| m.bytes as f64))?;
    let suspect = gauge(|m| f64::from(u8::from(m.suspect.is_some())));
    page.gauge("ashlar_drive_suspect", "Whether it is late, or errs now and then: 1 or 0.", suspect)?;
    let requests = all().flat_map(|(array, m)| {
        [("read", m.reads), ("write", m.writes)].map(|(op, n)| (with(of(array, m), "op", op), n as f64))
    });
    page.counter("ashlar_drive_requests", "Requests to a drive, since the open.", requests)?;
    let bytes = all().flat_map(|(array, m)| {
        [("read", m.bytes_read), ("write", m.bytes_written)].map(|(op, n)| (with(of(array, m), "op", op), n as f64))
    });
    page.counter("ashlar_drive_bytes", "Bytes that a drive read and wrote, since the open.", bytes)?;
    page.counter("ashlar_drive_errors", "Requests that a drive failed.", gauge(|m| m.errors as f64))?;
    page.counter(
        "ashlar_drive_mismatches",
        "Blocks that did not match their checksum.",
        gauge(|m| m.mismatches as f64),
    )?;
    let around = "Reads that others answered since the drive was slow.";
    page.counter("ashlar_drive_reads_around", around, gauge(|m| m.reads_around as f64))?;
    let took = worked(s).flat_map(|(of, work)| {
        let by_op = ["read", "write", "flush"].into_iter().zip(work.histograms());
        by_op.map(|(op, times)| (with(of.clone(), "op", op), times)).collect::<Vec<(Labels, &HistogramView)>>()
    });
    page.histogram("ashlar_drive_request_seconds", "How long requests to a drive took.", took)?;
    let flying = worked(s).map(|(of, work)| (of, work.in_flight as f64));
    page.gauge("ashlar_drive_inflight", "Requests in flight.", flying)?;
    let busy = worked(s).map(|(of, work)| (of, work.busy_nanos as f64 / work.parts.max(1) as f64 / 1e9));
    page.counter("ashlar_drive_busy_seconds", "Time with a request in flight.", busy)?;
    health(page, s)
}

/// A figure of a drive's health: its name, what it is, whether it only rises, and where it stands.
type Figure = (&'static str, &'static str, bool, fn(&Smart) -> Option<f64>);

const HEALTH: &[Figure] = &[
    ("ashlar_drive_temperature_celsius", "The drive's temperature, from its health log.", false, |s| {
        s.temperature_celsius.map(f64::from)
    }),
    ("ashlar_drive_spare_ratio", "Spare blocks left, from the health log.", false, |s| Some(s.spare_ratio)),
    ("ashlar_drive_used_ratio", "Endurance used, from the health log.", false, |s| Some(s.used_ratio)),
    ("ashlar_drive_critical_warnings", "Critical warning bits of the health log.", false, |s| {
        Some(f64::from(s.critical))
    }),
    ("ashlar_drive_media_errors", "Media errors, from the health log.", true, |s| Some(s.media_errors as f64)),
    ("ashlar_drive_power_on_seconds", "Time with power, from the health log.", true, |s| {
        Some(s.power_on.as_secs_f64())
    }),
    ("ashlar_drive_written_bytes", "Bytes that were ever written to it.", true, |s| Some(s.written_bytes as f64)),
    ("ashlar_drive_unsafe_shutdowns", "Unsafe shutdowns, from the health log.", true, |s| {
        Some(s.unsafe_shutdowns as f64)
    }),
];

/// What drives say of their health; absent of those that do not answer.
fn health(page: &mut Page<'_>, s: &Snapshot) -> fmt::Result {
    for (name, help, rises, figure) in HEALTH {
        let members = s.status.arrays.iter().flat_map(|a| a.members.iter().map(move |m| (a.name.as_str(), m)));
        let said = members.filter_map(|(array, m)| Some((of(array, m), figure(s.smart.get(&m.drive)?)?)));
        if *rises { page.counter(name, help, said)? } else { page.gauge(name, help, said)? }
    }
    Ok(())
}

fn of(array: &str, m: &MemberView) -> Labels {
    labels!(array = array, seat = m.seat, serial = m.drive_name)
}

/// Drives with how their requests were done. Counters and status are of one moment, so that both list the same drives in
/// the same order.
fn worked(s: &Snapshot) -> impl Iterator<Item = (Labels, &api::WorkView)> {
    s.status.arrays.iter().flat_map(|a| {
        let counted = s.iostat.arrays.iter().find(|counted| counted.array == a.name);
        let drives = counted.map(|counted| counted.drives.as_slice()).unwrap_or_default();
        a.members.iter().zip(drives).filter_map(move |(m, traffic)| Some((of(&a.name, m), traffic.work.as_deref()?)))
    })
}

fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.push((name, value.to_owned()));
    labels
}

const fn word(state: SeatState) -> &'static str {
    match state {
        SeatState::In => "in",
        SeatState::Leaving => "leaving",
        SeatState::Failed => "failed",
        SeatState::Missing => "missing",
        SeatState::Replaced => "replaced",
        SeatState::Spare => "spare",
    }
}
