//! An array in words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{
    ArrayState, ArrayView, HeldView, MemberView, PlanView, RebuildView, RecoveryView, ScrubFoundView, ScrubRunView,
    ScrubScheduleView, ScrubView, SeatState, VolumeState,
};
use server::ops::rebuild::rate_words;
use server::ops::volume::limits_sentence;

use super::exposure::{alarm_line, alarm_word, state_sentence};
use super::{Table, duration, human, percent};

/// Events shown: the last few.
const EVENTS_SHOWN: usize = 5;

/// A state in one word.
pub fn state_word(state: ArrayState) -> &'static str {
    match state {
        ArrayState::Optimal => "optimal",
        ArrayState::Rebuilt => "rebuilt",
        ArrayState::Degraded => "degraded",
        ArrayState::Rebuilding => "rebuilding",
        ArrayState::Frozen => "FROZEN",
        ArrayState::ReadOnly => "read-only",
        ArrayState::Closed => "closed",
    }
}

/// Members by state, the usual one first.
const MEMBER_WORDS: [(SeatState, &str); 6] = [
    (SeatState::In, "in"),
    (SeatState::Leaving, "leaving"),
    (SeatState::Failed, "FAILED"),
    (SeatState::Missing, "MISSING"),
    (SeatState::Replaced, "replaced"),
    (SeatState::Spare, "spare"),
];

/// A member's state for people.
pub fn member_word(state: SeatState) -> &'static str {
    MEMBER_WORDS.iter().find(|(s, _)| *s == state).map_or("", |(_, word)| word)
}

/// A volume's state for people.
pub fn volume_word(state: VolumeState) -> &'static str {
    match state {
        VolumeState::Live => "online",
        VolumeState::Dropping => "being deleted",
    }
}

/// "6 in, 2 FAILED, 1 spare".
pub fn drives_line(members: &[MemberView]) -> String {
    let count = |state| members.iter().filter(|m| m.state == state).count();
    let parts = MEMBER_WORDS.map(|(state, word)| (count(state), word)).into_iter().filter(|(n, _)| *n > 0);
    parts.map(|(n, word)| format!("{n} {word}")).collect::<Vec<_>>().join(", ")
}

/// Features of the format, where there is something to say.
fn format(a: &ArrayView) -> Option<String> {
    let upgrade = || format!("`ashlar upgrade {}` adds: {}", a.name, a.features_available.join(", "));
    match (a.features.is_empty(), a.features_available.is_empty()) {
        (true, true) => None,
        (true, false) => Some(upgrade()),
        (false, true) => Some(a.features.join(", ")),
        (false, false) => Some(format!("{}; {}", a.features.join(", "), upgrade())),
    }
}

/// "map 3.0 MiB of 256.0 MiB, 99 % of 8120 lookups hit; memtable 0.2 MiB of 60.0 MiB".
fn memory(a: &ArrayView) -> String {
    let asked = a.map_hits + a.map_misses;
    let mut words = format!("map {} of {}", human(a.map_memory_bytes), human(a.map_memory_bytes_max));
    if asked > 0 {
        words.push_str(&format!(", {} of {asked} lookups hit", percent(a.map_hits, asked)));
    }
    words.push_str(&format!("; memtable {} of {}", human(a.memtable_bytes), human(a.memtable_bytes_max)));
    words
}

/// ", 2 parts", where there are several.
fn parts_word(parts: u8) -> String {
    if parts > 1 { format!(", {parts} parts") } else { String::new() }
}

