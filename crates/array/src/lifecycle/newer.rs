//! Whether records were written under a generation that nobody can read any more.
//!
//! The slots of all members hold the newest generation. When none does, the one before is the newest to be found, and
//! nothing in it tells of what was acknowledged since. A power cut while a generation is written leaves the same: so the
//! records themselves are asked, the first of every zone, and only when a member lacks one of its two generations. One
//! that lacks both is asked too: it may be the only one that was in to the end.

use base::BLOCK_BYTES;
use futures::stream::{self, StreamExt};
use ondisk::{Generation, MemberState, RecordHeader};
use rt::{Buf, Drive};

use super::open::Found;
use crate::canary::{Canary, planted};
use crate::fault::{Refused, RefusedCode, Remedy};
use crate::row::READ_TRIES;

/// Reads of a drive at once.
const AT_ONCE: usize = 64;

/// Refuses when a believed drive holds a record of a newer generation than `g`.
pub async fn refuse_newer(found: &[Found], believed: &[bool], g: &Generation) -> Result<(), Refused> {
    let silent = |f: &Found| {
        let seat = g.members.get(usize::from(f.label.seat.0)).filter(|m| m.uuid == f.label.member);
        let asked = !planted(Canary::SilentNotAsked);
        asked && f.generations.is_empty() && seat.is_some_and(|m| m.state == MemberState::In)
    };
    let asked = found.iter().zip(believed).filter(|(f, believed)| **believed || silent(f));
    let ours: Vec<&Found> = asked.map(|(f, _)| f).collect();
    // The newer one would have taken the place of the older on every drive that it marks in.
    let in_place = |f: &&Found| f.generations.len() > 1 && f.generations[0].number == g.number;
    let spare = |f: &&&Found| f.generations.is_empty() && !silent(f);
    let sure = ours.iter().filter(|f| !spare(f)).all(in_place);
    if sure || planted(Canary::NewerGenerationIgnored) {
        return Ok(());
    }
    for f in ours {
        let zones = (0..f.label.layout.zones).map(|zone| newest_in(&f.drive, f, zone, g));
        let newest = stream::iter(zones).buffer_unordered(AT_ONCE).filter_map(|n| async move { n });
        let newest = newest.fold(g.number, |a, b| async move { a.max(b) }).await;
        if newest > g.number {
            return Err(Refused::new(
                RefusedCode::Damaged,
                "recovery stops",
                format!(
                    "drive {} holds records of generation {newest}, but the newest generation that can be read is {}",
                    f.drive.info().name,
                    g.number
                ),
                "Reconnect missing drives, or go on with what the older generation knows",
            )
            .by(Remedy::AcceptLoss));
        }
    }
    Ok(())
}

/// The generation of the record that begins a zone, if one does.
async fn newest_in(drive: &Drive, f: &Found, zone: u32, g: &Generation) -> Option<base::Generation> {
    let at = f.label.layout.zone_row(zone, 0);
    for _ in 0..READ_TRIES {
        let (read, block) = drive.read(at, Buf::zeroed(BLOCK_BYTES)).await;
        if read.is_ok() {
            let header = RecordHeader::decode(&block).ok()?;
            return (header.array == g.array).then_some(header.generation);
        }
    }
    None
}
