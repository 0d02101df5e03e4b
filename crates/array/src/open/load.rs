//! The tables of a generation, in memory.

use std::collections::BTreeMap;
use std::rc::Rc;

use api::EventCode;
use base::MemberId;
use ondisk::{Generation, Layout, MemberState, SegmentState, WhyOut};
use rt::{Drive, Rt};

use super::find::NOT_OWN;
use super::returning::Standing;
use super::{Found, OpenHow};
use crate::canary::{Canary, planted};
use crate::ctx::{Phase, Shape};
use crate::fault::{Refused, RefusedCode};
use crate::member::seat::Seat;
use crate::rooms::Rooms;
use crate::space::segment::Seg;
use crate::volumes::vol::Vol;

/// Seats, segments and volumes as the generation says.
pub(super) fn load(
    rt: &Rt,
    g: &Generation,
    found: &[Found],
    standings: &[Standing],
    how: OpenHow,
) -> Result<Rc<Rooms>, Refused> {
    let Some(scheme) = g.level.scheme_of_width(usize::from(g.width)) else {
        return Err(Refused::new(
            RefusedCode::Damaged,
            format!("array \"{}\"", g.name),
            "impossible width",
            "Inspect its drives",
        ));
    };
    let label = &found[0].label;
    let shape = Shape {
        array: g.array,
        part: how.part,
        level: g.level,
        scheme,
        zone_blocks: g.zone_blocks,
        slot_blocks: label.layout.slot_blocks,
        rebuild_place: g.rebuild_place,
        usable_permille: g.usable_permille,
    };
    let read_only = how.read_only || g.features.read_only_compatible != 0;
    let rooms = Rooms::new(rt, g.name.clone(), shape, if read_only { Phase::ReadOnly } else { Phase::Open });
    rooms.ctx().set(|settings| *settings = g.settings);
    rooms.ctx().said.use_features(g.features);
    let mut drives: BTreeMap<MemberId, Drive> = BTreeMap::new();
    for (f, standing) in found.iter().zip(standings) {
        let name = &f.drive.info().name;
        match standing {
            Standing::Current => _ = drives.insert(f.label.seat, f.drive.clone()),
            Standing::Behind(Some(own)) => rooms.ctx().warn(
                EventCode::DriveOld,
                format!(
                    "drive {name} is in an older state: its newest generation is {}, the array's is {}",
                    own.number, g.number
                ),
            ),
            Standing::Behind(None) => {
                rooms.ctx().warn(EventCode::DriveOld, format!("drive {name} holds no valid generation"))
            }
            Standing::Out if !f.own => {
                rooms.ctx().warn(EventCode::DriveOld, format!("drive {name} {NOT_OWN}: it is left out"))
            }
            Standing::Out => rooms.ctx().warn(
                EventCode::DriveOld,
                format!("drive {name} was taken out before: its data is old and is not used"),
            ),
        }
    }
    for (i, member) in g.members.iter().enumerate() {
        let id = MemberId(i as u16);
        let layout = Layout {
            drive_blocks: member.drive_blocks,
            slot_blocks: label.layout.slot_blocks,
            zone_blocks: g.zone_blocks,
            zones: member.zones,
        };
        let here = found.iter().find(|f| f.label.seat == id && f.label.member == member.uuid);
        let layout = here.map_or(layout, |f| rooms.labels().layout_now(&f.drive, member.bay, layout));
        let drive = drives.remove(&id);
        let missing = drive.is_none();
        let seat = Seat::new(id, member, layout, drive, rooms.members().guard());
        if !missing && planted(Canary::StaleBelieved) {
            seat.joins();
        }
        if missing && member.state == MemberState::In {
            if here.is_none() {
                rooms.ctx().warn(
                    EventCode::DriveMissing,
                    format!("drive {} (seat {}) is missing", member.drive_name, member.bay),
                );
            }
            seat.goes_out(WhyOut::Missing);
        }
        rooms.members().add(seat);
    }
    rooms.health().keep_leavers();
    {
        rooms.segments().begin_at(g.next_segment);
        // A segment listed as empty and merged is free once its generation is in effect: its zones may be
        // deallocated already.
        let kept = |s: &&ondisk::Segment| s.state != SegmentState::Sealed || s.live > 0 || s.replay_row.is_some();
        for s in g.segments.iter().filter(kept) {
            // What lay behind the end of a drive that has become smaller is lost.
            let seats = rooms.members().all();
            let is_there = |(m, zone): &(MemberId, u32)| *zone < seats[usize::from(m.0)].layout.zones;
            let slots = s.slots.iter().map(|slot| slot.filter(is_there)).collect();
            drop(seats);
            let seg = Seg::from_line(s, slots);
            for (member, zone) in seg.slots.iter().flatten() {
                rooms.members().all()[usize::from(member.0)].occupy_zone(*zone);
            }
            rooms.segments().take_up(seg);
        }
    }
    for v in &g.volumes {
        rooms.volumes().add(Vol::from_line(v));
    }
    rooms.volumes().begin_at(g.next_volume);
    rooms.system().found(g);
    let gone = |m: MemberId| rooms.members().seat(m).is_none_or(|s| !s.is_in());
    if !rooms.health().survivable() || !frontier_survives(g, gone) {
        rooms.health().freeze("more drives are missing than redundancy covers");
    }
    Ok(rooms)
}

/// Whether what was acknowledged last survives without the members that are gone. It may lie in any frontier segment, also in one
/// that the generation knows as empty, unless a close wrote it. (Not behind the rows of one that the generation knows to have lost
/// a member.)
pub(crate) fn frontier_survives(g: &Generation, gone: impl Fn(MemberId) -> bool) -> bool {
    let out = |m: MemberId| g.members.get(usize::from(m.0)).is_none_or(|m| m.state != MemberState::In);
    let written = |s: &&ondisk::Segment| s.replay_row.is_some() && !s.slots.iter().flatten().any(|(m, _)| out(*m));
    let mut frontier = g.segments.iter().filter(|_| !g.clean).filter(written);
    frontier.all(|s| s.scheme.survives(|c| s.slots[c].is_none_or(|(m, _)| gone(m))))
}
