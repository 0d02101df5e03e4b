//! Whether records were written under a generation that nobody can read any more.
//!
//! The slots of all members hold the newest generation. When none does, the one before is the newest to be found, and
//! nothing in it tells of what was acknowledged since. A power cut while a generation is written leaves the same: so the
//! records themselves are asked, the first of every zone, and only when a member lacks one of its two generations. One
//! that lacks both is asked too: it may be the only one that was in to the end.

use api::Remedy;
use base::BLOCK_BYTES;
use futures::stream::{self, StreamExt, TryStreamExt};
use ondisk::{Generation, MemberState, RecordHeader};
use rt::{Buf, Drive, IoError};

use crate::canary::{Canary, planted};
use crate::fault::{Refused, RefusedCode};
use crate::label::read::PATIENCE;
use crate::open::Found;
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
        let newest = stream::iter(zones).buffer_unordered(AT_ONCE);
        let newest = newest.try_fold(g.number, |a, b| async move { Ok(a.max(b.unwrap_or(a))) }).await;
        let Ok(newest) = newest else {
            // It is as good as missing, and goes out once recovery waits for it.
            tracing::warn!(
                "drive {} does not answer: what it holds of newer generations is unknown",
                f.drive.info().name
            );
            continue;
        };
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

/// The generation of the record that begins a zone, if one does; an error when the drive does not answer.
async fn newest_in(drive: &Drive, f: &Found, zone: u32, g: &Generation) -> Result<Option<base::Generation>, IoError> {
    let at = f.label.layout.zone_row(zone, 0);
    let mut silent = false;
    for _ in 0..READ_TRIES {
        let read = async {
            let (read, block) = drive.read(at, Buf::zeroed(BLOCK_BYTES)).await;
            read.map(|()| block)
        };
        match drive.within(PATIENCE, read).await {
            Ok(block) => {
                let header = RecordHeader::decode(&block).ok();
                return Ok(header.filter(|h| h.array == g.array).map(|h| h.generation));
            }
            Err(error) => silent = error == IoError::TimedOut,
        }
    }
    if silent { Err(IoError::TimedOut) } else { Ok(None) }
}
