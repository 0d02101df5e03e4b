//! Status, computed from what the rooms say.

use api::{ArrayState, ArrayView, IostatView, LimitsView, MemberView, TrafficView, VolumeView, WrittenView};
use base::BlockCount;
use ondisk::{Limits, MemberState, VolumeState, WhyOut};

use super::report::Report;
use crate::ctx::Phase;
use crate::memtable::table::FACT_BYTES;

/// Times are told of so many volumes of an array: each is a hundred numbers.
const VOLUMES_TIMED: usize = 128;

impl Report<'_> {
    /// The array, now.
    pub fn status(&self) -> ArrayView {
        self.status_of(self.member_lines(), self.volume_lines())
    }

    /// The same, with how requests were done.
    pub fn status_worked(&self) -> ArrayView {
        let (members, volumes) = self.worked();
        self.status_of(members, volumes)
    }

    fn status_of(&self, members: Vec<MemberView>, volumes: Vec<VolumeView>) -> ArrayView {
        let table = self.rooms.segments().read();
        let used_segments = table.segments.values().filter(|s| !s.is_spare());
        let blocks_in: u64 = used_segments.map(|s| s.scheme.k() as u64 * u64::from(s.rows.acked)).sum();
        let live: u64 = table.segments.values().map(|s| u64::from(s.live)).sum();
        drop(table);
        let usable_bytes = BlockCount(self.rooms.room().usable_blocks()).bytes();
        let (mapped, map_room) = (self.rooms.room().mapped_blocks(), self.rooms.room().room_taken_by_map());
        let used_bytes = BlockCount(mapped + self.rooms.room().pending_blocks() + map_room).bytes();
        let provisioned_bytes = volumes.iter().map(|v| v.bytes).sum();
        let exposure = self.exposure();
        let nodes = self.rooms.map().nodes().memory();
        ArrayView {
            name: self.rooms.ctx().name(),
            uuid: self.rooms.ctx().shape.array.0,
            level: self.rooms.ctx().shape.level.to_string(),
            scheme: self.rooms.ctx().shape.scheme.to_string(),
            parts: self.rooms.ctx().shape.part.of,
            state: self.state_word(),
            epoch: self.rooms.ctx().epoch().0,
            generation: self.rooms.system().number(),
            kernel: self.rooms.ctx().kernel.name().to_owned(),
            zone_bytes: BlockCount(u64::from(self.rooms.ctx().shape.zone_blocks)).bytes(),
            segments_total: self.rooms.room().segments_possible(),
            segments_free: self.rooms.room().segments_left(),
            raw_bytes: members.iter().map(|m| m.bytes).sum(),
            usable_bytes,
            used_bytes: used_bytes.min(usable_bytes.max(BlockCount(mapped + map_room).bytes())),
            map_room_bytes: BlockCount(map_room).bytes(),
            provisioned_bytes,
            reserve_bytes: BlockCount(self.rooms.room().segments_possible() * self.rooms.room().segment_blocks_now())
                .bytes()
                .saturating_sub(usable_bytes),
            live_share: ratio(live, blocks_in),
            write_amplification: self.write_amplification(),
            written: self.written(),
            volatile_cache: !self.rooms.members().no_volatile_cache(),
            alarms: self.alarms(&exposure, usable_bytes, used_bytes, provisioned_bytes),
            exposure,
            members,
            volumes,
            rebuild: self.rooms.rebuild().rebuild_status(),
            rebuild_rate: rate_word(self.rooms.ctx().settings().rebuild),
            rebuild_paused: self.rooms.ctx().settings().rebuild_paused,
            scrub: self.rooms.scrubs().scrub_status(),
            events: self.rooms.ctx().events(),
            features: self.features(true),
            features_available: self.features(false),
            repaired_blocks: self.rooms.ctx().figures.repaired_blocks.get(),
            map_memory_bytes: nodes.bytes,
            map_memory_bytes_max: nodes.bytes_max,
            map_hits: nodes.hits,
            map_misses: nodes.misses,
            memtable_bytes: self.rooms.memory().read().weight() * FACT_BYTES,
            memtable_bytes_max: self.rooms.memory().facts_max() * FACT_BYTES,
            unmerged_entries: self.rooms.memory().read().len(),
            memtable_share: (self.rooms.room().memtable_share() * 1000.0).round() / 1000.0,
            checkpoint_at: self.rooms.ctx().figures.last_checkpoint(),
        }
    }

    fn write_amplification(&self) -> f64 {
        ratio(self.rooms.ctx().figures.data_blocks_written.get(), self.rooms.ctx().figures.host_blocks_written.get())
            .max(1.0)
    }

    /// What was written since the open.
    pub fn written(&self) -> WrittenView {
        let t = &self.rooms.ctx().figures;
        let (host, moved, map) = (t.host_blocks_written.get(), t.moved_blocks.get(), t.node_blocks_written.get());
        // Counted when they are begun, the others when they are acknowledged.
        let data = t.data_blocks_written.get();
        WrittenView {
            host_bytes: BlockCount(host).bytes(),
            moved_bytes: BlockCount(moved).bytes(),
            map_bytes: BlockCount(map).bytes(),
            header_bytes: BlockCount(data.saturating_sub(host + moved + map)).bytes(),
            redundancy_bytes: BlockCount(t.raw_blocks_written.get().saturating_sub(data)).bytes(),
        }
    }

    /// Counters, now.
    pub fn iostat(&self) -> IostatView {
        let (members, volumes) = self.worked();
        IostatView {
            array: self.rooms.ctx().name(),
            volumes: volumes.into_iter().map(TrafficView::from).collect(),
            drives: members.into_iter().map(TrafficView::from).collect(),
        }
    }

    /// Members and volumes with how their requests were done; without for volumes where there are more than
    /// [`VOLUMES_TIMED`].
    pub fn worked(&self) -> (Vec<MemberView>, Vec<VolumeView>) {
        let now = self.rooms.ctx().rt.turned();
        let (mut members, mut volumes) = (self.member_lines(), self.volume_lines());
        for line in &mut members {
            let seat = self.rooms.members().all().iter().find(|s| s.id.0 == line.member).cloned();
            line.work = seat.map(|seat| Box::new(seat.counters.work(now)));
        }
        if volumes.len() <= VOLUMES_TIMED {
            let all = self.rooms.volumes().all();
            for line in &mut volumes {
                let vol = all.values().find(|v| v.uuid == line.uuid);
                line.work = vol.map(|v| Box::new(v.counters.work(now, v.quota.waited_nanos.get())));
            }
        }
        (members, volumes)
    }

    /// The state in one word.
    pub fn state_word(&self) -> ArrayState {
        match self.rooms.ctx().phase() {
            Phase::ReadOnly if !self.rooms.health().survivable() => ArrayState::Frozen,
            Phase::ReadOnly => ArrayState::ReadOnly,
            Phase::Frozen => ArrayState::Frozen,
            Phase::Closed => ArrayState::Closed,
            Phase::Open if !self.rooms.members().lacks_members() && !self.rooms.rebuild().lacks_redundancy() => {
                ArrayState::Optimal
            }
            Phase::Open
                if !self.rooms.rebuild().lacks_redundancy()
                    && self.may_fail() >= self.rooms.ctx().shape.scheme.tolerates() =>
            {
                ArrayState::Rebuilt
            }
            Phase::Open if self.rooms.rebuild().is_rebuilding() => ArrayState::Rebuilding,
            Phase::Open
                if self.rooms.members().lacks_members() || self.rooms.health().broken_segments().next().is_some() =>
            {
                ArrayState::Degraded
            }
            // Only a generation is missing.
            Phase::Open => ArrayState::Rebuilding,
        }
    }

    /// The members, by seat.
    pub fn member_lines(&self) -> Vec<MemberView> {
        let seats = self.rooms.members().all();
        let shown = seats.iter().filter(|s| s.state() != MemberState::Vacant);
        let mut lines: Vec<MemberView> = shown
            .map(|s| MemberView {
                member: s.id.0,
                state: self.rooms.members().seat_state(s),
                seat: s.bay(),
                missing: s.state() == MemberState::Out && s.why_out() == WhyOut::Missing,
                gone_since: if s.state() == MemberState::Out { s.gone_since().0 } else { 0 },
                drive: s.path().to_owned(),
                drive_name: s.drive_name().to_owned(),
                bytes: BlockCount(s.layout.drive_blocks).bytes(),
                bytes_used: BlockCount(s.layout.used_blocks()).bytes(),
                zones: u64::from(s.layout.zones),
                zones_free: s.zones_free() as u64,
                reads: s.counters.reads.get(),
                writes: s.counters.writes.get(),
                bytes_read: s.counters.bytes_read.get(),
                bytes_written: s.counters.bytes_written.get(),
                errors: s.counters.errors.get(),
                work: None,
                mismatches: s.counters.mismatches.get(),
                volatile_cache: s.volatile(),
                access: s.drive.as_ref().map(|d| d.access().words().to_owned()),
                access_why: s.drive.as_ref().and_then(|d| d.access_why()),
                suspect: s.health.suspect(self.rooms.ctx().rt.now()),
                reads_around: s.speed.around(),
            })
            .collect();
        MemberView::sort(&mut lines);
        lines
    }

    /// The volumes.
    pub fn volume_lines(&self) -> Vec<VolumeView> {
        let volumes = self.rooms.volumes().all();
        let shown = volumes.values().filter(|v| v.is_hosts() && v.agreed_blocks() > 0);
        let mut lines = Vec::with_capacity(volumes.len());
        lines.extend(shown.map(|v| VolumeView {
            name: v.name(),
            uuid: v.uuid,
            bytes: BlockCount(v.agreed_blocks()).bytes(),
            mapped_bytes: BlockCount(self.rooms.room().stored_in(v)).bytes(),
            state: state_of(v.state()),
            limits: limits_view(v.limits()),
            limited: v.quota.waited.get(),
            reads: v.counters.reads.get(),
            writes: v.counters.writes.get(),
            flushes: v.counters.flushes.get(),
            deallocates: v.counters.deallocates.get(),
            bytes_read: v.counters.bytes_read.get(),
            bytes_written: v.counters.bytes_written.get(),
            errors: v.counters.errors(),
            work: None,
            block_device: None,
            guest_socket: None,
            exported_at: vec![],
        }));
        lines
    }
}

const fn state_of(state: VolumeState) -> api::VolumeState {
    match state {
        VolumeState::Live => api::VolumeState::Live,
        VolumeState::Dropping { .. } => api::VolumeState::Dropping,
    }
}

const fn limits_view(limits: Limits) -> LimitsView {
    let Limits { iops, bytes_per_second, burst_ms } = limits;
    LimitsView { iops, bytes_per_second, burst_ms }
}

/// A rate in one word.
fn rate_word(rate: ondisk::Rate) -> String {
    match rate {
        ondisk::Rate::Low => "low".to_owned(),
        ondisk::Rate::Medium => "medium".to_owned(),
        ondisk::Rate::High => "high".to_owned(),
        ondisk::Rate::Bytes(n) => n.to_string(),
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { (a as f64 / b as f64 * 1000.0).round() / 1000.0 }
}
