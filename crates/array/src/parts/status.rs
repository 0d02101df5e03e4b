//! What an array in parts says of itself: the sums of what its parts say.
//!
//! A drive and a volume are in every part, and one line here. A request that reaches several parts counts in each; a
//! flush is one of all of them and counts once. The state is the worst of all.

use std::collections::BTreeMap;

use api::{
    AlarmView, ArrayState, ArrayView, IostatView, MemberView, RebuildView, RecoveryStepView, RecoveryView,
    ScrubRunView, ScrubScheduleView, ScrubView, SeatState, TrafficView, VolumeView, add_work,
};

use super::drives::seat_of_part;

/// Adds fields of one value to those of another of its type.
macro_rules! sum {
    ($to:ident += $from:ident: $($field:ident),+) => {{ $($to.$field += $from.$field;)+ }};
}

/// One status of those of all parts, part 0's first.
///
/// # Panics
/// Of no parts there is no array.
pub fn merged(all: Vec<ArrayView>) -> ArrayView {
    let used: Vec<f64> =
        all.iter().map(|s| (s.segments_total - s.segments_free.min(s.segments_total)) as f64).collect();
    let live: f64 = all.iter().zip(&used).map(|(s, used)| s.live_share * used).sum();
    let mut all = all.into_iter();
    let mut whole = all.next().expect("an array has a part");
    for (part, number) in all.zip(2..) {
        add(&mut whole, part, number);
    }
    whole.live_share = (live / used.iter().sum::<f64>().max(1.0) * 1000.0).round() / 1000.0;
    whole.write_amplification = whole.written.amplification();
    whole.events.sort_by_key(|event| event.unix_seconds);
    // A drive has another seat in each part; here it is one line.
    let with = |state| whole.members.iter().filter(|m| m.state == state).map(|m| m.seat).collect();
    (whole.exposure.failed, whole.exposure.missing) = (with(SeatState::Failed), with(SeatState::Missing));
    whole
}

fn add(whole: &mut ArrayView, part: ArrayView, number: usize) {
    whole.state = worse(whole.state, part.state);
    sum!(whole += part: segments_total, segments_free, raw_bytes, usable_bytes, used_bytes, map_room_bytes);
    sum!(whole += part: provisioned_bytes, reserve_bytes, repaired_blocks, unmerged_entries, memtable_bytes);
    sum!(whole += part: memtable_bytes_max, map_memory_bytes, map_memory_bytes_max, map_hits, map_misses);
    whole.written.add(part.written);
    whole.volatile_cache |= part.volatile_cache;
    whole.memtable_share = whole.memtable_share.max(part.memtable_share);
    whole.checkpoint_at = whole.checkpoint_at.zip(part.checkpoint_at).map(|(a, b)| a.min(b));
    whole.rebuild_paused |= part.rebuild_paused;
    if let (Ok(here), Ok(there)) = (whole.rebuild_rate.parse::<u64>(), part.rebuild_rate.parse::<u64>()) {
        whole.rebuild_rate = (here + there).to_string();
    }
    whole.exposure.may_fail = whole.exposure.may_fail.min(part.exposure.may_fail);
    whole.exposure.rebuild_place &= part.exposure.rebuild_place;
    add_alarms(&mut whole.alarms, part.alarms, number);
    whole.events.extend(part.events.into_iter().map(|mut event| {
        event.text = format!("part {number}: {}", event.text);
        event
    }));
    add_members(&mut whole.members, part.members, number);
    add_volumes(&mut whole.volumes, part.volumes);
    whole.rebuild = either(whole.rebuild.take(), part.rebuild, add_rebuild);
    add_scrub(&mut whole.scrub, part.scrub);
}

/// Counters of all parts of the array called `name`, part 0's first.
///
/// # Panics
/// Of no parts there is no array.
pub fn counted(name: &str, all: Vec<(Vec<MemberView>, Vec<VolumeView>)>) -> IostatView {
    let mut all = all.into_iter();
    let (mut members, mut volumes) = all.next().expect("an array has a part");
    for ((of_part, volumes_of_part), number) in all.zip(2..) {
        add_members(&mut members, of_part, number);
        add_volumes(&mut volumes, volumes_of_part);
    }
    IostatView {
        array: name.to_owned(),
        volumes: volumes.into_iter().map(TrafficView::from).collect(),
        drives: members.into_iter().map(TrafficView::from).collect(),
    }
}

/// What the open of an array had to do whose parts were opened so.
pub fn recovered(parts: Vec<RecoveryView>) -> RecoveryView {
    let several = parts.len() > 1;
    let mut whole = RecoveryView { clean: true, ..RecoveryView::default() };
    for (part, number) in parts.into_iter().zip(1..) {
        sum!(whole += part: replayed_records, replayed_entries, cut_segments, repaired_blocks, damaged_records);
        whole.clean &= part.clean;
        let name = |name| if several { format!("part {number}, {name}") } else { name };
        whole.steps.extend(part.steps.into_iter().map(|s| RecoveryStepView { name: name(s.name), ..s }));
    }
    whole
}

/// Of two states the one that wants more attention.
pub fn worse(a: ArrayState, b: ArrayState) -> ArrayState {
    let weight = |state| match state {
        ArrayState::Optimal => 0,
        ArrayState::ReadOnly => 1,
        ArrayState::Rebuilt => 2,
        ArrayState::Rebuilding => 3,
        ArrayState::Degraded => 4,
        ArrayState::Closed => 5,
        ArrayState::Frozen => 6,
    };
    if weight(b) > weight(a) { b } else { a }
}