/// Everything about an array.
pub fn array_details(a: &ArrayView) -> Vec<String> {
    let mut lines = vec![
        format!("{}  {}, {}{}; drives: {}", a.name, a.level, a.scheme, parts_word(a.parts), drives_line(&a.members)),
        format!("  state     {}", state_sentence(a)),
    ];
    let mut space = format!(
        "{} of {} used ({})",
        human(a.used_bytes),
        human(a.usable_bytes),
        percent(a.used_bytes, a.usable_bytes)
    );
    if a.map_room_bytes > 0 {
        space.push_str(&format!(", {} of it by the map of sparsely written volumes", human(a.map_room_bytes)));
    }
    if a.provisioned_bytes > 0 {
        space.push_str(&format!(", {} promised to volumes", human(a.provisioned_bytes)));
    }
    lines.push(format!("  space     {space}"));
    lines.push(format!(
        "  reserved  {} of {} raw, for rebuilds and cleaning",
        human(a.reserve_bytes),
        human(a.raw_bytes)
    ));
    if a.segments_free < a.segments_total {
        let garbage = ((1.0 - a.live_share) * 100.0).round();
        lines.push(format!("  garbage   {garbage} % of the space in use can be reclaimed"));
    }
    let w = &a.written;
    if w.host_bytes > 0 {
        lines.push(format!(
            "  written   {} by hosts, {} moved, {} map, {} headers and padding, {} redundancy; amplification {:.2} \
             without it",
            human(w.host_bytes),
            human(w.moved_bytes),
            human(w.map_bytes),
            human(w.header_bytes),
            human(w.redundancy_bytes),
            a.write_amplification
        ));
    }
    lines.push(format!(
        "  segments  {} of {} free, zones of {}, {} parity kernel",
        a.segments_free,
        a.segments_total,
        human(a.zone_bytes),
        a.kernel
    ));
    lines.push(format!("  memory    {}", memory(a)));
    lines.extend(format(a).map(|format| format!("  format    {format}")));
    if let Some(access) = access(&a.members) {
        lines.push(format!("  access    {access}"));
    }
    lines.extend(partly_used(&a.members));
    if let Some(r) = &a.rebuild {
        lines.push(format!("  rebuild   {}", rebuild(r, &a.rebuild_rate)));
    } else if a.rebuild_paused {
        lines.push(format!("  rebuild   paused; `ashlar rebuild {} resume` resumes it", a.name));
    }
    lines.extend(scrub_lines(&a.scrub).into_iter().map(|line| format!("  scrub     {line}")));
    lines.extend(a.alarms.iter().map(|alarm| format!("  {:<9} {}", alarm_word(alarm.severity), alarm_line(a, alarm))));
    lines.push(String::new());
    lines.extend(members(&a.members).lines());
    if !a.volumes.is_empty() {
        lines.push(String::new());
        let mut table = Table::new(&["VOLUME", ">SIZE", ">WRITTEN", "STATE", "LIMITS"]);
        for v in &a.volumes {
            let state = volume_word(v.state);
            let (name, limits) = (format!("{}/{}", a.name, v.name), limits_sentence(v.limits));
            table.row(vec![name, human(v.bytes), human(v.mapped_bytes), state.to_owned(), limits]);
        }
        lines.extend(table.lines());
    }
    if !a.events.is_empty() {
        lines.push(String::new());
        let skipped = a.events.len().saturating_sub(EVENTS_SHOWN);
        lines.extend(a.events.iter().skip(skipped).map(|e| format!("  {:>14}  {}", ago(e.unix_seconds), e.text)));
    }
    lines
}

/// How the drives are used, and why not as was asked for: once when it is the same for all, else by drive.
fn access(members: &[MemberView]) -> Option<String> {
    let of = |m: &MemberView| {
        let why = m.access_why.as_ref().map(|why| format!(" ({why})"));
        Some(m.access.clone()? + &why.unwrap_or_default())
    };
    let known: Vec<(&str, String)> = members.iter().filter_map(|m| Some((m.drive.as_str(), of(m)?))).collect();
    let (_, first) = known.first()?;
    if known.iter().all(|(_, access)| access == first) {
        return Some(first.clone());
    }
    Some(known.iter().map(|(drive, access)| format!("{drive} {access}")).collect::<Vec<_>>().join("; "))
}

/// Drives that are larger than the array has room for.
fn partly_used(members: &[MemberView]) -> impl Iterator<Item = String> {
    let sentence = |m: &MemberView| {
        let drive = if m.drive.is_empty() { &m.drive_name } else { &m.drive };
        Some(format!("  size      {drive}: {}", m.size_sentence()?))
    };
    members.iter().filter_map(sentence)
}

