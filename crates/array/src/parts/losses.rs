//! A drive that goes out in one part goes out in all of them: it is one drive.
//!
//! What counts is the going: a member that was in when it was last looked at, and is out now. One that is out already when
//! the array is opened, or that is being replaced, may be in another part for good reason (a join that a crash has
//! interrupted).
//!
//! Invariant: nobody goes out beyond the redundancy of a part.

use std::collections::{BTreeMap, BTreeSet};

use api::{MemberView, SeatState};
use base::MemberId;

use super::Whole;
use crate::canary::{Canary, planted};
use crate::fault::Refused;

/// The members of each part that were in: part, seat and the drive's name.
#[derive(Clone, Debug, Default)]
pub struct Roster(BTreeSet<(usize, u16, String)>);

impl Whole {
    /// Takes drives that went out in a part since `before` out of the other parts, too, where their redundancy covers
    /// it; the next call sees what is then.
    ///
    /// # Errors
    /// When the core of a part has ended.
    pub async fn share_losses(&self, before: &mut Roster) -> Result<(), Refused> {
        if self.others().is_empty() || planted(Canary::LossKeptToPart) {
            return Ok(());
        }
        let all: Vec<Vec<MemberView>> = self.all(|array| async move { array.status().members }).await?;
        let line = |part: usize, m: &MemberView| (part, m.member, m.drive_name.clone());
        let with = |wanted: fn(SeatState) -> bool| {
            let lines = all.iter().enumerate().flat_map(|(part, m)| m.iter().map(move |m| (part, m)));
            lines.filter(move |(_, m)| wanted(m.state))
        };
        // One that is missing in one part is missing in all; one that failed in any has failed.
        let mut lost: BTreeMap<String, bool> = BTreeMap::new();
        for (_, m) in with(SeatState::is_out).filter(|(part, m)| before.0.contains(&line(*part, m))) {
            let missing = lost.entry(m.drive_name.clone()).or_insert(true);
            *missing &= m.missing && !planted(Canary::GoneFailed);
        }
        let is_in = |state| state == SeatState::In;
        before.0 = with(is_in).map(|(part, m)| line(part, m)).collect();
        for (part, member) in with(is_in) {
            let Some(&missing) = lost.get(&member.drive_name) else { continue };
            let seat = MemberId(member.member);
            let fails = move |array: crate::Array| async move {
                if missing { array.drive_gone(seat).await } else { array.drive_fail(seat).await }
            };
            if let Err(refused) = self.part(part).ask(fails).await? {
                tracing::warn!("drive {} stays in part {}: {refused}", member.drive_name, part + 1);
            }
        }
        Ok(())
    }
}
