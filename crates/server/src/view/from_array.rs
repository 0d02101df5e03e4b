//! From the engine's structs to the objects that scripts see: the one place that follows the engine.

use super::{
    AlarmView, ArrayState, ArrayView, EventSeverity, EventView, ExposureView, IostatView, LimitsView, MemberState,
    MemberView, PlanView, RebuildView, RecoveryStepView, RecoveryView, ScrubFoundView, ScrubRunView, ScrubScheduleView,
    ScrubView, Severity, TrafficView, VolumeState, VolumeView, WrittenView,
};

impl From<array::Status> for ArrayView {
    fn from(s: array::Status) -> ArrayView {
        ArrayView {
            name: s.name,
            uuid: s.uuid,
            level: s.level.to_string(),
            scheme: s.scheme.to_string(),
            parts: s.parts,
            state: match s.state {
                array::ArrayState::Optimal => ArrayState::Optimal,
                array::ArrayState::Rebuilt => ArrayState::Rebuilt,
                array::ArrayState::Degraded => ArrayState::Degraded,
                array::ArrayState::Rebuilding => ArrayState::Rebuilding,
                array::ArrayState::Frozen => ArrayState::Frozen,
                array::ArrayState::ReadOnly => ArrayState::ReadOnly,
                array::ArrayState::Closed => ArrayState::Closed,
            },
            epoch: s.epoch,
            generation: s.generation,
            kernel: s.kernel.to_string(),
            zone_bytes: s.zone_bytes,
            segments_total: s.segments_total,
            segments_free: s.segments_free,
            raw_bytes: s.raw_bytes,
            usable_bytes: s.usable_bytes,
            used_bytes: s.used_bytes,
            map_room_bytes: s.map_room_bytes,
            provisioned_bytes: s.provisioned_bytes,
            reserve_bytes: s.reserve_bytes,
            live_share: s.live_share,
            write_amplification: s.write_amplification,
            written: WrittenView {
                host_bytes: s.written.host_bytes,
                moved_bytes: s.written.moved_bytes,
                map_bytes: s.written.map_bytes,
                header_bytes: s.written.header_bytes,
                redundancy_bytes: s.written.redundancy_bytes,
            },
            volatile_cache: s.volatile_cache,
            map_memory_bytes: s.map_memory.bytes,
            map_memory_bytes_max: s.map_memory.bytes_max,
            map_hits: s.map_memory.hits,
            map_misses: s.map_memory.misses,
            memtable_bytes: s.memtable_memory.bytes,
            memtable_bytes_max: s.memtable_memory.bytes_max,
            exposure: s.exposure.into(),
            alarms: s.alarms.into_iter().map(AlarmView::from).collect(),
            members: by_seat(s.members.into_iter().map(MemberView::from).collect()),
            volumes: s.volumes.into_iter().map(VolumeView::from).collect(),
            rebuild: s.rebuild.map(|r| RebuildView {
                segments_total: r.segments_total,
                segments_done: r.segments_done,
                bytes_moved: r.bytes_moved,
                bytes_total: r.bytes_total,
                bytes_per_second: r.bytes_per_second,
                paused: r.paused,
                seconds: r.seconds,
                eta_seconds: r.eta_seconds,
            }),
            rebuild_rate: s.rebuild_rate,
            rebuild_paused: s.rebuild_paused,
            scrub: ScrubView::from(s.scrub),
            events: s.events.into_iter().map(EventView::from).collect(),
        }
    }
}

impl From<array::exposure::Exposure> for ExposureView {
    fn from(e: array::exposure::Exposure) -> ExposureView {
        let array::exposure::Exposure { may_fail, tolerates, rebuild_place, failed, missing } = e;
        ExposureView { may_fail, tolerates, rebuild_place, failed, missing }
    }
}

impl From<array::alarm::Alarm> for AlarmView {
    fn from(a: array::alarm::Alarm) -> AlarmView {
        let severity = match a.severity {
            array::alarm::Severity::Warning => Severity::Warning,
            array::alarm::Severity::Critical => Severity::Critical,
        };
        AlarmView { code: a.code.word().to_owned(), severity, seat: a.seat, what: a.what, todo: a.todo }
    }
}

impl From<array::status::EventLine> for EventView {
    fn from(e: array::status::EventLine) -> EventView {
        let severity = match e.severity {
            array::EventSeverity::Info => EventSeverity::Info,
            array::EventSeverity::Warning => EventSeverity::Warning,
            array::EventSeverity::Error => EventSeverity::Error,
        };
        EventView { unix_seconds: e.unix_seconds, severity, text: e.text }
    }
}

/// Members in the order of their seats; of two in one seat the older one first.
fn by_seat(mut members: Vec<MemberView>) -> Vec<MemberView> {
    members.sort_by_key(|m| (m.seat, matches!(m.state, MemberState::In | MemberState::Spare)));
    members
}

impl From<array::ScrubStatus> for ScrubView {
    fn from(s: array::ScrubStatus) -> ScrubView {
        let schedule = |line: array::ScrubSchedule| ScrubScheduleView {
            every_hours: line.every_hours,
            started_at: line.started_at,
            finished_at: line.finished_at,
        };
        ScrubView {
            running: s.running.map(ScrubRunView::from),
            last: s.last.map(ScrubRunView::from),
            media: schedule(s.media),
            parity: schedule(s.parity),
            bytes_per_second: s.bytes_per_second,
        }
    }
}