/// The scrub that runs, or when the last one ended; then what was found.
fn scrub_lines(s: &ScrubView) -> Vec<String> {
    let mut lines = Vec::new();
    let ended = |line: &ScrubScheduleView| match line.finished_at {
        0 => "none yet".to_owned(),
        at => format!("last {}", ago(at)),
    };
    let next = |line: &ScrubScheduleView| match line.every_hours {
        0 => "not scheduled".to_owned(),
        hours => format!("{} ({})", next_in(line.started_at + u64::from(hours) * 3600), interval(hours)),
    };
    match &s.running {
        Some(run) => lines.push(format!("{} running: {}", run.kind, scrub_run(run))),
        None => {
            let about = |line| format!("{}, {}", ended(line), next(line));
            lines.push(format!("media: {}; parity: {}", about(&s.media), about(&s.parity)));
        }
    }
    let shown = s.running.iter().chain(s.last.iter().filter(|_| s.running.is_none()));
    lines.extend(shown.flat_map(|run| &run.found).map(scrub_found));
    lines
}

/// "weekly", "every 30 days", "every 5 hours".
fn interval(hours: u32) -> String {
    match hours {
        24 => "daily".to_owned(),
        168 => "weekly".to_owned(),
        hours if hours % 24 == 0 => format!("every {} days", hours / 24),
        1 => "hourly".to_owned(),
        hours => format!("every {hours} hours"),
    }
}

/// When a moment in seconds since 1970 comes.
fn next_in(unix_seconds: u64) -> String {
    let left = (UNIX_EPOCH + Duration::from_secs(unix_seconds)).duration_since(SystemTime::now()).unwrap_or_default();
    match left.as_secs() {
        0 => "next is due".to_owned(),
        seconds if seconds < 172_800 => format!("next in {}", duration(left)),
        seconds => format!("next in {} days", seconds / 86_400),
    }
}

/// How far a scrub is, or went.
pub fn scrub_run(r: &ScrubRunView) -> String {
    let eta = r.eta_seconds.filter(|_| !r.finished);
    let eta = eta.map_or(String::new(), |s| format!(", {} left", duration(Duration::from_secs(s))));
    let rate = r.bytes_read / r.seconds.max(1);
    format!(
        "{} of {} segments, {} read, {}/s{eta}",
        r.segments_done,
        r.segments_total,
        human(r.bytes_read),
        human(rate)
    )
}

/// What a scrub found on a drive.
pub fn scrub_found(f: &ScrubFoundView) -> String {
    format!(
        "drive {} (seat {}): {} blocks wrong, {} repaired, {} wrong again after the repair, {} lost",
        f.drive_name, f.seat, f.found, f.repaired, f.not_held, f.lost
    )
}

/// One that is out is out, whatever it was suspected of before.
fn member_state(m: &MemberView) -> String {
    match m.state {
        SeatState::In if m.suspect.is_some() => "in, suspect".to_owned(),
        state => member_word(state).to_owned(),
    }
}

fn members(members: &[MemberView]) -> Table {
    let mut table =
        Table::new(&[">SEAT", "DRIVE", "STATE", ">SIZE", ">FREE", ">READS", ">WRITES", ">ERRORS", ">HEDGED"]);
    for m in members {
        let drive = if m.drive.is_empty() { &m.drive_name } else { &m.drive };
        table.row(vec![
            m.seat.to_string(),
            drive.clone(),
            member_state(m),
            human(m.bytes),
            percent(m.zones_free, m.zones),
            m.reads.to_string(),
            m.writes.to_string(),
            m.errors.to_string(),
            m.reads_around.to_string(),
        ]);
    }
    table
}

fn rebuild(r: &RebuildView, rate: &str) -> String {
    let rate = rate_words(rate);
    let pace = match (r.paused, r.eta_seconds) {
        (true, _) => format!("PAUSED ({rate})"),
        (false, _) if r.waits.is_some() => format!("WAITS: {}", r.waits.as_deref().unwrap_or_default()),
        (false, None) => format!("{}/s ({rate})", human(r.bytes_per_second)),
        (false, Some(s)) => {
            format!("{}/s ({rate}), {} left", human(r.bytes_per_second), duration(Duration::from_secs(s)))
        }
    };
    format!(
        "{} ({} of {}, {} of {} segments), {pace}",
        percent(r.bytes_moved, r.bytes_total),
        human(r.bytes_moved),
        human(r.bytes_total),
        r.segments_done,
        r.segments_total,
    )
}