/// Adds what a part raises and no other has raised: of one alarm of the array, or of one drive, the worst is said.
fn add_alarms(whole: &mut Vec<AlarmView>, part: Vec<AlarmView>, number: usize) {
    for alarm in part {
        let seat = alarm.seat.map(|seat| seat_of_part(number - 1, seat));
        match whole.iter_mut().find(|a| a.code == alarm.code && (a.seat == alarm.seat || a.what == alarm.what)) {
            Some(known) if known.severity >= alarm.severity => {}
            Some(known) => *known = AlarmView { seat: known.seat, ..alarm },
            None => whole.push(AlarmView { seat, what: format!("part {number}: {}", alarm.what), ..alarm }),
        }
    }
    whole.sort_by_key(|alarm| std::cmp::Reverse(alarm.severity));
}

/// Adds what a part says of its drives. One that only this part has, for a while, is a line of its own.
fn add_members(whole: &mut Vec<MemberView>, part: Vec<MemberView>, number: usize) {
    for line in part {
        // A drive that is back has a seat that it left before, too.
        let same = whole.iter().position(|m| m.drive_name == line.drive_name && is_gone(m) == is_gone(&line));
        let same = same.or_else(|| whole.iter().position(|m| m.drive_name == line.drive_name));
        match same.map(|at| &mut whole[at]) {
            None => whole.push(MemberView {
                member: seat_of_part(number - 1, line.member),
                seat: seat_of_part(number - 1, line.seat),
                ..line
            }),
            Some(all) => {
                let worse = worse_seat(all.state, line.state);
                all.missing = match (all.state == worse, line.state == worse) {
                    (true, true) => all.missing && line.missing,
                    (true, false) => all.missing,
                    (false, _) => line.missing,
                };
                all.state = worse;
                sum!(all += line: bytes, bytes_used, zones, zones_free, reads, writes, bytes_read, bytes_written);
                sum!(all += line: errors, mismatches, reads_around);
                add_work(&mut all.work, line.work);
                all.volatile_cache |= line.volatile_cache;
                all.suspect = all.suspect.take().or(line.suspect);
                // One that is used in another way than was asked for somewhere.
                if line.access_why.is_some() {
                    (all.access, all.access_why) = (line.access, line.access_why);
                }
            }
        }
    }
    MemberView::sort(whole);
}

fn is_gone(member: &MemberView) -> bool {
    member.state.is_out()
}

fn worse_seat(a: SeatState, b: SeatState) -> SeatState {
    let weight = |state| match state {
        SeatState::In => 0,
        SeatState::Spare => 1,
        SeatState::Leaving => 2,
        SeatState::Replaced => 3,
        SeatState::Missing => 4,
        SeatState::Failed => 5,
    };
    if weight(b) > weight(a) { b } else { a }
}

/// Adds what a part has of the volumes; there a volume's name is its identity.
fn add_volumes(whole: &mut [VolumeView], part: Vec<VolumeView>) {
    let mut part: BTreeMap<String, VolumeView> = part.into_iter().map(|v| (v.name.to_string(), v)).collect();
    for volume in whole {
        let Some(there) = part.remove(&volume.uuid.to_string()) else { continue };
        // As large as part 0 says: the others may be larger for a while.
        sum!(volume += there: mapped_bytes, reads, writes, deallocates, bytes_read, bytes_written, errors);
        add_work(&mut volume.work, there.work);
    }
}

fn either<T>(a: Option<T>, b: Option<T>, add: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(add(a, b)),
        (a, b) => a.or(b),
    }
}

fn add_rebuild(mut a: RebuildView, b: RebuildView) -> RebuildView {
    sum!(a += b: segments_total, segments_done, bytes_total, bytes_moved, bytes_per_second, rows_lost);
    RebuildView {
        seconds: a.seconds.max(b.seconds),
        // Over when the last one is.
        eta_seconds: a.eta_seconds.zip(b.eta_seconds).map(|(a, b)| a.max(b)),
        paused: a.paused && b.paused,
        // As long as one of them goes on, so does the whole.
        waits: a.waits.zip(b.waits).map(|(a, _)| a),
        ..a
    }
}

fn add_scrub(whole: &mut ScrubView, part: ScrubView) {
    whole.running = either(whole.running.take(), part.running, add_run);
    whole.last = either(whole.last.take(), part.last, add_run);
    whole.bytes_per_second += part.bytes_per_second;
    for (whole, part) in [(&mut whole.media, part.media), (&mut whole.parity, part.parity)] {
        let ScrubScheduleView { every_hours, started_at, finished_at } = part;
        whole.every_hours = whole.every_hours.max(every_hours);
        whole.started_at = whole.started_at.min(started_at);
        // The array was scrubbed when its last part was; 0 is never.
        whole.finished_at =
            if whole.finished_at.min(finished_at) == 0 { 0 } else { whole.finished_at.max(finished_at) };
    }
}

fn add_run(mut a: ScrubRunView, b: ScrubRunView) -> ScrubRunView {
    for findings in b.found {
        match a.found.iter_mut().find(|f| f.drive_name == findings.drive_name) {
            None => a.found.push(findings),
            Some(all) => sum!(all += findings: found, repaired, not_held, lost),
        }
    }
    sum!(a += b: segments_done, segments_total, bytes_read);
    ScrubRunView {
        finished: a.finished && b.finished,
        seconds: a.seconds.max(b.seconds),
        eta_seconds: a.eta_seconds.zip(b.eta_seconds).map(|(a, b)| a.max(b)),
        ..a
    }
}

#[cfg(test)]
mod tests;