impl From<array::ScrubRun> for ScrubRunView {
    fn from(r: array::ScrubRun) -> ScrubRunView {
        let found = |f: array::DriveFindings| ScrubFoundView {
            drive_name: f.drive_name,
            seat: f.seat,
            found: f.found,
            repaired: f.repaired,
            not_held: f.not_held,
            lost: f.lost,
        };
        ScrubRunView {
            kind: match r.kind {
                array::ScrubKind::Media => "media".to_owned(),
                array::ScrubKind::Parity => "parity".to_owned(),
            },
            finished: r.finished,
            segments_done: r.segments_done,
            segments_total: r.segments_total,
            bytes_read: r.bytes_read,
            seconds: r.seconds,
            eta_seconds: r.eta_seconds,
            found: r.found.into_iter().map(found).collect(),
        }
    }
}

impl From<array::SeatState> for MemberState {
    fn from(state: array::SeatState) -> MemberState {
        match state {
            array::SeatState::In => MemberState::In,
            array::SeatState::Leaving => MemberState::Leaving,
            array::SeatState::Failed => MemberState::Failed,
            array::SeatState::Replaced => MemberState::Replaced,
            array::SeatState::Spare => MemberState::Spare,
            array::SeatState::Missing => MemberState::Missing,
        }
    }
}

impl From<array::status::MemberStatus> for MemberView {
    fn from(m: array::status::MemberStatus) -> MemberView {
        MemberView {
            seat: m.bay,
            member: m.seat,
            state: m.state.into(),
            drive: m.drive,
            drive_name: m.drive_name,
            bytes: m.bytes,
            bytes_used: m.bytes_used,
            zones: u64::from(m.zones),
            zones_free: m.zones_free,
            reads: m.reads,
            writes: m.writes,
            errors: m.errors,
            volatile_cache: m.volatile_cache,
            access: m.access.map(str::to_owned),
            access_why: m.access_why,
            suspect: m.suspect,
            reads_around: m.reads_around,
            mismatches: m.mismatches,
        }
    }
}

impl From<array::status::VolumeStatus> for VolumeView {
    fn from(v: array::status::VolumeStatus) -> VolumeView {
        VolumeView {
            name: v.name,
            uuid: v.uuid,
            bytes: v.bytes,
            mapped_bytes: v.mapped_bytes,
            state: if v.state == "live" { VolumeState::Live } else { VolumeState::Dropping },
            limits: LimitsView {
                iops: v.limits.iops,
                bytes_per_second: v.limits.bytes_per_second,
                burst_ms: v.limits.burst_ms,
            },
            limited: v.limited,
        }
    }
}

impl RecoveryView {
    /// That of an array whose parts were opened so.
    #[must_use]
    pub fn of(parts: Vec<array::RecoveryReport>) -> RecoveryView {
        let several = parts.len() > 1;
        let mut whole = RecoveryView::default();
        for (part, number) in parts.into_iter().map(RecoveryView::from).zip(1..) {
            whole.replayed_records += part.replayed_records;
            whole.replayed_entries += part.replayed_entries;
            whole.cut_segments += part.cut_segments;
            whole.repaired_blocks += part.repaired_blocks;
            let name = |name| if several { format!("part {number}, {name}") } else { name };
            whole.steps.extend(part.steps.into_iter().map(|s| RecoveryStepView { name: name(s.name), ..s }));
        }
        whole
    }
}

impl From<array::RecoveryReport> for RecoveryView {
    fn from(r: array::RecoveryReport) -> RecoveryView {
        RecoveryView {
            steps: r
                .steps
                .into_iter()
                .map(|s| RecoveryStepView { name: s.name.to_string(), millis: s.millis, detail: s.detail })
                .collect(),
            replayed_records: r.replayed_records,
            replayed_entries: r.replayed_entries,
            cut_segments: r.cut_segments,
            repaired_blocks: r.repaired_blocks,
        }
    }
}

impl From<array::Plan> for PlanView {
    fn from(p: array::Plan) -> PlanView {
        PlanView {
            losses: vec![],
            level: p.level,
            scheme: p.scheme,
            width: p.width,
            drives: p.drives,
            zone_bytes: p.zone_bytes,
            segments: p.segments,
            raw_bytes: p.raw_bytes,
            data_bytes: p.data_bytes,
            usable_bytes: p.usable_bytes,
            tolerates: p.tolerates,
            rebuild_place: p.rebuild_place,
            largest_drive_bytes: p.largest_drive_bytes,
            notes: p.notes,
        }
    }
}

impl IostatView {
    /// The counters of the array called `name`.
    #[must_use]
    pub fn of(name: &str, io: array::Iostat) -> IostatView {
        let volume = |v: array::status::VolumeStatus| TrafficView {
            name: v.name,
            reads: v.reads,
            writes: v.writes,
            bytes_read: v.bytes_read,
            bytes_written: v.bytes_written,
            errors: v.errors,
        };
        let drive = |m: array::status::MemberStatus| TrafficView {
            name: if m.drive.is_empty() { m.drive_name } else { m.drive },
            reads: m.reads,
            writes: m.writes,
            bytes_read: m.bytes_read,
            bytes_written: m.bytes_written,
            errors: m.errors,
        };
        IostatView {
            array: name.to_owned(),
            volumes: io.volumes.into_iter().map(volume).collect(),
            drives: io.members.into_iter().map(drive).collect(),
        }
    }
}