/// What an array of these drives is like.
pub fn plan(name: &str, p: &PlanView) -> Vec<String> {
    let mut lines = vec![
        format!("{name}  {}, {} over {} drives", p.level, p.scheme, p.drives),
        format!("  usable    {} of {} raw", human(p.usable_bytes), human(p.raw_bytes)),
        format!("  segments  {} of {} zones, {} each", p.segments, p.width, human(p.zone_bytes)),
    ];
    if p.largest_drive_bytes > 0 {
        lines.push(format!("  growth    drives of up to {} can be used in full later", human(p.largest_drive_bytes)));
    }
    lines.extend(p.notes.iter().map(|note| format!("  {note}")));
    lines.extend(losses(&p.losses));
    lines
}

/// What is lost when these drives are taken.
pub fn losses(held: &[HeldView]) -> Vec<String> {
    if held.is_empty() {
        return vec![];
    }
    let lines = held.iter().map(|h| format!("  drive {} {}", h.drive, h.what));
    std::iter::once("Data that will be lost:".to_owned()).chain(lines).collect()
}

/// What opening an array took.
pub fn recovery(r: &RecoveryView) -> Vec<String> {
    r.steps.iter().map(|s| format!("  {:<24} {} ({} ms)", s.name, s.detail, s.millis)).collect()
}

/// How long ago a moment was.
fn ago(unix_seconds: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_secs(unix_seconds);
    match SystemTime::now().duration_since(then) {
        Ok(d) if d.as_secs() < 1 => "just now".to_owned(),
        Ok(d) if d.as_secs() < 60 => format!("{} s ago", d.as_secs()),
        Ok(d) if d.as_secs() < 172_800 => format!("{} ago", duration(d)),
        Ok(d) => format!("{} days ago", d.as_secs() / 86_400),
        Err(_) => "in the future".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_scrub_is_told() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let line = |every_hours, started_at, finished_at| ScrubScheduleView { every_hours, started_at, finished_at };
        let media = line(168, now - 86_000, 0);
        let told = scrub_lines(&ScrubView { media, parity: line(0, now, 0), ..ScrubView::default() });
        assert_eq!(told, ["media: none yet, next in 6 days (weekly); parity: none yet, not scheduled"]);
        let media = line(720, now - 720 * 3600, now - 600_000);
        let told = scrub_lines(&ScrubView { media, parity: line(24, now, 0), ..ScrubView::default() });
        assert!(
            told[0].starts_with("media: last 6 days ago, next is due (every 30 days); parity: none yet, "),
            "{told:?}"
        );
        let rebuild = |paused| RebuildView {
            bytes_per_second: 3 << 20,
            bytes_total: 100,
            eta_seconds: Some(34),
            paused,
            ..RebuildView::default()
        };
        assert!(super::rebuild(&rebuild(false), "5242880").ends_with(", 3 MiB/s (limit 5 MiB/s), 34 s left"));
        assert!(super::rebuild(&rebuild(true), "medium").ends_with(", PAUSED (medium priority)"));
    }

    #[test]
    fn what_is_used_of_a_large_drive_is_said() {
        let m = |drive: &str, bytes, bytes_used| MemberView {
            drive: drive.into(),
            bytes,
            bytes_used,
            ..MemberView::default()
        };
        let members = [m("/dev/a", 4 << 40, 4 << 40), m("/dev/b", 7 << 40, 4 << 40), m("/dev/old", 4 << 40, 0)];
        let lines: Vec<String> = partly_used(&members).collect();
        assert_eq!(lines, ["  size      /dev/b: 7 TiB, of which 4 TiB are used"]);
    }

    #[test]
    fn access_is_said_once_or_by_drive() {
        let m = |drive: &str, access: Option<&str>, why: Option<&str>| MemberView {
            drive: drive.to_owned(),
            access: access.map(str::to_owned),
            access_why: why.map(str::to_owned),
            ..MemberView::default()
        };
        let plain = m("/dev/a", Some("direct"), Some("no passthrough: Linux 6.8"));
        let (same, other) =
            (MemberView { drive: "/dev/b".into(), ..plain.clone() }, m("/dev/c", Some("passthrough"), None));
        let away = m("/dev/d", None, None);
        let words = "direct (no passthrough: Linux 6.8)";
        assert_eq!(access(&[plain.clone(), same, away.clone()]).as_deref(), Some(words));
        let by_drive = format!("/dev/a {words}; /dev/c passthrough");
        assert_eq!(access(&[plain, other, away.clone()]), Some(by_drive));
        assert_eq!(access(&[away]), None);
    }
}
