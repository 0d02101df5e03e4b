//! What a drive holds that is lost when it is taken: a file system, or a seat of an array, with how that array stands.
//!
//! Invariant: drives are looked at without their lock, and nothing is written.

use api::{HeldView, SeatState};
use base::{BLOCK_BYTES, BlockCount, MemberLba};
use rt::{Buf, Drive, IoError, OpenDrive, Rt, probe};
use uuid::Uuid;

use crate::drives::Source;
use crate::registry::Registry;

/// Looks what drives hold.
pub struct Look<'a> {
    /// The world.
    pub rt: &'a Rt,
    /// Tells which arrays this machine knows.
    pub registry: &'a Registry,
    /// Drives that may be of the same arrays: of all that are named together.
    pub beside: &'a [Source],
}

impl Look<'_> {
    /// What each of the drives beside each other holds; nothing of those that are empty, or cannot be looked at.
    pub async fn all(&self) -> Vec<HeldView> {
        let mut held = vec![];
        for path in self.beside.iter().filter_map(Source::path) {
            let how = OpenDrive { read_only: true, lock: false };
            let Ok(drive) = Drive::open(self.rt, path, how).await else { continue };
            held.extend(self.of(&drive).await.ok().flatten());
        }
        held
    }

    /// What a drive holds.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn of(&self, drive: &Drive) -> Result<Option<HeldView>, IoError> {
        let name = drive.info().name.clone();
        let Some(identity) = array::identify(drive).await? else {
            let kind = signature(drive).await?;
            return Ok(kind.map(|kind| HeldView { drive: name, what: format!("holds {kind}"), ..HeldView::default() }));
        };
        let held = HeldView {
            drive: name,
            array: Some(identity.array_name.clone()),
            array_uuid: Some(identity.array.0),
            seat: Some(identity.number()),
            known: self.registry.find(&identity.array.0.to_string()).is_ok(),
            ..HeldView::default()
        };
        let held = self.standing(drive, identity.array.0, held).await;
        Ok(Some(HeldView { what: words(&held), ..held }))
    }

    /// Adds how the array stands, as far as its drives tell that are known or beside each other.
    async fn standing(&self, drive: &Drive, array: Uuid, held: HeldView) -> HeldView {
        let mut drives = vec![drive.clone()];
        let known = self.registry.find(&array.to_string()).map(|known| known.drives).unwrap_or_default();
        let beside = self.beside.iter().filter_map(|s| Some(s.path()?.display().to_string()));
        for name in known.into_iter().chain(beside) {
            let how = OpenDrive { read_only: true, lock: false };
            let Ok(other) = Drive::open(self.rt, name.as_ref(), how).await else { continue };
            let is_of_it = matches!(array::identify(&other).await, Ok(Some(identity)) if identity.array.0 == array);
            if is_of_it && drives.iter().all(|d| !d.is_same_as(&other)) {
                drives.push(other);
            }
        }
        let Ok(Some(survey)) = array::survey(self.rt, &drives).await else { return held };
        let (of, found) = survey.counts();
        let seat = survey.seat_of(0);
        HeldView {
            array: Some(survey.name.clone()),
            level: Some(survey.level.to_string()),
            seat: seat.map(|seat| seat.bay).or(held.seat),
            state: seat.map(|seat| seat.state),
            given_up: seat.is_none_or(|seat| matches!(seat.state, SeatState::Failed | SeatState::Replaced)),
            drives_found: Some(found as u64),
            drives_of: Some(of as u64),
            ..held
        }
    }
}

fn words(held: &HeldView) -> String {
    let array = held.array.as_deref().unwrap_or_default();
    let mut facts: Vec<String> = held.level.iter().cloned().collect();
    if let (Some(found), Some(of)) = (held.drives_found, held.drives_of) {
        facts.push(format!("{found} of its {of} drives are present"));
    }
    facts.push(if held.known { "known on this machine" } else { "not known on this machine" }.to_owned());
    let seat = held.seat.map(|seat| format!("seat {seat} of ")).unwrap_or_default();
    let was = match (held.given_up, held.state) {
        (true, _) => "was ",
        (false, Some(SeatState::Spare)) => "is a spare, ",
        (false, _) => "is ",
    };
    format!("{was}{seat}array {array} ({})", facts.join(", "))
}

/// What a drive holds that is not ours, by its beginning and its end.
pub async fn signature(drive: &Drive) -> Result<Option<&'static str>, IoError> {
    const FIRST: u64 = probe::FIRST_BYTES / BLOCK_BYTES as u64;
    const LAST: u64 = probe::LAST_BYTES / BLOCK_BYTES as u64;
    let blocks = drive.info().blocks.0;
    let head = BlockCount(blocks.min(FIRST));
    let tail = BlockCount(blocks.min(LAST));
    let (done, first) = drive.read(MemberLba(0), Buf::zeroed(head.len())).await;
    done?;
    let (done, last) = drive.read(MemberLba(blocks - tail.0), Buf::zeroed(tail.len())).await;
    done?;
    Ok(probe::signature(&first, &last))
}
