//! An open array in parts: what its verbs are asked of, and its volumes as hosts see them.

use api::{ArrayState, SeatState};
use array::parts::{self, Part, STRIPE_BYTES, Slices};
use array::{Array, Discard, Refused, Whole};
use base::{BLOCK_BYTES, BlockCount, MemberLba};
use export::Striped;
use ondisk::Label;
use rt::Rt;
use rt::cross::submissions;
use rt::model::Disk;
use volume::LocalVolume;

use super::Scene;
use super::namespace::Share;
use crate::kind::Kind;

/// All parts, on one runtime.
#[derive(Clone)]
pub struct Opened {
    /// What verbs are asked of.
    pub whole: Whole,
    /// The parts themselves.
    pub parts: Vec<Array>,
}

impl Opened {
    /// Puts parts together; the others reached by submissions, or here.
    pub async fn of(rt: &Rt, parts: Vec<Array>, submitted: bool) -> Result<Opened, Refused> {
        let other = |array: Array| {
            if !submitted {
                return Part::Here(array);
            }
            let (part, end) = submissions(rt);
            let of = rt.clone();
            rt.spawn(async move { end.serve(&of, array).await }).detach();
            Part::There(part)
        };
        let others = parts[1..].iter().cloned().map(other).collect();
        Ok(Opened { whole: Whole::of(parts[0].clone(), others).await?, parts })
    }

    /// A volume as hosts see it; an error when a part lacks it.
    pub fn volume(&self, name: &str) -> Result<Option<Striped<Share>>, String> {
        let Some(first) = self.parts[0].volume(name) else { return Ok(None) };
        let tag = first.uuid().to_string();
        let mut shares = vec![Share { volume: LocalVolume(first), last: false }];
        for (part, number) in self.parts[1..].iter().zip(2..) {
            let lacks = || format!("part {number} lacks volume {name}, which the first part has");
            shares.push(Share {
                volume: LocalVolume(part.volume(&tag).ok_or_else(lacks)?),
                last: number == self.parts.len(),
            });
        }
        Ok(Some(Striped::new(shares, STRIPE_BYTES)))
    }

    /// Whether no part lacks anything.
    pub fn is_optimal(&self) -> bool {
        self.parts.iter().all(|part| part.state() == ArrayState::Optimal)
    }

    /// Members of this state, of all parts.
    pub fn count(&self, state: SeatState) -> usize {
        self.parts.iter().map(|part| part.status().members.iter().filter(|m| m.state == state).count()).sum()
    }

    /// Slices that are out.
    pub fn count_out(&self) -> usize {
        self.parts.iter().map(|part| part.status().members.iter().filter(|m| m.state.is_out()).count()).sum()
    }

    /// What a drive is in each part.
    pub fn seats(&self, drive: &str) -> Vec<Option<SeatState>> {
        let rank = |state: &SeatState| state.is_out();
        let seat = |part: &Array| {
            let lines = part.status().members.into_iter().filter(|m| m.drive_name == drive);
            lines.map(|m| m.state).min_by_key(rank)
        };
        self.parts.iter().map(seat).collect()
    }
}

/// The slices of a drive.
pub fn slices(disk: &Disk, parts: u8) -> Slices {
    let blocks = BlockCount(disk.params().bytes / BLOCK_BYTES as u64);
    Slices::new(blocks, parts).expect("drives are large enough")
}

/// The drives that an array can be opened with: who names them knows them by the label of any part.
pub fn labelled(scene: &mut Scene) -> Vec<Disk> {
    let mut ours = vec![];
    for disk in scene.world.disks.iter().filter(|d| d.is_attached()) {
        let slices = slices(disk, scene.plan.parts);
        let ends = |index: u8| {
            let (from, blocks) = slices.range(index);
            [from, MemberLba(from.0 + blocks.0 - 1)]
        };
        let is_label = |at: &MemberLba| Label::decode(&disk.image_read(*at, BlockCount(1))).is_ok();
        let labels: Vec<MemberLba> = (0..scene.plan.parts).flat_map(ends).filter(is_label).collect();
        if labels.is_empty() {
            continue;
        }
        let last = BlockCount(disk.params().bytes / BLOCK_BYTES as u64).0 - 1;
        if labels.iter().all(|at| at.0 != 0 && at.0 != last) {
            scene.world.counts.add(Kind::EndsWiped, 1);
        }
        ours.push(disk.clone());
    }
    ours
}

/// Parts that have more of a volume than the first: what ended verbs have left.
pub fn left_in_parts(parts: &[Array]) -> u64 {
    let live =
        |array: &Array| array.volumes().into_iter().filter(|v| v.state == api::VolumeState::Live).collect::<Vec<_>>();
    let first = live(&parts[0]);
    let more = |name: &str, bytes: u64| !first.iter().any(|v| v.uuid.to_string() == name && v.bytes >= bytes);
    parts[1..].iter().map(|part| live(part).iter().filter(|v| more(&v.name, v.bytes)).count() as u64).sum()
}

/// Opens all parts.
pub async fn open(rt: &Rt, disks: &[Disk]) -> Result<Vec<Array>, Refused> {
    let parts = parts::open(rt, crate::world::drives(rt, disks), crate::run::DEGRADED).await?;
    // What is freed too early is gone then.
    parts.iter().filter(|_| parts.len().is_multiple_of(2)).for_each(|part| part.set_discard(Discard::All));
    Ok(parts)
}
